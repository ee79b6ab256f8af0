//! Transfers of snapshots between servers: the snapshot that this server receives, and the snapshots that it offers.
//!
//! The receiver requests each piece, and so sets the pace: few pieces are in flight at once. It requests until it has
//! all of them, or the sender reports that the snapshot is gone, or a newer one is announced.

use std::collections::{BTreeMap, VecDeque};

use corral_consensus::{PeerBody, PeerMessage as RaftMessage, ServerId, Term};
use corral_core::apply::StateMachine;
use corral_core::ids::Millis;
use corral_peer::snapshot::{Ask, PIECE_BYTES_MAX, Part};

use crate::effect::Effect;
use crate::event::{Incoming, Receive};
use crate::extra::{Extra, ExtraError};
use crate::snapshot::{LoadedSnapshot, Offered};

/// Pieces requested and not written.
const PIECES_MAX: u64 = 4;
/// Snapshots that are offered: the newest, and older ones of which a piece was requested lately.
const OFFERED_MAX: usize = 4;
/// For so long after a request a snapshot is offered although there is a newer one, in milliseconds.
const OFFERED_AFTER_MS: u64 = 10_000;
/// A piece that has not come for so long is requested again, in milliseconds.
const AGAIN_AFTER_MS: u64 = 2000;
/// Time until another snapshot is requested after a failed transfer, in milliseconds.
pub(crate) const SNAPSHOT_AGAIN_AFTER_MS: u64 = 5000;

/// The snapshots that this server offers.
pub(crate) struct Offer {
    snapshots: VecDeque<(Offered, Millis)>,
    piece_bytes: usize,
    /// Pieces that each server was sent in this turn.
    given: BTreeMap<ServerId, u64>,
}

impl Offer {
    /// `piece_bytes`: bytes of a piece, at most [`PIECE_BYTES_MAX`].
    pub(crate) fn new(newest: Option<Offered>, piece_bytes: usize) -> Offer {
        let piece_bytes = piece_bytes.min(PIECE_BYTES_MAX);
        let snapshots = newest.into_iter().map(|newest| (newest, Millis(0))).collect();
        Offer { snapshots, piece_bytes, given: BTreeMap::new() }
    }

    /// A turn begins: each server may request pieces again.
    pub(crate) fn begin_turn(&mut self) {
        self.given.clear();
    }

    /// Whether a server may be sent another piece in this turn. It requests few at a time, perhaps some of them twice, and
    /// requests a missing one again.
    pub(crate) fn gives(&mut self, to: ServerId) -> bool {
        let given = self.given.entry(to).or_default();
        *given += 1;
        *given <= 2 * PIECES_MAX
    }

    /// Offers a snapshot from now on. Each one is held in memory as a mapping, and its file on disk with it.
    pub(crate) fn add(&mut self, now: Millis, snapshot: Offered) {
        self.snapshots.retain(|(_, requested)| now.since(*requested) < OFFERED_AFTER_MS);
        self.snapshots.push_front((snapshot, now));
        self.snapshots.truncate(OFFERED_MAX);
    }

    /// Log index of the newest one, 0 if there is none.
    pub(crate) fn newest(&self) -> u64 {
        self.snapshots.front().map_or(0, |(snapshot, _)| snapshot.index)
    }

    /// The requested piece.
    pub(crate) fn part(&mut self, now: Millis, index: u64, offset: u64) -> Part {
        let mut offered = self.snapshots.iter_mut();
        let found = offered.find(|(snapshot, _)| snapshot.index == index).and_then(|(snapshot, requested)| {
            *requested = now;
            let (zxid, total) = (snapshot.zxid, snapshot.bytes.size());
            let rest = total.checked_sub(offset).filter(|rest| *rest > 0)?;
            let bytes = usize::try_from(rest).unwrap_or(usize::MAX).min(self.piece_bytes);
            Some(Part::Piece { index, zxid, total, offset, bytes: snapshot.bytes.copy(offset, bytes) })
        });
        found.unwrap_or(Part::Gone { index })
    }
}

