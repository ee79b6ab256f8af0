//! Sheds a share of the connections: some at each tick, so that their clients do not come to other servers all at once.

use crate::ids::{ConnId, Millis};
use crate::limits::SLOTS_PIECE;
use crate::shard::conn::{Conn, Phase};
use crate::shard::conns::Conns;
use alloc::vec::Vec;

/// Ticks that it takes.
const TICKS: usize = 50;

/// Connections that are to be closed.
#[derive(Debug)]
pub(super) struct Shedding {
    left: usize,
    per_tick: usize,
    /// The next slot.
    from: usize,
    /// Later connections are not concerned: their clients may have come back.
    opened_before: Millis,
    /// Connections that wait for a reply are spared in the first pass.
    spares_busy: bool,
}

impl Shedding {
    /// So many of a hundred connections.
    pub(super) fn begin(now: Millis, connections: usize, percent: u8) -> Self {
        let left = (connections * usize::from(percent)).div_ceil(100);
        Self { left, per_tick: left.div_ceil(TICKS), from: 0, opened_before: now, spares_busy: true }
    }

    pub(super) const fn is_over(&self) -> bool {
        self.left == 0
    }

    /// Connections of this tick.
    pub(super) fn choose(&mut self, conns: &Conns) -> Vec<ConnId> {
        let (before, spares_busy) = (self.opened_before, self.spares_busy);
        let is_busy = |conn: &Conn| !conn.pending.is_empty() || conn.unsent() > 0;
        let is_meant =
            |conn: &&Conn| conn.phase == Phase::Live && conn.opened < before && !(spares_busy && is_busy(conn));
        let most = self.per_tick.min(self.left);
        let chosen: Vec<ConnId> =
            conns.range(self.from, SLOTS_PIECE).filter(is_meant).map(|conn| conn.id).take(most).collect();
        self.left -= chosen.len();
        self.from = match chosen.last() {
            Some(last) if chosen.len() == most => last.slot as usize + 1,
            _ => self.from + SLOTS_PIECE,
        };
        if self.from >= conns.slots() {
            self.from = 0;
            self.left = if self.spares_busy { self.left } else { 0 };
            self.spares_busy = false;
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use crate::ids::{Millis, SessionId};
    use crate::shard::ShardMessage;
    use crate::shard::conn::{Close, Pending, Phase};
    use crate::shard::tests::{client_at, message, shard, tick};
    use corral_types::Micros;

    #[test]
    fn a_share_is_closed_bit_by_bit_and_busy_ones_last() {
        let mut shard = shard();
        let connect = |shard: &mut crate::shard::Shard, now, is_busy| {
            let id = client_at(shard, Millis(now));
            let mut conn = shard.state.conns.take(id).expect("it is there");
            conn.phase = Phase::Live;
            conn.session.attach(SessionId(1), i32::MAX);
            if is_busy {
                conn.pending.push(Pending::Connect { at: Micros(0) });
            }
            shard.state.conns.put_back(conn);
            id
        };
        let busy: alloc::vec::Vec<_> = (0..50).map(|_| connect(&mut shard, 0, true)).collect();
        for _ in 0..50 {
            connect(&mut shard, 0, false);
        }
        message(&mut shard, Millis(10), ShardMessage::Shed(60));
        tick(&mut shard, Millis(200));
        assert_eq!(shard.state.effects.closed.len(), 2);
        let newer = connect(&mut shard, 201, false);
        (2..60).for_each(|ticks| tick(&mut shard, Millis(200 * ticks)));
        assert_eq!(shard.state.effects.closed.len(), 60);
        assert!(shard.state.effects.closed.iter().all(|(id, why)| *id != newer && *why == Close::Shed));
        let first_busy = shard.state.effects.closed.iter().position(|(id, _)| busy.contains(id));
        assert_eq!(first_busy, Some(50), "all others went before");
    }
}
