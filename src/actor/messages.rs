//! Every message between threads: closed enums, one mailbox an actor, a batch a message.
//!
//! Channels are unbounded on purpose: what travels in them is bounded at its source (bytes in flight per shard, appends
//! under way, batches that the slowest shard has not applied, one image at a time).

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Weak};

use corral_consensus::Append;
use corral_core::change::AppliedBatch;
use corral_core::command::Proposals;
use corral_core::delta::Delta;
use corral_core::ids::{ConnId, Millis, SessionId, ShardId};
use corral_core::image::Image;
use corral_core::member::Note;
use corral_core::report::{Obstacle, Piece, SessionMark, SessionPiece};
use corral_core::sequencer::FrozenState;
use corral_core::shard::{Garbage, Question};
use corral_core::view::View;
use corral_storage::Bytes;
use corral_wire::fourletter::FourLetter;

use crate::exit::Fault;
use crate::net::acceptor::Acceptor;
use crate::net::peers::PeerEvent;
use crate::node::images::LoadedImage;
use crate::node::remembered::Remembered;

/// To the thread of the ports: where the list of servers says now that this server is found, of what has changed there.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    /// By the other servers: host and port.
    pub(crate) peers: Option<(String, u16)>,
    pub(crate) clients: Option<(String, u16)>,
    /// The list itself, to be remembered.
    pub(crate) list: Option<Remembered>,
}

/// To a shard actor.
pub(crate) enum ToShard {
    /// A committed log entry, shared by all shards.
    Batch(Arc<AppliedBatch>),
    /// A client connected and was given to this shard.
    Accepted(Accepted),
    /// Accept connections, for all shards: from the listeners that this one's ring is given.
    Accept(Box<Acceptor>),
    /// This one's ring serves this listener from now on, and none before it.
    Listen(TcpListener),
    /// These connections' syncs are answered, behind every batch they wait for.
    Synced(Vec<ConnId>),
    /// These connections' syncs cannot be answered.
    SyncRefused(Vec<ConnId>),
    /// These connections asked for sessions that are not theirs.
    Refused(Vec<ConnId>),
    /// The state machine froze its delta; every batch before it has been sent.
    Adopt(Arc<Delta>),
    /// The frozen delta is in this image.
    Swap(Arc<Image>),
    /// How commands go from here on, in an ensemble.
    Note(Note),
    /// Another server's image took the place of everything: this is the tree now, and so many sessions live.
    Install(Box<View>, u64),
    /// A connection waits for the answer to a four-letter word; a piece of it from this place on.
    PieceAsked { asker: Asker, word: FourLetter, from: usize },
    /// The answer to a word that a connection of this shard asked for.
    WordAnswered { conn: ConnId, text: String },
    /// Answer what is under way, take nothing new, then close every connection.
    Drain,
}

/// A connection that is nobody's yet.
pub(crate) struct Accepted {
    pub(crate) stream: TcpStream,
    pub(crate) peer: SocketAddr,
    /// Fresh random bytes.
    pub(crate) entropy: [u8; 16],
}

/// To the consensus actor.
pub(crate) enum ToConsensus {
    /// What a shard wants written, and whose syncs it wants answered behind that.
    Proposed { shard: ShardId, proposals: Proposals, syncs: Vec<ConnId> },
    /// Which sessions a shard heard from; complete up to `upto`.
    Heard { shard: ShardId, upto: Millis, sessions: Vec<(SessionId, Millis)> },
    /// The append of this number, and all before it, are durable.
    Durable(u64),
    /// Whether the log has no space for what it is to write; told when that changes.
    NoSpace(bool),
    /// The image writer is done.
    ImageWritten(WrittenImage),
    /// The image of the state at this index was not written; the writer has said why. `was_tried`: it was begun.
    ImageFailed { index: u64, was_tried: bool },
    /// It may be tried again.
    RetryImage(u64),
    /// Of an ensemble: how far the image is that comes in.
    Incoming(Incoming),
    /// Of an ensemble: something happened on a link to another server.
    Peer(PeerEvent),
    /// The state here is not to be trusted: stop serving, and take it from another server.
    Distrust(Distrust),
    /// A sealed segment of the log is damaged, as this sentence says: make it superfluous by an image.
    LogDamaged(String),
    /// Time passes.
    Tick,
    /// The replica wanted a turn at this time.
    Alarm,
    /// Write an image now if anything changed.
    Snapshot,
    /// Drain the shards, write a last image, stop.
    Stop,
    /// A shard has no connection left.
    Drained,
    /// A connection waits for the answer to `dump`; sessions from this one on.
    SessionsAsked { asker: Asker, from: SessionMark },
}

