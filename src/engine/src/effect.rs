//! What a driver is to do.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use corral_consensus::{Append, NodeId};
use corral_core::change::AppliedBatch;
use corral_core::delta::Delta;
use corral_core::ids::{ConnId, ShardId};
use corral_core::image::Image;
use corral_core::member::Note;
use corral_core::report::{Mode, Obstacle, Quorum, ReconfigStep};
use corral_core::sequencer::FrozenState;
use corral_core::shard::Garbage;
use corral_core::view::View;
use corral_link::{Generation, Kind};

use crate::addresses::{Moved, PeerAddress};
use crate::event::Receive;

/// Something that the driver has to do. Effects are carried out in the order in which they are given; each says what else it
/// obliges the driver to.
pub enum Effect {
    /// Every shard hears of this, in this order.
    Shards(ToShards),
    /// These connections of the shard hear that.
    Shard { shard: ShardId, answer: Answer, conns: Vec<ConnId> },
    /// The log does this, in this order.
    Log(ToLog),
    /// An image of this state is written, at leisure; the end is reported as [`crate::Event::ImageWritten`] or
    /// [`crate::Event::ImageFailed`]. There is never more than one under way.
    WriteImage(Box<FrozenState>),
    /// The image `by` took the place of this one: changes may have copied from it until now.
    Replaced { image: Arc<Image>, by: Weak<Image> },
    /// To be dropped where that stops nobody.
    Drop(Garbage),
    /// Another server's image is written beside this server's own. After [`Receive::Begin`] failed, and after each piece, the driver
    /// reports [`crate::Event::Incoming`]; after the last piece once the file is durable, checked and mapped.
    Receive(Receive),
    /// Whether the state is to be trusted is noted for a later process, where its start would not find out by checksums:
    /// the reason why not, or that it is again.
    NoteDistrust(Option<String>),
    /// All files are to be checked now.
    Scrub,
    /// A message for another server. `stream`: on this connection or not at all; otherwise on the one that stands, and
    /// [`crate::Event::Undelivered`] if there is none or its queue is full. May be held back until the end of the turn, see [`Effect::Flush`].
    Send { peer: NodeId, stream: Option<u64>, kind: Kind, payload: Bytes, announces_image: bool },
    /// What was sent leaves now.
    Flush,
    /// This connection, which another server dialled, is closed because of what it said.
    Close { peer: NodeId, stream: u64 },
    /// The servers to be dialled and let in from now on; this one may be among them.
    Connect(Vec<PeerAddress>),
    /// This server's data are of that generation from now on: connections with servers of others end.
    Adopt(Generation),
    /// The list of servers says that this server is found elsewhere, or is another.
    Moved(Moved),
    /// The process ends. Nothing is called after that.
    End(Ended),
}

/// To every shard.
#[derive(Clone)]
pub enum ToShards {
    /// A committed log entry.
    Batch(Arc<AppliedBatch>),
    /// The state machine froze its delta; every batch before it has been given.
    Adopt(Arc<Delta>),
    /// The frozen delta is in this image.
    Swap(Arc<Image>),
    /// How commands go from here on.
    Note(Note),
    /// Another server's image took the place of everything: this is the tree now, and so many sessions live.
    Install(Arc<View>, u64),
    /// Answer what is under way, take nothing new, then close every connection; [`crate::Event::Drained`] when that is done.
    Drain,
}

/// What connections of one shard hear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Their syncs are answered, behind every batch they wait for.
    Synced,
    /// Their syncs cannot be answered.
    SyncRefused,
    /// They asked for sessions that are not theirs.
    Refused,
}

/// To the log.
#[derive(Debug)]
pub enum ToLog {
    /// Written, synced, then reported as [`crate::Event::Durable`].
    Append(Append),
    /// Entries before this index are not needed any more.
    Trim(u64),
    /// What was written so far is to be let go with the next trim: another segment begins.
    Seal,
    /// All entries are void: an image is durable, and the next entry has this index.
    Reset(u64),
    /// Synced, then closed.
    Close,
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// As it was told to, and everything is written.
    Stopped,
    /// This committed entry cannot be read by this version.
    NotABatch { index: u64 },
    /// The data here cannot be served, as this sentence says with what to do.
    Damaged(String),
}

/// What there is to be shown of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    pub mode: Mode,
    /// The log, or another server's image, has no space: what the leader gives is not taken.
    pub stalled: bool,
    /// Why it opens no sessions or takes no writes, as found at the last tick.
    pub found: Option<Obstacle>,
    /// The data here are wrong: [`Obstacle::Damaged`], [`Obstacle::Diverged`] or [`Obstacle::CannotHeal`].
    pub withheld: Option<Obstacle>,
    /// Times that it let another server lead because its log stood still.
    pub relieved: u64,
    /// Who votes, and who keeps up with this leader; `None` of a server that is alone.
    pub quorum: Option<Quorum>,
    /// How far a membership change is.
    pub reconfig: ReconfigStep,
    /// Place in the log of the image that is served; 0: none that is a file.
    pub served_image: u64,
}

impl Status {
    /// Why it opens no sessions or takes no writes.
    pub fn obstacle(&self) -> Option<Obstacle> {
        [self.withheld, self.found].into_iter().flatten().min()
    }
}

/// What is to be done and shown, as it is gathered.
pub(crate) struct Outbox {
    pub(crate) effects: Vec<Effect>,
    pub(crate) status: Status,
}

impl Outbox {
    pub(crate) fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    pub(crate) fn log(&mut self, message: ToLog) {
        self.push(Effect::Log(message));
    }

    pub(crate) fn shards(&mut self, message: ToShards) {
        self.push(Effect::Shards(message));
    }

    pub(crate) fn send(&mut self, peer: NodeId, kind: Kind, payload: Bytes) {
        self.push(Effect::Send { peer, stream: None, kind, payload, announces_image: false });
    }
}
