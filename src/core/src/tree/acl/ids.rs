//! Valid ids of an ACL, scheme by scheme, and the addresses that a pattern matches (protocol chapter 17.5).
//!
//! ZooKeeper's providers, and the Java classes below them, take and refuse the same texts, odd ones included. The tests
//! hold their results. Pure functions.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Java's `split(":")` gives two parts: trailing empty parts do not count, the left part may be empty.
pub(super) fn is_digest_id(id: &str) -> bool {
    let trimmed = id.trim_end_matches(':');
    trimmed.matches(':').count() == 1
}

/// A Kerberos principal of at most two components, or any text without `@`.
pub(super) fn is_kerberos_name(id: &str) -> bool {
    let Some((name, realm)) = id.split_once('@') else { return true };
    !realm.contains(['/', '@']) && name.matches('/').count() <= 1
}

/// An address with the number of leading bits that count.
pub(super) fn ip_pattern(id: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = match id.split_once('/') {
        Some((address, bits)) => (address, Some(u8::try_from(bits.parse::<i32>().ok()?).ok()?)),
        None => (id, None),
    };
    let address = ip_address(address)?;
    let width = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.unwrap_or(width);
    (bits <= width).then_some((address, bits))
}

/// Numbers as Java reads them: signs and leading zeros are taken, and `-1` as a group of an IPv6 address is `ffff`.
pub(super) fn ip_address(text: &str) -> Option<IpAddr> {
    if text.contains(':') {
        return ipv6_address(text).map(IpAddr::V6);
    }
    let mut octets = [0; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        *octet = u8::try_from(parts.next()?.parse::<i32>().ok()?).ok()?;
    }
    parts.next().is_none().then_some(IpAddr::V4(Ipv4Addr::from(octets)))
}

fn ipv6_address(text: &str) -> Option<Ipv6Addr> {
    const GROUPS: usize = 8;
    let mut groups = [0_u16; GROUPS];
    let mut halves = text.split("::");
    let (head, tail) = (halves.next()?, halves.next());
    if halves.next().is_some() {
        return None;
    }
    let count = |half: &str| if half.is_empty() { 0 } else { half.split(':').count() };
    let (before, after) = (count(head), tail.map_or(0, count));
    let fits = if tail.is_some() { before + after < GROUPS } else { before == GROUPS };
    if !fits {
        return None;
    }
    let all = head.split(':').take(before).chain(tail.unwrap_or_default().split(':').take(after));
    for (group, place) in all.zip((0..before).chain(GROUPS - after..GROUPS)) {
        if group.len() > 4 {
            return None;
        }
        let [_, _, high, low] = i32::from_str_radix(group, 16).ok()?.to_be_bytes();
        groups[place] = u16::from_be_bytes([high, low]);
    }
    Some(Ipv6Addr::from(groups))
}

/// The attribute types that Java's `X500Principal` knows by name; others are given as object identifiers.
const ATTRIBUTES: [&str; 21] = [
    "CN",
    "C",
    "L",
    "S",
    "ST",
    "O",
    "OU",
    "T",
    "IP",
    "STREET",
    "DC",
    "DNQUALIFIER",
    "DNQ",
    "SURNAME",
    "GIVENNAME",
    "INITIALS",
    "GENERATION",
    "EMAIL",
    "EMAILADDRESS",
    "UID",
    "SERIALNUMBER",
];

/// Whether Java's `X500Principal` reads the text: RFC 2253 and RFC 1779, the empty name included.
pub(super) fn is_distinguished_name(id: &str) -> bool {
    id.is_empty() || pieces(id, &[',', ';']).all(|part| pieces(part, &['+']).all(is_attribute))
}

/// The text between separators that are neither quoted nor escaped.
fn pieces<'t>(text: &'t str, separators: &'t [char]) -> impl Iterator<Item = &'t str> {
    let (mut escaped, mut quoted) = (false, false);
    text.split(move |c: char| {
        let separates = !escaped && !quoted && separators.contains(&c);
        quoted ^= c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        separates
    })
}

