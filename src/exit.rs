//! How the process ends: the one list of exit codes, and `Fault`, the reason that travels with a code.
//!
//! Plain data, for any thread. It gives errors of storage their code. It does not show a fault: `main` prints the
//! sentence once and leaves with the code. A panic is no fault of this list: the process aborts and the supervisor sees
//! SIGABRT.

use std::error::Error;
use std::fmt::Write as _;
use std::io;

use corral_storage::{DiskError, LogError, SnapshotError};

/// Declares the exit codes together with their documentation, so that code, `--help` and the reference cannot differ.
macro_rules! exit_codes {
    ($( $(#[doc = $doc:literal])+ $name:ident = $code:literal, )+) => {
        /// Every way the process may end on purpose. The numbers are part of the interface: supervisors act on them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum ExitCode { $( $(#[doc = $doc])+ $name = $code, )+ }

        impl ExitCode {
            /// All codes in ascending order.
            pub(crate) const ALL: &[ExitCode] = &[$( ExitCode::$name, )+];

            /// The meaning of the code and the remedy, one paragraph.
            pub(crate) fn doc(self) -> &'static str {
                match self { $( ExitCode::$name => concat!($( $doc ),+).trim_ascii(), )+ }
            }
        }
    };
}

exit_codes! {
    /// Done, or stopped in good order by SIGTERM or SIGINT.
    Ok = 0,
    /// Another failure. Standard error names it. Or a comparison found a difference.
    Internal = 1,
    /// The command line is not understood. Nothing was started.
    Usage = 2,
    /// The configuration is wrong: an unknown key, a wrong type, a value out of range, a contradiction, or no
    /// configuration file. Correct the named line.
    Config = 3,
    /// The data directory is in use by another running server.
    DataDirLocked = 4,
    /// The data directory belongs to another program, server id, cluster, or a newer version. Or a standalone
    /// server's data are used in an ensemble, or the reverse. Or they are older than a rescue of this ensemble.
    /// Choose another directory, or see `corral rescue`.
    DataDirForeign = 5,
    /// Stored data is damaged. The sentence names file and offset. Nothing was changed on disk.
    DataDamaged = 6,
    /// The disk refused a file operation other than a sync: missing permission, no space, read-only file system. Also
    /// when SIGTERM found writes that waited for space: they were never answered, and are not done.
    StorageUnavailable = 7,
    /// A sync to disk failed, and the server stopped at once. Check the disk first. A restart replays the data on
    /// disk.
    SyncFailed = 8,
    /// The client address, or that for the other servers, cannot be listened on: port in use, address not on this host,
    /// or no permission.
    ListenFailed = 9,
    /// The kernel does not offer io_uring to this process.
    IoUringMissing = 10,
    /// RLIMIT_MEMLOCK is too low to start.
    MemlockTooLow = 11,
    /// RLIMIT_NOFILE is too low to start.
    NofileTooLow = 12,
    /// The watchdog found a core that slept without progress for `runtime.watchdog_exit_ms`. Restart the server.
    WatchdogFrozen = 13,
    /// A page of a mapped file could not be read or written. The file was truncated under the running server, or
    /// the disk failed or is full. Standard error names file and offset. Check the disk and restart the server:
    /// it checks its files first.
    MappedPageLost = 14,
    /// No server answered, or the session was lost. A request may be done or not. Check the servers, and run the
    /// command again.
    SessionLost = 15,
    /// A znode does not exist.
    NoZnode = 16,
    /// A znode exists already, has another version or children, or a limit is reached. Nothing was changed by this
    /// request.
    Conflict = 17,
    /// The identities of the session have no permission, or are refused.
    NotPermitted = 18,
    /// The time given with --timeout passed.
    TimedOut = 19,
    /// The transaction of `corral 2pc` was aborted.
    Aborted = 20,
    /// The command that was to run cannot be executed.
    NotExecutable = 126,
    /// The shell does not know this verb. Or the command that was to run does not exist.
    UnknownVerb = 127,
    /// Ended by SIGINT. The session was closed.
    Interrupted = 130,
}

impl ExitCode {
    /// The number the process leaves with.
    pub(crate) fn number(self) -> u8 {
        self as u8
    }
}

/// Why a command ended early: the exit code, and one sentence with cause and remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{sentence}")]
pub(crate) struct Fault {
    /// The code the process leaves with; never `Ok`.
    pub(crate) code: ExitCode,
    /// Cause and remedy. May span lines when several things are wrong at once.
    pub(crate) sentence: String,
}

impl Fault {
    /// A fault with its code and sentence.
    ///
    /// # Panics
    /// When `code` is `Ok`: a fault is never a success.
    pub(crate) fn new(code: ExitCode, sentence: impl Into<String>) -> Fault {
        assert!(code != ExitCode::Ok, "a fault never carries the exit code of success");
        Fault { code, sentence: sentence.into() }
    }
}

impl From<DiskError> for Fault {
    fn from(error: DiskError) -> Fault {
        let code = match error {
            DiskError::InUse { .. } => ExitCode::DataDirLocked,
            DiskError::Empty { .. }
            | DiskError::NoFormat { .. }
            | DiskError::Foreign { .. }
            | DiskError::WrongFormat { .. } => ExitCode::DataDirForeign,
            _ => ExitCode::StorageUnavailable,
        };
        let (path, found) = match &error {
            DiskError::Io { path, .. } if path.is_file() => (path, "a file".to_owned()),
            DiskError::Foreign { path, found } if is_backup(found) => {
                (path, format!("one of backups: it holds {found:?}"))
            }
            _ => return Fault::new(code, with_advice(&error)),
        };
        let sentence = format!(
            "{}: not a data directory, but {found}; `corral verify` and `corral restore` read backups and archives",
            path.display()
        );
        Fault::new(ExitCode::DataDirForeign, sentence)
    }
}

impl From<LogError> for Fault {
    fn from(error: LogError) -> Fault {
        let code = match error {
            LogError::SyncFailed { .. } | LogError::Poisoned => ExitCode::SyncFailed,
            LogError::Damaged { .. }
            | LogError::MissingSegment { .. }
            | LogError::NotASegment { .. }
            | LogError::OtherLog { .. }
            | LogError::NoLog => ExitCode::DataDamaged,
            LogError::WrongVersion { .. } | LogError::StrayFile { .. } | LogError::TooManySegments { .. } => {
                ExitCode::DataDirForeign
            }
            LogError::Io { .. } | LogError::NoSpace { .. } => ExitCode::StorageUnavailable,
            LogError::Config { .. } => ExitCode::Config,
            _ => ExitCode::Internal,
        };
        Fault::new(code, with_advice(&error))
    }
}

impl From<SnapshotError> for Fault {
    fn from(error: SnapshotError) -> Fault {
        let code = match error {
            SnapshotError::Damaged { .. }
            | SnapshotError::DamagedSection { .. }
            | SnapshotError::ChangedSection { .. } => ExitCode::DataDamaged,
            SnapshotError::NotASnapshot { .. }
            | SnapshotError::WrongVersion { .. }
            | SnapshotError::TooManySections { .. } => ExitCode::DataDirForeign,
            SnapshotError::Io { .. } | SnapshotError::NoSpace { .. } => ExitCode::StorageUnavailable,
            _ => ExitCode::Internal,
        };
        Fault::new(code, error.to_string())
    }
}

/// Whether a backup, or a file or directory of an archive, has this name.
fn is_backup(name: &str) -> bool {
    let is_chain = |(time, zxid): (&str, &str)| {
        time.contains('T') && zxid.len() == 16 && zxid.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    [".zst", ".zst.age"].iter().any(|end| name.ends_with(end)) || name.split_once("Z-").is_some_and(is_chain)
}

/// The error in words, with the remedy if permission is missing.
fn with_advice(error: &dyn Error) -> String {
    let cause = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    match cause.map(io::Error::kind) {
        Some(io::ErrorKind::PermissionDenied) => {
            format!("{error}; let this server's user read and write the data directory and its files, and start again")
        }
        Some(io::ErrorKind::ReadOnlyFilesystem) => format!("{error}; mount the file system writable, and start again"),
        _ => error.to_string(),
    }
}

/// The list for `--help`: one code per paragraph, as plain text.
pub(crate) fn help_text() -> String {
    let mut text = String::from("Exit codes:\n");
    for code in ExitCode::ALL {
        let first_sentence = code.doc().split_inclusive(". ").next().unwrap_or_default();
        writeln!(text, "  {:>2}  {}", code.number(), first_sentence.trim_end()).expect("a String takes every write");
    }
    text
}

/// The same list as a Markdown table for the configuration reference.
pub(crate) fn markdown_table() -> String {
    let mut text = String::from("| code | name | meaning |\n|---|---|---|\n");
    for code in ExitCode::ALL {
        writeln!(text, "| {} | {code:?} | {} |", code.number(), code.doc()).expect("a String takes every write");
    }
    text
}

/// How the process ends, as it is told to the main thread.
pub(crate) enum Ending {
    /// Everything is written and closed.
    Stopped,
    Failed(Fault),
}

/// The fault of an intact entry that cannot be decoded.
pub(crate) fn not_a_batch(entry: u64) -> Fault {
    let sentence =
        format!("log entry {entry} is not of the format that this version reads; start the version that wrote it");
    Fault::new(ExitCode::DataDirForeign, sentence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn codes_are_unique_small_and_documented() {
        let numbers: BTreeSet<u8> = ExitCode::ALL.iter().map(|code| code.number()).collect();
        assert_eq!(numbers.len(), ExitCode::ALL.len(), "two exit codes share a number");
        for code in ExitCode::ALL {
            // As shells end for commands that cannot be run, and after SIGINT.
            assert!(
                code.number() < 64 || code.number() >= 126,
                "{code:?}: 64 and above belong to sysexits and to signals"
            );
            assert!(code.doc().ends_with('.') && code.doc().len() > 20, "{code:?} is not documented");
        }
    }

    #[test]
    fn every_code_is_in_help_and_in_the_reference() {
        for code in ExitCode::ALL {
            assert!(help_text().contains(&format!("  {:>2}  ", code.number())), "{code:?} is not in --help");
            assert!(
                markdown_table().contains(&format!("| {} | {code:?} |", code.number())),
                "{code:?} not in the table"
            );
        }
    }

    #[test]
    fn storage_errors_have_their_codes() {
        let check = |fault: Fault, expect: ExitCode| assert_eq!(fault.code, expect, "{fault}");
        let io = || std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let file = || "log-1".to_owned();
        let path = std::path::PathBuf::from("/d");
        check(DiskError::InUse { path: path.clone(), holder: "7".to_owned() }.into(), ExitCode::DataDirLocked);
        check(DiskError::Foreign { path: path.clone(), found: file() }.into(), ExitCode::DataDirForeign);
        check(DiskError::Empty { path: path.clone() }.into(), ExitCode::DataDirForeign);
        let chain = "20261127T164554.581Z-0000000000000000".to_owned();
        let archive = Fault::from(DiskError::Foreign { path: path.clone(), found: chain });
        assert!(archive.sentence.contains("corral restore"), "{archive:?}");
        check(DiskError::Io { path, what: "cannot open", source: io() }.into(), ExitCode::StorageUnavailable);
        check(LogError::SyncFailed { file: file(), source: io() }.into(), ExitCode::SyncFailed);
        check(LogError::Damaged { file: file(), offset: 5, what: file() }.into(), ExitCode::DataDamaged);
        check(LogError::NoSpace { bytes: 5, source: io() }.into(), ExitCode::StorageUnavailable);
        check(SnapshotError::DamagedSection { file: file(), section: 1, what: "x" }.into(), ExitCode::DataDamaged);
        check(SnapshotError::NotASnapshot { file: file() }.into(), ExitCode::DataDirForeign);
    }

    #[test]
    fn a_fault_shows_its_sentence() {
        let fault = Fault::new(ExitCode::ListenFailed, "port 2181 is in use");
        assert_eq!((fault.to_string().as_str(), fault.code.number()), ("port 2181 is in use", 9));
    }
}
