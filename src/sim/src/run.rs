//! The course of a run: busy with faults, healing, a last crash, fading. One thread, one seed.
//!
//! Messages between actors arrive late but in order. Checkers look on from outside: at bytes that reach clients, and at log entries that
//! some server found committed.

use crate::check::{sessions, writes};
use crate::limits::{EVENTS_MAX, HEAL_MS_MAX};
use crate::server::{dialing, emptying, ending, judges, list, peers};
use crate::servers::is_member;
use crate::violation::{Checked, Violation};
use crate::world::client::Client;
use crate::world::event::Event;
use crate::world::server::Server;
use crate::world::{Stage, World};
use crate::{client, dispatch, faults, log_lines};

/// Longer than any pause or delay: after it nothing is under way.
const REST: u64 = 6_000_000;

/// Runs to the end: busy, healing, a last crash, fading.
///
/// # Errors
/// The first property that did not hold.
pub(crate) fn run(world: &mut World) -> Checked {
    plan_first(world);
    let busy = world.options.busy_ms * 1000;
    run_until(world, busy)?;
    heal(world)?;
    judges::compare_everywhere(world)?;
    for node in 0..world.nodes.len() {
        world.at = node;
        ending::crash(world, true);
    }
    run_while(world, "a server does not come back", |world| !is_whole(world))?;
    judges::compare_everywhere(world)?;
    fade(world)?;
    judges::compare_everywhere(world)
}

/// The first events: servers start, clients act, and a fault strikes.
fn plan_first(world: &mut World) {
    for client in 0..world.options.clients {
        let wait = world.workload.below(50_000);
        world.after(wait, Event::Act(client));
    }
    for node in 0..world.nodes.len() {
        world.after(0, Event::Start(node));
    }
    faults::plan(world);
}

/// Whether every server runs and, in an ensemble, votes and shows everything that was ever committed.
fn is_whole(world: &World) -> bool {
    let newest = world.check.model.zxid;
    let shows_all = |server: &Server| {
        let machine = server.engine.sequencer().view().zxid().0;
        machine == newest && server.shards.iter().all(|side| side.shard.view().zxid().0 == newest)
    };
    let alone = world.nodes.len() == 1;
    let listed = list::wanted(world);
    world.emptied.is_none()
        && (0..world.nodes.len()).filter(|at| is_member(listed.as_ref(), *at)).all(|at| {
            let server = world.nodes[at].server.as_deref();
            server.is_some_and(|server| alone || shows_all(server))
        })
        && emptying::all_vote(world)
}

fn run_until(world: &mut World, end: u64) -> Checked {
    while world.queue.first_key_value().is_some_and(|((at, _), _)| *at <= end) {
        step(world)?;
    }
    world.now = world.now.max(end);
    Ok(())
}

/// Runs until nothing is under way.
fn rest(world: &mut World) -> Checked {
    let end = world.now + REST;
    run_until(world, end)
}

/// Runs as long as the condition holds, which must not be for ever.
fn run_while(world: &mut World, complaint: &'static str, pending: impl Fn(&World) -> bool) -> Checked {
    let end = world.now + HEAL_MS_MAX * 1000;
    while pending(world) {
        if world.now > end || world.queue.is_empty() {
            note_servers(world);
            return Err(Violation::of("liveness", complaint));
        }
        step(world)?;
    }
    Ok(())
}

/// How each server stands, for the reader of a trace of a world that does not go on.
fn note_servers(world: &mut World) {
    for at in 0..world.nodes.len() {
        let state = match world.nodes[at].server.as_deref() {
            None => "is down".to_owned(),
            Some(Server { engine, .. }) => {
                let (replica, raft, status) = (engine.replica(), engine.raft(), engine.status());
                let (role, term, leader) = (raft.role(), raft.term(), raft.leader());
                let (last, committed, applied) = (raft.last_index(), raft.commit(), replica.applied());
                let (uninitialised, distrusted) = (raft.is_uninitialised(), replica.is_state_corrupt());
                format!(
                    "{role:?} of term {term} under {leader:?}, log to {last}, committed {committed}, applied {applied}, \
                     uninitialised {uninitialised}, distrusted {distrusted}, {status:?}, members {:?}",
                    raft.membership(),
                )
            }
        };
        world.note(format_args!("server {}: {state}", at + 1));
    }
}

/// No more faults: the server runs, every client gets a session and answers, and its last ping brings every event.
fn heal(world: &mut World) -> Checked {
    world.stage = Stage::Healing;
    world.note(format_args!("healing"));
    for node in &mut world.nodes {
        node.disk.limit_space(None);
        node.disk_slow = false;
    }
    (0..world.nodes.len()).for_each(|at| faults::set_scarce(world, at, false));
    peers::mend_wires(world);
    dialing::mend_files(world);
    let goal: Vec<u64> = world.clients.iter().map(|client| client.healthy_replies + 5).collect();
    let waits = |(client, goal): (&Client, &u64)| client.healthy_replies < *goal;
    let pending = |world: &World| world.clients.iter().zip(&goal).any(waits);
    run_while(world, "a client gets no answers from a healthy server", pending)?;
    world.clients.iter_mut().for_each(|client| client.last_words = true);
    let pending = |world: &World| world.clients.iter().any(|client| !client.last_words_answered);
    run_while(world, "a client's last requests are not answered", pending)?;
    rest(world)?;
    run_while(world, "a server does not catch up", |world| !is_whole(world))
}

/// Clients leave without a word: every session must expire and take its ephemerals along.
fn fade(world: &mut World) -> Checked {
    world.stage = Stage::Fading;
    world.note(format_args!("fading"));
    for client in 0..world.clients.len() {
        client::cut(world, client, true);
    }
    run_while(world, "a silent session does not expire", |world| !world.check.model.sessions.is_empty())?;
    let outlived = |world: &World| writes::something_is_outlived(&world.check, world.wall());
    run_while(world, "an outlived container or TTL node stays", outlived)?;
    rest(world)?;
    run_while(world, "a server does not catch up", |world| !is_whole(world))?;
    sessions::no_ephemerals(&world.check)
}

fn step(world: &mut World) -> Checked {
    let Some(((at, _), event)) = world.queue.pop_first() else { return Ok(()) };
    if world.planned > EVENTS_MAX {
        return Err(Violation::of("liveness", "the run does not come to an end"));
    }
    world.now = world.now.max(at);
    // The server that it concerns, and whether its process has to run for that.
    let (at, of_process) = match &event {
        Event::Arrive(link) | Event::ToServer(link, _) | Event::EndToServer(link) | Event::Writable(link) => {
            (world.links[link.0].server, true)
        }
        Event::Inside(node, ..) => (*node, true),
        Event::Start(node)
        | Event::Space(node)
        | Event::FastDisk(node)
        | Event::EndScarcity(node)
        | Event::Thaw(node) => (*node, false),
        _ => (world.at, false),
    };
    world.at = at;
    match &mut world.nodes[world.at].frozen {
        Some(frozen) if of_process => {
            frozen.push_back(event);
            Ok(())
        }
        _ => {
            let handled = dispatch::handle(world, event);
            for line in log_lines::take() {
                world.note(format_args!("server {} {line}", at + 1));
            }
            handled
        }
    }
}
