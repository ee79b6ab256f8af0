//! Reads that visit a whole subtree, in pieces: a core serves its other clients in between.
//!
//! Between two pieces the tree may change. A znode that exists all the while is visited exactly once. A znode created
//! or deleted meanwhile may be visited or not, as in ZooKeeper's own walk over its concurrent table.

use crate::ids::Zxid;
use crate::limits::WALK_PIECE;
use crate::path::{self, ROOT};
use crate::shard::reply;
use crate::tree::acl::{Identity, READ};
use crate::tree::view::{ListPosition, NodeRef, View};
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem::size_of;
use corral_wire::records::{
    GetAllChildrenNumberRequest, GetAllChildrenNumberResponse, ListRecursiveRequest, ReplyHeader,
};
use corral_wire::{ErrorCode, OpCode, Reader, Writer};

/// Names looked at that cost about as much as one znode visited.
const NAMES_PER_VISIT: usize = 8;
/// Bytes of paths or names that cost about as much as one name.
const BYTES_PER_NAME: usize = 64;

/// The reader of a walk, the view, and limits.
pub(crate) struct WalkContext<'s> {
    pub(crate) view: &'s View,
    pub(crate) identities: &'s [Identity],
    pub(crate) skip_acl: bool,
    /// A list that outgrows this is refused ...
    pub(crate) reply_bytes_max: usize,
    /// ... and a walk that holds more than this.
    pub(crate) room: usize,
}

/// The parent of the children of a level.
#[derive(Debug)]
enum Parent {
    Path(String),
    /// The path of the deepest level's parent begins with it: so many bytes.
    Prefix(usize),
}

/// The children of one znode that have yet to be visited.
#[derive(Debug)]
struct Level {
    parent: Parent,
    place: ListPosition,
    /// The next names, each followed by a NUL, which no name contains.
    names: String,
    at: usize,
    /// No names lie behind these.
    whole: bool,
}

#[derive(Debug)]
enum Wanted {
    /// getAllChildrenNumber.
    Count,
    /// listRecursive: no more than this many paths, encoded one after the other.
    List { max: u32, paths: Vec<u8> },
}

/// A walk under way.
#[derive(Debug)]
pub(crate) struct Walk {
    levels: VecDeque<Level>,
    /// Of a count: the path of the last level's parent.
    deepest: String,
    /// Bytes of the levels.
    held: usize,
    visited: u32,
    wanted: Wanted,
}

/// Whether an operation is answered by a walk.
pub(crate) const fn is_walk(op: OpCode) -> bool {
    matches!(op, OpCode::GetAllChildrenNumber | OpCode::ListRecursive)
}

