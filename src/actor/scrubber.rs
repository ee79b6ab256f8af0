//! The scrubber: a plain thread of low priority that reads every snapshot file and every log segment once in a
//! configured time. It compares them with their checksums.
//!
//! The bytes that it reads of the newest snapshot are the bytes that the server serves: a mapping and its file share
//! their pages. Older snapshots of which znodes still have their data are read where they are mapped: their files may
//! be gone. It decides nothing; it tells the consensus actor. A damaged snapshot is put aside, unless it is the served
//! one. A segment that is being written is read again before damage is reported. Files are read in pieces of 1 MiB,
//! with a rest before each, and not mapped. A file that cannot be read for another reason than the disk (no memory, no
//! descriptor, no permission) is not damaged. The next scrub reads it again.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use corral_engine::{CorruptState, Event, Finding};
use corral_storage::{Dump, MmapDisk, SnapshotError, confirm_damage, list_snapshots, scrub_snapshot, snapshot_index};

use crate::data::damage::Damage;
use crate::data::lenders::Lenders;
use crate::data::quarantine::put_file_aside;
use crate::gauges::Gauges;
use crate::messages::ToConsensus;
use crate::runtime::clock::whole_ms;
use crate::runtime::mailbox::Post;
use crate::runtime::threads::lower_priority;

/// How often a long scrub tells how far it is.
const SAY_EVERY: Duration = Duration::from_secs(60);
/// A log that is being written is read so often before damage is reported.
const LOG_READS: usize = 3;

/// The scrubber's settings at its start.
pub(crate) struct ScrubSettings {
    /// Time from the end of one scrub to the beginning of the next; `None`: only when asked.
    pub(crate) interval: Option<Duration>,
    pub(crate) bytes_per_s: u64,
    pub(crate) log_dir: PathBuf,
}

/// The scrubber: its disk, settings and channels.
pub(crate) struct Scrubber {
    disk: MmapDisk,
    settings: ScrubSettings,
    gauges: Arc<Gauges>,
    consensus: Post<ToConsensus>,
    lenders: Arc<Lenders>,
    /// Damaged snapshots that could not be put aside.
    stays: BTreeSet<String>,
}

/// How far a scrub is.
struct Pass {
    bytes: u64,
    damaged: u64,
    bytes_per_s: u64,
    said: Instant,
    /// Files that could not be read, and the reason of the first. Nothing says that they are damaged.
    unread: u64,
    reason: Option<String>,
}

impl Pass {
    fn begin(bytes_per_s: u64) -> Pass {
        Pass { bytes: 0, damaged: 0, bytes_per_s, said: Instant::now(), unread: 0, reason: None }
    }

    fn rest(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        thread::sleep(Duration::from_nanos((bytes as u64).saturating_mul(1_000_000_000) / self.bytes_per_s.max(1)));
        if self.said.elapsed() >= SAY_EVERY {
            self.said = Instant::now();
            tracing::info!(bytes = self.bytes, damaged = self.damaged, "scrubbing");
        }
    }

    fn passed_over(&mut self, reason: String) {
        self.unread += 1;
        self.reason.get_or_insert(reason);
    }
}

impl Scrubber {
    pub(crate) fn new(
        disk: MmapDisk,
        settings: ScrubSettings,
        gauges: Arc<Gauges>,
        consensus: Post<ToConsensus>,
        lenders: Arc<Lenders>,
    ) -> Scrubber {
        Scrubber { disk, settings, gauges, consensus, lenders, stays: BTreeSet::new() }
    }

    /// Runs until no sender of requests is left.
    pub(crate) fn run(mut self, asked: &flume::Receiver<()>) {
        lower_priority();
        loop {
            let ended = match self.settings.interval {
                Some(interval) => asked.recv_timeout(interval) == Err(flume::RecvTimeoutError::Disconnected),
                None => asked.recv().is_err(),
            };
            if ended {
                return;
            }
            // This scrub also serves the requests that came meanwhile.
            asked.try_iter().for_each(drop);
            self.scrub();
        }
    }

