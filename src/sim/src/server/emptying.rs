//! The emptied disks: whether the ensemble can do without a disk, and when the server of an emptied one votes again.

use corral_consensus::Role;
use corral_storage::SimDisk;

use crate::check::elections;
use crate::server::list;
use crate::servers::{is_member, server_id};
use crate::world::World;
use crate::world::server::Server;

/// Whether this server leads, and no other leads a later term.
pub(super) fn is_newest_leader(world: &World) -> bool {
    let raft = |server: &Server| (server.engine.raft().term(), server.engine.raft().role());
    let all = world.nodes.iter().filter_map(|node| node.server.as_deref()).map(raft);
    let newest = all.filter(|(_, role)| *role == Role::Leader).map(|(term, _)| term).max();
    world.nodes[world.at].server.as_deref().map(|server| raft(server).0) == newest
}

/// Checks whether the server with the emptied disk votes again.
pub(super) fn note_members(world: &mut World) {
    let (Some(wanted), newest) = (list::wanted(world), is_newest_leader(world)) else { return };
    let Some(server) = &mut world.nodes[world.at].server else { return };
    let (members, leads) = (server.engine.raft().membership(), server.engine.replica().is_leading());
    if server.members != members {
        server.members = members.clone();
        world.note(format_args!("server {}: members are {members:?}", world.at + 1));
    }
    let Some(emptied) = world.emptied.filter(|_| newest && leads) else { return };
    let own = server_id(emptied);
    let observes = wanted.learners.contains(&own) && members.learners.contains(&own);
    let belongs = members.voters.contains(&own) || observes;
    let server = world.nodes[emptied].server.as_ref();
    let remembers = server.is_some_and(|server| !server.engine.raft().is_uninitialised());
    let is_out = list::rests(world) && !list::is_listed(world, emptied);
    if belongs && remembers || is_out {
        world.note(format_args!("server {} is healed", emptied + 1));
        elections::healed(&mut world.check, emptied);
        world.emptied = None;
    }
}

/// Whether every server of the list runs and knows that exactly those servers are the members.
pub(crate) fn all_vote(world: &World) -> bool {
    let Some(all) = list::wanted(world) else { return true };
    let knows = |server: &Server| server.engine.raft().membership() == all;
    let mut listed = (0..world.nodes.len()).filter(|at| is_member(Some(&all), *at));
    listed.all(|at| world.nodes[at].server.as_deref().is_some_and(knows))
}

/// Whether this server can do without its disk. One at a time, and only members: more than that no ensemble of
/// three survives.
pub(crate) fn may_empty(world: &World) -> bool {
    // A change of the members that is in some log and not in force: another may be about to leave.
    let changes = |server: &Server| server.engine.raft().holds_membership_change();
    // The leader may still remove a founder that began later, as one without data.
    let is_late = |server: &Server| server.engine.raft().is_pristine();
    let misses = |server: &Server| server.engine.raft().followers().any_uninitialised();
    let mut running = world.nodes.iter().filter_map(|node| node.server.as_deref());
    let somebody_leaves = running.any(|server| changes(server) || is_late(server) || misses(server));
    let rests = all_vote(world) && !somebody_leaves && list::rests(world);
    let few = list::wanted(world).is_some_and(|listed| listed.voters.len() < 3);
    world.emptied.is_none() && rests && !(few && list::is_listed(world, world.at))
}

/// A server that does not run begins with an empty disk. `is_healing`: it put damaged data aside by itself.
pub(crate) fn set_empty(world: &mut World, is_healing: bool) {
    let at = world.at;
    world.nodes[at].disk = SimDisk::new();
    world.nodes[at].is_healing = is_healing;
    (world.nodes[at].remembered, world.nodes[at].distrusted) = (None, None);
    world.emptied = list::is_listed(world, at).then_some(at);
    world.counts.emptied += 1;
    elections::emptied(&mut world.check, at);
    world.note(format_args!("the disk of server {} is empty", at + 1));
}
