//! The reference model: a plain tree of its own with rules of its own, written from protocol chapters 9 to 15 and 17.
//! It shares no code with the server's core.
//!
//! It keeps every version of every znode, so that a read can be compared with the state at exactly its zxid. It keeps
//! the steps of each transaction, so that the one legal stream of watch events can be derived. Knows no bytes, no
//! connections' state, no time.

mod acl;
mod keeper;
mod list;
mod quota;
mod rules;

use std::collections::{BTreeMap, BTreeSet};

use corral_wire::records::Stat;

use crate::limits::{COUNTED_MAX, DELETED_MAX};
use crate::options::Switches;
use crate::reconfig::Seats;
use crate::request::{AclItem, Body};

pub(crate) use acl::{ADMIN, Identity, READ, SUPER, SUPER_ID, allows, digest_id, is_within, redacted};
pub(crate) use keeper::is_system;
pub(crate) use list::List;
pub(crate) use rules::{BAD_ARGUMENTS, MARSHALLING_ERROR, NO_AUTH, UNIMPLEMENTED, is_legal, parent_of};

/// Kinds of watch events.
pub(crate) const CREATED: i32 = 1;
pub(crate) const DELETED: i32 = 2;
pub(crate) const DATA_CHANGED: i32 = 3;
pub(crate) const CHILDREN_CHANGED: i32 = 4;

/// A simulated connection; also stands for the owner of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LinkId(pub(crate) usize);

/// A znode. `created` counts children ever created, see protocol chapter 10.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) data: Option<Vec<u8>>,
    pub(crate) acl: Vec<AclItem>,
    pub(crate) czxid: u64,
    pub(crate) mzxid: u64,
    pub(crate) pzxid: u64,
    pub(crate) ctime: i64,
    pub(crate) mtime: i64,
    pub(crate) version: i32,
    pub(crate) created: i32,
    pub(crate) aversion: i32,
    /// The session of an ephemeral, else 0.
    pub(crate) owner: i64,
    pub(crate) children: i32,
    pub(crate) life: Life,
}

/// How a znode ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Life {
    #[default]
    /// Deleted by a client, or with its session.
    Plain,
    Container,
    Ttl(i64),
}

impl Node {
    fn made(zxid: u64, time: i64, data: Option<Vec<u8>>, acl: Vec<AclItem>) -> Node {
        Node { data, acl, czxid: zxid, mzxid: zxid, pzxid: zxid, ctime: time, mtime: time, ..Node::default() }
    }

    /// As a transaction gives it other data.
    fn set_data(&mut self, zxid: u64, time: i64, data: Option<Vec<u8>>) {
        (self.data, self.version) = (data, self.version.wrapping_add(1));
        (self.mzxid, self.mtime) = (zxid, time);
    }

    pub(crate) fn stat(&self) -> Stat {
        let data_length = self.data.as_ref().map_or(0, Vec::len);
        Stat {
            czxid: self.czxid.cast_signed(),
            mzxid: self.mzxid.cast_signed(),
            ctime: self.ctime,
            mtime: self.mtime,
            version: self.version,
            cversion: self.created.wrapping_mul(2).wrapping_sub(self.children),
            aversion: self.aversion,
            ephemeral_owner: self.owner,
            data_length: i32::try_from(data_length).unwrap_or(i32::MAX),
            num_children: self.children,
            pzxid: self.pzxid.cast_signed(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) password: [u8; 16],
    pub(crate) timeout_ms: i32,
    pub(crate) owner: LinkId,
}

/// One step of a transaction, with the ACL that decides which clients may see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// [`CREATED`], [`DELETED`] or [`DATA_CHANGED`].
    pub(crate) kind: i32,
    pub(crate) path: String,
    pub(crate) acl: Vec<AclItem>,
    /// ACL of the parent, if its children changed.
    pub(crate) parent_acl: Option<Vec<AclItem>>,
}

impl Step {
    /// Whether there is another number of znodes below this one.
    pub(crate) fn changes_below(&self, top: &str) -> bool {
        self.parent_acl.is_some() && (top == "/" || rules::is_below(&self.path, top))
    }
}

/// The model's verdict on a command: a reply with this code and body, the begin or refusal of a session, or a closed
/// connection. There is no reply yet if the ensemble has to go over to a list first. That list takes the place of the
/// one with this version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    Reply { err: i32, body: Body },
    SessionBegun { session: i64, timeout_ms: i32, password: [u8; 16] },
    SessionRefused,
    Moved,
    Underway { next: Seats, version: u64 },
}

/// The sender of a command and its time.
#[derive(Clone, Debug)]
pub(crate) struct Caller<'a> {
    pub(crate) zxid: u64,
    pub(crate) time: i64,
    pub(crate) session: i64,
    pub(crate) link: Option<LinkId>,
    pub(crate) identities: &'a [Identity],
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    switches: Switches,
    versions: BTreeMap<String, Vec<(u64, Option<Node>)>>,
    pub(crate) sessions: BTreeMap<i64, Session>,
    /// Every session there ever was: ids are never used twice.
    sessions_ever: BTreeSet<i64>,
    steps: BTreeMap<u64, Vec<Step>>,
    pub(crate) zxid: u64,
    pub(crate) list: Option<List>,
    /// So many servers of the list must have a vote; `None` where there is no list.
    voters_min: Option<usize>,
}

