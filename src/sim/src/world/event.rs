//! The events of a simulated world, and the channels on which they keep their order.

use corral_consensus::Micros;
use corral_core::sequencer::FrozenState;
use corral_core::shard::ShardMessage;
use corral_engine::{self as engine, Receive, ToLog};
use corral_peer::Frame;

use crate::model::LinkId;

pub(crate) enum Event {
    Act(usize),
    ReadAgain(usize),
    /// A connection reaches the server.
    Arrive(LinkId),
    /// Bytes, or the end, reach the server's socket.
    ToServer(LinkId, Vec<u8>),
    EndToServer(LinkId),
    /// Bytes, or the end, reach the client's socket.
    ToClient(LinkId, Vec<u8>),
    EndToClient(LinkId),
    Writable(LinkId),
    /// Of a server, in this life of its.
    Inside(usize, u32, Inner),
    Fault,
    Start(usize),
    Space(usize),
    FastDisk(usize),
    EndScarcity(usize),
    /// Between servers: the sender dials in this life of its, a frame arrives, a cut since then ends.
    Dial {
        from: usize,
        to: usize,
        life: u32,
    },
    Frame {
        from: usize,
        to: usize,
        number: u64,
        frame: Frame,
    },
    EndCut {
        from: usize,
        to: usize,
        since: u64,
    },
    /// A server that was stopped goes on.
    Thaw(usize),
}

/// The events inside of the server.
pub(crate) enum Inner {
    ToShard(usize, ShardMessage),
    /// A shard ends a turn.
    ShardTurn(usize),
    ShardTick(usize),
    Resume(usize),
    /// A shard looks at a socket again.
    Readable(LinkId),
    ToConsensus(engine::Event),
    Turn,
    /// It wanted one then.
    Wake(Micros),
    Tick,
    ToLog(ToLog),
    LogTurn,
    LogSync(u64),
    /// Nothing was appended since the append of this number.
    LogIdle(u64),
    ToWriter(Box<FrozenState>),
    WriterBegins,
    WriterEnds,
    /// All snapshots are read.
    Scrub,
    ToReceiver(Receive),
    /// The process ends because of a fault.
    Die,
}

/// Pairs between which order is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Channel {
    ToServer(LinkId),
    ToClient(LinkId),
    ConsensusToShard(usize),
    ShardToConsensus(usize),
    ConsensusToLog,
    LogToConsensus,
    ConsensusToWriter,
    WriterToConsensus,
    ConsensusToReceiver,
    ReceiverToConsensus,
    Wire(usize, usize),
    /// Reports of a link's threads to the consensus actor, by the other server.
    LinksToConsensus(usize),
}
