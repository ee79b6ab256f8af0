//! When an X.509 certificate expires: the one field of it that is told, read from its DER encoding (RFC 5280, 4.1).
//!
//! Pure, for any thread. Nothing is verified here; bytes of any kind give a time or nothing.

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// `[0]`, the version, which may be missing.
const VERSION: u8 = 0xa0;

/// The end of a certificate's validity, Unix seconds; `None` if it cannot be read.
pub(crate) fn not_after(certificate: &[u8]) -> Option<i64> {
    let (certificate, _) = expect(certificate, SEQUENCE)?;
    let (mut rest, _) = expect(certificate, SEQUENCE)?;
    if let Some((_, behind)) = expect(rest, VERSION) {
        rest = behind;
    }
    // Serial number, algorithm of the signature, issuer.
    for tag in [INTEGER, SEQUENCE, SEQUENCE] {
        rest = expect(rest, tag)?.1;
    }
    let (validity, _) = expect(rest, SEQUENCE)?;
    let (_, _, end) = element(validity)?;
    let (tag, text, _) = element(end)?;
    time(tag, text)
}

/// The content of an element with this tag, and what is behind it.
fn expect(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    element(bytes).filter(|(found, ..)| *found == tag).map(|(_, content, rest)| (content, rest))
}

/// Tag, content and what is behind the first element.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = if *first < 0x80 {
        (usize::from(*first), rest)
    } else {
        // Long form; more than four bytes of length are more than any file here has.
        let count = usize::from(*first & 0x7f);
        let (digits, rest) = rest.split_at_checked(count).filter(|_| (1..=4).contains(&count))?;
        (digits.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit)), rest)
    };
    let (content, behind) = rest.split_at_checked(length)?;
    Some((*tag, content, behind))
}

/// `YYMMDDHHMMSSZ`, of 1950 to 2049, or `YYYYMMDDHHMMSSZ`.
fn time(tag: u8, text: &[u8]) -> Option<i64> {
    let digits = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let (year, rest) = match tag {
        UTC_TIME if digits.len() == 12 => {
            let short: i64 = digits[..2].parse().ok()?;
            (if short < 50 { 2000 + short } else { 1900 + short }, &digits[2..])
        }
        GENERALIZED_TIME if digits.len() == 14 => (digits[..4].parse().ok()?, &digits[4..]),
        _ => return None,
    };
    let part = |at: usize| rest[at..at + 2].parse::<i64>().ok();
    let (month, day) = (part(0)?, part(2)?);
    if !(1..=12).contains(&month) {
        return None;
    }
    Some(days(year, month, day) * 86_400 + part(4)? * 3600 + part(6)? * 60 + part(8)?)
}

/// Days from 1970-01-01 to a date of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March, so that the leap day is the last.
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let before = year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    before + (month * 153 + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    #[test]
    fn the_end_of_certificates() {
        for (year, month, day, expect) in [
            (2021, 1, 1, 1_609_459_200),
            (2049, 12, 31, 2_524_521_600),
            (2050, 1, 1, 2_524_608_000),
            (2096, 2, 29, 3_981_312_000),
        ] {
            let mut params = CertificateParams::new(vec!["a.example".to_owned()]).expect("the name is legal");
            params.not_after = date_time_ymd(year, month, day);
            let key = KeyPair::generate().expect("there is randomness");
            let certificate = params.self_signed(&key).expect("it can be signed");
            assert_eq!(not_after(certificate.der()), Some(expect), "{year}");
            for end in 0..certificate.der().len().min(200) {
                // Whatever is cut off: nothing, or the same.
                assert!(not_after(&certificate.der()[..end]).is_none_or(|found| found == expect));
            }
        }
    }

    #[test]
    fn times() {
        let of = |tag: u8, text: &str| time(tag, text.as_bytes());
        assert_eq!(of(UTC_TIME, "700101000000Z"), Some(0));
        assert_eq!(of(UTC_TIME, "491231235959Z"), of(GENERALIZED_TIME, "20491231235959Z"));
        assert_eq!(of(GENERALIZED_TIME, "20000229010203Z"), Some(951_786_123));
        for bad in ["", "Z", "7001010000Z", "700101000000", "70010100000xZ", "701301000000Z", "\u{e9}00101000000Z"] {
            assert_eq!(of(UTC_TIME, bad), None, "{bad}");
        }
        assert_eq!(of(4, "700101000000Z"), None);
    }
}
