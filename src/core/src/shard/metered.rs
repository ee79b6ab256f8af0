//! Limits of requests and bytes in a second: a connection is not read while its address is over one.

use crate::ids::{ConnId, Millis};
use crate::limits::ShardLimits;
use crate::rate::AddressMeter;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::mem;
use hashbrown::HashMap;
use xxhash_rust::xxh3::Xxh3DefaultBuilder;

/// Connections of which the rates are limited.
#[derive(Debug, Default)]
pub(super) struct Metered {
    conns: HashMap<ConnId, Meters, Xxh3DefaultBuilder>,
    /// Connections that are not read until the next tick, each once.
    waiting: VecDeque<ConnId>,
    waits: u64,
}

/// Connections of a tick.
#[derive(Debug)]
pub(super) struct Queue {
    waiting: VecDeque<ConnId>,
    /// They wait on.
    kept: VecDeque<ConnId>,
}

#[derive(Debug)]
struct Meters {
    address: Arc<AddressMeter>,
    waits: bool,
    /// When it began to wait.
    since: Millis,
}

impl Metered {
    /// Whether there are any. Most servers have no such limits.
    pub(super) fn is_empty(&self) -> bool {
        self.conns.is_empty()
    }

    /// Whether the connection is not read because of its address's rates, for no longer than this time: the client may be gone.
    pub(super) fn waits(&self, now: Millis, id: ConnId, most_ms: u64) -> bool {
        self.conns.get(&id).is_some_and(|meters| meters.waits && now.since(meters.since) <= most_ms)
    }

    pub(super) fn add(&mut self, id: ConnId, address: Arc<AddressMeter>) {
        self.conns.insert(id, Meters { address, waits: false, since: Millis(0) });
    }

    pub(super) fn forget(&mut self, id: ConnId) {
        self.conns.remove(&id);
    }

    pub(super) fn count_bytes(&self, limits: &ShardLimits, now: Millis, id: ConnId, bytes: usize) {
        if let Some(meters) = self.conns.get(&id) {
            meters.address.bytes.count(&limits.byte_rate, now, bytes as u64);
        }
    }

    pub(super) fn count_request(&self, limits: &ShardLimits, now: Millis, id: ConnId) {
        if let Some(meters) = self.conns.get(&id) {
            meters.address.requests.count(&limits.request_rate, now, 1);
        }
    }

    /// Whether the connection's address is over a rate. The connection then waits for the next tick even if the rate
    /// allows it before: only the tick resumes reading.
    pub(super) fn is_over(&mut self, limits: &ShardLimits, now: Millis, id: ConnId) -> bool {
        let Some(Meters { address, waits, since }) = self.conns.get_mut(&id) else { return false };
        let is_over = *waits || is_over(address, limits, now);
        if is_over && !mem::replace(waits, true) {
            *since = now;
            self.waiting.push_back(id);
            self.waits += 1;
        }
        is_over
    }

    /// The next connection that is to be read again in this tick. A connection of an address over a rate keeps its place, so each
    /// has its turn.
    pub(super) fn next_ready(&mut self, limits: &ShardLimits, now: Millis, queue: &mut Queue) -> Option<ConnId> {
        while let Some(id) = queue.waiting.pop_front() {
            let Some(Meters { address, waits, .. }) = self.conns.get_mut(&id) else { continue };
            if is_over(address, limits, now) {
                queue.kept.push_back(id);
            } else {
                *waits = false;
                return Some(id);
            }
        }
        queue.kept.append(&mut self.waiting);
        self.waiting = mem::take(&mut queue.kept);
        None
    }

    /// The connections that waited for this tick, for [`Metered::next_ready`].
    pub(super) fn queue(&mut self) -> Queue {
        Queue { waiting: mem::take(&mut self.waiting), kept: VecDeque::new() }
    }

    /// Times that a connection began to wait since the last call.
    pub(super) const fn take_waits(&mut self) -> u64 {
        mem::replace(&mut self.waits, 0)
    }
}

fn is_over(address: &AddressMeter, limits: &ShardLimits, now: Millis) -> bool {
    address.requests.is_over(&limits.request_rate, now) || address.bytes.is_over(&limits.byte_rate, now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::Rate;
    use crate::shard::NewClient;
    use crate::shard::tests::{receive, shard, tick};
    use alloc::vec::Vec;
    use corral_types::Micros;
    use corral_wire::OpCode;

    const PING: [u8; 12] = [0, 0, 0, 8, 255, 255, 255, 254, 0, 0, 0, 11];

    #[test]
    fn an_address_has_its_rate_on_all_its_connections_together() {
        assert_eq!(i32::from_be_bytes([PING[8], PING[9], PING[10], PING[11]]), OpCode::Ping as i32);
        let mut shard = shard();
        shard.state.config.limits.request_rate = Rate::per_second(10, 1000);
        let address = Arc::new(AddressMeter::default());
        let mut accepted = |meter: Option<&Arc<AddressMeter>>| {
            let peer = "10.0.0.1:1".parse().expect("an address");
            let client = NewClient { meter: meter.cloned(), ..NewClient::new(peer, [0; 16]) };
            let id = shard.accept(Micros(0), client).expect("it does not drain");
            let mut conn = shard.state.conns.take(id).expect("it is there");
            conn.phase = crate::shard::conn::Phase::Live;
            conn.session.attach(crate::ids::SessionId(1), 1000);
            shard.state.conns.put_back(conn);
            id
        };
        let (first, second, free) = (accepted(Some(&address)), accepted(Some(&address)), accepted(None));
        for id in [first, second, free] {
            receive(&mut shard, Millis(0), id, &PING.repeat(50));
        }
        let answered = [first, second, free].map(|id| shard.unsent_bytes(id) / 20);
        assert_eq!(answered, [11, 0, 50], "the request that goes beyond is answered, too");
        assert_eq!((shard.is_stalled(first), shard.is_stalled(free)), (true, false));
        for now in (200..=5000).step_by(200) {
            tick(&mut shard, Millis(now));
        }
        assert_eq!(shard.state.statistics.sent, 50 + 61, "ten in each of five seconds, and a burst");
        let shares = [first, second].map(|id| shard.unsent_bytes(id) / 20);
        assert!(shares.iter().all(|share| *share > 20), "each has its turn: {shares:?}");
        // Bytes that were on their way when the reading was stopped: the rate allows them by now.
        receive(&mut shard, Millis(5190), second, &PING);
        assert!(shard.is_stalled(second), "only a tick resumes reading");
        let closed: Vec<ConnId> = shard.state.effects.closed.iter().map(|(id, _)| *id).collect();
        assert_eq!(closed, [free], "it is silent, and the others are not read");
        let resumed_at = (27..100).find(|ticks| {
            tick(&mut shard, Millis(200 * ticks));
            shard.state.effects.resumed.contains(&second)
        });
        assert!(resumed_at.is_some());
    }
}
