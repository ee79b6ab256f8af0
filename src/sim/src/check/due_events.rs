//! The watches of a connection, and the events that are due to it.

use std::collections::VecDeque;

use crate::model::{CHILDREN_CHANGED, DELETED, Identity, Model, READ, Step, allows, parent_of};
use crate::request::WatchLists;

#[derive(Debug, Default)]
pub(super) struct Watches {
    pub(super) set: WatchLists,
    upto: u64,
    pub(super) due: VecDeque<(u64, i32, String)>,
    /// Events without a zxid of their own: setWatches made them up.
    pub(super) made_up: Vec<(i32, String)>,
}

impl Watches {
    /// Everything that fires up to this zxid becomes due.
    pub(super) fn advance(&mut self, model: &Model, identities: &[Identity], zxid: u64) {
        if !self.set.is_empty() {
            for (at, step) in model.tree.steps(self.upto, zxid) {
                self.fire(at, step, identities);
            }
        }
        self.upto = self.upto.max(zxid);
    }

    fn fire(&mut self, zxid: u64, step: &Step, identities: &[Identity]) {
        let Step { kind, path, acl, parent_acl } = step;
        let told = self.node_watched(path) | (*kind == DELETED && self.set.child.remove(path));
        let mut events = vec![(told, acl, *kind, path.as_str())];
        if let Some(acl) = parent_acl {
            let parent = parent_of(path);
            let told = self.set.child.remove(parent) | self.set.persistent.contains(parent);
            events.push((told, acl, CHILDREN_CHANGED, parent));
        }
        let told = events.into_iter().filter(|(told, acl, ..)| *told && allows(acl, READ, identities));
        self.due.extend(told.map(|(_, _, kind, path)| (zxid, kind, path.to_owned())));
    }

    /// Whether an event on the znode itself is told; what fires once is used up.
    fn node_watched(&mut self, path: &str) -> bool {
        let WatchLists { data, persistent, recursive, .. } = &mut self.set;
        let mut above = path;
        let mut told = data.remove(path) | persistent.contains(path) | recursive.contains(path);
        while above != "/" {
            above = parent_of(above);
            told |= recursive.contains(above);
        }
        told
    }
}
