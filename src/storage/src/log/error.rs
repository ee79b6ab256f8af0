//! Errors of the log, each with the remedy. The server maps these to exit codes.

use std::io;

use nix::errno::Errno;

/// The remedy on a server that has lost data. This crate does not know whether there are other servers.
pub const ADVICE: &str = "in an ensemble, empty this server's data directory but for `myid` and start it: it catches up from \
                          the leader; a server that runs alone needs its backup";

/// An error of the log.
///
/// After [`LogError::SyncFailed`] the log is poisoned, and every further call fails with [`LogError::Poisoned`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// A call of the disk failed.
    #[error("{file}: {what}: {source}")]
    Io {
        /// Name of the file.
        file: String,
        /// What failed.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// A sync failed. Fatal for the process: the kernel reports a lost write once and calls the pages clean afterwards.
    #[error("{file}: sync failed, nothing written since the last sync can be trusted; stop, check the disk: {source}")]
    SyncFailed {
        /// Name of the file.
        file: String,
        /// Why.
        source: io::Error,
    },
    /// An earlier call failed and left unknown what the disk holds.
    #[error("the log failed before and takes no further calls")]
    Poisoned,
    /// A segment cannot be made or opened, because space or another resource is missing.
    ///
    /// Nothing of the batch was written. The call may be repeated when the resource is there again.
    #[error(
        "no {what} for a new log segment ({bytes} bytes): {source}; {remedy}",
        what = shortage(.source).unwrap_or(SPACE).0,
        remedy = shortage(.source).unwrap_or(SPACE).1
    )]
    NoSpace {
        /// Bytes of the segment.
        bytes: usize,
        /// Why.
        source: io::Error,
    },
    /// Acknowledged data cannot be read.
    #[error("{file}: damaged at offset {offset}: {what}: {advice}", advice = ADVICE)]
    Damaged {
        /// Name of the file.
        file: String,
        /// Offset of the damage in the file, in bytes.
        offset: u64,
        /// The mismatch.
        what: String,
    },
    /// A segment between others, or before them, is missing.
    #[error("{file}: log segment missing though later or earlier ones need it: {advice}", advice = ADVICE)]
    MissingSegment {
        /// Name that the segment had.
        file: String,
    },
    /// The file `DURABLE` states what the segments do not hold.
    #[error(
        "DURABLE: {what}; to use an older copy of the log on a standalone server, remove the file DURABLE; this gives up all \
         writes that the copy lacks; otherwise log files are lost: {advice}",
        advice = ADVICE
    )]
    OtherLog {
        /// The contradiction.
        what: String,
    },
    /// There is no log, and [`LogConfig::create_if_missing`](super::LogConfig::create_if_missing) forbids to begin one.
    #[error("no log in the data directory; it belongs to this server's snapshots: {advice}", advice = ADVICE)]
    NoLog,
    /// A file with the name of a segment does not begin as one.
    #[error(
        "{file}: a damaged log segment, or not a file of corral: {what}; move it away only if corral did not write it, else {advice}",
        advice = ADVICE
    )]
    NotASegment {
        /// Name of the file.
        file: String,
        /// The mismatch.
        what: &'static str,
    },
    /// A newer program wrote the file.
    #[error("{file}: format version {found}, this program reads {expected}; use the version that wrote it")]
    WrongVersion {
        /// Name of the file.
        file: String,
        /// Version in the file.
        found: u32,
        /// Version that this program reads.
        expected: u32,
    },
    /// A file with the suffix of a segment has a name that no segment has.
    #[error("{file}: not a valid name of a log segment; move the file out of the data directory")]
    StrayFile {
        /// Name of the file.
        file: String,
    },
    /// The directory holds more segments than one log may have.
    #[error("{found} log segments, at most {max} are supported")]
    TooManySegments {
        /// Segments found.
        found: usize,
        /// [`SEGMENTS_MAX`](crate::limits::SEGMENTS_MAX).
        max: usize,
    },
    /// A value of [`LogConfig`](super::LogConfig) is out of its limits.
    #[error("log configuration: {what}")]
    Config {
        /// Which, and its limits.
        what: &'static str,
    },
    /// An appended entry would leave a gap, or comes before the first held entry. Nothing was appended.
    #[error("entry {index} does not follow the log, which holds {first}..{next}")]
    OutOfOrder {
        /// Index of the appended entry.
        index: u64,
        /// First held index.
        first: u64,
        /// One more than the last held index.
        next: u64,
    },
    /// A payload is longer than a record may have. Nothing was appended.
    #[error("payload of {bytes} bytes, a record of this log takes at most {max}")]
    TooLarge {
        /// Bytes of the payload.
        bytes: usize,
        /// [`Log::payload_bytes_max`](super::Log::payload_bytes_max).
        max: usize,
    },
    /// The log does not hold the entry that was to be read.
    #[error("entry {index} is not held, the log holds {first}..{next}")]
    NotHeld {
        /// Index of the entry.
        index: u64,
        /// First held index.
        first: u64,
        /// One more than the last held index.
        next: u64,
    },
}

/// The shortage if the error does not tell another, and its remedy.
pub(crate) const SPACE: (&str, &str) = ("space", "free space");

/// The resource that is missing by an error of making or opening a file, and the remedy; `None` for other errors.
///
/// The resource may be there again later: nothing is wrong with the disk.
pub(crate) fn shortage(error: &io::Error) -> Option<(&'static str, &'static str)> {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EMFILE) => {
            Some(("file descriptors", "raise LimitNOFILE= or `ulimit -n`, or lower limits.connections_max"))
        }
        Some(Errno::ENFILE) => Some(("open files on this host", "raise fs.file-max")),
        Some(Errno::ENOMEM) => Some(("memory", "free memory, or raise vm.max_map_count")),
        _ => matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded).then_some(SPACE),
    }
}

impl LogError {
    /// The error for a segment of this size that cannot be made, or opened to be used, for `map_err`.
    pub(crate) fn no_segment(file: &str, what: &'static str, bytes: usize) -> impl FnOnce(io::Error) -> LogError {
        let file = file.to_owned();
        move |source| match shortage(&source) {
            Some(_) => LogError::NoSpace { bytes, source },
            None => LogError::Io { file, what, source },
        }
    }

    /// An [`LogError::Io`] for `map_err`.
    pub(crate) fn io(file: &str, what: &'static str) -> impl FnOnce(io::Error) -> LogError {
        let file = file.to_owned();
        move |source| LogError::Io { file, what, source }
    }
}
