//! Drives the engine: the events of its mailbox, then a turn, then its effects. Decides nothing.

use corral_consensus::{BOOTSTRAP_INDEX, Micros};
use corral_core::apply::outcome::Outcome;
use corral_core::forwarding::peer::PeerMessage;
use corral_core::ids::{Millis, SessionId, WallMillis};
use corral_core::shard::{Flow, SessionActivity, ShardMessage};
use corral_engine::{CorruptState, Effect, Ended, Event, Finding, Now, PeerEvent, ToLog, ToPeers, Turned};
use corral_peer::{Frame, Kind};

use crate::check::{elections, members, sessions};
use crate::limits::MAILBOX_BATCH;
use crate::options::Bug;
use crate::server::recovery::TICK;
use crate::server::{disk_threads, ending, judges, list, peers};
use crate::violation::{Checked, Violation};
use crate::world::World;
use crate::world::event::{Channel, Inner};
use crate::world::server::Server;

/// The engine's unit of time of a server that is alone, in microseconds.
const TICK_ALONE: u64 = 100_000;

pub(super) fn begin(world: &mut World) -> Checked {
    let (at, now) = (world.at, world.engine_time());
    let known = list::configured(world);
    if let Some(server) = &mut world.nodes[at].server {
        server.engine.begin(now);
    }
    peers::know(world, &known);
    if let Some(what) = world.nodes[at].distrusted.clone() {
        handle(world, Event::StateCorrupt(CorruptState { finding: Finding::NotedByEarlierProcess, what }))?;
    }
    if let Some(what) = world.nodes[at].server.as_mut().and_then(|server| server.log.damaged.take()) {
        handle(world, Event::LogDamaged(what))?;
    }
    if world.nodes[at].is_scarce {
        handle(world, Event::Scarce(true))?;
    }
    Ok(())
}

pub(crate) fn turn(world: &mut World) -> Checked {
    let Some(server) = &mut world.nodes[world.at].server else { return Ok(()) };
    server.turn_planned = false;
    let life = world.nodes[world.at].life;
    for _ in 0..MAILBOX_BATCH {
        let Some(server) = running(world, life) else { return Ok(()) };
        let Some(event) = server.inbox.pop_front() else { break };
        receive(world, event)?;
        if running(world, life).is_some_and(|server| server.engine.needs_turn()) {
            break;
        }
    }
    turn_engine(world)?;
    if running(world, life).is_some_and(|server| !server.inbox.is_empty()) {
        world.plan_turn();
    }
    Ok(())
}

pub(crate) fn wake(world: &mut World, at: Micros) -> Checked {
    let life = world.nodes[world.at].life;
    let due = running(world, life).is_some_and(|server| server.wake_at.take_if(|planned| *planned == at).is_some());
    if due { turn_engine(world) } else { Ok(()) }
}

/// The server, if this process of its still runs.
fn running(world: &mut World, life: u32) -> Option<&mut Server> {
    let node = &mut world.nodes[world.at];
    node.server.as_deref_mut().filter(|_| node.life == life)
}

/// Takes an event from the mailbox, as it was sent or as a bug makes it.
fn receive(world: &mut World, mut event: Event) -> Checked {
    let unproven = match &event {
        Event::Requests(_, requests) => sessions::unproven(&world.check, &requests.proposals),
        Event::Peer(_, PeerEvent::Frame { frame, .. }) if frame.kind == Kind::Forward => {
            match PeerMessage::decode(&frame.payload) {
                // The first message of a stream may move every deadline.
                Ok(PeerMessage::Forward(forward)) if forward.sequence > 0 => {
                    sessions::unproven(&world.check, &forward.proposals)
                }
                _ => Vec::new(),
            }
        }
        _ => Vec::new(),
    };
    let before = dues(world, &unproven);
    if let Event::Requests(shard, requests) = &mut event {
        if world.options.bug == Some(Bug::StaleSync) && !requests.syncs.is_empty() {
            let (at, stale) = (usize::from(shard.0), ShardMessage::Synced(std::mem::take(&mut requests.syncs)));
            world.mail(Channel::ConsensusToShard(at), Inner::ToShard(at, stale));
        }
        if world.options.bug == Some(Bug::HearAnybody) {
            let (now, upto) = (world.clock(), Default::default());
            let sessions = unproven.iter().map(|session| (*session, now)).collect();
            handle(world, Event::SessionActivity(*shard, SessionActivity { upto, sessions }))?;
        }
    }
    handle(world, event)?;
    sessions::no_deadline_moved(&before, &dues(world, &unproven))
}

