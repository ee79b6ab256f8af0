//! The replicated state machine: commands in, changes and outcomes out, the same on every server and in every replay.
//!
//! Checks stand in the exact order of ZooKeeper's `PrepRequestProcessor` (protocol chapter 11). There is no state but
//! the committed one: a command is evaluated when its log entry is committed, against everything before it.

mod ensemble_id;
pub mod outcome;
mod owners;
mod proof;
mod reconfig;
mod system_nodes;
mod weight;

pub use ensemble_id::EnsembleId;
pub use proof::Proof;
pub(crate) use proof::same_secret;
pub use reconfig::{Begun, configured, servers};
pub use system_nodes::system_nodes;
pub(crate) use weight::{Circumstances, cost_at_most, cost_of_znodes};

use crate::command::{Batch, Command, CommandKind};
use crate::cost::{self, Budget};
use crate::features;
use crate::ids::{Origin, SessionId, Zxid};
use crate::ops::caller::{BatchContext, Caller};
use crate::ops::draft::Draft;
use crate::ops::{OpResult, WriteOp};
use crate::quota::count::Counted;
use crate::quota::usage::QuotaExceeded;
use crate::quota::{Books, QUOTA_DELETE_COST, QuotaReport, Quotas};
use crate::session::{Ephemerals, Session, SessionTable};
use crate::shared::Text;
use crate::tree::acl::Identity;
use crate::tree::change::Changes;
use crate::tree::snapshot::Snapshot;
use crate::tree::view::{View, WARM_MAX};
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;
use core::{fmt, mem};
use corral_wire::error::ErrorCode;
use outcome::{AppliedBatch, AppliedTxn, Outcome, SessionChange};
use owners::{close_changes, note_owner, reap, session_id};
use reconfig::ReconfigState;

/// Returns the epoch that the leader of a term begins behind this last zxid. It is the term, or one more than the last
/// epoch, whichever is larger: zxids only grow.
pub(crate) fn epoch_of(term: u64, last: Zxid) -> u32 {
    let term = u32::try_from(term).unwrap_or(u32::MAX);
    term.max(last.epoch().saturating_add(1)).min(Zxid::EPOCH_MAX)
}

/// Tree, sessions and ephemerals at one zxid.
pub struct StateMachine {
    view: View,
    sessions: SessionTable,
    quotas: Quotas,
    reapable: BTreeSet<Text>,
    reconfig: ReconfigState,
    /// Units of cost spent by all commands since the machine was made.
    units_spent: u64,
    /// Limit on the cost of one command, see [`cost::COMMAND_MAX`].
    command_cost_max: u64,
    /// An entry with [`features::ADMITTED`] was applied. Snapshots keep it beside the tree.
    has_admitted: bool,
    ensemble_id: Option<EnsembleId>,
}

impl fmt::Debug for StateMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateMachine").field("zxid", &self.view.zxid()).finish_non_exhaustive()
    }
}

impl StateMachine {
    /// Returns the state of a snapshot, with nothing applied since.
    pub fn of_snapshot(snapshot: Arc<Snapshot>) -> Self {
        let sessions = snapshot.sessions().collect();
        Self::new(View::new(snapshot), sessions)
    }

    /// `sessions` as stored in the snapshot that `view` stands on.
    pub fn new(mut view: View, sessions: SessionTable) -> Self {
        view.keep_digest();
        let quotas = Quotas::of(&view);
        let reapable = view.snapshot().reapable().collect();
        Self {
            view,
            sessions,
            quotas,
            reapable,
            reconfig: ReconfigState::default(),
            units_spent: 0,
            command_cost_max: cost::COMMAND_MAX,
            has_admitted: false,
            ensemble_id: None,
        }
    }

    /// .. and the membership change that was begun where the snapshot ends.
    #[must_use]
    pub fn in_the_middle_of(self, begun: Option<Begun>) -> Self {
        Self { reconfig: ReconfigState::of(begun), ..self }
    }

    /// The state of a snapshot behind an entry with [`features::ADMITTED`].
    #[must_use]
    pub fn after_admitted(self, has_admitted: bool) -> Self {
        Self { has_admitted, ..self }
    }

    /// The state of a snapshot with data of this ensemble.
    #[must_use]
    pub fn of_ensemble(self, ensemble_id: Option<EnsembleId>) -> Self {
        Self { ensemble_id, ..self }
    }

