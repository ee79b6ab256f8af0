//! Long lists of children, written in pieces over several turns: the core serves its other clients in between.
//!
//! The reply shows one state, that of the moment the list was begun, although the view moves on. A change of a child
//! that was not written yet is reported to the list first ([`GradualList::preserve`]), which keeps the former state of
//! the child. Events for the client are kept behind the reply meanwhile, so that it sees no change before the older
//! state. Knows neither connections nor turns.

use super::list_format::ListFormat;
use crate::ids::Zxid;
use crate::limits::{BYTES_PER_COST, LIST_PIECE, LOOK_UP_COST, REPLY_FRAME_BYTES_MAX, UNCONCERNED_COST};
use crate::path;
use crate::shared::Text;
use crate::tree::acl::{Identity, READ};
use crate::tree::change::Change;
use crate::tree::view::{ChildrenSize, ListPosition, NodeRef, View};
use crate::tree::znode::Znode;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound;
use corral_wire::frame::{FrameMark, begin_frame, end_frame};
use corral_wire::records::{ReplyHeader, Stat};
use corral_wire::{ErrorCode, Wire, Writer};

/// Names looked at that cost about as much as one child looked up.
const NAMES_PER_CHILD: usize = 8;

/// Names passed in one piece to find the place again in another snapshot.
const NAMES_PASSED: u32 = 64 * 1024;

/// The state of a child when the list was begun.
#[derive(Debug)]
enum Before {
    Absent,
    /// With its state, if the list holds that.
    Present(Option<Arc<Znode>>),
}

impl Before {
    fn data_len(&self) -> usize {
        if let Self::Present(Some(node)) = self { node.data_len() } else { 0 }
    }

    /// Bytes that it holds, with the child's name.
    fn weight(&self, name: &str) -> usize {
        128 + name.len() + self.data_len()
    }
}

/// A vector under construction.
#[derive(Debug, Default)]
struct Elements {
    count: u32,
    bytes: Vec<u8>,
}

/// A list of children that is written in pieces.
#[derive(Debug)]
pub(crate) struct GradualList {
    parent: String,
    hash: u64,
    parent_stat: Stat,
    format: ListFormat,
    place: ListPosition,
    changed: BTreeMap<Text, Before>,
    changed_bytes: usize,
    reply: Vec<u8>,
    frame: Option<FrameMark>,
    count_at: usize,
    names: u32,
    stats: Elements,
    data: Elements,
    /// The path that it began to watch, as it was asked for, with its hash.
    watched: Option<(String, u64)>,
    /// Events that came since it was begun.
    pub(crate) held: Vec<u8>,
}

/// The reader of a list, the view, and limits.
pub(crate) struct ListContext<'s> {
    pub(crate) view: &'s View,
    pub(crate) identities: &'s [Identity],
    pub(crate) skip_acl: bool,
    /// Children's data beyond this is refused.
    pub(crate) reply_bytes_max: usize,
    /// A list that keeps more than this of children that changed is refused.
    pub(crate) changed_bytes_max: usize,
}

impl GradualList {
    /// Begins the list of a znode that may be read, at the state of now.
    pub(super) fn begin(
        xid: i32,
        zxid: Zxid,
        path: &str,
        hash: u64,
        parent: &NodeRef<'_>,
        format: ListFormat,
        size: ChildrenSize,
    ) -> Self {
        let mut reply = Vec::with_capacity(if format.needs_nodes() { 0 } else { format.bytes_max(size) });
        let frame = begin_frame(&mut reply);
        ReplyHeader::ok(xid, zxid.wire()).encode(&mut Writer::new(&mut reply));
        let count_at = reply.len();
        reply.extend_from_slice(&[0; 4]);
        Self {
            parent: String::from(path),
            hash,
            parent_stat: parent.wire_stat(),
            format,
            place: ListPosition::default(),
            changed: BTreeMap::new(),
            changed_bytes: 0,
            reply,
            frame: Some(frame),
            count_at,
            names: 0,
            stats: Elements::default(),
            data: Elements::default(),
            watched: None,
            held: Vec::new(),
        }
    }

