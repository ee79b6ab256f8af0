//! The inputs of an evaluation (the connection that asked, the batch, the budget), and the checks that operations share.
//!
//! Operations read the committed state with the transaction's own changes laid over. Bounds are checked here, when the entry is
//! committed, and so with the same result on every server and in every replay. An entry of a version without a bound is
//! evaluated without it.

use super::draft::Draft;
use crate::cost::{self, Budget, Exhausted};
use crate::features;
use crate::ids::{Origin, SessionId, Zxid};
use crate::limits::{
    EPHEMERALS_BYTES_MAX, EPHEMERALS_PER_SESSION_MAX, NAME_BYTES_MAX, NAMES_BYTES_MAX, PATH_BYTES_MAX, PATH_LEVELS_MAX,
};
use crate::path;
use crate::quota::usage::QuotaExceeded;
use crate::quota::{QUOTA_COST, QUOTA_DELETE_COST, Quotas, is_limits, may_have_quota};
use crate::session::SessionTable;
use crate::shared::{HashedPath, Text};
use crate::tree::acl::{self, Acl, AclList, AclSpec, Identity};
use crate::tree::view::{NodeRef, marks_at_most};
use crate::tree::znode::{NodeStat, Owner, name_bytes};
use core::cell::Cell;
use corral_wire::ErrorCode;

/// Path where Keeper lists its features for clients. No client may write there.
pub(crate) const KEEPER_SYSTEM: &str = "/keeper";

/// [`EPHEMERALS_PER_SESSION_MAX`] as it was.
pub(crate) const EPHEMERALS_FORMERLY_MAX: usize = 20_000;
/// A mark of a deleted child that is passed over, with the name below it.
const MARK: u64 = 15;

/// The context that all commands of a batch share.
pub(crate) struct BatchContext {
    /// Wall clock of the leader, milliseconds.
    pub(crate) time: i64,
    /// Bits of [`features`].
    pub(crate) features: u32,
    /// Znodes that counts of usage may still visit; `None` before the first count.
    pub(crate) countable: Cell<Option<u64>>,
}

/// One command's view of the world while its operations are checked.
pub(crate) struct Caller<'a> {
    pub(crate) sessions: &'a SessionTable,
    pub(crate) quotas: &'a Quotas,
    pub(crate) session: SessionId,
    pub(crate) origin: Option<Origin>,
    pub(crate) identities: &'a [Identity],
    pub(crate) context: &'a BatchContext,
    pub(crate) zxid: Zxid,
    /// Why a quota refused, for the log.
    pub(crate) beyond_quota: Cell<Option<QuotaExceeded>>,
    /// Rest of the budget of the command.
    pub(crate) budget: Budget,
}

/// Data of fewer bytes count for nothing where they are hashed with another Stat.
const SMALL_DATA_BYTES: usize = 1024;
/// More children than that are not found in a few steps ...
pub(crate) const WIDE: u32 = 1 << 17;
/// ... and cost so much more, and as much again for each four times as many.
const WIDE_COST: u64 = 3000;

/// Additional cost of finding the place of a child among so many others.
pub(crate) const fn wide_cost(children: u32) -> u64 {
    if children > WIDE { WIDE_COST * (1 + (children / WIDE).ilog2() as u64 / 2) } else { 0 }
}

