//! Every message between threads: closed enums, one mailbox an actor, a batch a message.
//!
//! Channels are unbounded on purpose, because messages are bounded at their source: bytes in flight per shard, appends
//! under way, one snapshot at a time. Batches are bounded by the slowest shard.

use std::net::TcpListener;
use std::sync::{Arc, Weak};

use corral_core::ids::{ConnId, ShardId};
use corral_core::report::{Gathered, SessionMark, SessionPiece};
use corral_core::sequencer::FrozenState;
use corral_core::shard::pieces::Piece;
use corral_core::shard::{Question, Requests, ShardMessage};
use corral_core::tree::snapshot::Snapshot;
pub(crate) use corral_engine::Event;
use corral_engine::{Garbage, Receive};
use corral_types::Micros;
use corral_wire::fourletter::FourLetter;
use tokio::sync::oneshot;

use crate::net::acceptor::{Accepted, SharedAcceptor};
use crate::net::peers::ConnectionEvent;

/// To a shard actor.
pub(crate) enum ToShard {
    /// For the shard, and when it was sent if the consensus actor sent it.
    Message { message: ShardMessage, sent: Option<Micros> },
    /// A client connected and was given to this shard.
    Accepted(Accepted),
    /// Accept connections, for all shards: from the listeners that this one's ring is given.
    Accept(SharedAcceptor),
    /// This one's ring serves this listener from now on, and none before it.
    Listen(TcpListener),
    /// An asker waits for the answer to a four-letter command. A piece of it is wanted, from this place on.
    PieceAsked { asker: Asker, command: FourLetter, from: usize },
}

impl From<ShardMessage> for ToShard {
    fn from(message: ShardMessage) -> ToShard {
        ToShard::Message { message, sent: None }
    }
}

/// To the consensus actor.
pub(crate) enum ToConsensus {
    /// [`Event::Requests`] of a shard, and when it was sent.
    Requests { shard: ShardId, requests: Requests, sent: Micros },
    /// Something that the engine is to know.
    Event(Event),
    /// Of an ensemble: something happened on a connection to another server.
    Peer(ConnectionEvent),
    /// The engine wanted a turn at this time.
    Timer,
    /// An asker waits for the answer to `dump`. Sessions are wanted, from this one on.
    SessionsAsked { asker: Asker, from: SessionMark },
}

impl From<Event> for ToConsensus {
    fn from(event: Event) -> ToConsensus {
        ToConsensus::Event(event)
    }
}

/// Where an answer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Asker {
    /// A connection that sent a four-letter command.
    Connection { shard: ShardId, conn: ConnId },
    /// A request by HTTP, by its number.
    Http(u64),
}

/// To the control thread.
pub(crate) enum ToControl {
    /// A connection of this shard sent a four-letter command.
    Asked { shard: ShardId, question: Question },
    /// A request by HTTP wants to know what this command tells, or to have it carried out.
    HttpAsked { command: FourLetter, argument: i64, reply: oneshot::Sender<Gathered> },
    /// Shards close so many of a hundred connections.
    Shed { percent: u8 },
    /// The counters of the connections to observers begin anew.
    ObserversReset,
    /// The server is to stop.
    Stop,
    /// A snapshot is to be written, if anything changed since the last one.
    SnapshotWanted,
    /// Messages of a shard.
    Piece { asker: Asker, shard: ShardId, piece: Box<Piece> },
    /// Messages of the leader.
    Sessions { asker: Asker, piece: Box<SessionPiece> },
    /// The connection has its answer, or is gone.
    Ended(Asker),
}

/// To the thread that writes another server's snapshot.
pub(crate) enum ToSnapshotReceiver {
    /// The state here is not to be trusted for this reason, or is again: a later process must know it.
    Note(Option<String>),
    Receive(Receive),
}

/// To the snapshot writer.
pub(crate) enum ToWriter {
    Write(Box<FrozenState>),
    /// Another snapshot, `by`, took the place of this one. Changes may have copied from it until now.
    Replaced {
        snapshot: Arc<Snapshot>,
        by: Weak<Snapshot>,
        /// As in [`corral_engine::Effect::Replaced`].
        installs: u64,
    },
    /// As [`corral_engine::Effect::Installed`].
    Installed {
        zxid: u64,
        index: u64,
    },
    /// To be dropped here, where it delays no request.
    Drop(Garbage),
    /// A shard's clients have fallen silent: a good time to give memory back.
    Calm,
}
