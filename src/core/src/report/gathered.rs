//! All that an answer is made of: the pieces of shards and leader, put together, and the facts of the process.

use super::facts::{Mode, Moment, ServerFacts};
use super::sessions::{SessionLine, SessionPiece};
use super::watches::{self, WatchSummary};
use super::{clients, dump};
use crate::ids::SessionId;
use crate::limits::FOUR_LETTER_BYTES_MAX;
use crate::shard::pieces::{ConnLine, Piece, ShardLoad, TopClients, Totals, Watched};
use alloc::vec::Vec;
use corral_wire::fourletter::FourLetter;

/// All pieces of an answer.
#[derive(Debug, Default)]
pub struct Report {
    /// Sums over all shards.
    pub totals: Totals,
    /// Connections of all shards.
    pub conns: Vec<ConnLine>,
    watched: Vec<Watched>,
    /// Load of the clients of all shards.
    pub top: TopClients,
    /// In the order of their ids.
    shards: Vec<ShardLoad>,
    /// In the order of their ids. A session with many ephemerals is there several times.
    pub sessions: Vec<SessionLine>,
    /// For `wchs`: hashes of watched paths and ids of watching sessions, as they came.
    watched_hashes: watches::Distinct<u64>,
    watching: watches::Distinct<SessionId>,
    /// About how long the answer becomes.
    bytes: usize,
}

impl Report {
    /// Takes in a shard's piece.
    pub fn take(&mut self, command: FourLetter, piece: Piece) {
        self.totals.merge(&piece.totals);
        self.bytes += piece.conns.len() * clients::LINE_BYTES;
        self.conns.extend(piece.conns);
        self.top.merge(piece.top);
        if let Some(shard) = piece.shard {
            let place = self.shards.partition_point(|other| other.id < shard.id);
            self.shards.insert(place, shard);
        }
        if command == FourLetter::Wchs {
            for watched in &piece.watched {
                self.watched_hashes.add(watched.hash);
                watched.watchers.iter().for_each(|session| self.watching.add(*session));
            }
            return;
        }
        for mut watched in piece.watched {
            watched.watchers.truncate(watches::fitting(&watched, FOUR_LETTER_BYTES_MAX.saturating_sub(self.bytes)));
            self.bytes += watches::bytes(&watched);
            self.watched.push(watched);
        }
    }

    /// Takes in a piece of the leader's sessions.
    pub fn take_sessions(&mut self, piece: SessionPiece) {
        self.bytes += piece.sessions.iter().map(dump::bytes).sum::<usize>();
        self.sessions.extend(piece.sessions);
    }

    /// The shards, in the order of their ids.
    pub(super) fn shards(&self) -> &[ShardLoad] {
        &self.shards
    }

    /// Sessions and the paths that they watch, sorted.
    pub fn watches_by_session(&self) -> Vec<(SessionId, &str)> {
        watches::by_session(&self.watched)
    }

    /// Watched paths and the sessions that watch them, sorted.
    pub fn watches_by_path(&self) -> Vec<(&str, SessionId)> {
        watches::by_path(&self.watched)
    }

    /// Numbers of watches, if this was gathered for [`FourLetter::Wchs`].
    pub fn watch_summary(&mut self) -> WatchSummary {
        WatchSummary {
            connections: self.watching.count(),
            paths: self.watched_hashes.count(),
            watches: self.watching.added(),
        }
    }

    /// Whether the answer is as long as it may become: no more pieces are wanted.
    pub const fn is_full(&self) -> bool {
        self.bytes >= FOUR_LETTER_BYTES_MAX
    }
}

/// The parts of an answer: the pieces of shards and leader, and the facts of the process.
#[derive(Debug)]
pub struct Gathered {
    /// The pieces of the shards and of the leader.
    pub report: Report,
    /// Facts of the process and of the host.
    pub facts: ServerFacts,
    /// When the answer is given.
    pub moment: Moment,
}

impl Gathered {
    /// Whether the server answers the commands that need data: it is alone, or knows a leader, or serves readers without one.
    pub fn is_serving(&self) -> bool {
        self.facts.mode != Mode::Looking
    }

    pub(super) const fn totals(&self) -> &Totals {
        &self.report.totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Zxid;
    use crate::limits::PIECE_ENTRIES;
    use crate::shared::Text;

    #[test]
    fn the_newest_shard_counts_for_what_all_have_in_common() {
        let totals = |zxid, nodes| Totals { zxid: Zxid(zxid), nodes, connections: 2, ..Totals::default() };
        for order in [[(5, 10), (6, 11)], [(6, 11), (5, 10)]] {
            let mut report = Report::default();
            for (zxid, nodes) in order {
                report.take(FourLetter::Srvr, Piece { totals: totals(zxid, nodes), ..Piece::default() });
            }
            assert_eq!((report.totals.zxid, report.totals.nodes, report.totals.connections), (Zxid(6), 11, 4));
        }
    }

    #[test]
    fn watchers_of_a_long_path_are_taken_up_to_the_limit() {
        let mut report = Report::default();
        let path = Text::from("n".repeat(FOUR_LETTER_BYTES_MAX / 100));
        for piece in 0..3 {
            let first = piece * PIECE_ENTRIES as i64;
            let watchers = (first..first + PIECE_ENTRIES as i64).map(SessionId).collect();
            let watched = Vec::from([Watched { hash: 1, path: path.clone(), watchers }]);
            report.take(FourLetter::Wchc, Piece { watched, ..Piece::default() });
        }
        assert!(report.is_full());
        let bytes: usize = report.watches_by_session().iter().map(|(_, path)| path.len()).sum();
        assert!((FOUR_LETTER_BYTES_MAX / 2..2 * FOUR_LETTER_BYTES_MAX).contains(&bytes), "{bytes} bytes");
        let lines = report.watches_by_path().len();
        assert!((90..PIECE_ENTRIES).contains(&lines), "{lines} lines");
    }
}