    /// The list set a watch that was not there before.
    pub(super) fn has_set_watch(&mut self, path: &str, hash: u64) {
        self.watched = Some((String::from(path), hash));
    }

    /// The watch to be taken back because the list failed.
    pub(crate) fn fresh_watch(&self, failed: bool) -> Option<(&str, u64)> {
        self.watched.as_ref().filter(|_| failed).map(|(path, hash)| (path.as_str(), *hash))
    }

    /// Bytes that it holds.
    pub(crate) fn bytes(&self) -> usize {
        let parts = [&self.reply, &self.stats.bytes, &self.data.bytes, &self.held];
        parts.iter().map(|part| part.capacity()).sum::<usize>() + self.changed_bytes
    }

    /// A change that is about to reach the view. Gives the work that it was.
    pub(crate) fn preserve(&mut self, view: &View, change: &Change) -> usize {
        let at = change.at();
        let moves = matches!(change, Change::Created { .. } | Change::Deleted { .. });
        let nodes = self.format.needs_nodes();
        if !(moves || nodes) || at.name().is_empty() {
            return UNCONCERNED_COST;
        }
        if at.parent() == self.parent {
            return self.keep(view, at.name(), &at.path, at.hash);
        }
        // A creation or deletion below a child changes the child's Stat.
        if moves && nodes && path::parent(at.parent()) == self.parent && at.parent() != path::ROOT {
            return self.keep(view, path::name(at.parent()), at.parent(), at.parent_hash);
        }
        UNCONCERNED_COST
    }

    /// Keeps the state of a child before it changes.
    fn keep(&mut self, view: &View, name: &str, path: &str, hash: u64) -> usize {
        let passed = self.place.after.as_deref().is_some_and(|after| name <= after);
        if passed || self.changed.contains_key(name) {
            return UNCONCERNED_COST;
        }
        let nodes = self.format.needs_nodes();
        let before = match view.get_hashed(path, hash) {
            None => Before::Absent,
            Some(node) => Before::Present(nodes.then(|| node.to_znode())),
        };
        self.changed_bytes += before.weight(name);
        let data = before.data_len();
        self.changed.insert(Text::from(name), before);
        LOOK_UP_COST + data / BYTES_PER_COST
    }

    /// Writes of some more children. True when all are written. Adds to `looked` what it looked at, in names.
    ///
    /// # Errors
    /// The error for the client: NOAUTH where a child's own ACL counts, THROTTLEDOP when the reply becomes too large.
    pub(crate) fn step(&mut self, context: &ListContext<'_>, looked: &mut usize) -> Result<bool, ErrorCode> {
        if self.changed_bytes > context.changed_bytes_max {
            return Err(ErrorCode::ThrottledOp);
        }
        let mut place = core::mem::take(&mut self.place);
        let mut names_left = NAMES_PASSED;
        let Some(mut steps) = context.view.children_behind(&self.parent, self.hash, &mut place, &mut names_left) else {
            self.place = place;
            *looked += NAMES_PASSED as usize;
            return Ok(false);
        };
        let from = place.after.clone().map_or(Bound::Unbounded, |after| Bound::Excluded(Text::from(after)));
        let changed = core::mem::take(&mut self.changed);
        let mut before = changed.range((from, Bound::Unbounded)).peekable();
        let cost = if self.format.needs_nodes() { NAMES_PER_CHILD } else { 1 };
        let (mut left, mut last, mut done) = (LIST_PIECE, None, Ok(false));
        if before.peek().is_none() && !self.format.needs_nodes() {
            // No child that is still to be written has changed: the names as they are.
            let writer = &mut Writer::new(&mut self.reply);
            while left > 0 {
                let Some((name, there)) = steps.next() else {
                    done = Ok(true);
                    break;
                };
                last = Some(name);
                left = left.saturating_sub(1 + name.len() / 64);
                if there {
                    writer.str(name);
                    self.names += 1;
                }
            }
        }
        while left > 0 && done == Ok(false) {
            left = left.saturating_sub(if self.format.needs_nodes() { cost + self.parent.len() / 64 } else { cost });
            let next = [steps.peek(), before.peek().map(|(name, _)| &***name)].into_iter().flatten().min();
            let Some(name) = next else {
                done = Ok(true);
                break;
            };
            last = Some(name);
            let now = if steps.peek() == Some(name) { steps.next() } else { None };
            let written = match before.next_if(|(changed, _)| ***changed == *name) {
                Some((_, Before::Absent)) => continue,
                Some((_, Before::Present(node))) => self.write(context, name, node.as_ref().map(NodeRef::Live)),
                None if now.is_some_and(|(_, there)| there) => {
                    let node = || context.view.get(&path::child(&self.parent, name));
                    let node = if self.format.needs_nodes() { node() } else { None };
                    self.write(context, name, node)
                }
                None => continue,
            };
            match written {
                // Long names and data count as well.
                Ok(bytes) => left = left.saturating_sub(bytes / 64),
                Err(code) => done = Err(code),
            }
        }
        if let Some(last) = last {
            steps.leave(&mut place, last);
        }
        self.place = place;
        self.changed = changed;
        self.forget_written();
        *looked += LIST_PIECE - left;
        done
    }