/// The snapshot that this server receives.
pub(crate) struct Transfer {
    /// The message that announced it, for Raft when the snapshot is received.
    announced: RaftMessage,
    from: ServerId,
    index: u64,
    /// Bytes of the whole snapshot, known with the first piece.
    total: Option<u64>,
    /// Bytes received, written and requested so far.
    received: u64,
    written: u64,
    requested: u64,
    /// When the last piece came.
    last_piece: Millis,
    /// Bytes of a piece.
    piece_bytes: u64,
}

/// The state of a transfer after an input.
#[must_use]
pub(crate) enum Outcome {
    /// It goes on.
    InProgress,
    /// The snapshot is received and durable. The message that announced it goes to Raft.
    Received(RaftMessage),
    /// It cannot go on.
    Failed,
}

impl Transfer {
    /// Begins with the message that announces the snapshot.
    pub(crate) fn begin(now: Millis, announced: RaftMessage, index: u64, piece_bytes: usize) -> Transfer {
        let (from, piece_bytes) = (announced.from, piece_bytes as u64);
        tracing::info!(from = from.0, index, "this server lags too far behind the leader: receiving a snapshot");
        Transfer {
            announced,
            from,
            index,
            total: None,
            received: 0,
            written: 0,
            requested: 0,
            last_piece: now,
            piece_bytes,
        }
    }

    pub(crate) fn from(&self) -> ServerId {
        self.from
    }

    pub(crate) fn index(&self) -> u64 {
        self.index
    }

    /// Whether a later leader announced it than that of `term`.
    pub(crate) fn is_later_than(&self, term: Term) -> bool {
        self.announced.term > term
    }

    /// Whether this transfer serves the snapshot of that index that `from` announces. Another server's snapshot of the
    /// same index holds the same state in other bytes, so it does only if all bytes are here.
    pub(crate) fn is_of(&self, from: ServerId, index: u64) -> bool {
        self.index == index && self.needs_only(from)
    }

    /// Whether the rest of the bytes comes from this server, if any are missing.
    pub(crate) fn needs_only(&self, from: ServerId) -> bool {
        self.from == from || self.total.is_some_and(|total| self.received >= total)
    }

    /// The same snapshot was announced again, perhaps in a newer term.
    pub(crate) fn announce(&mut self, announced: RaftMessage) {
        self.from = announced.from;
        self.announced = announced;
    }

    /// The requests that may be sent now.
    pub(crate) fn requests(&mut self) -> Vec<Ask> {
        let piece = self.piece_bytes;
        let end = match self.total {
            // The first piece states how much there is.
            None => 1,
            Some(total) => total.min(self.written.saturating_add(PIECES_MAX * piece)),
        };
        let mut asks = Vec::new();
        while self.requested < end {
            asks.push(Ask { index: self.index, offset: Some(self.requested) });
            self.requested = self.requested.saturating_add(piece);
        }
        asks
    }

    /// Requested pieces may be lost: they are requested again.
    pub(crate) fn request_again(&mut self) {
        self.requested = self.received;
    }

    /// Whether no piece has come for too long.
    pub(crate) fn is_silent(&self, now: Millis) -> bool {
        let waits = self.total.is_none_or(|total| self.received < total);
        waits && now.since(self.last_piece) >= AGAIN_AFTER_MS
    }

    /// Pieces were requested again: the time without a piece begins anew.
    pub(crate) fn restart_timer(&mut self, now: Millis) {
        self.last_piece = now;
    }

    /// A piece came.
    pub(crate) fn piece(&mut self, now: Millis, part: Part, out: &mut Vec<Effect>) -> Outcome {
        let Part::Piece { index, zxid, total, offset, bytes } = part else {
            return Outcome::Failed;
        };
        if index != self.index || offset != self.received || offset >= self.requested {
            // Requested before a connection broke, or never. Requests bound what waits to be written.
            return Outcome::InProgress;
        }
        if self.total.is_some_and(|known| known != total) {
            return Outcome::Failed;
        }
        self.last_piece = now;
        if self.total.is_none() {
            self.total = Some(total);
            out.push(Effect::Receive(Receive::Begin { index, zxid, bytes: total }));
        }
        self.received += bytes.len() as u64;
        out.push(Effect::Receive(Receive::Piece { index, bytes }));
        Outcome::InProgress
    }

