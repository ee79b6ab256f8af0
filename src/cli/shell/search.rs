//! The verbs that only look at a subtree: `tree`, `du` and `find`.

use std::cmp::Reverse;

use corral_client::Stat;
use corral_core::path;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cli::output::plain;
use crate::cli::shell::paths::{check, usage};
use crate::cli::shell::scan::{Found, Scan, Wants};
use crate::cli::shell::screen::{Screen, data_json, stat_json};
use crate::cli::shell::znodes::Call;
use crate::exit::{ExitCode, Fault};

/// Characters of data in a line of `tree`.
const DATA_CHARS_MAX: usize = 60;

/// Gives each znode of the call's subtree on. Unreadable ones are named on standard error, and make the result a fault.
async fn each(call: &Call<'_>, wants: Wants, mut take: impl FnMut(Found)) -> Result<(), Fault> {
    check(call.path())?;
    let mut scan = Scan::new(call.client, call.path(), wants);
    let mut result = Ok(());
    loop {
        match scan.next().await {
            Ok(Some(found)) => take(found),
            Ok(None) => return result,
            Err(fault) if fault.code == ExitCode::NotPermitted => {
                call.screen.error(&fault.sentence);
                result = Err(Fault { sentence: String::new(), ..fault });
            }
            Err(fault) => return Err(fault),
        }
    }
}

/// The number behind an option.
fn number(call: &Call<'_>, option: &str) -> Result<Option<usize>, Fault> {
    let wrong = |_| usage(&format!("-{option} must be a number from 0 on"));
    call.words.value(option).map(|text| text.parse().map_err(wrong)).transpose()
}

fn bytes(stat: &Stat) -> u64 {
    u64::try_from(stat.data_length).unwrap_or_default()
}

fn record(found: &Found, with_data: bool) -> Value {
    let mut value = if with_data { data_json(found.data.as_deref()) } else { json!({}) };
    value["path"] = json!(found.path);
    value["stat"] = stat_json(&found.stat);
    value
}

pub(super) async fn tree(call: &Call<'_>) -> Result<(), Fault> {
    let with_data = call.words.has("d");
    let wants = Wants { data: with_data, depth: number(call, "L")?, ..Wants::default() };
    // Whether the current znode of each level is the last of its siblings.
    let (mut lasts, mut count, mut sum) = (Vec::new(), 0_u64, 0);
    call.screen.begin_list();
    let result = each(call, wants, |found| {
        (count, sum) = (count + 1, sum + bytes(&found.stat));
        lasts.truncate(found.depth);
        lasts.push(found.is_last);
        call.screen.show(|| line(call.screen, &found, &lasts, with_data), || record(&found, with_data));
    })
    .await;
    if count > 0 {
        call.screen.note(&format!("\n{count} znodes, {sum} bytes of data"));
    }
    result
}

/// A line of `tree`.
fn line(screen: &Screen, found: &Found, lasts: &[bool], with_data: bool) -> String {
    let mut line = String::new();
    for (level, is_last) in lasts.iter().enumerate().skip(1) {
        line += match (level == found.depth, is_last) {
            (false, false) => "│   ",
            (false, true) => "    ",
            (true, false) => "├── ",
            (true, true) => "└── ",
        };
    }
    line += &screen.name(if found.depth == 0 { &found.path } else { path::name(&found.path) });
    if let Some(data) = found.data.as_deref().filter(|data| with_data && !data.is_empty()) {
        // A character has four bytes at most.
        let text = String::from_utf8_lossy(&data[..data.len().min(DATA_CHARS_MAX * 4)]).into_owned();
        let shown: String = text.chars().take(DATA_CHARS_MAX).collect();
        let is_cut = shown.len() < text.len() || data.len() > DATA_CHARS_MAX * 4;
        line += &format!("  {}{}", plain(&shown), if is_cut { "..." } else { "" });
    }
    line + "\n"
}

/// A line of `du`.
struct Usage {
    path: String,
    znodes: u64,
    bytes: u64,
}

pub(super) async fn du(call: &Call<'_>) -> Result<(), Fault> {
    let most = number(call, "L")?.unwrap_or(1);
    // The lines of the znodes above the current one.
    let (mut lines, mut above) = (Vec::<Usage>::new(), Vec::new());
    let result = each(call, Wants::default(), |found| {
        above.truncate(found.depth);
        let bytes = bytes(&found.stat);
        if found.depth <= most {
            above.push(lines.len());
            lines.push(Usage { path: found.path, znodes: 0, bytes: 0 });
        }
        for at in &above {
            lines[*at].znodes += 1;
            lines[*at].bytes += bytes;
        }
    })
    .await;
    lines.sort_by(|one, other| {
        let key = |line: &Usage| (Reverse(line.bytes), Reverse(line.znodes));
        key(one).cmp(&key(other)).then_with(|| one.path.cmp(&other.path))
    });
    call.screen.begin_list();
    if !lines.is_empty() {
        call.screen.note(&format!("{:>14} {:>10}  path", "bytes", "znodes"));
    }
    for Usage { path, znodes, bytes } in &lines {
        let text = || format!("{bytes:>14} {znodes:>10}  {}\n", call.screen.name(path));
        call.screen.show(text, || json!({"path": path, "znodes": znodes, "bytes": bytes}));
    }
    result
}

/// The conditions of a `find`.
struct Conditions<'a> {
    name: Option<&'a str>,
    value: Option<&'a str>,
    size: Option<Range>,
    age: Option<Range>,
    owner: Option<i64>,
    is_ephemeral: Option<bool>,
}

