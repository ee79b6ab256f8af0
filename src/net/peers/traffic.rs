//! The messages that wait for one peer, and the counters of both directions.
//!
//! Shared by the sending threads, the peer's sender thread, and the threads that receive from it. No operation waits.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use corral_peer::Kind;

use crate::net::peers::limits::MESSAGE_OVERHEAD_BYTES;

/// A message on its way out.
pub(crate) struct Outgoing {
    pub(crate) stream: u64,
    pub(crate) kind: Kind,
    pub(crate) payload: Bytes,
}

/// The waiting messages of one peer, and the counters of both directions.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    /// Waiting bytes, with `MESSAGE_OVERHEAD_BYTES` a message. A message that is being written counts too.
    waiting_bytes: AtomicUsize,
    waiting_messages: AtomicUsize,
    pub(crate) counters: Counters,
}

/// Counters since the start; each written by one thread mostly, read by any.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) bytes_out: AtomicU64,
    pub(crate) messages_out: AtomicU64,
    pub(crate) bytes_in: AtomicU64,
    pub(crate) messages_in: AtomicU64,
    /// Messages that were accepted or should have been, and lost.
    pub(crate) dropped: AtomicU64,
    /// Connections that stood, by direction.
    pub(crate) connections_out: AtomicU64,
    pub(crate) connections_in: AtomicU64,
    pub(crate) dials_failed: AtomicU64,
    /// Connections that stand now.
    pub(crate) up_in: AtomicU64,
}

impl Traffic {
    /// Adds a message. Returns the number of messages and bytes that waited before.
    pub(crate) fn add(&self, cost: usize) -> (usize, usize) {
        let bytes = self.waiting_bytes.fetch_add(cost, Ordering::Relaxed);
        (self.waiting_messages.fetch_add(1, Ordering::Relaxed), bytes)
    }

    pub(crate) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn waiting_messages(&self) -> usize {
        self.waiting_messages.load(Ordering::Relaxed)
    }

    /// Messages are written or given up.
    pub(crate) fn release(&self, messages: usize, cost: usize) {
        self.waiting_bytes.fetch_sub(cost, Ordering::Relaxed);
        self.waiting_messages.fetch_sub(messages, Ordering::Relaxed);
    }

    /// A message is lost: it was queued for a connection that has ended.
    pub(crate) fn lose(&self, message: &Outgoing) {
        self.release(1, message.payload.len() + MESSAGE_OVERHEAD_BYTES);
        self.counters.dropped.fetch_add(1, Ordering::Relaxed);
    }
}