/// When each of these sessions ends, as far as this server, which may lead, keeps its deadline.
fn dues(world: &World, sessions: &[SessionId]) -> Vec<(SessionId, Option<Millis>)> {
    let Some(server) = &world.nodes[world.at].server else { return Vec::new() };
    let sequencer = server.engine.sequencer();
    sessions.iter().map(|session| (*session, sequencer.session_due(*session))).collect()
}

fn handle(world: &mut World, event: Event) -> Checked {
    let now = world.engine_time();
    handle_at(world, now, event)
}

fn handle_at(world: &mut World, now: Now, event: Event) -> Checked {
    if let Some(server) = &mut world.nodes[world.at].server {
        server.engine.handle(now, event);
    }
    carry_out_effects(world)
}

pub(crate) fn tick(world: &mut World) -> Checked {
    let every = if world.options.ensemble.is_some() { TICK } else { TICK_ALONE };
    let wait = every + world.schedule.delay(every / 50);
    world.inside_after(wait, Inner::Tick);
    let mut now = world.engine_time();
    world.wall_latest = world.wall_latest.max(now.wall);
    match world.options.bug {
        Some(Bug::ExpireEarly) => now.micros = now.micros.plus(Micros(2_000_000)),
        Some(Bug::ReapEarly) => now.wall = WallMillis(now.wall.0 + 3_600_000),
        _ => {}
    }
    handle_at(world, now, Event::Tick)?;
    judges::tick(world)?;
    turn_engine(world)
}

fn turn_engine(world: &mut World) -> Checked {
    let life = world.nodes[world.at].life;
    loop {
        let now = world.engine_time();
        let electors = judges::electors(world)?;
        let Some(server) = running(world, life) else { return Ok(()) };
        let applied = server.shards.iter().map(|side| side.taken).min().unwrap_or(u64::MAX);
        let turned = server.engine.turn(now, applied);
        judges::turn(world, electors)?;
        carry_out_effects(world)?;
        if let Turned::Done(wake_at) = turned {
            if let Some(at) = wake_at
                && let Some(server) = running(world, life)
                && server.wake_at.is_none_or(|planned| at < planned)
            {
                server.wake_at = Some(at);
                world.inside_after(at.since(now.micros).0, Inner::Wake(at));
            }
            judges::end_of_turn(world);
            return Ok(());
        }
    }
}

fn carry_out_effects(world: &mut World) -> Checked {
    let life = world.nodes[world.at].life;
    let mut effects = Vec::new();
    loop {
        let Some(server) = running(world, life) else { return Ok(()) };
        server.engine.take_effects(&mut effects);
        if effects.is_empty() {
            return Ok(());
        }
        for effect in effects.drain(..) {
            if running(world, life).is_none() {
                return Ok(());
            }
            carry_out(world, effect)?;
        }
    }
}

