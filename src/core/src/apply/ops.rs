//! One operation against the tree: the checks of protocol chapter 11 in their order, then its only change.
//!
//! Part of the state machine: whatever is read here is the committed state with the transaction's own changes laid
//! over.

use super::BatchContext;
use super::quota::{COUNT_COST, COUNT_COST_FORMERLY, QUOTA_COST, Quotas, allow_count, counts, is_limits};
use super::usage::QuotaExceeded;
use crate::apply::draft::Draft;
use crate::apply::outcome::OpResult;
use crate::apply::session::SessionTable;
use crate::command::{CreateOp, WriteOp, features};
use crate::cost::{self, Budget};
use crate::ids::{Origin, SessionId, Zxid};
use crate::path;
use crate::servers::CONFIG_PATH;
use crate::shared::{Data, HashedPath, Text};
use crate::tree::acl::{self, Acl, AclList, AclSpec, Identity};
use crate::tree::change::Changes;
use crate::tree::view::{NodeRef, View};
use crate::tree::znode::{NodeStat, Owner, Znode};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;
use corral_wire::consts::CreateMode;
use corral_wire::error::ErrorCode;

/// The longest time to live, 2^40 - 1 ms.
const TTL_MS_MAX: i64 = 0xff_ffff_ffff;

/// One command's view of the world while its operations are checked.
pub(super) struct Caller<'a> {
    pub(super) sessions: &'a SessionTable,
    pub(super) quotas: &'a Quotas,
    pub(super) session: SessionId,
    pub(super) origin: Option<Origin>,
    pub(super) identities: &'a [Identity],
    pub(super) context: &'a BatchContext,
    pub(super) zxid: Zxid,
    /// Why a quota refused, for the log.
    pub(super) beyond_quota: Cell<Option<QuotaExceeded>>,
    /// Rest of the budget of the command.
    pub(super) budget: Budget,
}

/// Data of fewer bytes count for nothing where they are hashed with another Stat.
const SMALL_DATA_BYTES: usize = 1024;
/// More children than that are not found in a few steps ...
pub(super) const WIDE: u32 = 1 << 17;
/// ... and cost so much more, and as much again for each four times as many.
const WIDE_COST: u64 = 3000;

/// Additional cost of finding the place of a child among so many others.
pub(super) const fn wide_cost(children: u32) -> u64 {
    if children > WIDE { WIDE_COST * (1 + (children / WIDE).ilog2() as u64 / 2) } else { 0 }
}

