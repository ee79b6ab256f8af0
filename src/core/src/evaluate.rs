//! The replicated state machine: commands in, changes and outcomes out, the same on every server and in every replay.
//!
//! Checks stand in the exact order of ZooKeeper's `PrepRequestProcessor` (protocol chapter 11). There is no state but
//! the committed one: a command is evaluated when its log entry is committed, against everything before it.

use crate::acl::{self, grants};
use crate::change::{AppliedBatch, AppliedTxn, Change, OpResult, Outcome, SessionChange};
use crate::command::{AclSpec, Batch, Command, CommandKind, CreateOp, Identity, Origin, WriteOp};
use crate::draft::Draft;
use crate::ids::{SessionId, Zxid};
use crate::path;
use crate::session::{Session, SessionTable};
use crate::shared::{Data, HashedPath, Text};
use crate::view::{NodeRef, View};
use crate::znode::{NodeStat, Owner, Znode};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use corral_wire::consts::CreateMode;
use corral_wire::error::ErrorCode;

/// The longest time to live, 2^40 - 1 ms.
const TTL_MS_MAX: i64 = 0xff_ffff_ffff;

/// Switches that decide how a command is evaluated. They travel in the batch, stamped by the leader: a replay under
/// another configuration must come to the same result.
pub mod features {
    /// TTL nodes may be created.
    pub const EXTENDED_TYPES: u32 = 1;
    /// ACLs are not checked.
    pub const SKIP_ACL: u32 = 2;
}

/// Tree, sessions and ephemerals at one zxid.
pub struct StateMachine {
    view: View,
    sessions: SessionTable,
}

impl StateMachine {
    /// `sessions` as stored in the image that `view` stands on.
    pub const fn new(view: View, sessions: SessionTable) -> Self {
        Self { view, sessions }
    }

    pub const fn view(&self) -> &View {
        &self.view
    }

    pub const fn view_mut(&mut self) -> &mut View {
        &mut self.view
    }

    pub const fn sessions(&self) -> &SessionTable {
        &self.sessions
    }

    /// Applies a committed batch. Zxids follow from the batch alone.
    ///
    /// # Panics
    /// When the batch would take the state back in time, which only a broken log order can cause.
    pub fn apply(&mut self, batch: Batch) -> AppliedBatch {
        let mut next = batch.first_zxid;
        let context = BatchContext { time: batch.time.0, features: batch.features };
        let mut txns = Vec::with_capacity(batch.commands.len());
        for command in batch.commands {
            let zxid = if command.takes_zxid() {
                let zxid = Zxid(next);
                assert!(zxid > self.view.zxid(), "zxids only grow");
                next += 1;
                zxid
            } else {
                self.view.zxid()
            };
            let identities = batch.identities.get(command.identities as usize).map_or(&[][..], |list| list.as_slice());
            txns.push(self.apply_one(&context, zxid, identities, command));
        }
        AppliedBatch { txns }
    }

    fn apply_one(
        &mut self,
        context: &BatchContext,
        zxid: Zxid,
        identities: &[Identity],
        command: Command,
    ) -> AppliedTxn {
        let Command { origin, session, kind, .. } = command;
        let mut applied =
            AppliedTxn { zxid, changes: Vec::new(), session: None, origin, outcome: Outcome::SessionRefused };
        match kind {
            CommandKind::Op(op) => {
                let caller = Caller { sessions: &self.sessions, session, origin, identities, context, zxid };
                let mut draft = Draft::single(&self.view);
                let result = caller.evaluate(&mut draft, op);
                applied.changes = draft.into_changes();
                applied.outcome = Outcome::Op(result.unwrap_or_else(OpResult::Error));
            }
            CommandKind::Multi(ops) => {
                let caller = Caller { sessions: &self.sessions, session, origin, identities, context, zxid };
                let (changes, results) = caller.evaluate_all(&self.view, ops);
                applied.changes = changes;
                applied.outcome = Outcome::Multi(results);
            }
            CommandKind::CreateSession { timeout_ms, password } => {
                let id = session_id(origin, zxid);
                self.sessions.insert(id, Session { timeout_ms, password, owner: origin, ephemerals: BTreeSet::new() });
                applied.session = Some(SessionChange::Created(id));
                applied.outcome = Outcome::SessionCreated { session: id, timeout_ms, password };
            }
            CommandKind::AttachSession { session, timeout_ms, password } => {
                if let Some(known) =
                    self.sessions.get_mut(&session).filter(|known| same_secret(&known.password, &password))
                {
                    known.owner = origin;
                    known.timeout_ms = timeout_ms;
                    applied.session = Some(SessionChange::Attached(session));
                    let ephemerals = known.ephemerals.iter().cloned().collect();
                    applied.outcome = Outcome::SessionAttached { session, timeout_ms, password, ephemerals };
                }
            }
            CommandKind::CloseSession => {
                applied.outcome = Outcome::SessionClosed;
                if let Some(ended) = self.sessions.remove(&session) {
                    applied.changes = close_changes(&self.view, zxid, &ended);
                    applied.session = Some(SessionChange::Closed(session));
                }
            }
        }
        self.commit(&applied);
        applied
    }

