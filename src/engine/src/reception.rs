//! The reception of snapshots of other servers: from the announcement until the snapshot waits to be installed.

use corral_consensus::{Index, LogDisk, PeerMessage as RaftMessage, Replica, ServerId};
use corral_core::ids::{Millis, Zxid};
use corral_core::sequencer::Sequencer;
use corral_peer::Kind;
use corral_peer::snapshot::Part;

use crate::arrivals::{Arrivals, discard};
use crate::effect::{Effect, Outbox};
use crate::event::{Incoming, Receive};
use crate::outgoing::refuse;
use crate::transfer::{FailedTransfer, Outcome, Transfer, is_as_announced, is_of_ensemble};

/// The snapshot in transfer, the snapshots that wait to be installed, and a failed one.
pub(crate) struct Reception {
    /// Bytes of a piece of a snapshot.
    piece_bytes: usize,
    transfer: Option<Box<Transfer>>,
    pub(crate) arrivals: Arrivals,
    failed: Option<FailedTransfer>,
}

impl Reception {
    pub(crate) fn new(piece_bytes: usize) -> Reception {
        Reception { piece_bytes, transfer: None, arrivals: Arrivals::default(), failed: None }
    }

    /// Whether pieces are awaited.
    pub(crate) fn is_under_way(&self) -> bool {
        self.transfer.is_some()
    }

    /// Whether a snapshot is being received, or waits to be installed.
    pub(crate) fn has_any(&self) -> bool {
        self.transfer.is_some() || !self.arrivals.is_empty()
    }

    /// The leader announces the snapshot at `index`. Raft is passed the announcement when the snapshot is received.
    pub(crate) fn announced(
        &mut self,
        now: Millis,
        index: Index,
        message: RaftMessage,
        replica: &mut Replica,
        sequencer: &mut Sequencer,
        out: &mut Outbox,
    ) {
        let from = message.from;
        if let Some(least) = replica.awaits_state()
            && index <= replica.raft().last_index()
            && self.has_state_from(least, from)
        {
            // The state is on its way. Each request makes the leader announce the newest one.
            return;
        }
        // A snapshot is refused as well while a new ensemble is bootstrapped here.
        let forms = replica.raft().is_uninitialised() && sequencer.index() > 0;
        if forms || replica.raft().check_uninitialised(&message).is_err() {
            return refuse(from, index.0, out);
        }
        if let Some(arrived) = self.arrivals.get(index) {
            // It was received in an earlier term.
            return match is_as_announced(&arrived.loaded, &message) {
                Ok(()) => drop(replica.step(sequencer, message)),
                Err(reason) => tracing::error!(from = from.0, "a received snapshot is not used: {reason}"),
            };
        }
        match &mut self.transfer {
            // A former leader's, which comes late. The present leader waits for the end of its own.
            Some(transfer) if transfer.is_later_than(message.term) => return,
            Some(transfer) if transfer.is_of(from, index.0) => transfer.announce(message),
            _ => self.transfer = Some(Box::new(Transfer::begin(now, message, index.0, self.piece_bytes))),
        }
        self.request_pieces(out);
    }

    /// A piece of the snapshot, or its end.
    pub(crate) fn piece(&mut self, now: Millis, peer: ServerId, part: Part, out: &mut Outbox) {
        let is_gone = matches!(part, Part::Gone { .. });
        if let Some(transfer) = self.transfer.as_mut().filter(|transfer| transfer.from() == peer)
            && let Outcome::Failed = transfer.piece(now, part, &mut out.effects)
        {
            tracing::info!("the sending server no longer has the snapshot: waiting for a newer one");
            let index = transfer.index();
            self.transfer = None;
            if !is_gone {
                // The sender does not know that yet.
                refuse(peer, index, out);
            }
        }
    }

