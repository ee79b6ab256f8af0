//! The checks and effects of each write, in the order of protocol chapter 11; multi as in protocol chapter 13.2.

use std::collections::BTreeMap;

use corral_wire::records::Stat;

use super::acl::{ADMIN, CREATE, DELETE, READ, WRITE, allows, fixed_up};
use super::list::PLACE;
use super::{CREATED, Caller, DATA_CHANGED, DELETED, Expected, Life, Model, Node, Step};
use crate::request::{AclItem, Body, NO_NODE, Write};

const RUNTIME_INCONSISTENCY: i32 = -2;
pub(crate) const MARSHALLING_ERROR: i32 = -5;
pub(crate) const UNIMPLEMENTED: i32 = -6;
pub(crate) const BAD_ARGUMENTS: i32 = -8;
pub(crate) const NO_AUTH: i32 = -102;
pub(super) const BAD_VERSION: i32 = -103;
const NO_CHILDREN_FOR_EPHEMERALS: i32 = -108;
pub(super) const NODE_EXISTS: i32 = -110;
pub(super) const NOT_EMPTY: i32 = -111;
pub(super) const SESSION_EXPIRED: i32 = -112;
const QUOTA_EXCEEDED: i32 = -125;
const INVALID_ACL: i32 = -114;

const NAME_BYTES_MAX: usize = 16 << 10;

const SPECIAL: [&str; 4] = ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"];

/// No error code: there is no reply, and the connection is closed.
const MOVED: i32 = i32::MIN;

/// The reply to a client about a write that fails.
pub(super) fn refused(err: i32) -> Expected {
    if err == MOVED { Expected::Moved } else { Expected::Reply { err, body: Body::Nothing } }
}

pub(super) fn need(holds: bool, code: i32) -> Result<(), i32> {
    if holds { Ok(()) } else { Err(code) }
}

impl Model {
    pub(crate) fn write(&mut self, caller: &Caller<'_>, write: &Write) -> Expected {
        let mut done = Err(MOVED);
        self.change(caller.zxid, |draft| {
            done = draft.perform(caller, write);
            done.is_ok()
        });
        done.map_or_else(refused, |body| Expected::Reply { err: 0, body: of_one(body) })
    }

    /// The session lives and is still the sender's.
    pub(super) fn session_check(&self, caller: &Caller<'_>) -> Result<(), i32> {
        let session = self.sessions.get(&caller.session).ok_or(SESSION_EXPIRED)?;
        need(Some(session.owner) == caller.link, MOVED)
    }

    /// A command that is refused before it is evaluated changes nothing but the zxid.
    pub(crate) fn refuse(&mut self, caller: &Caller<'_>, code: i32) -> Expected {
        self.zxid = caller.zxid;
        refused(self.session_check(caller).err().unwrap_or(code))
    }

