//! The view of the checkers on a server: its elections, its entries and its expiries, before and after the engine's
//! work.
//!
//! Looks at the engine from outside, and changes nothing in it.

use corral_consensus::{AppendReply, Membership, PeerBody, PeerMessage, Role};
use corral_core::report::Obstacle;
use corral_engine::{Event, PeerEvent};
use corral_peer::{Frame, Kind};

use crate::check::{elections, members, sessions, trees, writes};
use crate::options::Bug;
use crate::server::{emptying, list};
use crate::servers::place_of;
use crate::violation::{Checked, Violation, require};
use crate::world::World;

/// Whether that server leads, as far as it knows.
pub(crate) fn leads(world: &World, at: usize) -> bool {
    world.nodes[at].server.as_ref().is_some_and(|server| server.engine.replica().is_leading())
}

/// The members that elected this server, if it leads and the checkers do not know that yet. Called before anything
/// is applied that changes them.
pub(super) fn electors(world: &mut World) -> Result<Option<Membership>, Violation> {
    let (at, Some(server)) = (world.at, &world.nodes[world.at].server) else { return Ok(None) };
    let raft = server.engine.raft();
    let has_won = raft.role() == Role::Leader && elections::is_without_leader(&world.check, raft.term().0);
    let electors = has_won.then(|| raft.membership());
    if let Some(known) = electors.as_ref().filter(|_| world.options.ensemble.is_some()) {
        members::counted(&world.check, at, known, raft.commit().0)?;
    }
    Ok(electors)
}

/// A step of a turn is done, and nothing of it is carried out.
pub(super) fn turn(world: &mut World, electors: Option<Membership>) -> Checked {
    let (at, time) = (world.at, world.time());
    let Some(server) = &mut world.nodes[at].server else { return Ok(()) };
    let raft = server.engine.raft();
    let (term, leads) = (raft.term().0, raft.role() == Role::Leader);
    if leads && world.options.ensemble.is_some() && elections::is_without_leader(&world.check, term) {
        let electors = electors.unwrap_or_else(|| raft.membership());
        elections::elected(&mut world.check, term, at, &electors)?;
    }
    for entry in std::mem::take(&mut server.engine.machine_mut().committed) {
        writes::committed(&mut world.check, entry, time)?;
    }
    Ok(())
}

pub(super) fn end_of_turn(world: &mut World) {
    let (at, time) = (world.at, world.time());
    let Some(server) = &mut world.nodes[at].server else { return };
    let replica = server.engine.replica();
    let (leads, distrusts) = (server.engine.sequencer().is_leading(), replica.is_state_corrupt());
    let term = replica.raft().term().0;
    let led = std::mem::replace(&mut server.led, leads);
    if !std::mem::replace(&mut server.distrusts, distrusts) && distrusts {
        world.counts.distrusted += 1;
        world.note(format_args!("server {} does not trust its state", at + 1));
    }
    if leads && !led && world.options.ensemble.is_some() {
        world.counts.leaders += 1;
        world.note(format_args!("server {} leads", at + 1));
        sessions::leads(&mut world.check, term, time);
    }
}

/// Time has passed, and none of the effects is applied.
pub(super) fn tick(world: &mut World) -> Checked {
    let (newest_leader, time) = (emptying::is_newest_leader(world), world.time());
    let Some(server) = &mut world.nodes[world.at].server else { return Ok(()) };
    let (mismatches, status) = (server.engine.take_digest_mismatches(), *server.engine.status());
    let slow_disk_transfers =
        status.slow_disk_transfers - std::mem::replace(&mut server.slow_disk_transfers, status.slow_disk_transfers);
    let ticked = std::mem::take(&mut server.engine.machine_mut().ticked);
    let applied = server.engine.replica().applied().0;
    let at = world.at;
    require(mismatches == 0, "digests", || format!("the digest of server {} differs from another's", at + 1))?;
    let contradicts = status.found == Some(Obstacle::LogContradicts);
    require(!contradicts, "logs", || format!("the log of server {} contradicts another's", at + 1))?;
    if slow_disk_transfers > 0 {
        world.counts.slow_disk_transfers += slow_disk_transfers;
        world.note(format_args!("the disk of server {} is slow, another is to lead", at + 1));
    }
    for (path, mzxid) in ticked.reaped {
        world.counts.reaped += 1;
        world.note(format_args!("{path} is outlived"));
        writes::reaped(&world.check, &path, mzxid, world.wall_latest)?;
    }
    for step in ticked.steps {
        world.counts.members_changed += 1;
        world.note(format_args!("server {} changes the membership: {step}", at + 1));
    }
    for session in ticked.expired {
        world.counts.expiries += 1;
        world.note(format_args!("session {session} expires"));
        if newest_leader {
            sessions::expired(&mut world.check, session.0, time, applied)?;
        }
    }
    emptying::note_members(world);
    Ok(())
}

/// A Raft message is about to be sent. False if [`Bug::SkipMajority`] keeps it back.
pub(super) fn message(world: &mut World, payload: &bytes::Bytes) -> Result<bool, Violation> {
    let message = PeerMessage::decode(payload).expect("as it was encoded");
    match &message.body {
        PeerBody::Vote { pre: false, .. } => elections::voted(&mut world.check, message.term.0, world.at, world.at)?,
        PeerBody::VoteReply { pre: false, granted: true, .. } => {
            elections::voted(&mut world.check, message.term.0, world.at, place_of(message.to))?;
        }
        PeerBody::AppendReply(AppendReply::Accepted { index, .. }) => {
            members::holds_upto(&mut world.check, message.term.0, world.at, index.0);
        }
        PeerBody::Append { .. } if world.options.bug == Some(Bug::SkipMajority) => {
            return Ok(!skips_majority(world, &message));
        }
        _ => {}
    }
    Ok(true)
}

/// With [`Bug::SkipMajority`] some entries are not sent, and taken for written by their receiver.
fn skips_majority(world: &mut World, message: &PeerMessage) -> bool {
    let PeerBody::Append { commit, entries, .. } = &message.body else { return false };
    let Some(last) = entries.last().filter(|_| world.faults.per_mille(300)) else { return false };
    let reply = AppendReply::Accepted { index: last.index, commit: *commit };
    let body = PeerBody::AppendReply(reply);
    let forged = PeerMessage { from: message.to, to: message.from, term: message.term, body };
    let from = place_of(message.to);
    let Some(stream) = world.wires.get(&(from, world.at)).and_then(|wire| wire.accepted) else { return false };
    let mut bytes = bytes::BytesMut::new();
    forged.encode(&mut bytes);
    let frame = Frame { kind: Kind::Raft, payload: bytes.freeze() };
    world.put_in_mailbox(Event::Peer(message.to, PeerEvent::Frame { stream, frame }));
    true
}

/// Every view of every server against the model, once the actors have nothing under way.
pub(crate) fn compare_everywhere(world: &World) -> Checked {
    let listed = (0..world.nodes.len()).filter(|at| list::is_listed(world, *at));
    for server in listed.filter_map(|at| world.nodes[at].server.as_ref()) {
        let machine = server.engine.sequencer().machine();
        trees::same_tree(&world.check, "state machine", machine.view())?;
        trees::same_sessions(&world.check, machine.sessions())?;
        for side in &server.shards {
            trees::same_tree(&world.check, "shard", side.shard.view())?;
        }
    }
    Ok(())
}
