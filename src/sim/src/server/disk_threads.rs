//! Drives the log thread and the snapshot writer: both take their time, and a crash may fall between any two of their
//! steps.

use corral_core::command::Batch;
use corral_core::sequencer::FrozenState;
use corral_core::tree::snapshot::{SnapshotFault, SnapshotMerger, section_bits_for};
use corral_engine::{CorruptState, Event, Finding, ToLog, WrittenSnapshot};
use corral_storage::log::LogError;
use corral_storage::{SimDisk, SnapshotFile, SnapshotHead, SnapshotWriter, purge};

use super::Inner;
use super::snapshot_file::{SECTION_META, SECTION_NODES, load, text};
use crate::limits::GROUP_MAX;
use crate::options::Bug;
use crate::violation::{Checked, Violation};
use crate::world::{Channel, Stage, World};

const IDLE: u64 = 5_000;
const NO_SPACE_RETRY: u64 = 200_000;
/// Power goes at an append that replaces entries so often, in a thousand.
const CUTS_AT_REPLACEMENT: u64 = 300;

/// A snapshot with written sections that has no name yet.
pub(super) struct HalfWritten {
    file: SnapshotWriter<SimDisk>,
    index: u64,
    term: u64,
}

/// The reason, and damage that was found in the snapshot below.
type Failed = (String, Option<CorruptState>);

impl World {
    // ----- log thread -----

    pub(super) fn log_message(&mut self, message: ToLog) {
        let Some(server) = &mut self.nodes[self.at].server else { return };
        server.log.inbox.push(message);
        if !std::mem::replace(&mut server.log.busy, true) {
            self.inside_after(0, Inner::LogTurn);
        }
    }

    /// Takes a group; the sync comes later.
    pub(super) fn log_turn(&mut self) -> Checked {
        let Some(server) = &mut self.nodes[self.at].server else { return Ok(()) };
        let side = &mut server.log;
        if side.failed {
            return Ok(());
        }
        let (mut durable, mut full, mut fault, mut replaces, mut read) = (None, false, None, false, None);
        for _ in 0..GROUP_MAX {
            let Some(message) = side.inbox.take_next() else { break };
            let done = match &message {
                ToLog::Append(append) => {
                    let first = append.entries.first();
                    replaces |= first.is_some_and(|first| side.log.term(first.index.0).is_some());
                    let records = append.records(Batch::zxid_of);
                    side.log.append(&records).map(|()| durable = Some(append.number))
                }
                ToLog::Read { from, upto } => {
                    read = Some(side.log.read_page((*from, *upto)));
                    Ok(())
                }
                ToLog::Trim(index) => side.log.trim_before(*index).map(drop),
                ToLog::Reset(next_index) => side.log.reset_to(*next_index),
                ToLog::Seal => side.log.seal(),
                // The process ends with it.
                ToLog::Close => Ok(()),
            };
            match done {
                Ok(()) => {}
                Err(LogError::NoSpace { .. }) => {
                    side.inbox.put_back(message);
                    full = true;
                    match side.inbox.next_trim() {
                        Some(ToLog::Trim(index)) if side.log.trim_before(index).is_ok() => full = false,
                        _ => break,
                    }
                }
                Err(error) => {
                    fault = Some(error.to_string());
                    break;
                }
            }
        }
        let changed = std::mem::replace(&mut side.is_full, full) != full;
        side.appends += u64::from(durable.is_some());
        if let Some(reason) = fault {
            return self.disk_failed(&reason);
        }
        if replaces && self.stage == Stage::Busy && self.faults.per_mille(CUTS_AT_REPLACEMENT) {
            self.counts.cuts_at_replacement += 1;
            self.note(format_args!("entries are replaced"));
            return self.crash(true);
        }
        if changed {
            self.mail(Channel::LogToConsensus, Inner::ToConsensus(Event::LogFull(full)));
        }
        if let Some(entries) = read {
            self.mail(Channel::LogToConsensus, Inner::ToConsensus(Event::LogRead(entries)));
        }
        match durable {
            Some(number) => {
                if self.options.bug == Some(Bug::AckBeforeSync) {
                    self.mail(Channel::LogToConsensus, Inner::ToConsensus(Event::Durable(number)));
                }
                let slow = if self.nodes[self.at].disk_slow { 100_000 } else { 0 };
                self.inside_soon(self.options.sync_delay + slow, Inner::LogSync(number));
            }
            None if full => self.inside_after(NO_SPACE_RETRY, Inner::LogTurn),
            None => self.log_rests(),
        }
        Ok(())
    }

    pub(super) fn log_sync(&mut self, number: u64) -> Checked {
        let Some(server) = &mut self.nodes[self.at].server else { return Ok(()) };
        if server.log.failed {
            return Ok(());
        }
        let failure = server.log.log.sync().err();
        let is_ignored = self.options.bug == Some(Bug::IgnoreFailedSync) && !self.nodes[self.at].disk_stops;
        if let Some(error) = failure.filter(|_| !is_ignored) {
            self.counts.failed_syncs += 1;
            return self.disk_failed(&error.to_string());
        }
        if self.options.bug != Some(Bug::AckBeforeSync) {
            self.mail(Channel::LogToConsensus, Inner::ToConsensus(Event::Durable(number)));
        }
        self.log_rests();
        Ok(())
    }

    /// The next turn if something waits, else the idle work after a while.
    fn log_rests(&mut self) {
        let Some(server) = &mut self.nodes[self.at].server else { return };
        if server.log.inbox.is_empty() {
            server.log.busy = false;
            let appends = server.log.appends;
            self.inside_after(IDLE, Inner::LogIdle(appends));
        } else {
            self.inside_after(0, Inner::LogTurn);
        }
    }

