//! Lists of children that are written in pieces.
//!
//! Each shows the state in which it began: it keeps whatever a transaction changes below its znode meanwhile.

use super::turn::Turn;
use crate::apply::outcome::AppliedTxn;
use crate::ids::ConnId;
use crate::limits::LISTS_MAX;
use crate::shard::conn::Conn;
use crate::shard::conns::Conns;
use crate::tree::view::View;
use alloc::vec::Vec;

/// The connections with a list in pieces, and the changes that these lists have kept.
#[derive(Debug, Default)]
pub(super) struct Lists {
    /// Connections with a list.
    conns: Vec<ConnId>,
    /// Changes of the next transaction from which the lists have kept the former state.
    preserved: usize,
}

impl Lists {
    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.conns.is_empty()
    }

    /// Whether another list may begin. While a transaction is preserved none may: it would keep nothing of it.
    pub(super) const fn may_begin(&self) -> bool {
        self.conns.len() < LISTS_MAX && self.preserved == 0
    }

    pub(super) fn begin(&mut self, conn: ConnId) {
        self.conns.push(conn);
    }

    pub(super) fn end(&mut self, conn: ConnId) {
        if !self.is_empty() {
            self.conns.retain(|id| *id != conn);
        }
    }

    /// The transaction of [`Lists::preserve`] is applied.
    #[inline]
    pub(super) const fn applied(&mut self) {
        self.preserved = 0;
    }

    /// A transaction is about to reach the view: lists keep the former state, from where the last call ended. False when the turn's work
    /// is done before all is kept.
    #[cold]
    pub(super) fn preserve(&mut self, txn: &AppliedTxn, (view, conns): (&View, &mut Conns), turn: &mut Turn) -> bool {
        while let Some(change) = txn.changes.get(self.preserved) {
            if turn.is_over() {
                return false;
            }
            self.preserved += 1;
            for id in &self.conns {
                if let Some(list) = conns.get_mut(*id).and_then(Conn::list_under_way) {
                    turn.spend(list.preserve(view, change));
                }
            }
        }
        true
    }
}
