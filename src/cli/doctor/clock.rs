//! The difference between a server's clock and this host's, from the header `Date` of its answers.
//!
//! Pure. The header has whole seconds, so the difference is known within half a second and half of the time of the answer.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

/// The header is rounded down to this.
const DATE_PRECISION: Duration = Duration::from_secs(1);

/// Between these milliseconds a server's clock is ahead of this host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offset {
    pub(super) from_ms: i64,
    pub(super) to_ms: i64,
}

impl Offset {
    /// From a header `Date`, and this host's time before and after the request.
    pub(super) fn of(date: &str, sent: SystemTime, received: SystemTime) -> Option<Offset> {
        let date = httpdate::parse_http_date(date).ok()?;
        let ms = |time: SystemTime| i64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok();
        let end = ms(date.checked_add(DATE_PRECISION)?)?;
        Some(Offset { from_ms: ms(date)?.saturating_sub(ms(received)?), to_ms: end.saturating_sub(ms(sent)?) })
    }

    /// Both are of one clock. Without a common part it was set between them, and the later one holds.
    pub(super) fn and(self, later: Offset) -> Offset {
        let both = Offset { from_ms: self.from_ms.max(later.from_ms), to_ms: self.to_ms.min(later.to_ms) };
        if both.from_ms > both.to_ms { later } else { both }
    }

    /// This clock ahead of another one.
    pub(super) fn ahead_of(self, other: Offset) -> Offset {
        Offset { from_ms: self.from_ms.saturating_sub(other.to_ms), to_ms: self.to_ms.saturating_sub(other.from_ms) }
    }

    /// Whether the clocks differ by more than this, wherever in between the difference is.
    pub(super) fn exceeds(self, ms: i64) -> bool {
        self.from_ms > ms || self.to_ms < ms.saturating_neg()
    }

    /// For the page, such as `2.0 s ahead, within 0.5 s`.
    pub(super) fn shown(self) -> String {
        let (middle, half) = (self.from_ms.midpoint(self.to_ms), self.to_ms.saturating_sub(self.from_ms) / 2);
        let way = if middle < 0 { "behind" } else { "ahead" };
        format!("{} s {way}, within {} s", tenths(middle.saturating_abs()), tenths(half.saturating_add(50)))
    }

    pub(super) fn json(self) -> Value {
        json!({"ahead_from_ms": self.from_ms, "ahead_to_ms": self.to_ms})
    }
}

/// Milliseconds as seconds with one decimal.
fn tenths(ms: i64) -> String {
    format!("{}.{}", ms / 1000, ms % 1000 / 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_round_trip_counts() {
        let at = |ms| UNIX_EPOCH + Duration::from_millis(ms);
        let of = |sent, received| Offset::of("Thu, 01 Jan 1970 00:01:40 GMT", at(sent), at(received));
        assert_eq!(of(100_500, 100_520), Some(Offset { from_ms: -520, to_ms: 500 }));
        assert_eq!(of(90_500, 91_500), Some(Offset { from_ms: 8500, to_ms: 10_500 }));
        assert_eq!(Offset::of("yesterday", at(1), at(2)), None);
        let both = Offset { from_ms: -520, to_ms: 500 }.and(Offset { from_ms: -100, to_ms: 900 });
        assert_eq!(both, Offset { from_ms: -100, to_ms: 500 });
        let set = Offset { from_ms: 5000, to_ms: 6000 };
        assert_eq!(both.and(set), set);
        assert_eq!(set.ahead_of(both), Offset { from_ms: 4500, to_ms: 6100 });
    }

    #[test]
    fn only_a_certain_difference_counts() {
        let exceeds = |from_ms, to_ms| Offset { from_ms, to_ms }.exceeds(1000);
        assert!(exceeds(1001, 2000) && exceeds(-3000, -1001));
        assert!(!exceeds(1000, 2000) && !exceeds(-9000, 9000));
        assert_eq!(Offset { from_ms: -2500, to_ms: -1500 }.shown(), "2.0 s behind, within 0.5 s");
    }
}