fn is_attribute(text: &str) -> bool {
    let Some((kind, value)) = text.split_once('=') else { return false };
    let value = value.trim_start_matches([' ', '\n']);
    is_attribute_type(kind.trim())
        && match value.strip_prefix('#') {
            Some(digits) => is_hex_of_der(digits),
            None => match value.strip_prefix('"') {
                Some(rest) => is_quoted_rest(rest),
                None => is_plain_value(value),
            },
        }
}

fn is_attribute_type(kind: &str) -> bool {
    if ATTRIBUTES.iter().any(|name| name.eq_ignore_ascii_case(kind)) {
        return true;
    }
    let has_prefix = kind.get(..4).is_some_and(|prefix| prefix.eq_ignore_ascii_case("OID."));
    let arcs = if has_prefix { &kind[4..] } else { kind };
    let is_number = |arc: &str| !arc.is_empty() && arc.bytes().all(|digit| digit.is_ascii_digit());
    let mut parts = arcs.split('.');
    let (Some(first), Some(second)) = (parts.next(), parts.next()) else { return false };
    let first = if is_number(first) { first.parse::<u8>().ok() } else { None };
    let root_holds = match first {
        Some(0 | 1) => second.parse::<u8>().is_ok_and(|second| second < 40),
        Some(2) => true,
        _ => false,
    };
    root_holds && is_number(second) && parts.all(is_number)
}

/// Hexadecimal digits of one whole DER value: tag, definite length, content.
fn is_hex_of_der(digits: &str) -> bool {
    let digits = digits.as_bytes();
    if !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return false;
    }
    let octet = |at: usize| -> Option<usize> {
        let pair = digits.get(2 * at..2 * at + 2)?;
        usize::from_str_radix(core::str::from_utf8(pair).ok()?, 16).ok()
    };
    let Some(short) = octet(1) else { return false };
    let (content, start) = if short < 0x80 {
        (Some(short), 2)
    } else {
        let width = short - 0x80;
        let length = (0..width).try_fold(0_usize, |length, at| Some(length << 8 | octet(2 + at)?));
        (length.filter(|_| (1..=4).contains(&width)), 2 + width)
    };
    content.is_some_and(|content| start + content == digits.len() / 2)
}

/// Whether a text is the rest of a quoted one: up to the closing quote, then only blanks.
fn is_quoted_rest(text: &str) -> bool {
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => return chars.as_str().trim_start_matches([' ', '\n']).is_empty(),
            '\\' if !takes_escape(&mut chars, ",=\n+<>#;\\\"") => return false,
            _ => {}
        }
    }
    false
}

fn is_plain_value(text: &str) -> bool {
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' if !takes_escape(&mut chars, ",=\n+<>#;\\\" ") => return false,
            ',' | '+' | '<' | '>' | ';' | '"' => return false,
            _ => {}
        }
    }
    true
}