impl Caller<'_> {
    /// Whether a feature is in force for the batch.
    pub(crate) const fn has(&self, feature: u32) -> bool {
        self.context.features & feature != 0
    }

    /// The answer to a command that was refused with this code before it was logged.
    pub(crate) fn refused(&self, code: ErrorCode) -> ErrorCode {
        self.check_session().err().unwrap_or(code)
    }

    /// The schemes that ACLs may name here.
    fn schemes(&self) -> acl::Schemes {
        acl::Schemes { sasl: self.has(features::SASL_ACLS), x509: self.has(features::X509_ACLS) }
    }

    /// The ACL that is kept when this one was sent.
    pub(crate) fn stored_acl(&self, sent: &AclSpec) -> Result<Acl, ErrorCode> {
        let acl = acl::fix_up(sent, self.identities, self.schemes(), self.bounded())?;
        if let Acl::List(list) = &acl {
            self.spend(cost::bytes(acl::text_bytes(list)) + cost::NAME * list.len() as u64)?;
        }
        Ok(acl)
    }

    /// The session lives and still belongs to the connection that sent the command.
    pub(crate) fn check_session(&self) -> Result<(), ErrorCode> {
        let session = self.sessions.get(&self.session).ok_or(ErrorCode::SessionExpired)?;
        if session.owner == self.origin { Ok(()) } else { Err(ErrorCode::SessionMoved) }
    }

    /// The znode of this path, which must be there.
    pub(crate) fn existing<'d>(
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
    pub(crate) fn spend_on_parent(&self, draft: &Draft<'_>, path: &str, parent: &NodeRef<'_>) -> Result<(), ErrorCode> {
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
    pub(crate) fn check_quota(
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
        if !self.has(features::ENFORCE_QUOTA) {
            return Ok(());
        }
        let length = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
        let more = length(bytes) - length(bytes_before);
        self.quotas.check(draft.view(), self.bounded(), path, (znodes, more)).map_err(|exceeded| {
            self.beyond_quota.set(Some(exceeded));
            ErrorCode::QuotaExceeded
        })
    }

    /// The znode grants the permission.
    #[inline]
    pub(crate) fn allow(&self, node: &NodeRef<'_>, wanted: i32) -> Result<(), ErrorCode> {
        node.acl_list().map_or(Ok(()), |list| self.allow_by(list, wanted))
    }

    #[inline(never)]
    fn allow_by(&self, list: &AclList, wanted: i32) -> Result<(), ErrorCode> {
        if self.has(features::SKIP_ACL) {
            return Ok(());
        }
        // A long list is seldom in a cache, however few identities it is held against.
        let fetched = if self.bounds_deletions() { cost::ACL_ENTRY_FETCHED * list.len() as u64 } else { 0 };
        self.spend(list.cost(self.identities).max(fetched))?;
        if list.grants(wanted, self.identities) { Ok(()) } else { Err(ErrorCode::NoAuth) }
    }

    /// Whether the limits of this version hold.
    pub(crate) const fn bounded(&self) -> bool {
        self.has(features::BOUNDED)
    }

    /// Whether the limits on the cost of quotas hold.
    pub(crate) const fn bounds_quotas(&self) -> bool {
        self.has(features::QUOTAS_BOUNDED)
    }

    /// Whether work counts the marks of deleted children, and the other rules of that version hold.
    pub(crate) const fn bounds_deletions(&self) -> bool {
        self.has(features::DELETIONS_BOUNDED)
    }

    /// Returns the cost of passing over marks of deleted children, when the children of a znode are looked for. The
    /// number of marks differs from server to server, so the most marks count. There are no more than deletions since
    /// the znode was created, and no more than a view keeps.
    pub(crate) fn passing_cost(&self, stat: &NodeStat) -> u64 {
        if !self.bounds_deletions() || stat.num_children == 0 {
            return 0;
        }
        let (marks, bytes) = marks_at_most(stat);
        let deletions = u64::from(stat.deletions());
        MARK * marks.min(deletions) + bytes.min(deletions * NAME_BYTES_MAX as u64) / cost::BYTES_PER_UNIT
    }

    /// Changes of the transaction that its checks do not see in the tree.
    pub(crate) fn uncommitted(&self, draft: &Draft<'_>) -> usize {
        if self.bounds_deletions() { draft.change_count() } else { 0 }
    }

    /// Returns the additional cost of the deletion of a znode.
    pub(crate) fn deletion_cost(&self) -> u64 {
        if self.bounds_quotas() && !self.quotas.is_empty() { QUOTA_DELETE_COST } else { 0 }
    }

    /// Takes the cost of work off the command's budget.
    ///
    /// # Errors
    /// THROTTLEDOP when too little is left: the command fails, whatever the load.
    #[inline]
    pub(crate) fn spend(&self, units: u64) -> Result<(), ErrorCode> {
        self.budget.spend(units).map_err(|Exhausted| ErrorCode::ThrottledOp)
    }

    /// The limits on znodes that are created.
    ///
    /// # Errors
    /// BADARGUMENTS for the path's own sake, QUOTAEXCEEDED when the parent has too many names, the session too many
    /// ephemerals, or the tree too many quotas.
    pub(crate) fn fits(
        &self,
        draft: &Draft<'_>,
        at: &HashedPath,
        parent: &NodeRef<'_>,
        owner: Owner,
    ) -> Result<(), ErrorCode> {
        if !self.bounded() {
            return Ok(());
        }
        let levels = || at.path.bytes().filter(|byte| *byte == b'/').count();
        if at.path.len() > PATH_BYTES_MAX
            || at.name().len() > NAME_BYTES_MAX
            // Each level takes a byte at least.
            || (at.path.len() > PATH_LEVELS_MAX && levels() > PATH_LEVELS_MAX)
            || !may_have_quota(&at.path)
        {
            return Err(ErrorCode::BadArguments);
        }
        let begun = if self.bounds_deletions() { draft.quotas() } else { 0 };
        if self.bounds_quotas() && is_limits(&at.path) && self.quotas.are_too_many(begun) {
            return Err(ErrorCode::QuotaExceeded);
        }
        if parent.stat().names_bytes + name_bytes(at.name()) > NAMES_BYTES_MAX {
            return Err(ErrorCode::QuotaExceeded);
        }
        let Owner::Session(session) = owner else { return Ok(()) };
        let owned = self.sessions.get(&session).map(|session| &session.ephemerals);
        let (before, bytes) = owned.map_or((0, 0), |owned| (owned.len(), owned.bytes()));
        let most = if self.bounds_deletions() { EPHEMERALS_PER_SESSION_MAX } else { EPHEMERALS_FORMERLY_MAX };
        if before + draft.change_count() >= most || bytes >= EPHEMERALS_BYTES_MAX {
            return Err(ErrorCode::QuotaExceeded);
        }
        Ok(())
    }

    /// Where Keeper's system nodes are there, clients must not write or check them.
    pub(crate) fn guard(&self, path: &str) -> Result<(), ErrorCode> {
        let guards = self.has(features::KEEPER);
        let is_system =
            || path.strip_prefix(KEEPER_SYSTEM).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        if guards && is_system() { Err(ErrorCode::BadArguments) } else { Ok(()) }
    }
}

/// The first check of create and delete; a null path breaks it off.
pub(crate) fn has_parent(path: &str) -> Result<(), ErrorCode> {
    match path {
        path::NULL => Err(ErrorCode::MarshallingError),
        path if path::has_parent(path) => Ok(()),
        _ => Err(ErrorCode::BadArguments),
    }
}

pub(crate) fn expect_version(actual: i32, wanted: i32) -> Result<(), ErrorCode> {
    if wanted == -1 || wanted == actual { Ok(()) } else { Err(ErrorCode::BadVersion) }
}

/// The Stat of a znode that is created by this transaction.
pub(crate) fn fresh_stat(zxid: Zxid, time: i64, owner: Owner) -> NodeStat {
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