    /// Drops the former states of children that are written, some at a time.
    fn forget_written(&mut self) {
        for _ in 0..LIST_PIECE {
            let Some(first) = self.changed.first_entry() else { return };
            if self.place.after.as_deref() < Some(&**first.key()) {
                return;
            }
            let (name, before) = first.remove_entry();
            self.changed_bytes -= before.weight(&name);
        }
    }

    /// Writes of one child; gives the bytes written.
    fn write(&mut self, context: &ListContext<'_>, name: &str, node: Option<NodeRef<'_>>) -> Result<usize, ErrorCode> {
        let before = self.written();
        if self.format.needs_nodes() {
            let Some(node) = node else { return Ok(0) };
            if !self.format.listed.admits(&node) {
                return Ok(0);
            }
            if !(context.skip_acl || node.allows(READ, context.identities)) {
                return Err(ErrorCode::NoAuth);
            }
            let (with_stat, with_data) = self.format.whole.unwrap_or_default();
            if with_stat {
                self.stats.push(&node.wire_stat());
            }
            if with_data {
                self.data.push(&node.data());
            }
        }
        Writer::new(&mut self.reply).str(name);
        self.names += 1;
        let written = self.written();
        if written > REPLY_FRAME_BYTES_MAX || self.data.bytes.len() > context.reply_bytes_max {
            return Err(ErrorCode::ThrottledOp);
        }
        Ok(written - before)
    }

    fn written(&self) -> usize {
        self.reply.len() + self.stats.bytes.len() + self.data.bytes.len()
    }

    /// The whole reply, and the events behind it.
    pub(crate) fn finish(mut self) -> (Vec<u8>, Vec<u8>) {
        self.reply[self.count_at..][..4].copy_from_slice(&self.names.to_be_bytes());
        if self.format.parent_stat {
            self.parent_stat.encode(&mut Writer::new(&mut self.reply));
        }
        if self.format.whole.is_some() {
            for elements in [&self.stats, &self.data] {
                self.reply.extend_from_slice(&elements.count.to_be_bytes());
                self.reply.extend_from_slice(&elements.bytes);
            }
        }
        if let Some(frame) = self.frame.take() {
            end_frame(&mut self.reply, frame).expect("the reply was kept below the limit of a frame");
        }
        (self.reply, self.held)
    }
}

impl Elements {
    fn push<'a>(&mut self, element: &impl Wire<'a>) {
        self.count += 1;
        element.encode(&mut Writer::new(&mut self.bytes));
    }
}
