//! Rates: how much the clients of one address may ask for in a second. Their connections are on several shards, so the count is shared.
//!
//! Each use moves the time at which all uses are paid for. That time may be ahead of the present by the burst.

use crate::ids::Millis;
use core::sync::atomic::{AtomicU64, Ordering};

const NS_PER_MS: u64 = 1_000_000;
/// Longest time for which uses keep others waiting, however many they were.
const DEBT_NS_MAX: u64 = 10_000 * NS_PER_MS;

/// A limit of units in a time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rate {
    /// 0: there is no limit.
    units: u64,
    /// Time for these units.
    period_ns: u64,
    /// Time for the units that may come at once.
    burst_ns: u64,
}

impl Rate {
    /// So many units in a second, and as many at once as in `burst_ms`, one at least. No units are no limit.
    pub fn per_second(units: u64, burst_ms: u64) -> Self {
        Self::new(units, 1000, burst_ms.saturating_mul(NS_PER_MS))
    }

    /// A bucket of so many tokens, into which `fill` tokens come in each `fill_ms`. No tokens are no limit.
    pub fn bucket(tokens: u64, fill: u64, fill_ms: u64) -> Self {
        let period_ns = fill_ms.saturating_mul(NS_PER_MS);
        let burst_ns = tokens.saturating_mul(period_ns / fill.max(1));
        Self::new(if tokens == 0 { 0 } else { fill }, fill_ms, burst_ns)
    }

    fn new(units: u64, period_ms: u64, burst_ns: u64) -> Self {
        let rate = Self { units, period_ns: period_ms.saturating_mul(NS_PER_MS), burst_ns };
        Self { burst_ns: burst_ns.max(rate.price_ns(1)), ..rate }
    }

    /// Whether there is a limit.
    pub const fn is_limit(&self) -> bool {
        self.units > 0
    }

    fn price_ns(&self, units: u64) -> u64 {
        units.saturating_mul(self.period_ns).checked_div(self.units).unwrap_or(0)
    }
}

/// Uses of one kind. Threads share it.
#[derive(Debug, Default)]
pub struct Meter {
    /// When all uses are paid for.
    paid_ns: AtomicU64,
}

impl Meter {
    /// Counts so many units.
    pub fn count(&self, rate: &Rate, now: Millis, units: u64) {
        if rate.is_limit() {
            let (now_ns, price) = (ns(now), rate.price_ns(units));
            let most = now_ns.saturating_add(rate.burst_ns).saturating_add(DEBT_NS_MAX);
            let paid = |paid: u64| Some(paid.max(now_ns).saturating_add(price).min(most.max(paid)));
            let _ = self.paid_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, paid);
        }
    }

    /// Whether more was counted than the rate allows by now.
    pub fn is_over(&self, rate: &Rate, now: Millis) -> bool {
        rate.is_limit() && self.paid_ns.load(Ordering::Relaxed) > ns(now).saturating_add(rate.burst_ns)
    }

    /// Whether one more unit keeps to the rate.
    pub fn has_room(&self, rate: &Rate, now: Millis) -> bool {
        let paid = self.paid_ns.load(Ordering::Relaxed).max(ns(now));
        !rate.is_limit() || paid.saturating_add(rate.price_ns(1)) <= ns(now).saturating_add(rate.burst_ns)
    }

    /// Whether all uses are paid for: it counts as a new one does.
    pub fn is_settled(&self, now: Millis) -> bool {
        self.paid_ns.load(Ordering::Relaxed) <= ns(now)
    }
}

const fn ns(at: Millis) -> u64 {
    at.0.saturating_mul(NS_PER_MS)
}

/// Uses by the clients of one address.
#[derive(Debug, Default)]
pub struct AddressMeter {
    /// Requests received.
    pub requests: Meter,
    /// Bytes received.
    pub bytes: Meter,
    /// Connections accepted.
    pub connections: Meter,
}

impl AddressMeter {
    /// Whether nothing of it matters any more.
    pub fn is_settled(&self, now: Millis) -> bool {
        [&self.requests, &self.bytes, &self.connections].iter().all(|meter| meter.is_settled(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_and_then_the_rate() {
        let (rate, meter) = (Rate::per_second(100, 500), Meter::default());
        let admitted = |from: u64, upto: u64| {
            let mut admitted = 0;
            for now in (from..upto).map(Millis) {
                while meter.has_room(&rate, now) {
                    meter.count(&rate, now, 1);
                    admitted += 1;
                }
            }
            admitted
        };
        assert_eq!(admitted(0, 1), 50, "half a second's worth at once");
        assert_eq!(admitted(1, 1001), 100);
        assert_eq!(admitted(9000, 9001), 50, "unused time is not saved up");
    }

    #[test]
    fn one_that_costs_much_delays_the_next() {
        let (rate, meter) = (Rate::per_second(1000, 100), Meter::default());
        meter.count(&rate, Millis(0), 5_100);
        for (now, is_over) in [(0, true), (4_999, true), (5_000, false)] {
            assert_eq!(meter.is_over(&rate, Millis(now)), is_over, "after {now} ms");
        }
        assert!(!meter.is_settled(Millis(5_099)) && meter.is_settled(Millis(5_100)));
        meter.count(&rate, Millis(6_000), u64::MAX);
        assert!(meter.is_over(&rate, Millis(15_999)) && !meter.is_over(&rate, Millis(16_000)), "ten seconds at most");
    }

    #[test]
    fn a_bucket_of_tokens_fills() {
        let (rate, meter) = (Rate::bucket(3, 2, 10), Meter::default());
        let mut take = |now: u64| {
            let has_room = meter.has_room(&rate, Millis(now));
            if has_room {
                meter.count(&rate, Millis(now), 1);
            }
            has_room
        };
        assert_eq!([0, 0, 0, 0, 5, 5, 10].map(&mut take), [true, true, true, false, true, false, true]);
    }

    #[test]
    fn no_units_are_no_limit_and_one_always_fits() {
        let meter = Meter::default();
        for rate in [Rate::default(), Rate::per_second(0, 100), Rate::bucket(0, 1, 1)] {
            meter.count(&rate, Millis(0), u64::MAX);
            assert!(!meter.is_over(&rate, Millis(0)) && meter.has_room(&rate, Millis(0)));
        }
        assert!(meter.has_room(&Rate::per_second(1, 0), Millis(0)));
        for rate in [Rate::per_second(u64::MAX, u64::MAX), Rate::bucket(u64::MAX, u64::MAX, u64::MAX)] {
            meter.count(&rate, Millis(u64::MAX), u64::MAX);
            assert!(!meter.is_over(&rate, Millis(u64::MAX)));
        }
    }
}
