//! The log thread: a plain thread that owns the log, copies appends into its mapping and makes them durable in groups.
//!
//! Everything here may block; nothing else in the process waits for it. A failed sync ends the process.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use corral_consensus::Append;
use corral_core::command::Batch;
use corral_storage::log::{Entry, EntryKind, HardState, Log, LogError, Record};
use corral_storage::{MmapDisk, Spare, SpareJob};

use crate::actor::messages::{Ending, ToConsensus, ToLog};
use crate::control::Stopwatch;
use crate::runtime::mailbox::Post;

/// Quiet time after which the last records get their watermark and the next segment is prepared.
const IDLE_AFTER: Duration = Duration::from_millis(5);
/// Time until a segment that could not be prepared is tried again.
const PREPARE_RETRY_AFTER: Duration = Duration::from_secs(10);
/// Appends taken into one sync at most; bounds the time until the first of them is acknowledged.
const GROUP_MAX: usize = 64;

/// Makes segment files ahead of need on a thread of its own: filling one takes as long as many syncs.
struct Preparer {
    jobs: flume::Sender<SpareJob<MmapDisk>>,
    made: flume::Receiver<io::Result<Spare<MmapDisk>>>,
    /// A file is being made.
    busy: bool,
    /// The last try failed; not before this time is there another.
    retry_at: Option<Instant>,
}

impl Preparer {
    fn start() -> io::Result<Preparer> {
        let (jobs, inbox) = flume::bounded::<SpareJob<MmapDisk>>(1);
        let (outbox, made) = flume::bounded(1);
        let work = move || inbox.into_iter().try_for_each(|job| outbox.send(job.run()));
        thread::Builder::new().name("segments".to_owned()).spawn(work)?;
        Ok(Preparer { jobs, made, busy: false, retry_at: None })
    }

    /// Takes what was made, has the next segment ready if that costs little, and orders what is missing. No space is
    /// no fault yet: the active segment still has room.
    fn look_after(&mut self, log: &mut Log<MmapDisk>) -> Result<(), LogError> {
        match self.made.try_recv() {
            Ok(Ok(spare)) => {
                (self.busy, self.retry_at) = (false, None);
                log.accept_spare(spare);
            }
            Ok(Err(error)) => {
                (self.busy, self.retry_at) = (false, Some(Instant::now() + PREPARE_RETRY_AFTER));
                tracing::warn!("the next log segment cannot be prepared, trying again later: {error}");
            }
            Err(_) => {}
        }
        if self.busy || log.room().1 || self.retry_at.is_some_and(|at| Instant::now() < at) {
            return Ok(());
        }
        match log.spare_job() {
            Some(job) => self.busy = self.jobs.try_send(job).is_ok(),
            None => drop(log.prepare_ahead()?),
        }
        Ok(())
    }
}

/// Runs until told to close or until the consensus actor is gone.
pub(crate) fn run(
    mut log: Log<MmapDisk>,
    slow_sync: Duration,
    syncs: &Stopwatch,
    inbox: &flume::Receiver<ToLog>,
    consensus: &Post<ToConsensus>,
    endings: &flume::Sender<Ending>,
) {
    if let Err(error) = serve(&mut log, slow_sync, syncs, inbox, consensus) {
        tracing::error!("the log failed: {error}");
        let _ = endings.send(Ending::Failed(error.into()));
    }
}

fn serve(
    log: &mut Log<MmapDisk>,
    slow_sync: Duration,
    syncs: &Stopwatch,
    inbox: &flume::Receiver<ToLog>,
    consensus: &Post<ToConsensus>,
) -> Result<(), LogError> {
    let mut preparer = Preparer::start().map_err(|source| LogError::Io {
        file: "log".to_owned(),
        what: "cannot start the thread that prepares segments",
        source,
    })?;
    let mut idle = false;
    loop {
        preparer.look_after(log)?;
        let first = if idle { inbox.recv().ok() } else { next_soon(inbox) };
        let Some(first) = first else {
            if inbox.is_disconnected() {
                log.sync()?;
                return Ok(());
            }
            log.watermark_when_idle()?;
            idle = !preparer.busy;
            continue;
        };
        idle = false;
        let mut durable = None;
        for message in std::iter::once(first).chain(inbox.try_iter().take(GROUP_MAX)) {
            match message {
                ToLog::Append(append) => {
                    write_when_possible(log, &append)?;
                    durable = Some(append.number);
                }
                ToLog::Trim(index) => {
                    log.trim_before(index)?;
                }
                ToLog::Reset(next_index) => {
                    tracing::info!(next_index, "the log begins anew behind an image");
                    log.reset_to(next_index)?;
                }
                ToLog::Close => {
                    log.sync()?;
                    log.watermark_when_idle()?;
                    return Ok(());
                }
            }
        }
        if let Some(number) = durable {
            let began = Instant::now();
            log.sync()?;
            let took = began.elapsed();
            syncs.note(took);
            if took > slow_sync {
                tracing::warn!(took_ms = took.as_millis(), "a sync of the log took long; look at the disk");
            }
            let _ = consensus.send(ToConsensus::Durable(number));
        }
    }
}

/// Waits for space if there is none: writes stand still until then, reads go on.
fn write_when_possible(log: &mut Log<MmapDisk>, append: &Append) -> Result<(), LogError> {
    const RETRY_AFTER: Duration = Duration::from_millis(200);
    const SAY_EVERY: u32 = 50;
    for attempt in 0.. {
        match write(log, append) {
            Err(error @ LogError::NoSpace { .. }) => {
                if attempt % SAY_EVERY == 0 {
                    tracing::error!("writes wait: {error}");
                }
                std::thread::sleep(RETRY_AFTER);
            }
            other => return other,
        }
    }
    unreachable!("tries for ever")
}

fn next_soon(inbox: &flume::Receiver<ToLog>) -> Option<ToLog> {
    inbox.recv_timeout(IDLE_AFTER).ok()
}

/// Copies an append into the log's mapping. Not durable yet.
pub(crate) fn write(log: &mut Log<MmapDisk>, append: &Append) -> Result<(), LogError> {
    let entries = append.entries.iter().map(|entry| {
        Record::Entry(Entry {
            term: entry.term.0,
            index: entry.index.0,
            kind: kind(entry.kind),
            first_zxid: zxid(entry),
            payload: &entry.payload,
        })
    });
    let state = append.hard_state.map(|state| {
        let vote = state.vote.map_or(0, |node| node.0);
        Record::HardState(HardState { term: state.term.0, vote, commit: state.commit.0 })
    });
    let records: Vec<Record<'_>> = state.into_iter().chain(entries).collect();
    log.append(&records)
}

fn kind(kind: corral_consensus::EntryKind) -> EntryKind {
    match kind {
        corral_consensus::EntryKind::Normal => EntryKind::Normal,
        corral_consensus::EntryKind::ConfChange => EntryKind::Membership,
    }
}

/// The first zxid of an entry's batch; 0 for one that holds none.
fn zxid(entry: &corral_consensus::Entry) -> u64 {
    match entry.kind {
        corral_consensus::EntryKind::Normal => Batch::zxid_of(&entry.payload),
        corral_consensus::EntryKind::ConfChange => 0,
    }
}
