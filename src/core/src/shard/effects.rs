//! Effects: what a shard asks of its driver.

use super::slow::SlowRequests;
use crate::apply::StateMachine;
use crate::command::Proposals;
use crate::ids::{ConnId, Millis, SessionId};
use crate::session::Ephemerals;
use crate::shard::audit::Record;
use crate::shard::conn::Close;
use crate::shard::watch::WatchTable;
use crate::tree::delta::Delta;
use crate::tree::snapshot::Snapshot;
use crate::tree::view::View;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use corral_types::Micros;
use corral_wire::OpCode;
use corral_wire::fourletter::FourLetter;

/// Tasks of a shard for its driver since the last [`Shard::take_effects`](super::Shard::take_effects). Each list is in
/// the order in which its entries came. The driver carries out all of them, and empties the lists.
#[derive(Debug, Default)]
pub struct Effects {
    /// Connections with bytes to be sent, see [`Shard::unsent`](super::Shard::unsent).
    pub dirty: Vec<ConnId>,
    /// Connections with sockets that are read again, see [`Shard::is_stalled`](super::Shard::is_stalled).
    pub resumed: Vec<ConnId>,
    /// Connections that have ended, and why: their sockets are closed. A connection does not stand in a list after this one.
    pub closed: Vec<(ConnId, Close)>,
    /// Requests for the leader, which the consensus actor is given in this order. A turn has several if its proposals have too many bytes
    /// for one.
    pub requests: Vec<Requests>,
    /// Four-letter commands that others answer too. Each is answered by a [`ShardMessage::FourLetterAnswered`](super::ShardMessage).
    pub questions: Vec<Question>,
    /// To be dropped on another thread.
    pub garbage: Vec<Garbage>,
    /// How many batches were applied to their ends.
    pub applied: usize,
    /// The sessions that were active since the last tick. Each tick has one, for the consensus actor.
    pub activity: Option<SessionActivity>,
    /// For the audit log, if [`ShardConfig::audit`](super::ShardConfig::audit) says so: the writes of this shard's clients that came to
    /// their end. On the first shard also the ephemerals of all sessions that ended.
    pub audited: Vec<Record>,
    /// Requests that were answered, to be timed. After [`ANSWERED_MAX`](crate::limits::ANSWERED_MAX) of them no more are added.
    pub answered: Vec<Answer>,
    /// Requests that took [`ShardConfig::slow_request_ms`](super::ShardConfig::slow_request_ms) or longer.
    pub slow: SlowRequests,
    /// The last connection has ended after [`ShardMessage::Drain`](super::ShardMessage). Given once.
    pub drained: bool,
}

impl Effects {
    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        self.dirty.is_empty()
            && self.resumed.is_empty()
            && self.closed.is_empty()
            && self.requests.is_empty()
            && self.questions.is_empty()
            && self.garbage.is_empty()
            && self.applied == 0
            && self.activity.is_none()
            && self.audited.is_empty()
            && self.answered.is_empty()
            && self.slow.is_empty()
            && !self.drained
    }
}

/// Requests of a shard for the leader.
#[derive(Debug, Default)]
pub struct Requests {
    /// Commands to be written, in the order in which clients sent them.
    pub proposals: Proposals,
    /// Connections with a `sync`, or a linearizable read, that waits for the leader. Each is answered by a
    /// [`ShardMessage::Synced`](super::ShardMessage) or [`ShardMessage::SyncRefused`](super::ShardMessage) behind these
    /// proposals.
    pub syncs: Vec<ConnId>,
}

/// A report of the sessions that were active.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionActivity {
    /// The time up to which the report is complete.
    pub upto: Millis,
    /// Sessions that were active since the last report, each with its time.
    pub sessions: Vec<(SessionId, Millis)>,
}

/// Structures that are dropped on another thread: to free a million entries takes long.
#[derive(Debug)]
pub enum Garbage {
    /// A shard's own changes, replaced by equal frozen ones.
    Delta(Delta),
    /// Changes that the newest snapshot contains.
    Frozen(Arc<Delta>),
    /// A snapshot that was replaced by a newer one.
    Snapshot(Arc<Snapshot>),
    /// The whole tree of a shard, replaced by another server's snapshot.
    View(Box<View>),
    /// A long list of ephemerals of a session that ended or moved.
    Ephemerals(Ephemerals),
    /// A watch table that was replaced, or emptied parts of a table.
    Watches(Box<WatchTable>),
    /// The former state of a state machine.
    State(Box<StateMachine>),
    /// Of a former leader, never ordered.
    Unordered(VecDeque<Proposals>),
}

/// A connection that waits for the answer to a four-letter command.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// The connection that asked.
    pub conn: ConnId,
    /// The command to be answered.
    pub command: FourLetter,
    /// The number behind the word; 0 for all but `stmk`.
    pub argument: i64,
}

/// A request that was answered.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// The operation of the request.
    pub op: OpCode,
    /// When it was received.
    pub at: Micros,
}
