//! Passes over the data of an actor, each short. A pass takes at most [`PIECE_ENTRIES`] connections, watched paths,
//! sessions or ephemerals, and [`PIECE_PATH_BYTES`] of watched paths. Then the asker asks for more. Changes between two
//! passes may be told twice or not at all.
//!
//! On the shards' cores, and on the consensus actor's.

use super::{
    ConnCounters, ConnLine, Held, Piece, SessionLine, SessionMark, SessionPiece, ShardLoad, Statistics, Totals, Watched,
};
use crate::ids::SessionId;
use crate::limits::{PIECE_ENTRIES, PIECE_PATH_BYTES, PIECE_PLACES};
use crate::sequencer::Sequencer;
use crate::shard::Shard;
use crate::shared::Text;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::mem;
use core::net::IpAddr;
use core::ops::Bound;
use corral_wire::fourletter::FourLetter;
use smallvec::SmallVec;

impl Shard {
    /// This shard's part of an answer, from a place that an earlier piece gave; 0 begins. `crst` and `srst` are carried
    /// out here.
    pub fn report(&mut self, command: FourLetter, from: usize) -> Piece {
        let mut piece = Piece::default();
        match command {
            FourLetter::Srvr | FourLetter::Mntr => self.sum_up(from, &mut piece),
            FourLetter::Stat => {
                self.sum_up(from, &mut piece);
                self.list_conns(from, &mut piece);
            }
            FourLetter::Cons | FourLetter::Dump => self.list_conns(from, &mut piece),
            FourLetter::Wchs | FourLetter::Wchc | FourLetter::Wchp => {
                self.list_watches(from, command != FourLetter::Wchs, &mut piece)
            }
            FourLetter::Crst => {
                for conn in self.conns.range_mut(from, PIECE_ENTRIES) {
                    conn.counters = ConnCounters::reset();
                }
                piece.next = self.conns.after(from, PIECE_ENTRIES);
            }
            FourLetter::Top => self.list_clients(from, &mut piece),
            FourLetter::Srst => self.statistics = Statistics::default(),
            _ => {}
        }
        piece
    }

    fn sum_up(&self, from: usize, piece: &mut Piece) {
        if from == 0 {
            piece.totals = Totals {
                statistics: self.statistics,
                connections: self.conns.len() as u64,
                outstanding: 0,
                watches: self.watches.len() as u64,
                zxid: self.view.zxid(),
                // ZooKeeper counts its root twice, under `/` and under the empty path.
                nodes: self.view.node_count() + 1,
                data_bytes: self.view.data_bytes(),
                ephemerals: self.view.ephemerals_count(),
                sessions: self.sessions.alive(),
            };
            piece.shard = Some(self.load_facts());
            piece.top.loads.took_ms = self.loads().took_ms;
            piece.top.loads.addresses.clone_from(&self.loads().addresses);
        }
        let waiting = self.conns.range(from, PIECE_ENTRIES).map(|conn| conn.pending.len() as u64);
        piece.totals.outstanding = waiting.sum();
        piece.next = self.conns.after(from, PIECE_ENTRIES);
    }

    fn load_facts(&self) -> ShardLoad {
        ShardLoad {
            id: self.config().shard,
            connections: self.conns.len() as u64,
            requests: self.statistics.received,
            watches: self.watches.len() as u64,
            delta_bytes: self.view.delta_bytes() as u64,
            connection_bytes: self.connection_bytes() as u64,
            watch_bytes: self.watches.bytes() as u64,
        }
    }

    fn list_conns(&self, from: usize, piece: &mut Piece) {
        let sessionless_ms = self.config().sessionless_timeout_ms;
        piece.conns = self
            .conns
            .range(from, PIECE_ENTRIES)
            .map(|conn| ConnLine::of(conn, self.watches.count_of(conn.id), sessionless_ms))
            .collect();
        piece.next = self.conns.after(from, PIECE_ENTRIES);
    }

    /// The load, and the connections of its clients.
    fn list_clients(&self, from: usize, piece: &mut Piece) {
        let loads = self.loads();
        let mut addresses: BTreeMap<IpAddr, Held> = BTreeMap::new();
        addresses.extend(loads.addresses.iter().map(|(address, _)| (*address, Held::default())));
        let mut sessions: BTreeMap<SessionId, Held> = BTreeMap::new();
        sessions.extend(loads.sessions.iter().map(|((session, _), _)| (*session, Held::default())));
        for conn in self.conns.range(from, PIECE_ENTRIES) {
            let address = addresses.get_mut(&conn.peer.ip().to_canonical());
            let session = sessions.get_mut(&conn.session.id());
            if address.is_some() || session.is_some() {
                let watches = u64::from(self.watches.count_of(conn.id));
                let held = Held { connections: 1, waiting: conn.pending.len() as u64, watches };
                address.into_iter().chain(session).for_each(|sum| sum.add(&held));
            }
        }
        piece.top.by_address = addresses.into_iter().collect();
        piece.top.by_session = sessions.into_iter().collect();
        if from == 0 {
            piece.top.loads = loads.clone();
        }
        piece.next = self.conns.after(from, PIECE_ENTRIES);
    }