    fn scrub(&mut self) {
        let started = Instant::now();
        let mut pass = Pass::begin(self.settings.bytes_per_s);
        if let Err(error) = self.snapshots(&mut pass) {
            pass.passed_over(format!("{}: {error}", self.disk.path().display()));
        }
        self.lent(&mut pass);
        if let Err(error) = self.log(&mut pass) {
            pass.passed_over(format!("{}: {error}", self.settings.log_dir.display()));
        }
        let Pass { bytes, damaged, unread, reason, .. } = pass;
        self.gauges.scrub_bytes.fetch_add(bytes, Ordering::Relaxed);
        if let Some(reason) = reason {
            tracing::warn!(
                unread,
                damaged,
                "scrub incomplete: a file could not be read, the next scrub reads it again: {reason}"
            );
            return;
        }
        let took_ms = whole_ms(started.elapsed());
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        self.gauges.scrubbed_at_s.store(now_s, Ordering::Relaxed);
        tracing::info!(bytes, damaged, took_ms, "scrub complete");
    }

    fn found(&self, pass: &mut Pass) {
        pass.damaged += 1;
        self.gauges.scrub_damaged.fetch_add(1, Ordering::Relaxed);
    }

    fn snapshots(&mut self, pass: &mut Pass) -> std::io::Result<()> {
        for snapshot in list_snapshots(&self.disk)? {
            if self.snapshot(&snapshot.file, pass).is_ok() {
                continue;
            }
            // Purged, or replaced by another of its name, meanwhile?
            let names = list_snapshots(&self.disk)?;
            if names.iter().all(|name| name.file != snapshot.file) {
                continue;
            }
            let Err(error) = self.snapshot(&snapshot.file, pass) else { continue };
            let what = error.to_string();
            if !error.is_damage() {
                pass.passed_over(what);
                continue;
            }
            // The name of a former version's snapshot does not tell its index.
            let serves = |index| index == self.gauges.served_snapshot.load(Ordering::Relaxed);
            if snapshot_index(&self.disk, &snapshot).map_or(true, serves) {
                self.distrust(pass, what);
            } else {
                self.found(pass);
                self.put_aside(&snapshot.file, &what);
            }
        }
        Ok(())
    }

    /// Reports that served data are damaged. It is counted where this is taken.
    fn distrust(&self, pass: &mut Pass, what: String) {
        pass.damaged += 1;
        let _ =
            self.consensus.send(Event::StateCorrupt(CorruptState { finding: Finding::DamagedSnapshot, what }).into());
    }

    fn lent(&self, pass: &mut Pass) {
        for fault in self.lenders.verify(|bytes| pass.rest(bytes)) {
            self.distrust(pass, fault.to_string());
        }
    }

    /// Puts a damaged snapshot aside that is not served. Where that fails it stays, and is reported once.
    fn put_aside(&mut self, file: &str, what: &str) {
        match put_file_aside(&self.disk, file) {
            Ok(()) => tracing::error!(
                "{what}. The served snapshot is another one. The file was moved into the directory `damaged`. Look at the disk"
            ),
            Err(error) if self.stays.insert(file.to_owned()) => tracing::error!(
                "{what}. The served snapshot is another one. The file cannot be moved into the directory `damaged`: {error}. Look at the disk, \
                 and move the file away"
            ),
            Err(_) => {}
        }
    }

    fn snapshot(&self, name: &str, pass: &mut Pass) -> Result<(), SnapshotError> {
        scrub_snapshot(&self.disk, name, &mut |bytes| pass.rest(bytes)).map(drop)
    }

    fn log(&self, pass: &mut Pass) -> std::io::Result<()> {
        let (mut what, mut unread) = (None, None);
        for _ in 0..LOG_READS {
            (what, unread) = self.segments(pass)?;
            if what.is_none() {
                break;
            }
        }
        unread.into_iter().for_each(|reason| pass.passed_over(reason));
        if let Some(what) = what {
            self.found(pass);
            let _ = self.consensus.send(Event::LogDamaged(what).into());
        }
        Ok(())
    }

    /// Damage to data known to be durable, and the reason why a segment was not read, if one was not.
    fn segments(&self, pass: &mut Pass) -> std::io::Result<(Option<String>, Option<String>)> {
        let disk = MmapDisk::open_read_only(&self.settings.log_dir).map_err(std::io::Error::other)?;
        let mut damage = Damage::default();
        Dump::paced(disk.clone(), |bytes| pass.rest(bytes))?.for_each(|item| damage.add(&item));
        let mut rest = |bytes| pass.rest(bytes);
        let found = damage.sentence(|file, offset, durable| confirm_damage(&disk, file, offset, durable, &mut rest))?;
        Ok((found, damage.unread().map(str::to_owned)))
    }
}
