//! Bytes of a snapshot file that change under the server, or while it is down.
//!
//! The server serves a copy here: the damage reaches the readers of the file. The merge compares each section with the
//! file before it copies anything, and a scrub reads the whole file some time later. Another server that receives the
//! snapshot refuses it, and a start passes it over. Then an older snapshot and the log replace it. If they cannot, the
//! bytes come back, as from a backup: a server without data is a fault of its own.

use corral_engine::{CorruptState, Event, Finding};
use corral_storage::log::{Log, LogConfig};
use corral_storage::{SnapshotFile, list_snapshots};

use crate::server::recovery;
use crate::server::snapshot_file::load;
use crate::violation::{Checked, Violation};
use crate::world::World;
use crate::world::event::Inner;

const SCRUB_MAX: u64 = 4_000_000;

/// A byte of a section of this server's newest snapshot changes.
pub(crate) fn spoil_snapshot(world: &mut World) {
    let disk = &world.nodes[world.at].disk;
    if world.nodes[world.at].spoiled.is_some() || disk.has_stopped() {
        return;
    }
    let fork = disk.fork();
    let Some(name) = list_snapshots(&fork).ok().and_then(|names| Some(names.first()?.file.clone())) else { return };
    let Ok(file) = SnapshotFile::open(&fork, &name) else { return };
    let section = world.pages.index(file.section_count());
    let Some(range) = file.section_range(section).filter(|range| !range.is_empty()) else { return };
    let Some(whole) = disk.content(&name) else { return };
    let mut damaged = whole.clone();
    damaged[range.start + world.pages.index(range.len())] ^= 1 << world.pages.below(8);
    disk.place(&name, damaged);
    world.counts.spoiled += 1;
    world.note(format_args!("a byte of section {section} of {name} changes"));
    world.nodes[world.at].spoiled = Some((name, whole));
    let wait = world.pages.below(SCRUB_MAX);
    world.inside_after(wait, Inner::Scrub);
}

pub(crate) fn scrub(world: &mut World) {
    let Some((name, _)) = &world.nodes[world.at].spoiled else { return };
    let fork = world.nodes[world.at].disk.fork();
    // The process may be about to end.
    fork.stop_at_step(u64::MAX);
    match list_snapshots(&fork).unwrap_or_default().iter().position(|other| other.file == *name) {
        Some(0) if load(&fork, name).is_err() => {
            world.counts.found += 1;
            world.note(format_args!("the scrub finds a damaged snapshot"));
            damage(world, "the scrub finds it");
        }
        Some(0) => {}
        // It is served no more: it is put aside.
        Some(_) => {
            world.nodes[world.at].disk.forget(name);
            world.nodes[world.at].spoiled = None;
        }
        None => world.nodes[world.at].spoiled = None,
    }
}

/// Something is to find that this server's state is damaged.
pub(crate) fn damage(world: &mut World, what: &str) {
    let damaged = CorruptState { finding: Finding::DamagedSnapshot, what: what.to_owned() };
    world.inside_after(0, Inner::ToConsensus(Event::StateCorrupt(damaged)));
}

pub(super) fn judge_snapshots(world: &mut World) -> Checked {
    let Some((name, whole)) = world.nodes[world.at].spoiled.take() else { return Ok(()) };
    let node = &world.nodes[world.at];
    let fork = node.disk.fork();
    fork.stop_at_step(u64::MAX);
    let names = list_snapshots(&fork).map_err(|error| Violation::of("recovery", error.to_string()))?;
    if names.iter().all(|other| other.file != name) || load(&fork, &name).is_ok() {
        return Ok(());
    }
    let stands_in = names.iter().filter(|other| other.file != name).find_map(|other| load(&fork, &other.file).ok());
    fork.fail_sync(u64::MAX);
    let reaches = stands_in.is_some_and(|older| {
        let config = LogConfig { create_if_missing: false, ..recovery::log_config(world, older.index) };
        let log = Log::open(fork, config, &mut |_| {});
        log.is_ok_and(|(_, found)| found.first_index <= older.index + 1 && found.last_index >= older.index)
    });
    if reaches {
        world.counts.passed_over += 1;
        world.note(format_args!("{name} is damaged and passed over"));
        world.nodes[world.at].disk.forget(&name);
    } else {
        world.note(format_args!("{name} is damaged, nothing stands in: it comes from a backup"));
        world.nodes[world.at].disk.place(&name, whole);
    }
    Ok(())
}
