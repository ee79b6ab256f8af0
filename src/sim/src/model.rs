//! The reference model: a plain tree of its own with rules of its own, written from protocol chapters 9 to 15 and 17.
//! It shares no code with the server's core.
//!
//! It keeps every version of every znode, so that a read can be compared with the state at exactly its zxid. It keeps
//! the steps of each transaction, so that the one legal stream of watch events can be derived. Knows no bytes, no
//! connections' state, no time.

mod acl;
mod caller;
mod draft;
mod errors;
mod keeper;
mod list;
mod node;
mod paths;
mod quota;
mod rules;
mod tree;

use std::collections::{BTreeMap, BTreeSet};

use crate::options::Switches;
use crate::reconfig::{Change, Seats, lines};
use crate::request::{AclItem, Body, Write};
use draft::Draft;
use errors::{MOVED, RECONFIG_DISABLED, RECONFIG_IN_PROGRESS, RUNTIME_INCONSISTENCY, SESSION_EXPIRED, need};
use node::Life;
use paths::PLACE;
use tree::Tree;

pub(crate) use acl::{ADMIN, Identity, READ, SUPER, SUPER_ID, allows, digest_id, is_within, redacted};
pub(crate) use caller::{Caller, LinkId};
pub(crate) use errors::{BAD_ARGUMENTS, MARSHALLING_ERROR, NO_AUTH, UNIMPLEMENTED};
pub(crate) use list::List;
pub(crate) use node::{CHILDREN_CHANGED, CREATED, DATA_CHANGED, DELETED, Node, Step};
pub(crate) use paths::{is_legal, is_system, parent_of};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) password: [u8; 16],
    pub(crate) timeout_ms: i32,
    pub(crate) owner: LinkId,
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