impl Model {
    /// An empty server's tree (protocol chapter 10).
    pub(crate) fn new(switches: Switches, voters_min: Option<usize>) -> Model {
        let node =
            |acl, aversion, children| Node { aversion, children, ..Node::made(0, 0, Some(Vec::new()), vec![acl]) };
        let open = AclItem::open;
        let initial = [
            ("/", node(open(), 0, 1)),
            ("/zookeeper", node(open(), 0, 2)),
            ("/zookeeper/config", node(AclItem::new(1, "world", "anyone"), -1, 0)),
            ("/zookeeper/quota", node(open(), 0, 0)),
        ];
        let versions = initial.into_iter().map(|(path, node)| (path.to_owned(), vec![(0, Some(node))])).collect();
        Model { switches, versions, voters_min, ..Model::default() }
    }

    pub(crate) fn node(&self, path: &str) -> Option<&Node> {
        self.versions.get(path)?.last()?.1.as_ref()
    }

    /// The znode as it was right after the transaction `zxid`.
    pub(crate) fn node_at(&self, path: &str, zxid: u64) -> Option<&Node> {
        let versions = self.versions.get(path)?;
        let after = versions.partition_point(|(at, _)| *at <= zxid);
        versions.get(after.checked_sub(1)?)?.1.as_ref()
    }

    /// The names of the children right after the transaction `zxid`, sorted.
    pub(crate) fn children_at(&self, path: &str, zxid: u64) -> Vec<String> {
        let below = self.below_at(path, zxid);
        below.filter(|name| !name.contains('/')).map(str::to_owned).collect()
    }

    /// The rest of the path of every znode below this one right after the transaction `zxid`, sorted.
    pub(crate) fn below_at(&self, path: &str, zxid: u64) -> impl Iterator<Item = &str> {
        let prefix = if path == "/" { "/".to_owned() } else { format!("{path}/") };
        let paths = self.versions.range(prefix.clone()..).map(|(path, _)| path);
        let names = paths.map_while(move |path| Some((path, path.strip_prefix(&prefix)?)));
        names.filter(move |(path, name)| !name.is_empty() && self.node_at(path, zxid).is_some()).map(|(_, name)| name)
    }

    /// The ephemerals of a session right after the transaction `zxid` with paths that begin with the text, sorted.
    pub(crate) fn owned_at(&self, session: i64, prefix: &str, zxid: u64) -> Vec<String> {
        let owned = |path: &str| self.node_at(path, zxid).is_some_and(|node| node.owner == session);
        self.versions.keys().filter(|path| path.starts_with(prefix) && owned(path)).cloned().collect()
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.versions.iter().filter_map(|(path, list)| Some((path.as_str(), list.last()?.1.as_ref()?)))
    }

    /// Whether a server would count the whole tree at once, even a little later.
    pub(crate) fn is_counted_at_once(&self) -> bool {
        let (mut znodes, mut deletions) = (0, 0);
        for (_, node) in self.nodes() {
            znodes += 1;
            deletions += node.created.saturating_sub(node.children).max(0);
        }
        znodes <= COUNTED_MAX && deletions <= DELETED_MAX
    }

    /// The steps of the transactions after `from` up to `to`, in order.
    pub(crate) fn steps(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, &Step)> {
        let range = (std::ops::Bound::Excluded(from), std::ops::Bound::Included(to.max(from)));
        let range = if to > from { Some(self.steps.range::<u64, _>(range)) } else { None };
        range.into_iter().flatten().flat_map(|(zxid, steps)| steps.iter().map(|step| (*zxid, step)))
    }

    /// A session begins; its id is the server's choice. False when that id is 0 or was used before.
    #[must_use]
    pub(crate) fn begin_session(&mut self, zxid: u64, session: i64, state: Session) -> bool {
        self.zxid = zxid;
        self.sessions.insert(session, state);
        session != 0 && self.sessions_ever.insert(session)
    }

    /// A connection wants a session; takes no zxid.
    pub(crate) fn attach_session(&mut self, session: i64, wanted: Session) -> Expected {
        let Session { password, timeout_ms, .. } = wanted;
        match self.sessions.get_mut(&session) {
            Some(known) if known.password == password => {
                *known = wanted;
                Expected::SessionBegun { session, timeout_ms, password }
            }
            _ => Expected::SessionRefused,
        }
    }

    /// A session ends, with all its ephemerals, in one transaction (protocol chapter 15.5).
    pub(crate) fn close_session(&mut self, zxid: u64, session: i64) -> Expected {
        self.zxid = zxid;
        if self.sessions.remove(&session).is_some() {
            self.change(zxid, |draft| {
                let owned = draft.model.nodes().filter(|(_, node)| node.owner == session);
                owned.for_each(|(path, _)| draft.remove(path));
                true
            });
        }
        Expected::Reply { err: 0, body: Body::Nothing }
    }

    /// The server deletes a container or TTL node, if it is still what was chosen (protocol chapter 9.4).
    pub(crate) fn reap(&mut self, zxid: u64, path: &str, mzxid: u64) {
        self.zxid = zxid;
        let still = |node: &Node| node.life != Life::Plain && node.children == 0 && node.mzxid == mzxid;
        if self.node(path).is_some_and(still) {
            self.change(zxid, |draft| {
                draft.remove(path);
                true
            });
        }
    }

    /// Whether a container or TTL node has outlived its use at this time.
    pub(crate) fn is_outlived(node: &Node, wall: i64) -> bool {
        node.children == 0
            && match node.life {
                Life::Plain => false,
                Life::Container => node.created > 0,
                Life::Ttl(ttl) => wall - node.mtime > ttl,
            }
    }
}
