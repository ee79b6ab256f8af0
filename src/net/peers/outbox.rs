//! The queue of messages to one peer, and its bounds.
//!
//! Shared by the sending threads, the peer's sender thread, and the threads that receive from it. No operation waits.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use bytes::Bytes;
use corral_consensus::ServerId;
use corral_peer::Kind;
use corral_peer::frame::PAYLOAD_BYTES_MAX;

use crate::net::peers::limits::{DIRECT_BYTES_MAX, MESSAGE_OVERHEAD_BYTES};
use crate::net::peers::outlet::Outlet;
use crate::net::peers::traffic::{Counters, Outgoing, Traffic};
use crate::runtime::mailbox::Bell;

/// Why a message was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotSent {
    /// There is no such peer.
    #[error("no such peer is configured")]
    Unknown,
    /// No connection stands, or not the one meant any more.
    #[error("the peer is not connected")]
    Down,
    /// Longer than a frame may be.
    #[error("the message is longer than a frame may be")]
    TooLong,
    /// The queue is full; the message may be lost and is.
    #[error("the queue is full, the message is dropped")]
    Dropped,
    /// The queue is full; the message must not be lost, so the connection ends.
    #[error("the queue is full, the connection ends")]
    Broken,
}

/// Bounds of a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueLimits {
    pub(crate) bytes_max: usize,
    pub(crate) messages_max: usize,
}

/// The queue of messages to one peer, and its counters.
pub(crate) struct PeerOutbox {
    pub(crate) peer: ServerId,
    limits: QueueLimits,
    queue: flume::Sender<Outgoing>,
    /// The connection while the sender's thread sleeps.
    left: Mutex<Option<Outlet>>,
    /// Wakes the sender's thread.
    pub(crate) bell: Arc<Bell>,
    /// The connection that stands; 0 = none.
    stream: AtomicU64,
    /// The last connection that must end because a message did not fit.
    doomed: AtomicU64,
    /// The peer was heard of: a pause between dials ends.
    dial_now: AtomicBool,
    /// The peer is not one any more, or the connections are stopped.
    stopping: AtomicBool,
    pub(crate) traffic: Traffic,
}

impl PeerOutbox {
    /// The outbox, and the end of its queue that its sender's thread takes from.
    pub(crate) fn new(peer: ServerId, limits: QueueLimits, bell: Arc<Bell>) -> (PeerOutbox, flume::Receiver<Outgoing>) {
        let (queue, inbox) = flume::unbounded();
        let outbox = PeerOutbox {
            peer,
            limits,
            queue,
            left: Mutex::new(None),
            bell,
            stream: AtomicU64::new(0),
            doomed: AtomicU64::new(0),
            dial_now: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            traffic: Traffic::default(),
        };
        (outbox, inbox)
    }

    /// Queues a message for the connection that stands, or for `wanted` alone; it leaves with the next
    /// [`PeerOutbox::flush`] at the latest.
    pub(crate) fn send(&self, wanted: Option<u64>, kind: Kind, payload: Bytes) -> Result<(), NotSent> {
        let stream = self.stream.load(Ordering::Acquire);
        if stream == 0 || wanted.is_some_and(|wanted| wanted != stream) {
            return Err(NotSent::Down);
        }
        if payload.len() > PAYLOAD_BYTES_MAX as usize {
            return Err(NotSent::TooLong);
        }
        let cost = payload.len() + MESSAGE_OVERHEAD_BYTES;
        let (messages, bytes) = self.traffic.add(cost);
        let full = bytes + cost > self.limits.bytes_max || messages >= self.limits.messages_max;
        if full && messages > 0 {
            self.traffic.release(1, cost);
            self.traffic.counters.dropped.fetch_add(1, Ordering::Relaxed);
            if kind.is_droppable() {
                return Err(NotSent::Dropped);
            }
            self.doom(stream);
            return Err(NotSent::Broken);
        }
        // Fails only when the sender's thread has ended, which it does when the connections are stopped.
        self.queue.send(Outgoing { stream, kind, payload }).map_err(|_| NotSent::Down)
    }

    /// Sends the queued messages. This thread writes a little at once if the sender's thread sleeps; otherwise the
    /// sender's thread writes. Never waits.
    pub(crate) fn flush(&self) {
        if self.traffic.waiting_messages() == 0 {
            return;
        }
        let is_little = self.traffic.waiting_bytes() <= DIRECT_BYTES_MAX;
        if is_little && !self.is_stopping() {
            let mut left = match self.left.try_lock() {
                Ok(left) => left,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return self.bell.ring(),
            };
            if left
                .as_mut()
                .is_some_and(|outlet| !self.is_doomed(outlet.stream) && outlet.write_for_sender(&self.traffic))
            {
                return;
            }
        }
        self.bell.ring();
    }

    fn left(&self) -> MutexGuard<'_, Option<Outlet>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sender's thread is about to sleep, and leaves the connection to threads with little to send.
    pub(crate) fn leave(&self, outlet: Outlet) {
        *self.left() = Some(outlet);
    }

    /// Whether there is nothing to be done for the sender's thread, which has left the connection.
    pub(crate) fn is_idle(&self) -> bool {
        self.left().as_ref().is_some_and(Outlet::is_idle) && !self.is_stopping()
    }

    /// The sender's thread is awake again.
    pub(crate) fn take_back(&self) -> Outlet {
        self.left().take().expect("the sender's thread alone takes it")
    }

    /// Nothing more is taken for this connection, and it ends.
    fn doom(&self, stream: u64) {
        self.doomed.store(stream, Ordering::Release);
        let _ = self.stream.compare_exchange(stream, 0, Ordering::AcqRel, Ordering::Relaxed);
        self.bell.rouse();
    }

