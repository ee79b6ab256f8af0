//! The requests of a shard to its driver.

use crate::audit::Record;
use crate::command::Proposals;
use crate::conn::Close;
use crate::delta::Delta;
use crate::evaluate::StateMachine;
use crate::ids::{ConnId, Micros};
use crate::session::Ephemerals;
use crate::snapshot::Snapshot;
use crate::view::View;
use crate::watch::WatchTable;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use corral_wire::OpCode;
use corral_wire::fourletter::FourLetter;

/// Things that are dropped somewhere else: freeing a million entries would stop this core.
#[derive(Debug)]
pub enum Garbage {
    Delta(Delta),
    Frozen(Arc<Delta>),
    Snapshot(Arc<Snapshot>),
    View(Box<View>),
    Ephemerals(Ephemerals),
    Watches(Box<WatchTable>),
    State(Box<StateMachine>),
    /// Of a former leader, never ordered.
    Unordered(VecDeque<Proposals>),
}

/// A connection that waits for [`Shard::answer_four_letter`](crate::shard::Shard::answer_four_letter).
#[derive(Clone, Copy, Debug)]
pub struct Question {
    pub conn: ConnId,
    pub command: FourLetter,
    /// What came behind the word; 0 for all but `stmk`.
    pub argument: i64,
}

/// A request that was answered.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    pub op: OpCode,
    /// When it was received.
    pub at: Micros,
}

/// What a shard asks of its driver, collected over a turn.
#[derive(Debug, Default)]
pub struct Outputs {
    /// Connections with something to send, see [`Shard::unsent`](crate::shard::Shard::unsent).
    pub dirty: Vec<ConnId>,
    /// Connections that may be read from again.
    pub resumed: Vec<ConnId>,
    /// Connections that have ended: the socket is to be closed.
    pub closed: Vec<(ConnId, Close)>,
    /// Connections whose sync, or whose read that must be linearizable, waits for the leader; one answer for each.
    pub syncs: Vec<ConnId>,
    /// four-letter commands to be answered with what others know.
    pub questions: Vec<Question>,
    pub garbage: Vec<Garbage>,
    /// For the audit log, if [`ShardConfig::audit`](crate::shard::ShardConfig::audit) says so: the writes of this shard's clients that came to their end, in that order.
    /// On the first shard also the ephemerals of all sessions that ended.
    pub audited: Vec<Record>,
}

impl Outputs {
    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        self.dirty.is_empty()
            && self.resumed.is_empty()
            && self.closed.is_empty()
            && self.syncs.is_empty()
            && self.questions.is_empty()
            && self.garbage.is_empty()
            && self.audited.is_empty()
    }
}
