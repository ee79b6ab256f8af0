//! The texts of limits and usage: `count=N,bytes=M`, then other keys, sorted (ZooKeeper's `StatsTrack`). Absent is -1.
//!
//! One transaction reads thousands of these texts, each with as many keys as a client put into it. So the numbers that quotas know
//! are read without an allocation, and the other keys are kept as they are written: as text.

use crate::shared::Text;
use alloc::vec::Vec;
use core::str;
use smallvec::SmallVec;

const COUNT: &[u8] = b"count";
const BYTES: &[u8] = b"bytes";
const COUNT_HARD: &[u8] = b"countHardLimit";
const BYTES_HARD: &[u8] = b"byteHardLimit";
/// 1 while the subtree is being counted. ZooKeeper's clients read over what they do not know.
const COUNTING: &[u8] = b"counting";
/// Most texts have no more keys besides.
const KEYS: usize = 64;
/// Decimal digits that every `i64` has room for.
const DIGITS: usize = 18;

/// The quantity that a quota limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// The number of znodes: `count` in ZooKeeper's quota texts.
    Znodes,
    /// Bytes of the data of all znodes: `bytes` in ZooKeeper's quota texts.
    Bytes,
}

/// A write that goes, or would have gone, beyond a quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaExceeded {
    /// The root of the subtree.
    pub path: Text,
    /// The quantity that `usage` and `limit` are of.
    pub of: Measure,
    /// The usage of the subtree, or the usage that it would have had.
    pub usage: i64,
    /// The limit, in znodes or bytes.
    pub limit: i64,
    /// Whether it is a hard limit, which refuses writes if quotas are enforced.
    pub hard: bool,
    /// Whether the write was refused.
    pub refused: bool,
}

/// The numbers of a text that quotas know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbers {
    pub(super) znodes: i64,
    pub(super) bytes: i64,
    znodes_hard: i64,
    bytes_hard: i64,
    counting: i64,
}

impl Default for Numbers {
    fn default() -> Self {
        Self { znodes: -1, bytes: -1, znodes_hard: -1, bytes_hard: -1, counting: -1 }
    }
}

impl Numbers {
    /// Of a text that is no longer than this; of a longer one, or none, all are absent.
    pub(super) fn parse(text: Option<&[u8]>, bytes_max: usize) -> Self {
        let mut numbers = Self::default();
        pairs(readable(text, bytes_max)).for_each(|(key, value)| numbers.take(key, value));
        numbers
    }

    fn take(&mut self, key: &[u8], value: &[u8]) {
        let place = match key {
            COUNT => &mut self.znodes,
            BYTES => &mut self.bytes,
            COUNT_HARD => &mut self.znodes_hard,
            BYTES_HARD => &mut self.bytes_hard,
            COUNTING => &mut self.counting,
            _ => return,
        };
        *place = number(value);
    }

    pub(super) fn is_uncounted(&self) -> bool {
        self.counting == 1
    }

    pub(super) fn plus(self, znodes: i64, bytes: i64) -> Self {
        Self { znodes: self.znodes.saturating_add(znodes), bytes: self.bytes.saturating_add(bytes), ..self }
    }

    /// The first of these limits that the usage is beyond. A hard limit hides the soft one.
    pub(super) fn exceeded(&self, path: &Text, usage: &Self, znodes: bool, bytes: bool) -> Option<QuotaExceeded> {
        let beyond = |of, used: i64, hard: i64, soft: i64| {
            let (limit, hard) = match (hard, soft) {
                (limit, _) if limit > -1 => (limit, true),
                (_, limit) if limit > -1 => (limit, false),
                _ => return None,
            };
            (used > limit).then(|| QuotaExceeded { path: path.clone(), of, usage: used, limit, hard, refused: false })
        };
        let of_znodes = znodes.then(|| beyond(Measure::Znodes, usage.znodes, self.znodes_hard, self.znodes)).flatten();
        let of_bytes = || bytes.then(|| beyond(Measure::Bytes, usage.bytes, self.bytes_hard, self.bytes)).flatten();
        match of_znodes {
            // A soft limit of one does not keep the hard limit of the other from being seen.
            Some(first) if !first.hard => of_bytes().filter(|second| second.hard).or(Some(first)),
            Some(first) => Some(first),
            None => of_bytes(),
        }
    }
}

