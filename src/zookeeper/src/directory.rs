//! The data directory of a stopped ZooKeeper server, and its replay.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use corral_core::ids::Zxid;
use corral_core::tree::digest::DIGEST_VERSION;

use crate::log::{LogFile, Next};
use crate::snapshot::{self, DigestAt, Found};
use crate::tree::Tree;
use crate::txn::{Transaction, TxnDigest};
use crate::{PROGRESS_EVERY, SourceError};

/// Where ZooKeeper keeps snapshots and logs below its directories.
pub const VERSION_DIRECTORY: &str = "version-2";
/// Names of the files, in front of their zxids, and suffixes of snapshots behind them.
pub(crate) const SNAPSHOTS: &str = "snapshot";
const LOGS: &str = "log";
const SUFFIXES: [&str; 3] = ["", "gz", "snappy"];
/// The number of newest snapshots that ZooKeeper tries.
const SNAPSHOTS_TRIED_MAX: usize = 100;
/// Doubts that are kept.
const DOUBTS_MAX: usize = 20;

/// The files of a server.
#[derive(Debug)]
pub struct Source {
    /// Newest first, with the zxid of the name.
    snapshots: Vec<(Zxid, PathBuf)>,
    /// Oldest first.
    logs: Vec<(Zxid, PathBuf)>,
    /// Length and time of each file, to notice a server that still runs.
    seen: Vec<(PathBuf, u64, Option<SystemTime>)>,
    /// Of the snapshots, and of the logs.
    directories: [PathBuf; 2],
}

/// How far [`Source::load`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Bytes of a snapshot, decompressed.
    Snapshot(u64),
    /// Transactions of the log.
    Log(u64),
}

/// A state, read and replayed.
pub struct Loaded {
    /// The state.
    pub tree: Tree,
    /// How it was read.
    pub report: Report,
}

/// How a state was read.
#[derive(Debug, Default)]
pub struct Report {
    /// The snapshot; `None` if the log alone makes up the state.
    pub snapshot: Option<PathBuf>,
    /// Newer snapshots that are damaged, each with the reason.
    pub damaged_snapshots: Vec<String>,
    /// Log files that were read.
    pub logs: Vec<PathBuf>,
    /// Transactions replayed.
    pub transactions: u64,
    /// Transactions among them without an effect: requests that failed, and changes that the snapshot holds.
    pub ineffective: u64,
    /// Records that were not written whole, each at the end of its file.
    pub torn: Vec<String>,
    /// Digests of the tree that were compared.
    pub digests: u64,
    /// Whether one of them was another.
    pub differs: bool,
    /// Ephemerals deleted because their session is gone.
    pub ended_ephemerals: u64,
    /// Znodes dropped because they have no parent.
    pub orphans: u64,
    /// Reasons to doubt that clients saw this state. ZooKeeper starts all the same. Each a sentence, the first ones.
    pub doubts: Vec<String>,
}

impl Report {
    /// Adds a reason to doubt the state.
    pub fn doubt(&mut self, sentence: String) {
        if self.doubts.len() < DOUBTS_MAX {
            self.doubts.push(sentence);
        }
    }
}

/// Reads a snapshot without a log, as it is sent to the command `restore`: its last zxid is stored in it.
///
/// # Errors
/// Damage with file and offset, or a sentence about a snapshot that is no state on its own.
pub fn load_snapshot(file: &Path) -> Result<Loaded, SourceError> {
    let Found { mut tree, mut digest, last, .. } = snapshot::read(file, &mut |_| {})?;
    let last = last.ok_or_else(|| {
        let sentence = "the snapshot does not hold its last zxid: take it with the command snapshot, of a server with \
                        serializeLastProcessedZxid.enabled=true";
        SourceError::Unfit(sentence.to_owned())
    })?;
    let mut report = Report { snapshot: Some(file.to_owned()), ..Report::default() };
    tree.set_zxid(last);
    compare_at(&mut digest, &tree, &mut report);
    if report.differs || digest.is_some() {
        let sentence =
            "the znodes of the snapshot do not have the digest in it: it was taken while writes went on; take it again";
        return Err(SourceError::Unfit(sentence.to_owned()));
    }
    complete(&mut tree, &mut report)?;
    Ok(Loaded { tree, report })
}

