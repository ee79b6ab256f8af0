//! Recovery: from the newest snapshot and the log behind it to a replica.
//!
//! The driver opens the files and decides what is damaged. This module decides the kind of server that the data belong
//! to, and the entries that are applied at once. It also decides the state with which Raft starts. Committed entries
//! are applied from the log, a page at a time: a tail of gigabytes is never held in memory.
//!
//! A position in the log is an index and the term of its entry.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use corral_consensus::{
    Config as RaftConfig, ConsensusError, Effects, Entry, EntryKind, HardState, Index, Membership, RaftNode, Replica,
    Restored, Term,
};
use corral_core::apply::StateMachine;
use corral_core::command::Batch;
use corral_core::forwarding::{EnsembleConfig, Forwarding, Founders};
use corral_core::sequencer::{FrozenState, Sequencer, SequencerConfig};
use corral_core::shared::Text;
use corral_core::tree::snapshot::{Snapshot, initial_snapshot};
use corral_peer::Generation;
use corral_types::{StoredEntry, StoredLog};

use crate::event::Now;
use crate::extra::{Extra, ExtraError};
use crate::machine::Replicated;
use crate::progress::{CatchUp, LogPosition, log_position_of};
use crate::snapshot::LoadedSnapshot;

/// The kind of server that the data on a disk belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataKind {
    /// A standalone server.
    Standalone,
    /// There are no data. The server becomes a member when a leader adds it, or when all founders have no data.
    Uninitialised,
    /// A server of an ensemble: its membership, and the generation of its data.
    Member(Membership, Generation),
}

impl DataKind {
    /// The kind of data: from the newest snapshot, and the indices of the first and last entry of the log.
    ///
    /// # Errors
    /// If the data belong to the other kind of server, or are incomplete.
    pub fn of(
        in_ensemble: bool,
        snapshot: Option<&Snapshot>,
        (first, last): (u64, u64),
    ) -> Result<DataKind, DataMismatch> {
        let kept = snapshot.map_or(&[][..], Snapshot::extra);
        match (in_ensemble, snapshot.is_some(), kept.is_empty()) {
            (false, _, true) => Ok(DataKind::Standalone),
            (false, _, false) => Err(DataMismatch::OfEnsemble),
            (true, false, _) if last == 0 => Ok(DataKind::Uninitialised),
            (true, false, _) if first > 1 => Err(DataMismatch::NoSnapshot { first }),
            (true, _, true) => Err(DataMismatch::RanAlone),
            (true, _, false) => Extra::decode(kept)
                .map(|extra| DataKind::Member(extra.members, extra.generation))
                .map_err(DataMismatch::Membership),
        }
    }

    /// Generation of the data.
    #[must_use]
    pub fn generation(&self) -> Generation {
        match self {
            DataKind::Standalone => Generation::FIRST,
            DataKind::Uninitialised => Generation::NONE,
            DataKind::Member(_, generation) => *generation,
        }
    }
}

/// Why the data on a disk are not those of this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DataMismatch {
    /// The data belong to a server of an ensemble, and this server is standalone.
    #[error("the data belong to a server of an ensemble")]
    OfEnsemble,
    /// The data belong to a standalone server, and this server is one of an ensemble.
    #[error("the data belong to a standalone server")]
    RanAlone,
    /// There is no snapshot before the first entry of the log.
    #[error("there is no snapshot before log entry {first}")]
    NoSnapshot {
        /// Index of the first entry.
        first: u64,
    },
    /// The membership in the snapshot is invalid.
    #[error("invalid membership in the snapshot: {0}")]
    Membership(ExtraError),
}

/// The input of a recovery.
pub struct Plan {
    /// The kind of data.
    pub data: DataKind,
    /// The state of the newest snapshot, with log index and term: see [`state_of`].
    pub state: (StateMachine, u64, u64),
    /// Settings of the sequencer.
    pub sequencer: SequencerConfig,
    /// The list of servers as clients see it.
    pub servers: Option<Text>,
    /// Settings of a server of an ensemble; `None` of a standalone server.
    pub ensemble: Option<EnsembleConfig>,
    /// The servers that would bootstrap a new ensemble with this one.
    pub founders: Founders,
    /// Settings of Raft.
    pub raft: RaftConfig,
    /// Whether damaged data were put aside, and no snapshot of another server has replaced them yet. Such a server founds no
    /// ensemble: no other agrees with it on the founders.
    pub is_healing: bool,
    /// Whether an earlier process noted that the state is corrupt: then no snapshot of it is written.
    pub is_state_corrupt: bool,
}