/// Takes what follows a backslash: two hexadecimal digits, or one of the `special` characters.
fn takes_escape(chars: &mut core::str::Chars<'_>, special: &str) -> bool {
    match chars.next() {
        Some(c) if c.is_ascii_hexdigit() => chars.next().is_some_and(|c| c.is_ascii_hexdigit()),
        Some(c) => special.contains(c),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(is_valid: impl Fn(&str) -> bool, good: &[&str], bad: &[&str]) {
        for id in good {
            assert!(is_valid(id), "{id:?} is refused");
        }
        for id in bad {
            assert!(!is_valid(id), "{id:?} is taken");
        }
    }

    #[test]
    fn digest_ids() {
        check(is_digest_id, &["a:b", ":b", "a:b:"], &["a:", "a", "a:b:c", "a::b", ":", "::", ""]);
    }

    #[test]
    fn addresses() {
        let good = [
            "1.2.3.4",
            "+1.2.3.4",
            "01.2.3.4",
            "001.2.3.4",
            "1.2.3.-0",
            "10.0.0.0/8",
            "10.0.0.0/08",
            "10.0.0.0/+8",
            "10.0.0.0/-0",
            "::1",
            "::1/128",
            "::1/0",
            "::",
            "1:2:3:4:5:6:7:8",
            "1:2:3:4:5:6:7::",
            "::-1",
            "::+f",
            "::ffff:0102:0304",
        ];
        let bad = [
            "1.2.3",
            "1.2.3.4.",
            "1.2.3.256",
            "1.2.3.",
            "10.0.0.0/",
            "10.0.0.0/33",
            "10.0.0.0/8/8",
            "::1/",
            "::1/129",
            ":::",
            "1::2::3",
            "1:2:3:4:5:6:7",
            "1:2:3:4:5:6:7:8::",
            "::ffff:1.2.3.4",
            "fe80::1%1",
            "fe80::1%eth0",
            "::12345",
            "::g",
            ":1",
            "a:",
            "x",
            "",
            "/8",
            "1.2.3.4%1",
            " 1.2.3.4",
            "localhost",
        ];
        check(|id| ip_pattern(id).is_some(), &good, &bad);
    }

    #[test]
    fn kerberos_names() {
        let good = ["", "a", "a/b", "a/b@C", "a@C", "a/b/c", "@", "@C", "a/@C", "a@", "super"];
        check(is_kerberos_name, &good, &["a/b/c@D", "a@b@c", "a@b/c"]);
    }

    const NAMES: &[&str] = &[
        "",
        "CN=a",
        "cn=a,o=b",
        "CN=a;O=b",
        "CN=a+O=b,C=DE",
        "CN=",
        "CN= a",
        "CN =a",
        " CN = a , O = b ",
        "1.2.3=a",
        "OID.1.2.3=a",
        "oid.1.2.3=a",
        "1.2=a",
        "2.999=a",
        "01.2=a",
        "1.02=a",
        "CN=\"a, b\"",
        "CN=\"a\" ",
        "CN=a\\\"b",
        "CN=a\\,b",
        "CN=a\\41",
        "CN=a\\ff",
        "CN=\\ a",
        "CN=#0401ff",
        "CN=#0c0161",
        "CN=#0500",
        "CN=a#b",
        "CN=a=b",
        "CN==b",
        "CN=\u{e9}",
        "CN=\"a\\\"b\"",
        "CN=\"a+b\",O=c",
        "CN=\"a=b<c>#\"",
        "C=Germany",
        "EMAIL=\u{e9}",
        "CN=a\\+b",
        "CN=a  b",
        "CN=\"#0401\"",
        "CN=\"\"",
        "CN=\" \"",
        "CN=\n a",
        "CN=a\n",
        "2.5.4.3 = a",
        "1.2.99999999999999999999=a",
        "CN=a/b",
        "CN=a\\20",
        "CN=\"a\\41b\"",
        "CN=a\\C4\\8D",
        "S=y,ST=z,L=q,T=x,IP=h",
        "STREET=e,DC=r,DNQ=t,DNQUALIFIER=u,SURNAME=i,GIVENNAME=o,INITIALS=p,GENERATION=a,EMAILADDRESS=d,UID=f",
    ];

    const NO_NAMES: &[&str] = &[
        "a",
        "=a",
        "CN=a,",
        ",CN=a",
        "CN=a,,O=b",
        "FOO=a",
        "1=a",
        "1.=a",
        "3.1=a",
        "1.40=a",
        "1..2=a",
        "1.2.x=a",
        "CN=\"a",
        "CN=\"a\" x",
        "CN=a\"b",
        "CN=a\\zb",
        "CN=a\\",
        "CN=a\\4",
        "CN=#04",
        "CN=#",
        "CN=#040",
        "CN=#zz",
        "CN=#0c0261",
        "CN=a<b",
        "CN=a>b",
        "CN=a+",
        "CN=a+O",
        "SN=a",
        "USERID=a",
        "TITLE=a",
        "STREETADDRESS=x",
        "GN=x",
        "CN=\"a\\zb\"",
        "CN=#0c01610",
        "OID. 2.5.4.3=a",
        "9223372036854775808.1=a",
        "CN=#040100 ",
        "CN=a\",b\"",
        " ",
        "OID.=a",
        "CN=#0480",
        "CN=#04ffffffffffffffffff",
    ];

    #[test]
    fn distinguished_names() {
        check(is_distinguished_name, NAMES, NO_NAMES);
    }
}
