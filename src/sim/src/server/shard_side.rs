//! Drives the shards: messages, sockets, turns.

use corral_core::apply::outcome::{AppliedBatch, SessionChange};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use corral_core::ids::{ConnId, ShardId};
use corral_core::shard::ShardMessage;
use corral_core::shard::conn::Close;
use corral_core::tree::change::Change;
use corral_engine::Event;

use super::{Inner, ShardSide};
use crate::link::address;
use crate::model::LinkId;
use crate::options::Bug;
use crate::shard_driver::{ShardDriver, ShardEffect};
use crate::violation::Checked;
use crate::world::{self, Channel, World};

impl World {
    pub(crate) fn side(&mut self, shard: usize) -> Option<&mut ShardSide> {
        self.nodes[self.at].server.as_mut().map(|server| &mut server.shards[shard])
    }

    /// Puts an event off if the shard is paused, or gives it back.
    pub(super) fn defer(&mut self, shard: usize, event: world::Event) -> Option<world::Event> {
        let Some(deferred) = self.side(shard).and_then(|side| side.deferred.as_mut()) else { return Some(event) };
        deferred.push_back(event);
        None
    }

    pub(crate) fn pause_shard(&mut self, shard: usize, time: u64) {
        let Some(side) = self.side(shard) else { return };
        if side.deferred.is_none() {
            side.deferred = Some(VecDeque::new());
            self.inside_after(time, Inner::Resume(shard));
            self.note(format_args!("shard {shard} stalls"));
        }
    }

    pub(super) fn resume_shard(&mut self, shard: usize) -> Checked {
        let deferred = self.side(shard).and_then(|side| side.deferred.take());
        let life = self.nodes[self.at].life;
        for event in deferred.into_iter().flatten() {
            if self.nodes[self.at].life != life || self.nodes[self.at].server.is_none() {
                break;
            }
            self.handle(event)?;
        }
        Ok(())
    }

    /// One call of the shard and everything it asks for.
    fn with_shard(&mut self, shard: usize, call: impl FnOnce(&mut ShardDriver)) {
        if let Some(side) = self.side(shard) {
            call(&mut side.shard);
        }
        self.carry_out(shard);
    }

    fn carry_out(&mut self, shard: usize) {
        while let Some(effect) = self.side(shard).and_then(|side| side.shard.next_effect()) {
            self.do_for_shard(shard, effect);
        }
        let Some(side) = self.side(shard) else { return };
        if side.shard.needs_turn() && !std::mem::replace(&mut side.turn_planned, true) {
            self.inside_soon(100, Inner::ShardTurn(shard));
        }
    }

    fn do_for_shard(&mut self, shard: usize, effect: ShardEffect) {
        let now = self.clock();
        let Some(side) = self.side(shard) else { return };
        let link = |conn: ConnId| side.links.get(&conn).copied();
        let event = match effect {
            ShardEffect::Question(question) => {
                let (conn, text) = (question.conn, "not served\n".to_owned());
                return side.shard.take(now, ShardMessage::FourLetterAnswered { conn, text });
            }
            ShardEffect::Dirty(conn) => return link(conn).into_iter().for_each(|link| self.flush(link, shard)),
            ShardEffect::Resumed(conn) => {
                return link(conn).into_iter().for_each(|link| self.inside_soon(50, Inner::Readable(link)));
            }
            ShardEffect::Closed(conn, why) => {
                let Some(link) = side.links.remove(&conn) else { return };
                self.counts.uncertain += u64::from(why == Close::Uncertain);
                self.note(format_args!("link {} closed by the server: {why}", link.0));
                return self.close_at_server(link);
            }
            ShardEffect::Applied => return self.applied(shard),
            ShardEffect::Requests(requests) => Event::Requests(shard_id(shard), requests),
            ShardEffect::Activity(activity) => Event::SessionActivity(shard_id(shard), activity),
            ShardEffect::Drained => Event::Drained,
        };
        self.mail(Channel::ShardToConsensus(shard), Inner::ToConsensus(event));
    }