    /// A place is that of a path, and above it the slot of the first of its watchers that is told of.
    fn list_watches(&self, from: usize, with_paths: bool, piece: &mut Piece) {
        let places = self.watches.data_places();
        let (mut entries, mut bytes) = (0, 0);
        let (first, mut slot) = (from & PATH_PLACE, from >> PATH_PLACE_BITS);
        let mut at = first;
        while at < places && entries < PIECE_ENTRIES && bytes < PIECE_PATH_BYTES && at - first < PIECE_PLACES {
            let from = u32::try_from(mem::take(&mut slot)).unwrap_or(u32::MAX);
            if let Some(told) = self.watches.data_at(at, from, PIECE_ENTRIES) {
                // A look at one watcher is one at a place.
                entries += told.looked.saturating_sub(1);
                if !told.watchers.is_empty() {
                    let sessions = told.watchers.iter().filter_map(|conn| Some(self.conns.get(*conn)?.session.id()));
                    let watchers: SmallVec<[SessionId; 1]> = sessions.collect();
                    let hash = self.view.hasher().hash(told.path);
                    bytes += told.path.len();
                    entries += 2;
                    let path = Text::from(if with_paths { told.path } else { "" });
                    piece.watched.push(Watched { hash, path, watchers });
                }
                if let Some(next) = told.next {
                    piece.next = Some((next as usize) << PATH_PLACE_BITS | at);
                    return;
                }
            }
            at += 1;
        }
        piece.next = (at < places).then_some(at);
    }
}

/// Bits of a place among the watches that are that of a path.
const PATH_PLACE_BITS: u32 = 32;
const PATH_PLACE: usize = (1 << PATH_PLACE_BITS) - 1;

impl Sequencer {
    /// Sessions with their deadlines and ephemerals, in order of their ids.
    pub fn report_sessions(&self, from: &SessionMark) -> SessionPiece {
        let mut piece = SessionPiece::default();
        let mut entries = 0;
        for (id, session) in self.machine().sessions().range(from.id..) {
            let goes_on = from.path.as_ref().filter(|_| *id == from.id);
            if entries >= PIECE_ENTRIES {
                piece.next = Some(SessionMark { id: *id, path: None });
                break;
            }
            let rest = goes_on.map_or(Bound::Unbounded, |path| Bound::Excluded(&**path));
            let room = PIECE_ENTRIES - entries;
            let ephemerals: Vec<Text> = session.ephemerals.from(rest).take(room).cloned().collect();
            entries += 1 + ephemerals.len();
            let cut = ephemerals.last().filter(|_| ephemerals.len() == room).cloned();
            let due = if goes_on.is_some() { None } else { self.expiry().due(*id) };
            piece.sessions.push(SessionLine { id: *id, due, ephemerals });
            if let Some(last) = cut {
                piece.next = Some(SessionMark { id: *id, path: Some(last) });
                break;
            }
        }
        piece
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Report, ServerFacts, render};
    use super::*;
    use crate::apply::StateMachine;
    use crate::ids::{ConnId, Millis, WallMillis};
    use crate::limits::FOUR_LETTER_BYTES_MAX;
    use crate::report::{Gathered, Moment};
    use crate::sequencer::SequencerConfig;
    use crate::session::{Session, SessionTable};
    use crate::shard::tests::{client, shard};
    use crate::shard::watch::{Kind, Mode};
    use crate::tree::view::View;
    use alloc::collections::BTreeSet;
    use alloc::format;
    use alloc::string::String;

    /// Asks until there is no more; gives the text and the number of pieces.
    fn told(shard: &mut Shard, command: FourLetter) -> (String, usize) {
        let (mut report, mut from, mut pieces) = (Report::default(), Some(0), 0);
        while let Some(at) = from {
            let piece = shard.report(command, at);
            (from, pieces) = (piece.next, pieces + 1);
            report.take(command, piece);
        }
        let moment = Moment { now: Millis(0), wall: WallMillis(0) };
        (render(command, Gathered { report, facts: ServerFacts::default(), moment }), pieces)
    }

