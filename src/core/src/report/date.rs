//! Dates as Java's `Date` prints them, always in UTC: `Sat Nov 21 13:05:58 UTC 2026`.
//!
//! Knows neither the time nor the zone of the host.

use crate::ids::WallMillis;
use alloc::string::ToString as _;
use core::fmt;
use time::UtcDateTime;

/// A point in time to be printed. One outside of the years -9999 to 9999 is printed as the nearest that is inside.
#[derive(Clone, Copy, Debug)]
pub(super) struct Date(pub(super) WallMillis);

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.0.div_euclid(1000);
        let nearest = if seconds < 0 { UtcDateTime::MIN } else { UtcDateTime::MAX };
        let at = UtcDateTime::from_unix_timestamp(seconds).unwrap_or(nearest);
        let (weekday, month) = (at.weekday().to_string(), at.month().to_string());
        let (day, year, (hour, minute, second)) = (at.day(), at.year(), at.as_hms());
        write!(f, "{} {} {day:02} {hour:02}:{minute:02}:{second:02} UTC {year}", &weekday[..3], &month[..3])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_as_java_prints_them() {
        let check = |seconds: i64, expect: &str| {
            assert_eq!(alloc::format!("{}", Date(WallMillis(seconds * 1000 + 999))), expect);
        };
        check(0, "Thu Jan 01 00:00:00 UTC 1970");
        check(1_795_266_358, "Sat Nov 21 13:05:58 UTC 2026");
        check(951_782_400, "Tue Feb 29 00:00:00 UTC 2000");
        check(951_868_799, "Tue Feb 29 23:59:59 UTC 2000");
        check(951_868_800, "Wed Mar 01 00:00:00 UTC 2000");
        check(4_107_542_400, "Mon Mar 01 00:00:00 UTC 2100");
        check(1_735_689_599, "Tue Dec 31 23:59:59 UTC 2024");
        check(-1, "Wed Dec 31 23:59:59 UTC 1969");
        assert_eq!(alloc::format!("{}", Date(WallMillis(i64::MAX))), "Fri Dec 31 23:59:59 UTC 9999");
        assert_eq!(alloc::format!("{}", Date(WallMillis(i64::MIN))), "Mon Jan 01 00:00:00 UTC -9999");
    }
}