    /// Which ensemble the data are of. `None` before an entry with [`features::IDENTIFIED`].
    pub const fn ensemble_id(&self) -> Option<EnsembleId> {
        self.ensemble_id
    }

    /// Sets the limit on the cost of one command.
    pub(crate) const fn limit_cost(&mut self, command_cost_max: u64) {
        self.command_cost_max = command_cost_max;
    }

    /// Whether an entry with [`features::ADMITTED`] was applied: every later leader sets that bit.
    pub const fn has_admitted(&self) -> bool {
        self.has_admitted
    }

    /// The tree at the zxid of the last transaction that was applied.
    pub const fn view(&self) -> &View {
        &self.view
    }

    /// The same, to freeze its delta or to take a new snapshot into use.
    pub const fn view_mut(&mut self) -> &mut View {
        &mut self.view
    }

    /// The sessions that are alive at the same zxid.
    pub const fn sessions(&self) -> &SessionTable {
        &self.sessions
    }

    /// Compares a password with the session's. One look-up, on the consensus actor's core.
    pub fn proof(&self, session: SessionId, password: &[u8; 16]) -> Proof {
        Proof::of(self.sessions.get(&session), self.view.zxid(), session, password)
    }

    /// Paths of all containers and TTL nodes.
    pub const fn reapable(&self) -> &BTreeSet<Text> {
        &self.reapable
    }

    /// The membership change that is under way.
    pub fn begun(&self) -> Option<&Begun> {
        self.reconfig.begun()
    }

    /// How often the membership has changed since the machine was made.
    pub const fn list_changes(&self) -> u64 {
        self.reconfig.changes()
    }

    /// Units of [`cost`] that all commands took since the machine was made. The state does not depend on it.
    pub const fn units_spent(&self) -> u64 {
        self.units_spent
    }

    /// Takes the writes beyond a quota since the last call. The state does not depend on it.
    pub fn take_quota_report(&mut self) -> Option<QuotaReport> {
        self.quotas.take_report()
    }

    /// Whether any subtree has a quota.
    pub fn has_quotas(&self) -> bool {
        !self.quotas.is_empty()
    }

    /// Goes on counting what a large subtree uses that was given a quota. For the leader; gives the command to be
    /// ordered when it is done.
    pub fn count_on(&mut self) -> Option<Counted> {
        self.quotas.count_on(&self.view)
    }

    /// Another server leads, and counts.
    pub fn stop_counting(&mut self) {
        self.quotas.stop_counting();
    }

    /// Applies a committed batch of a log entry of this term. Zxids follow from the batch alone. A batch with zxids
    /// that no leader of the term gives has no effect: every server replays the same log.
    pub fn apply(&mut self, batch: Batch, term: u64) -> AppliedBatch {
        if !self.is_next(&batch, term) {
            return AppliedBatch { time: batch.time, txns: Vec::new() };
        }
        self.has_admitted |= batch.features & features::ADMITTED != 0;
        if batch.features & features::IDENTIFIED != 0 {
            self.ensemble_id.get_or_insert_with(|| EnsembleId::of(&batch));
        }
        let mut next = batch.first_zxid;
        let context = BatchContext { time: batch.time.0, features: batch.features, countable: Cell::new(None) };
        let mut txns = Vec::with_capacity(batch.commands.len());
        let mut commands = batch.commands.into_iter();
        while !commands.as_slice().is_empty() {
            let together = commands.as_slice().len().min(WARM_MAX);
            let paths = commands.as_slice()[..together].iter().flat_map(Command::paths);
            self.view.warm(paths.map(|path| self.view.hasher().hash(path)));
            for command in commands.by_ref().take(together) {
                let zxid = if command.takes_zxid() {
                    let zxid = Zxid(next);
                    assert!(zxid > self.view.zxid(), "zxids only grow");
                    next += 1;
                    zxid
                } else {
                    self.view.zxid()
                };
                let identities =
                    batch.identities.get(command.identities as usize).map_or(&[][..], |list| list.as_slice());
                let (origin, outcome) = (command.origin, Outcome::SessionRefused);
                txns.push(AppliedTxn { zxid, changes: Changes::new(), session: None, origin, outcome });
                if let Some(applied) = txns.last_mut() {
                    self.apply_one(&context, identities, command, applied);
                }
            }
        }
        AppliedBatch { time: batch.time, txns }
    }