/// Numbers that an option such as `+N`, `-N` or `N` allows.
#[derive(Clone, Copy)]
enum Range {
    Above(i64),
    Below(i64),
    Equal(i64),
}

impl Range {
    fn parse(text: &str) -> Option<Range> {
        let (range, digits): (fn(i64) -> Range, &str) = match text.as_bytes().first()? {
            b'+' => (Range::Above, &text[1..]),
            b'-' => (Range::Below, &text[1..]),
            _ => (Range::Equal, text),
        };
        // A sign more is no number.
        let digits = Some(digits).filter(|digits| digits.starts_with(|one: char| one.is_ascii_digit()))?;
        digits.parse::<u32>().ok().map(|number| range(number.into()))
    }

    fn holds(self, number: i64) -> bool {
        match self {
            Range::Above(limit) => number > limit,
            Range::Below(limit) => number < limit,
            Range::Equal(limit) => number == limit,
        }
    }
}

impl<'a> Conditions<'a> {
    fn of(call: &'a Call<'_>) -> Result<Conditions<'a>, Fault> {
        let value = |option: &str| call.words.value(option);
        let wrong = |sentence: &'static str| move || usage(sentence);
        let range = |text: &str| Range::parse(text).ok_or_else(wrong("-size and -age are followed by +N, -N or N"));
        let session = |text: &str| session(text).ok_or_else(wrong("-owner must be a session such as 0x100012"));
        let kind = |text: &str| match text {
            "e" => Ok(true),
            "p" => Ok(false),
            _ => Err(usage("-type must be p for persistent, or e for ephemeral")),
        };
        Ok(Conditions {
            name: value("name"),
            value: value("value"),
            size: value("size").map(range).transpose()?,
            age: value("age").map(range).transpose()?,
            owner: value("owner").map(session).transpose()?,
            is_ephemeral: value("type").map(kind).transpose()?,
        })
    }

    fn hold(&self, found: &Found, now_ms: i64) -> bool {
        let (stat, data) = (&found.stat, found.data.as_deref().unwrap_or_default());
        self.name.is_none_or(|glob| fits(glob, path::name(&found.path)))
            && self.value.is_none_or(|text| contains(data, text.as_bytes()))
            && self.size.is_none_or(|range| range.holds(stat.data_length.into()))
            && self.age.is_none_or(|range| range.holds(now_ms.saturating_sub(stat.mtime) / 1000))
            && self.owner.is_none_or(|owner| owner == stat.ephemeral_owner)
            && self.is_ephemeral.is_none_or(|wanted| wanted == found.is_ephemeral())
    }
}

/// The id of a session, hexadecimal with 0x as the Stat shows it, or decimal.
fn session(text: &str) -> Option<i64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok().map(u64::cast_signed),
        None => text.parse().ok(),
    }
}

fn contains(data: &[u8], text: &[u8]) -> bool {
    text.is_empty() || data.windows(text.len()).any(|part| part == text)
}

/// Whether a name fits a pattern: `*` stands for any characters, `?` for one.
fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    // Behind the last star, and how much of the name is in front of that.
    let (mut at, mut from, mut star) = (0, 0, None);
    while from < name.len() {
        match (pattern.get(at), star) {
            (Some('*'), _) => {
                at += 1;
                star = Some((at, from));
            }
            (Some(one), _) if *one == '?' || *one == name[from] => (at, from) = (at + 1, from + 1),
            (_, Some((behind, taken))) => {
                star = Some((behind, taken + 1));
                (at, from) = (behind, taken + 1);
            }
            (_, None) => return false,
        }
    }
    pattern[at..].iter().all(|one| *one == '*')
}

pub(super) async fn find(call: &Call<'_>) -> Result<(), Fault> {
    let conditions = Conditions::of(call)?;
    let wants = Wants { data: conditions.value.is_some(), depth: number(call, "depth")?, ..Wants::default() };
    let now_ms = Timestamp::now().as_millisecond();
    call.screen.begin_list();
    each(call, wants, |found| {
        if conditions.hold(&found, now_ms) {
            call.screen.show(|| format!("{}\n", call.screen.name(&found.path)), || record(&found, false));
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_names() {
        for (pattern, name) in
            [("*", ""), ("*", "a"), ("a?c", "abc"), ("*-1*", "x-1-10"), ("a*b*c", "a1b2b3c"), ("é?", "é*")]
        {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("", "a"), ("?", ""), ("a", "ab"), ("a*b", "abc"), ("*x", "xy")] {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
        assert!(!fits(&"*a".repeat(2000), &"a".repeat(1999)), "needs no exponential time");
    }

    #[test]
    fn ranges_of_numbers() {
        let holds = |text: &str, number| Range::parse(text).map(|range| range.holds(number));
        assert_eq!(
            (holds("+5", 6), holds("+5", 5), holds("-5", 4), holds("5", 5)),
            (Some(true), Some(false), Some(true), Some(true))
        );
        assert_eq!((holds("", 1), holds("+", 1), holds("++1", 1), holds("é", 1)), (None, None, None, None));
    }

    #[test]
    fn sessions_as_the_stat_shows_them() {
        assert_eq!(
            (session("0x10"), session("16"), session("0xffffffffffffffff"), session("x")),
            (Some(16), Some(16), Some(-1), None)
        );
    }
}
