//! The requests of a connection that are not answered, oldest first.

use crate::ids::Zxid;
use crate::shard::read::{GradualList, Rewatch};
use crate::shard::walk::Walk;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use corral_types::Micros;
use corral_wire::OpCode;

/// A request that was taken but not answered.
#[derive(Debug)]
pub(crate) enum Pending {
    /// Proposed; the outcome comes with a committed batch.
    Write { xid: i32, op: OpCode, at: Micros },
    /// A membership change that was ordered; its answer comes later.
    Underway { xid: i32, op: OpCode, at: Micros },
    /// The session command of a connect request.
    Connect { at: Micros },
    /// The whole frame of a request that waits for the requests before it. It also waits for a view that is at least at
    /// `floor`, and for the connection's barrier of that number.
    Queued { frame: Box<[u8]>, floor: Zxid, barrier: u64, at: Micros },
    /// A read that takes more than a turn: not begun, or under way when it is the first of all.
    Long { xid: i32, op: OpCode, record: Box<[u8]>, begun: Option<Box<Long>>, floor: Zxid, barrier: u64, at: Micros },
    /// A sync on its way to the leader and back; `path` is echoed.
    Sync { xid: i32, path: Option<Box<[u8]>>, done: bool, at: Micros },
}

/// A read under way.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "always in a box, and one at a time for each connection")]
pub(crate) enum Long {
    Walk(Walk),
    List(GradualList),
    Rewatch(Rewatch),
}

impl Long {
    /// Bytes that it holds.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Walk(walk) => walk.bytes(),
            Self::List(list) => list.bytes(),
            Self::Rewatch(rewatch) => rewatch.bytes(),
        }
    }
}

impl Pending {
    /// The zxid that the view must have reached before it is answered as the first one. `None` if it cannot be answered yet.
    pub(crate) fn ready_at(&self) -> Option<Zxid> {
        match self {
            Self::Queued { floor, .. } | Self::Long { begun: None, floor, .. } => Some(*floor),
            Self::Sync { done: true, .. } => Some(Zxid(0)),
            Self::Write { .. }
            | Self::Underway { .. }
            | Self::Connect { .. }
            | Self::Long { .. }
            | Self::Sync { .. } => None,
        }
    }

    /// Whether nothing more is taken before it is answered.
    pub(crate) const fn blocks(&self) -> bool {
        match self {
            Self::Write { op, .. } => matches!(op, OpCode::CloseSession | OpCode::Reconfig),
            Self::Underway { .. } | Self::Long { .. } => true,
            Self::Sync { done, .. } => !*done,
            Self::Connect { .. } | Self::Queued { .. } => false,
        }
    }

    /// Bytes of a request that waits whole.
    fn queued_bytes(&self) -> u32 {
        match self {
            Self::Queued { frame, .. } => u32::try_from(frame.len()).expect("a frame is below 2 GiB"),
            _ => 0,
        }
    }

    /// Bytes that are held for it, but for a queued request's.
    fn bytes(&self) -> usize {
        match self {
            Self::Long { begun, record, .. } => record.len() + begun.as_ref().map_or(0, |long| long.bytes()),
            Self::Sync { path, .. } => path.as_ref().map_or(0, |path| path.len()),
            Self::Write { .. } | Self::Underway { .. } | Self::Connect { .. } | Self::Queued { .. } => 0,
        }
    }

    /// The connection's barrier that it waits for; 0 for none.
    pub(crate) fn barrier(&self) -> u64 {
        match self {
            Self::Queued { barrier, .. } | Self::Long { barrier, .. } => *barrier,
            Self::Write { .. } | Self::Underway { .. } | Self::Connect { .. } | Self::Sync { .. } => 0,
        }
    }
}

/// Requests of a connection that are not answered, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    list: VecDeque<Pending>,
    /// How many of them are proposed, and are answered by a committed batch.
    proposed: u32,
    /// Bytes of requests that wait as whole frames.
    queued_bytes: u32,
}

impl Requests {
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// How many are not proposed.
    pub(crate) fn unproposed(&self) -> usize {
        self.list.len() - self.proposed as usize
    }

    #[inline]
    pub(crate) const fn proposed(&self) -> u32 {
        self.proposed
    }

    /// Bytes of requests that wait whole.
    #[inline]
    pub(crate) const fn queued_bytes(&self) -> usize {
        self.queued_bytes as usize
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<&Pending> {
        self.list.front()
    }

    pub(crate) fn front_mut(&mut self) -> Option<&mut Pending> {
        self.list.front_mut()
    }

    pub(crate) fn back_mut(&mut self) -> Option<&mut Pending> {
        self.list.back_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Pending> {
        self.list.iter()
    }

    #[inline]
    pub(crate) fn push(&mut self, pending: Pending) {
        self.queued_bytes += pending.queued_bytes();
        self.list.push_back(pending);
    }

    /// It is the first again.
    pub(crate) fn push_front(&mut self, pending: Pending) {
        self.queued_bytes += pending.queued_bytes();
        self.list.push_front(pending);
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Pending> {
        let first = self.list.pop_front()?;
        self.queued_bytes -= first.queued_bytes();
        Some(first)
    }

    /// One more is proposed.
    #[inline]
    pub(crate) const fn note_proposed(&mut self) {
        self.proposed += 1;
    }

    /// A proposed request has come back.
    #[inline]
    pub(crate) const fn note_back(&mut self) {
        self.proposed -= 1;
    }

    /// Bytes that are held for a request behind which nothing is taken: the last, or a read that turned out to be long, the first.
    pub(crate) fn blocking_bytes(&self) -> usize {
        let last = self.list.back().filter(|_| self.list.len() > 1);
        [self.list.front(), last].into_iter().flatten().map(Pending::bytes).sum()
    }

    /// Gives back the memory of an empty list. Whether none is left.
    pub(crate) fn shrink(&mut self) -> bool {
        if self.list.is_empty() {
            self.list = VecDeque::new();
        }
        self.list.capacity() == 0
    }
}
