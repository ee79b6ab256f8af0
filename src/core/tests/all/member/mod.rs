//! A server of an ensemble as the engine composes it: a sequencer, and the forwarding beside it.

use corral_core::apply::StateMachine;
use corral_core::apply::outcome::{AppliedBatch, AppliedEntry};
use corral_core::command::Proposals;
use corral_core::forwarding::peer::{PeerFault, PeerMessage};
use corral_core::forwarding::{EnsembleConfig, Forwarding, Leadership, PeerSend, Sender};
use corral_core::ids::{Millis, ServerId, SessionId, ShardId, WallMillis};
use corral_core::sequencer::{Sequencer, SequencerConfig, take_wrong_attaches};
use corral_core::session::SessionTable;
use corral_core::shard::Flow;
use corral_core::tree::view::View;
use corral_types::{Index, Machine, Term};

pub(crate) struct Member {
    pub(crate) sequencer: Sequencer,
    pub(crate) forwarding: Forwarding,
    now: Millis,
    batches: Vec<AppliedBatch>,
}

/// With the empty state.
pub(crate) fn sequencer(config: SequencerConfig) -> Sequencer {
    Sequencer::new(config, StateMachine::new(View::empty(7), SessionTable::default()), 0, 0)
}

impl Member {
    pub(crate) fn new(config: SequencerConfig, ensemble: EnsembleConfig) -> Member {
        let mut sequencer = sequencer(config);
        let forwarding = Forwarding::new(ensemble, &mut sequencer);
        Member { sequencer, forwarding, now: Millis(0), batches: Vec::new() }
    }

    pub(crate) fn set_time(&mut self, now: Millis) {
        self.now = now;
        self.sequencer.set_time(now, WallMillis(1));
    }

    pub(crate) fn proposed(&mut self, now: Millis, mut proposals: Proposals) {
        self.set_time(now);
        assert_eq!(take_wrong_attaches(self.sequencer.machine(), &mut proposals), []);
        self.forwarding.proposed(now, proposals, &mut self.sequencer);
    }

    pub(crate) fn take_activity(&mut self, shard: ShardId, upto: Millis, sessions: &[(SessionId, Millis)]) {
        self.forwarding.take_activity(shard, upto, sessions);
        if self.sequencer.is_leading() {
            self.sequencer.take_activity(shard, upto, sessions);
        }
    }

    pub(crate) fn tick(&mut self, now: Millis) {
        self.set_time(now);
        self.sequencer.tick(now, WallMillis(1));
        self.forwarding.tick(now, &mut self.sequencer);
    }

    pub(crate) fn commit(&mut self, index: u64, term: u64, payload: &[u8], own: bool) {
        self.sequencer.commit(Index(index), Term(term), payload, own).expect("a batch");
        for entry in self.sequencer.take_applied() {
            self.applied(entry);
        }
    }

    pub(crate) fn applied(&mut self, entry: AppliedEntry) {
        self.forwarding.applied(self.now, WallMillis(1), &entry);
        self.batches.extend(Some(entry.batch).filter(|batch| !batch.txns.is_empty()));
    }

    pub(crate) fn take_batches(&mut self) -> Vec<AppliedBatch> {
        std::mem::take(&mut self.batches)
    }

    pub(crate) fn set_leadership(&mut self, leadership: Leadership, term: u64) {
        self.forwarding.set_leadership(leadership, term, &mut self.sequencer);
    }

    pub(crate) fn settle(&mut self) {
        self.forwarding.settle(self.now, &mut self.sequencer);
    }

    pub(crate) fn received(&mut self, now: Millis, from: Sender, message: PeerMessage) -> Result<(), PeerFault> {
        self.set_time(now);
        self.forwarding.received(now, from, message, &mut self.sequencer)
    }

    pub(crate) fn peer_connected(&mut self, peer: ServerId, connection: u64) {
        self.forwarding.peer_connected(self.now, peer, connection);
    }

    pub(crate) fn pause(&mut self) -> bool {
        self.forwarding.ask_for_pause(self.now)
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.forwarding.is_silent(self.now) && self.sequencer.commands_queued() == 0
    }

    /// Another server's snapshot replaces the state.
    pub(crate) fn install(&mut self, machine: StateMachine, index: u64, term: u64) {
        self.sequencer.install(machine, index, term);
        self.forwarding.installed(&self.sequencer, index, term);
    }

    pub(crate) fn take_sends(&mut self) -> Vec<PeerSend> {
        self.forwarding.take_sends()
    }

    pub(crate) fn take_flow(&mut self) -> Vec<Flow> {
        self.forwarding.take_flow()
    }
}
