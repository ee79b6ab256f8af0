//! The audit log: a line for each write of a client, in a file of its own.
//!
//! Shards leave records in a queue and never wait. A plain thread, which may block, makes lines of them and writes the file. The queue is
//! bounded. If it is full, either shards hold the writes of clients, or records are dropped and counted.

mod line;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use std::{io, mem, thread};

use corral_core::ids::{SessionId, WallMillis};
use corral_core::report::AuditFacts;
use corral_core::shard::audit::{AuditResult, Operation, Record};

use crate::audit::line::Lines;
use crate::config::Config;
use crate::config::value::WhenFull;
use crate::exit::{ExitCode, Fault};
use crate::runtime::clock::Clock;
use crate::runtime::complaint::Complaint;
use crate::runtime::rolling_file::RollingFile;
use crate::runtime::threads::start_pinned;

/// Bytes of lines after which they are written, whatever else waits.
const LINES_BYTES: usize = 256 * 1024;
/// How long it waits until it tries again to write.
const RETRY: Duration = Duration::from_secs(1);
/// How long a stop waits for the last lines.
const WAIT_AT_STOP: Duration = Duration::from_secs(5);

/// To the thread that writes.
enum ToWriter {
    Records {
        at: WallMillis,
        records: Vec<Record>,
        /// As counted in the queue.
        bytes: usize,
    },
    /// Another program may have moved the file away.
    Reopen,
    /// The server ends: the last message.
    End { at: WallMillis, record: Record },
}

/// The records that are not written yet, and counters of the others.
struct Queue {
    bytes: AtomicUsize,
    bytes_max: usize,
    when_full: WhenFull,
    /// A shard holds writes until the queue is shorter.
    is_held: AtomicBool,
    /// Tells all shards that it is.
    release: OnceLock<Box<dyn Fn() + Send + Sync>>,
    written: AtomicU64,
    dropped: AtomicU64,
    /// The server does not wait any longer.
    is_ending: AtomicBool,
}

impl Queue {
    fn new(bytes_max: usize, when_full: WhenFull) -> Queue {
        Queue {
            bytes: AtomicUsize::new(0),
            bytes_max,
            when_full,
            is_held: AtomicBool::new(false),
            release: OnceLock::new(),
            written: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            is_ending: AtomicBool::new(false),
        }
    }

    fn is_full(&self) -> bool {
        self.bytes.load(Ordering::SeqCst) > self.bytes_max
    }

    /// So many bytes are written, or given up.
    fn take(&self, bytes: usize) {
        let left = self.bytes.fetch_sub(bytes, Ordering::SeqCst) - bytes;
        if left <= self.bytes_max / 2
            && self.is_held.swap(false, Ordering::SeqCst)
            && let Some(release) = self.release.get()
        {
            release();
        }
    }
}

/// Where the records of an audit log go.
#[derive(Clone)]
pub(crate) struct AuditLog {
    writer: flume::Sender<ToWriter>,
    queue: Arc<Queue>,
    ended: flume::Receiver<()>,
    clock: Clock,
    /// The server serves.
    is_started: Arc<AtomicBool>,
}