    /// A shard's turn ends.
    pub(super) fn shard_turn(&mut self, shard: usize) {
        if let Some(side) = self.side(shard) {
            side.turn_planned = false;
        }
        let now = self.clock();
        self.with_shard(shard, |shard| shard.turn(now));
    }

    fn flush(&mut self, link: LinkId, shard: usize) {
        let now = self.clock();
        let Some(id) = self.links[link.0].conn else { return };
        let room = self.links[link.0].window.saturating_sub(self.links[link.0].in_flight);
        let Some(side) = self.nodes[self.at].server.as_mut().map(|server| &mut server.shards[shard]) else { return };
        let unsent = side.shard.unsent(id);
        if unsent.is_empty() {
            return;
        }
        let short = self.schedule.per_mille(50);
        let count = if short { self.schedule.index(unsent.len()) + 1 } else { unsent.len() }.min(room);
        if count == 0 {
            self.links[link.0].writing = true;
            return;
        }
        let rest = side.shard.unsent_bytes(id) - count;
        let bytes = side.shard.send(now, id, count);
        self.links[link.0].in_flight += count;
        self.send_over_network(Channel::ToClient(link), world::Event::ToClient(link, bytes));
        self.links[link.0].writing = rest > 0;
        if rest > 0 && room > count {
            let wait = self.schedule.delay(200);
            self.after(wait, world::Event::Writable(link));
        }
    }

    pub(crate) fn writable(&mut self, link: LinkId) {
        let shard = self.links[link.0].shard;
        if !self.links[link.0].writing || self.links[link.0].conn.is_none() {
            return;
        }
        let Some(_) = self.defer(shard, world::Event::Writable(link)) else { return };
        self.flush(link, shard);
        self.carry_out(shard);
    }

    pub(crate) fn arrive(&mut self, link: LinkId) {
        let shard = self.links[link.0].shard;
        if self.nodes[self.at].server.is_none() || self.links[link.0].client_gone {
            self.close_at_server(link);
            return;
        }
        let Some(_) = self.defer(shard, world::Event::Arrive(link)) else { return };
        let (now, peer) = (self.clock(), SocketAddr::from((address(self.links[link.0].client), 1000)));
        let entropy = self.workload.bytes();
        let life = self.nodes[self.at].life;
        let Some(side) = self.side(shard) else { return };
        let Some(id) = side.shard.accept(now, peer, entropy) else { return self.close_at_server(link) };
        side.links.insert(id, link);
        let incarnation = side.shard.config().incarnation;
        self.links[link.0].conn = Some(id);
        self.links[link.0].life = life;
        self.check.accepted(link, shard_id(shard), id, incarnation);
    }

    /// Bytes come to a socket; the actor gets all that wait, unless it wants nothing read.
    pub(crate) fn at_server(&mut self, link: LinkId, bytes: Vec<u8>) {
        let shard = self.links[link.0].shard;
        let Some(id) = self.links[link.0].conn.filter(|_| self.links[link.0].life == self.nodes[self.at].life) else {
            return;
        };
        let stalled = self.side(shard).is_none_or(|side| side.shard.is_stalled(id));
        if !stalled && !bytes.is_empty() {
            self.sign_of_life(link);
        }
        let event = self.defer(shard, world::Event::ToServer(link, bytes));
        let Some(world::Event::ToServer(_, bytes)) = event else { return };
        self.links[link.0].unread.extend(bytes);
        if stalled {
            return;
        }
        let unread = std::mem::take(&mut self.links[link.0].unread);
        let now = self.clock();
        if !unread.is_empty() {
            self.sign_of_life(link);
            let sides = self.nodes[self.at].server.iter().flat_map(|server| &server.shards);
            let applied = sides.map(|side| side.shard.view().zxid()).max().unwrap_or_default();
            self.with_shard(shard, |shard| shard.receive(now, id, &unread, applied));
        }
        let at_end = self.links[link.0].ended_by_client && self.links[link.0].conn == Some(id);
        if at_end && self.side(shard).is_some_and(|side| !side.shard.is_stalled(id)) {
            self.with_shard(shard, |shard| shard.hang_up(now, id));
        }
    }

