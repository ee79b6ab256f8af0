//! An image that another server gives this one, and those that this server has to give.
//!
//! The server that takes an image asks for each piece and so sets the pace: few pieces are on their way at once. It goes on asking
//! until it has all, is told that the image is gone, or hears of a newer one.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use corral_consensus::{NodeId, PeerBody, PeerMessage as RaftMessage};
use corral_core::evaluate::StateMachine;
use corral_core::ids::Millis;
use corral_core::image::Image;
use corral_link::Generation;
use corral_link::image::{Ask, PIECE_BYTES_MAX, Part};

use crate::effect::Effect;
use crate::event::{Incoming, Receive};
use crate::extra;

/// Pieces asked for and not written.
const PIECES_MAX: u64 = 4;
/// Images that are given: the newest, and the one before it for those who have begun to take it.
const OFFERED_MAX: usize = 2;
/// Without any piece for this long it is asked for again.
const AGAIN_AFTER_MS: u64 = 2000;
/// Time until another image is asked for in the place of one that could not be taken over.
pub(crate) const IMAGE_AGAIN_AFTER_MS: u64 = 5000;

/// The whole file of an image, for other servers.
pub trait SnapshotBytes: Send + Sync {
    /// Bytes of the file.
    fn size(&self) -> u64;

    /// A copy of so many bytes from this offset on, both within the file.
    fn copy(&self, offset: u64, bytes: usize) -> Bytes;
}

/// A verified image with its place in the log.
pub struct LoadedImage {
    pub image: Arc<Image>,
    /// Of the last entry it contains.
    pub index: u64,
    pub term: u64,
    pub zxid: u64,
    pub bytes: Arc<dyn SnapshotBytes>,
}

impl LoadedImage {
    /// Of which generation its data are; of the first where it is none of an ensemble's.
    pub fn generation(&self) -> Generation {
        extra::decode(self.image.extra()).map_or(Generation::FIRST, |(_, generation)| generation)
    }

    /// Its state, in the middle of the membership change that it was taken in, if any.
    pub fn state(&self) -> StateMachine {
        let begun = extra::decode(self.image.extra()).ok().and_then(|(ensemble, _)| ensemble.begun);
        StateMachine::of_image(Arc::clone(&self.image)).in_the_middle_of(begun)
    }

    /// As other servers may have it.
    pub fn offered(&self) -> Offered {
        Offered { index: self.index, zxid: self.zxid, bytes: Arc::clone(&self.bytes) }
    }
}

/// Another server's image that has come whole, with its state: to make that takes long, so it is made where the image was written.
pub struct Arrived {
    pub loaded: LoadedImage,
    pub state: StateMachine,
}

impl From<LoadedImage> for Box<Arrived> {
    fn from(loaded: LoadedImage) -> Self {
        Box::new(Arrived { state: loaded.state(), loaded })
    }
}

/// A durable image that other servers may have.
#[derive(Clone)]
pub struct Offered {
    /// Place in the log of the last entry it contains.
    pub index: u64,
    pub zxid: u64,
    pub bytes: Arc<dyn SnapshotBytes>,
}

/// The images this server has to give.
pub(crate) struct Offer {
    images: VecDeque<Offered>,
    piece_bytes: usize,
}

impl Offer {
    /// `piece_bytes`: of a piece at most, and at most [`PIECE_BYTES_MAX`].
    pub(crate) fn new(newest: Option<Offered>, piece_bytes: usize) -> Offer {
        Offer { images: newest.into_iter().collect(), piece_bytes: piece_bytes.min(PIECE_BYTES_MAX) }
    }

    pub(crate) fn add(&mut self, image: Offered) {
        self.images.push_front(image);
        self.images.truncate(OFFERED_MAX);
    }

    /// Place in the log of the newest one, 0 if there is none.
    pub(crate) fn newest(&self) -> u64 {
        self.images.front().map_or(0, |image| image.index)
    }

