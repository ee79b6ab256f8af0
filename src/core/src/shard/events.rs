//! Events of a shard.
//!
//! Plain data, of the driver and of other threads.

use crate::apply::outcome::AppliedBatch;
use crate::ids::{ConnId, Zxid};
use crate::rate::AddressMeter;
use crate::shard::sasl::Users;
use crate::tree::delta::Delta;
use crate::tree::snapshot::Snapshot;
use crate::tree::view::View;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddr;

/// An event for [`Shard::handle`](super::Shard::handle).
pub enum ShardEvent<'a> {
    /// An event of a connection's socket. It is ignored if the connection has ended.
    Client(ConnId, ClientEvent<'a>),
    /// A message of another thread. Messages of one sender are given in the order in which they were sent.
    Message(ShardMessage),
    /// Time passes. Given every few hundred milliseconds; answered by [`Effects::activity`](super::Effects::activity).
    Tick,
    /// The audit log has enough records to write: writes wait unread until [`ShardMessage::WritesGoOn`].
    HoldWrites,
}

/// An event of a connection's socket.
#[derive(Clone, Copy)]
pub enum ClientEvent<'a> {
    /// Bytes were received. All are taken, also those of a connection that is stalled.
    Received {
        /// The bytes, in the order in which they were received.
        bytes: &'a [u8],
        /// The newest zxid that any shard of this server has applied: these bytes are answered from no older state. The batch of that
        /// zxid is on its way to this shard.
        applied: Zxid,
    },
    /// The socket took so many bytes of [`Shard::unsent`](super::Shard::unsent).
    Sent(usize),
    /// The client sends no more. It may still read, as netcat does: its requests are answered, then the connection ends.
    InputEnded,
    /// The socket failed, or the client closed it.
    Failed,
}

/// Where proposals go from now on. All shards are told, behind the batches that were applied before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Nowhere: no leader is known, and proposals wait here.
    Pause,
    /// To the leader.
    Resume,
    /// The commands that were handed out and have not come back have no known outcome: their connections end.
    Uncertain {
        /// Stamped on later proposals, so that earlier ones are known when they arrive late.
        generation: u32,
        /// The connections of commands that were not handed out end as well.
        unsent_too: bool,
    },
    /// No leader has been found for so long that all clients are sent away. Until [`Flow::Resume`].
    Leaderless,
    /// The state here is corrupt, and is not shown. Until [`ShardMessage::Install`].
    Distrusted,
}

/// A message for a shard, of the engine or of another thread.
#[derive(Clone)]
pub enum ShardMessage {
    /// A committed log entry, applied. Every shard of the server is given every entry, in their order.
    Batch(Arc<AppliedBatch>),
    /// The state machine froze its delta, and this one takes the place of the shard's own. Every batch before it was given.
    Adopt(Arc<Delta>),
    /// The frozen delta is in this snapshot.
    Swap(Arc<Snapshot>),
    /// Another server's snapshot replaced everything: the tree, and the number of live sessions. All connections end.
    Install(Arc<View>, u64),
    /// Whether commands are accepted from here on.
    Flow(Flow),
    /// Whether writes that add data are answered `QUOTAEXCEEDED` from here on, and not proposed.
    Growth(bool),
    /// Answer the requests in flight, read nothing more, then close every connection.
    Drain,
    /// The `sync` requests of these connections, see [`Requests::syncs`](super::Requests::syncs), are answered by the leader. Every batch before that was given.
    Synced(Vec<ConnId>),
    /// The `sync` requests of these connections fail: no leader confirmed the read index in time.
    SyncRefused(Vec<ConnId>),
    /// The sessions that these connections asked for are refused: password or id do not match.
    Refused(Vec<ConnId>),
    /// The answer to one of [`Effects::questions`](super::Effects::questions).
    FourLetterAnswered {
        /// The connection that asked.
        conn: ConnId,
        /// The whole answer.
        text: String,
    },
    /// The audit log has caught up: writes go on after [`ShardEvent::HoldWrites`].
    WritesGoOn,
    /// Close so many of a hundred connections in the next ticks. Their sessions go on.
    Shed(u8),
    /// The users of SASL were read again.
    SaslUsers(Arc<Users>),
}

/// A connection that was accepted, for [`Shard::accept`](super::Shard::accept).
#[derive(Clone, Debug)]
pub struct NewClient {
    /// Address and port of the client.
    pub peer: SocketAddr,
    /// Fresh from the system's generator: the password of a session.
    pub entropy: [u8; 16],
    /// The connection is read only while its address keeps to the limits on requests and bytes in a second. `None`: there are no limits.
    pub meter: Option<Arc<AddressMeter>>,
    /// Whether it uses TLS.
    pub is_secured: bool,
    /// Subject of the client certificate that was proved.
    pub subject: Option<String>,
}

impl NewClient {
    /// A client without limits and without TLS.
    pub const fn new(peer: SocketAddr, entropy: [u8; 16]) -> Self {
        Self { peer, entropy, meter: None, is_secured: false, subject: None }
    }
}

/// The batch that is applied in part, and the messages behind it.
#[derive(Default)]
pub(super) struct Mailbox {
    /// With the number of its next transaction.
    pub(super) unfinished: Option<(Arc<AppliedBatch>, usize)>,
    pub(super) waiting: VecDeque<ShardMessage>,
}

impl Mailbox {
    /// Whether a batch is applied in part, or messages wait behind it.
    pub(super) fn is_busy(&self) -> bool {
        self.unfinished.is_some() || !self.waiting.is_empty()
    }
}
