//! The connection to a peer, with the writes to it: the outbox's queue, a batch at a time.
//!
//! It lives on the sender's thread, which leaves it to the outbox while it sleeps. Then a thread with little to send
//! writes it itself, which wakes no thread here. No operation waits: what the socket does not take is left for the
//! sender's thread.

use std::io::{ErrorKind, IoSlice};
use std::sync::atomic::Ordering;

use corral_peer::FrameKey;

use crate::net::peers::batch::Batch;
use crate::net::peers::channel::Channel;
use crate::net::peers::event::Reason;
use crate::net::peers::limits::{MESSAGE_OVERHEAD_BYTES, PIECES_MAX};
use crate::net::peers::traffic::{Outgoing, Traffic};

/// An open connection to a peer, with its queue and batch.
pub(crate) struct Outlet {
    pub(crate) channel: Channel,
    pub(crate) stream: u64,
    queue: flume::Receiver<Outgoing>,
    batch: Batch,
    /// The connection is over, as another thread than the sender's has found.
    failed: Option<Reason>,
}

impl Outlet {
    pub(crate) fn new(
        channel: Channel,
        key: Option<FrameKey>,
        stream: u64,
        queue: flume::Receiver<Outgoing>,
    ) -> Outlet {
        Outlet { channel, stream, queue, batch: Batch::new(key), failed: None }
    }

    /// Whether there is nothing to write and all is well.
    pub(crate) fn is_idle(&self) -> bool {
        self.batch.is_empty() && self.queue.is_empty() && self.failed.is_none()
    }

    /// Writes what waits, until nothing does or the socket takes no more, and counts the bytes. True when nothing is
    /// left.
    ///
    /// # Errors
    /// Why the connection is over.
    pub(crate) fn write(&mut self, traffic: &Traffic, taken: &mut usize) -> Result<bool, Reason> {
        if let Some(reason) = self.failed.take() {
            return Err(reason);
        }
        loop {
            if self.batch.is_empty() {
                self.fill(traffic);
            }
            if self.batch.is_empty() {
                return Ok(true);
            }
            if !self.write_batch(taken)? {
                return Ok(false);
            }
            let counters = &traffic.counters;
            counters.bytes_out.fetch_add(self.batch.bytes() as u64, Ordering::Relaxed);
            counters.messages_out.fetch_add(self.batch.frames() as u64, Ordering::Relaxed);
            traffic.release(self.batch.frames(), self.cost());
            self.batch.clear();
        }
    }

    /// As `write`, for a thread that finds it idle. True when nothing is left to be done by the sender's thread.
    pub(crate) fn write_for_sender(&mut self, traffic: &Traffic) -> bool {
        match self.write(traffic, &mut 0) {
            Ok(done) => done,
            Err(reason) => {
                self.failed = Some(reason);
                false
            }
        }
    }

    /// Waiting messages are lost with the connection.
    pub(crate) fn give_up(&mut self, traffic: &Traffic) {
        self.channel.close();
        traffic.release(self.batch.frames(), self.cost());
        traffic.counters.dropped.fetch_add(self.batch.frames() as u64, Ordering::Relaxed);
        self.queue.try_iter().for_each(|message| traffic.lose(&message));
    }

    fn fill(&mut self, traffic: &Traffic) {
        while self.batch.has_room()
            && let Ok(message) = self.queue.try_recv()
        {
            if message.stream == self.stream {
                self.batch.push(message.kind, message.payload);
            } else {
                traffic.lose(&message);
            }
        }
    }

    /// Whether the whole batch is in the kernel.
    fn write_batch(&mut self, taken: &mut usize) -> Result<bool, Reason> {
        loop {
            let mut room = [IoSlice::new(&[]); PIECES_MAX];
            let count = self.batch.slices(&mut room);
            let done = if count > 0 { self.channel.write(&room[..count]) } else { self.channel.flush().map(|()| 0) };
            match done {
                Ok(0) if count == 0 => return Ok(true),
                Ok(0) => return Err(Reason::Closed),
                Ok(bytes) => {
                    self.batch.written(bytes);
                    *taken += bytes;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(Reason::of(&error)),
            }
        }
    }

    /// The bytes that the batch counts in the queue.
    fn cost(&self) -> usize {
        self.batch.payload_bytes() + self.batch.frames() * MESSAGE_OVERHEAD_BYTES
    }
}
