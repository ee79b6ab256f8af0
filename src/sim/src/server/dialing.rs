//! A server dials another. An operator mends the files of servers that could not find each other.

use corral_engine::PeerEvent;

use crate::server::{ending, list, peers};
use crate::world::{Stage, World};

/// So long a server of the list is not let in by another before an operator puts the list into that one's file.
const MENDED_AFTER: u64 = 3_000_000;

/// Connects one server with another, or plans the next attempt.
pub(crate) fn dial(world: &mut World, from: usize, to: usize, life: u32) {
    peers::wire(world, from, to).dials.take_if(|planned| *planned == life);
    let (knows, is_known) =
        (list::knows(world, from, to), list::knows(world, to, from) && list::finds(world, from, to));
    let sender = &world.nodes[from];
    let Some(server) = sender.server.as_ref().filter(|_| sender.life == life && knows) else { return };
    let (incarnation, is_stopped) = (server.incarnation, sender.frozen.is_some());
    let other = &world.nodes[to];
    let answers = other.server.is_some() && other.frozen.is_none();
    let cut = peers::wire(world, from, to).cut || peers::wire(world, to, from).cut;
    let wire = peers::wire(world, from, to);
    if wire.up {
        return;
    }
    if is_stopped || !answers || cut || !is_known {
        peers::plan_dial(world, from, to);
        if answers && !is_known {
            not_let_in(world, from, to);
        }
        return;
    }
    wire.refused = None;
    if wire.incarnation != incarnation {
        wire.lost_forward = None;
    }
    (wire.up, wire.incarnation) = (true, incarnation);
    world.connections += 1;
    let stream = world.connections;
    let wire = peers::wire(world, from, to);
    wire.number = stream;
    let before = wire.accepted.replace(stream);
    world.note(format_args!("server {} is linked to {} by {stream}", from + 1, to + 1));
    peers::report(world, from, to, PeerEvent::ConnectedTo { stream });
    if let Some(stream) = before {
        peers::report(world, to, from, PeerEvent::Lost { stream, gone: false });
    }
    peers::report(world, to, from, PeerEvent::Accepted { stream, incarnation });
}

/// When faults are over an operator sees to it that the servers of the list find each other and let each other in.
fn not_let_in(world: &mut World, from: usize, to: usize) {
    let now = world.now;
    let since = *peers::wire(world, from, to).refused.get_or_insert(now);
    let overdue = world.stage != Stage::Busy && now - since > MENDED_AFTER;
    if overdue && list::is_listed(world, from) && list::is_listed(world, to) {
        peers::wire(world, from, to).refused = None;
        let wrong = if list::finds(world, from, to) || !list::is_at_listed_port(world, to) { to } else { from };
        world.note(format_args!("the file of server {} is mended", wrong + 1));
        world.at = wrong;
        ending::crash(world, false);
    }
}

/// An operator sees to it that every file is right.
pub(crate) fn mend_files(world: &mut World) {
    for node in 0..world.nodes.len() {
        if std::mem::take(&mut world.nodes[node].has_odd_file) && world.nodes[node].server.is_some() {
            world.note(format_args!("the file of server {} is mended", node + 1));
            world.at = node;
            ending::crash(world, false);
        }
    }
}
