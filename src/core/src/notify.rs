//! Watch events: which of this shard's connections hear of a change, and in which order (protocol chapter 14.3).
//!
//! Runs just before the change reaches the view, so the event is queued before anybody can read the new state.

use crate::acl::READ;
use crate::change::Change;
use crate::ids::{ConnId, Millis, Zxid};
use crate::reply;
use crate::shard::{Outputs, Shard};
use crate::shared::HashedPath;
use crate::view::NodeRef;
use crate::watch::Kind;
use crate::znode::Acl;
use alloc::vec::Vec;
use core::mem;
use corral_wire::consts::EventType;

impl Shard {
    pub(crate) fn notify(&mut self, now: Millis, zxid: Zxid, change: &Change, out: &mut Outputs) {
        if self.watches.is_empty() {
            return;
        }
        match change {
            Change::Created { at, node } => {
                let told = self.fire(Kind::Data, &at.path, at.hash, Vec::new());
                self.tell(now, zxid, EventType::NodeCreated, &at.path, &node.acl, told, out);
                self.children_changed(now, zxid, at, out);
            }
            Change::Deleted { at } => {
                let acl = self.view.get_hashed(&at.path, at.hash).map_or(Acl::Open, |node| NodeRef::to_acl(&node));
                let mut told = self.fire(Kind::Data, &at.path, at.hash, Vec::new());
                let by_data = told.len();
                told = self.fire(Kind::Child, &at.path, at.hash, told);
                forget_twice_told(&mut told, by_data);
                self.tell(now, zxid, EventType::NodeDeleted, &at.path, &acl, told, out);
                self.children_changed(now, zxid, at, out);
            }
            Change::DataSet { at, node } => {
                let told = self.fire(Kind::Data, &at.path, at.hash, Vec::new());
                self.tell(now, zxid, EventType::NodeDataChanged, &at.path, &node.acl, told, out);
            }
            Change::Quiet { .. } => {}
        }
    }

    fn children_changed(&mut self, now: Millis, zxid: Zxid, at: &HashedPath, out: &mut Outputs) {
        let told = self.fire(Kind::Child, at.parent(), at.parent_hash, Vec::new());
        if !told.is_empty() {
            let parent = self.view.get_hashed(at.parent(), at.parent_hash);
            let acl = parent.map_or(Acl::Open, |node| NodeRef::to_acl(&node));
            self.tell(now, zxid, EventType::NodeChildrenChanged, at.parent(), &acl, told, out);
        }
    }

    fn fire(&mut self, kind: Kind, path: &str, hash: u64, mut into: Vec<ConnId>) -> Vec<ConnId> {
        let hasher = self.view.hasher();
        self.watches.fire(kind, path, hash, hasher, &mut into);
        into
    }

    #[allow(clippy::too_many_arguments, reason = "one event, spelled out")]
    fn tell(
        &mut self,
        now: Millis,
        zxid: Zxid,
        kind: EventType,
        path: &str,
        acl: &Acl,
        told: Vec<ConnId>,
        out: &mut Outputs,
    ) {
        if told.is_empty() {
            return;
        }
        let mut event = mem::take(&mut self.event);
        event.clear();
        reply::event(&mut event, zxid.wire(), kind, path);
        self.event = event;
        for id in told {
            if self.may_read(id, acl) {
                self.deliver(now, id, out);
            }
        }
    }

    fn may_read(&self, id: ConnId, acl: &Acl) -> bool {
        match acl {
            Acl::Open => true,
            Acl::List(_) if self.config().skip_acl => true,
            Acl::List(list) => self.identities(id).is_some_and(|identities| list.grants(READ, identities)),
        }
    }
}

/// A connection already told through the data table is not told again through the child table.
fn forget_twice_told(told: &mut Vec<ConnId>, by_data: usize) {
    if by_data == 0 || told.len() == by_data {
        return;
    }
    let mut first: Vec<ConnId> = told[..by_data].to_vec();
    first.sort_unstable();
    let mut at = 0;
    told.retain(|conn| {
        at += 1;
        at <= by_data || first.binary_search(conn).is_err()
    });
}
