//! The faults and their times: one fault after another for as long as the run is busy.

use std::collections::VecDeque;

use corral_engine as engine;

use crate::options::Fault;
use crate::server::recovery::ELECTION;
use crate::server::{emptying, ending, judges, lost_page, peers, shard_side, spoiled};
use crate::violation::Checked;
use crate::world::event::{Event, Inner};
use crate::world::{Stage, World};

/// Plans the next fault.
pub(crate) fn plan(world: &mut World) {
    let wait = world.faults.below(world.options.fault_every_ms * 2_000) + 1;
    world.after(wait, Event::Fault);
}

/// A fault of a server that runs, while faults happen.
pub(crate) fn next(world: &mut World) -> Checked {
    if world.stage != Stage::Busy {
        return Ok(());
    }
    plan(world);
    if world.nodes.len() > 1 {
        world.at = world.faults.index(world.nodes.len());
    }
    let total: u64 = world.options.weights.iter().map(|(_, weight)| weight).sum();
    if total == 0 || world.nodes[world.at].server.is_none() {
        return Ok(());
    }
    let mut drawn = world.faults.below(total);
    let struck = world.options.weights.iter().find(|(_, weight)| {
        let hit = drawn < *weight;
        drawn = drawn.saturating_sub(*weight);
        hit
    });
    struck.copied().map_or(Ok(()), |(kind, _)| strike(world, kind))
}

fn strike(world: &mut World, kind: Fault) -> Checked {
    world.note(format_args!("fault: {kind:?}"));
    let at = world.at;
    let (node, faults) = (&mut world.nodes[at], &mut world.faults);
    match kind {
        Fault::PowerCut => ending::crash(world, true),
        Fault::Kill => {
            let may_empty = emptying::may_empty(world);
            ending::crash(world, false);
            return lost_page::lose_a_page(world, may_empty);
        }
        Fault::StopAtStep => {
            node.disk.stop_at_step(faults.below(30));
            node.disk_stops = true;
        }
        Fault::FailSync => node.disk.fail_sync(faults.below(6)),
        Fault::DiskFull => {
            world.counts.full_disks += 1;
            node.disk.limit_space(Some(0));
            let wait = faults.within(50_000, 3_000_000);
            world.after(wait, Event::Space(at));
        }
        Fault::SlowDisk => {
            node.disk_slow = true;
            let wait = faults.within(100_000, 2_000_000);
            world.after(wait, Event::FastDisk(at));
        }
        Fault::ShardPause => {
            let shard = faults.index(usize::from(world.options.shards));
            let time = faults.within(1_000, 3_000_000);
            shard_side::pause(world, shard, time);
        }
        Fault::WallJump => {
            let ms = i64::try_from(faults.below(1_200_000)).expect("a small number");
            world.wall_offset_ms += ms - 600_000;
        }
        Fault::Stop => world.inside_after(0, Inner::ToConsensus(engine::Event::Stop)),
        Fault::AllOut => {
            for node in 0..world.nodes.len() {
                world.at = node;
                ending::crash(world, true);
            }
        }
        Fault::Empty if !emptying::may_empty(world) => {}
        Fault::Empty => {
            ending::crash(world, true);
            emptying::set_empty(world, false);
        }
        Fault::SpoilSnapshot => spoiled::spoil_snapshot(world),
        Fault::Damage => {
            spoiled::damage(world, "a fault");
            silence_leader(world);
        }
        Fault::Scarcity => make_scarce(world),
        Fault::AskForSnapshot => world.inside_after(0, Inner::ToConsensus(engine::Event::SnapshotRequested)),
        _ => strike_network(world, kind),
    }
    Ok(())
}

/// Disk space or memory becomes scarce: of this server, or half of the time of all, so that the leader refuses writes.
fn make_scarce(world: &mut World) {
    let servers = if world.faults.per_mille(500) { 0..world.nodes.len() } else { world.at..world.at + 1 };
    for at in servers {
        let wait = world.faults.within(100_000, 5_000_000);
        set_scarce(world, at, true);
        world.after(wait, Event::EndScarcity(at));
    }
}

/// A server measures its disk space and memory.
pub(crate) fn set_scarce(world: &mut World, at: usize, scarce: bool) {
    if std::mem::replace(&mut world.nodes[at].is_scarce, scarce) != scarce {
        let life = world.nodes[at].life;
        let event = Inner::ToConsensus(engine::Event::Scarce(scarce));
        world.after(0, Event::Inside(at, life, event));
    }
}

/// Half of the time the leader is silent to this server for an election timeout or more, during the repair of its state.
fn silence_leader(world: &mut World) {
    let leads = |at: &usize| judges::leads(world, *at);
    let Some(leader) = (0..world.nodes.len()).find(leads).filter(|leader| *leader != world.at) else { return };
    if world.pages.per_mille(500) {
        world.counts.silenced += 1;
        let time = world.pages.within(ELECTION, 3 * ELECTION);
        peers::cut_wire(world, leader, world.at, time);
    }
}

/// Between this server and another, or all others.
fn strike_network(world: &mut World, kind: Fault) {
    let at = world.at;
    let other = (at + 1 + world.faults.index(world.nodes.len() - 1)) % world.nodes.len();
    match kind {
        Fault::BreakWire => {
            let told = world.faults.per_mille(500);
            peers::break_wire(world, at, other, told);
        }
        Fault::CutWire => {
            let time = world.faults.within(10_000, 4_000_000);
            peers::cut_wire(world, at, other, time);
        }
        Fault::Isolate => {
            let time = world.faults.within(50_000, 5_000_000);
            for other in (0..world.nodes.len()).filter(|other| *other != at) {
                peers::cut_wire(world, at, other, time);
                peers::cut_wire(world, other, at, time);
            }
        }
        Fault::Clog => {
            let time = world.faults.within(10_000, 1_000_000);
            peers::clog_wire(world, at, other, time);
        }
        // The whole process is stopped.
        _ if world.nodes[at].frozen.is_none() => {
            world.nodes[at].frozen = Some(VecDeque::new());
            peers::review_sureness(world, at);
            let time = world.faults.within(10_000, 3_000_000);
            world.after(time, Event::Thaw(at));
        }
        _ => {}
    }
}