/// Ends what a server would end at its start.
fn complete(tree: &mut Tree, report: &mut Report) -> Result<(), SourceError> {
    (report.ended_ephemerals, report.orphans) = tree.tidy();
    tree.complete();
    tree.count_quotas();
    tree.without_acl().map_or(Ok(()), |path| {
        let sentence = format!("the ACL of {:?} is neither in the snapshot nor in the log", &**path);
        Err(SourceError::Unfit(sentence + ": transactions are missing"))
    })
}

impl Source {
    /// Looks for the files. `directory` is ZooKeeper's `dataDir`, `log_directory` its `dataLogDir` if that is another one.
    /// Each may name `version-2` itself.
    ///
    /// # Errors
    /// If there is no snapshot and no log, or a directory cannot be read.
    pub fn open(directory: &Path, log_directory: Option<&Path>) -> Result<Source, SourceError> {
        let log_directory = log_directory.unwrap_or(directory);
        let mut snapshots = files(directory, SNAPSHOTS, &SUFFIXES)?;
        snapshots.reverse();
        let logs = files(log_directory, LOGS, &[""])?;
        if snapshots.is_empty() && logs.is_empty() {
            return Err(SourceError::Unfit(format!(
                "{}: no files `snapshot.*` or `log.*`, also not in {VERSION_DIRECTORY}; name the `dataDir` of the zoo.cfg",
                directory.display()
            )));
        }
        let paths = snapshots.iter().chain(&logs).map(|(_, path)| path);
        let seen = paths.map(|path| stamp(path).map(|(length, time)| (path.clone(), length, time)));
        let seen = seen.collect::<Result<_, _>>()?;
        let directories = [directory.to_owned(), log_directory.to_owned()];
        Ok(Source { snapshots, logs, seen, directories })
    }

    /// The newest snapshot that is whole, then the log behind it, then the end of sessions that are gone.
    ///
    /// # Errors
    /// Damage with file and offset, or a sentence about files that make up no state.
    pub fn load(&self, progress: &mut dyn FnMut(Progress)) -> Result<Loaded, SourceError> {
        let mut report = Report::default();
        let Found { tree, digest, is_ours, .. } = self.newest_snapshot(&mut report, progress)?;
        let begin = tree.zxid();
        let mut replay = Replay { logged: Zxid(0), tree, digest, report };
        for path in self.logs_behind(begin) {
            replay.file(path, progress)?;
        }
        let Replay { mut tree, digest, mut report, logged } = replay;
        if self.logs.is_empty() && !is_ours {
            let sentence = "there is no transaction log: name the `dataLogDir` of the zoo.cfg by --log-dir";
            report.doubt(sentence.to_owned());
        } else if !self.logs.is_empty() && logged < begin && begin.counter() != 0 {
            report.doubt(format!(
                "the log ends at zxid {logged}, and the snapshot is of {begin}: a newer log is missing"
            ));
        } else if let Some((zxid, _)) = digest {
            report.doubt(format!(
                "the snapshot holds changes up to zxid {zxid}, and the log ends at {}: transactions are missing",
                tree.zxid()
            ));
        }
        complete(&mut tree, &mut report)?;
        self.check_unchanged()?;
        Ok(Loaded { tree, report })
    }

