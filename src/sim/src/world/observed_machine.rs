//! The machine that Raft replicates. It keeps the facts that the checkers want to see, and has the planted bugs.

use corral_consensus::{Index, Machine, ServerId, Term};
use corral_core::apply::outcome::SessionChange;
use corral_core::command::{Batch, Command, CommandKind};
use corral_core::features;
use corral_core::ids::SessionId;
use corral_core::sequencer::{MembersSeen, NotABatch, Proposal, Sequencer, Ticked};
use corral_engine::Replicated;

use crate::check::entry::CommittedEntry;
use crate::options::Bug;

/// The distance between two entries that [`Bug::Diverge`] changes.
const DIVERGE_EVERY: u64 = 16;

pub(crate) struct ObservedMachine {
    sequencer: Sequencer,
    bug: Option<Bug>,
    /// With [`Bug::Diverge`]: some entries are applied with another time.
    diverges: bool,
    pub(crate) committed: Vec<CommittedEntry>,
    pub(crate) ticked: Seen,
}

/// The decisions of the engine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) expired: Vec<SessionId>,
    /// Path, and the zxid of its last change.
    pub(crate) reaped: Vec<(String, u64)>,
    /// Steps of membership changes that it proposed.
    pub(crate) steps: Vec<String>,
}

impl Replicated for ObservedMachine {
    fn sequencer(&self) -> &Sequencer {
        &self.sequencer
    }

    fn sequencer_mut(&mut self) -> &mut Sequencer {
        &mut self.sequencer
    }

    fn observe_tick(&mut self, ticked: &Ticked) {
        self.ticked.expired.extend(&ticked.expired);
        self.ticked.reaped.extend(ticked.reaped.iter().map(|chosen| (chosen.path.to_string(), chosen.mzxid.0)));
    }

    /// With [`Bug::BeginAtOnce`] every member counts as present.
    fn members_seen(&self, seen: MembersSeen) -> MembersSeen {
        if self.bug != Some(Bug::BeginAtOnce) {
            return seen;
        }
        let known = self.sequencer.servers().known();
        let all: std::collections::BTreeSet<ServerId> =
            known.map(|list| list.0.keys().copied().collect()).unwrap_or_default();
        MembersSeen { reached: all.clone(), in_step: all, ..seen }
    }

    /// With [`Bug::AnswerAtOnce`] it ends with its beginning.
    fn membership_step(&mut self, mut step: Proposal) -> Proposal {
        self.ticked.steps.push(format!("{:?}", step.changes.iter().map(|(id, seat)| (id.0, seat)).collect::<Vec<_>>()));
        if self.bug == Some(Bug::AnswerAtOnce)
            && !step.changes.is_empty()
            && let Ok(mut batch) = Batch::decode(&step.context)
            && matches!(batch.commands.last(), Some(Command { kind: CommandKind::ReconfigBegins(_), .. }))
        {
            let (session, kind) = (SessionId(0), CommandKind::ReconfigEnds);
            batch.commands.push(Command { origin: None, session, identities: 0, kind });
            step.context = batch.encode();
        }
        step
    }
}

impl ObservedMachine {
    pub(crate) fn new(sequencer: Sequencer, bug: Option<Bug>, server: ServerId) -> ObservedMachine {
        let diverges = server == ServerId(2) && bug == Some(Bug::Diverge);
        ObservedMachine { sequencer, bug, diverges, committed: Vec::new(), ticked: Seen::default() }
    }

    /// The entry as this server applies it. A leader compares its own entries with its proposals, so they remain
    /// unchanged.
    fn applied_as(&self, index: Index, payload: &[u8], own: bool) -> Vec<u8> {
        match Batch::decode(payload) {
            // The id of the ensemble stays: a server that has another one takes no state from others.
            Ok(mut batch)
                if self.diverges
                    && !own
                    && index.0.is_multiple_of(DIVERGE_EVERY)
                    && self.sequencer.machine().ensemble_id().is_some() =>
            {
                batch.time.0 += 1;
                batch.encode()
            }
            // It is judged once more, by the limit of this server.
            Ok(mut batch) if self.bug == Some(Bug::JudgeAtReplay) && !own && !has_refused(&batch) => {
                batch.features &= !features::ADMITTED;
                batch.encode()
            }
            _ => payload.to_vec(),
        }
    }
}

/// Whether a leader refused a command of the batch. Without `features::ADMITTED` such a command cannot be decoded.
fn has_refused(batch: &Batch) -> bool {
    batch.commands.iter().any(|command| matches!(command.kind, CommandKind::Refused(_)))
}

impl Machine for ObservedMachine {
    type Fault = NotABatch;

    fn commands_queued(&self) -> usize {
        self.sequencer.commands_queued()
    }

    fn next_batch(&mut self) -> Option<Vec<u8>> {
        self.sequencer.next_batch()
    }

    fn servers_waiting(&self) -> Vec<ServerId> {
        self.sequencer.servers_waiting()
    }

    fn prepare(&mut self, index: Index, term: Term, payload: &[u8]) -> Result<(), NotABatch> {
        self.sequencer.prepare(index, term, payload)
    }

    fn membership_ahead(&mut self, index: Index, context: &[u8]) {
        self.sequencer.membership_ahead(index, context);
    }

    fn commit(&mut self, index: Index, term: Term, payload: &[u8], own: bool) -> Result<(), NotABatch> {
        let before = self.sequencer.applied().len();
        let applied = self.applied_as(index, payload, own);
        self.sequencer.commit(index, term, &applied, own)?;
        let entries = &self.sequencer.applied()[before..];
        let begun = entries.iter().flat_map(|entry| &entry.batch.txns).filter_map(|txn| match txn.session {
            Some(SessionChange::Created(id)) => Some(id.0),
            _ => None,
        });
        let (begun, digest) = (begun.collect(), self.sequencer.view().tree_digest());
        let (index, term) = (index.0, term.0);
        self.committed.push(CommittedEntry { index, term, payload: payload.to_vec(), digest, begun });
        Ok(())
    }

    fn work(&self) -> u64 {
        self.sequencer.work()
    }

    fn lead(&mut self, term: Term) {
        self.sequencer.lead(term);
    }

    fn follow(&mut self) {
        self.sequencer.follow();
    }
}