    /// The piece that is asked for.
    pub(crate) fn part(&self, index: u64, offset: u64) -> Part {
        let found = self.images.iter().find(|image| image.index == index).and_then(|image| {
            let (zxid, total) = (image.zxid, image.bytes.size());
            let rest = total.checked_sub(offset).filter(|rest| *rest > 0)?;
            let bytes = usize::try_from(rest).unwrap_or(usize::MAX).min(self.piece_bytes);
            Some(Part::Piece { index, zxid, total, offset, bytes: image.bytes.copy(offset, bytes) })
        });
        found.unwrap_or(Part::Gone { index })
    }
}

/// The image that this server takes.
pub(crate) struct Transfer {
    /// To be given to Raft when the image is here.
    announced: RaftMessage,
    from: NodeId,
    index: u64,
    /// The whole image's bytes, once the first piece tells.
    total: Option<u64>,
    /// Pieces have come up to here, and been written up to there.
    come: u64,
    written: u64,
    asked: u64,
    heard: Millis,
    /// Bytes of a piece.
    piece_bytes: u64,
}

/// What became of a transfer.
pub(crate) enum Outcome {
    GoesOn,
    /// The image is whole and durable: what announced it may be given to Raft.
    Over(RaftMessage),
    Failed,
}

impl Transfer {
    /// Begins with what announces the image.
    pub(crate) fn begin(now: Millis, announced: RaftMessage, index: u64, piece_bytes: usize) -> Transfer {
        let (from, piece_bytes) = (announced.from, piece_bytes as u64);
        tracing::info!(from = from.0, index, "this server lags too far behind: taking over an image");
        Transfer { announced, from, index, total: None, come: 0, written: 0, asked: 0, heard: now, piece_bytes }
    }

    pub(crate) fn from(&self) -> NodeId {
        self.from
    }

    pub(crate) fn index(&self) -> u64 {
        self.index
    }

    /// Whether what this server announces of that place needs no new beginning: another server's image of the same place holds the
    /// same, but not in the same bytes.
    pub(crate) fn is_of(&self, from: NodeId, index: u64) -> bool {
        let is_here = self.total.is_some_and(|total| self.come >= total);
        self.index == index && (self.from == from || is_here)
    }

    /// The same image was announced again, perhaps in a newer term.
    pub(crate) fn announce(&mut self, announced: RaftMessage) {
        self.from = announced.from;
        self.announced = announced;
    }

    /// The next asks that may go.
    pub(crate) fn asks(&mut self) -> Vec<Ask> {
        let piece = self.piece_bytes;
        let end = match self.total {
            // The first piece tells how much there is.
            None => 1,
            Some(total) => total.min(self.written.saturating_add(PIECES_MAX * piece)),
        };
        let mut asks = Vec::new();
        while self.asked < end {
            asks.push(Ask { index: self.index, offset: Some(self.asked) });
            self.asked = self.asked.saturating_add(piece);
        }
        asks
    }

    /// What was asked for may be lost: to be asked for again.
    pub(crate) fn ask_again(&mut self) {
        self.asked = self.come;
    }

    /// Whether nothing has come for too long.
    pub(crate) fn is_silent(&self, now: Millis) -> bool {
        let waits = self.total.is_none_or(|total| self.come < total);
        waits && now.since(self.heard) >= AGAIN_AFTER_MS
    }

    /// Asked again because of silence: not again soon.
    pub(crate) fn note(&mut self, now: Millis) {
        self.heard = now;
    }

    /// A piece came.
    pub(crate) fn piece(&mut self, now: Millis, part: Part, out: &mut Vec<Effect>) -> Outcome {
        let Part::Piece { index, zxid, total, offset, bytes } = part else {
            return Outcome::Failed;
        };
        if index != self.index || offset != self.come || offset >= self.asked {
            // Asked for before a connection broke, or never: what is asked for bounds what waits to be written.
            return Outcome::GoesOn;
        }
        if self.total.is_some_and(|known| known != total) {
            return Outcome::Failed;
        }
        self.heard = now;
        if self.total.is_none() {
            self.total = Some(total);
            out.push(Effect::Receive(Receive::Begin { index, zxid, bytes: total }));
        }
        self.come += bytes.len() as u64;
        out.push(Effect::Receive(Receive::Piece { index, bytes }));
        Outcome::GoesOn
    }