    /// The driver reports progress. Gives the transfer back if it goes on.
    pub(crate) fn progress(self: Box<Self>, incoming: &Incoming) -> (Option<Box<Transfer>>, Outcome) {
        let mut transfer = self;
        match incoming {
            Incoming::Written { index, upto } if *index == transfer.index => {
                transfer.written = *upto;
                (Some(transfer), Outcome::InProgress)
            }
            Incoming::Whole { index, .. } if *index == transfer.index => (None, Outcome::Received(transfer.announced)),
            Incoming::Failed { index, .. } if *index == transfer.index => (None, Outcome::Failed),
            _ => (Some(transfer), Outcome::InProgress),
        }
    }
}

/// A snapshot that could not be installed, and when another one is requested.
pub(crate) struct FailedTransfer {
    pub(crate) index: u64,
    pub(crate) from: ServerId,
    pub(crate) again: Option<Millis>,
    /// It could not be written, as a rule because there is no space: no client is served meanwhile.
    pub(crate) stalls: bool,
}

impl FailedTransfer {
    pub(crate) fn at(now: Millis, index: u64, from: ServerId, stalls: bool, reason: &str) -> FailedTransfer {
        tracing::error!(
            index,
            "a snapshot of another server cannot be installed, asking for another in {} s: {reason}",
            SNAPSHOT_AGAIN_AFTER_MS / 1000
        );
        FailedTransfer { index, from, again: Some(now.plus(SNAPSHOT_AGAIN_AFTER_MS)), stalls }
    }
}

/// Why a received snapshot cannot be installed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UnusableSnapshot {
    /// Its membership cannot be decoded.
    #[error(transparent)]
    Membership(#[from] ExtraError),
    /// It was not announced.
    #[error("it was not announced")]
    NotAnnounced,
    /// It was announced to Raft with another index or term.
    #[error("it was announced with another place in the log than it has")]
    OtherPosition,
    /// It was announced to Raft with another membership.
    #[error("it was announced with another membership than it holds")]
    OtherMembership,
    /// It has data of another ensemble.
    #[error(
        "it has data of another ensemble: one of the two servers was started with a disk of that one. Stop that server, empty its data \
         directory but for `myid`, and start it again; a name of its own for each ensemble (`ensemble.cluster`) prevents this"
    )]
    OtherEnsemble,
}

/// Checks that a snapshot is as it was announced to Raft: its position and its membership count after a restart.
pub(crate) fn is_as_announced(snapshot: &LoadedSnapshot, announced: &RaftMessage) -> Result<(), UnusableSnapshot> {
    let PeerBody::Snapshot { index, term, membership } = &announced.body else {
        return Err(UnusableSnapshot::NotAnnounced);
    };
    if (index.0, term.0) != (snapshot.index, snapshot.term) {
        return Err(UnusableSnapshot::OtherPosition);
    }
    let kept = Extra::decode(snapshot.snapshot.extra())?;
    if *membership == kept.members { Ok(()) } else { Err(UnusableSnapshot::OtherMembership) }
}

