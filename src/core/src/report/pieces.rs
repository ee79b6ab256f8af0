//! Passes over what an actor owns, each short: at most [`PIECE_ENTRIES`] connections, watched paths, sessions or
//! ephemerals, then the asker asks for more. What changes between two passes may be told twice or not at all.
//!
//! On the shards' cores, and on the consensus actor's.

use super::{ConnCounters, ConnLine, Piece, SessionLine, SessionMark, SessionPiece, Statistics, Totals, Watched};
use crate::limits::{PIECE_ENTRIES, PIECE_PLACES};
use crate::sequencer::Sequencer;
use crate::shard::Shard;
use crate::shared::Text;
use alloc::vec::Vec;
use core::ops::Bound;
use corral_wire::fourletter::FourLetter;

impl Shard {
    /// This shard's part of an answer, from a place that an earlier piece gave; 0 begins. `crst` and `srst` are carried
    /// out here.
    pub fn report(&mut self, word: FourLetter, from: usize) -> Piece {
        let mut piece = Piece::default();
        match word {
            FourLetter::Srvr | FourLetter::Mntr => self.sum_up(from, &mut piece),
            FourLetter::Stat => {
                self.sum_up(from, &mut piece);
                self.list_conns(from, &mut piece);
            }
            FourLetter::Cons | FourLetter::Dump => self.list_conns(from, &mut piece),
            FourLetter::Wchs | FourLetter::Wchc | FourLetter::Wchp => self.list_watches(from, &mut piece),
            FourLetter::Crst => {
                for conn in self.conns.range_mut(from, PIECE_ENTRIES) {
                    conn.counters = ConnCounters::reset();
                }
                piece.next = self.conns.after(from, PIECE_ENTRIES);
            }
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
                sessions: self.sessions_alive,
            };
        }
        let waiting = self.conns.range(from, PIECE_ENTRIES).map(|conn| conn.pending.len() as u64);
        piece.totals.outstanding = waiting.sum();
        piece.next = self.conns.after(from, PIECE_ENTRIES);
    }

    fn list_conns(&self, from: usize, piece: &mut Piece) {
        let sessionless_ms = self.config().sessionless_timeout_ms;
        piece.conns = self.conns.range(from, PIECE_ENTRIES).map(|conn| ConnLine::of(conn, sessionless_ms)).collect();
        piece.next = self.conns.after(from, PIECE_ENTRIES);
    }

    fn list_watches(&self, from: usize, piece: &mut Piece) {
        let places = self.watches.data_places();
        let mut entries = 0;
        let mut at = from;
        while at < places && entries < PIECE_ENTRIES && at - from < PIECE_PLACES {
            if let Some((hash, path, conns)) = self.watches.data_at(at) {
                let watchers = conns.filter_map(|conn| Some(self.conns.get(conn)?.session)).collect();
                let watched = Watched { hash, path: path.clone(), watchers };
                entries += 1 + watched.watchers.len();
                piece.watched.push(watched);
            }
            at += 1;
        }
        piece.next = (at < places).then_some(at);
    }
}

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
            let rest = (goes_on.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
            let room = PIECE_ENTRIES - entries;
            let ephemerals: Vec<Text> = session.ephemerals.range::<Text, _>(rest).take(room).cloned().collect();
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