    /// The driver reports its progress. `installing` is the snapshot that is being installed.
    pub(crate) fn progress(
        &mut self,
        now: Millis,
        incoming: Incoming,
        installing: Option<Index>,
        replica: &mut Replica,
        sequencer: &mut Sequencer,
        out: &mut Outbox,
    ) {
        let Some(transfer) = self.transfer.take() else { return };
        let from = transfer.from();
        let (rest, outcome) = transfer.progress(&incoming);
        self.transfer = rest;
        match (outcome, incoming) {
            (Outcome::Received(announced), Incoming::Whole { index, snapshot }) => {
                let loaded = &snapshot.loaded;
                let fits = is_as_announced(loaded, &announced);
                if let Err(reason) = fits.and_then(|()| is_of_ensemble(&snapshot.state, sequencer.machine())) {
                    self.failed = Some(FailedTransfer::at(now, index, from, false, &reason.to_string()));
                    // A later start would begin with it.
                    out.push(Effect::Receive(Receive::Forget { index: loaded.index, zxid: loaded.zxid }));
                    return discard(snapshot, &mut out.effects);
                }
                tracing::info!(index, zxid = %Zxid(loaded.zxid), bytes = loaded.bytes.size(), "snapshot received");
                self.failed = None;
                self.arrivals.add(snapshot, [installing, replica.raft().restores()], &mut out.effects);
                if self.arrivals.get(Index(index)).is_none() {
                    return refuse(from, index, out);
                }
                if let Err(error) = replica.step(sequencer, announced) {
                    tracing::debug!("the snapshot is not needed any more: {error}");
                }
            }
            (Outcome::Failed, Incoming::Failed { index, reason }) => {
                self.failed = Some(FailedTransfer::at(now, index, from, true, &reason));
            }
            _ => self.request_pieces(out),
        }
    }

    /// Whether a snapshot that ends at `least` or later is here or on its way, or another one is to be requested later. A former
    /// leader may never send the rest: only the transfer from `leader` counts.
    fn has_state_from(&self, least: Index, leader: ServerId) -> bool {
        let transfer = self.transfer.as_ref();
        let is_on_its_way = transfer.is_some_and(|transfer| transfer.index() >= least.0 && transfer.needs_only(leader));
        let waits = self.failed.as_ref().is_some_and(|failed| failed.again.is_some());
        is_on_its_way || waits || !self.arrivals.is_empty()
    }

    /// One tick: cancels what the log has made superfluous, and requests lost pieces again.
    pub(crate) fn tick(&mut self, now: Millis, replica: &Replica, out: &mut Outbox) {
        let superfluous = replica.awaits_state().map_or(replica.applied(), |least| Index(least.0 - 1));
        if let Some(transfer) = self.transfer.take_if(|transfer| transfer.index() <= superfluous.0) {
            tracing::info!(index = transfer.index(), "snapshot transfer cancelled: the log covers it by now");
        }
        self.arrivals.drop_upto(superfluous, &mut out.effects);
        if self.transfer.as_ref().is_some_and(|transfer| transfer.is_silent(now)) {
            self.request_again(now, out);
        }
        if let Some(failed) = &mut self.failed
            && failed.again.take_if(|at| now >= *at).is_some()
        {
            refuse(failed.from, failed.index, out);
        }
    }

    /// Whether this server has no space for entries in its log, or for a snapshot.
    pub(crate) fn is_stalled(&mut self, disk: LogDisk, replica: &Replica) -> bool {
        let applied = replica.applied();
        // With a corrupt state a snapshot of applied entries is needed, too.
        self.failed.take_if(|failed| applied.0 >= failed.index && replica.awaits_state().is_none());
        disk == LogDisk::Full || self.failed.as_ref().is_some_and(|failed| failed.stalls)
    }

    /// Requests all missing pieces again, on a new connection or because some were lost.
    pub(crate) fn request_again(&mut self, now: Millis, out: &mut Outbox) {
        if let Some(transfer) = &mut self.transfer {
            transfer.request_again();
            transfer.restart_timer(now);
        }
        self.request_pieces(out);
    }

    fn request_pieces(&mut self, out: &mut Outbox) {
        if let Some(transfer) = &mut self.transfer {
            for ask in transfer.requests() {
                out.send(transfer.from(), Kind::SnapshotAsk, ask.encode());
            }
        }
    }
}