    /// Takes the changes into the tree and into the sessions' lists of ephemerals.
    fn commit(&mut self, applied: &AppliedTxn) {
        for change in &applied.changes {
            match change {
                Change::Created { at, node, .. } => {
                    if let Owner::Session(owner) = Owner::from_bits(node.stat.owner)
                        && let Some(session) = self.sessions.get_mut(&owner)
                    {
                        session.ephemerals.insert(at.path.clone());
                    }
                }
                Change::Deleted { at, .. } => {
                    let owner = self.view.get_hashed(&at.path, at.hash).map(|node| Owner::from_bits(node.stat().owner));
                    if let Some(Owner::Session(owner)) = owner
                        && let Some(session) = self.sessions.get_mut(&owner)
                    {
                        session.ephemerals.remove(&at.path);
                    }
                }
                Change::DataSet { .. } | Change::AclSet { .. } => {}
            }
            self.view.apply(change);
        }
        self.view.set_zxid(applied.zxid);
    }
}

/// What all commands of a batch share.
struct BatchContext {
    time: i64,
    features: u32,
}

/// A session id that no other server, epoch or transaction can come up with: server id, then the zxid's own numbers.
fn session_id(origin: Option<Origin>, zxid: Zxid) -> SessionId {
    let server = origin.map_or(0, |origin| origin.server);
    let low = (u64::from(zxid.epoch() & 0x00ff_ffff) << 32) | u64::from(zxid.counter());
    SessionId(((u64::from(server) << 56) | low).cast_signed())
}

/// Compares without telling by its duration where the first difference is.
fn same_secret(a: &[u8; 16], b: &[u8; 16]) -> bool {
    a.iter().zip(b).fold(0, |difference, (x, y)| difference | (x ^ y)) == 0
}

/// Removes all ephemerals of a session, with one zxid, in path order.
fn close_changes(view: &View, zxid: Zxid, ended: &Session) -> Vec<Change> {
    let mut draft = Draft::chained(view);
    for path in &ended.ephemerals {
        let at = view.hashed(path.clone());
        let parent = draft.node(at.parent(), at.parent_hash).map(|node| node.to_znode());
        if let Some(parent) = parent
            && draft.node(&at.path, at.hash).is_some()
        {
            draft.delete(at, without_child(&parent, zxid));
        }
    }
    draft.into_changes()
}

/// The parent's state after a child was deleted.
fn without_child(parent: &Arc<Znode>, zxid: Zxid) -> Arc<Znode> {
    let mut next = Znode::clone(parent);
    next.stat.num_children = next.stat.num_children.saturating_sub(1);
    next.stat.pzxid = next.stat.pzxid.max(zxid);
    Arc::new(next)
}

/// One command's view of the world while its operations are checked.
struct Caller<'a> {
    sessions: &'a SessionTable,
    session: SessionId,
    origin: Option<Origin>,
    identities: &'a [Identity],
    context: &'a BatchContext,
    zxid: Zxid,
}

