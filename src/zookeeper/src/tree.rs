//! The state of a ZooKeeper server: its tree and its sessions, and how transactions change them.
//!
//! A snapshot of ZooKeeper is taken while transactions are applied, so it contains parts of later states. Replay must still reach
//! the correct state. For this reason each rule below is that of `DataTree.processTxn`.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use corral_core::ids::Zxid;
use corral_core::path;
use corral_core::shared::{Data, Text};
use corral_core::tree::acl::{Acl, AclEntry, AclList};
use corral_core::tree::digest;
use corral_core::tree::snapshot::initial_nodes;
use corral_core::tree::znode::{NodeStat, Owner, Znode};

use crate::txn::{Body, Create, Header};

/// Tree and sessions.
#[derive(Default)]
pub struct Tree {
    /// By path; the root's is `/`. A znode may lack its parent while a snapshot is replayed.
    nodes: HashMap<Text, Znode>,
    /// Timeouts in milliseconds, by id.
    sessions: HashMap<i64, i32>,
    ephemerals: HashMap<i64, BTreeSet<Text>>,
    /// Znodes of a snapshot that lack their ACL. It comes with a later transaction, and is the open one until then.
    awaited: HashSet<Text>,
    acls: BTreeMap<Vec<AclEntry>, Arc<AclList>>,
    /// The sum of the digests of all znodes.
    digest: u64,
    /// The last transaction applied.
    zxid: Zxid,
}

/// Counts of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Znodes, the root and those below `/zookeeper` included.
    pub znodes: u64,
    /// Bytes of data.
    pub data_bytes: u64,
    /// Ephemeral znodes.
    pub ephemerals: u64,
    /// Containers.
    pub containers: u64,
    /// Znodes with a time to live.
    pub ttls: u64,
    /// Znodes with a quota.
    pub quotas: u64,
    /// Living sessions.
    pub sessions: u64,
    /// Different ACLs, the open one not counted.
    pub acls: u64,
}

impl Tree {
    /// ZooKeeper's digest of the tree, version 2.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// The last transaction.
    #[must_use]
    pub fn zxid(&self) -> Zxid {
        self.zxid
    }

