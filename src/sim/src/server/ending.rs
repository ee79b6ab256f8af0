//! The end of a process: a crash, a failed disk, or a stop in order.

use crate::model::LinkId;
use crate::server::{peers, shard_side};
use crate::world::World;
use crate::world::event::{Event, Inner};

/// The process ends at once, with the machine's power or without. It starts again a little later.
pub(crate) fn crash(world: &mut World, power: bool) {
    world.counts.crashes += 1;
    world.note(format_args!("{}", if power { "power cut" } else { "killed" }));
    let node = &mut world.nodes[world.at];
    if !node.disk_stops {
        // A dead process does not tidy up.
        node.disk.stop_at_step(0);
    }
    node.server = None;
    node.disk.limit_space(None);
    ended(world, power);
    refuse_frozen(world);
}

/// The events that waited for the process are lost with it. Connections that reach it are closed.
fn refuse_frozen(world: &mut World) {
    for event in world.nodes[world.at].frozen.take().into_iter().flatten() {
        if let Event::Arrive(link) = event {
            shard_side::close_at_server(world, link);
        }
    }
}

/// The consequences of the end of a process, however it came; perhaps of the power too.
fn ended(world: &mut World, power: bool) {
    let at = world.at;
    world.nodes[at].disk.stop_at_step(u64::MAX);
    world.nodes[at].disk_stops = false;
    if power {
        let seed = world.disk_rng.word();
        world.nodes[at].disk.crash(seed);
    }
    for link in 0..world.links.len() {
        if world.links[link].server == at && world.links[link].conn.is_some() {
            shard_side::close_at_server(world, LinkId(link));
        }
    }
    if !world.nodes[at].starting {
        world.nodes[at].starting = true;
        let wait = 1_000 + world.schedule.delay(100_000);
        world.after(wait, Event::Start(at));
    }
    peers::end_wires(world, power);
}

/// The disk failed. Either it had to stop the process here, or the log is lost to this process.
pub(super) fn disk_failed(world: &mut World, reason: &str) {
    world.note(format_args!("disk: {reason}"));
    if world.nodes[world.at].disk_stops {
        let power = world.faults.per_mille(700);
        return crash(world, power);
    }
    if let Some(server) = &mut world.nodes[world.at].server
        && !std::mem::replace(&mut server.log.failed, true)
    {
        world.inside_soon(20_000, Inner::Die);
    }
}

/// The process has stopped in order.
pub(super) fn stopped(world: &mut World) {
    world.counts.stops += 1;
    world.note(format_args!("stopped"));
    if let Some(mut server) = world.nodes[world.at].server.take() {
        let closed = server.log.log.sync().and_then(|_| server.log.log.watermark_when_idle());
        world.note(format_args!("log closed: {}", closed.is_ok()));
    }
    ended(world, false);
}
