//! Counters of a shard and of each of its connections, kept on the hot path: a handful of plain stores a reply.
//!
//! Plain values of one core; they know nothing of their readers.

use crate::ids::{Millis, Zxid};
use crate::sizes::Sizes;
use corral_types::Micros;
use corral_wire::OpCode;

/// Latencies in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// Number of requests.
    pub count: u64,
    /// Sum of their latencies, milliseconds.
    pub ms_sum: u64,
    /// `u64::MAX` while there is none, see [`Latency::ms_min`].
    min: u64,
    /// The longest, milliseconds; 0 if there is none.
    pub ms_max: u64,
}

impl Default for Latency {
    fn default() -> Self {
        Self { count: 0, ms_sum: 0, min: u64::MAX, ms_max: 0 }
    }
}

impl Latency {
    pub(crate) fn note(&mut self, ms: u64) {
        self.count += 1;
        self.ms_sum += ms;
        self.min = self.min.min(ms);
        self.ms_max = self.ms_max.max(ms);
    }

    /// The shortest, 0 if there is none.
    pub const fn ms_min(&self) -> u64 {
        if self.count == 0 { 0 } else { self.min }
    }

    /// Ten-thousandths of a millisecond, rounded.
    pub fn average(&self) -> u64 {
        let count = u128::from(self.count.max(1));
        u64::try_from((u128::from(self.ms_sum) * 10_000 + count / 2) / count).unwrap_or(u64::MAX)
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.ms_sum += other.ms_sum;
        self.min = self.min.min(other.min);
        self.ms_max = self.ms_max.max(other.ms_max);
    }
}

/// Counters of one shard since its start, or since `srst`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Statistics {
    /// Requests, connect requests and four-letter commands.
    pub received: u64,
    /// Replies, events and answers to four-letter commands.
    pub sent: u64,
    /// Bytes from clients.
    pub bytes_received: u64,
    /// Bytes to clients, events included.
    pub bytes_sent: u64,
    /// Of requests that are no transactions.
    pub reads: Latency,
    /// Of transactions.
    pub updates: Latency,
    /// Of replies, but for those to connect requests.
    pub replies: Sizes,
    /// Connect requests.
    pub connects: u64,
    /// Connections closed because authentication failed.
    pub auths_failed: u64,
    /// Connections closed because they never sent a connect request.
    pub never_connected: u64,
    /// Times that a connection was not read because its address was over a rate.
    pub rate_limited: u64,
    /// Requests answered THROTTLEDOP because they waited, or because their client does not read.
    pub throttled: u64,
    /// Writes that add data and were refused.
    pub growth_refused: u64,
    /// Connections closed because of a large request.
    pub large_requests_refused: u64,
    /// Sessions ended by the leader because they were silent. Every shard sees every one.
    pub sessions_expired: u64,
}

impl Statistics {
    pub(crate) fn merge(&mut self, other: &Self) {
        self.received += other.received;
        self.sent += other.sent;
        self.bytes_received += other.bytes_received;
        self.bytes_sent += other.bytes_sent;
        self.reads.merge(&other.reads);
        self.updates.merge(&other.updates);
        self.replies.merge(&other.replies);
        self.connects += other.connects;
        self.auths_failed += other.auths_failed;
        self.never_connected += other.never_connected;
        self.rate_limited += other.rate_limited;
        self.throttled += other.throttled;
        self.growth_refused += other.growth_refused;
        self.large_requests_refused += other.large_requests_refused;
        self.sessions_expired = self.sessions_expired.max(other.sessions_expired);
    }

    /// Of all requests.
    pub fn latency(&self) -> Latency {
        let mut all = self.reads;
        all.merge(&self.updates);
        all
    }
}

/// A request that is being answered, as it is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    pub(crate) op: Option<OpCode>,
    pub(crate) xid: i32,
    /// When it came.
    pub(crate) at: Micros,
    /// Whether it was a transaction.
    pub(crate) update: bool,
}