/// One server as its data on disk make it.
pub struct Member<M: Replicated> {
    /// Its Raft node.
    pub replica: Replica,
    /// The sequencer, or its wrapper.
    pub machine: M,
    /// The way of its clients' commands; `None` of a standalone server.
    pub forwarding: Option<Forwarding>,
}

/// The result of a recovery.
pub struct Recovered<M: Replicated> {
    /// The server.
    pub member: Member<M>,
    /// The state after the replay, frozen, if it is worth a snapshot. The driver writes it, and every view begins above it.
    pub frozen: Option<FrozenState>,
    /// Term, vote and commit index that the replica started with.
    pub hard_state: HardState,
}

/// Why a recovery failed.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryFault<E> {
    /// A fault of the log.
    #[error("{0}")]
    Log(E),
    /// Entries between the snapshot and the log are missing.
    #[error("the snapshot ends at log entry {snapshot}, and the log holds entries {first} to {last}")]
    Gap {
        /// Index of the first entry of the log.
        first: u64,
        /// Index of its last entry.
        last: u64,
        /// Index at which the snapshot ends.
        snapshot: u64,
    },
    /// An intact entry cannot be read by this version.
    #[error("log entry {index} cannot be read by this version")]
    NotABatch {
        /// Index of the entry.
        index: u64,
    },
    /// Log, snapshot and configuration do not fit together.
    #[error(transparent)]
    Inconsistent(ConsensusError),
}

impl<E> From<E> for RecoveryFault<E> {
    fn from(error: E) -> Self {
        RecoveryFault::Log(error)
    }
}

/// The state of a snapshot with log index and term, or the empty state. `seed` is for the hashes of paths.
#[must_use]
pub fn state_of(loaded: Option<&LoadedSnapshot>, seed: u64) -> (StateMachine, u64, u64) {
    match loaded {
        Some(loaded) => (loaded.state(), loaded.index, loaded.term),
        None => (StateMachine::of_snapshot(Arc::new(initial_snapshot(seed))), 0, 0),
    }
}

/// Whether a log with these first and last indices continues a snapshot that ends at `snapshot` without a gap.
#[must_use]
pub fn reaches((first, last): (u64, u64), snapshot: u64) -> bool {
    first <= snapshot + 1 && last >= snapshot
}

/// Makes the replica. A standalone server applies its whole log and leads: then everything acknowledged is applied, and
/// the first entry of this start is durable. A server of an ensemble applies what it knows to be committed; the rest its
/// leader decides. `machine` may wrap the sequencer; `now` reads the time. Called once at a
/// start, before the engine exists. It takes time in proportion to the log.
///
/// # Errors
/// See [`RecoveryFault`].
pub fn recover<M: Replicated, L: StoredLog>(
    plan: Plan,
    log: &mut L,
    machine: impl FnOnce(Sequencer) -> M,
    now: &dyn Fn() -> Now,
) -> Result<Recovered<M>, RecoveryFault<L::Error>> {
    let Plan { data, state: (state, index, term), sequencer, servers, ensemble, raft, .. } = plan;
    let (mut founders, is_state_corrupt) = (plan.founders, plan.is_state_corrupt);
    if plan.is_healing {
        founders.voters.clear();
    }
    let is_alone = data == DataKind::Standalone;
    if !is_alone {
        log.go_on_behind((index, term))?;
    }
    let (first, last) = log.held();
    if !reaches((first, last), index) {
        return Err(RecoveryFault::Gap { first, last, snapshot: index });
    }
    let mut sequencer = Sequencer::new(sequencer, state, index, term);
    if let Some(servers) = servers {
        sequencer.configure(servers);
    }
    let hard_state = hard_state(log, Term(term));
    // A server that is alone has committed all that is durable.
    let committed = if is_alone { last } else { hard_state.commit.0 };
    let mut forwarding = ensemble.map(|config| Forwarding::new(config, &mut sequencer));
    let mut machine = machine(sequencer);
    let applied = replay(&mut machine, forwarding.as_mut(), log, (index, term), committed, now)?;
    let cut = if is_alone { applied } else { log.reach_back(applied, raft.log_cache_bytes) };
    let restored = Restored {
        hard_state,
        cut_index: Index(cut.0),
        cut_term: Term(cut.1),
        disk_terms: if is_alone { Vec::new() } else { terms_upto(log, cut.0) },
        entries: entries_after(log, cut.0)?,
        snapshot: Index(index),
        applied: Index(applied.0),
    };
    let node = match &data {
        DataKind::Standalone => RaftNode::new(raft, restored),
        DataKind::Uninitialised => RaftNode::uninitialised(raft),
        DataKind::Member(membership, _) => RaftNode::with_membership(raft, membership.clone(), restored),
    };
    let node = node.map_err(RecoveryFault::Inconsistent)?;
    if (node.is_uninitialised() || node.is_pristine())
        && let Some(forwarding) = &mut forwarding
    {
        forwarding.begin_uninitialised(founders, node.is_pristine());
    }
    let mut replica = Replica::new(node, Index(applied.0));
    if is_alone {
        lead(&mut replica, &mut machine, log, now)?;
    }
    let sequencer = machine.sequencer_mut();
    let frozen = if is_state_corrupt { None } else { freeze(replica.raft(), sequencer, &data, now()) };
    Ok(Recovered { member: Member { replica, machine, forwarding }, frozen, hard_state })
}