/// Checks that a snapshot with the state `arrived` does not replace data of another ensemble.
pub(crate) fn is_of_ensemble(arrived: &StateMachine, own: &StateMachine) -> Result<(), UnusableSnapshot> {
    match (arrived.ensemble_id(), own.ensemble_id()) {
        (Some(arrived), Some(own)) if arrived != own => Err(UnusableSnapshot::OtherEnsemble),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::recovery::state_of;
    use crate::snapshot::SnapshotContent;
    use corral_consensus::{Index, Membership, PeerBody, Term};
    use corral_core::apply::EnsembleId;
    use corral_core::tree::view::View;

    const PIECE: usize = PIECE_BYTES_MAX;

    struct Content(Vec<u8>);

    impl SnapshotContent for Content {
        fn size(&self) -> u64 {
            self.0.len() as u64
        }

        fn copy(&self, offset: u64, bytes: usize) -> Bytes {
            let offset = usize::try_from(offset).expect("within the file");
            Bytes::copy_from_slice(&self.0[offset..][..bytes])
        }
    }

    fn announced(index: u64) -> RaftMessage {
        let membership = Membership::simple(&[ServerId(1), ServerId(2)], &[]);
        let body = PeerBody::Snapshot { index: Index(index), term: Term(3), membership };
        RaftMessage { from: ServerId(1), to: ServerId(2), term: Term(3), body }
    }

    fn offer(index: u64, content: &[u8]) -> Offer {
        Offer::new(Some(Offered { index, zxid: 9, bytes: Arc::new(Content(content.to_vec())) }), PIECE)
    }

    /// Does what the transfer asks for.
    fn write(out: &mut Vec<Effect>, file: &mut Vec<u8>) {
        for effect in out.drain(..) {
            match effect {
                Effect::Receive(Receive::Begin { .. }) => file.clear(),
                Effect::Receive(Receive::Piece { bytes, .. }) => file.extend_from_slice(&bytes),
                _ => unreachable!("a transfer asks for nothing else"),
            }
        }
    }

    #[test]
    fn a_snapshot_of_another_ensemble_replaces_no_state() {
        let of = |id: Option<u64>| state_of(None, 1).0.of_ensemble(id.map(EnsembleId));
        let fits = |arrived, own| is_of_ensemble(&of(arrived), &of(own));
        assert_eq!(fits(Some(7), Some(7)), Ok(()));
        assert_eq!(fits(Some(7), Some(8)), Err(UnusableSnapshot::OtherEnsemble));
        assert_eq!(fits(Some(7), None), Ok(()), "a server without data");
        assert_eq!(fits(None, Some(7)), Ok(()), "written by an earlier build");
    }

    #[test]
    fn a_snapshot_is_received_although_pieces_are_lost() {
        let content: Vec<u8> = (0..PIECE * 9 + 77).map(|at| (at / 1000).to_le_bytes()[0]).collect();
        let mut offer = offer(50, &content);
        let mut out = Vec::new();
        let mut transfer = Box::new(Transfer::begin(Millis(0), announced(50), 50, PIECE));
        let (mut file, mut lost, mut turns) = (Vec::new(), 0, 0);
        while file.len() < content.len() {
            turns += 1;
            assert!(turns < 100, "it does not come to an end");
            let asks = transfer.requests();
            assert!(asks.len() as u64 <= PIECES_MAX, "few pieces are on their way");
            for (at, ask) in asks.iter().enumerate() {
                if turns % 3 == 2 && at == 1 {
                    lost += 1;
                    continue;
                }
                let part = offer.part(Millis(0), ask.index, ask.offset.expect("a piece is asked for"));
                assert!(matches!(transfer.piece(Millis(turns), part, &mut out), Outcome::InProgress));
            }
            write(&mut out, &mut file);
            let told = Incoming::Written { index: 50, upto: file.len() as u64 };
            let (goes_on, outcome) = transfer.progress(&told);
            assert!(matches!(outcome, Outcome::InProgress));
            transfer = goes_on.expect("it is not over");
            if transfer.is_silent(Millis(turns + AGAIN_AFTER_MS)) {
                transfer.request_again();
            }
        }
        assert!(lost > 0, "nothing was lost");
        assert_eq!(file, content);
        assert!(!transfer.is_silent(Millis(1 << 40)), "all has come");
    }

    #[test]
    fn a_snapshot_that_is_gone_ends_the_transfer() {
        let mut offer = offer(60, &[1; 5000]);
        let mut out = Vec::new();
        let mut transfer = Transfer::begin(Millis(0), announced(50), 50, PIECE);
        let ask = transfer.requests()[0];
        let part = offer.part(Millis(0), ask.index, 0);
        assert_eq!(part, Part::Gone { index: 50 });
        assert!(matches!(transfer.piece(Millis(1), part, &mut out), Outcome::Failed));
        assert_eq!(offer.part(Millis(0), 60, 5000), Part::Gone { index: 60 }, "nothing is behind the end");
    }

    #[test]
    fn another_servers_snapshot_has_other_bytes() {
        let mut out = Vec::new();
        let mut all = offer(50, &vec![1; PIECE * 2]);
        let mut transfer = Transfer::begin(Millis(0), announced(50), 50, PIECE);
        assert!(!transfer.requests().is_empty());
        assert!(matches!(transfer.piece(Millis(1), all.part(Millis(0), 50, 0), &mut out), Outcome::InProgress));
        assert!(!transfer.requests().is_empty());
        let is_of =
            |transfer: &Transfer| [(1, 50), (2, 50), (1, 51)].map(|(from, at)| transfer.is_of(ServerId(from), at));
        assert_eq!(is_of(&transfer), [true, false, false]);
        // Were it taken on all the same, no piece would ever fit.
        let mut other = offer(50, &vec![2; PIECE * 2 + 8]);
        assert!(matches!(
            transfer.piece(Millis(2), other.part(Millis(0), 50, PIECE as u64), &mut out),
            Outcome::Failed
        ));
        assert!(matches!(
            transfer.piece(Millis(3), all.part(Millis(0), 50, PIECE as u64), &mut out),
            Outcome::InProgress
        ));
        assert_eq!(is_of(&transfer), [true, true, false], "nothing more has to come");
        assert_eq!(out.len(), 3);
    }

    #[test]
    fn pieces_that_were_not_requested_are_dropped() {
        let content = vec![1; PIECE * 40];
        let mut offer = offer(50, &content);
        let mut out = Vec::new();
        let mut transfer = Transfer::begin(Millis(0), announced(50), 50, PIECE);
        let mut all = |transfer: &mut Transfer, out: &mut Vec<Effect>| {
            for number in 0..40 {
                let part = offer.part(Millis(0), 50, number * PIECE as u64);
                assert!(matches!(transfer.piece(Millis(1), part, out), Outcome::InProgress));
            }
        };
        all(&mut transfer, &mut out);
        assert_eq!(out.len(), 0, "nothing was asked for");
        transfer.requests();
        all(&mut transfer, &mut out);
        assert_eq!(out.len(), 2, "the beginning, and the first piece");
        transfer.requests();
        all(&mut transfer, &mut out);
        assert_eq!(out.len() as u64, 1 + PIECES_MAX, "none of them is written");
    }

    #[test]
    fn a_snapshot_of_another_place_than_was_announced_is_not_taken() {
        let loaded = |index, term| {
            let snapshot = Arc::clone(View::empty(7).snapshot());
            LoadedSnapshot { snapshot, index, term, zxid: 0, bytes: Arc::new(Content(Vec::new())) }
        };
        let elsewhere = Err(UnusableSnapshot::OtherPosition);
        for (index, term, is_there) in [(50, 3, true), (50, 2, false), (49, 3, false)] {
            // It keeps no membership.
            let judged = is_as_announced(&loaded(index, term), &announced(50));
            assert_eq!(judged != elsewhere && judged.is_err(), is_there, "{index} of {term}: {judged:?}");
        }
    }

    #[test]
    fn a_snapshot_is_offered_until_a_transfer_of_it_ends() {
        let mut offer = offer(1, &[1; 10]);
        let add = |offer: &mut Offer, now, index| {
            offer.add(Millis(now), Offered { index, zxid: index, bytes: Arc::new(Content(vec![2; 10])) });
        };
        assert!(matches!(offer.part(Millis(5000), 1, 0), Part::Piece { .. }));
        (2..6).for_each(|index| add(&mut offer, index * 4000, index));
        let offered = |offer: &Offer| offer.snapshots.iter().map(|(snapshot, _)| snapshot.index).collect::<Vec<_>>();
        assert_eq!(offered(&offer), [5, 4, 3], "the first one is not requested any more");
        assert!(matches!(offer.part(Millis(21_000), 3, 0), Part::Piece { .. }));
        add(&mut offer, 30_900, 6);
        assert_eq!(offered(&offer), [6, 3]);
        (7..20).for_each(|index| add(&mut offer, 30_900, index));
        assert_eq!(offered(&offer), [19, 18, 17, 16], "they have a limit");
    }
}
