//! Drives the log thread and the snapshot writer: both take their time, and a crash may fall between any two of their
//! steps.

use corral_core::command::Batch;
use corral_core::sequencer::FrozenState;
use corral_core::tree::snapshot::{SnapshotFault, SnapshotMerger, section_bits_for};
use corral_engine::{CorruptState, Event, Finding, ToLog, WrittenSnapshot};
use corral_storage::log::LogError;
use corral_storage::{SimDisk, SnapshotFile, SnapshotHead, SnapshotWriter};

use crate::limits::GROUP_MAX;
use crate::options::Bug;
use crate::server::ending;
use crate::server::snapshot_file::{SECTION_META, SECTION_NODES, load, text};
use crate::violation::{Checked, Violation};
use crate::world::event::{Channel, Inner};
use crate::world::server::HalfWritten;
use crate::world::{Stage, World};

const IDLE: u64 = 5_000;
const NO_SPACE_RETRY: u64 = 200_000;
/// Power goes at an append that replaces entries so often, in a thousand.
const CUTS_AT_REPLACEMENT: u64 = 300;

/// The reason, and damage that was found in the snapshot below.
type Failed = (String, Option<CorruptState>);

// ----- log thread -----

pub(crate) fn log_message(world: &mut World, message: ToLog) {
    let Some(server) = &mut world.nodes[world.at].server else { return };
    server.log.inbox.push(message);
    if !std::mem::replace(&mut server.log.busy, true) {
        world.inside_after(0, Inner::LogTurn);
    }
}

/// Takes a group; the sync comes later.
pub(crate) fn log_turn(world: &mut World) {
    let Some(server) = &mut world.nodes[world.at].server else { return };
    let side = &mut server.log;
    if side.failed {
        return;
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
        return ending::disk_failed(world, &reason);
    }
    if replaces && world.stage == Stage::Busy && world.faults.per_mille(CUTS_AT_REPLACEMENT) {
        world.counts.cuts_at_replacement += 1;
        world.note(format_args!("entries are replaced"));
        return ending::crash(world, true);
    }
    if changed {
        world.mail(Channel::LogToConsensus, Inner::ToConsensus(Event::LogFull(full)));
    }
    if let Some(entries) = read {
        world.mail(Channel::LogToConsensus, Inner::ToConsensus(Event::LogRead(entries)));
    }
    match durable {
        Some(number) => {
            if world.options.bug == Some(Bug::AckBeforeSync) {
                world.mail(Channel::LogToConsensus, Inner::ToConsensus(Event::Durable(number)));
            }
            let slow = if world.nodes[world.at].disk_slow { 100_000 } else { 0 };
            world.inside_soon(world.options.sync_delay + slow, Inner::LogSync(number));
        }
        None if full => world.inside_after(NO_SPACE_RETRY, Inner::LogTurn),
        None => log_rests(world),
    }
}

pub(crate) fn log_sync(world: &mut World, number: u64) {
    let Some(server) = &mut world.nodes[world.at].server else { return };
    if server.log.failed {
        return;
    }
    let failure = server.log.log.sync().err();
    let is_ignored = world.options.bug == Some(Bug::IgnoreFailedSync) && !world.nodes[world.at].disk_stops;
    if let Some(error) = failure.filter(|_| !is_ignored) {
        world.counts.failed_syncs += 1;
        return ending::disk_failed(world, &error.to_string());
    }
    if world.options.bug != Some(Bug::AckBeforeSync) {
        world.mail(Channel::LogToConsensus, Inner::ToConsensus(Event::Durable(number)));
    }
    log_rests(world);
}

/// The next turn if something waits, else the idle work after a while.
fn log_rests(world: &mut World) {
    let Some(server) = &mut world.nodes[world.at].server else { return };
    if server.log.inbox.is_empty() {
        server.log.busy = false;
        let appends = server.log.appends;
        world.inside_after(IDLE, Inner::LogIdle(appends));
    } else {
        world.inside_after(0, Inner::LogTurn);
    }
}