    /// All znodes with their paths, in no order. The numbers of children are not set.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = (&Text, &Znode)> {
        self.nodes.iter()
    }

    /// As [`Tree::nodes`], and consumes the tree.
    pub fn into_nodes(self) -> impl Iterator<Item = (Text, Znode)> {
        self.nodes.into_iter()
    }

    /// Ids and timeouts in milliseconds of all sessions, with the paths of their ephemerals, sorted. In no order.
    pub fn sessions(&self) -> impl Iterator<Item = (i64, i32, impl Iterator<Item = &Text>)> {
        let paths = |id| self.ephemerals.get(id).into_iter().flatten();
        self.sessions.iter().map(move |(id, timeout_ms)| (*id, *timeout_ms, paths(id)))
    }

    /// Counts everything.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut counts =
            Counts { znodes: self.nodes.len() as u64, sessions: self.sessions.len() as u64, ..Counts::default() };
        let mut acls: HashSet<*const AclList> = HashSet::new();
        for (path, node) in &self.nodes {
            counts.data_bytes += node.data_len() as u64;
            counts.quotas += u64::from(path.starts_with(QUOTAS) && path.ends_with("/zookeeper_limits"));
            match Owner::from_bits(node.stat.owner) {
                Owner::Persistent => {}
                Owner::Session(_) => counts.ephemerals += 1,
                Owner::Container => counts.containers += 1,
                Owner::Ttl(_) => counts.ttls += 1,
            }
            if let Acl::List(list) = &node.acl {
                acls.insert(Arc::as_ptr(list));
            }
        }
        counts.acls = acls.len() as u64;
        counts
    }

    pub(crate) fn set_zxid(&mut self, zxid: Zxid) {
        self.zxid = zxid;
    }

    /// The ACL of a znode comes with a later transaction.
    pub(crate) fn await_acl(&mut self, path: Text) {
        self.awaited.insert(path);
    }

    /// A znode that still lacks its ACL.
    pub(crate) fn without_acl(&self) -> Option<&Text> {
        self.awaited.iter().min()
    }

    pub(crate) fn has(&self, path: &str) -> bool {
        self.nodes.contains_key(path)
    }

    pub(crate) fn put_session(&mut self, id: i64, timeout_ms: i32) {
        self.sessions.insert(id, timeout_ms);
    }

    /// An ACL list; equal ones share their memory.
    pub(crate) fn acl(&mut self, list: Vec<AclEntry>) -> Acl {
        // ZooKeeper has no other place for a missing list.
        let is_open = match &*list {
            [] => true,
            [entry] => entry.perms == OPEN_PERMS && &*entry.scheme == "world" && &*entry.id == "anyone",
            _ => false,
        };
        if is_open {
            return Acl::Open;
        }
        let shared = self.acls.entry(list).or_insert_with_key(|list| Arc::new(AclList::from(list.clone())));
        Acl::List(Arc::clone(shared))
    }

    /// Adds a znode, or replaces one.
    pub(crate) fn put(&mut self, path: Text, node: Znode) {
        self.digest = self.digest.wrapping_add(digest_of(&path, &node));
        if let Owner::Session(session) = Owner::from_bits(node.stat.owner) {
            self.ephemerals.entry(session.0).or_default().insert(path.clone());
        }
        if let Some(before) = self.nodes.insert(path.clone(), node) {
            self.digest = self.digest.wrapping_sub(digest_of(&path, &before));
        }
    }

    /// Applies a transaction, and returns whether it changed something.
    pub(crate) fn apply(&mut self, header: &Header, body: Body<'_>) -> bool {
        self.zxid = self.zxid.max(header.zxid);
        self.apply_part(header, body)
    }

    fn apply_part(&mut self, header: &Header, body: Body<'_>) -> bool {
        match body {
            Body::CreateSession { timeout_ms } => {
                self.sessions.insert(header.session, timeout_ms);
                true
            }
            Body::CloseSession(paths) => {
                self.sessions.remove(&header.session);
                for path in paths {
                    self.delete(&path, header.zxid);
                }
                self.end_ephemerals(header.session, header.zxid);
                true
            }
            Body::Create(create) => self.create(header, create),
            Body::Delete { path } => self.delete(&path, header.zxid),
            Body::SetData { path, data, version } => self.change(&path, |node| {
                node.data = data.map(Data::from);
                (node.stat.mzxid, node.stat.mtime, node.stat.version) = (header.zxid, header.time, version);
            }),
            Body::SetAcl { path, acl, version } => {
                let acl = self.acl(acl);
                self.awaited.remove(&*path);
                self.change(&path, |node| (node.acl, node.stat.aversion) = (acl, version))
            }
            Body::Multi(parts) => {
                // Each part counts by itself: the snapshot may hold some of them.
                let mut all = true;
                for part in parts {
                    all &= self.apply_part(header, part);
                }
                all
            }
            Body::Nothing { failed } => !failed,
        }
    }

    fn create(&mut self, header: &Header, create: Create<'_>) -> bool {
        let Create { path, data, acl, owner, parent_cversion, updates_parent } = create;
        let path = &*path;
        let (parent, exists) = (path::parent(path), self.has(path));
        if self.awaited.remove(path) {
            let acl = self.acl(acl.clone());
            self.change(path, |node| node.acl = acl);
        }
        if exists && !updates_parent {
            return false;
        }
        let has_parent = self.change(parent, |parent| {
            let stat = &mut parent.stat;
            let cversion = if parent_cversion == -1 { stat.cversion.wrapping_add(1) } else { parent_cversion };
            // The snapshot may hold a later state of the parent than this one.
            if cversion > stat.cversion {
                (stat.cversion, stat.pzxid) = (cversion, header.zxid);
            }
        });
        if exists || !has_parent {
            return false;
        }
        let acl = self.acl(acl);
        let stat = NodeStat {
            czxid: header.zxid,
            mzxid: header.zxid,
            pzxid: header.zxid,
            ctime: header.time,
            mtime: header.time,
            owner: owner.bits(),
            ..NodeStat::default()
        };
        self.put(Text::from(path), Znode { stat, acl, data: data.map(Data::from) });
        true
    }

    fn delete(&mut self, path: &str, zxid: Zxid) -> bool {
        // Also if the child is gone already: the snapshot may have seen the parent before and the child after the deletion.
        let has_parent = self.change(path::parent(path), |parent| parent.stat.pzxid = parent.stat.pzxid.max(zxid));
        has_parent && self.remove(path)
    }

    fn remove(&mut self, path: &str) -> bool {
        let Some(node) = self.nodes.remove(path) else { return false };
        self.awaited.remove(path);
        self.digest = self.digest.wrapping_sub(digest_of(path, &node));
        if let Owner::Session(session) = Owner::from_bits(node.stat.owner)
            && let Some(paths) = self.ephemerals.get_mut(&session.0)
        {
            paths.remove(path);
        }
        true
    }

    /// Counts anew what each subtree with a quota uses, as ZooKeeper does when it starts. No transaction contains it.
    pub(crate) fn count_quotas(&mut self) {
        let limited = |path: &Text| path.strip_prefix(QUOTAS)?.strip_suffix("/zookeeper_limits").map(Text::from);
        let mut used: HashMap<Text, (u64, u64)> =
            self.nodes.keys().filter_map(limited).map(|subtree| (subtree, (0, 0))).collect();
        if used.is_empty() {
            return;
        }
        for (path, node) in &self.nodes {
            // The root has an empty path here.
            let mut above = if &**path == path::ROOT { "" } else { path };
            loop {
                if let Some((znodes, bytes)) = used.get_mut(above) {
                    (*znodes, *bytes) = (*znodes + 1, *bytes + node.data_len() as u64);
                }
                let Some(end) = above.rfind('/') else { break };
                above = &above[..end];
            }
        }
        for (subtree, (znodes, bytes)) in used {
            let text = format!("count={znodes},bytes={bytes}");
            let stats = format!("{QUOTAS}{}/zookeeper_stats", &*subtree);
            self.change(&stats, |node| node.data = Some(Data::from(text.as_bytes())));
        }
    }

    /// Adds the znodes that every tree has, where a version before 3.5 or an empty server wrote none.
    pub(crate) fn complete(&mut self) {
        for (path, node) in initial_nodes() {
            if !self.has(&path) {
                self.put(path, node);
            }
        }
    }

    fn change(&mut self, path: &str, change: impl FnOnce(&mut Znode)) -> bool {
        let Some(node) = self.nodes.get_mut(path) else { return false };
        let before = digest_of(path, node);
        change(node);
        self.digest = self.digest.wrapping_sub(before).wrapping_add(digest_of(path, node));
        true
    }

    fn end_ephemerals(&mut self, session: i64, zxid: Zxid) {
        for path in self.ephemerals.remove(&session).unwrap_or_default() {
            self.delete(&path, zxid);
        }
    }

    /// Deletes ephemerals of sessions that are gone, as ZooKeeper does when it has read everything. Znodes without
    /// a parent go too, which ZooKeeper would drop with its next snapshot. Returns how many went for each reason.
    pub(crate) fn tidy(&mut self) -> (u64, u64) {
        let gone: Vec<i64> = self.ephemerals.keys().filter(|id| !self.sessions.contains_key(*id)).copied().collect();
        let before = self.nodes.len();
        gone.into_iter().for_each(|session| self.end_ephemerals(session, self.zxid));
        let ended = before - self.nodes.len();
        if self.nodes.keys().all(|path| self.has(path::parent(path))) {
            return (ended as u64, 0);
        }
        // Parents come before their children.
        let mut paths: Vec<Text> = self.nodes.keys().cloned().collect();
        paths.sort_unstable();
        let before = self.nodes.len();
        for path in paths {
            if !self.has(path::parent(&path)) {
                self.remove(&path);
            }
        }
        (ended as u64, (before - self.nodes.len()) as u64)
    }
}

/// The quota of a subtree is two znodes below its path behind this.
const QUOTAS: &str = "/zookeeper/quota";
/// All permissions.
const OPEN_PERMS: i32 = 31;

fn digest_of(path: &str, node: &Znode) -> u64 {
    digest::of_znode(path, node.data.as_deref(), &node.stat)
}
