//! What can go wrong with the log, each with what to do about it. The server maps these to exit codes.

use std::io;

/// For who has lost data: this crate does not know whether there are other servers.
pub const ADVICE: &str = "in an ensemble empty this server's data directory but for `myid` and start it: it learns \
                                 everything from the others; a server that runs alone needs its backup";

/// An error of the log. After `SyncFailed` the log is poisoned and every further call answers `Poisoned`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    #[error("{file}: {what}: {source}")]
    Io { file: String, what: &'static str, source: io::Error },
    /// Fatal for the process: the kernel forgets a lost write after telling of it once.
    #[error("{file}: sync failed, nothing written since the last sync can be trusted; stop, check the disk: {source}")]
    SyncFailed { file: String, source: io::Error },
    #[error("the log failed before and takes no further calls")]
    Poisoned,
    /// Nothing of the batch was written; the call may be repeated when there is space again.
    #[error("no space for a new log segment ({bytes} bytes): {source}; free space")]
    NoSpace { bytes: usize, source: io::Error },
    /// Acknowledged data cannot be read.
    #[error(
        "{file}: damaged at offset {offset}: {what}: {advice}", advice = ADVICE
    )]
    Damaged { file: String, offset: u64, what: String },
    #[error("{file}: log segment missing though later or earlier ones need it: {advice}", advice = ADVICE)]
    MissingSegment { file: String },
    /// The file `DURABLE` states what the segments do not hold.
    #[error(
        "DURABLE: {what}; if an older or another copy of the log was put here on purpose, on a server that runs alone, remove \
         the file DURABLE, which gives up all writes that the copy lacks; otherwise log files are lost: {advice}",
        advice = ADVICE
    )]
    OtherLog { what: String },
    #[error("no log in the data directory; it belongs to this server's images: {advice}", advice = ADVICE)]
    NoLog,
    #[error(
        "{file}: a damaged log segment, or none of corral's: {what}; move it away only if it was never corral's, else {advice}",
        advice = ADVICE
    )]
    NotASegment { file: String, what: &'static str },
    #[error("{file}: format version {found}, this program reads {expected}; use the version that wrote it")]
    WrongVersion { file: String, found: u32, expected: u32 },
    #[error("{file}: a name no segment can have; move the file out of the data directory")]
    StrayFile { file: String },
    #[error("{found} log segments, at most {max} are supported")]
    TooManySegments { found: usize, max: usize },
    #[error("log configuration: {what}")]
    Config { what: &'static str },
    #[error("entry {index} does not follow the log, which holds {first}..{next}")]
    OutOfOrder { index: u64, first: u64, next: u64 },
    #[error("payload of {bytes} bytes, a record of this log takes at most {max}")]
    TooLarge { bytes: usize, max: usize },
    #[error("entry {index} is not held, the log holds {first}..{next}")]
    NotHeld { index: u64, first: u64, next: u64 },
}

impl LogError {
    pub(crate) fn io(file: &str, what: &'static str) -> impl FnOnce(io::Error) -> LogError {
        let file = file.to_owned();
        move |source| LogError::Io { file, what, source }
    }
}