impl Caller<'_> {
    /// All or nothing, each operation against the state left by those before it (protocol chapter 13.2).
    fn evaluate_all(&self, view: &View, ops: Vec<WriteOp>) -> (Vec<Change>, Vec<OpResult>) {
        let count = ops.len();
        let mut draft = Draft::chained(view);
        let mut results = Vec::with_capacity(count);
        for op in ops {
            match self.evaluate(&mut draft, op) {
                Ok(result) => results.push(result),
                Err(code) => {
                    let failed_at = results.len();
                    results = vec![OpResult::Error(ErrorCode::RuntimeInconsistency); count];
                    for (at, result) in results.iter_mut().enumerate().take(failed_at + 1) {
                        *result = OpResult::Error(if at == failed_at { code } else { ErrorCode::Ok });
                    }
                    return (Vec::new(), results);
                }
            }
        }
        (draft.into_changes(), results)
    }

    fn evaluate(&self, draft: &mut Draft<'_>, op: WriteOp) -> Result<OpResult, ErrorCode> {
        match op {
            WriteOp::Create { op, path, data, acl, flags, ttl_ms } => {
                let owner = self.owner_for(op, flags, ttl_ms)?;
                self.check_session()?;
                self.create(draft, op, path, data, &acl, flags, owner)
            }
            WriteOp::Delete { path, version } => self.check_session().and_then(|()| self.delete(draft, path, version)),
            WriteOp::SetData { path, data, version } => {
                self.check_session().and_then(|()| self.set_data(draft, path, data, version))
            }
            WriteOp::SetAcl { path, acl, version } => {
                self.check_session().and_then(|()| self.set_acl(draft, path, &acl, version))
            }
            WriteOp::Check { path, version } => self.check_session().and_then(|()| self.check(draft, &path, version)),
        }
    }

    /// The session lives and still belongs to the connection that sent the command.
    fn check_session(&self) -> Result<(), ErrorCode> {
        let session = self.sessions.get(&self.session).ok_or(ErrorCode::SessionExpired)?;
        if session.owner == self.origin { Ok(()) } else { Err(ErrorCode::SessionMoved) }
    }

    /// What the flags and the operation make of the new node: the owner follows the operation where both speak.
    fn owner_for(&self, op: CreateOp, flags: i32, ttl_ms: i64) -> Result<Owner, ErrorCode> {
        let mode = CreateMode::from_flag(flags).ok_or(ErrorCode::BadArguments)?;
        let extended = self.context.features & features::EXTENDED_TYPES != 0;
        if mode.is_ttl() && !extended {
            return Err(ErrorCode::Unimplemented);
        }
        if mode.is_ttl() != (op == CreateOp::Ttl) || (mode.is_ttl() && !(1..=TTL_MS_MAX).contains(&ttl_ms)) {
            return Err(ErrorCode::BadArguments);
        }
        Ok(match op {
            CreateOp::Ttl => Owner::Ttl(ttl_ms),
            CreateOp::Container => Owner::Container,
            CreateOp::Create | CreateOp::Create2 if mode.is_ephemeral() => Owner::Session(self.session),
            CreateOp::Create | CreateOp::Create2 => Owner::Persistent,
        })
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of one create, each used once")]
    fn create(
        &self,
        draft: &mut Draft<'_>,
        op: CreateOp,
        path: Text,
        data: Option<Data>,
        acl: &AclSpec,
        flags: i32,
        owner: Owner,
    ) -> Result<OpResult, ErrorCode> {
        if !path::has_parent(&path) {
            return Err(ErrorCode::BadArguments);
        }
        let acl = acl::fix_up(acl, self.identities)?;
        let sequential = CreateMode::from_flag(flags).is_some_and(CreateMode::is_sequential);
        let mut at = draft.hashed(path);
        let parent = draft.node(at.parent(), at.parent_hash).ok_or(ErrorCode::NoNode)?;
        self.allow(&parent, acl::CREATE)?;
        if sequential {
            at = draft.hashed(Text::from(format!("{}{:010}", &*at.path, parent.stat().cversion)));
        }
        if !path::is_valid(&at.path) {
            return Err(ErrorCode::BadArguments);
        }
        if draft.node(&at.path, at.hash).is_some() {
            return Err(ErrorCode::NodeExists);
        }
        if Owner::from_bits(parent.stat().owner).is_ephemeral() {
            return Err(ErrorCode::NoChildrenForEphemerals);
        }
        let mut parent = Znode::clone(&*parent.to_znode());
        parent.stat.cversion = parent.stat.cversion.wrapping_add(1);
        parent.stat.pzxid = self.zxid;
        parent.stat.num_children += 1;
        let node = Arc::new(Znode { stat: self.fresh_stat(owner), acl, data });
        let path = at.path.clone();
        let stat = node.wire_stat();
        draft.create(at, node, Arc::new(parent));
        Ok(if op == CreateOp::Create { OpResult::Created { path } } else { OpResult::CreatedStat { path, stat } })
    }

    fn fresh_stat(&self, owner: Owner) -> NodeStat {
        NodeStat {
            czxid: self.zxid,
            mzxid: self.zxid,
            pzxid: self.zxid,
            ctime: self.context.time,
            mtime: self.context.time,
            owner: owner.bits(),
            ..NodeStat::default()
        }
    }

    fn delete(&self, draft: &mut Draft<'_>, path: Text, version: i32) -> Result<OpResult, ErrorCode> {
        if !path::has_parent(&path) || path::UNDELETABLE.contains(&&*path) {
            return Err(ErrorCode::BadArguments);
        }
        let at = draft.hashed(path);
        let parent = draft.node(at.parent(), at.parent_hash).ok_or(ErrorCode::NoNode)?;
        self.allow(&parent, acl::DELETE)?;
        let node = draft.node(&at.path, at.hash).ok_or(ErrorCode::NoNode)?;
        let stat = node.stat();
        expect_version(stat.version, version)?;
        if stat.num_children > 0 {
            return Err(ErrorCode::NotEmpty);
        }
        let parent = without_child(&parent.to_znode(), self.zxid);
        draft.delete(at, parent);
        Ok(OpResult::Deleted)
    }

    fn set_data(
        &self,
        draft: &mut Draft<'_>,
        path: Text,
        data: Option<Data>,
        version: i32,
    ) -> Result<OpResult, ErrorCode> {
        let (at, node) = self.existing(draft, path)?;
        self.allow(&node, acl::WRITE)?;
        expect_version(node.stat().version, version)?;
        let mut next = Znode { stat: node.stat(), acl: node.to_acl(), data };
        next.stat.version = next.stat.version.wrapping_add(1);
        next.stat.mzxid = self.zxid;
        next.stat.mtime = self.context.time;
        let stat = next.wire_stat();
        draft.set_data(at, Arc::new(next));
        Ok(OpResult::Stat(stat))
    }

    fn set_acl(&self, draft: &mut Draft<'_>, path: Text, acl: &AclSpec, version: i32) -> Result<OpResult, ErrorCode> {
        if !path::is_valid(&path) {
            return Err(ErrorCode::BadArguments);
        }
        let acl = acl::fix_up(acl, self.identities)?;
        let (at, node) = self.existing(draft, path)?;
        self.allow(&node, acl::ADMIN)?;
        expect_version(node.stat().aversion, version)?;
        let mut next = Znode { acl, ..Znode::clone(&*node.to_znode()) };
        next.stat.aversion = next.stat.aversion.wrapping_add(1);
        let stat = next.wire_stat();
        draft.set_acl(at, Arc::new(next));
        Ok(OpResult::Stat(stat))
    }

    fn check(&self, draft: &Draft<'_>, path: &Text, version: i32) -> Result<OpResult, ErrorCode> {
        let (_, node) = self.existing(draft, path.clone())?;
        self.allow(&node, acl::READ)?;
        expect_version(node.stat().version, version)?;
        Ok(OpResult::Checked)
    }

    fn existing<'d>(&self, draft: &'d Draft<'_>, path: Text) -> Result<(HashedPath, NodeRef<'d>), ErrorCode> {
        if !path::is_valid(&path) {
            return Err(ErrorCode::BadArguments);
        }
        let at = draft.hashed(path);
        let node = draft.node(&at.path, at.hash).ok_or(ErrorCode::NoNode)?;
        Ok((at, node))
    }

    fn allow(&self, node: &NodeRef<'_>, wanted: i32) -> Result<(), ErrorCode> {
        let open = node.is_open_acl() || self.context.features & features::SKIP_ACL != 0;
        if open || grants(node.acl().iter(), wanted, self.identities) { Ok(()) } else { Err(ErrorCode::NoAuth) }
    }
}

fn expect_version(actual: i32, wanted: i32) -> Result<(), ErrorCode> {
    if wanted == -1 || wanted == actual { Ok(()) } else { Err(ErrorCode::BadVersion) }
}