/// Counters of one connection since it was accepted, or since `crst`.
#[derive(Clone, Copy, Debug)]
pub struct ConnCounters {
    /// Requests.
    pub received: u64,
    /// Replies and events.
    pub sent: u64,
    replies: u64,
    latency_ms_sum: u64,
    /// When the last reply was queued; 0 before the first and since `crst`.
    pub last_reply: Millis,
    /// As on the wire; -1 since `crst`.
    pub last_zxid: i64,
    /// Time that the last reply took, milliseconds.
    pub last_latency_ms: u32,
    /// `u32::MAX` while there is none, see [`ConnCounters::latency_ms_min`].
    latency_min: u32,
    /// The longest such time, milliseconds; 0 if there is none.
    pub latency_ms_max: u32,
    /// Of the last request that was none of the protocol's own (ping, auth); -1 since `crst`.
    pub last_xid: i32,
    /// Operation of the last reply; `cons` shows `None` as `NA`.
    pub last_op: Option<OpCode>,
}

impl Default for ConnCounters {
    fn default() -> Self {
        Self {
            received: 0,
            sent: 0,
            replies: 0,
            latency_ms_sum: 0,
            last_reply: Millis(0),
            last_zxid: 0,
            last_latency_ms: 0,
            latency_min: u32::MAX,
            latency_ms_max: 0,
            last_xid: 0,
            last_op: None,
        }
    }
}

impl ConnCounters {
    /// As after `crst`.
    pub(crate) fn reset() -> Self {
        Self { last_zxid: -1, last_xid: -1, ..Self::default() }
    }

    /// `ms` is how long the answer took.
    pub(crate) fn replied(&mut self, what: Answered, zxid: Zxid, now: Millis, ms: u64) {
        let ms = u32::try_from(ms).unwrap_or(u32::MAX);
        self.sent += 1;
        self.replies += 1;
        self.latency_ms_sum += u64::from(ms);
        self.last_reply = now;
        self.last_zxid = zxid.wire();
        self.last_latency_ms = ms;
        self.latency_min = self.latency_min.min(ms);
        self.latency_ms_max = self.latency_ms_max.max(ms);
        if what.xid >= 0 {
            self.last_xid = what.xid;
        }
        self.last_op = what.op;
    }

    /// The shortest, 0 if there is none.
    pub const fn latency_ms_min(&self) -> u32 {
        if self.replies == 0 { 0 } else { self.latency_min }
    }

    /// In whole milliseconds.
    pub fn latency_ms_average(&self) -> u64 {
        self.latency_ms_sum / self.replies.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_sum_up() {
        let mut one = Latency::default();
        assert_eq!((one.ms_min(), one.average(), one.ms_max), (0, 0, 0));
        for ms in [3, 1, 7] {
            one.note(ms);
        }
        let mut other = Latency::default();
        other.note(26);
        one.merge(&other);
        one.merge(&Latency::default());
        assert_eq!((one.ms_min(), one.average(), one.ms_max, one.count, one.ms_sum), (1, 92_500, 26, 4, 37));
        let eighteen = Latency { count: 18, ms_sum: 37, min: 0, ms_max: 9 };
        assert_eq!(eighteen.average(), 20_556, "rounded, not cut");
    }

    #[test]
    fn a_connection_remembers_its_last_real_request() {
        let mut counters = ConnCounters::default();
        let mut reply = |xid, op, at, now| {
            let what = Answered { op: Some(op), xid, at: Millis(at).micros(), update: false };
            counters.replied(what, Zxid(now), Millis(now), now - at);
            counters
        };
        reply(7, OpCode::GetData, 10, 13);
        let after = reply(-2, OpCode::Ping, 20, 21);
        assert_eq!((after.last_xid, after.last_op, after.last_zxid), (7, Some(OpCode::Ping), 21));
        assert_eq!((after.latency_ms_min(), after.latency_ms_average(), after.latency_ms_max), (1, 2, 3));
        assert_eq!((after.sent, after.last_latency_ms, after.last_reply), (2, 1, Millis(21)));
        let reset = ConnCounters::reset();
        assert_eq!((reset.last_xid, reset.last_zxid, reset.last_op, reset.latency_ms_min()), (-1, -1, None, 0));
    }
}
