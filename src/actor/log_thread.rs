//! The log thread: a plain thread that owns the log, copies appends into its mapping and makes them durable in groups.
//!
//! Everything here may block; nothing else in the process waits for it. A failed sync ends the process.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use corral_consensus::Append;
use corral_core::command::Batch;
use corral_engine::{Event, LogQueue, ToLog};
use corral_storage::log::{Log, LogError};
use corral_storage::{MmapDisk, Spare, SpareJob};

use crate::exit::{Ending, ExitCode, Fault};
use crate::gauges::{Occurrences, Stopwatch};
use crate::messages::ToConsensus;
use crate::runtime::clock::whole_ms;
use crate::runtime::mailbox::Post;

/// Quiet time after which the last records get their watermark and the next segment is prepared.
const IDLE_AFTER: Duration = Duration::from_millis(5);
/// Time until a segment that could not be prepared is tried again.
const PREPARE_RETRY_AFTER: Duration = Duration::from_secs(10);
/// How long a stop waits for space that writes need.
const SPACE_WAIT_AT_STOP: Duration = Duration::from_secs(5);
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
            None => match log.prepare_ahead() {
                Err(LogError::NoSpace { .. }) => self.retry_at = Some(Instant::now() + PREPARE_RETRY_AFTER),
                other => drop(other?),
            },
        }
        Ok(())
    }
}

/// The mailbox, and the messages that were taken from it while a write waited for space.
struct Inbox<'a> {
    mailbox: &'a flume::Receiver<ToLog>,
    held: LogQueue,
}

impl Inbox<'_> {
    /// The next message; nothing when there is none within this time, or all senders are gone.
    fn next(&mut self, timeout: Option<Duration>) -> Option<ToLog> {
        self.held.take_next().or_else(|| match timeout {
            Some(timeout) => self.mailbox.recv_timeout(timeout).ok(),
            None => self.mailbox.recv().ok(),
        })
    }

    fn next_now(&mut self) -> Option<ToLog> {
        self.held.take_next().or_else(|| self.mailbox.try_recv().ok())
    }

    /// Waits a little for space. A part of the log that may be dropped is dropped at once: it may be the part that
    /// fills the disk.
    fn wait_for_space(&mut self, log: &mut Log<MmapDisk>) -> Result<(), LogError> {
        const RETRY_AFTER: Duration = Duration::from_millis(200);
        let until = Instant::now() + RETRY_AFTER;
        loop {
            if let Some(ToLog::Trim(index)) = self.held.next_trim() {
                return log.trim_before(index).map(drop);
            }
            match self.mailbox.recv_deadline(until) {
                Ok(message) => self.held.push(message),
                Err(flume::RecvTimeoutError::Timeout) => return Ok(()),
                Err(flume::RecvTimeoutError::Disconnected) => {
                    thread::sleep(until.saturating_duration_since(Instant::now()));
                    return Ok(());
                }
            }
        }
    }

    /// The fault when this append, and those behind it, are given up for want of space.
    fn given_up(&self, append: Option<&Append>, error: &LogError) -> Fault {
        let entries = || append.into_iter().chain(self.held.appends()).flat_map(|append| &append.entries);
        let (count, bytes) = (entries().count(), entries().map(|entry| entry.payload.len()).sum::<usize>());
        let sentence = format!(
            "{error}, then start again. Told to stop, the server did not wait longer: {count} log entries ({bytes} bytes) \
             were not written. None of them was acknowledged; everything that was is in the log"
        );
        Fault::new(ExitCode::StorageUnavailable, sentence)
    }
}

/// The channel and the counters for the log thread's reports, and the end of its wait for space.
pub(crate) struct LogKeeper<'a> {
    /// Syncs that take longer are told.
    pub(crate) slow_sync: Duration,
    /// How many took longer.
    pub(crate) slow_syncs: &'a Occurrences,
    pub(crate) syncs: &'a Stopwatch,
    pub(crate) consensus: &'a Post<ToConsensus>,
    /// Whether it was told to stop longer ago than that.
    pub(crate) is_overdue: &'a dyn Fn(Duration) -> bool,
}

/// Runs until told to close or until the consensus actor is gone.
pub(crate) fn run(
    mut log: Log<MmapDisk>,
    keeper: &LogKeeper<'_>,
    mailbox: &flume::Receiver<ToLog>,
    endings: &flume::Sender<Ending>,
) {
    if let Err(fault) = keeper.serve(&mut log, Inbox { mailbox, held: LogQueue::default() }) {
        tracing::error!("the log failed: {fault}");
        let _ = endings.send(Ending::Failed(fault));
    }
}