    /// Whether the batch's zxids are behind those of the state, in an epoch that a leader of the term begins, see
    /// [`epoch_of`].
    fn is_next(&self, batch: &Batch, term: u64) -> bool {
        let takes = batch.commands.iter().filter(|command| command.takes_zxid()).count() as u64;
        let last = batch.first_zxid.checked_add(takes);
        let is_of_term = last.is_some_and(|last| Zxid(last).epoch() <= epoch_of(term, self.view.zxid()));
        takes == 0 || batch.first_zxid > self.view.zxid().0 && is_of_term
    }

    /// `applied` has no changes yet, and the outcome of a session that is refused.
    fn apply_one(
        &mut self,
        context: &BatchContext,
        identities: &[Identity],
        command: Command,
        applied: &mut AppliedTxn,
    ) {
        let Command { origin, session, kind, .. } = command;
        let zxid = applied.zxid;
        match kind {
            CommandKind::Op(op) => {
                let caller = self.caller(origin, session, identities, context, zxid);
                let mut draft = draft_for(&self.view, zxid, &op);
                let result = evaluate(&caller, &mut draft, op);
                applied.changes = draft.into_changes();
                applied.outcome = Outcome::Op(result.unwrap_or_else(OpResult::Error));
                self.note(caller.budget.spent(), caller.beyond_quota.into_inner());
            }
            CommandKind::Multi(ops) => {
                let caller = self.caller(origin, session, identities, context, zxid);
                match evaluate_all(&caller, &self.view, ops) {
                    Ok((changes, results)) => {
                        applied.changes = changes;
                        applied.outcome = Outcome::Multi(results);
                    }
                    Err(code) => applied.outcome = Outcome::Op(OpResult::Error(code)),
                }
                self.note(caller.budget.spent(), caller.beyond_quota.into_inner());
            }
            CommandKind::Undecodable => {
                let caller = self.caller(origin, session, identities, context, zxid);
                applied.outcome = Outcome::Op(OpResult::Error(caller.refused(ErrorCode::MarshallingError)));
            }
            CommandKind::Refused(code) => {
                let caller = self.caller(origin, session, identities, context, zxid);
                applied.outcome = Outcome::Op(OpResult::Error(caller.refused(code)));
            }
            CommandKind::CreateSession { timeout_ms, password } => {
                let id = session_id(origin, zxid);
                self.sessions
                    .insert(id, Session { timeout_ms, password, owner: origin, ephemerals: Ephemerals::default() });
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
                    let ephemerals = known.ephemerals.clone();
                    applied.outcome = Outcome::SessionAttached { session, timeout_ms, password, ephemerals };
                }
            }
            CommandKind::CloseSession => {
                applied.outcome = Outcome::SessionClosed;
                if let Some(ended) = self.sessions.remove(&session) {
                    applied.changes = close_changes(&self.view, zxid, &ended);
                    let each = cost::CHANGE + if self.has_quotas() { QUOTA_DELETE_COST } else { 0 };
                    let units = each * applied.changes.len() as u64 + 2 * ended.ephemerals.bytes() as u64;
                    self.note(units, None);
                    applied.session = Some(SessionChange::Closed(session));
                }
            }
            kind => self.seldom(context, identities, session, applied, kind),
        }
        self.commit(applied, context.features);
    }

    /// Evaluates the server's own commands, and membership changes. They are seldom, and no part of the cost of a
    /// client's write.
    #[cold]
    #[inline(never)]
    fn seldom(
        &mut self,
        context: &BatchContext,
        identities: &[Identity],
        session: SessionId,
        applied: &mut AppliedTxn,
        kind: CommandKind,
    ) {
        let zxid = applied.zxid;
        applied.outcome = Outcome::Op(OpResult::CHECKED);
        match kind {
            CommandKind::SystemNodes(nodes) => {
                applied.changes = system_nodes::system_changes(&self.view, zxid, context.time, nodes);
            }
            CommandKind::QuotaCounted(counted) => applied.changes = self.quotas.counted(&self.view, &counted),
            CommandKind::Reap { path, mzxid } => {
                let mut draft = Draft::single(&self.view, zxid);
                let result = reap(&mut draft, path, Zxid(mzxid));
                applied.changes = draft.into_changes();
                applied.outcome = Outcome::Op(result.unwrap_or_else(OpResult::Error));
            }
            CommandKind::Reconfig(request) => {
                let caller = self.caller(applied.origin, session, identities, context, zxid);
                (applied.changes, applied.outcome) = self.reconfig.request(&caller, &self.view, &request);
                let units = caller.budget.spent();
                self.note(units, None);
                self.reconfig.count(&applied.changes);
            }
            kind => self.reconfig.carry_out(&self.view, context, applied, &kind),
        }
    }

    /// Whether a command would cost more than one may, carried out as the next one in a batch of its own. Evaluates it and drops
    /// the changes. Only a leader asks, before the command is logged.
    pub(crate) fn is_too_costly(&mut self, batch: &Batch) -> bool {
        // Evaluated with a budget, as commands are that no leader has judged.
        let features = batch.features & !features::ADMITTED;
        let context = BatchContext { time: batch.time.0, features, countable: Cell::new(None) };
        let Some(command) = batch.commands.first() else { return false };
        let identities = batch.identities.get(command.identities as usize).map_or(&[][..], |list| list.as_slice());
        let zxid = Zxid(batch.first_zxid);
        let caller = self.caller(command.origin, command.session, identities, &context, zxid);
        match &command.kind {
            CommandKind::Op(op) => {
                let mut draft = draft_for(&self.view, zxid, op);
                // The budget shows the cost. The result is not needed.
                let _ = evaluate(&caller, &mut draft, op.clone());
            }
            CommandKind::Multi(ops) => {
                let _ = evaluate_all(&caller, &self.view, ops.clone());
            }
            _ => return false,
        }
        let (units, is_used_up) = (caller.budget.spent(), caller.budget.left() == 0);
        self.note(units, None);
        is_used_up
    }

    const fn caller<'a>(
        &'a self,
        origin: Option<Origin>,
        session: SessionId,
        identities: &'a [Identity],
        context: &'a BatchContext,
        zxid: Zxid,
    ) -> Caller<'a> {
        let Self { sessions, quotas, .. } = self;
        let has_budget = context.features & (features::BOUNDED | features::ADMITTED) == features::BOUNDED;
        let budget = if has_budget { Budget::new(self.command_cost_max) } else { Budget::unlimited() };
        Caller { sessions, quotas, session, origin, identities, context, zxid, beyond_quota: Cell::new(None), budget }
    }

    fn note(&mut self, units: u64, exceeded: Option<QuotaExceeded>) {
        self.units_spent = self.units_spent.wrapping_add(units);
        if let Some(exceeded) = exceeded {
            self.quotas.note(exceeded);
        }
    }

    /// Takes the changes into the tree, the lists of owners, and the usage of quotas, which adds changes.
    fn commit(&mut self, applied: &mut AppliedTxn, features: u32) {
        if self.quotas.concern(&applied.changes) {
            let mut books = Books::new(features);
            for change in mem::take(&mut applied.changes) {
                note_owner(&self.view, &mut self.sessions, &mut self.reapable, &change);
                self.quotas.apply(&mut self.view, applied.zxid, change, &mut books);
            }
            applied.changes = books.finish(&mut self.view, applied.zxid);
        } else {
            for change in &applied.changes {
                note_owner(&self.view, &mut self.sessions, &mut self.reapable, change);
                self.view.apply(applied.zxid, change);
            }
        }
        self.view.set_zxid(applied.zxid);
        self.view.log_digest();
    }
}

/// For one operation: nearly all make one change, after all their checks.
fn draft_for<'v>(view: &'v View, zxid: Zxid, op: &WriteOp) -> Draft<'v> {
    if matches!(op, WriteOp::RemoveRecursive(_)) { Draft::chained(view, zxid) } else { Draft::single(view, zxid) }
}

/// Evaluates one operation, which costs something even if its first check fails.
fn evaluate(caller: &Caller<'_>, draft: &mut Draft<'_>, op: WriteOp) -> Result<OpResult, ErrorCode> {
    caller.spend(cost::OP + cost::bytes(op.bytes()))?;
    op.evaluate(caller, draft)
}

/// All or nothing, each operation against the state left by those before it (protocol chapter 13.2).
///
/// # Errors
/// MARSHALLINGERROR, when an operation breaks the check off: then there are no results at all.
fn evaluate_all(caller: &Caller<'_>, view: &View, ops: Vec<WriteOp>) -> Result<(Changes, Vec<OpResult>), ErrorCode> {
    let count = ops.len();
    let mut draft = Draft::chained(view, caller.zxid);
    let mut results = Vec::with_capacity(count);
    for op in ops {
        match evaluate(caller, &mut draft, op) {
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

#[cfg(test)]
pub(crate) mod tests;