    pub(super) fn log_idle(&mut self, appends: u64) -> Checked {
        let Some(server) = &mut self.nodes[self.at].server else { return Ok(()) };
        let side = &mut server.log;
        if side.busy || side.failed || side.appends != appends {
            return Ok(());
        }
        let done = side.log.watermark_when_idle().and_then(|_| match side.log.prepare_ahead() {
            Err(LogError::NoSpace { .. }) => Ok(false),
            other => other,
        });
        done.map_or_else(|error| self.disk_failed(&error.to_string()), |_| Ok(()))
    }

    pub(super) fn stopped(&mut self) {
        self.counts.stops += 1;
        self.note(format_args!("stopped"));
        if let Some(mut server) = self.nodes[self.at].server.take() {
            let closed = server.log.log.sync().and_then(|_| server.log.log.watermark_when_idle());
            self.note(format_args!("log closed: {}", closed.is_ok()));
        }
        self.ended(false);
    }

    // ----- snapshot writer -----

    pub(super) fn writer_message(&mut self, state: Box<FrozenState>) {
        let Some(server) = &mut self.nodes[self.at].server else { return };
        server.writer.waiting.push_back(state);
        if !std::mem::replace(&mut server.writer.busy, true) {
            self.inside_soon(self.options.snapshot_delay, Inner::WriterBegins);
        }
    }

    pub(super) fn writer_begins(&mut self) -> Checked {
        let node = &mut self.nodes[self.at];
        let Some(server) = &mut node.server else { return Ok(()) };
        let Some(state) = server.writer.waiting.pop_front() else { return Ok(()) };
        let index = state.index;
        match begin(&node.disk, *state) {
            Ok(half) => {
                server.writer.half = Some(half);
                self.inside_soon(self.options.snapshot_delay, Inner::WriterEnds);
                Ok(())
            }
            Err(failed) => self.writer_says(index, Err(failed)),
        }
    }

    pub(super) fn writer_ends(&mut self) -> Checked {
        let Some(server) = &mut self.nodes[self.at].server else { return Ok(()) };
        let Some(half) = server.writer.half.take() else { return Ok(()) };
        let index = half.index;
        let written = end(&self.nodes[self.at].disk, half, self.options.snapshots_retained);
        self.writer_says(index, written.map_err(|reason| (reason, None)))
    }

    /// A snapshot of another server is installed at this place: no more stay than are kept.
    pub(super) fn purge(&mut self, place: (u64, u64)) -> Checked {
        let (node, kept) = (&mut self.nodes[self.at], self.options.snapshots_retained);
        match purge(&node.disk, place, kept) {
            Err(error) if node.disk_stops => self.disk_failed(&text(error)),
            _ => Ok(()),
        }
    }

    fn writer_says(&mut self, index: u64, written: Result<WrittenSnapshot, Failed>) -> Checked {
        if let Err((what, Some(_))) = &written {
            self.counts.found += 1;
            self.note(format_args!("the merge finds damage: {what}"));
        }
        let message = match written {
            Ok(written) => {
                self.counts.snapshots += 1;
                self.note(format_args!("snapshot up to entry {index} written"));
                Event::SnapshotWritten(written)
            }
            Err((reason, _)) if self.nodes[self.at].disk_stops => return self.disk_failed(&reason),
            Err((reason, _)) if reason.contains("the digest of") => return Err(Violation::of("digests", reason)),
            Err((reason, found)) => {
                self.note(format_args!("snapshot failed: {reason}"));
                Event::SnapshotFailed { index, was_tried: true, found }
            }
        };
        self.mail(Channel::WriterToConsensus, Inner::ToConsensus(message));
        let Some(server) = &mut self.nodes[self.at].server else { return Ok(()) };
        server.writer.busy = !server.writer.waiting.is_empty();
        if server.writer.busy {
            self.inside_soon(self.options.snapshot_delay, Inner::WriterBegins);
        }
        Ok(())
    }
}

/// Writes the sections. Nothing is copied of a damaged snapshot.
fn begin(disk: &SimDisk, state: FrozenState) -> Result<HalfWritten, Failed> {
    let merge = |fault| match fault {
        SnapshotFault::Damaged(what) => (what.clone(), Some(CorruptState { finding: Finding::DamagedSnapshot, what })),
        other => failed(other),
    };
    let FrozenState { snapshot: below, delta, sessions, zxid, index, term, extra, .. } = state;
    let head = SnapshotHead { zxid: zxid.0, term, index, seed: below.seed() };
    let mut file = SnapshotWriter::begin(disk, head, None).map_err(failed)?;
    let mut merger = SnapshotMerger::new(&below, &delta, section_bits_for(&below, &delta));
    while let Some(section) = merger.next_section().map_err(merge)? {
        file.section(SECTION_NODES, &section).map_err(failed)?;
    }
    let meta = merger.finish(zxid, sessions.to_snapshot(), extra).map_err(merge)?;
    file.section(SECTION_META, &meta).map_err(failed)?;
    Ok(HalfWritten { file, index, term })
}

fn failed(error: impl std::fmt::Display) -> Failed {
    (error.to_string(), None)
}

fn end(disk: &SimDisk, half: HalfWritten, retained: usize) -> Result<WrittenSnapshot, String> {
    let HalfWritten { file, index, term } = half;
    let name = file.finish().map_err(text)?;
    let loaded = load(disk, &name.file)?;
    let names = purge(disk, (name.zxid, name.index), retained).map_err(text)?;
    let kept = names.iter().map(|name| SnapshotFile::open(disk, &name.file).map(|file| file.head().index));
    let kept = kept.collect::<Result<Vec<u64>, _>>().map_err(text)?;
    Ok(WrittenSnapshot { snapshot: loaded.snapshot, bytes: loaded.bytes, index, term, kept })
}
