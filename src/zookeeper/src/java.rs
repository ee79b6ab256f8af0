//! Texts as Java's ZooKeeper writes them.

use std::borrow::Cow;

/// Bytes of half a surrogate pair.
const HALF_BYTES: usize = 3;

/// A text. ZooKeeper writes each half of a surrogate pair by itself, in three bytes, which is no UTF-8. Other invalid bytes become
/// U+FFFD, as when Java reads them.
pub(crate) fn text(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let (mut text, mut rest) = (String::new(), bytes);
    while !rest.is_empty() {
        let valid = match str::from_utf8(rest) {
            Ok(valid) => valid.len(),
            Err(error) => error.valid_up_to(),
        };
        text += str::from_utf8(&rest[..valid]).unwrap_or_default();
        rest = &rest[valid..];
        let Some(first) = half(rest) else {
            text.extend((!rest.is_empty()).then_some(char::REPLACEMENT_CHARACTER));
            rest = rest.get(1..).unwrap_or_default();
            continue;
        };
        rest = &rest[HALF_BYTES..];
        let second = half(rest);
        let pair = char::decode_utf16([Some(first), second].into_iter().flatten()).next();
        let whole = pair.and_then(Result::ok);
        text.push(whole.unwrap_or(char::REPLACEMENT_CHARACTER));
        if whole.is_some() {
            rest = &rest[HALF_BYTES..];
        }
    }
    Cow::Owned(text)
}

/// Half a surrogate pair at the beginning of bytes.
fn half(bytes: &[u8]) -> Option<u16> {
    match bytes {
        [0xed, high @ 0xa0..=0xbf, low @ 0x80..=0xbf, ..] => {
            Some(0xd000 | u16::from(high & 0x3f) << 6 | u16::from(low & 0x3f))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surrogate_pairs_are_put_together() {
        let smile = [0xed, 0xa0, 0xbd, 0xed, 0xb8, 0x80];
        assert_eq!(text(b"plain \xc3\xbc"), "plain ü");
        assert_eq!(text(&smile), "😀");
        assert_eq!(text(&[b"a", &smile[..], b":b", &smile[..]].concat()), "a😀:b😀");
        assert_eq!(text(&smile[..3]), "\u{fffd}");
        assert_eq!(text(&[&smile[3..], b"x"].concat()), "\u{fffd}x");
        assert_eq!(text(&[0xff, b'a', 0xc3]), "\u{fffd}a\u{fffd}");
    }
}