    /// Its digest stays if it holds changes of later transactions.
    fn newest_snapshot(&self, report: &mut Report, progress: &mut dyn FnMut(Progress)) -> Result<Found, SourceError> {
        for (zxid, path) in self.snapshots.iter().take(SNAPSHOTS_TRIED_MAX) {
            match snapshot::read(path, &mut |bytes| progress(Progress::Snapshot(bytes))) {
                Ok(mut found) => {
                    found.tree.set_zxid(*zxid);
                    report.snapshot = Some(path.clone());
                    // A digest of an earlier transaction says nothing: a leader had begun its epoch in between.
                    found.digest = found.digest.filter(|(at, _)| at >= zxid);
                    compare_at(&mut found.digest, &found.tree, report);
                    return Ok(found);
                }
                Err(error @ SourceError::Io { .. }) => return Err(error),
                Err(error) => report.damaged_snapshots.push(error.to_string()),
            }
        }
        if let Some(newest) = report.damaged_snapshots.first() {
            return Err(SourceError::Unfit(format!("no snapshot is whole: {newest}")));
        }
        let mut tree = Tree::default();
        tree.complete();
        Ok(Found { tree, digest: None, is_ours: false, last: None })
    }

    /// The last file that begins at or before the next transaction, and all behind it.
    fn logs_behind(&self, last: Zxid) -> &[(Zxid, PathBuf)] {
        let begin = self.logs.iter().rposition(|(first, _)| first.0 <= last.0.saturating_add(1)).unwrap_or(0);
        &self.logs[begin..]
    }

    /// Looks whether a server writes into the files.
    ///
    /// # Errors
    /// If one of them has changed since [`Source::open`], or there are more.
    pub fn check_unchanged(&self) -> Result<(), SourceError> {
        let changed = |path: &Path| {
            let path = path.display();
            SourceError::Unfit(format!("{path} has changed while it was read: stop the ZooKeeper server first"))
        };
        for (path, length, time) in &self.seen {
            if stamp(path)? != (*length, *time) {
                return Err(changed(path));
            }
        }
        let [directory, log_directory] = &self.directories;
        let now = files(directory, SNAPSHOTS, &SUFFIXES)?.len() + files(log_directory, LOGS, &[""])?.len();
        if now == self.seen.len() { Ok(()) } else { Err(changed(log_directory)) }
    }

    /// A process of this host that has a log open: a server that runs. Processes of other users are not seen without
    /// privileges.
    #[must_use]
    pub fn server(&self) -> Option<u32> {
        let logs: Vec<PathBuf> = self.logs.iter().filter_map(|(_, path)| fs::canonicalize(path).ok()).collect();
        let has_log = |process: &fs::DirEntry| {
            let files = fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
            files.filter_map(|file| fs::read_link(file.path()).ok()).any(|file| logs.contains(&file))
        };
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let mut of_servers = processes.filter(has_log).filter_map(|process| process.file_name().to_str()?.parse().ok());
        of_servers.find(|id| *id != std::process::id())
    }
}

/// A replay in progress.
struct Replay {
    tree: Tree,
    /// Set while changes of the snapshot may lie ahead: the tree's digest behind a transaction to come.
    digest: Option<DigestAt>,
    report: Report,
    /// The last transaction of the log, replayed or not.
    logged: Zxid,
}

impl Replay {
    fn file(&mut self, (first, path): &(Zxid, PathBuf), progress: &mut dyn FnMut(Progress)) -> Result<(), SourceError> {
        self.report.logs.push(path.clone());
        // The file was begun behind the transaction before.
        self.logged = self.logged.max(Zxid(first.0.saturating_sub(1)));
        let Some(mut file) = LogFile::open(path)? else {
            self.report.torn.push(format!("{}: no transaction", path.display()));
            return Ok(());
        };
        loop {
            let (offset, bytes) = match file.next()? {
                Next::Record(offset, bytes) => (offset, bytes),
                Next::End(offset) => {
                    if let Some(whole) = file.whole_record_behind(offset)? {
                        let path = path.display();
                        self.report
                            .doubt(format!("{path}: the log ends at offset {offset}, and goes on at offset {whole}"));
                    }
                    return Ok(());
                }
                Next::Torn(offset) => {
                    let place =
                        format!("{}: a transaction that was not written whole at offset {offset}", path.display());
                    match file.whole_record_behind(offset)? {
                        Some(whole) => {
                            self.report.doubt(format!("{place}, and a whole one behind it at offset {whole}"));
                        }
                        None => self.report.torn.push(place),
                    }
                    return Ok(());
                }
            };
            let transaction = Transaction::decode(bytes).map_err(|error| SourceError::Damaged {
                file: path.clone(),
                offset,
                what: error.to_string(),
            })?;
            self.transaction(path, transaction);
            if self.report.transactions.is_multiple_of(PROGRESS_EVERY) {
                progress(Progress::Log(self.report.transactions));
            }
        }
    }

