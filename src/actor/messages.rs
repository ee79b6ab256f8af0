//! Every message between threads: closed enums, one mailbox an actor, a batch a message.
//!
//! Channels are unbounded on purpose: what travels in them is bounded at its source (bytes in flight per shard, appends
//! under way, one image at a time).

use std::net::SocketAddr;
use std::sync::Arc;

use corral_consensus::Append;
use corral_core::change::AppliedBatch;
use corral_core::command::Proposals;
use corral_core::delta::Delta;
use corral_core::ids::{ConnId, Millis, SessionId, ShardId};
use corral_core::image::Image;
use corral_core::report::Report;
use corral_core::sequencer::FrozenState;
use corral_core::shard::Garbage;
use corral_wire::fourletter::FourLetter;

use crate::exit::Fault;

/// To a shard actor.
pub(crate) enum ToShard {
    /// A committed log entry, shared by all shards.
    Batch(Arc<AppliedBatch>),
    /// A client connected and was given to this shard. `entropy` is fresh.
    Accepted { stream: std::net::TcpStream, peer: SocketAddr, entropy: [u8; 16] },
    /// These connections' syncs are answered, behind every batch they wait for.
    Synced(Vec<ConnId>),
    /// These connections' syncs cannot be answered.
    SyncRefused(Vec<ConnId>),
    /// The state machine froze its delta; every batch before it has been sent.
    Adopt(Arc<Delta>),
    /// The frozen delta is in this image.
    Swap(Arc<Image>),
    /// A connection of another shard waits for the answer to a four-letter word.
    ReportAsked { asker: ShardId, conn: ConnId, word: FourLetter },
    /// The answer to that.
    Reported { conn: ConnId, word: FourLetter, report: Box<Report> },
    /// Answer what is under way, take nothing new, then close every connection.
    Drain,
}

/// To the consensus actor.
pub(crate) enum ToConsensus {
    /// What a shard wants written, and whose syncs it wants answered behind that.
    Proposed { shard: ShardId, proposals: Proposals, syncs: Vec<ConnId> },
    /// Which sessions a shard heard from; complete up to `upto`.
    Heard { shard: ShardId, upto: Millis, sessions: Vec<(SessionId, Millis)> },
    /// The append of this number, and all before it, are durable.
    Durable(u64),
    /// The image writer is done.
    ImageWritten(Result<WrittenImage, String>),
    /// Time passes.
    Tick,
    /// Write an image now if anything changed.
    Snapshot,
    /// Drain the shards, write a last image, stop.
    Stop,
    /// A shard has no connection left.
    Drained,
}

/// A durable, verified, mapped image.
pub(crate) struct WrittenImage {
    pub(crate) image: Arc<Image>,
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
    /// Sync what there is and end.
    Close,
}

/// To the image writer.
pub(crate) enum ToWriter {
    Write(Box<FrozenState>),
    /// To be dropped here, where it stops nobody.
    Drop(Garbage),
}

/// To the main thread: how the process ends.
pub(crate) enum Ending {
    /// Everything is written and closed.
    Stopped,
    Failed(Fault),
}
