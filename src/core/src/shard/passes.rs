//! Passes over the data of a shard, each short. A pass takes at most [`PIECE_ENTRIES`] connections or watched paths, and
//! [`PIECE_PATH_BYTES`] of watched paths. Then the asker asks for more. Changes between two passes may be told twice or not
//! at all.

use crate::ids::SessionId;
use crate::limits::{PIECE_ENTRIES, PIECE_PATH_BYTES, PIECE_PLACES};
use crate::shard::config::ShardConfig;
use crate::shard::conns::Conns;
use crate::shard::counters::Statistics;
use crate::shard::load::Loads;
use crate::shard::pieces::{ConnLine, Held, Piece, ShardLoad, Totals, Watched};
use crate::shard::sessions::Sessions;
use crate::shard::watch::WatchTable;
use crate::shared::Text;
use crate::tree::view::View;
use alloc::collections::BTreeMap;
use core::mem;
use core::net::IpAddr;
use corral_wire::fourletter::FourLetter;
use smallvec::SmallVec;

/// Bits of a place among the watches that are that of a path.
const PATH_PLACE_BITS: u32 = 32;
const PATH_PLACE: usize = (1 << PATH_PLACE_BITS) - 1;

/// The data of a shard over which a pass goes.
pub(super) struct Pass<'s> {
    pub(super) config: &'s ShardConfig,
    pub(super) view: &'s View,
    pub(super) watches: &'s WatchTable,
    pub(super) conns: &'s Conns,
    pub(super) sessions: &'s Sessions,
    pub(super) loads: &'s Loads,
    pub(super) statistics: &'s Statistics,
    /// Bytes that all connections hold.
    pub(super) connection_bytes: usize,
}

impl Pass<'_> {
    /// The shard's part of an answer, from a place that an earlier piece gave; 0 begins.
    pub(super) fn piece(&self, command: FourLetter, from: usize) -> Piece {
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
            FourLetter::Crst => piece.next = self.conns.after(from, PIECE_ENTRIES),
            FourLetter::Top => self.list_clients(from, &mut piece),
            _ => {}
        }
        piece
    }

    fn sum_up(&self, from: usize, piece: &mut Piece) {
        if from == 0 {
            piece.totals = Totals {
                statistics: *self.statistics,
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
            piece.shard = Some(self.shard_load());
            piece.top.loads.took_ms = self.loads.took_ms;
            piece.top.loads.addresses.clone_from(&self.loads.addresses);
        }
        let waiting = self.conns.range(from, PIECE_ENTRIES).map(|conn| conn.pending.len() as u64);
        piece.totals.outstanding = waiting.sum();
        piece.next = self.conns.after(from, PIECE_ENTRIES);
    }

    fn shard_load(&self) -> ShardLoad {
        ShardLoad {
            id: self.config.shard,
            connections: self.conns.len() as u64,
            requests: self.statistics.received,
            watches: self.watches.len() as u64,
            delta_bytes: self.view.delta_bytes() as u64,
            connection_bytes: self.connection_bytes as u64,
            watch_bytes: self.watches.bytes() as u64,
        }
    }

    fn list_conns(&self, from: usize, piece: &mut Piece) {
        let sessionless_ms = self.config.sessionless_timeout_ms;
        piece.conns = self
            .conns
            .range(from, PIECE_ENTRIES)
            .map(|conn| ConnLine::of(conn, self.watches.count_of(conn.id), sessionless_ms))
            .collect();
        piece.next = self.conns.after(from, PIECE_ENTRIES);
    }

    /// The load, and the connections of its clients.
    fn list_clients(&self, from: usize, piece: &mut Piece) {
        let loads = self.loads;
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

#[cfg(test)]
mod tests;