    fn transaction(&mut self, path: &Path, transaction: Transaction<'_>) {
        let Transaction { header, body, digest } = transaction;
        self.logged = self.logged.max(header.zxid);
        let (last, next) = (self.tree.zxid(), header.zxid);
        if self.report.transactions == 0 && next <= last {
            return;
        }
        let expect =
            if next.epoch() == last.epoch() { Zxid(last.0.saturating_add(1)) } else { Zxid::of(next.epoch(), 1) };
        if next != expect {
            self.report.doubt(format!("{}: zxid {next} follows {last}: transactions are missing", path.display()));
        }
        self.report.transactions += 1;
        self.report.ineffective += u64::from(!self.tree.apply(&header, body));
        if self.digest.is_some() {
            compare_at(&mut self.digest, &self.tree, &mut self.report);
        } else if let Some(TxnDigest { version: DIGEST_VERSION, digest }) = digest {
            compare(&self.tree, digest, &mut self.report);
        }
    }
}

/// Compares the digest of a snapshot once the tree is there.
fn compare_at(digest: &mut Option<DigestAt>, tree: &Tree, report: &mut Report) {
    if let Some((zxid, expect)) = *digest
        && tree.zxid() >= zxid
    {
        *digest = None;
        if tree.zxid() == zxid {
            compare(tree, expect, report);
        }
    }
}

fn compare(tree: &Tree, expect: u64, report: &mut Report) {
    report.digests += 1;
    let (zxid, found) = (tree.zxid(), tree.digest());
    // The first difference makes all later ones.
    if found != expect && !report.differs {
        report.differs = true;
        report.doubt(format!(
            "the digest of the tree differs behind zxid {zxid}: the files say {expect:016x}, and it is {found:016x}"
        ));
    }
}

/// The files `PREFIX.ZXID` with one of these suffixes, oldest first.
fn files(directory: &Path, prefix: &str, suffixes: &[&str]) -> Result<Vec<(Zxid, PathBuf)>, SourceError> {
    let below = directory.join(VERSION_DIRECTORY);
    let directory = if below.is_dir() { below } else { directory.to_owned() };
    let io = |error: io::Error| SourceError::Io { file: directory.clone(), error };
    let mut files = Vec::new();
    for entry in fs::read_dir(&directory).map_err(io)? {
        let path = entry.map_err(io)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some((found, rest)) = name.split_once('.') else { continue };
        let (zxid, suffix) = rest.split_once('.').unwrap_or((rest, ""));
        if found == prefix
            && suffixes.contains(&suffix)
            && let Ok(zxid) = u64::from_str_radix(zxid, 16)
        {
            if !path.is_file() {
                return Err(SourceError::Unfit(format!("{}: it is no regular file; move it away", path.display())));
            }
            files.push((Zxid(zxid), path));
        }
    }
    files.sort();
    Ok(files)
}

fn stamp(path: &Path) -> Result<(u64, Option<SystemTime>), SourceError> {
    let meta = fs::metadata(path).map_err(|error| SourceError::Io { file: path.to_owned(), error })?;
    Ok((meta.len(), meta.modified().ok()))
}