/// The usage of a subtree, with all other keys of its text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) numbers: Numbers,
    /// All keys but those of the two numbers that are accounted, sorted: `;key=value` for each.
    others: Vec<u8>,
}

impl Usage {
    /// As [`Numbers::parse`].
    pub(super) fn parse(text: Option<&[u8]>, bytes_max: usize) -> Self {
        let text = readable(text, bytes_max);
        let mut usage = Self::default();
        let mut others: SmallVec<[(&[u8], &[u8]); KEYS]> = SmallVec::new();
        for (key, value) in pairs(text) {
            usage.numbers.take(key, value);
            if key != COUNT && key != BYTES {
                others.push((key, value));
            }
        }
        // Stable: of values for one key the last one counts.
        if !others.is_sorted_by(|(one, _), (next, _)| one < next) {
            others.sort_by_key(|(key, _)| *key);
        }
        usage.others.reserve_exact(if others.is_empty() { 0 } else { text.len() });
        for (at, (key, value)) in others.iter().enumerate() {
            if others.get(at + 1).is_none_or(|(next, _)| next != key) {
                usage.add_other(key, value);
            }
        }
        usage
    }

    fn add_other(&mut self, key: &[u8], value: &[u8]) {
        self.others.push(b';');
        self.others.extend_from_slice(key);
        self.others.push(b'=');
        if is_plain(value) {
            self.others.extend_from_slice(value);
        } else {
            push_number(&mut self.others, number(value));
        }
    }

    /// Of so many znodes and bytes, and nothing else.
    pub(super) fn of(znodes: i64, bytes: i64) -> Self {
        Self { numbers: Numbers { znodes, bytes, ..Numbers::default() }, others: Vec::new() }
    }

    /// Nothing as yet, with the mark of a subtree that is yet to be counted.
    pub(super) fn uncounted() -> Self {
        let mut usage = Self::of(0, 0);
        usage.numbers.counting = 1;
        usage.add_other(COUNTING, b"1");
        usage
    }

    /// The mark of a subtree that is yet to be counted is taken off.
    pub(super) fn is_counted(&mut self) {
        let marked = core::mem::take(&mut self.others);
        self.numbers.counting = -1;
        pairs(&marked).filter(|(key, _)| *key != COUNTING).for_each(|(key, value)| self.add_other(key, value));
    }

    pub(super) fn text(&self) -> Vec<u8> {
        let mut text = Vec::with_capacity(self.text_bytes());
        text.extend_from_slice(COUNT);
        text.push(b'=');
        push_number(&mut text, self.numbers.znodes);
        text.push(b',');
        text.extend_from_slice(BYTES);
        text.push(b'=');
        push_number(&mut text, self.numbers.bytes);
        if !self.others.is_empty() {
            // The odd sign keeps readers of versions before hard limits from failing at the rest.
            text.push(b'=');
            text.extend_from_slice(&self.others);
        }
        text
    }

    /// Bytes of the text.
    pub(super) fn text_bytes(&self) -> usize {
        let digits = |number: i64| number.unsigned_abs().checked_ilog10().unwrap_or(0) as usize + 1;
        let numbers = [self.numbers.znodes, self.numbers.bytes];
        let numbers: usize = numbers.map(|number| digits(number) + usize::from(number < 0)).iter().sum();
        let others = if self.others.is_empty() { 0 } else { 1 + self.others.len() };
        COUNT.len() + BYTES.len() + 3 + numbers + others
    }
}

/// A text that is short enough to be read, and is text.
fn readable(text: Option<&[u8]>, bytes_max: usize) -> &[u8] {
    text.filter(|text| text.len() <= bytes_max && str::from_utf8(text).is_ok()).unwrap_or_default()
}

/// Keys and values of a text.
fn pairs(text: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    text.split(|byte| matches!(byte, b',' | b';')).filter_map(|pair| {
        let mut parts = pair.split(|byte| *byte == b'=');
        Some((parts.next()?, parts.next()?))
    })
}

fn number(value: &[u8]) -> i64 {
    str::from_utf8(value).ok().and_then(|value| value.parse().ok()).unwrap_or(-1)
}

/// Whether a value is written as its number is.
fn is_plain(value: &[u8]) -> bool {
    value == b"0" || (1..=DIGITS).contains(&value.len()) && value[0] != b'0' && value.iter().all(u8::is_ascii_digit)
}

