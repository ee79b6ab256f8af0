//! The checks and effects of each write, in the order of protocol chapter 11; multi as in protocol chapter 13.2.

use std::collections::BTreeMap;

use super::acl::{ADMIN, CREATE, DELETE, READ, WRITE, allows, fixed_up};
use super::list::PLACE;
use super::{Caller, Expected, Life, Model, Node, Step};
use crate::request::{AclItem, Body, Item, Write};

const RUNTIME_INCONSISTENCY: i32 = -2;
pub(super) const MARSHALLING_ERROR: i32 = -5;
const UNIMPLEMENTED: i32 = -6;
pub(super) const BAD_ARGUMENTS: i32 = -8;
pub(super) const NO_NODE: i32 = -101;
pub(super) const NO_AUTH: i32 = -102;
pub(super) const BAD_VERSION: i32 = -103;
const NO_CHILDREN_FOR_EPHEMERALS: i32 = -108;
pub(super) const NODE_EXISTS: i32 = -110;
pub(super) const NOT_EMPTY: i32 = -111;
const SESSION_EXPIRED: i32 = -112;
const QUOTA_EXCEEDED: i32 = -125;
const INVALID_ACL: i32 = -114;

const NAME_BYTES_MAX: usize = 16 << 10;

pub(super) const SPECIAL: [&str; 4] = ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"];

/// Why an operation fails.
enum Refusal {
    Code(i32),
    Moved,
}

impl Model {
    /// One write of its own.
    pub(crate) fn write(&mut self, caller: &Caller<'_>, write: &Write) -> Expected {
        self.zxid = caller.zxid;
        let mut draft = Draft::new(self, caller.zxid);
        match draft.perform(caller, write) {
            Ok(item) => {
                let done = draft.finish();
                self.keep(caller.zxid, done);
                Expected::Reply { err: 0, body: body_of(item) }
            }
            Err(Refusal::Code(err)) => Expected::Reply { err, body: Body::Nothing },
            Err(Refusal::Moved) => Expected::Moved,
        }
    }

    /// The session lives and is still the sender's.
    fn session_check(&self, caller: &Caller<'_>) -> Result<(), Refusal> {
        match self.sessions.get(&caller.session) {
            None => Err(Refusal::Code(SESSION_EXPIRED)),
            Some(session) if Some(session.owner) != caller.link => Err(Refusal::Moved),
            Some(_) => Ok(()),
        }
    }

    /// A multi whose records make no sense changes nothing but the zxid.
    pub(crate) fn undecodable(&mut self, caller: &Caller<'_>) -> Expected {
        self.zxid = caller.zxid;
        match self.session_check(caller) {
            Err(Refusal::Moved) => Expected::Moved,
            Err(Refusal::Code(err)) => Expected::Reply { err, body: Body::Nothing },
            Ok(()) => Expected::Reply { err: MARSHALLING_ERROR, body: Body::Nothing },
        }
    }

    /// All or nothing.
    pub(crate) fn multi(&mut self, caller: &Caller<'_>, writes: &[Write]) -> Expected {
        self.zxid = caller.zxid;
        let mut draft = Draft::new(self, caller.zxid);
        let mut items = Vec::with_capacity(writes.len());
        for write in writes {
            match draft.perform(caller, write) {
                Ok(item) => items.push(item),
                Err(Refusal::Moved) => return Expected::Moved,
                Err(Refusal::Code(code)) => {
                    let failed = items.len();
                    let code_at = |at: usize| match at.cmp(&failed) {
                        std::cmp::Ordering::Less => 0,
                        std::cmp::Ordering::Equal => code,
                        std::cmp::Ordering::Greater => RUNTIME_INCONSISTENCY,
                    };
                    let items = (0..writes.len()).map(|at| Item::Error(code_at(at))).collect();
                    return Expected::Reply { err: 0, body: Body::Multi(items) };
                }
            }
        }
        let done = draft.finish();
        self.keep(caller.zxid, done);
        Expected::Reply { err: 0, body: Body::Multi(items) }
    }
}

fn body_of(item: Item) -> Body {
    match item {
        Item::Path(path) => Body::Path(path),
        Item::PathStat(path, stat) => Body::PathStat(path, stat),
        Item::Stat(stat) => Body::Stat(stat),
        Item::Deleted | Item::Checked | Item::Done | Item::Error(_) => Body::Nothing,
    }
}

/// The model with the changes of one transaction laid over it.
pub(super) struct Draft<'m> {
    pub(super) model: &'m Model,
    zxid: u64,
    pub(super) changed: BTreeMap<String, Option<Node>>,
    pub(super) steps: Vec<Step>,
}

/// What a create makes.
#[derive(Clone, Copy)]
pub(super) enum Made {
    New(Life),
    /// Nothing, if it is there already.
    Ensured,
}