impl Caller<'_> {
    /// All or nothing, each operation against the state left by those before it (protocol chapter 13.2).
    ///
    /// # Errors
    /// MARSHALLINGERROR, when an operation breaks the check off: then there are no results at all.
    pub(super) fn evaluate_all(&self, view: &View, ops: Vec<WriteOp>) -> Result<(Changes, Vec<OpResult>), ErrorCode> {
        let count = ops.len();
        let mut draft = Draft::chained(view, self.zxid);
        let mut results = Vec::with_capacity(count);
        for op in ops {
            match self.evaluate(&mut draft, op) {
                Ok(result) => results.push(result),
                Err(ErrorCode::MarshallingError) => return Err(ErrorCode::MarshallingError),
                Err(code) => {
                    let failed_at = results.len();
                    results = vec![OpResult::Error(ErrorCode::RuntimeInconsistency); count];
                    for (at, result) in results.iter_mut().enumerate().take(failed_at + 1) {
                        *result = OpResult::Error(if at == failed_at { code } else { ErrorCode::Ok });
                    }
                    return Ok((Changes::new(), results));
                }
            }
        }
        Ok((draft.into_changes(), results))
    }

    pub(super) fn evaluate(&self, draft: &mut Draft<'_>, op: WriteOp) -> Result<OpResult, ErrorCode> {
        self.spend(cost::OP + cost::bytes(op.bytes()))?;
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
            WriteOp::CheckNotExists { .. }
            | WriteOp::CheckStat { .. }
            | WriteOp::TryRemove { .. }
            | WriteOp::RemoveRecursive { .. } => self.check_session().and_then(|()| self.keeper(draft, op)),
        }
    }

    /// The answer to a command that was refused with this code before it was logged.
    pub(super) fn refused(&self, code: ErrorCode) -> ErrorCode {
        self.check_session().err().unwrap_or(code)
    }

    /// The schemes that ACLs may name here.
    fn schemes(&self) -> acl::Schemes {
        let has = |feature: u32| self.context.features & feature != 0;
        acl::Schemes { sasl: has(features::SASL_ACLS), x509: has(features::X509_ACLS) }
    }

    /// The ACL that is kept when this one was sent.
    fn stored_acl(&self, sent: &AclSpec) -> Result<Acl, ErrorCode> {
        let acl = acl::fix_up(sent, self.identities, self.schemes(), self.bounded())?;
        if let Acl::List(list) = &acl {
            self.spend(cost::bytes(acl::text_bytes(list)) + cost::NAME * list.len() as u64)?;
        }
        Ok(acl)
    }

    /// The session lives and still belongs to the connection that sent the command.
    pub(super) fn check_session(&self) -> Result<(), ErrorCode> {
        let session = self.sessions.get(&self.session).ok_or(ErrorCode::SessionExpired)?;
        if session.owner == self.origin { Ok(()) } else { Err(ErrorCode::SessionMoved) }
    }

    /// Returns the owner of the new node by the flags and the operation. The operation decides where both give one.
    fn owner_for(&self, op: CreateOp, flags: i32, ttl_ms: i64) -> Result<Owner, ErrorCode> {
        let mode = CreateMode::from_flag(flags).ok_or(ErrorCode::BadArguments)?;
        let extended = self.context.features & features::EXTENDED_TYPES != 0;
        if mode.is_ttl() && !extended {
            return Err(ErrorCode::Unimplemented);
        }
        if mode.is_sequential() && op == CreateOp::IfNotExists {
            return Err(ErrorCode::BadArguments);
        }
        if mode.is_ttl() != (op == CreateOp::Ttl) || (mode.is_ttl() && !(1..=TTL_MS_MAX).contains(&ttl_ms)) {
            return Err(ErrorCode::BadArguments);
        }
        Ok(match op {
            CreateOp::Ttl => Owner::Ttl(ttl_ms),
            CreateOp::Container => Owner::Container,
            CreateOp::Create | CreateOp::Create2 | CreateOp::IfNotExists if mode.is_ephemeral() => {
                Owner::Session(self.session)
            }
            CreateOp::Create | CreateOp::Create2 | CreateOp::IfNotExists => Owner::Persistent,
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
        has_parent(&path)?;
        let acl = self.stored_acl(acl)?;
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
        self.fits(draft, &at, &parent, owner)?;
        self.guard(&at.path)?;
        if draft.node(&at.path, at.hash).is_some() {
            if op == CreateOp::IfNotExists {
                return Ok(OpResult::Ensured { path: at.path });
            }
            return Err(ErrorCode::NodeExists);
        }
        if Owner::from_bits(parent.stat().owner).is_ephemeral() {
            return Err(ErrorCode::NoChildrenForEphemerals);
        }
        self.spend_on_parent(draft, at.parent(), &parent)?;
        let bytes = data.as_ref().map_or(0, |data| data.len());
        self.check_quota(draft, &at.path, 1, bytes, 0)?;
        if !self.bounded() {
            allow_count(draft.view(), &at.path, &self.context.countable)?;
        } else if counts(&at.path) {
            self.spend(if self.bounds_deletions() { COUNT_COST } else { COUNT_COST_FORMERLY })?;
        }
        let node = Arc::new(Znode { stat: fresh_stat(self.zxid, self.context.time, owner), acl, data });
        self.spend(cost::CHANGE)?;
        let path = at.path.clone();
        let stat = node.wire_stat();
        draft.create(at, node);
        if is_limits(&path) {
            draft.note_quota();
        }
        Ok(match op {
            CreateOp::Create => OpResult::Created { path },
            CreateOp::IfNotExists => OpResult::Ensured { path },
            CreateOp::Create2 | CreateOp::Container | CreateOp::Ttl => OpResult::CreatedStat { path, stat },
        })
    }

    pub(super) fn delete(&self, draft: &mut Draft<'_>, path: Text, version: i32) -> Result<OpResult, ErrorCode> {
        has_parent(&path)?;
        if path::UNDELETABLE.contains(&&*path) {
            return Err(ErrorCode::BadArguments);
        }
        self.guard(&path)?;
        let at = draft.hashed(path);
        let parent = draft.node(at.parent(), at.parent_hash).ok_or(ErrorCode::NoNode)?;
        self.allow(&parent, acl::DELETE)?;
        let node = draft.node(&at.path, at.hash).ok_or(ErrorCode::NoNode)?;
        let stat = node.stat();
        expect_version(stat.version, version)?;
        if stat.num_children > 0 {
            return Err(ErrorCode::NotEmpty);
        }
        self.spend_on_parent(draft, at.parent(), &parent)?;
        self.spend(cost::CHANGE + cost::bytes(node.data_len()) + self.deletion_cost())?;
        draft.delete(at);
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
        if self.context.features & features::ENSEMBLE != 0 && &*at.path == CONFIG_PATH {
            return Err(ErrorCode::BadArguments);
        }
        let bytes = (data.as_ref().map_or(0, |data| data.len()), node.data_len());
        self.check_quota(draft, &at.path, 0, bytes.0, bytes.1)?;
        expect_version(node.stat().version, version)?;
        let mut next = Znode { stat: node.stat(), acl: node.to_acl(), data };
        next.stat.version = next.stat.version.wrapping_add(1);
        next.stat.mzxid = self.zxid;
        next.stat.mtime = self.context.time;
        let stat = next.wire_stat();
        self.spend(cost::CHANGE + cost::bytes(bytes.1))?;
        draft.set_data(at, Arc::new(next));
        Ok(OpResult::Stat(stat))
    }

    fn set_acl(&self, draft: &mut Draft<'_>, path: Text, acl: &AclSpec, version: i32) -> Result<OpResult, ErrorCode> {
        if !path::is_valid(&path) {
            return Err(ErrorCode::BadArguments);
        }
        let acl = self.stored_acl(acl)?;
        let (at, node) = self.existing(draft, path)?;
        self.allow(&node, acl::ADMIN)?;
        expect_version(node.stat().aversion, version)?;
        self.spend(cost::CHANGE + cost::bytes(node.data_len()))?;
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

    pub(super) fn existing<'d>(
        &self,
        draft: &'d Draft<'_>,
        path: Text,
    ) -> Result<(HashedPath, NodeRef<'d>), ErrorCode> {
        let at = draft.hashed_alone(path);
        let found = draft.node(&at.path, at.hash);
        // A znode that exists has a valid path.
        if found.is_none() && !path::is_valid(&at.path) {
            return Err(ErrorCode::BadArguments);
        }
        self.guard(&at.path)?;
        Ok((at, found.ok_or(ErrorCode::NoNode)?))
    }

    /// A child is created or deleted. Among very many others its place is found by comparisons with names that no cache holds. The
    /// parent's data are hashed with its Stat, if they were not since the last snapshot. Among many operations each parent that was
    /// not changed before is another znode to find and to change.
    fn spend_on_parent(&self, draft: &Draft<'_>, path: &str, parent: &NodeRef<'_>) -> Result<(), ErrorCode> {
        let counts = self.bounds_deletions() && draft.is_chained();
        if counts {
            self.spend(wide_cost(parent.stat().num_children))?;
        }
        if draft.has_changed(path) {
            return Ok(());
        }
        let bytes = parent.data_len();
        let data = if bytes < SMALL_DATA_BYTES { 0 } else { cost::bytes(bytes) };
        self.spend(data + if counts { cost::ZNODE + cost::CHANGE } else { 0 })
    }

    /// As in ZooKeeper, quotas judge by the usage before the transaction.
    fn check_quota(
        &self,
        draft: &Draft<'_>,
        path: &str,
        znodes: i64,
        bytes: usize,
        bytes_before: usize,
    ) -> Result<(), ErrorCode> {
        if self.quotas.is_empty() {
            return Ok(());
        }
        self.spend(QUOTA_COST)?;
        if self.context.features & features::ENFORCE_QUOTA == 0 {
            return Ok(());
        }
        let length = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
        let more = length(bytes) - length(bytes_before);
        self.quotas.check(draft.view(), self.bounded(), path, (znodes, more)).map_err(|exceeded| {
            self.beyond_quota.set(Some(exceeded));
            ErrorCode::QuotaExceeded
        })
    }

    #[inline]
    pub(super) fn allow(&self, node: &NodeRef<'_>, wanted: i32) -> Result<(), ErrorCode> {
        node.acl_list().map_or(Ok(()), |list| self.allow_by(list, wanted))
    }

    #[inline(never)]
    fn allow_by(&self, list: &AclList, wanted: i32) -> Result<(), ErrorCode> {
        if self.context.features & features::SKIP_ACL != 0 {
            return Ok(());
        }
        // A long list is seldom in a cache, however few identities it is held against.
        let fetched = if self.bounds_deletions() { cost::ACL_ENTRY_FETCHED * list.len() as u64 } else { 0 };
        self.spend(list.cost(self.identities).max(fetched))?;
        if list.grants(wanted, self.identities) { Ok(()) } else { Err(ErrorCode::NoAuth) }
    }
}

/// The first check of create and delete; a null path breaks it off.
pub(super) fn has_parent(path: &str) -> Result<(), ErrorCode> {
    match path {
        path::NULL => Err(ErrorCode::MarshallingError),
        path if path::has_parent(path) => Ok(()),
        _ => Err(ErrorCode::BadArguments),
    }
}

pub(super) fn expect_version(actual: i32, wanted: i32) -> Result<(), ErrorCode> {
    if wanted == -1 || wanted == actual { Ok(()) } else { Err(ErrorCode::BadVersion) }
}

/// The Stat of a znode that is created by this transaction.
pub(super) fn fresh_stat(zxid: Zxid, time: i64, owner: Owner) -> NodeStat {
    NodeStat {
        czxid: zxid,
        mzxid: zxid,
        pzxid: zxid,
        ctime: time,
        mtime: time,
        owner: owner.bits(),
        ..NodeStat::default()
    }
}
