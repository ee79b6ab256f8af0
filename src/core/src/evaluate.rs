//! The replicated state machine: commands in, changes and outcomes out, the same on every server and in every replay.
//!
//! Checks stand in the exact order of ZooKeeper's `PrepRequestProcessor` (protocol chapter 11). There is no state but
//! the committed one: a command is evaluated when its log entry is committed, against everything before it.

mod ops;
mod sessions;

use crate::change::{AppliedBatch, AppliedTxn, Change, OpResult, Outcome, SessionChange};
use crate::command::{Batch, Command, CommandKind, Identity};
use crate::draft::Draft;
use crate::ids::Zxid;
use crate::session::{Session, SessionTable};
use crate::view::View;
use crate::znode::Owner;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use ops::Caller;
use sessions::{close_changes, same_secret, session_id};

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
