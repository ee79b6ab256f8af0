//! From what a disk holds to a replica: the newest image, then the log behind it.
//!
//! The driver opens the files and judges what is damaged; what a server is by them, what is applied at once and what Raft is given
//! is decided here. A tail of gigabytes stays where it is: what is known to be committed is applied from there, a page at a time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use corral_consensus::{
    Append, Config as RaftConfig, ConsensusError, Effects, Entry, EntryKind, HardState, Index, Membership, RaftNode,
    Replica, Restored, Term,
};
use corral_core::evaluate::StateMachine;
use corral_core::image::{Image, initial_image};
use corral_core::member::{EnsembleConfig, Founders, Member};
use corral_core::sequencer::{FrozenState, Sequencer, SequencerConfig};
use corral_core::shared::Text;
use corral_link::Generation;
use corral_members::Extra;

use crate::event::Now;
use crate::extra;
use crate::machine::Replicated;
use crate::progress::{CatchUp, Place, place_of};
use crate::transfer::LoadedImage;

/// Whether to go on with the next entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Go {
    On,
    /// This one was not taken.
    No,
}

/// An entry as the log holds it.
#[derive(Clone, Copy, Debug)]
pub struct StoredEntry<'a> {
    pub index: Index,
    pub term: Term,
    pub kind: EntryKind,
    pub payload: &'a [u8],
}

/// A log that was just opened. Places are an index and its term.
pub trait StoredLog {
    type Error;

    /// The first and the last entry held; the first is the one to come, and the last the one before, if none is.
    fn held(&self) -> (u64, u64);

    /// The newest hard state that is held.
    fn hard_state(&self) -> Option<HardState>;

    /// Damage to entries that an image holds was stepped over, and may have hit the newest hard state as well: the term of the last
    /// entry.
    fn stepped_over(&self) -> Option<Term>;

    /// Goes on behind an image that ends at this place: where the log ends before it, or holds another entry in its place, all that
    /// it holds is void. Durable when it returns.
    ///
    /// # Errors
    /// Those of the disk.
    fn go_on_behind(&mut self, place: (u64, u64)) -> Result<(), Self::Error>;

    /// The last place to leave out so that what is read behind it includes so many bytes of entries up to `place`.
    fn reach_back(&self, place: (u64, u64), bytes: u64) -> (u64, u64);

    /// Shows each entry from one index to another, both included, until it is enough.
    ///
    /// # Errors
    /// Those of the disk, and damage.
    fn show(&self, range: (u64, u64), show: &mut dyn FnMut(StoredEntry<'_>) -> Go) -> Result<(), Self::Error>;

    /// Writes an append. Durable when it returns.
    ///
    /// # Errors
    /// Those of the disk.
    fn write(&mut self, append: &Append) -> Result<(), Self::Error>;
}

/// What a server is by its disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    Alone,
    /// It holds nothing: it belongs to nothing before it is told, or all founders are newborn.
    Newborn,
    Member(Membership, Generation),
}

impl Kept {
    /// Judges the newest image and the entries that the log holds, first and last.
    ///
    /// # Errors
    /// When they are of the other kind of server, or incomplete.
    pub fn judge(in_ensemble: bool, image: Option<&Image>, (first, last): (u64, u64)) -> Result<Kept, Unkept> {
        let kept = image.map_or(&[][..], Image::extra);
        match (in_ensemble, image.is_some(), kept.is_empty()) {
            (false, _, true) => Ok(Kept::Alone),
            (false, _, false) => Err(Unkept::OfEnsemble),
            (true, false, _) if last == 0 => Ok(Kept::Newborn),
            (true, false, _) if first > 1 => Err(Unkept::NoImage { first }),
            (true, _, true) => Err(Unkept::RanAlone),
            (true, _, false) => extra::decode(kept)
                .map(|(ensemble, generation)| Kept::Member(ensemble.members, generation))
                .map_err(Unkept::Nonsense),
        }
    }

