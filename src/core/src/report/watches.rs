//! `wchs`, `wchc`, `wchp`: the data watch table, as ZooKeeper tells of no other. Persistent and recursive watches stand
//! there too; child watches do not.

use super::Watched;
use crate::ids::SessionId;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

/// A session's line.
const SESSION_BYTES: usize = 24;

/// About what a path takes in the longest of the answers, the one by session.
pub(super) fn bytes(watched: &Watched) -> usize {
    watched.watchers.len() * (watched.path.len() + SESSION_BYTES)
}

/// How many of its watchers can be told of in so many bytes; one more than fit, so that the answer becomes too long for any more.
pub(super) fn fitting(watched: &Watched, room: usize) -> usize {
    room / (watched.path.len() + SESSION_BYTES) + 1
}

/// Paths that several shards watch count once.
pub(super) fn summary(mut hashes: Vec<u64>, mut watching: Vec<SessionId>) -> String {
    let total = watching.len();
    hashes.sort_unstable();
    hashes.dedup();
    watching.sort_unstable();
    watching.dedup();
    format!("{} connections watching {} paths\nTotal watches:{total}\n", watching.len(), hashes.len())
}

pub(super) fn by_session(watched: &[Watched]) -> String {
    let mut pairs: Vec<(SessionId, &str)> =
        watched.iter().flat_map(|one| one.watchers.iter().map(|session| (*session, &*one.path))).collect();
    pairs.sort_unstable();
    pairs.dedup();
    let mut text = String::new();
    for session in pairs.chunk_by(|one, other| one.0 == other.0) {
        let _ = writeln!(text, "{}", session[0].0);
        for (_, path) in session {
            let _ = writeln!(text, "\t{path}");
        }
    }
    text.push('\n');
    text
}

pub(super) fn by_path(mut watched: Vec<Watched>) -> String {
    watched.sort_unstable_by(|one, other| one.path.cmp(&other.path));
    let mut text = String::new();
    for path in watched.chunk_by(|one, other| one.path == other.path) {
        let mut sessions: Vec<SessionId> = path.iter().flat_map(|one| one.watchers.iter().copied()).collect();
        sessions.sort_unstable();
        sessions.dedup();
        let _ = writeln!(text, "{}", &*path[0].path);
        for session in sessions {
            let _ = writeln!(text, "\t{session}");
        }
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::Text;

    /// `/a` is watched on two shards.
    fn sample() -> Vec<Watched> {
        let watched = |hash, path: &str, sessions: &[i64]| Watched {
            hash,
            path: Text::from(path),
            watchers: sessions.iter().map(|id| SessionId(*id)).collect(),
        };
        alloc::vec![watched(9, "/b", &[0x11]), watched(8, "/a", &[0x12, 0x11]), watched(8, "/a", &[0x10]),]
    }

    #[test]
    fn lists_as_zookeeper_prints_them() {
        assert_eq!(by_session(&sample()), "0x10\n\t/a\n0x11\n\t/a\n\t/b\n0x12\n\t/a\n\n");
        assert_eq!(by_path(sample()), "/a\n\t0x10\n\t0x11\n\t0x12\n/b\n\t0x11\n\n");
        assert_eq!((by_session(&[]), by_path(Vec::new())), (String::from("\n"), String::from("\n")));
    }

    #[test]
    fn sums_as_zookeeper_prints_them() {
        let hashes = sample().iter().map(|one| one.hash).collect();
        let watching = sample().iter().flat_map(|one| one.watchers.clone()).collect();
        assert_eq!(summary(hashes, watching), "3 connections watching 2 paths\nTotal watches:4\n");
        assert_eq!(summary(Vec::new(), Vec::new()), "0 connections watching 0 paths\nTotal watches:0\n");
    }
}