impl AuditLog {
    /// Opens the file and starts the thread; `None` if the configuration asks for no audit log.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub(crate) fn start(config: &Config, clock: Clock, cpu: Option<u32>) -> Result<Option<AuditLog>, Fault> {
        let audit = &config.audit;
        if !audit.enabled {
            return Ok(None);
        }
        let path = audit.path(&config.server.data_dir);
        let file = RollingFile::open(path.clone(), audit.file_bytes_max, audit.files_retained, "audit.file_bytes_max")
            .map_err(|error| Fault::new(ExitCode::StorageUnavailable, cannot_be_opened(&path, &error)))?;
        let bytes_max = usize::try_from(audit.queue_bytes_max).unwrap_or(usize::MAX);
        let queue = Arc::new(Queue::new(bytes_max, audit.when_full));
        let ((writer, inbox), (done, ended)) = (flume::unbounded(), flume::bounded(1));
        let writing = Writer {
            inbox,
            file,
            lines: Lines::new(audit.format),
            bytes: 0,
            records: 0,
            queue: Arc::clone(&queue),
            failures: Complaint::default(),
            drops: Complaint::default(),
            dropped_before: 0,
        };
        let run = move || {
            writing.run();
            drop(done);
        };
        start_pinned("audit", cpu, run)?;
        tracing::info!(file = %path.display(), "audit log");
        Ok(Some(AuditLog { writer, queue, ended, clock, is_started: Arc::default() }))
    }

    /// Called when shards may let go of writes that they hold.
    pub(crate) fn release_by(&self, release: impl Fn() + Send + Sync + 'static) {
        assert!(self.queue.release.set(Box::new(release)).is_ok(), "it is set once");
    }

    /// Leaves records to be written. Gives whether writes are to be held, until the release.
    pub(crate) fn write(&self, mut records: Vec<Record>) -> bool {
        let holds = self.queue.when_full == WhenFull::Hold;
        if self.queue.is_full() {
            let all = records.len();
            // Writes of clients come to an end when they are held. The ends of sessions, on all servers, do not.
            records.retain(|record| holds && record.identities.is_some());
            self.queue.dropped.fetch_add((all - records.len()) as u64, Ordering::Relaxed);
        }
        let bytes = Record::bytes(&records);
        self.queue.bytes.fetch_add(bytes, Ordering::SeqCst);
        // The thread ends after the shards.
        let _ = self.writer.send(ToWriter::Records { at: self.clock.wall(), records, bytes });
        if !holds || !self.queue.is_full() {
            return false;
        }
        self.queue.is_held.store(true, Ordering::SeqCst);
        // Either this sees that it was written meanwhile, or the thread sees that writes are held.
        self.queue.is_full()
    }

    /// Another program may have moved the file away.
    pub(crate) fn reopen(&self) {
        let _ = self.writer.send(ToWriter::Reopen);
    }

    /// The server serves from now on.
    pub(crate) fn started(&self) {
        self.is_started.store(true, Ordering::Relaxed);
        self.write(vec![of_the_server(Operation::ServerStart, AuditResult::Success)]);
    }

    /// The server ends. Waits until everything is written, but not for ever.
    pub(crate) fn end(&self) {
        let last = if self.is_started.load(Ordering::Relaxed) {
            of_the_server(Operation::ServerStop, AuditResult::Invoked)
        } else {
            of_the_server(Operation::ServerStart, AuditResult::Failure)
        };
        let _ = self.writer.send(ToWriter::End { at: self.clock.wall(), record: last });
        let is_over = |wait| self.ended.recv_timeout(wait) == Err(flume::RecvTimeoutError::Disconnected);
        if is_over(WAIT_AT_STOP) {
            return;
        }
        self.queue.is_ending.store(true, Ordering::SeqCst);
        if !is_over(2 * RETRY) {
            tracing::error!("the end of the audit log is lost: the disk does not answer");
        }
    }

    /// For metrics.
    pub(crate) fn facts(&self) -> AuditFacts {
        AuditFacts {
            written: self.queue.written.load(Ordering::Relaxed),
            dropped: self.queue.dropped.load(Ordering::Relaxed),
            queued_bytes: self.queue.bytes.load(Ordering::Relaxed) as u64,
        }
    }
}

fn of_the_server(operation: Operation, result: AuditResult) -> Record {
    let (session, path) = (SessionId(0), None);
    Record { session, identities: None, operation, path, mode: None, acl: None, result }
}

fn cannot_be_opened(path: &Path, error: &io::Error) -> String {
    format!(
        "the audit log {} cannot be opened: {error}; name a file that this server's user can write (audit.file)",
        path.display()
    )
}