    /// Of which generation the data are.
    pub fn generation(&self) -> Generation {
        match self {
            Kept::Alone => Generation::FIRST,
            Kept::Newborn => Generation::NONE,
            Kept::Member(_, generation) => *generation,
        }
    }
}

/// Why data are not those of this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unkept {
    /// They are of a server of an ensemble, and this one runs alone.
    OfEnsemble,
    /// They are of a server that ran alone, and this one is of an ensemble.
    RanAlone,
    /// The log begins with that entry, and there is no image before it.
    NoImage { first: u64 },
    /// What the image says of the membership cannot be true.
    Nonsense(&'static str),
}

/// What is recovered from, and for whom.
pub struct Plan {
    pub kept: Kept,
    /// The state to begin with, and its place in the log: see [`state_of`].
    pub state: (StateMachine, u64, u64),
    pub sequencer: SequencerConfig,
    /// The list of servers as clients are shown it.
    pub servers: Option<Text>,
    /// Of a server of an ensemble.
    pub ensemble: Option<EnsembleConfig>,
    /// Who would form a new ensemble with this server.
    pub founders: Founders,
    pub raft: RaftConfig,
    /// No image is to be written of what was applied, because it is not to be trusted.
    pub is_distrusted: bool,
}

/// What a recovery brings back.
pub struct Recovered<M: Replicated> {
    pub replica: Replica<M>,
    /// What was applied, if it is worth an image: every view begins above it.
    pub frozen: Option<FrozenState>,
    /// What this server remembers of elections.
    pub hard_state: HardState,
}

/// Why there is no replica.
#[derive(Debug)]
pub enum RecoveryFault<E> {
    Log(E),
    /// The log holds the entries from `first` to `last`, and the image ends at `image`: entries between are missing.
    Gap {
        first: u64,
        last: u64,
        image: u64,
    },
    /// This entry is whole and not understood.
    NotABatch {
        index: u64,
    },
    /// Log and image do not fit together.
    Unfit(ConsensusError),
}

impl<E> From<E> for RecoveryFault<E> {
    fn from(error: E) -> Self {
        RecoveryFault::Log(error)
    }
}

/// The state of an image and its place in the log, or that of an empty server; `seed` is for its hashes of paths.
pub fn state_of(loaded: Option<&LoadedImage>, seed: u64) -> (StateMachine, u64, u64) {
    match loaded {
        Some(loaded) => (loaded.state(), loaded.index, loaded.term),
        None => (StateMachine::of_image(Arc::new(initial_image(seed))), 0, 0),
    }
}

/// Whether a log that holds these entries, first and last, goes on where an image ends.
pub fn reaches((first, last): (u64, u64), image: u64) -> bool {
    first <= image + 1 && last >= image
}

/// Makes the replica. A server that is alone applies its whole log and leads: everything that was acknowledged is applied then,
/// and this start's own first entry is durable. One of an ensemble does not know what was acknowledged before it hears of a
/// leader. `machine` makes what is replicated of the member; `now` reads the time.
///
/// # Errors
/// See [`RecoveryFault`].
pub fn recover<M: Replicated, L: StoredLog>(
    plan: Plan,
    log: &mut L,
    machine: impl FnOnce(Member) -> M,
    now: &dyn Fn() -> Now,
) -> Result<Recovered<M>, RecoveryFault<L::Error>> {
    let Plan { kept, state: (state, index, term), sequencer, servers, ensemble, founders, raft, is_distrusted } = plan;
    let is_alone = kept == Kept::Alone;
    if !is_alone {
        log.go_on_behind((index, term))?;
    }
    let (first, last) = log.held();
    if !reaches((first, last), index) {
        return Err(RecoveryFault::Gap { first, last, image: index });
    }
    let mut sequencer = Sequencer::new(sequencer, state, index, term);
    if let Some(servers) = servers {
        sequencer.configure(servers);
    }
    let hard_state = hard_state(log, Term(term));
    // A server that is alone has committed all that is durable.
    let committed = if is_alone { last } else { hard_state.commit.0 };
    let member = match ensemble {
        None => Member::alone(sequencer),
        Some(config) => Member::of_ensemble(sequencer, config),
    };
    let mut machine = machine(member);
    let applied = replay(&mut machine, log, (index, term), committed, now)?;
    let cut = if is_alone { applied } else { log.reach_back(applied, raft.log_cache_bytes) };
    let restored = Restored {
        hard_state,
        cut_index: Index(cut.0),
        cut_term: Term(cut.1),
        entries: entries_after(log, cut.0)?,
        image: Index(index),
        applied: Index(applied.0),
    };
    let node = match &kept {
        Kept::Alone => RaftNode::new(raft, restored),
        Kept::Newborn => RaftNode::newborn(raft),
        Kept::Member(membership, _) => RaftNode::with_membership(raft, membership.clone(), restored),
    };
    let node = node.map_err(RecoveryFault::Unfit)?;
    if node.is_newborn() || node.is_pristine() {
        machine.born(founders, node.is_pristine());
    }
    let mut replica = Replica::new(node, machine, Index(applied.0));
    if is_alone {
        lead(&mut replica, log, now)?;
    }
    let frozen = if is_distrusted { None } else { freeze(&mut replica, &kept, now()) };
    Ok(Recovered { replica, frozen, hard_state })
}

/// A server that took over another's image may not have written down that image's term yet.
fn hard_state<L: StoredLog>(log: &L, image: Term) -> HardState {
    let state = log.hard_state().unwrap_or_default();
    // After a cut tail it may lead. A membership change that it covers is in force, whoever else is heard from.
    let state = HardState { commit: Index(state.commit.0.min(log.held().1)), ..state };
    let least = log.stepped_over().map_or(image, |last| image.max(last));
    if state.term < least { HardState { term: least, vote: None, ..state } } else { state }
}

/// Brings the machine from the image's place as far as the log is known to be committed; gives the place where it is then. Ends
/// before a change of the membership, which Raft has to see.
fn replay<M: Replicated, L: StoredLog>(
    machine: &mut M,
    log: &L,
    image: (u64, u64),
    committed: u64,
    now: &dyn Fn() -> Now,
) -> Result<(u64, u64), RecoveryFault<L::Error>> {
    let (mut place, mut bytes, mut catch_up, mut fault) = (image, 0, CatchUp::default(), None);
    machine.shows = false;
    let begun = now();
    machine.set_time(begun.millis(), begun.wall);
    let shown = log.show((image.0 + 1, committed), &mut |entry| {
        if entry.kind == EntryKind::ConfChange {
            return Go::No;
        }
        let at = Place { applied: place.0, committed, bytes };
        if let Some(progress) = catch_up.look(Duration::from_micros(now().micros.0), at) {
            progress.log();
        }
        if machine.commit(entry.index, entry.term, entry.payload, false).is_err() {
            fault = Some(RecoveryFault::NotABatch { index: entry.index.0 });
            return Go::No;
        }
        place = (entry.index.0, entry.term.0);
        bytes += entry.payload.len() as u64;
        Go::On
    });
    machine.shows = true;
    shown?;
    fault.map_or(Ok(place), Err)
}

/// Every log entry behind an index, for Raft.
fn entries_after<L: StoredLog>(log: &L, index: u64) -> Result<Vec<Entry>, L::Error> {
    let mut entries = Vec::new();
    log.show((index + 1, log.held().1), &mut |entry| {
        let StoredEntry { index, term, kind, payload } = entry;
        entries.push(Entry { term, index, kind, payload: Bytes::copy_from_slice(payload) });
        Go::On
    })?;
    Ok(entries)
}

/// A group of one elects itself; its log is written right here until the engine takes over.
fn lead<M: Replicated, L: StoredLog>(
    replica: &mut Replica<M>,
    log: &mut L,
    now: &dyn Fn() -> Now,
) -> Result<(), RecoveryFault<L::Error>> {
    replica.machine_mut().shows = false;
    replica.campaign();
    let mut catch_up = CatchUp::default();
    while !replica.is_leading() {
        let time = now();
        if let Some(progress) = catch_up.look(Duration::from_micros(time.micros.0), place_of(replica)) {
            progress.log();
        }
        replica.machine_mut().set_time(time.millis(), time.wall);
        let mut effects = Effects::default();
        loop {
            let fault = RecoveryFault::NotABatch { index: replica.applied().0 + 1 };
            if !replica.turn(time.micros, &mut effects).map_err(|_| fault)? {
                break;
            }
        }
        for append in effects.appends {
            log.write(&append)?;
            replica.persisted(time.micros, append.number);
        }
    }
    replica.machine_mut().shows = true;
    Ok(())
}

/// What was applied is frozen if it is worth an image.
fn freeze<M: Replicated>(replica: &mut Replica<M>, kept: &Kept, now: Now) -> Option<FrozenState> {
    let raft = replica.raft();
    if raft.is_newborn() || raft.is_restoring() {
        return None;
    }
    let is_alone = *kept == Kept::Alone;
    let members = if is_alone { Vec::new() } else { extra::encode(&Extra::of(replica), kept.generation()) };
    let sequencer = &mut replica.machine_mut().sequencer;
    sequencer.wants_snapshot_of_replay().then(|| sequencer.freeze(now.millis(), members))
}

#[cfg(test)]
mod tests {
    use super::*;
    use corral_consensus::NodeId;