/// The hard state to start with. A server that installed another's snapshot may not have stored the term of that snapshot
/// yet, so the term is at least that.
fn hard_state<L: StoredLog>(log: &L, snapshot: Term) -> HardState {
    let state = log.hard_state().unwrap_or_default();
    // A torn tail may have held the entry of the commit index: the commit index is at most the last entry.
    let state = HardState { commit: Index(state.commit.0.min(log.held().1)), ..state };
    let least = log.stepped_over().map_or(snapshot, |last| snapshot.max(last));
    if state.term < least { HardState { term: least, vote: None, ..state } } else { state }
}

/// Applies the log behind the snapshot as far as it is known to be committed. Gives the position of the last entry
/// applied. Stops before a membership change, because Raft must apply it.
fn replay<M: Replicated, L: StoredLog>(
    machine: &mut M,
    mut forwarding: Option<&mut Forwarding>,
    log: &L,
    snapshot: (u64, u64),
    committed: u64,
    now: &dyn Fn() -> Now,
) -> Result<(u64, u64), RecoveryFault<L::Error>> {
    let (mut position, mut bytes, mut catch_up, mut fault) = (snapshot, 0, CatchUp::default(), None);
    let begun = now();
    machine.sequencer_mut().set_time(begun.millis(), begun.wall);
    let visited = log.visit((snapshot.0 + 1, committed), &mut |entry| {
        if entry.kind == EntryKind::ConfChange {
            return ControlFlow::Break(());
        }
        let at = LogPosition { applied: position.0, committed, bytes };
        if let Some(progress) = catch_up.observe(Duration::from_micros(now().micros.0), at) {
            progress.log();
        }
        if machine.commit(entry.index, entry.term, entry.payload, false).is_err() {
            fault = Some(RecoveryFault::NotABatch { index: entry.index.0 });
            return ControlFlow::Break(());
        }
        for applied in machine.sequencer_mut().take_applied() {
            if let Some(forwarding) = &mut forwarding {
                forwarding.applied(begun.millis(), begun.wall, &applied);
            }
        }
        position = (entry.index.0, entry.term.0);
        bytes += entry.payload.len() as u64;
        ControlFlow::Continue(())
    });
    visited?;
    fault.map_or(Ok(position), Err)
}

/// The terms of the entries up to `cut`, each with the first index that has it. Followers are sent the entries behind the
/// first one from disk.
fn terms_upto<L: StoredLog>(log: &L, cut: u64) -> Vec<(Index, Term)> {
    let mut terms: Vec<(Index, Term)> = Vec::new();
    for index in log.held().0..=cut {
        let Some(term) = log.term(index).map(Term) else { return Vec::new() };
        if terms.last().is_none_or(|(_, before)| *before != term) {
            terms.push((Index(index), term));
        }
    }
    terms
}

/// Every log entry behind an index, for Raft.
fn entries_after<L: StoredLog>(log: &L, index: u64) -> Result<Vec<Entry>, L::Error> {
    let mut entries = Vec::new();
    log.visit((index + 1, log.held().1), &mut |entry| {
        let StoredEntry { index, term, kind, payload, .. } = entry;
        entries.push(Entry { term, index, kind, payload: Bytes::copy_from_slice(payload) });
        ControlFlow::Continue(())
    })?;
    Ok(entries)
}