    pub(crate) fn is_doomed(&self, stream: u64) -> bool {
        self.doomed.load(Ordering::Acquire) == stream
    }

    /// A connection stands; for the sender's thread.
    pub(crate) fn open(&self, stream: u64) {
        self.stream.store(stream, Ordering::Release);
        self.traffic.counters.connections_out.fetch_add(1, Ordering::Relaxed);
    }

    /// It does not any more; for the sender's thread.
    pub(crate) fn close(&self) {
        self.stream.store(0, Ordering::Release);
    }

    /// The peer is there: a sender that waits to dial it shall do so now.
    pub(crate) fn dial_now(&self) {
        if self.stream.load(Ordering::Relaxed) == 0 {
            self.dial_now.store(true, Ordering::Release);
            self.bell.rouse();
        }
    }

    /// The sender's thread shall end, after what is queued has been written if that goes quickly.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.bell.rouse();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Whether to dial now; for the sender's thread.
    pub(crate) fn is_urgent(&self) -> bool {
        self.dial_now.swap(false, Ordering::AcqRel)
    }

    /// The figures of now.
    pub(crate) fn stats(&self) -> PeerStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { connections_out, connections_in, .. } = &self.traffic.counters;
        PeerStats {
            peer: self.peer,
            up_out: self.stream.load(Ordering::Relaxed) != 0,
            up_in: read(&self.traffic.counters.up_in) != 0,
            bytes_out: read(&self.traffic.counters.bytes_out),
            messages_out: read(&self.traffic.counters.messages_out),
            bytes_in: read(&self.traffic.counters.bytes_in),
            messages_in: read(&self.traffic.counters.messages_in),
            dropped: read(&self.traffic.counters.dropped),
            reconnects: read(connections_out).saturating_sub(1) + read(connections_in).saturating_sub(1),
            dials_failed: read(&self.traffic.counters.dials_failed),
            queued_bytes: self.traffic.waiting_bytes(),
            queued_messages: self.traffic.waiting_messages(),
        }
    }
}

/// The figures of the connections with one peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PeerStats {
    pub(crate) peer: ServerId,
    /// Whether the connection to it stands.
    pub(crate) up_out: bool,
    /// Whether the connection from it stands.
    pub(crate) up_in: bool,
    /// Frames written to the kernel, with their headers.
    pub(crate) bytes_out: u64,
    pub(crate) messages_out: u64,
    /// Received bytes, of whole frames and of the received part of the next one.
    pub(crate) bytes_in: u64,
    pub(crate) messages_in: u64,
    /// Messages that did not fit into the queue, or were in it when the connection ended.
    pub(crate) dropped: u64,
    /// Connections after the first, of both directions.
    pub(crate) reconnects: u64,
    pub(crate) dials_failed: u64,
    /// Bytes that wait to be written, with some overhead a message.
    pub(crate) queued_bytes: usize,
    pub(crate) queued_messages: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outbox(bytes_max: usize, messages_max: usize) -> (PeerOutbox, flume::Receiver<Outgoing>) {
        let bell = Bell::new().expect("a file can be opened");
        PeerOutbox::new(ServerId(2), QueueLimits { bytes_max, messages_max }, bell)
    }

    fn bytes(length: usize) -> Bytes {
        Bytes::from(vec![0; length])
    }

    #[test]
    fn nothing_is_queued_without_its_connection() {
        let (outbox, _inbox) = outbox(1 << 20, 10);
        assert_eq!(outbox.send(None, Kind::Raft, bytes(1)), Err(NotSent::Down));
        outbox.open(5);
        assert_eq!(outbox.send(Some(4), Kind::Raft, bytes(1)), Err(NotSent::Down));
        assert_eq!(outbox.send(Some(5), Kind::Raft, bytes(1)), Ok(()));
        assert_eq!(outbox.send(None, Kind::Raft, bytes(PAYLOAD_BYTES_MAX as usize + 1)), Err(NotSent::TooLong));
        outbox.close();
        assert_eq!(outbox.send(Some(5), Kind::Raft, bytes(1)), Err(NotSent::Down));
        assert_eq!(outbox.stats().queued_messages, 1);
    }

    #[test]
    fn a_full_queue_drops_what_may_be_lost_and_ends_the_connection_for_the_rest() {
        for (outbox, _inbox) in [outbox(1000, 100), outbox(1 << 20, 2)] {
            outbox.open(5);
            // One fits always, however large it is.
            assert_eq!(outbox.send(None, Kind::Forward, bytes(700)), Ok(()));
            let more = outbox.send(None, Kind::Raft, bytes(10));
            assert_eq!(more, Ok(()));
            assert_eq!(outbox.send(None, Kind::Heartbeat, bytes(500)), Err(NotSent::Dropped));
            assert!(!outbox.is_doomed(5));
            assert_eq!(outbox.send(None, Kind::SessionReport, bytes(500)), Err(NotSent::Broken));
            assert!(outbox.is_doomed(5));
            // Even what would fit: it must not follow a gap.
            assert_eq!(outbox.send(Some(5), Kind::SessionReport, bytes(0)), Err(NotSent::Down));
            assert_eq!((outbox.stats().dropped, outbox.stats().queued_messages), (2, 2));
            outbox.open(6);
            assert!(!outbox.is_doomed(6));
        }
        let (outbox, _inbox) = outbox(100, 100);
        outbox.open(5);
        assert_eq!(outbox.send(None, Kind::SessionReport, bytes(5000)), Ok(()));
    }
}