#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    switches: Switches,
    pub(crate) tree: Tree,
    pub(crate) sessions: BTreeMap<i64, Session>,
    /// Every session there ever was: ids are never used twice.
    sessions_ever: BTreeSet<i64>,
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
        Model { switches, tree: Tree::of(initial), voters_min, ..Model::default() }
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
                let owned = draft.tree.nodes().filter(|(_, node)| node.owner == session);
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
        if self.tree.node(path).is_some_and(still) {
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

    pub(crate) fn write(&mut self, caller: &Caller<'_>, write: &Write) -> Expected {
        let (mut done, session) = (Err(MOVED), self.session_check(caller));
        self.change(caller.zxid, |draft| {
            done = rules::perform(draft, caller, session, write);
            done.is_ok()
        });
        done.map_or_else(refused, |body| Expected::Reply { err: 0, body: of_one(body) })
    }

    /// The session lives and is still the sender's.
    fn session_check(&self, caller: &Caller<'_>) -> Result<(), i32> {
        let session = self.sessions.get(&caller.session).ok_or(SESSION_EXPIRED)?;
        need(Some(session.owner) == caller.link, MOVED)
    }

    /// A command that is refused before it is evaluated changes nothing but the zxid.
    pub(crate) fn refuse(&mut self, caller: &Caller<'_>, code: i32) -> Expected {
        self.zxid = caller.zxid;
        refused(self.session_check(caller).err().unwrap_or(code))
    }

    /// All or nothing, as in protocol chapter 13.2.
    pub(crate) fn multi(&mut self, caller: &Caller<'_>, writes: &[Write]) -> Expected {
        let (mut done, session) = (Ok(Vec::new()), self.session_check(caller));
        self.change(caller.zxid, |draft| {
            let mut perform = |(at, write)| rules::perform(draft, caller, session, write).map_err(|code| (at, code));
            done = writes.iter().enumerate().map(&mut perform).collect();
            done.is_ok()
        });
        let items = match done {
            Ok(items) => items,
            Err((_, MOVED)) => return Expected::Moved,
            Err((failed, code)) => {
                let (before, behind) = (vec![0; failed], vec![RUNTIME_INCONSISTENCY; writes.len() - failed - 1]);
                [before, vec![code], behind].concat().into_iter().map(Body::Error).collect()
            }
        };
        Expected::Reply { err: 0, body: Body::Multi(items) }
    }

    /// A transaction: its changes are kept if `work` says so.
    fn change(&mut self, zxid: u64, work: impl FnOnce(&mut Draft<'_>) -> bool) {
        self.zxid = zxid;
        let (tree, switches) = (&self.tree, &self.switches);
        let has_list = self.voters_min.is_some();
        let mut draft = Draft { tree, switches, has_list, zxid, changed: BTreeMap::new(), steps: Vec::new() };
        if work(&mut draft) {
            let Draft { changed, steps, .. } = draft;
            self.tree.commit(zxid, changed, steps);
        }
    }

    /// The server makes its system znodes, or gives them other data.
    pub(crate) fn system_nodes(&mut self, zxid: u64, time: i64, nodes: &[(String, Vec<u8>)]) {
        self.change(zxid, |draft| {
            nodes.iter().for_each(|(path, data)| keeper::make_system(draft, time, path, data));
            true
        });
    }

    /// The first leader puts the list there. Its version is of its epoch, and so is the znode's mzxid.
    pub(crate) fn configured(&mut self, zxid: u64, time: i64, seats: Seats) {
        self.zxid = zxid;
        if self.list.is_none() {
            self.put(zxid, time, seats, zxid >> 32 << 32);
        }
    }

    /// The ensemble has gone over to this list.
    pub(crate) fn reconfigured(&mut self, zxid: u64, time: i64, seats: Seats) -> Expected {
        self.zxid = zxid;
        self.put(zxid, time, seats, zxid)
    }

    fn put(&mut self, zxid: u64, time: i64, seats: Seats, version: u64) -> Expected {
        let mut node = self.tree.node(PLACE).expect("it cannot be deleted").clone();
        let text = format!("{}version={version:x}", lines(&seats)).into_bytes();
        node.data = Some(text.clone());
        (node.version, node.mzxid, node.mtime) = (-1, version, time);
        let stat = node.stat();
        self.change(zxid, |draft| {
            draft.step(DATA_CHANGED, PLACE, &node, None);
            draft.set(PLACE, node);
            true
        });
        self.list = Some(List { seats, version });
        Expected::Reply { err: 0, body: Body::Data(Some(text), stat) }
    }

    /// A client's change, in ZooKeeper's order of checks. `in_progress`: the leader has another in hand.
    pub(crate) fn reconfig(&mut self, caller: &Caller<'_>, change: &Change, in_progress: bool) -> Expected {
        self.zxid = caller.zxid;
        if let Some(session) = self.sessions.get(&caller.session)
            && Some(session.owner) != caller.link
            && self.switches.reconfig
        {
            return Expected::Moved;
        }
        let (list, next) = match self.next_list(caller, change, in_progress) {
            Ok(lists) => lists,
            Err(err) => return refused(err),
        };
        let roles = |seats: &Seats| seats.iter().map(|(id, seat)| (*id, seat.observer)).collect::<Vec<_>>();
        if roles(&list.seats) == roles(&next) {
            return self.put(caller.zxid, caller.time, next, caller.zxid);
        }
        Expected::Underway { next, version: list.version }
    }

    fn next_list(&self, caller: &Caller<'_>, change: &Change, in_progress: bool) -> Result<(List, Seats), i32> {
        need(self.switches.reconfig, RECONFIG_DISABLED)?;
        need(self.sessions.contains_key(&caller.session), SESSION_EXPIRED)?;
        let list = self.list.clone().ok_or(UNIMPLEMENTED)?;
        need(!in_progress, RECONFIG_IN_PROGRESS)?;
        let node = self.tree.node(PLACE).expect("it cannot be deleted");
        let next = list::next_list(&list, caller, change, self.voters_min.unwrap_or(0), &node.acl)?;
        Ok((list, next))
    }
}

/// The reply to a client about a write that fails.
fn refused(err: i32) -> Expected {
    if err == MOVED { Expected::Moved } else { Expected::Reply { err, body: Body::Nothing } }
}

/// The reply to an operation outside of a multi.
fn of_one(body: Body) -> Body {
    if matches!(body, Body::Deleted | Body::Checked | Body::Done) { Body::Nothing } else { body }
}