/// A standalone server elects itself. Its log is written here until the engine starts.
fn lead<M: Replicated, L: StoredLog>(
    replica: &mut Replica,
    machine: &mut M,
    log: &mut L,
    now: &dyn Fn() -> Now,
) -> Result<(), RecoveryFault<L::Error>> {
    replica.campaign();
    let mut catch_up = CatchUp::default();
    while !replica.is_leading() {
        let time = now();
        if let Some(progress) = catch_up.observe(Duration::from_micros(time.micros.0), log_position_of(replica)) {
            progress.log();
        }
        machine.sequencer_mut().set_time(time.millis(), time.wall);
        let mut effects = Effects::default();
        loop {
            let fault = RecoveryFault::NotABatch { index: replica.applied().0 + 1 };
            if !replica.turn(machine, time.micros, &mut effects).map_err(|_| fault)? {
                break;
            }
        }
        // No shard has a view yet.
        drop(machine.sequencer_mut().take_applied());
        for append in effects.appends {
            log.write(&append.records(Batch::zxid_of))?;
            replica.persisted(machine, time.micros, append.number);
        }
    }
    Ok(())
}

/// Freezes the state if it is worth a snapshot.
fn freeze(raft: &RaftNode, sequencer: &mut Sequencer, data: &DataKind, now: Now) -> Option<FrozenState> {
    if raft.is_uninitialised() || raft.is_restoring() {
        return None;
    }
    let is_alone = *data == DataKind::Standalone;
    let members = if is_alone { Vec::new() } else { Extra::of(raft, sequencer.machine(), data.generation()).encode() };
    sequencer.wants_snapshot_of_replay().then(|| sequencer.freeze(now.millis(), members))
}

#[cfg(test)]
mod tests {
    use super::*;
    use corral_consensus::ServerId;
    use corral_types::Record;

    /// A log that holds nothing but this.
    struct Held {
        last: u64,
        state: Option<(u64, u8, u64)>,
        stepped_over: Option<u64>,
    }

    impl StoredLog for Held {
        type Error = ();

        fn held(&self) -> (u64, u64) {
            (1, self.last)
        }

        fn hard_state(&self) -> Option<HardState> {
            let (term, vote, commit) = self.state?;
            Some(HardState { term: Term(term), vote: (vote != 0).then_some(ServerId(vote)), commit: Index(commit) })
        }

        fn stepped_over(&self) -> Option<Term> {
            self.stepped_over.map(Term)
        }

        fn go_on_behind(&mut self, _: (u64, u64)) -> Result<(), ()> {
            Ok(())
        }

        fn reach_back(&self, position: (u64, u64), _: u64) -> (u64, u64) {
            position
        }

        fn term(&self, _: u64) -> Option<u64> {
            None
        }

        fn visit(&self, _: (u64, u64), _: &mut dyn FnMut(StoredEntry<'_>) -> ControlFlow<()>) -> Result<(), ()> {
            Ok(())
        }

        fn write(&mut self, _: &[Record<'_>]) -> Result<(), ()> {
            Ok(())
        }
    }

    #[test]
    fn what_is_known_committed_stays_so_as_far_as_the_log_goes() {
        let check = |last, state, stepped_over, snapshot, expect: (u64, Option<u8>, u64)| {
            let state = hard_state(&Held { last, state, stepped_over }, Term(snapshot));
            assert_eq!((state.term.0, state.vote.map(|vote| vote.0), state.commit.0), expect);
        };
        check(9, Some((3, 2, 7)), None, 0, (3, Some(2), 7));
        // The tail behind it was torn.
        check(5, Some((3, 0, 7)), None, 0, (3, None, 5));
        // A snapshot of a later term was taken over, and that term not yet written down.
        check(9, Some((3, 2, 7)), None, 4, (4, None, 7));
        check(0, None, None, 0, (0, None, 0));
        // The newest hard state may have been where the damage is.
        check(9, Some((3, 2, 7)), Some(5), 0, (5, None, 7));
        check(9, Some((6, 2, 7)), Some(5), 0, (6, Some(2), 7));
    }

    #[test]
    fn a_log_reaches_a_snapshot_without_a_gap() {
        for (held, reached) in
            [((1, 10), true), ((11, 12), true), ((5, 20), true), ((11, 10), true), ((12, 20), false), ((1, 9), false)]
        {
            assert_eq!(reaches(held, 10), reached, "{held:?}");
        }
    }
}