    /// A log that holds nothing but this.
    struct Held {
        last: u64,
        state: Option<(u64, u64, u64)>,
        stepped_over: Option<u64>,
    }

    impl StoredLog for Held {
        type Error = ();

        fn held(&self) -> (u64, u64) {
            (1, self.last)
        }

        fn hard_state(&self) -> Option<HardState> {
            let (term, vote, commit) = self.state?;
            Some(HardState { term: Term(term), vote: (vote != 0).then_some(NodeId(vote)), commit: Index(commit) })
        }

        fn stepped_over(&self) -> Option<Term> {
            self.stepped_over.map(Term)
        }

        fn go_on_behind(&mut self, _: (u64, u64)) -> Result<(), ()> {
            Ok(())
        }

        fn reach_back(&self, place: (u64, u64), _: u64) -> (u64, u64) {
            place
        }

        fn show(&self, _: (u64, u64), _: &mut dyn FnMut(StoredEntry<'_>) -> Go) -> Result<(), ()> {
            Ok(())
        }

        fn write(&mut self, _: &Append) -> Result<(), ()> {
            Ok(())
        }
    }

    #[test]
    fn what_is_known_committed_stays_so_as_far_as_the_log_goes() {
        let check = |last, state, stepped_over, image, expect: (u64, Option<u64>, u64)| {
            let state = hard_state(&Held { last, state, stepped_over }, Term(image));
            assert_eq!((state.term.0, state.vote.map(|vote| vote.0), state.commit.0), expect);
        };
        check(9, Some((3, 2, 7)), None, 0, (3, Some(2), 7));
        // The tail behind it was torn.
        check(5, Some((3, 0, 7)), None, 0, (3, None, 5));
        // An image of a later term was taken over, and that term not yet written down.
        check(9, Some((3, 2, 7)), None, 4, (4, None, 7));
        check(0, None, None, 0, (0, None, 0));
        // The newest hard state may have been where the damage is.
        check(9, Some((3, 2, 7)), Some(5), 0, (5, None, 7));
        check(9, Some((6, 2, 7)), Some(5), 0, (6, Some(2), 7));
    }

    #[test]
    fn a_log_reaches_an_image_without_a_gap() {
        for (held, reached) in
            [((1, 10), true), ((11, 12), true), ((5, 20), true), ((11, 10), true), ((12, 20), false), ((1, 9), false)]
        {
            assert_eq!(reaches(held, 10), reached, "{held:?}");
        }
    }
}
