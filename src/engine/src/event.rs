//! What happens to a server, as its driver reports it.

use bytes::Bytes;
use corral_consensus::{Micros, NodeId};
use corral_core::command::Proposals;
use corral_core::ids::{ConnId, Millis, SessionId, ShardId, WallMillis};
use corral_core::image::Image;
use corral_core::report::Obstacle;
use corral_link::Frame;
use std::sync::Arc;

use crate::transfer::{Arrived, SnapshotBytes};

/// The time at which something is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Monotonic, since an arbitrary beginning that shards use too.
    pub micros: Micros,
    /// For `ctime` and `mtime` alone.
    pub wall: WallMillis,
}

impl Now {
    /// The monotonic time in milliseconds.
    pub fn millis(self) -> Millis {
        Millis(self.micros.0 / 1000)
    }
}

/// Something that happened.
pub enum Event {
    /// A unit of Raft's time has passed, see [`crate::Settings`].
    Tick,
    /// What a shard wants written, and the connections whose syncs it wants answered behind that.
    Proposed { shard: ShardId, proposals: Proposals, syncs: Vec<ConnId> },
    /// A shard's session activity report, complete up to `upto`.
    SessionActivity { shard: ShardId, upto: Millis, sessions: Vec<(SessionId, Millis)> },
    /// The append of this number, and all before it, are durable.
    Durable(u64),
    /// Whether the log has no space for what it is to write; reported when that changes.
    LogFull(bool),
    /// The image that [`crate::Effect::WriteImage`] ordered is durable, checked and mapped.
    ImageWritten(WrittenImage),
    /// The image of the state at this index was not written. `was_tried`: writing it had begun.
    ImageFailed { index: u64, was_tried: bool },
    /// An image is wanted now if anything has changed.
    ImageAsked,
    /// The state here is not to be trusted.
    Distrust(Distrust),
    /// A sealed segment of the log is damaged, as this sentence says.
    LogDamaged(String),
    /// How far the image of another server is, see [`crate::Effect::Receive`].
    Incoming(Incoming),
    /// A connection that this server dialled stands: messages for that server go there.
    ConnectedTo { peer: NodeId, stream: u64 },
    /// A connection that this server dialled has ended: what was sent on it may not have arrived. `gone`: the other server's
    /// process has ended.
    DisconnectedFrom { peer: NodeId, stream: u64, gone: bool },
    /// A connection that another server dialled stands. `incarnation` names that server's start.
    Accepted { peer: NodeId, stream: u64, incarnation: u64 },
    /// A connection that another server dialled has ended.
    Lost { peer: NodeId, stream: u64, gone: bool },
    /// A frame arrived on a connection that another server dialled.
    Frame { peer: NodeId, stream: u64, frame: Frame },
    /// A message for that server could not be queued. `announced_image`: as [`crate::Effect::Send`] had it.
    Undelivered { peer: NodeId, announced_image: bool },
    /// Which server, unknown to this one, holds data of this cluster, as far as the driver knows; reported when that changes.
    Stranger(Option<NodeId>),
    /// The process is to end: drain the shards, let another server lead, write a last image.
    Stop,
    /// A shard has no connection left.
    Drained,
}

/// A durable, verified, mapped image of this server's state.
pub struct WrittenImage {
    pub image: Arc<Image>,
    /// The whole file, for other servers.
    pub bytes: Arc<dyn SnapshotBytes>,
    /// Place in the log of the last entry it contains.
    pub index: u64,
    pub term: u64,
    /// Entries before this index are in every image that is kept.
    pub log_from: u64,
}

/// Why the state of this server is not to be trusted.
#[derive(Clone, Debug)]
pub struct Distrust {
    pub cause: Cause,
    /// File and offset, or zxid and digests: the first part of a sentence.
    pub what: String,
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
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

/// How far another server's image is.
pub enum Incoming {
    /// So many bytes are written.
    Written { index: u64, upto: u64 },
    /// Durable, checked and mapped.
    Whole { index: u64, image: Box<Arrived> },
    /// It cannot be taken over, for this reason.
    Failed { index: u64, reason: String },
}

/// Bytes of a received image, or what becomes of it; see [`crate::Effect::Receive`].
#[derive(Debug)]
pub enum Receive {
    /// An image of so many bytes comes, which ends at this place in the log; one before it is given up.
    Begin { index: u64, zxid: u64, bytes: u64 },
    /// Its next bytes.
    Piece { index: u64, bytes: Bytes },
}