    fn accept(shard: &mut Shard, count: usize) -> Vec<ConnId> {
        (0..count).map(|_| client(shard)).collect()
    }

    #[test]
    fn every_connection_is_told_of_once() {
        for (count, expect) in [(0, 1), (1, 1), (PIECE_ENTRIES, 1), (PIECE_ENTRIES + 1, 2), (3 * PIECE_ENTRIES, 3)] {
            let mut shard = shard();
            accept(&mut shard, count);
            for command in [FourLetter::Cons, FourLetter::Stat] {
                let (text, pieces) = told(&mut shard, command);
                assert_eq!((text.matches(" /10.0.0.1:1[1](").count(), pieces), (count, expect), "{command:?}");
            }
            let (text, _) = told(&mut shard, FourLetter::Srvr);
            assert!(text.contains(&format!("\nConnections: {count}\nOutstanding: 0\n")), "{text}");
        }
    }

    #[test]
    fn every_watch_is_told_of_once() {
        let mut shard = shard();
        let conns = accept(&mut shard, 3);
        let count = 2 * PIECE_ENTRIES;
        for (number, conn) in conns.iter().enumerate() {
            shard.conns.get_mut(*conn).expect("it is there").session.attach(SessionId(1 + number as i64), 1000);
            for at in 0..count {
                let path = format!("/{at}");
                let hash = shard.view.hasher().hash(&path);
                let mode = [Mode::Standard, Mode::Persistent, Mode::PersistentRecursive][at % 3];
                assert!(shard.watches.add(Kind::Data, *conn, &path, hash, mode).is_ok());
                assert!(shard.watches.add(Kind::Child, *conn, "/kids", 1, Mode::Standard).is_ok());
            }
        }
        let expect = format!("3 connections watching {count} paths\nTotal watches:{}\n", 3 * count);
        let (text, pieces) = told(&mut shard, FourLetter::Wchs);
        assert_eq!(text, expect);
        assert!(pieces > 4, "a piece is short: {pieces}");
        let (text, _) = told(&mut shard, FourLetter::Wchp);
        let lines: BTreeSet<&str> = text.lines().filter(|line| line.starts_with('/')).collect();
        assert_eq!((lines.len(), text.lines().count()), (count, 4 * count + 1));
        let (text, _) = told(&mut shard, FourLetter::Wchc);
        assert_eq!((text.lines().count(), text.contains("/kids")), (3 * (1 + count) + 1, false));
    }

    #[test]
    fn long_paths_are_told_of_in_many_pieces() {
        let mut shard = shard();
        let conn = accept(&mut shard, 1)[0];
        shard.conns.get_mut(conn).expect("it is there").session.attach(SessionId(1), 1000);
        for at in 0..20 {
            let path = format!("/{at}{}", "n".repeat(PIECE_PATH_BYTES));
            let hash = shard.view.hasher().hash(&path);
            assert!(shard.watches.add(Kind::Data, conn, &path, hash, Mode::Standard).is_ok());
        }
        for (command, begins) in [(FourLetter::Wchs, "1 connections watching 20 paths\n"), (FourLetter::Wchp, "/")] {
            let (text, pieces) = told(&mut shard, command);
            assert!(text.starts_with(begins) && pieces >= 20, "{pieces} pieces");
        }
    }

    #[test]
    fn a_path_that_many_watch_is_told_of_in_many_pieces_and_not_beyond_the_limit() {
        const WATCHERS: usize = 3 * PIECE_ENTRIES;
        let mut shard = shard();
        let path = format!("/{}", "n".repeat(FOUR_LETTER_BYTES_MAX / 100));
        let hash = shard.view.hasher().hash(&path);
        for (number, conn) in accept(&mut shard, WATCHERS).into_iter().enumerate() {
            shard.conns.get_mut(conn).expect("it is there").session.attach(SessionId(1 + number as i64), 1000);
            assert!(shard.watches.add(Kind::Data, conn, &path, hash, Mode::Standard).is_ok());
        }
        let (text, pieces) = told(&mut shard, FourLetter::Wchs);
        assert_eq!(
            (&*text, pieces),
            (&*format!("{WATCHERS} connections watching 1 paths\nTotal watches:{WATCHERS}\n"), 3)
        );
        let (text, _) = told(&mut shard, FourLetter::Wchc);
        assert!((FOUR_LETTER_BYTES_MAX / 2..2 * FOUR_LETTER_BYTES_MAX).contains(&text.len()), "{} bytes", text.len());
        let (text, _) = told(&mut shard, FourLetter::Wchp);
        assert!(text.lines().count() > 90 && text.len() < 2 * FOUR_LETTER_BYTES_MAX);
    }

