//! Java's properties format, which `zoo.cfg` is written in: text to keys and values, each with its line.
//!
//! Pure, start-up only. It does not know any key. It follows `java.util.Properties.load`: comments with `#` or `!`,
//! lines continued by a backslash, and `=`, `:` or white space between key and value. It knows the escapes `\t \n \r \f
//! \uXXXX`.

use std::collections::BTreeMap;

use crate::config::value::{Rejection, shortened};

/// One key and value. The value has no white space at its ends, as ZooKeeper trims it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Property {
    pub(crate) key: String,
    pub(crate) value: String,
    /// The first line of the entry, counted from 1.
    pub(crate) line: u32,
}

/// Values and lines of keys that are judged together.
pub(crate) type Keys = BTreeMap<String, (String, u32)>;

impl Property {
    /// Adds this one to keys that are judged together.
    pub(crate) fn gather(&self, keys: &mut Keys) {
        keys.insert(self.key.clone(), (self.value.clone(), self.line));
    }
}

/// An escape that is none, and its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a \\u is not followed by four hexadecimal digits")]
pub(crate) struct BadEscape {
    pub(crate) line: u32,
}

/// All entries in file order, doubles included.
///
/// # Errors
/// A `\u` that four hexadecimal digits do not follow; Java refuses the file too.
pub(crate) fn parse(text: &str) -> Result<Vec<Property>, BadEscape> {
    let mut properties = Vec::new();
    let mut lines = natural_lines(text).zip(1_u32..);
    while let Some((first, line)) = lines.next() {
        let first = first.trim_start_matches(is_space);
        if first.is_empty() || first.starts_with(['#', '!']) {
            continue;
        }
        let mut logical = first.to_owned();
        let mut part = first;
        // Earlier parts end in an even number of backslashes, so only the last part needs a look.
        while ends_in_continuation(part) {
            logical.pop();
            let Some((next, _)) = lines.next() else { break };
            part = next.trim_start_matches(is_space);
            logical.push_str(part);
        }
        let (key, value) = split(&logical);
        let unescape = |part: &str| unescaped(part).ok_or(BadEscape { line });
        properties.push(Property { key: unescape(key)?, value: unescape(value)?.trim().to_owned(), line });
    }
    Ok(properties)
}

/// White space of the format; other Unicode spaces are text.
fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\x0c')
}

/// Lines that end in `\n`, `\r` or `\r\n`.
fn natural_lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let Some(end) = text.find(['\n', '\r']) else {
            rest = None;
            return Some(text);
        };
        let (line, after) = text.split_at(end);
        rest = Some(after.strip_prefix("\r\n").unwrap_or_else(|| &after[1..]));
        Some(line)
    })
}

/// Whether an odd number of backslashes ends the line.
fn ends_in_continuation(line: &str) -> bool {
    line.bytes().rev().take_while(|&byte| byte == b'\\').count() % 2 == 1
}

/// Key and value of a logical line, both still escaped.
fn split(line: &str) -> (&str, &str) {
    let mut escaped = false;
    let end = line.find(|c: char| {
        let ends = !escaped && (c == '=' || c == ':' || is_space(c));
        escaped = c == '\\' && !escaped;
        ends
    });
    let (key, rest) = line.split_at(end.unwrap_or(line.len()));
    let rest = rest.trim_start_matches(is_space);
    let rest = rest.strip_prefix(['=', ':']).unwrap_or(rest);
    (key, rest.trim_start_matches(is_space))
}

/// The text without its escapes; `None` if four hexadecimal digits do not follow a `\u`.
fn unescaped(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('t') => out.push('\t'),
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('f') => out.push('\x0c'),
            Some('u') => {
                let digits: String = chars.by_ref().take(4).collect();
                let code = u32::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 4 && !digits.contains('+'));
                out.push(char::from_u32(code?).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            Some(other) => out.push(other),
            None => {}
        }
    }
    Some(out)
}

/// A whole number as Java's `Integer.decode` and `Long.decode` read one.
///
/// # Errors
/// Any other text.
pub(crate) fn whole(value: &str) -> Result<i64, Rejection> {
    let refused = || Rejection::new(format!("{:?} is no whole number", shortened(value)), "give a whole number");
    let (negative, digits) = match value.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, value.strip_prefix('+').unwrap_or(value)),
    };
    let (digits, radix) = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (digits, 10),
    };
    if digits.starts_with(['+', '-']) {
        return Err(refused());
    }
    let number = i64::from_str_radix(digits, radix).map_err(|_| refused())?;
    Ok(if negative { -number } else { number })
}

/// The items of a list with commas, without the empty ones.
pub(crate) fn items(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim).filter(|item| !item.is_empty())
}

/// A truth value: `true` or `yes`, `false` or `no`.
///
/// # Errors
/// Any other text.
pub(crate) fn flag(value: &str) -> Result<bool, Rejection> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "yes" => Ok(true),
        "false" | "no" => Ok(false),
        _ => Err(Rejection::new(format!("{:?} is neither true nor false", shortened(value)), "give true or false")),
    }
}

/// A port.
///
/// # Errors
/// Any other text.
pub(crate) fn port(value: &str) -> Result<u16, Rejection> {
    let number = whole(value)?;
    u16::try_from(number).map_err(|_| Rejection::new(format!("{number} is no port"), "give a port from 1 to 65535"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: &[(&str, &str, u32)]) {
        let properties = parse(text).expect("the text has no bad escape");
        let shown: Vec<_> = properties.iter().map(|p| (p.key.as_str(), p.value.as_str(), p.line)).collect();
        assert_eq!(shown, expect);
    }

    #[test]
    fn lines_comments_and_separators() {
        check("", &[]);
        check("a=1\nb:2\nc 3\nd\te\n", &[("a", "1", 1), ("b", "2", 2), ("c", "3", 3), ("d", "e", 4)]);
        check("  a =  1  \n\n# x=1\n\t! y=2 \\\nb = c = d", &[("a", "1", 1), ("b", "c = d", 5)]);
        check("a\nb=\n=c\n", &[("a", "", 1), ("b", "", 2), ("", "c", 3)]);
        check("a=1\r\nb=2\rc=3", &[("a", "1", 1), ("b", "2", 2), ("c", "3", 3)]);
        check("a==1\na : = 1", &[("a", "=1", 1), ("a", "= 1", 2)]);
        check("pfad=/ä/ö\u{a0}", &[("pfad", "/ä/ö", 1)]);
    }

    #[test]
    fn continuations() {
        check("a=1\\\\\\\n\\\nb", &[("a", "1\\b", 1)]);
        check("a=1,\\\n   2,\\\r\n3\nb=4", &[("a", "1,2,3", 1), ("b", "4", 4)]);
        check("a=1\\\\\nb=2", &[("a", "1\\", 1), ("b", "2", 2)]);
        check("a=1\\", &[("a", "1", 1)]);
        check("a=1\\\n# no comment", &[("a", "1# no comment", 1)]);
    }

    #[test]
    fn escapes() {
        check("a\\=b\\:c\\ d=\\u0041\\t\\q\\\\", &[("a=b:c d", "A\tq\\", 1)]);
        check("a=\\ud800", &[("a", "\u{fffd}", 1)]);
        for bad in ["\\u12", "\\u00g0", "\\u+123", "\\u"] {
            let error = parse(&format!("x=1\na={bad}")).expect_err(bad);
            assert_eq!(error.line, 2);
        }
    }
}
