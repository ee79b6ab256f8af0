//! Watches (protocol chapters 4.3 and 14): one-shot exactly once, persistent ones always, in the order of zxids.
//! The event comes before any reply that shows the change, and none is lost while the connection lives. setWatches
//! tells the missed events.
//!
//! The model's steps give the one legal stream of events for the watches of a connection. Each reply and each event
//! moves the connection on to its zxid: what became due on the way must have come.

use crate::check::checkers::Checkers;
use crate::model::{CHILDREN_CHANGED, CREATED, DATA_CHANGED, DELETED, LinkId, Model, Node};
use crate::request::Request;
use crate::violation::{Checked, Violation, require};

const NO_WATCHER: i32 = -121;

pub(crate) fn event(checkers: &mut Checkers, link: LinkId, zxid: i64, kind: i32, path: &str) -> Checked {
    let facts = &mut checkers.facts[link.0];
    if zxid == -1 {
        facts.watches.made_up.push((kind, path.to_owned()));
        return Ok(());
    }
    let at = u64::try_from(zxid).map_err(|_| Violation::of("watches", format!("event with zxid {zxid:#x}")))?;
    facts.watches.advance(&checkers.model, &facts.identities, at);
    let due = facts.watches.due.pop_front();
    require(due.as_ref() == Some(&(at, kind, path.to_owned())), "watches", || {
        format!("link {}: event {kind} {path} at {at:#x}, due was {due:x?}", link.0)
    })
}

/// Before a reply everything must have come that its zxid contains.
pub(super) fn events_before_reply(checkers: &mut Checkers, link: LinkId, request: &Request, zxid: i64) -> Checked {
    let facts = &mut checkers.facts[link.0];
    facts.watches.advance(&checkers.model, &facts.identities, zxid.cast_unsigned());
    let due = facts.watches.due.front();
    require(due.is_none(), "watches", || {
        format!("link {}: reply at {zxid:#x} to {request:?} before the event {due:x?}", link.0)
    })?;
    let made_up = std::mem::take(&mut facts.watches.made_up);
    let missed = missed(&checkers.model, request, zxid.cast_unsigned());
    require(made_up == missed, "watches", || {
        format!("link {}: {request:?} at {zxid:#x} told {made_up:?}, missed was {missed:?}", link.0)
    })
}

/// checkWatches and removeWatches tell what is there; removed is removed.
pub(super) fn watches_held(checkers: &mut Checkers, link: LinkId, request: &Request, err: i32) -> Checked {
    let (Request::CheckWatches { path, kind } | Request::RemoveWatches { path, kind }) = request else {
        return Ok(());
    };
    let removes = matches!(request, Request::RemoveWatches { .. });
    let mut held = false;
    for list in checkers.facts[link.0].watches.set.of_kind(*kind) {
        held |= if removes { list.remove(path) } else { list.contains(path) };
    }
    let right = if held { 0 } else { NO_WATCHER };
    require(err == right, "watches", || format!("link {}: {request:?} answered {err}, not {right}", link.0))
}

pub(super) fn watch_set(checkers: &mut Checkers, link: LinkId, request: &Request, zxid: i64, err: i32) {
    let facts = &mut checkers.facts[link.0];
    let set = &mut facts.watches.set;
    if let Some((kind, path)) = request.watch_set(err) {
        set.of_kind(kind).iter_mut().for_each(|list| _ = list.insert(path.to_owned()));
    }
    if let Request::SetWatches { data, exist, child, persistent, recursive, .. } = request {
        set.persistent.extend(persistent.iter().cloned());
        set.recursive.extend(recursive.iter().cloned());
        let missed = missed(&checkers.model, request, zxid.cast_unsigned());
        // An event for one kind of watch leaves another kind on the same path alone.
        let stays = |kinds: [i32; 2], path: &str| !missed.iter().any(|(kind, at)| at == path && kinds.contains(kind));
        set.data.extend(data.iter().filter(|path| stays([DELETED, DATA_CHANGED], path)).cloned());
        set.data.extend(exist.iter().filter(|path| stays([CREATED; 2], path)).cloned());
        set.child.extend(child.iter().filter(|path| stays([DELETED, CHILDREN_CHANGED], path)).cloned());
    }
}

/// The events that setWatches must tell at once (protocol chapter 14.4).
fn missed(model: &Model, request: &Request, zxid: u64) -> Vec<(i32, String)> {
    let Request::SetWatches { seen, data, exist, child, .. } = request else { return Vec::new() };
    let seen = seen.cast_unsigned();
    let changed = |list: &[String], event: i32, changed_at: fn(&Node) -> u64| {
        let missed = list.iter().filter_map(|path| match model.tree.node_at(path, zxid) {
            None => Some((DELETED, path.clone())),
            Some(node) => (changed_at(node) > seen).then(|| (event, path.clone())),
        });
        missed.collect::<Vec<_>>()
    };
    let made = exist.iter().filter(|path| model.tree.node_at(path, zxid).is_some());
    let made = made.map(|path| (CREATED, path.clone())).collect();
    [changed(data, DATA_CHANGED, |node| node.mzxid), made, changed(child, CHILDREN_CHANGED, |node| node.pzxid)].concat()
}
