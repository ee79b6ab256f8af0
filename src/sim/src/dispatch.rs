//! The dispatch of events: each goes to the driver that handles it. An event that reaches a process waits while the process is
//! stopped, or while its shard is.

use crate::server::{consensus, dialing, disk_threads, ending, peers, receiving, shard_side, spoiled, starting};
use crate::violation::Checked;
use crate::world::World;
use crate::world::event::{Event, Inner};
use crate::{client, faults};

/// Handles an event of the server at [`World::at`], or of none.
pub(crate) fn handle(world: &mut World, event: Event) -> Checked {
    match event {
        Event::Act(client) => client::act(world, client),
        Event::ReadAgain(client) => return client::read_again(world, client),
        Event::Arrive(link) => shard_side::arrive(world, link),
        Event::ToServer(link, bytes) => shard_side::at_server(world, link, bytes),
        Event::EndToServer(link) => shard_side::end_at_server(world, link),
        Event::ToClient(link, bytes) => return client::at_client(world, link, &bytes),
        Event::EndToClient(link) => client::end_at_client(world, link),
        Event::Writable(link) => shard_side::writable(world, link),
        Event::Inside(_, life, inner) => {
            let node = &world.nodes[world.at];
            return if life == node.life && node.server.is_some() { inside(world, inner) } else { Ok(()) };
        }
        Event::Fault => return faults::next(world),
        Event::Start(_) => return starting::start(world),
        Event::Space(_) => world.nodes[world.at].disk.limit_space(None),
        Event::FastDisk(_) => world.nodes[world.at].disk_slow = false,
        Event::EndScarcity(node) => faults::set_scarce(world, node, false),
        Event::Dial { from, to, life } => dialing::dial(world, from, to, life),
        Event::Frame { from, to, number, frame } => peers::frame_comes(world, from, to, number, frame),
        Event::EndCut { from, to, since } => peers::heal_wire(world, from, to, since),
        Event::Thaw(node) => {
            thaw(world)?;
            peers::review_sureness(world, node);
        }
    }
    Ok(())
}

/// A stopped process continues with the events that came meanwhile.
fn thaw(world: &mut World) -> Checked {
    let at = world.at;
    for event in world.nodes[at].frozen.take().into_iter().flatten() {
        world.at = at;
        handle(world, event)?;
    }
    Ok(())
}

fn inside(world: &mut World, mut inner: Inner) -> Checked {
    if let Inner::ToShard(shard, _) | Inner::ShardTurn(shard) | Inner::ShardTick(shard) = inner {
        let event = Event::Inside(world.at, world.nodes[world.at].life, inner);
        let Some(Event::Inside(_, _, back)) = shard_side::defer(world, shard, event) else { return Ok(()) };
        inner = back;
    }
    match inner {
        Inner::ToShard(shard, message) => shard_side::message(world, shard, message),
        Inner::ShardTurn(shard) => shard_side::turn(world, shard),
        Inner::ShardTick(shard) => shard_side::tick(world, shard),
        Inner::Resume(shard) => return resume_shard(world, shard),
        Inner::Readable(link) => shard_side::at_server(world, link, Vec::new()),
        Inner::ToConsensus(event) => world.put_in_mailbox(event),
        Inner::Turn => return consensus::turn(world),
        Inner::Wake(at) => return consensus::wake(world, at),
        Inner::Tick => return consensus::tick(world),
        Inner::ToLog(message) => disk_threads::log_message(world, message),
        Inner::LogTurn => disk_threads::log_turn(world),
        Inner::LogSync(number) => disk_threads::log_sync(world, number),
        Inner::LogIdle(appends) => disk_threads::log_idle(world, appends),
        Inner::ToWriter(state) => disk_threads::writer_message(world, state),
        Inner::WriterBegins => return disk_threads::writer_begins(world),
        Inner::WriterEnds => return disk_threads::writer_ends(world),
        Inner::Scrub => spoiled::scrub(world),
        Inner::ToReceiver(receive) => receiving::receive(world, receive),
        Inner::Die => {
            let power = world.faults.per_mille(500);
            ending::crash(world, power);
        }
    }
    Ok(())
}

/// A paused shard continues with the events that came meanwhile.
fn resume_shard(world: &mut World, shard: usize) -> Checked {
    let deferred = shard_side::side(world, shard).and_then(|side| side.deferred.take());
    let life = world.nodes[world.at].life;
    for event in deferred.into_iter().flatten() {
        if world.nodes[world.at].life != life || world.nodes[world.at].server.is_none() {
            break;
        }
        handle(world, event)?;
    }
    Ok(())
}
