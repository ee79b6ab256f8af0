//! `wchs`, `wchc`, `wchp`: the data watch table, as ZooKeeper tells of no other. Persistent and recursive watches stand
//! there too; child watches do not.

use crate::ids::SessionId;
use crate::shard::pieces::Watched;
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

/// Returns how many of its watchers fit into so many bytes, and one more. That one makes the answer too long for any
/// more.
pub(super) fn fitting(watched: &Watched, room: usize) -> usize {
    room / (watched.path.len() + SESSION_BYTES) + 1
}

/// Counts values, and the distinct ones among them, in memory for twice the distinct ones.
#[derive(Debug, Default)]
pub(super) struct Distinct<T> {
    list: Vec<T>,
    /// The first of the list, which are distinct.
    distinct: usize,
    added: usize,
}

impl<T: Ord> Distinct<T> {
    /// So many may be there more often than once, at least.
    const LOOSE: usize = 4096;

    pub(super) fn add(&mut self, value: T) {
        self.added += 1;
        self.list.push(value);
        if self.list.len() >= 2 * self.distinct + Self::LOOSE {
            self.sort_out();
        }
    }

    fn sort_out(&mut self) {
        self.list.sort_unstable();
        self.list.dedup();
        self.distinct = self.list.len();
    }

    pub(super) fn count(&mut self) -> usize {
        self.sort_out();
        self.distinct
    }

    /// How many were added.
    pub(super) const fn added(&self) -> usize {
        self.added
    }
}

/// Numbers of data watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchSummary {
    /// Sessions with a data watch.
    pub connections: usize,
    /// A path that several shards watch counts once.
    pub paths: usize,
    /// Pairs of a watched path and a session.
    pub watches: usize,
}

pub(super) fn summary_text(WatchSummary { connections, paths, watches }: WatchSummary) -> String {
    format!("{connections} connections watching {paths} paths\nTotal watches:{watches}\n")
}

/// Without doubles: a path may be watched on several shards.
pub(super) fn by_session(watched: &[Watched]) -> Vec<(SessionId, &str)> {
    sorted(watched.iter().flat_map(|one| one.watchers.iter().map(|session| (*session, &*one.path))).collect())
}

/// Without doubles.
pub(super) fn by_path(watched: &[Watched]) -> Vec<(&str, SessionId)> {
    sorted(watched.iter().flat_map(|one| one.watchers.iter().map(|session| (&*one.path, *session))).collect())
}

fn sorted<T: Ord>(mut pairs: Vec<T>) -> Vec<T> {
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

pub(super) fn session_text(pairs: &[(SessionId, &str)]) -> String {
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

pub(super) fn path_text(pairs: &[(&str, SessionId)]) -> String {
    let mut text = String::new();
    for path in pairs.chunk_by(|one, other| one.0 == other.0) {
        let _ = writeln!(text, "{}", path[0].0);
        for (_, session) in path {
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

    #[test]
    fn a_million_watches_of_one_session_take_little_memory() {
        let mut sessions = Distinct::default();
        for number in 0..1_000_000 {
            sessions.add(SessionId(number % 3));
        }
        assert_eq!((sessions.added, sessions.count()), (1_000_000, 3));
        assert!(sessions.list.capacity() <= 4 * Distinct::<SessionId>::LOOSE);
    }

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
        assert_eq!(session_text(&by_session(&sample())), "0x10\n\t/a\n0x11\n\t/a\n\t/b\n0x12\n\t/a\n\n");
        assert_eq!(path_text(&by_path(&sample())), "/a\n\t0x10\n\t0x11\n\t0x12\n/b\n\t0x11\n\n");
        assert_eq!((session_text(&[]), path_text(&[])), (String::from("\n"), String::from("\n")));
    }

    #[test]
    fn sums_as_zookeeper_prints_them() {
        let (mut hashes, mut watching) = (Distinct::default(), Distinct::default());
        for one in sample() {
            hashes.add(one.hash);
            one.watchers.iter().for_each(|session| watching.add(*session));
        }
        let summary = WatchSummary { connections: watching.count(), paths: hashes.count(), watches: watching.added() };
        assert_eq!(summary_text(summary), "3 connections watching 2 paths\nTotal watches:4\n");
    }
}
