//! Watches: one-shot exactly once, persistent ones always; the event comes before any reply that shows the change; none is lost while the
//! connection lives; in the order of zxids; setWatches tells what was missed (protocol chapters 4.3 and 14).
//!
//! From the model's steps follows the one legal stream of events for what a connection watches. Each reply and each
//! event moves the connection on to its zxid: what became due on the way must have come.

use std::collections::{BTreeSet, VecDeque};

use super::Checkers;
use crate::model::{Identity, LinkId, Model, NO_NODE, READ, Step, allows};
use crate::request::{Request, WatchKind};
use crate::violation::{Checked, Violation, require};

const CREATED: i32 = 1;
const DELETED: i32 = 2;
const DATA_CHANGED: i32 = 3;
const CHILDREN_CHANGED: i32 = 4;
const NO_WATCHER: i32 = -121;

#[derive(Debug, Default)]
pub(super) struct Watches {
    data: BTreeSet<String>,
    child: BTreeSet<String>,
    persistent: BTreeSet<String>,
    recursive: BTreeSet<String>,
    upto: u64,
    due: VecDeque<(u64, i32, String)>,
    /// Events without a zxid of their own: setWatches made them up.
    made_up: Vec<(i32, String)>,
}

impl Watches {
    /// Everything that fires up to this zxid becomes due.
    fn advance(&mut self, model: &Model, identities: &[Identity], zxid: u64) {
        if [&self.data, &self.child, &self.persistent, &self.recursive].iter().any(|list| !list.is_empty()) {
            for (at, step) in model.steps(self.upto, zxid) {
                self.fire(at, step, identities);
            }
        }
        self.upto = self.upto.max(zxid);
    }

    fn fire(&mut self, zxid: u64, step: &Step, identities: &[Identity]) {
        match step {
            Step::Created { path, acl, parent_acl } => {
                let told = self.node_watched(path);
                self.tell(told && allows(acl, READ, identities), zxid, CREATED, path);
                self.children_changed(zxid, path, parent_acl, identities);
            }
            Step::Deleted { path, acl, parent_acl } => {
                let told = self.node_watched(path) | self.child.remove(path);
                self.tell(told && allows(acl, READ, identities), zxid, DELETED, path);
                self.children_changed(zxid, path, parent_acl, identities);
            }
            Step::DataSet { path, acl } => {
                let told = self.node_watched(path);
                self.tell(told && allows(acl, READ, identities), zxid, DATA_CHANGED, path);
            }
        }
    }

    /// Whether an event on the znode itself is told; what fires once is used up.
    fn node_watched(&mut self, path: &str) -> bool {
        let mut above = path;
        let mut told = self.data.remove(path) | self.persistent.contains(path) | self.recursive.contains(path);
        while above != "/" {
            above = parent(above);
            told |= self.recursive.contains(above);
        }
        told
    }

    fn of_kind(&mut self, kind: WatchKind) -> Vec<&mut BTreeSet<String>> {
        match kind {
            WatchKind::Children => vec![&mut self.child],
            WatchKind::Data => vec![&mut self.data],
            WatchKind::Persistent => vec![&mut self.persistent],
            WatchKind::Recursive => vec![&mut self.recursive],
            WatchKind::Any => vec![&mut self.child, &mut self.data, &mut self.persistent, &mut self.recursive],
        }
    }

    fn children_changed(&mut self, zxid: u64, path: &str, acl: &[crate::request::AclItem], identities: &[Identity]) {
        let parent = parent(path);
        let told = self.child.remove(parent) | self.persistent.contains(parent);
        self.tell(told && allows(acl, READ, identities), zxid, CHILDREN_CHANGED, parent);
    }

    fn tell(&mut self, told: bool, zxid: u64, kind: i32, path: &str) {
        if told {
            self.due.push_back((zxid, kind, path.to_owned()));
        }
    }
}

impl Checkers {
    pub(crate) fn event(&mut self, link: LinkId, zxid: i64, kind: i32, path: &str) -> Checked {
        let facts = self.facts.entry(link).or_default();
        if zxid == -1 {
            facts.watches.made_up.push((kind, path.to_owned()));
            return Ok(());
        }
        let at = u64::try_from(zxid).map_err(|_| Violation::of("watches", format!("event with zxid {zxid:#x}")))?;
        facts.watches.advance(&self.model, &facts.identities, at);
        let due = facts.watches.due.pop_front();
        require(due.as_ref() == Some(&(at, kind, path.to_owned())), "watches", || {
            format!("link {}: event {kind} {path} at {at:#x}, due was {due:x?}", link.0)
        })
    }