    /// The driver reports how far it is.
    pub(crate) fn taken(self: Box<Self>, incoming: &Incoming) -> (Option<Box<Transfer>>, Outcome) {
        let mut transfer = self;
        match incoming {
            Incoming::Written { index, upto } if *index == transfer.index => {
                transfer.written = *upto;
                (Some(transfer), Outcome::GoesOn)
            }
            Incoming::Whole { index, .. } if *index == transfer.index => (None, Outcome::Over(transfer.announced)),
            Incoming::Failed { index, .. } if *index == transfer.index => (None, Outcome::Failed),
            _ => (Some(transfer), Outcome::GoesOn),
        }
    }
}

/// An image that could not be taken over: another one is asked for at that time, if that is still to be done.
pub(crate) struct FailedTransfer {
    pub(crate) index: u64,
    pub(crate) from: NodeId,
    pub(crate) again: Option<Millis>,
    /// It could not be written, as a rule for want of space: no client is served meanwhile.
    pub(crate) stalls: bool,
}

impl FailedTransfer {
    pub(crate) fn at(now: Millis, index: u64, from: NodeId, stalls: bool) -> FailedTransfer {
        FailedTransfer { index, from, again: Some(now.plus(IMAGE_AGAIN_AFTER_MS)), stalls }
    }
}

