//! Paths: what is a legal one, and how to take one apart (protocol chapter 8).

use alloc::string::String;

/// The root.
pub const ROOT: &str = "/";

/// Stands for a null path where ZooKeeper comes as far as to look at it. Never valid, so no znode has it.
pub const NULL: &str = "\0null";

/// Paths that can never be deleted.
pub const UNDELETABLE: [&str; 4] = ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"];

/// ZooKeeper's `PathUtils.validatePath`: the full rules, for create (after the sequence suffix), setData, setACL, check.
pub fn is_valid(path: &str) -> bool {
    let bytes = path.as_bytes();
    if !matches!(bytes, [b'/', ..]) {
        return false;
    }
    // Two loops: the second one handles many bytes at once.
    let mut slashes = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    if path != ROOT && !slashes.all(|(at, _)| begins_with_component(&bytes[at + 1..])) {
        return false;
    }
    is_legal(path)
}

/// As [`is_valid`], of a path with this last component. The parent exists, so its path is valid: only the name is looked at.
pub(crate) fn is_valid_child(path: &str, name: &str) -> bool {
    // The root is its own parent. It is also that of a path with two slashes at its beginning.
    let is_valid = path == ROOT || (!matches!(name, "" | "." | "..") && !path.starts_with("//") && is_legal(name));
    debug_assert!(is_valid == self::is_valid(path), "the parent of {path:?} exists");
    is_valid
}

fn is_legal(text: &str) -> bool {
    let plain = text.bytes().fold(true, |plain, byte| plain & matches!(byte, b' '..=b'~'));
    plain || text.chars().all(is_legal_char)
}

const fn begins_with_component(rest: &[u8]) -> bool {
    !matches!(rest, [] | [b'/', ..] | b"." | [b'.', b'/', ..] | b".." | [b'.', b'.', b'/', ..])
}

const fn is_legal_char(c: char) -> bool {
    !matches!(c, '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..='\u{ffff}' | '\u{10000}'..)
}

/// The weaker rule of create's first check, delete and deleteContainer: a slash somewhere, no NUL.
pub fn has_parent(path: &str) -> bool {
    (path.starts_with('/') || path.contains('/')) && !path.as_bytes().contains(&0)
}

/// The text before the last slash; the root for its children and for itself. Needs no valid path.
pub fn parent(path: &str) -> &str {
    match last_slash(path) {
        None | Some(0) => "/",
        Some(at) => &path[..at],
    }
}

/// The path, or the root for the empty one.
pub const fn or_root(path: &str) -> &str {
    if path.is_empty() { ROOT } else { path }
}

/// The path of a child.
pub fn child(parent: &str, name: &str) -> String {
    let up = if parent == ROOT { "" } else { parent };
    [up, "/", name].concat()
}

/// The text after the last slash.
pub fn name(path: &str) -> &str {
    last_slash(path).map_or(path, |at| &path[at + 1..])
}

/// Where the last slash is, in bytes. Names are short: byte by byte costs a third of a search for a `char`.
#[inline]
pub(crate) fn last_slash(path: &str) -> Option<usize> {
    path.bytes().rposition(|byte| byte == b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validity() {
        for good in ["/", "/a", "/a/b", "/...", "/.a", "/a..b", "/a b", "/\u{e4}", "/\u{d7ff}", "/\u{fdd0}"] {
            assert!(is_valid(good), "{good:?}");
        }
        for bad in [
            "",
            "a",
            "/a/",
            "//",
            "/a//b",
            "/.",
            "/..",
            "/a/./b",
            "/a/..",
            "/\0",
            "/\u{1}",
            "/\u{1f}",
            "/\u{7f}",
            "/\u{9f}",
            "/\u{e000}",
            "/\u{f8ff}",
            "/\u{fff0}",
            "/\u{ffff}",
            "/\u{10000}",
        ] {
            assert!(!is_valid(bad), "{bad:?}");
        }
    }

    #[test]
    fn the_path_of_a_child_is_as_valid_as_any_other() {
        for up in ["/", "//", "/a", "/a/b", "/a/.", "", "a"].into_iter().filter(|up| is_valid(up)) {
            for last in
                ["", ".", "..", "...", ".a", "a", "a b", "\u{e4}", "\0", "\u{1f}", "\u{7f}", "\u{e000}", "\u{10000}"]
            {
                let path = child(up, last);
                assert_eq!(is_valid_child(&path, name(&path)), is_valid(&path), "{path:?}");
            }
        }
        assert!(!is_valid_child("//a", "a"), "its parent is the root");
    }

    #[test]
    fn taking_apart() {
        for (path, up, last) in
            [("/", "/", ""), ("/a", "/", "a"), ("/a/b", "/a", "b"), ("/a/", "/a", ""), ("/a//b", "/a/", "b")]
        {
            assert_eq!((parent(path), name(path)), (up, last), "{path:?}");
        }
    }
}
