//! Times as text, in UTC.

use time::{Date, Month, PlainDateTime, Time, UtcDateTime};

/// Form of a time.
const FORM: &str = "0000-01-01T00:00:00.000";
/// A time may end behind the day, the minute, the second, or the millisecond.
const CHARS: [usize; 4] = [10, 16, 19, 23];
/// Of a time in a file name.
const SECOND_CHARS: usize = "20261127T111403".len();
const MILLISECOND_CHARS: usize = "20261127T111403.909".len();

/// Milliseconds since 1970 as RFC 3339 has them.
pub(super) fn utc(ms: i64) -> String {
    let Ok(at) = UtcDateTime::from_unix_timestamp(ms.div_euclid(1000)) else {
        return format!("{ms} ms");
    };
    let (date, (hour, minute, second)) = (at.date(), at.as_hms());
    let (year, month, day) = (date.year(), u8::from(date.month()), date.day());
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms.rem_euclid(1000))
}

/// As a part of a file name, `20261127T111403Z`.
pub(super) fn in_name(ms: i64) -> String {
    compact(ms, SECOND_CHARS)
}

/// As a part of a file name, `20261127T111403.909Z`.
pub(super) fn in_name_exactly(ms: i64) -> String {
    compact(ms, MILLISECOND_CHARS)
}

fn compact(ms: i64, chars: usize) -> String {
    let mut text = utc(ms).replace(['-', ':'], "");
    text.truncate(chars);
    text + "Z"
}

/// Milliseconds since 1970 of a time such as `2026-11-24`, `2026-11-24 02:49` or `2026-11-24T02:49:48.877Z`.
pub(super) fn parse(text: &str) -> Result<i64, String> {
    let wrong = || "give a time in UTC, such as 2026-11-24T02:49:48".to_owned();
    let text = text.strip_suffix('Z').unwrap_or(text).replace(' ', "T");
    let fits = |(one, form): (char, char)| if form.is_ascii_digit() { one.is_ascii_digit() } else { one == form };
    if !CHARS.contains(&text.len()) || !text.chars().zip(FORM.chars()).all(fits) {
        return Err(wrong());
    }
    let whole = text.clone() + &FORM[text.len()..];
    milliseconds(&whole).ok_or_else(wrong)
}

/// Of a time with all its digits.
fn milliseconds(text: &str) -> Option<i64> {
    let digits = |from: usize, to: usize| text.get(from..to)?.parse::<u16>().ok();
    let byte = |from: usize| u8::try_from(digits(from, from + 2)?).ok();
    let month = Month::try_from(byte(5)?).ok()?;
    let date = Date::from_calendar_date(i32::from(digits(0, 4)?), month, byte(8)?).ok()?;
    let time = Time::from_hms_milli(byte(11)?, byte(14)?, byte(17)?, digits(20, 23)?).ok()?;
    let at = PlainDateTime::new(date, time).as_utc();
    i64::try_from(at.unix_timestamp_nanos() / 1_000_000).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_as_they_are_written() {
        let at = 1_795_488_588_877;
        for (text, ms) in [
            ("2026-11-24T02:49:48.877Z", at),
            ("2026-11-24T02:49:48", at - 877),
            ("2026-11-24 02:49", at - 48_877),
            ("2026-11-24", at - 10_188_877),
        ] {
            assert_eq!(parse(text), Ok(ms), "{text}");
        }
        assert_eq!((utc(at).as_str(), in_name(at).as_str()), ("2026-11-24T02:49:48.877Z", "20261124T024948Z"));
        for wrong in [
            "",
            "2026",
            "yesterday",
            "2026/11/24",
            "2026-13-24",
            "2026-11-24T02:49:48.8777",
            "2026-11-24+01",
            "2026-11-24T2",
            "2026-11-24T02:49:",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