/// Whether an image keeps the membership that Raft was told of: it counts after a restart.
pub(crate) fn holds_membership(image: &LoadedImage, announced: &RaftMessage) -> Result<(), &'static str> {
    let (kept, _) = extra::decode(image.image.extra())?;
    match &announced.body {
        PeerBody::Snapshot { membership, .. } if *membership == kept.members => Ok(()),
        _ => Err("it was announced with another membership than it holds"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corral_consensus::{Index, Membership, PeerBody, Term};

    const PIECE: usize = PIECE_BYTES_MAX;

    struct Content(Vec<u8>);

    impl SnapshotBytes for Content {
        fn size(&self) -> u64 {
            self.0.len() as u64
        }

        fn copy(&self, offset: u64, bytes: usize) -> Bytes {
            let offset = usize::try_from(offset).expect("within the file");
            Bytes::copy_from_slice(&self.0[offset..][..bytes])
        }
    }

    fn announced(index: u64) -> RaftMessage {
        let membership = Membership::simple(&[NodeId(1), NodeId(2)], &[]);
        let body = PeerBody::Snapshot { index: Index(index), term: Term(3), membership };
        RaftMessage { from: NodeId(1), to: NodeId(2), term: Term(3), body }
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
    fn an_image_comes_whole_although_pieces_are_lost() {
        let content: Vec<u8> = (0..PIECE * 9 + 77).map(|at| (at / 1000).to_le_bytes()[0]).collect();
        let offer = offer(50, &content);
        let mut out = Vec::new();
        let mut transfer = Box::new(Transfer::begin(Millis(0), announced(50), 50, PIECE));
        let (mut file, mut lost, mut turns) = (Vec::new(), 0, 0);
        while file.len() < content.len() {
            turns += 1;
            assert!(turns < 100, "it does not come to an end");
            let asks = transfer.asks();
            assert!(asks.len() as u64 <= PIECES_MAX, "few pieces are on their way");
            for (at, ask) in asks.iter().enumerate() {
                if turns % 3 == 2 && at == 1 {
                    lost += 1;
                    continue;
                }
                let part = offer.part(ask.index, ask.offset.expect("a piece is asked for"));
                assert!(matches!(transfer.piece(Millis(turns), part, &mut out), Outcome::GoesOn));
            }
            write(&mut out, &mut file);
            let told = Incoming::Written { index: 50, upto: file.len() as u64 };
            let (goes_on, outcome) = transfer.taken(&told);
            assert!(matches!(outcome, Outcome::GoesOn));
            transfer = goes_on.expect("it is not over");
            if transfer.is_silent(Millis(turns + AGAIN_AFTER_MS)) {
                transfer.ask_again();
            }
        }
        assert!(lost > 0, "nothing was lost");
        assert_eq!(file, content);
        assert!(!transfer.is_silent(Millis(1 << 40)), "all has come");
    }

    #[test]
    fn an_image_that_is_gone_ends_the_transfer() {
        let offer = offer(60, &[1; 5000]);
        let mut out = Vec::new();
        let mut transfer = Transfer::begin(Millis(0), announced(50), 50, PIECE);
        let ask = transfer.asks()[0];
        let part = offer.part(ask.index, 0);
        assert_eq!(part, Part::Gone { index: 50 });
        assert!(matches!(transfer.piece(Millis(1), part, &mut out), Outcome::Failed));
        assert_eq!(offer.part(60, 5000), Part::Gone { index: 60 }, "nothing is behind the end");
    }

    #[test]
    fn another_server_gives_its_own_bytes_of_the_same_place() {
        let mut out = Vec::new();
        let all = offer(50, &vec![1; PIECE * 2]);
        let mut transfer = Transfer::begin(Millis(0), announced(50), 50, PIECE);
        assert!(!transfer.asks().is_empty());
        assert!(matches!(transfer.piece(Millis(1), all.part(50, 0), &mut out), Outcome::GoesOn));
        assert!(!transfer.asks().is_empty());
        let is_of =
            |transfer: &Transfer| [(1, 50), (2, 50), (1, 51)].map(|(from, at)| transfer.is_of(NodeId(from), at));
        assert_eq!(is_of(&transfer), [true, false, false]);
        // Were it taken on all the same, no piece would ever fit.
        let other = offer(50, &vec![2; PIECE * 2 + 8]);
        assert!(matches!(transfer.piece(Millis(2), other.part(50, PIECE as u64), &mut out), Outcome::Failed));
        assert!(matches!(transfer.piece(Millis(3), all.part(50, PIECE as u64), &mut out), Outcome::GoesOn));
        assert_eq!(is_of(&transfer), [true, true, false], "nothing more has to come");
        assert_eq!(out.len(), 3);
    }

    #[test]
    fn pieces_that_were_not_asked_for_are_dropped() {
        let content = vec![1; PIECE * 40];
        let offer = offer(50, &content);
        let mut out = Vec::new();
        let mut transfer = Transfer::begin(Millis(0), announced(50), 50, PIECE);
        let all = |transfer: &mut Transfer, out: &mut Vec<Effect>| {
            for number in 0..40 {
                let part = offer.part(50, number * PIECE as u64);
                assert!(matches!(transfer.piece(Millis(1), part, out), Outcome::GoesOn));
            }
        };
        all(&mut transfer, &mut out);
        assert_eq!(out.len(), 0, "nothing was asked for");
        transfer.asks();
        all(&mut transfer, &mut out);
        assert_eq!(out.len(), 2, "the beginning, and the first piece");
        transfer.asks();
        all(&mut transfer, &mut out);
        assert_eq!(out.len() as u64, 1 + PIECES_MAX, "none of them is written");
    }

    #[test]
    fn two_images_are_kept_for_others() {
        let mut offer = offer(1, &[1; 10]);
        for index in [2, 3] {
            offer.add(Offered { index, zxid: index, bytes: Arc::new(Content(vec![2; 10])) });
        }
        let has = |index| matches!(offer.part(index, 0), Part::Piece { .. });
        assert_eq!([1, 2, 3].map(has), [false, true, true]);
    }
}