    /// All or nothing.
    pub(crate) fn multi(&mut self, caller: &Caller<'_>, writes: &[Write]) -> Expected {
        let mut done = Ok(Vec::new());
        self.change(caller.zxid, |draft| {
            let mut perform = |(at, write)| draft.perform(caller, write).map_err(|code| (at, code));
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
    pub(super) fn change(&mut self, zxid: u64, work: impl FnOnce(&mut Draft<'_>) -> bool) {
        self.zxid = zxid;
        let mut draft = Draft { model: self, zxid, changed: BTreeMap::new(), steps: Vec::new() };
        if !work(&mut draft) {
            return;
        }
        let Draft { changed, steps, .. } = draft;
        for (path, node) in changed {
            self.versions.entry(path).or_default().push((zxid, node));
        }
        if !steps.is_empty() {
            self.steps.insert(zxid, steps);
        }
    }
}

/// The reply to an operation outside of a multi.
fn of_one(body: Body) -> Body {
    if matches!(body, Body::Deleted | Body::Checked | Body::Done) { Body::Nothing } else { body }
}

/// The model with the changes of one transaction laid over it.
pub(super) struct Draft<'m> {
    pub(super) model: &'m Model,
    pub(super) zxid: u64,
    pub(super) changed: BTreeMap<String, Option<Node>>,
    pub(super) steps: Vec<Step>,
}

/// The path and the Stat of a znode that was made.
type Made = (String, Stat);

impl Draft<'_> {
    pub(super) fn node(&self, path: &str) -> Option<&Node> {
        match self.changed.get(path) {
            Some(changed) => changed.as_ref(),
            None => self.model.node(path),
        }
    }

    /// The znode at a path and all below it.
    pub(super) fn subtree(&self, top: &str) -> impl Iterator<Item = (&str, &Node)> {
        let own = self.changed.iter().filter_map(|(path, node)| Some((path.as_str(), node.as_ref()?)));
        let others = self.model.nodes().filter(|(path, _)| !self.changed.contains_key(*path));
        own.chain(others).filter(move |(path, _)| *path == top || is_below(path, top))
    }

    pub(super) fn set(&mut self, path: &str, node: Node) {
        self.changed.insert(path.to_owned(), Some(node));
    }

    pub(super) fn step(&mut self, kind: i32, path: &str, node: &Node, parent: Option<&Node>) {
        let parent_acl = parent.map(|parent| parent.acl.clone());
        self.steps.push(Step { kind, path: path.to_owned(), acl: node.acl.clone(), parent_acl });
    }

    /// A znode that was not there, below this parent.
    pub(super) fn add(&mut self, path: &str, node: Node, mut parent: Node) {
        parent.created = parent.created.wrapping_add(1);
        parent.children += 1;
        parent.pzxid = self.zxid;
        self.step(CREATED, path, &node, Some(&parent));
        self.set(path, node);
        self.set(parent_of(path), parent);
    }

    pub(super) fn remove(&mut self, path: &str) {
        let parent_path = parent_of(path);
        let (Some(node), Some(mut parent)) = (self.node(path).cloned(), self.node(parent_path).cloned()) else {
            return;
        };
        parent.children -= 1;
        parent.pzxid = parent.pzxid.max(self.zxid);
        self.step(DELETED, path, &node, Some(&parent));
        self.changed.insert(path.to_owned(), None);
        self.set(parent_path, parent);
        self.account(path, -1, -length(node.data.as_deref()));
    }

    /// Checks the mode of a create, before all else.
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

    fn perform(&mut self, caller: &Caller<'_>, write: &Write) -> Result<Body, i32> {
        self.check_mode(write)?;
        self.model.session_check(caller)?;
        match write {
            Write::Create { with_stat, path, data, acl, flags } => {
                let new = Node { data: data.clone(), acl: acl.clone(), ..Node::default() };
                let made = self.create(caller, path, *flags, new, false);
                made.map(|(path, stat)| if *with_stat { Body::PathStat(path, stat) } else { Body::Path(path) })
            }
            Write::Delete { path, version } => self.delete(caller, path, *version),
            Write::SetData { path, data, version } => self.set_data(caller, path, data.clone(), *version),
            Write::SetAcl { path, acl, version } => self.set_acl(caller, path, acl, *version),
            Write::Check { path, version } => self.check(caller, path, *version),
            Write::CreateExpiring { path, ttl } => {
                let life = ttl.map_or(Life::Container, Life::Ttl);
                let new = Node { life, acl: vec![AclItem::open()], ..Node::default() };
                self.create(caller, path, 0, new, false).map(|(path, stat)| Body::PathStat(path, stat))
            }
            Write::Ensure { path, data } => {
                let new = Node { data: data.clone(), acl: vec![AclItem::open()], ..Node::default() };
                self.create(caller, path, 0, new, true).map(|(path, _)| Body::Path(path))
            }
            _ => self.keeper(caller, write),
        }
    }

    /// Makes a znode with this data, ACL and life. `ensures`: an existing znode will do.
    fn create(&mut self, caller: &Caller<'_>, path: &str, flags: i32, new: Node, ensures: bool) -> Result<Made, i32> {
        need(path.contains('/') && !path.contains('\0'), BAD_ARGUMENTS)?;
        let acl = fixed_up(&new.acl, caller.identities).ok_or(INVALID_ACL)?;
        let parent = self.node(parent_of(path)).ok_or(NO_NODE)?.clone();
        need(allows(&parent.acl, CREATE, caller.identities), NO_AUTH)?;
        let sequential = flags == 2 || flags == 3;
        let path = if sequential { format!("{path}{:010}", parent.created) } else { path.to_owned() };
        need(is_legal(&path), BAD_ARGUMENTS)?;
        // The limit on a name; simulated clients come to none of the others on paths.
        need(path.rsplit('/').next().is_none_or(|name| name.len() <= NAME_BYTES_MAX), BAD_ARGUMENTS)?;
        self.guard(&path)?;
        if let Some(node) = self.node(&path) {
            return if ensures { Ok((path, node.stat())) } else { Err(NODE_EXISTS) };
        }
        need(parent.owner == 0, NO_CHILDREN_FOR_EPHEMERALS)?;
        let bytes = length(new.data.as_deref());
        need(!self.is_beyond_quota(&path, 1, bytes), QUOTA_EXCEEDED)?;
        let owner = if flags == 1 || flags == 3 { caller.session } else { 0 };
        let node = Node { owner, life: new.life, ..Node::made(self.zxid, caller.time, new.data, acl) };
        let stat = node.stat();
        self.add(&path, node, parent);
        self.count_if_usage(&path);
        self.account(&path, 1, bytes);
        Ok((path, stat))
    }

    pub(super) fn delete(&mut self, caller: &Caller<'_>, path: &str, version: i32) -> Result<Body, i32> {
        need(is_removable(path), BAD_ARGUMENTS)?;
        self.guard(path)?;
        let parent = self.node(parent_of(path)).ok_or(NO_NODE)?;
        need(allows(&parent.acl, DELETE, caller.identities), NO_AUTH)?;
        let node = self.node(path).ok_or(NO_NODE)?;
        expect(node.version, version)?;
        need(node.children == 0, NOT_EMPTY)?;
        self.remove(path);
        Ok(Body::Deleted)
    }

    pub(super) fn existing(&self, caller: &Caller<'_>, path: &str, wanted: i32) -> Result<Node, i32> {
        self.guard(path)?;
        let node = self.node(path).ok_or(NO_NODE)?;
        need(allows(&node.acl, wanted, caller.identities), NO_AUTH)?;
        Ok(node.clone())
    }

    fn set_data(&mut self, caller: &Caller<'_>, path: &str, data: Option<Vec<u8>>, version: i32) -> Result<Body, i32> {
        need(is_legal(path), BAD_ARGUMENTS)?;
        let mut node = self.existing(caller, path, WRITE)?;
        need(path != PLACE || self.model.voters_min.is_none(), BAD_ARGUMENTS)?;
        let more = length(data.as_deref()) - length(node.data.as_deref());
        need(!self.is_beyond_quota(path, 0, more), QUOTA_EXCEEDED)?;
        expect(node.version, version)?;
        node.set_data(self.zxid, caller.time, data);
        let stat = node.stat();
        self.step(DATA_CHANGED, path, &node, None);
        self.set(path, node);
        self.account(path, 0, more);
        Ok(Body::Stat(stat))
    }

    fn set_acl(&mut self, caller: &Caller<'_>, path: &str, acl: &[AclItem], version: i32) -> Result<Body, i32> {
        need(is_legal(path), BAD_ARGUMENTS)?;
        let acl = fixed_up(acl, caller.identities).ok_or(INVALID_ACL)?;
        let mut node = self.existing(caller, path, ADMIN)?;
        expect(node.aversion, version)?;
        node.acl = acl;
        node.aversion = node.aversion.wrapping_add(1);
        let stat = node.stat();
        self.set(path, node);
        Ok(Body::Stat(stat))
    }

    fn check(&self, caller: &Caller<'_>, path: &str, version: i32) -> Result<Body, i32> {
        need(is_legal(path), BAD_ARGUMENTS)?;
        expect(self.existing(caller, path, READ)?.version, version)?;
        Ok(Body::Checked)
    }
}

pub(super) fn expect(actual: i32, wanted: i32) -> Result<(), i32> {
    need(wanted == -1 || wanted == actual, BAD_VERSION)
}

/// Whether a path may be deleted, as far as that can be told without the tree.
pub(super) fn is_removable(path: &str) -> bool {
    path.contains('/') && !path.contains('\0') && !SPECIAL.contains(&path)
}

pub(crate) fn parent_of(path: &str) -> &str {
    match path.rfind('/') {
        Some(0) | None => "/",
        Some(at) => &path[..at],
    }
}

/// Whether a path lies below another; all lie below "".
pub(super) fn is_below(path: &str, top: &str) -> bool {
    path.strip_prefix(top).is_some_and(|rest| rest.starts_with('/'))
}

/// Whether a path is legal (protocol chapter 8): the loop of ZooKeeper's `PathUtils.validatePath`, over the units in which
/// Java counts.
pub(crate) fn is_legal(path: &str) -> bool {
    let units: Vec<u16> = path.encode_utf16().collect();
    let (slash, dot) = (u16::from(b'/'), u16::from(b'.'));
    if units.first() != Some(&slash) {
        return false;
    }
    if units.len() > 1 && units.last() == Some(&slash) {
        return false;
    }
    let ends = |at: usize| units.get(at + 1).is_none_or(|unit| *unit == slash);
    for at in 1..units.len() {
        let (unit, last) = (units[at], units[at - 1]);
        let twice = unit == dot && last == dot && at >= 2 && units[at - 2] == slash && ends(at);
        let once = unit == dot && last == slash && ends(at);
        let odd = matches!(unit, 0..=0x1f | 0x7f..=0x9f | 0xd800..=0xf8ff | 0xfff0..=0xffff);
        if twice || once || odd || (unit == slash && last == slash) {
            return false;
        }
    }
    true
}

pub(super) fn length(data: Option<&[u8]>) -> i64 {
    i64::try_from(data.map_or(0, <[u8]>::len)).expect("data is small")
}