pub(crate) fn log_idle(world: &mut World, appends: u64) {
    let Some(server) = &mut world.nodes[world.at].server else { return };
    let side = &mut server.log;
    if side.busy || side.failed || side.appends != appends {
        return;
    }
    let done = side.log.watermark_when_idle().and_then(|_| match side.log.prepare_ahead() {
        Err(LogError::NoSpace { .. }) => Ok(false),
        other => other,
    });
    if let Err(error) = done {
        ending::disk_failed(world, &error.to_string());
    }
}

// ----- snapshot writer -----

pub(crate) fn writer_message(world: &mut World, state: Box<FrozenState>) {
    let Some(server) = &mut world.nodes[world.at].server else { return };
    server.writer.waiting.push_back(state);
    if !std::mem::replace(&mut server.writer.busy, true) {
        world.inside_soon(world.options.snapshot_delay, Inner::WriterBegins);
    }
}

pub(crate) fn writer_begins(world: &mut World) -> Checked {
    let node = &mut world.nodes[world.at];
    let Some(server) = &mut node.server else { return Ok(()) };
    let Some(state) = server.writer.waiting.pop_front() else { return Ok(()) };
    let index = state.index;
    match begin(&node.disk, *state) {
        Ok(half) => {
            server.writer.half = Some(half);
            world.inside_soon(world.options.snapshot_delay, Inner::WriterEnds);
            Ok(())
        }
        Err(failed) => report_written(world, index, Err(failed)),
    }
}

pub(crate) fn writer_ends(world: &mut World) -> Checked {
    let Some(server) = &mut world.nodes[world.at].server else { return Ok(()) };
    let Some(half) = server.writer.half.take() else { return Ok(()) };
    let index = half.index;
    let written = end(&world.nodes[world.at].disk, half, world.options.snapshots_retained);
    report_written(world, index, written.map_err(|reason| (reason, None)))
}

/// A snapshot of another server is installed at this place: no more stay than are kept.
pub(super) fn purge(world: &mut World, place: (u64, u64)) {
    let (node, kept) = (&mut world.nodes[world.at], world.options.snapshots_retained);
    match corral_storage::purge(&node.disk, place, kept) {
        Err(error) if node.disk_stops => ending::disk_failed(world, &text(error)),
        _ => {}
    }
}

fn report_written(world: &mut World, index: u64, written: Result<WrittenSnapshot, Failed>) -> Checked {
    if let Err((what, Some(_))) = &written {
        world.counts.found += 1;
        world.note(format_args!("the merge finds damage: {what}"));
    }
    let message = match written {
        Ok(written) => {
            world.counts.snapshots += 1;
            world.note(format_args!("snapshot up to entry {index} written"));
            Event::SnapshotWritten(written)
        }
        Err((reason, _)) if world.nodes[world.at].disk_stops => {
            ending::disk_failed(world, &reason);
            return Ok(());
        }
        Err((reason, _)) if reason.contains("the digest of") => return Err(Violation::of("digests", reason)),
        Err((reason, found)) => {
            world.note(format_args!("snapshot failed: {reason}"));
            Event::SnapshotFailed { index, was_tried: true, found }
        }
    };
    world.mail(Channel::WriterToConsensus, Inner::ToConsensus(message));
    let Some(server) = &mut world.nodes[world.at].server else { return Ok(()) };
    server.writer.busy = !server.writer.waiting.is_empty();
    if server.writer.busy {
        world.inside_soon(world.options.snapshot_delay, Inner::WriterBegins);
    }
    Ok(())
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
    let names = corral_storage::purge(disk, (name.zxid, name.index), retained).map_err(text)?;
    let kept = names.iter().map(|name| SnapshotFile::open(disk, &name.file).map(|file| file.head().index));
    let kept = kept.collect::<Result<Vec<u64>, _>>().map_err(text)?;
    Ok(WrittenSnapshot { snapshot: loaded.snapshot, bytes: loaded.bytes, index, term, kept })
}