impl<'m> Draft<'m> {
    pub(super) fn new(model: &'m Model, zxid: u64) -> Draft<'m> {
        Draft { model, zxid, changed: BTreeMap::new(), steps: Vec::new() }
    }

    pub(super) fn finish(self) -> (BTreeMap<String, Option<Node>>, Vec<Step>) {
        (self.changed, self.steps)
    }

    pub(super) fn node(&self, path: &str) -> Option<&Node> {
        match self.changed.get(path) {
            Some(changed) => changed.as_ref(),
            None => self.model.node(path),
        }
    }

    pub(super) fn set(&mut self, path: &str, node: Node) {
        self.changed.insert(path.to_owned(), Some(node));
    }

    /// Deletes a session's ephemerals in the order of their paths.
    pub(super) fn remove_ephemerals(&mut self, session: i64) {
        let owned = self.model.nodes().filter(|(_, node)| node.owner == session);
        for path in owned.map(|(path, _)| path.to_owned()).collect::<Vec<String>>() {
            self.remove(&path);
        }
    }

    pub(super) fn remove(&mut self, path: &str) {
        let parent_path = parent_of(path);
        let (Some(node), Some(mut parent)) = (self.node(path).cloned(), self.node(parent_path).cloned()) else {
            return;
        };
        parent.children -= 1;
        parent.pzxid = parent.pzxid.max(self.zxid);
        self.steps.push(Step::Deleted { path: path.to_owned(), acl: node.acl.clone(), parent_acl: parent.acl.clone() });
        self.changed.insert(path.to_owned(), None);
        self.set(parent_path, parent);
        self.account(path, -1, -length(node.data.as_deref()));
    }

    /// What is wrong with the mode of a create; checked before all else.
    fn check_mode(&self, write: &Write) -> Result<(), i32> {
        let extended = self.model.switches.extended_types;
        match write {
            Write::Create { flags: 5 | 6, .. } | Write::CreateExpiring { ttl: Some(_), .. } if !extended => {
                Err(UNIMPLEMENTED)
            }
            Write::Create { flags: 0..=4, .. } => Ok(()),
            Write::Create { .. } => Err(BAD_ARGUMENTS),
            Write::CreateExpiring { ttl: Some(ttl), .. } if !(1..1 << 40).contains(ttl) => Err(BAD_ARGUMENTS),
            _ => Ok(()),
        }
    }

    fn perform(&mut self, caller: &Caller<'_>, write: &Write) -> Result<Item, Refusal> {
        self.check_mode(write).map_err(Refusal::Code)?;
        self.model.session_check(caller)?;
        let done = match write {
            Write::Create { with_stat, path, data, acl, flags } => {
                let made = self.create(caller, path, data.clone(), acl, *flags, Made::New(Life::Plain));
                made.map(|(path, stat)| if *with_stat { Item::PathStat(path, stat) } else { Item::Path(path) })
            }
            Write::Delete { path, version } => self.delete(caller, path, *version),
            Write::SetData { path, data, version } => self.set_data(caller, path, data.clone(), *version),
            Write::SetAcl { path, acl, version } => self.set_acl(caller, path, acl, *version),
            Write::Check { path, version } => self.check(caller, path, *version),
            Write::CreateExpiring { path, ttl } => {
                let made = Made::New(ttl.map_or(Life::Container, Life::Ttl));
                self.create(caller, path, None, &[AclItem::open()], 0, made)
                    .map(|(path, stat)| Item::PathStat(path, stat))
            }
            Write::Ensure { path, data } => self
                .create(caller, path, data.clone(), &[AclItem::open()], 0, Made::Ensured)
                .map(|(path, _)| Item::Path(path)),
            _ => self.keeper(caller, write),
        };
        done.map_err(Refusal::Code)
    }

    fn create(
        &mut self,
        caller: &Caller<'_>,
        path: &str,
        data: Option<Vec<u8>>,
        acl: &[AclItem],
        flags: i32,
        made: Made,
    ) -> Result<(String, corral_wire::records::Stat), i32> {
        if !path.contains('/') || path.contains('\0') {
            return Err(BAD_ARGUMENTS);
        }
        let acl = fixed_up(acl, caller.identities).ok_or(INVALID_ACL)?;
        let parent_path = parent_of(path).to_owned();
        let mut parent = self.node(&parent_path).ok_or(NO_NODE)?.clone();
        if !allows(&parent.acl, CREATE, caller.identities) {
            return Err(NO_AUTH);
        }
        let sequential = flags == 2 || flags == 3;
        let path = if sequential { format!("{path}{:010}", parent.created) } else { path.to_owned() };
        if !is_legal(&path) {
            return Err(BAD_ARGUMENTS);
        }
        // The limit on a name; simulated clients come to none of the others on paths.
        if path.rsplit('/').next().is_some_and(|name| name.len() > NAME_BYTES_MAX) {
            return Err(BAD_ARGUMENTS);
        }
        self.guard(&path)?;
        let life = match (self.node(&path), made) {
            (Some(node), Made::Ensured) => return Ok((path, node.stat())),
            (Some(_), Made::New(_)) => return Err(NODE_EXISTS),
            (None, Made::New(life)) => life,
            (None, Made::Ensured) => Life::Plain,
        };
        if parent.owner != 0 {
            return Err(NO_CHILDREN_FOR_EPHEMERALS);
        }
        let bytes = length(data.as_deref());
        if self.is_beyond_quota(&path, 1, bytes) {
            return Err(QUOTA_EXCEEDED);
        }
        parent.created = parent.created.wrapping_add(1);
        parent.children += 1;
        parent.pzxid = self.zxid;
        let owner = if flags == 1 || flags == 3 { caller.session } else { 0 };
        let node = Node { owner, life, ..Node::made(self.zxid, caller.time, data, acl.clone()) };
        let stat = node.stat();
        self.steps.push(Step::Created { path: path.clone(), acl, parent_acl: parent.acl.clone() });
        self.set(&path, node);
        self.set(&parent_path, parent);
        self.count_if_usage(&path);
        self.account(&path, 1, bytes);
        Ok((path, stat))
    }

    pub(super) fn delete(&mut self, caller: &Caller<'_>, path: &str, version: i32) -> Result<Item, i32> {
        if !path.contains('/') || path.contains('\0') || SPECIAL.contains(&path) {
            return Err(BAD_ARGUMENTS);
        }
        self.guard(path)?;
        let parent = self.node(parent_of(path)).ok_or(NO_NODE)?;
        if !allows(&parent.acl, DELETE, caller.identities) {
            return Err(NO_AUTH);
        }
        let node = self.node(path).ok_or(NO_NODE)?;
        expect(node.version, version)?;
        if node.children > 0 {
            return Err(NOT_EMPTY);
        }
        self.remove(path);
        Ok(Item::Deleted)
    }

    pub(super) fn existing(&self, caller: &Caller<'_>, path: &str, wanted: i32) -> Result<Node, i32> {
        self.guard(path)?;
        let node = self.node(path).ok_or(NO_NODE)?;
        if allows(&node.acl, wanted, caller.identities) { Ok(node.clone()) } else { Err(NO_AUTH) }
    }

    fn set_data(&mut self, caller: &Caller<'_>, path: &str, data: Option<Vec<u8>>, version: i32) -> Result<Item, i32> {
        if !is_legal(path) {
            return Err(BAD_ARGUMENTS);
        }
        let mut node = self.existing(caller, path, WRITE)?;
        if path == PLACE && self.model.list_rules.is_some() {
            return Err(BAD_ARGUMENTS);
        }
        let more = length(data.as_deref()) - length(node.data.as_deref());
        if self.is_beyond_quota(path, 0, more) {
            return Err(QUOTA_EXCEEDED);
        }
        expect(node.version, version)?;
        node.data = data;
        node.version = node.version.wrapping_add(1);
        node.mzxid = self.zxid;
        node.mtime = caller.time;
        let stat = node.stat();
        self.steps.push(Step::DataSet { path: path.to_owned(), acl: node.acl.clone() });
        self.set(path, node);
        self.account(path, 0, more);
        Ok(Item::Stat(stat))
    }

    fn set_acl(&mut self, caller: &Caller<'_>, path: &str, acl: &[AclItem], version: i32) -> Result<Item, i32> {
        if !is_legal(path) {
            return Err(BAD_ARGUMENTS);
        }
        let acl = fixed_up(acl, caller.identities).ok_or(INVALID_ACL)?;
        let mut node = self.existing(caller, path, ADMIN)?;
        expect(node.aversion, version)?;
        node.acl = acl;
        node.aversion = node.aversion.wrapping_add(1);
        let stat = node.stat();
        self.set(path, node);
        Ok(Item::Stat(stat))
    }

    fn check(&self, caller: &Caller<'_>, path: &str, version: i32) -> Result<Item, i32> {
        if !is_legal(path) {
            return Err(BAD_ARGUMENTS);
        }
        expect(self.existing(caller, path, READ)?.version, version)?;
        Ok(Item::Checked)
    }
}

pub(super) fn expect(actual: i32, wanted: i32) -> Result<(), i32> {
    if wanted == -1 || wanted == actual { Ok(()) } else { Err(BAD_VERSION) }
}

pub(super) fn parent_of(path: &str) -> &str {
    match path.rfind('/') {
        Some(0) | None => "/",
        Some(at) => &path[..at],
    }
}

/// Whether a path is legal (protocol chapter 8), as far as simulated clients go: what they send is ASCII.
pub(super) fn is_legal(path: &str) -> bool {
    if path == "/" {
        return true;
    }
    path.starts_with('/')
        && !path.ends_with('/')
        && path[1..].split('/').all(|part| !matches!(part, "" | "." | ".."))
        && !path.chars().any(|c| c.is_ascii_control())
}

pub(super) fn length(data: Option<&[u8]>) -> i64 {
    i64::try_from(data.map_or(0, <[u8]>::len)).expect("data is small")
}