fn push_number(text: &mut Vec<u8>, number: i64) {
    let mut digits = [0; DIGITS + 2];
    let (mut at, mut left) = (digits.len(), number.unsigned_abs());
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(left % 10).unwrap_or_default();
        left /= 10;
        if left == 0 {
            break;
        }
    }
    if number < 0 {
        text.push(b'-');
    }
    text.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use alloc::format;
    use alloc::string::String;
    use alloc::vec;
    use core::fmt::Write as _;
    use proptest::prelude::*;

    const MAX: usize = 256;

    /// The text as a map of all its keys, which is what it means.
    #[derive(Default)]
    struct Model(BTreeMap<String, i64>);

    impl Model {
        fn parse(text: &[u8]) -> Self {
            let text = Some(text).filter(|text| text.len() <= MAX).and_then(|text| str::from_utf8(text).ok());
            let mut values = BTreeMap::new();
            for pair in text.unwrap_or_default().split([',', ';']) {
                let mut parts = pair.split('=');
                if let (Some(key), Some(value)) = (parts.next(), parts.next()) {
                    values.insert(String::from(key), value.parse().unwrap_or(-1));
                }
            }
            Self(values)
        }

        fn get(&self, key: &str) -> i64 {
            self.0.get(key).copied().unwrap_or(-1)
        }

        fn numbers(&self) -> Numbers {
            Numbers {
                znodes: self.get("count"),
                bytes: self.get("bytes"),
                znodes_hard: self.get("countHardLimit"),
                bytes_hard: self.get("byteHardLimit"),
                counting: self.get("counting"),
            }
        }

        fn text(&self) -> String {
            let mut text = format!("count={},bytes={}", self.get("count"), self.get("bytes"));
            let others: Vec<_> = self.0.iter().filter(|(key, _)| *key != "count" && *key != "bytes").collect();
            if !others.is_empty() {
                text.push('=');
            }
            for (key, value) in others {
                write!(text, ";{key}={value}").expect("a string takes everything");
            }
            text
        }
    }

    fn key() -> impl Strategy<Value = String> {
        let known = vec!["count", "bytes", "countHardLimit", "byteHardLimit", "counting", ""];
        prop_oneof![3 => proptest::sample::select(known).prop_map(String::from), 4 => "[a-cé\u{0}]{0,2}"]
    }

    fn value() -> impl Strategy<Value = String> {
        prop_oneof![
            4 => any::<i64>().prop_map(|number| format!("{number}")),
            4 => (-2..12_i64).prop_map(|number| format!("{number}")),
            2 => "[+-]?0{0,2}[0-9]{0,20}",
            1 => Just(String::from("counting")),
            1 => "[é1 ]{0,2}",
        ]
    }

    fn text() -> impl Strategy<Value = Vec<u8>> {
        let pair = (key(), "={0,2}", value(), "[,;=]{1,2}");
        let pairs =
            proptest::collection::vec(pair.prop_map(|(key, is, value, end)| format!("{key}{is}{value}{end}")), 0..20);
        prop_oneof![9 => pairs.prop_map(|pairs| pairs.concat().into_bytes()), 1 => proptest::collection::vec(any::<u8>(), 0..40)]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_text_means_what_its_map_of_keys_does(text in text(), znodes in any::<i64>(), bytes in any::<i64>()) {
            let mut model = Model::parse(&text);
            let mut usage = Usage::parse(Some(&text), MAX);
            prop_assert_eq!(usage.numbers, model.numbers());
            prop_assert_eq!(usage.numbers, Numbers::parse(Some(&text), MAX));
            usage.numbers = usage.numbers.plus(znodes, bytes);
            for (key, more) in [("count", znodes), ("bytes", bytes)] {
                model.0.insert(String::from(key), model.get(key).saturating_add(more));
            }
            prop_assert_eq!(String::from_utf8(usage.text()).expect("text"), model.text());
            prop_assert_eq!(usage.text_bytes(), model.text().len());
            usage.is_counted();
            model.0.remove("counting");
            prop_assert_eq!(String::from_utf8(usage.text()).expect("text"), model.text());
            prop_assert_eq!(usage.numbers, model.numbers());
        }
    }

    #[test]
    fn numbers_as_they_are_written() {
        for number in [0, 7, -1, 10, -10, i64::MAX, i64::MIN] {
            let mut text = Vec::new();
            push_number(&mut text, number);
            assert_eq!(text, format!("{number}").as_bytes());
        }
    }
}
