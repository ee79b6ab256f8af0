//! Paths of znodes: which are legal (protocol chapter 8), and those with a meaning of their own.

/// The znode with the membership.
pub(super) const PLACE: &str = "/zookeeper/config";
const SPECIAL: [&str; 4] = ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"];

/// Whether a path is that of a system znode of ClickHouse Keeper.
pub(crate) fn is_system(path: &str) -> bool {
    path == "/keeper" || path.starts_with("/keeper/")
}

/// Whether a path may be deleted, as far as that can be told without the tree.
pub(super) fn is_removable(path: &str) -> bool {
    path.contains('/') && !path.contains('\0') && !SPECIAL.contains(&path)
}

pub(crate) fn parent_of(path: &str) -> &str {
    match path.rfind('/') {
        Some(0) | None => "/",
        Some(at) => &path[..at],
    }
}

/// Whether a path lies below another; all lie below "".
pub(super) fn is_below(path: &str, top: &str) -> bool {
    path.strip_prefix(top).is_some_and(|rest| rest.starts_with('/'))
}

/// Whether a path is legal (protocol chapter 8): the loop of ZooKeeper's `PathUtils.validatePath`, over the units in which
/// Java counts.
pub(crate) fn is_legal(path: &str) -> bool {
    let units: Vec<u16> = path.encode_utf16().collect();
    let (slash, dot) = (u16::from(b'/'), u16::from(b'.'));
    if units.first() != Some(&slash) {
        return false;
    }
    if units.len() > 1 && units.last() == Some(&slash) {
        return false;
    }
    let ends = |at: usize| units.get(at + 1).is_none_or(|unit| *unit == slash);
    for at in 1..units.len() {
        let (unit, last) = (units[at], units[at - 1]);
        let twice = unit == dot && last == dot && at >= 2 && units[at - 2] == slash && ends(at);
        let once = unit == dot && last == slash && ends(at);
        let odd = matches!(unit, 0..=0x1f | 0x7f..=0x9f | 0xd800..=0xf8ff | 0xfff0..=0xffff);
        if twice || once || odd || (unit == slash && last == slash) {
            return false;
        }
    }
    true
}