    #[test]
    fn sets_that_watch_children_alone_are_passed_over() {
        const PATHS: usize = 300;
        let mut shard = shard();
        for (number, conn) in accept(&mut shard, 3 * PIECE_ENTRIES).into_iter().enumerate() {
            shard.conns.get_mut(conn).expect("it is there").session.attach(SessionId(1 + number as i64), 1000);
            for at in 0..PATHS {
                let path = format!("/{at}");
                let hash = shard.view.hasher().hash(&path);
                assert!(shard.watches.add(Kind::Child, conn, &path, hash, Mode::Standard).is_ok());
                // The last one's data is watched by the last connection, too.
                if at == PATHS - 1 && number == 3 * PIECE_ENTRIES - 1 {
                    assert!(shard.watches.add(Kind::Data, conn, &path, hash, Mode::Standard).is_ok());
                }
            }
        }
        let (text, pieces) = told(&mut shard, FourLetter::Wchs);
        assert_eq!(text, "1 connections watching 1 paths\nTotal watches:1\n");
        assert_eq!(pieces, 3, "only the set with a watch of data is looked at, in pieces");
    }

    #[test]
    fn a_table_that_shrank_is_passed_over_quickly() {
        let mut shard = shard();
        let conn = accept(&mut shard, 1)[0];
        for at in 0..100_000_u64 {
            assert!(shard.watches.add(Kind::Data, conn, &format!("/{at}"), at << 40 | at, Mode::Standard).is_ok());
        }
        for at in 0..100_000_u64 {
            let hash = at << 40 | at;
            assert!(shard.watches.remove(Kind::Data, conn, &format!("/{at}"), hash, Mode::Standard));
        }
        let (text, pieces) = told(&mut shard, FourLetter::Wchs);
        assert_eq!(text, "0 connections watching 0 paths\nTotal watches:0\n");
        assert!(pieces <= 4, "{pieces}");
    }

    #[test]
    fn counters_begin_anew() {
        let mut shard = shard();
        let conns = accept(&mut shard, PIECE_ENTRIES + 5);
        for conn in &conns {
            shard.conns.get_mut(*conn).expect("it is there").counters.received = 7;
        }
        shard.statistics.received = 9;
        told(&mut shard, FourLetter::Crst);
        assert!(shard.conns.iter().all(|conn| conn.counters.received == 0 && conn.counters.last_xid == -1));
        assert_eq!(shard.statistics.received, 9);
        told(&mut shard, FourLetter::Srst);
        assert_eq!(shard.statistics.received, 0);
    }

    fn sequencer(sessions: SessionTable) -> Sequencer {
        Sequencer::new(SequencerConfig::default(), StateMachine::new(View::empty(1), sessions), 0, 0)
    }

    #[test]
    fn every_session_and_every_ephemeral_is_told_of_once() {
        for ephemerals in [0, 1, PIECE_ENTRIES - 1, PIECE_ENTRIES, PIECE_ENTRIES + 1, 3 * PIECE_ENTRIES] {
            let mut sessions = SessionTable::new();
            for id in [-5, 3, 4, 900] {
                let paths = if id == 3 { ephemerals } else { 1 };
                let ephemerals = (0..paths).map(|at| Text::from(format!("/{id}/{at}"))).collect();
                let session = Session { timeout_ms: 4000, password: [0; 16], owner: None, ephemerals };
                sessions.insert(SessionId(id), session);
            }
            let mut sequencer = sequencer(sessions);
            sequencer.begin_leadership(Millis(500), 1);
            let (mut from, mut lines) = (Some(SessionMark::default()), Vec::new());
            while let Some(mark) = from {
                let piece = sequencer.report_sessions(&mark);
                let entries: usize = piece.sessions.iter().map(|line| 1 + line.ephemerals.len()).sum();
                assert!(entries <= PIECE_ENTRIES + 1, "{entries}");
                from = piece.next;
                lines.extend(piece.sessions);
            }
            let due: Vec<(SessionId, Millis)> = lines.iter().filter_map(|line| Some((line.id, line.due?))).collect();
            assert_eq!(due, [-5, 3, 4, 900].map(|id| (SessionId(id), Millis(5000))));
            let paths: Vec<&Text> = lines.iter().flat_map(|line| &line.ephemerals).collect();
            let different: BTreeSet<&Text> = paths.iter().copied().collect();
            assert_eq!((paths.len(), different.len()), (ephemerals + 3, ephemerals + 3));
        }
    }
}