impl Walk {
    /// Starts the walk a request asks for.
    ///
    /// # Errors
    /// The error for the client: MARSHALLINGERROR, NONODE, NOAUTH.
    pub(crate) fn start(context: &WalkContext<'_>, op: OpCode, reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        let (path, wanted) = if op == OpCode::ListRecursive {
            let request = ListRecursiveRequest::decode(reader).map_err(|_| ErrorCode::MarshallingError)?;
            (request.path, Wanted::List { max: request.children_nodes_limit, paths: Vec::new() })
        } else {
            let request = GetAllChildrenNumberRequest::decode(reader).map_err(|_| ErrorCode::MarshallingError)?;
            (request.path, Wanted::Count)
        };
        let path = path.ok_or(ErrorCode::MarshallingError)?;
        let node = context.view.get(path::or_root(path)).ok_or(ErrorCode::NoNode)?;
        if !context.may_read(&node) {
            return Err(ErrorCode::NoAuth);
        }
        let mut walk = Self { levels: VecDeque::new(), deepest: String::new(), held: 0, visited: 0, wanted };
        if matches!((path, &walk.wanted), ("" | ROOT, Wanted::Count)) {
            // Below the empty path, the root's second name, ZooKeeper counts the root too.
            let all = context.view.node_count().saturating_sub(u64::from(path == ROOT));
            walk.visited = u32::try_from(all).unwrap_or(u32::MAX);
        } else {
            walk.enter(path);
        }
        Ok(walk)
    }

    fn enter(&mut self, path: &str) {
        let parent = match self.wanted {
            Wanted::Count => {
                self.deepest.clear();
                self.deepest.push_str(path);
                Parent::Prefix(path.len())
            }
            Wanted::List { .. } => Parent::Path(String::from(path)),
        };
        let level = Level { parent, place: ListPosition::default(), names: String::new(), at: 0, whole: false };
        self.held += level.bytes();
        self.levels.push_back(level);
    }

    fn leave(&mut self) {
        let left = match self.wanted {
            Wanted::Count => self.levels.pop_back(),
            Wanted::List { .. } => self.levels.pop_front(),
        };
        self.held -= left.map_or(0, |level| level.bytes());
        if let Some(Level { parent: Parent::Prefix(length), .. }) = self.levels.back() {
            self.deepest.truncate(*length);
        }
    }

    /// The path of the next znode to visit, `None` at the end of the walk or when `left` is used up. A count goes deep
    /// first, which needs the least memory; a list goes level by level.
    fn next_path(&mut self, view: &View, left: &mut usize) -> Option<String> {
        loop {
            let Self { levels, deepest, held, .. } = self;
            let deep = matches!(self.wanted, Wanted::Count);
            let level = if deep { levels.back_mut() } else { levels.front_mut() }?;
            if let Some((name, _)) = level.names[level.at..].split_once('\0') {
                level.at += name.len() + 1;
                return Some(path::child(level.parent.path(deepest), name));
            }
            if *left == 0 {
                return None;
            }
            if level.whole {
                self.leave();
            } else {
                *held -= level.bytes();
                level.look_on(view, deepest, left);
                *held += level.bytes();
            }
        }
    }

    /// Visits znodes until [`WALK_PIECE`] of them, or as many names, are looked at. True when the walk is over. Adds to `looked`
    /// what it looked at, in names.
    ///
    /// # Errors
    /// THROTTLEDOP when the list outgrows a reply, or the walk the memory that there is.
    pub(crate) fn step(&mut self, context: &WalkContext<'_>, looked: &mut usize) -> Result<bool, ErrorCode> {
        let mut left = WALK_PIECE * NAMES_PER_VISIT;
        let over = self.visit_some(context, &mut left);
        *looked += WALK_PIECE * NAMES_PER_VISIT - left;
        over
    }

    fn visit_some(&mut self, context: &WalkContext<'_>, left: &mut usize) -> Result<bool, ErrorCode> {
        while *left > 0 {
            let Some(path) = self.next_path(context.view, left) else { return Ok(self.levels.is_empty()) };
            *left = left.saturating_sub(NAMES_PER_VISIT + path.len() / BYTES_PER_NAME);
            let Some(node) = context.view.get(&path) else { continue };
            if let Wanted::List { max, paths } = &mut self.wanted {
                if self.visited >= *max {
                    return Ok(true);
                }
                if !context.may_read(&node) {
                    continue;
                }
                Writer::new(paths).str(&path);
            }
            if self.listed() > context.reply_bytes_max || self.bytes() > context.room {
                return Err(ErrorCode::ThrottledOp);
            }
            self.visited = self.visited.saturating_add(1);
            if node.stat().num_children > 0 {
                self.enter(&path);
            }
        }
        Ok(false)
    }

    /// Bytes that the walk holds.
    pub(crate) fn bytes(&self) -> usize {
        let paths = if let Wanted::List { paths, .. } = &self.wanted { paths.capacity() } else { 0 };
        self.held + self.deepest.capacity() + paths
    }

    fn listed(&self) -> usize {
        if let Wanted::List { paths, .. } = &self.wanted { paths.len() } else { 0 }
    }

    /// Appends the reply of a walk that is over.
    pub(crate) fn reply(&self, out: &mut Vec<u8>, xid: i32, zxid: Zxid) {
        let count = i32::try_from(self.visited).unwrap_or(i32::MAX);
        reply::frame(out, |writer| {
            ReplyHeader::ok(xid, zxid.wire()).encode(writer);
            match &self.wanted {
                Wanted::Count => GetAllChildrenNumberResponse { total_number: count }.encode(writer),
                Wanted::List { paths, .. } => {
                    writer.i32(count);
                    writer.raw(paths);
                }
            }
        });
    }
}

impl Parent {
    fn path<'p>(&'p self, deepest: &'p str) -> &'p str {
        match self {
            Self::Path(path) => path,
            Self::Prefix(length) => &deepest[..*length],
        }
    }
}

impl Level {
    fn bytes(&self) -> usize {
        let parent = if let Parent::Path(path) = &self.parent { path.len() } else { 0 };
        size_of::<Self>() + parent + self.names.capacity() + self.place.after.as_ref().map_or(0, |name| name.len())
    }