    /// Before a reply everything must have come that its zxid contains.
    pub(super) fn events_before_reply(&mut self, link: LinkId, request: &Request, zxid: i64) -> Checked {
        let facts = self.facts.entry(link).or_default();
        facts.watches.advance(&self.model, &facts.identities, zxid.cast_unsigned());
        let due = facts.watches.due.front();
        require(due.is_none(), "watches", || {
            format!("link {}: reply at {zxid:#x} to {request:?} before the event {due:x?}", link.0)
        })?;
        let made_up = std::mem::take(&mut facts.watches.made_up);
        let missed = missed(&self.model, request, zxid.cast_unsigned());
        require(made_up == missed, "watches", || {
            format!("link {}: {request:?} at {zxid:#x} told {made_up:?}, missed was {missed:?}", link.0)
        })
    }

    /// checkWatches and removeWatches tell what is there; removed is removed.
    pub(super) fn watches_held(&mut self, link: LinkId, request: &Request, err: i32) -> Checked {
        let (Request::CheckWatches { path, kind } | Request::RemoveWatches { path, kind }) = request else {
            return Ok(());
        };
        let removes = matches!(request, Request::RemoveWatches { .. });
        let mut held = false;
        for list in self.facts.entry(link).or_default().watches.of_kind(*kind) {
            held |= if removes { list.remove(path) } else { list.contains(path) };
        }
        let right = if held { 0 } else { NO_WATCHER };
        require(err == right, "watches", || format!("link {}: {request:?} answered {err}, not {right}", link.0))
    }

    pub(super) fn watch_set(&mut self, link: LinkId, request: &Request, zxid: i64, err: i32) {
        let facts = self.facts.entry(link).or_default();
        let watches = &mut facts.watches;
        match request {
            Request::Exists { path, watch: true } if err == 0 || err == NO_NODE => {
                watches.data.insert(path.clone());
            }
            Request::GetData { path, watch: true } if err == 0 => {
                watches.data.insert(path.clone());
            }
            Request::GetChildren { path, watch: true, .. } if err == 0 => {
                watches.child.insert(path.clone());
            }
            Request::AddWatch { path, recursive: false } if err == 0 => {
                watches.persistent.insert(path.clone());
            }
            Request::AddWatch { path, recursive: true } if err == 0 => {
                watches.recursive.insert(path.clone());
            }
            Request::SetWatches { data, exist, child, persistent, recursive, .. } => {
                watches.persistent.extend(persistent.iter().cloned());
                watches.recursive.extend(recursive.iter().cloned());
                let missed = missed(&self.model, request, zxid.cast_unsigned());
                // What one kind of watch was told leaves another on the same path alone.
                let stays =
                    |kinds: [i32; 2], path: &str| !missed.iter().any(|(kind, at)| at == path && kinds.contains(kind));
                watches.data.extend(data.iter().filter(|path| stays([DELETED, DATA_CHANGED], path)).cloned());
                watches.data.extend(exist.iter().filter(|path| stays([CREATED; 2], path)).cloned());
                watches.child.extend(child.iter().filter(|path| stays([DELETED, CHILDREN_CHANGED], path)).cloned());
            }
            _ => {}
        }
    }
}

fn parent(path: &str) -> &str {
    path.rfind('/').map_or("/", |at| &path[..at.max(1)])
}

/// What setWatches must tell at once (protocol chapter 14.4).
fn missed(model: &Model, request: &Request, zxid: u64) -> Vec<(i32, String)> {
    let Request::SetWatches { seen, data, exist, child, .. } = request else { return Vec::new() };
    let seen = seen.cast_unsigned();
    let mut missed = Vec::new();
    for path in data {
        match model.node_at(path, zxid) {
            None => missed.push((DELETED, path.clone())),
            Some(node) if node.mzxid > seen => missed.push((DATA_CHANGED, path.clone())),
            Some(_) => {}
        }
    }
    for path in exist {
        if model.node_at(path, zxid).is_some() {
            missed.push((CREATED, path.clone()));
        }
    }
    for path in child {
        match model.node_at(path, zxid) {
            None => missed.push((DELETED, path.clone())),
            Some(node) if node.pzxid > seen => missed.push((CHILDREN_CHANGED, path.clone())),
            Some(_) => {}
        }
    }
    missed
}