/// Why the state of this server is not to be trusted.
#[derive(Clone, Debug)]
pub(crate) struct Distrust {
    pub(crate) cause: Cause,
    /// File and offset, or zxid and digests: the first part of a sentence.
    pub(crate) what: String,
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Bytes of the image that is served do not match their checksum.
    Image,
    /// The digest of the state differs from another server's at the same zxid, or from the one that was kept with the changes.
    Digest,
    /// The mark of an earlier process, which found another digest.
    Noted,
}

impl Cause {
    /// As it is reported.
    pub(crate) fn obstacle(self) -> Obstacle {
        match self {
            Cause::Image => Obstacle::Damaged,
            Cause::Digest | Cause::Noted => Obstacle::Diverged,
        }
    }
}

/// The connection that sent a four-letter word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Asker {
    pub(crate) shard: ShardId,
    pub(crate) conn: ConnId,
}

/// To the thread that answers four-letter words.
pub(crate) enum ToWords {
    /// A connection of this shard sent a word.
    Asked { shard: ShardId, question: Question },
    /// What a shard has to say to it.
    Piece { asker: Asker, shard: ShardId, piece: Box<Piece> },
    /// What the leader has to say to it.
    Sessions { asker: Asker, piece: Box<SessionPiece> },
    /// The connection has its answer, or is gone.
    Ended(Asker),
}

/// A durable, verified, mapped image.
pub(crate) struct WrittenImage {
    pub(crate) image: Arc<Image>,
    /// The whole file, for other servers.
    pub(crate) bytes: Arc<dyn Bytes>,
    /// Place in the log of the last entry it contains.
    pub(crate) index: u64,
    pub(crate) term: u64,
    /// Entries before this index are in every image that is kept.
    pub(crate) log_from: u64,
}

/// To the log thread.
pub(crate) enum ToLog {
    /// Write, sync, and report the number.
    Append(Append),
    /// Entries before this index are not needed any more.
    Trim(u64),
    /// What was written so far is to be let go with the next trim: begin another segment.
    Seal,
    /// All entries are void: another server's image is durable, and the next entry has this index.
    Reset(u64),
    /// Sync what there is and end.
    Close,
}

/// To the thread that writes another server's image.
pub(crate) enum ToImagesIn {
    /// The state here is not to be trusted for this reason, and no checksum says so: a later process must know it.
    Distrusted(String),
    /// Another server's image has taken its place.
    Trusted,
    /// An image of so many bytes comes, which ends at this place in the log; one before it is given up.
    Begin { index: u64, zxid: u64, bytes: u64 },
    /// Its next bytes.
    Piece { index: u64, bytes: bytes::Bytes },
}

impl ToImagesIn {
    /// What a later process must be told of this distrust, or of its end; nothing where the start finds out by checksums.
    pub(crate) fn trust(distrust: Option<&Distrust>) -> Option<ToImagesIn> {
        match distrust {
            None => Some(ToImagesIn::Trusted),
            Some(Distrust { cause: Cause::Digest, what }) => Some(ToImagesIn::Distrusted(what.clone())),
            Some(Distrust { cause: Cause::Image | Cause::Noted, .. }) => None,
        }
    }
}

/// How far another server's image is.
pub(crate) enum Incoming {
    Written {
        index: u64,
        upto: u64,
    },
    /// Durable, checked and mapped.
    Whole {
        index: u64,
        loaded: Box<LoadedImage>,
    },
    Failed {
        index: u64,
        reason: String,
    },
}

/// To the image writer.
pub(crate) enum ToWriter {
    Write(Box<FrozenState>),
    /// Another image, `by`, took the place of this one. Changes may have copied from it until now.
    Replaced {
        image: Arc<Image>,
        by: Weak<Image>,
    },
    /// To be dropped here, where it stops nobody.
    Drop(Garbage),
    /// A shard's clients have fallen silent: a good time to give memory back.
    Calm,
}

/// To the main thread: how the process ends.
pub(crate) enum Ending {
    /// Everything is written and closed.
    Stopped,
    Failed(Fault),
}