    pub(crate) fn end_at_server(&mut self, link: LinkId) {
        let shard = self.links[link.0].shard;
        let Some(_) = self.defer(shard, world::Event::EndToServer(link)) else { return };
        self.links[link.0].ended_by_client = true;
        self.at_server(link, Vec::new());
    }

    pub(super) fn shard_message(&mut self, shard: usize, message: ShardMessage) {
        let message = match message {
            ShardMessage::Batch(batch) => self.shard_batch(shard, batch),
            message => Some(message),
        };
        let now = self.clock();
        if let Some(message) = message {
            self.with_shard(shard, |shard| shard.take(now, message));
        }
    }

    /// Bytes reached a server that wants to read them: its session lives, as far as the leader can hear of that.
    fn sign_of_life(&mut self, link: LinkId) {
        if self.nodes[self.at].unsure_until <= self.now && self.reaches_leader() {
            self.check.sign_of_life(link, self.time());
        }
    }

    /// The batch as a bug has it, or none.
    fn shard_batch(&mut self, shard: usize, mut batch: Arc<AppliedBatch>) -> Option<ShardMessage> {
        let plain = |change: &Change| matches!(change, Change::DataSet { .. });
        let only_data = batch.txns.iter().all(|txn| txn.changes.iter().all(plain) && txn.session.is_none());
        let foreign = batch.txns.iter().all(|txn| txn.origin.is_none_or(|at| usize::from(at.shard.0) != shard));
        let some = batch.txns.iter().any(|txn| !txn.changes.is_empty());
        if some && only_data && foreign && self.bug(Bug::MissBatch, 200) {
            if let Some(side) = self.side(shard) {
                side.taken += 1;
            }
            return None;
        }
        let ends = |change: Option<SessionChange>| matches!(change, Some(SessionChange::Closed(_)));
        let with_ephemerals = batch.txns.iter().any(|txn| ends(txn.session) && !txn.changes.is_empty());
        if with_ephemerals && self.bug(Bug::KeepEphemerals, 300) {
            let maimed = Arc::make_mut(&mut batch).txns.iter_mut();
            maimed.filter(|txn| ends(txn.session)).for_each(|txn| txn.changes.clear());
        } else if self.options.bug == Some(Bug::ForgetUsage) {
            let is_usage = |change: &Change| matches!(change, Change::Quiet { at, .. } if at.path.starts_with("/zookeeper/quota/"));
            for txn in &mut Arc::make_mut(&mut batch).txns {
                txn.changes.retain(|change| !is_usage(change));
            }
        }
        if let Some(side) = self.side(shard) {
            side.batches.push_back(Arc::clone(&batch));
        }
        Some(ShardMessage::Batch(batch))
    }

    /// The shard has applied the oldest of its batches.
    fn applied(&mut self, shard: usize) {
        let Some(side) = self.side(shard) else { return };
        side.taken += 1;
        let Some(batch) = side.batches.pop_front() else { return };
        let some = batch.txns.iter().any(|txn| !txn.changes.is_empty());
        if some && self.bug(Bug::ApplyTwice, 50) {
            let now = self.clock();
            // It is at most behind another one.
            self.with_shard(shard, |shard| shard.take(now, ShardMessage::Batch(batch)));
        }
    }

    pub(super) fn shard_tick(&mut self, shard: usize) {
        let now = self.clock();
        self.with_shard(shard, |shard| shard.tick(now));
        let wait = 200_000 + self.schedule.delay(1_000);
        self.inside_after(wait, Inner::ShardTick(shard));
    }

    /// The server's end closes; what it sent before still arrives.
    pub(crate) fn close_at_server(&mut self, link: LinkId) {
        self.links[link.0].conn = None;
        if !std::mem::replace(&mut self.links[link.0].server_gone, true) {
            self.send_over_network(Channel::ToClient(link), world::Event::EndToClient(link));
        }
    }
}

fn shard_id(shard: usize) -> ShardId {
    ShardId(u16::try_from(shard).expect("few shards"))
}