    /// Takes the next names; no more than a few hundred, and not many bytes of them.
    fn look_on(&mut self, view: &View, deepest: &str, left: &mut usize) {
        const NAMES: usize = 256;
        const NAMES_BYTES: usize = 16 << 10;
        (self.names, self.at) = (String::new(), 0);
        let parent = self.parent.path(deepest);
        let hash = view.hasher().hash(parent);
        let mut names_left = u32::try_from(*left).unwrap_or(u32::MAX);
        let found = view.children_behind(parent, hash, &mut self.place, &mut names_left);
        *left = names_left as usize;
        let Some(mut steps) = found else { return };
        let mut last = None;
        for _ in 0..NAMES {
            let Some((name, there)) = steps.next() else {
                self.whole = true;
                break;
            };
            *left = left.saturating_sub(1 + name.len() / BYTES_PER_NAME);
            last = Some(name);
            if there {
                self.names.push_str(name);
                self.names.push('\0');
            }
            if self.names.len() > NAMES_BYTES {
                break;
            }
        }
        if let Some(last) = last {
            steps.leave(&mut self.place, last);
        }
    }
}

impl WalkContext<'_> {
    fn may_read(&self, node: &NodeRef<'_>) -> bool {
        self.skip_acl || node.allows(READ, self.identities)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::Text;
    use crate::tree::acl::Acl;
    use crate::tree::change::Change;
    use crate::tree::znode::{NodeStat, Znode};
    use alloc::format;
    use alloc::sync::Arc;

    fn grow(view: &mut View, paths: impl Iterator<Item = String>) {
        for path in paths {
            let at = view.hashed(Text::from(path));
            let node = Arc::new(Znode { stat: NodeStat::default(), acl: Acl::Open, data: None });
            view.apply(Zxid(1), &Change::Created { at, node });
        }
    }

    fn context(view: &View) -> WalkContext<'_> {
        WalkContext { view, identities: &[], skip_acl: false, reply_bytes_max: 1 << 20, room: 1 << 20 }
    }

    fn request(path: &str, limit: Option<u32>) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        writer.str(path);
        if let Some(limit) = limit {
            writer.u32(limit);
        }
        bytes
    }

    #[test]
    fn a_count_takes_several_pieces_and_counts_each_node_once() {
        let mut view = View::empty(1);
        grow(&mut view, ["/a", "/a/x", "/ab"].map(String::from).into_iter());
        grow(&mut view, (0..2500).map(|at| format!("/a/{at}")));
        grow(&mut view, (0..700).map(|at| format!("/a/x/{at}")));
        let bytes = request("/a", None);
        let mut walk =
            Walk::start(&context(&view), OpCode::GetAllChildrenNumber, &mut Reader::new(&bytes)).expect("it is");
        let mut pieces = 1;
        while walk.step(&context(&view), &mut 0) == Ok(false) {
            pieces += 1;
        }
        assert_eq!((walk.visited, pieces), (3201, 4));
    }

    #[test]
    fn a_count_holds_no_path_but_the_deepest_and_says_what_it_holds() {
        const LEVELS: usize = 300;
        let mut view = View::empty(1);
        let path = |levels: usize| format!("/{}", "x".repeat(99)).repeat(levels);
        grow(&mut view, (1..=LEVELS).map(path));
        let bytes = request(&path(1), None);
        let start = || Walk::start(&context(&view), OpCode::GetAllChildrenNumber, &mut Reader::new(&bytes));
        let mut walk = start().expect("it is");
        let (mut most, mut left) = (0, usize::MAX);
        while let Some(path) = walk.next_path(&view, &mut left) {
            walk.enter(&path);
            most = most.max(walk.bytes());
        }
        assert!((LEVELS * 100..LEVELS * 1000).contains(&most), "{most} bytes");
        assert_eq!(walk.held, 0);
        let mut walk = start().expect("it is");
        let context = WalkContext { room: most / 2, ..context(&view) };
        let ended = (0..LEVELS).map(|_| walk.step(&context, &mut 0)).find(|step| *step != Ok(false));
        assert_eq!(ended, Some(Err(ErrorCode::ThrottledOp)));
    }

    #[test]
    fn a_list_goes_level_by_level_up_to_its_limit() {
        let mut view = View::empty(1);
        grow(&mut view, ["/a", "/a/x", "/a/x/y", "/a/z"].map(String::from).into_iter());
        for (limit, want) in [(9, &["/a/x", "/a/z", "/a/x/y"][..]), (2, &["/a/x", "/a/z"]), (0, &[])] {
            let bytes = request("/a", Some(limit));
            let mut walk =
                Walk::start(&context(&view), OpCode::ListRecursive, &mut Reader::new(&bytes)).expect("it is");
            assert_eq!(walk.step(&context(&view), &mut 0), Ok(true));
            let mut paths = Vec::new();
            want.iter().for_each(|path| Writer::new(&mut paths).str(path));
            assert!(matches!(&walk.wanted, Wanted::List { paths: got, .. } if *got == paths), "{limit}");
        }
    }
}
