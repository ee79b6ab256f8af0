//! Drives the shards: messages, sockets, turns.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use corral_core::change::{AppliedBatch, Change, SessionChange};
use corral_core::conn::Close;
use corral_core::coordinator::Flow;
use corral_core::ids::{ConnId, Millis, ShardId};
use corral_core::shard::{Outputs, Shard};
use corral_core::view::View;
use corral_engine::{Answer, Event, ToShards};

use super::{Inner, ShardSide, ToShard};
use crate::client::address;
use crate::limits::PROPOSAL_BYTES_MAX;
use crate::model::LinkId;
use crate::options::Bug;
use crate::violation::Checked;
use crate::world::{self, Channel, World};

impl ToShard {
    /// The shard takes the message, and a batch as a whole.
    pub(crate) fn reaches(self, shard: &mut Shard, now: Millis, out: &mut Outputs) {
        match self {
            ToShard::Engine(ToShards::Batch(batch)) => shard.apply(now, &batch, out),
            ToShard::Engine(ToShards::Adopt(delta)) => shard.adopt_frozen(delta, out),
            ToShard::Engine(ToShards::Swap(snapshot)) => shard.swap_snapshot(snapshot, out),
            ToShard::Engine(ToShards::Install(view, alive)) => shard.install(View::clone(&view), alive, out),
            ToShard::Engine(ToShards::Flow(flow)) => match flow {
                Flow::Pause => shard.pause_proposals(now),
                Flow::Resume => shard.resume_proposals(now, out),
                Flow::Uncertain { generation, unsent_too } => shard.uncertain(now, generation, unsent_too, out),
                Flow::Leaderless => shard.leaderless(now, out),
                Flow::Distrusted => shard.distrust(now, out),
            },
            ToShard::Engine(ToShards::Growth(refuses)) => shard.refuse_growth(refuses),
            ToShard::Engine(ToShards::Drain) => shard.drain(now, out),
            ToShard::Answered(Answer::Synced, list) => list.iter().for_each(|id| shard.synced(now, *id, out)),
            ToShard::Answered(Answer::SyncRefused, list) => list.iter().for_each(|id| shard.hung_up(*id, out)),
            ToShard::Answered(Answer::Refused, list) => shard.refuse(now, list, out),
        }
    }
}

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

    /// One call of the actor and everything it asks for.
    fn with_shard(&mut self, shard: usize, call: impl FnOnce(&mut Shard, &mut Outputs)) {
        if let Some(side) = self.side(shard) {
            call(&mut side.shard, &mut side.out);
        }
        self.carry_out(shard);
    }

    fn carry_out(&mut self, shard: usize) {
        loop {
            let now = self.clock();
            let Some(side) = self.side(shard) else { return };
            let out = std::mem::take(&mut side.out);
            if out.is_empty() {
                break;
            }
            for question in out.questions {
                side.shard.answer_four_letter(now, question.conn, b"not served\n".to_vec(), &mut side.out);
            }
            side.syncs.extend(out.syncs);
            let links = |ids: &[ConnId]| ids.iter().filter_map(|id| side.links.get(id).copied()).collect::<Vec<_>>();
            let (dirty, resumed) = (links(&out.dirty), links(&out.resumed));
            let closed: Vec<(LinkId, _)> =
                out.closed.iter().filter_map(|(id, why)| Some((side.links.remove(id)?, *why))).collect();
            for link in dirty {
                self.flush(link, shard);
            }
            for link in resumed {
                self.inside_soon(50, Inner::Readable(link));
            }
            for (link, why) in closed {
                self.counts.uncertain += u64::from(why == Close::Uncertain);
                self.note(format_args!("link {} closed by the server: {why}", link.0));
                self.close_at_server(link);
            }
        }
        self.plan_pump(shard);
        self.plan_shard_turn(shard);
    }

    fn plan_shard_turn(&mut self, shard: usize) {
        let Some(side) = self.side(shard) else { return };
        let has_more = side.shard.is_walking() || side.unfinished.is_some();
        if has_more && !std::mem::replace(&mut side.turn_planned, true) {
            self.inside_soon(50, Inner::ShardTurn(shard));
        }
    }

    /// The next transactions of a batch, the messages behind it, and a piece of what else takes several turns.
    pub(super) fn shard_turn(&mut self, shard: usize) {
        if let Some(side) = self.side(shard) {
            side.turn_planned = false;
        }
        self.go_on_with_the_batch(shard);
        while let Some(message) =
            self.side(shard).filter(|side| side.unfinished.is_none()).and_then(|side| side.waiting.pop_front())
        {
            self.take_message(shard, message);
        }
        let now = self.clock();
        if self.side(shard).is_some_and(|side| side.shard.is_walking()) {
            self.with_shard(shard, |shard, out| shard.walk_on(now, out));
        }
        self.plan_shard_turn(shard);
    }

    /// Applies a turn's worth of the batch that is being applied. No message is taken before it is applied whole.
    fn go_on_with_the_batch(&mut self, shard: usize) {
        let now = self.clock();
        let Some((batch, from)) = self.side(shard).and_then(|side| side.unfinished.take()) else { return };
        let Some(side) = self.side(shard) else { return };
        let next = side.shard.apply_some(now, &batch, from, &mut side.out);
        if next < batch.txns.len() {
            side.unfinished = Some((batch, next));
        } else {
            side.taken += 1;
            let some = batch.txns.iter().any(|txn| !txn.changes.is_empty());
            if some && self.bug(Bug::ApplyTwice, 50) {
                self.with_shard(shard, |shard, out| shard.apply(now, &batch, out));
            }
        }
        self.carry_out(shard);
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
        let bytes = unsent[..count].to_vec();
        let rest = side.shard.unsent_bytes(id) - count;
        side.shard.sent(now, id, count, &mut side.out);
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
        if side.draining {
            self.close_at_server(link);
            return;
        }
        let id = side.shard.accepted(now, peer, entropy);
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
            self.with_shard(shard, |shard, out| {
                shard.observe(applied);
                shard.received(now, id, &unread, out);
            });
        }
        let at_end = self.links[link.0].ended_by_client && self.links[link.0].conn == Some(id);
        if at_end && self.side(shard).is_some_and(|side| !side.shard.is_stalled(id)) {
            self.with_shard(shard, |shard, out| shard.hung_up(id, out));
        }
    }

    pub(crate) fn end_at_server(&mut self, link: LinkId) {
        let shard = self.links[link.0].shard;
        let Some(_) = self.defer(shard, world::Event::EndToServer(link)) else { return };
        self.links[link.0].ended_by_client = true;
        self.at_server(link, Vec::new());
    }

    pub(super) fn shard_message(&mut self, shard: usize, message: ToShard) {
        if let Some(side) = self.side(shard).filter(|side| side.unfinished.is_some()) {
            side.waiting.push_back(message);
            return;
        }
        self.take_message(shard, message);
    }

    fn take_message(&mut self, shard: usize, message: ToShard) {
        let now = self.clock();
        if let (ToShard::Engine(ToShards::Drain), Some(side)) = (&message, self.side(shard)) {
            side.draining = true;
        }
        match message {
            ToShard::Engine(ToShards::Batch(batch)) => self.shard_batch(shard, batch),
            message => self.with_shard(shard, |shard, out| message.reaches(shard, now, out)),
        }
        self.say_drained(shard);
    }

    /// Bytes reached a server that wants to read them: its session lives, as far as the leader can hear of that.
    fn sign_of_life(&mut self, link: LinkId) {
        if self.nodes[self.at].unsure_until <= self.now && self.reaches_leader() {
            self.check.heard(link, self.time());
        }
    }

    fn say_drained(&mut self, shard: usize) {
        let Some(side) = self.side(shard) else { return };
        if side.draining && side.shard.connections() == 0 {
            // Told once: a shard that drains takes no connection any more.
            side.draining = false;
            self.mail(Channel::ShardToConsensus(shard), Inner::ToConsensus(Event::Drained));
        }
    }

    fn shard_batch(&mut self, shard: usize, mut batch: Arc<AppliedBatch>) {
        let plain = |change: &Change| matches!(change, Change::DataSet { .. });
        let only_data = batch.txns.iter().all(|txn| txn.changes.iter().all(plain) && txn.session.is_none());
        let foreign = batch.txns.iter().all(|txn| txn.origin.is_none_or(|at| usize::from(at.shard.0) != shard));
        let some = batch.txns.iter().any(|txn| !txn.changes.is_empty());
        if some && only_data && foreign && self.bug(Bug::MissBatch, 200) {
            if let Some(side) = self.side(shard) {
                side.taken += 1;
            }
            return;
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
            side.unfinished = Some((batch, 0));
        }
        self.go_on_with_the_batch(shard);
    }

    pub(super) fn shard_tick(&mut self, shard: usize) {
        let now = self.clock();
        let mut heard = None;
        self.with_shard(shard, |shard, out| heard = Some(shard.tick(now, out)));
        if let Some((upto, sessions)) = heard {
            let message = Event::SessionActivity { shard: shard_id(shard), upto, sessions };
            self.mail(Channel::ShardToConsensus(shard), Inner::ToConsensus(message));
        }
        self.say_drained(shard);
        let wait = 200_000 + self.schedule.delay(1_000);
        self.inside_after(wait, Inner::ShardTick(shard));
    }

    fn plan_pump(&mut self, shard: usize) {
        let Some(side) = self.side(shard) else { return };
        let bytes = side.shard.proposal_bytes();
        let waiting = bytes > 0 || !side.syncs.is_empty();
        if bytes >= PROPOSAL_BYTES_MAX {
            self.send_proposals(shard);
        } else if waiting && !std::mem::replace(&mut side.pump_planned, true) {
            self.inside_soon(100, Inner::Pump(shard));
        }
    }

    pub(super) fn pump(&mut self, shard: usize) {
        if let Some(side) = self.side(shard) {
            side.pump_planned = false;
        }
        self.send_proposals(shard);
    }

    fn send_proposals(&mut self, shard: usize) {
        let Some(side) = self.side(shard) else { return };
        let proposals = side.shard.take_proposals().unwrap_or_default();
        // A sync goes behind the writes before it.
        let more = side.shard.proposal_bytes() > 0;
        let syncs = if more { Vec::new() } else { std::mem::take(&mut side.syncs) };
        if proposals.commands.is_empty() && syncs.is_empty() {
            return;
        }
        let message = Event::Requests { shard: shard_id(shard), proposals, syncs };
        self.mail(Channel::ShardToConsensus(shard), Inner::ToConsensus(message));
        if more {
            self.send_proposals(shard);
        }
    }
}

fn shard_id(shard: usize) -> ShardId {
    ShardId(u16::try_from(shard).expect("few shards"))
}