/// The thread that writes.
struct Writer {
    inbox: flume::Receiver<ToWriter>,
    file: RollingFile,
    lines: Lines,
    /// Of the records in `lines`, as counted in the queue.
    bytes: usize,
    records: u64,
    queue: Arc<Queue>,
    failures: Complaint,
    drops: Complaint,
    /// Records dropped when it was last looked at.
    dropped_before: u64,
}

impl Writer {
    fn run(mut self) {
        let mut is_over = false;
        while !is_over && let Ok(first) = self.inbox.recv() {
            is_over = self.take(first);
            while !is_over
                && self.lines.text().len() < LINES_BYTES
                && let Ok(next) = self.inbox.try_recv()
            {
                is_over = self.take(next);
            }
            self.write();
        }
    }

    /// Whether it is the last message.
    fn take(&mut self, message: ToWriter) -> bool {
        match message {
            ToWriter::Records { at, records, bytes } => {
                records.iter().for_each(|record| self.lines.add(at, record));
                self.bytes += bytes;
                self.records += records.len() as u64;
                false
            }
            ToWriter::Reopen => {
                self.write();
                self.file.close();
                false
            }
            ToWriter::End { at, record } => {
                self.lines.add(at, &record);
                self.records += 1;
                true
            }
        }
    }

    /// Writes all lines. It tries again until that is done, or the server ends.
    fn write(&mut self) {
        let mut has_failed = false;
        while let Err(error) = self.file.append(self.lines.text()) {
            has_failed = true;
            if let Some(times) = self.failures.again(Instant::now()) {
                let file = self.file.path().display();
                tracing::error!(%file, times, "the audit log cannot be written: {error}");
            }
            self.tell_of_drops();
            if self.queue.is_ending.load(Ordering::SeqCst) {
                break;
            }
            thread::sleep(RETRY);
        }
        let left = self.lines.text().iter().filter(|byte| **byte == b'\n').count() as u64;
        if has_failed && left == 0 {
            tracing::info!("the audit log is written again");
        }
        self.lines.text().clear();
        self.queue.dropped.fetch_add(left, Ordering::Relaxed);
        self.queue.written.fetch_add(mem::take(&mut self.records) - left, Ordering::Relaxed);
        self.queue.take(mem::take(&mut self.bytes));
        self.tell_of_drops();
    }

    fn tell_of_drops(&mut self) {
        let dropped = self.queue.dropped.load(Ordering::Relaxed);
        if dropped > self.dropped_before && self.drops.again(Instant::now()).is_some() {
            tracing::error!(dropped, "records of the audit log are dropped: the disk is full or too slow");
        }
        self.dropped_before = dropped;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corral_core::tree::acl::identity;

    #[test]
    fn a_full_queue_holds_clients_and_drops_the_ends_of_sessions() {
        let client = || {
            let identities = Some(Arc::new(vec![identity("ip", "10.0.0.7")]));
            Record { identities, ..of_the_server(Operation::Multi, AuditResult::Success) }
        };
        let ended = || of_the_server(Operation::EphemeralDeleted, AuditResult::Success);
        for (when_full, dropped, kept) in [(WhenFull::Hold, 1, 4), (WhenFull::Drop, 2, 3)] {
            let bytes_max = 2 * Record::bytes(&[client()]);
            let (writer, inbox) = flume::unbounded();
            let queue = Arc::new(Queue::new(bytes_max, when_full));
            let (clock, (_, ended_channel)) = (Clock::start(), flume::bounded(1));
            let log = AuditLog { writer, queue, ended: ended_channel, clock, is_started: Arc::default() };
            assert!(!log.write(vec![client(), ended()]), "there is room");
            assert_eq!(log.write(vec![client()]), when_full == WhenFull::Hold);
            assert_eq!(log.write(vec![ended(), client()]), when_full == WhenFull::Hold);
            let count = |message| match message {
                ToWriter::Records { records, .. } => records.len(),
                ToWriter::Reopen | ToWriter::End { .. } => 0,
            };
            assert_eq!(inbox.try_iter().map(count).sum::<usize>(), kept);
            assert_eq!(log.facts().dropped, dropped);
        }
    }
}