impl LogKeeper<'_> {
    fn serve(&self, log: &mut Log<MmapDisk>, mut inbox: Inbox<'_>) -> Result<(), Fault> {
        let mut preparer = Preparer::start().map_err(|source| LogError::Io {
            file: "log".to_owned(),
            what: "cannot start the thread that prepares segments",
            source,
        })?;
        let mut idle = false;
        loop {
            preparer.look_after(log)?;
            let Some(first) = inbox.next((!idle).then_some(IDLE_AFTER)) else {
                if inbox.mailbox.is_disconnected() {
                    log.sync()?;
                    return Ok(());
                }
                log.watermark_when_idle()?;
                idle = !preparer.busy;
                continue;
            };
            idle = false;
            let (mut durable, mut taken, mut next) = (None, 0, Some(first));
            while let Some(message) = next {
                match message {
                    ToLog::Append(append) => {
                        let write = |log: &mut Log<MmapDisk>| log.append(&append.records(Batch::zxid_of));
                        self.when_possible(log, write, Some(&append), &mut durable, &mut inbox)?;
                        durable = Some(append.number);
                    }
                    ToLog::Read { from, upto } => {
                        drop(self.consensus.send(Event::LogRead(log.read_page((from, upto))).into()));
                    }
                    ToLog::Trim(index) => {
                        log.trim_before(index)?;
                    }
                    ToLog::Seal => self.when_possible(log, Log::seal, None, &mut durable, &mut inbox)?,
                    ToLog::Reset(next_index) => {
                        tracing::info!(next_index, "the log restarts after a snapshot");
                        let begin = |log: &mut Log<MmapDisk>| log.reset_to(next_index);
                        self.when_possible(log, begin, None, &mut durable, &mut inbox)?;
                    }
                    ToLog::Close => {
                        log.sync()?;
                        log.watermark_when_idle()?;
                        return Ok(());
                    }
                }
                taken += 1;
                next = if taken <= GROUP_MAX { inbox.next_now() } else { None };
            }
            self.make_durable(log, durable)?;
        }
    }

    /// Syncs what was written, and says so.
    fn make_durable(&self, log: &mut Log<MmapDisk>, upto: Option<u64>) -> Result<(), LogError> {
        let Some(number) = upto else { return Ok(()) };
        let began = Instant::now();
        log.sync()?;
        let took = began.elapsed();
        self.syncs.note(took);
        if took > self.slow_sync {
            self.slow_syncs.note();
            tracing::warn!(took_ms = whole_ms(took), "a sync of the log took long; look at the disk");
        }
        let _ = self.consensus.send(Event::Durable(number).into());
        Ok(())
    }

    /// Waits for space if there is none: writes wait until then, reads go on. Entries that are written already, up to
    /// `written`, do not wait with it. A server that is to stop waits for [`SPACE_WAIT_AT_STOP`] at most, and reports
    /// the part of `append` that is given up. An action without space has done nothing, and may be repeated.
    fn when_possible(
        &self,
        log: &mut Log<MmapDisk>,
        act: impl Fn(&mut Log<MmapDisk>) -> Result<(), LogError>,
        append: Option<&Append>,
        written: &mut Option<u64>,
        inbox: &mut Inbox<'_>,
    ) -> Result<(), Fault> {
        const SAY_EVERY: Duration = Duration::from_secs(10);
        let (began, mut said) = (Instant::now(), None::<Instant>);
        loop {
            let error = match act(log) {
                Err(error @ LogError::NoSpace { .. }) => error,
                other => {
                    if said.is_some() {
                        tracing::info!(
                            waited_ms = whole_ms(began.elapsed()),
                            "the log has what it needs: writes go on"
                        );
                        let _ = self.consensus.send(Event::LogFull(false).into());
                    }
                    return other.map_err(Fault::from);
                }
            };
            if said.is_none() {
                let _ = self.consensus.send(Event::LogFull(true).into());
            }
            self.make_durable(log, written.take())?;
            if (self.is_overdue)(SPACE_WAIT_AT_STOP) {
                return Err(inbox.given_up(append, &error));
            }
            if said.is_none_or(|said| said.elapsed() >= SAY_EVERY) {
                said = Some(Instant::now());
                tracing::error!("writes wait: {error}; reads continue");
            }
            inbox.wait_for_space(log)?;
        }
    }
}
