//! Drives a shard in memory: for the simulated server, the fuzz targets and the table of costs.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::Deref;

use corral_core::ids::{ConnId, Millis, Zxid};
use corral_core::shard::conn::Close;
use corral_core::shard::pieces::Piece;
use corral_core::shard::{
    ClientEvent, Effects, NewClient, Question, Requests, SessionActivity, Shard, ShardConfig, ShardEvent, ShardMessage,
};
use corral_core::tree::view::View;
use corral_wire::fourletter::FourLetter;

/// One effect of a shard.
pub(crate) enum ShardEffect {
    Question(Question),
    /// The connection has bytes to be sent.
    Dirty(ConnId),
    /// The connection is read again.
    Resumed(ConnId),
    Closed(ConnId, Close),
    /// A batch is applied to its end.
    Applied,
    Requests(Requests),
    Activity(SessionActivity),
    Drained,
}

/// A shard, and its effects that are not carried out yet.
pub(crate) struct ShardDriver {
    shard: Shard,
    effects: VecDeque<ShardEffect>,
}

impl Deref for ShardDriver {
    type Target = Shard;

    fn deref(&self) -> &Shard {
        &self.shard
    }
}

impl ShardDriver {
    pub(crate) fn new(config: ShardConfig, view: View, sessions_alive: u64, now: Millis) -> ShardDriver {
        ShardDriver { shard: Shard::new(config, view, sessions_alive, now), effects: VecDeque::new() }
    }

    pub(crate) fn accept(&mut self, now: Millis, peer: SocketAddr, entropy: [u8; 16]) -> Option<ConnId> {
        self.shard.accept(now.micros(), NewClient::new(peer, entropy))
    }

    pub(crate) fn receive(&mut self, now: Millis, conn: ConnId, bytes: &[u8], applied: Zxid) {
        self.client(now, conn, ClientEvent::Received { bytes, applied });
    }

    /// The client takes so many bytes.
    pub(crate) fn send(&mut self, now: Millis, conn: ConnId, count: usize) -> Vec<u8> {
        let bytes = self.shard.unsent(conn)[..count].to_vec();
        self.client(now, conn, ClientEvent::Sent(count));
        bytes
    }

    pub(crate) fn hang_up(&mut self, now: Millis, conn: ConnId) {
        self.client(now, conn, ClientEvent::Failed);
    }

    fn client(&mut self, now: Millis, conn: ConnId, event: ClientEvent<'_>) {
        self.shard.handle(now.micros(), ShardEvent::Client(conn, event));
    }

    pub(crate) fn take(&mut self, now: Millis, message: ShardMessage) {
        self.shard.handle(now.micros(), ShardEvent::Message(message));
    }

    pub(crate) fn tick(&mut self, now: Millis) {
        self.shard.handle(now.micros(), ShardEvent::Tick);
    }

    pub(crate) fn turn(&mut self, now: Millis) {
        self.shard.turn(now.micros());
    }

    pub(crate) fn report(&mut self, command: FourLetter, from: usize) -> Piece {
        self.shard.report(command, from)
    }

    /// The next effect. To carry it out may lead to more.
    pub(crate) fn next_effect(&mut self) -> Option<ShardEffect> {
        if self.effects.is_empty() {
            let mut new = Effects::default();
            self.shard.take_effects(&mut new);
            let effects = &mut self.effects;
            effects.extend(new.questions.into_iter().map(ShardEffect::Question));
            effects.extend(new.dirty.into_iter().map(ShardEffect::Dirty));
            effects.extend(new.resumed.into_iter().map(ShardEffect::Resumed));
            effects.extend(new.closed.into_iter().map(|(conn, why)| ShardEffect::Closed(conn, why)));
            effects.extend((0..new.applied).map(|_| ShardEffect::Applied));
            effects.extend(new.requests.into_iter().map(ShardEffect::Requests));
            effects.extend(new.activity.map(ShardEffect::Activity));
            effects.extend(new.drained.then_some(ShardEffect::Drained));
        }
        self.effects.pop_front()
    }
}
