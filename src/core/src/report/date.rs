//! Dates as Java's `Date` prints them, always in UTC: `Sat Nov 21 13:05:58 UTC 2026`.
//!
//! Plain arithmetic; knows neither the time nor the zone of the host.

use crate::ids::WallMillis;
use core::fmt;

const DAY_MS: i64 = 86_400_000;
const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// A point in time to be printed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Date(pub(super) WallMillis);

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let days = self.0.0.div_euclid(DAY_MS);
        let seconds = self.0.0.rem_euclid(DAY_MS) / 1000;
        let (year, month, day) = civil(days);
        let weekday = name(&WEEKDAYS, days.rem_euclid(7));
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        write!(f, "{weekday} {} {day:02} {hour:02}:{minute:02}:{second:02} UTC {year}", name(&MONTHS, month))
    }
}

fn name(names: &[&'static str], at: i64) -> &'static str {
    usize::try_from(at).ok().and_then(|at| names.get(at)).copied().unwrap_or("?")
}

/// Year, month from 0, day from 1, of a number of days since 1970. Years are reckoned from March, so that the leap day is
/// the last of its year; 400 of them have 146,097 days.
const fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12;
    let year = era * 400 + year_of_era + if month < 2 { 1 } else { 0 };
    (year, month, day)
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
    }
}