fn carry_out(world: &mut World, effect: Effect) -> Checked {
    match effect {
        Effect::Shards(message) => send_to_shards(world, &message),
        Effect::Shard(shard, message) => {
            if let ShardMessage::Refused(conns) = &message {
                world.counts.refused += conns.len() as u64;
            }
            let shard = usize::from(shard.0);
            world.mail(Channel::ConsensusToShard(shard), Inner::ToShard(shard, message));
        }
        Effect::Log(message) => {
            if let ToLog::Append(append) = &message {
                members::appended(&mut world.check, &append.entries)?;
            }
            if matches!(message, ToLog::Reset(next) if next == BOOTSTRAP_INDEX.0 + 1) {
                world.counts.founders += 1;
                // All others have said that they hold nothing that was committed.
                elections::healed(&mut world.check, world.at);
                world.note(format_args!("server {} is a founder", world.at + 1));
            }
            world.mail(Channel::ConsensusToLog, Inner::ToLog(message));
        }
        Effect::WriteSnapshot(frozen) => {
            world.note(format_args!("snapshot of {} begins", frozen.zxid));
            world.mail(Channel::ConsensusToWriter, Inner::ToWriter(frozen));
        }
        Effect::Installed { zxid, index } => {
            disk_threads::purge(world, (zxid, index));
            if world.options.bug == Some(Bug::RepairReplacesLog) {
                return replace_log(world, index);
            }
        }
        Effect::Replaced { .. } | Effect::Drop(_) => {}
        Effect::Receive(receive) => world.mail(Channel::ConsensusToReceiver, Inner::ToReceiver(receive)),
        Effect::NoteStateCorrupt(reason) => {
            if reason.is_some() {
                world.note(format_args!("server {} notes that its state is wrong", world.at + 1));
            }
            world.nodes[world.at].is_healing &= reason.is_some();
            world.nodes[world.at].distrusted = reason;
        }
        Effect::Scrub => world.inside_after(0, Inner::Scrub),
        Effect::Peers(command) => return carry_out_for_peers(world, command),
        Effect::End(Ended::Stopped) => ending::stopped(world),
        Effect::End(Ended::Damaged(reason)) => {
            world.note(format_args!("server {} ends: {reason}", world.at + 1));
            ending::crash(world, false);
        }
        Effect::End(Ended::NotABatch { index }) => {
            return Err(Violation::of("recovery", format!("committed entry {index} is no batch")));
        }
    }
    Ok(())
}

fn carry_out_for_peers(world: &mut World, command: ToPeers) -> Checked {
    match command {
        ToPeers::Send { peer, stream, kind, payload, announces_snapshot } => {
            let report = peers::send(world, peer, stream, Frame { kind, payload }, announces_snapshot)?;
            return report.map_or(Ok(()), |report| handle(world, Event::Peer(peer, report)));
        }
        ToPeers::Close { peer, .. } => {
            let what = format!("server {} does not understand server {peer}", world.at + 1);
            return Err(Violation::of("peers", what));
        }
        ToPeers::Connect(servers) => peers::know(world, &servers),
        // All data here are of the first generation.
        ToPeers::Adopt(_) | ToPeers::Flush => {}
        ToPeers::Moved(moved) => {
            if let Some((_, port)) = moved.peers {
                list::listen(world, port);
            }
            if moved.list.is_some() {
                world.nodes[world.at].remembered = moved.list;
            }
        }
    }
    Ok(())
}

/// With [`Bug::RepairReplacesLog`]: the log ends where the installed snapshot ends, and the process with it.
fn replace_log(world: &mut World, index: u64) -> Checked {
    let Some(server) = world.nodes[world.at].server.as_mut().filter(|server| server.log.log.last_index() > index)
    else {
        return Ok(());
    };
    server.log.log.reset_to(index + 1).map_err(|error| Violation::of("recovery", error.to_string()))?;
    ending::crash(world, false);
    Ok(())
}

fn send_to_shards(world: &mut World, message: &ShardMessage) {
    match message {
        ShardMessage::Batch(batch) => {
            for txn in &batch.txns {
                let is_new_list =
                    matches!(&txn.outcome, Outcome::Later(answer) if matches!(**answer, Outcome::Configured(_)));
                world.counts.lists += u64::from(is_new_list);
                world.note(format_args!("{} {:?}", txn.zxid, txn.outcome));
            }
        }
        ShardMessage::Flow(note) => {
            world.note(format_args!("server {} tells its shards {note:?}", world.at + 1));
            if let (Some(server), Flow::Pause | Flow::Resume) = (&mut world.nodes[world.at].server, note) {
                server.flows = matches!(note, Flow::Resume);
            }
        }
        ShardMessage::Install(view, _) => {
            world.counts.installs += 1;
            world.note(format_args!("the snapshot of {} is installed", view.zxid()));
        }
        _ => {}
    }
    for shard in 0..usize::from(world.options.shards) {
        world.mail(Channel::ConsensusToShard(shard), Inner::ToShard(shard, message.clone()));
    }
}
