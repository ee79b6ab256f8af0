//! A receiver: the thread that reads the frames of one connection that a peer dialled.
//!
//! One thread a connection, made by the listener once the handshake is welcomed. It blocks in the socket, and before
//! that until what it has handed on is dealt with. It writes nothing. It does not know what frames mean.

use std::io::{self, ErrorKind};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use corral_peer::{Decoder, FrameKey};
use rustix::event::{PollFd, PollFlags};

use crate::net::peers::Events;
use crate::net::peers::budget::Budget;
use crate::net::peers::channel::{Channel, pause};
use crate::net::peers::event::{ConnectionEvent, Direction, Reason};
use crate::net::peers::limits::{MESSAGE_OVERHEAD_BYTES, READ_BYTES};
use crate::net::peers::outbox::PeerOutbox;

/// The end of a connection that the listener keeps hold of.
pub(crate) struct Handle {
    socket: TcpStream,
    budget: Arc<Budget>,
    replaced: AtomicBool,
    shut: AtomicBool,
    stopped: AtomicBool,
    ended: AtomicBool,
}

impl Handle {
    /// # Errors
    /// When there is no descriptor left.
    pub(crate) fn new(channel: &Channel, budget: Arc<Budget>) -> io::Result<Arc<Handle>> {
        let flag = || AtomicBool::new(false);
        let socket = channel.socket().try_clone()?;
        Ok(Arc::new(Handle { socket, budget, replaced: flag(), shut: flag(), stopped: flag(), ended: flag() }))
    }

    /// Whether the connection is over, though its thread may not have told so yet: a process that starts again can be
    /// faster.
    pub(crate) fn is_over(&self) -> bool {
        let ends = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        let mut polled = [PollFd::from_borrowed_fd(self.socket.as_fd(), ends)];
        let mut polls = || pause(&mut polled, Some(Duration::ZERO)).is_ok() && polled[0].revents().intersects(ends);
        self.ended.load(Ordering::Acquire) || polls()
    }

    /// Ends the connection before another one of its peer begins.
    pub(crate) fn make_way(&self) {
        if self.is_over() {
            // It reads what came before the end, and waits for nothing more.
            self.budget.close();
        } else {
            self.end(&self.replaced);
        }
    }

    /// Ends the connection: what came on it is not understood.
    pub(crate) fn shut(&self) {
        self.end(&self.shut);
    }

    /// Ends the connection: this server stops.
    pub(crate) fn stop(&self) {
        self.end(&self.stopped);
    }

    fn end(&self, why: &AtomicBool) {
        why.store(true, Ordering::Release);
        self.budget.close();
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// Why the connection was ended on this side.
    fn reason(&self) -> Option<Reason> {
        if self.stopped.load(Ordering::Acquire) {
            return Some(Reason::Stopped);
        }
        if self.shut.load(Ordering::Acquire) {
            return Some(Reason::NotUnderstood);
        }
        self.replaced.load(Ordering::Acquire).then_some(Reason::Replaced)
    }
}

/// Reads the frames of one connection that a peer dialled.
pub(crate) struct Receiver {
    pub(crate) outbox: Arc<PeerOutbox>,
    pub(crate) channel: Channel,
    /// Of the frames, where the peer has proven that it holds the secret.
    pub(crate) key: Option<FrameKey>,
    pub(crate) handle: Arc<Handle>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) stream: u64,
    pub(crate) incarnation: u64,
    /// The connection that this one replaces; its end is told before this one's begin.
    pub(crate) before: Option<JoinHandle<()>>,
    /// How many threads of this peer live.
    pub(crate) living: Arc<AtomicUsize>,
    pub(crate) events: Events,
}

impl Receiver {
    /// Reads until the connection ends.
    pub(crate) fn run(mut self) {
        if let Some(before) = self.before.take() {
            // It was told to end, and its panic would have ended the process.
            let _ = before.join();
        }
        let (peer, stream, direction) = (self.outbox.peer, self.stream, Direction::In);
        self.outbox.traffic.counters.connections_in.fetch_add(1, Ordering::Relaxed);
        self.outbox.traffic.counters.up_in.fetch_add(1, Ordering::Relaxed);
        (self.events)(ConnectionEvent::Up { peer, direction, stream, incarnation: self.incarnation });
        let reason = self.read();
        self.handle.ended.store(true, Ordering::Release);
        let reason = self.handle.reason().unwrap_or(reason);
        self.channel.close();
        self.outbox.traffic.counters.up_in.fetch_sub(1, Ordering::Relaxed);
        match reason {
            // The log at info has only the connection to the peer.
            Reason::Stopped | Reason::Replaced | Reason::Closed | Reason::Reset => {
                tracing::debug!(peer = peer.0, stream, "the connection from the peer is closed: {reason}");
            }
            _ => tracing::warn!(peer = peer.0, stream, "the connection from the peer is lost: {reason}"),
        }
        (self.events)(ConnectionEvent::Down { peer, direction, stream, reason });
        self.living.fetch_sub(1, Ordering::AcqRel);
    }

    fn read(&mut self) -> Reason {
        let mut decoder = self.key.take().map_or_else(Decoder::new, Decoder::keyed);
        let mut room = vec![0; READ_BYTES];
        loop {
            self.budget.wait();
            let bytes = match self.channel.read(&mut room) {
                Ok(0) => return Reason::Closed,
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Reason::of(&error),
            };
            let (mut frames, mut held) = (Vec::new(), 0);
            let fed = decoder.feed(&room[..bytes], |frame| {
                held += frame.payload.len() + MESSAGE_OVERHEAD_BYTES;
                frames.push(frame);
            });
            let counters = &self.outbox.traffic.counters;
            counters.bytes_in.fetch_add(bytes as u64, Ordering::Relaxed);
            counters.messages_in.fetch_add(frames.len() as u64, Ordering::Relaxed);
            if !frames.is_empty() {
                let hold = self.budget.take(held);
                (self.events)(ConnectionEvent::Frames { peer: self.outbox.peer, stream: self.stream, frames, hold });
            }
            if let Err(error) = fed {
                return Reason::Bad(error);
            }
        }
    }
}
