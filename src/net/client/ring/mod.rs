//! The data path on an io_uring of our own: the sockets of one shard, received from by requests that stay, into buffers
//! that all share.
//!
//! Lives on the shard's executor. One task of it takes events ([`Ring::next`]), sends ([`Ring::exchange`]), and sleeps
//! when there is nothing. It sleeps in the ring itself or in the runtime ([`Ring::wait`]). It decides nothing about a
//! connection, and does not interpret its bytes.
//!
//! The cost of an idle connection: an entry of 24 bytes here, and in the kernel its socket and the one request that
//! receives. It holds no buffer: those in use belong to bytes that are being looked at.

pub(super) mod queue;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use corral_core::ids::ConnId;
use rustix::io::Errno;
use rustix::net::SendFlags;

use self::queue::{Completion, Queue, Received, Send};
use super::socket::{Bytes, Outgoing, SocketEvent, SocketSlot};
use crate::runtime::mailbox::Bell;

/// Connections that the kernel may accept before the shard takes them.
const ACCEPTS: usize = 16;
/// Times the kernel is asked for the completion of a request that completes at once, before it is given up.
const PROBE_TURNS: usize = 16;

/// The purpose of a request; the lowest byte of its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Receive = 1,
    Room = 2,
    Cancel = 3,
    Send = 4,
    Bell = 5,
    Accept = 6,
    Close = 7,
}

impl SocketSlot {
    /// The number that a request of this place is made with. Of the generation 24 bits count.
    fn token(self, purpose: Purpose) -> u64 {
        u64::from(self.index) << 32 | u64::from(self.generation & 0x00ff_ffff) << 8 | purpose as u64
    }
}

/// The ring's record of a socket.
#[derive(Debug)]
struct Slot {
    socket: Option<OwnedFd>,
    conn: ConnId,
    generation: u32,
    /// A request that receives is with the kernel.
    receiving: bool,
    /// Nothing is to be received for now.
    paused: bool,
    /// The kernel has been asked to end the receiving request.
    cancelled: bool,
    /// A request for room to send is with the kernel.
    wants_room: bool,
    /// The owner is done with the socket.
    closing: bool,
    /// The client sends no more.
    ended: bool,
}

/// The sockets of one shard.
pub(super) struct Ring {
    queue: Queue,
    slots: RefCell<Vec<Slot>>,
    free: RefCell<Vec<u32>>,
    bell: Arc<Bell>,
    listener: RefCell<Option<TcpListener>>,
    /// How many listeners there were so far.
    listener_number: Cell<u32>,
    /// So many requests to accept are to be made.
    accepts_due: Cell<usize>,
    /// How often the kernel had no room for a socket.
    accepts_failed: Cell<u64>,
}

impl Ring {
    /// To be called on the executor that will use it. It sleeps no longer than until `bell` is rung.
    ///
    /// # Errors
    /// When this kernel cannot do what is needed (Linux 6.1 can), or does not let this process.
    pub(super) fn new(bell: Arc<Bell>, depth: u32) -> io::Result<Ring> {
        let queue = Queue::new(bell.outer(), depth)?;
        prove(&queue)?;
        queue.listen(bell.inner(), Purpose::Bell as u64);
        let (slots, free) = (RefCell::default(), RefCell::default());
        Ok(Ring {
            queue,
            slots,
            free,
            bell,
            listener: RefCell::default(),
            listener_number: Cell::new(0),
            accepts_due: Cell::new(0),
            accepts_failed: Cell::new(0),
        })
    }

    /// The bell that ends a sleep from outside.
    pub(super) fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Accepts connections from this listener. The holder of an earlier listener must shut that down, too.
    pub(super) fn listen(&self, listener: TcpListener) {
        self.listener.replace(Some(listener));
        self.listener_number.set(self.listener_number.get().wrapping_add(1));
        self.accepts_due.set(ACCEPTS);
        self.accept_again();
    }

    /// Takes a connected socket over and receives from it. Its events carry `conn`.
    pub(super) fn adopt(&self, stream: TcpStream, conn: ConnId) -> SocketSlot {
        let mut slots = self.slots.borrow_mut();
        let index = self.free.borrow_mut().pop().unwrap_or_else(|| {
            slots.push(Slot::vacant());
            u32::try_from(slots.len() - 1).expect("fewer sockets than 2^32")
        });
        let slot = &mut slots[index as usize];
        let generation = slot.generation.wrapping_add(1);
        *slot = Slot { socket: Some(OwnedFd::from(stream)), conn, generation, ..Slot::vacant() };
        let place = SocketSlot { index, generation };
        self.receive(slot, place);
        place
    }

    /// Receives nothing more, but for bytes on their way already: the kernel has at most the pool's bytes for them.
    pub(super) fn pause(&self, place: SocketSlot) {
        self.with(place, |slot| {
            slot.paused = true;
            if slot.receiving && !slot.cancelled {
                slot.cancelled = true;
                self.queue.cancel(place.token(Purpose::Receive), place.token(Purpose::Cancel));
            }
        });
    }

    /// Receives again.
    pub(super) fn resume(&self, place: SocketSlot) {
        self.with(place, |slot| {
            // A request that is still being cancelled is made again when it has ended.
            slot.paused = false;
            if !slot.receiving && !slot.ended {
                self.receive(slot, place);
            }
        });
    }

    /// Sends what the socket takes at once; no event follows.
    pub(super) fn send_now(&self, place: SocketSlot, bytes: &[u8]) {
        self.with(place, |slot| {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            // An error means that the connection is gone, or takes nothing now.
            let _ = slot.socket.as_ref().map(|socket| rustix::net::send(socket, bytes, flags));
        });
    }

    /// Ends both directions and closes the socket as soon as the kernel has done with it. No event of it follows.
    pub(super) fn close(&self, place: SocketSlot) {
        let idle = self.with(place, |slot| {
            slot.closing = true;
            if !slot.ended || !slot.is_idle() {
                // Ends whatever the kernel still waits for. An error means that the connection is gone, which does so
                // too.
                let _ = slot.socket.as_ref().map(|socket| rustix::net::shutdown(socket, rustix::net::Shutdown::Both));
            }
            slot.is_idle()
        });
        if idle == Some(true) {
            self.vacate(place.index);
        }
    }

    /// Sends, passes the other requests since the last call to the kernel, and collects the completions. With a limit
    /// the whole thread sleeps until a completion comes or the limit is over. For each socket an [`SocketEvent::Sent`]
    /// follows; not before shall it be sent more. Whether there is anything but those.
    pub(super) fn exchange(&self, sends: &[Outgoing<'_>], sleep: Option<Duration>) -> bool {
        let slots = self.slots.borrow();
        let known = |send: &Outgoing<'_>| {
            let slot = slots.get(send.place.index as usize).filter(|slot| slot.generation == send.place.generation);
            slot.and_then(|slot| slot.socket.as_ref()).map(OwnedFd::as_fd)
        };
        let sends: Vec<Send<'_>> = sends
            .iter()
            .filter_map(|send| {
                let Outgoing { place, bytes, last } = *send;
                Some(Send { socket: known(send)?, bytes, token: place.token(Purpose::Send), last })
            })
            .collect();
        self.queue.exchange(&sends, sleep)
    }

    /// The next event that [`Ring::exchange`] has collected.
    pub(super) fn next(&self) -> Option<SocketEvent<'_>> {
        loop {
            let completion = self.queue.next()?;
            if let Some(event) = self.event(completion) {
                return Some(event);
            }
        }
    }

    /// Whether a call of [`Ring::exchange`] or [`Ring::next`] would lead to something.
    pub(super) fn has_work(&self) -> bool {
        self.queue.has_work()
    }

    /// To be called a few times a second. It gives back memory that was not needed since the last call, and accepts
    /// again if that has failed.
    pub(super) fn look_after(&self) {
        self.queue.give_back();
        self.accept_again();
    }

    /// Returns when there is something to do; other tasks of the executor run meanwhile.
    pub(super) async fn wait(&self) {
        self.queue.wait().await;
    }

    fn event<'r>(&'r self, completion: Completion<'r>) -> Option<SocketEvent<'r>> {
        let Completion { token, result, more, bytes, socket } = completion;
        if token == Purpose::Bell as u64 {
            if !more {
                self.queue.listen(self.bell.inner(), token);
            }
            return None;
        }
        if token & 0xff == Purpose::Accept as u64 {
            // From a listener before this one no more is accepted.
            if token == self.accept_token() {
                self.accepts_due.set(self.accepts_due.get() + 1);
                self.accepted(result);
            }
            return socket.map(|socket| SocketEvent::Accepted { stream: TcpStream::from(socket) });
        }
        let index = u32::try_from(token >> 32).expect("the upper half of 64 bits");
        let mut slots = self.slots.borrow_mut();
        let slot = slots.get_mut(index as usize)?;
        let place = SocketSlot { index, generation: slot.generation };
        let purposes = [Purpose::Receive, Purpose::Send, Purpose::Room];
        let purpose = purposes.into_iter().find(|purpose| place.token(*purpose) == token)?;
        let (conn, closing) = (slot.conn, slot.closing);
        let event = match purpose {
            Purpose::Room => {
                slot.wants_room = false;
                Some(SocketEvent::Sent { conn, count: 0 })
            }
            Purpose::Send => self.sent(slot, place, result),
            _ => {
                slot.receiving = more;
                slot.cancelled &= more;
                self.received(slot, place, result, bytes)
            }
        };
        if closing && slot.is_idle() {
            drop(slots);
            self.vacate(index);
        }
        event.filter(|_| !closing)
    }

    /// A request to accept has its result: it is made again, at once unless the kernel had no room for a socket.
    fn accepted(&self, result: i32) {
        if result >= 0 {
            return self.accept_again();
        }
        match Errno::from_raw_os_error(-result) {
            // The listener is shut down.
            Errno::INVAL => self.accepts_due.set(0),
            error @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                let times = self.accepts_failed.get() + 1;
                if times.is_power_of_two() {
                    tracing::warn!(times_so_far = times, "cannot accept a connection, trying again: {error}");
                }
                self.accepts_failed.set(times);
            }
            _ => self.accept_again(),
        }
    }

    fn accept_again(&self) {
        if let Some(listener) = &*self.listener.borrow() {
            for _ in 0..self.accepts_due.take() {
                self.queue.accept(listener.as_fd(), self.accept_token());
            }
        }
    }

    /// Another for each listener.
    fn accept_token(&self) -> u64 {
        u64::from(self.listener_number.get()) << 8 | Purpose::Accept as u64
    }

    /// A completion of the receiving request, which is made again if it has ended and is still wanted.
    fn received<'r>(
        &self,
        slot: &mut Slot,
        place: SocketSlot,
        result: i32,
        bytes: Option<Received<'r>>,
    ) -> Option<SocketEvent<'r>> {
        let conn = slot.conn;
        let event = match (usize::try_from(result), bytes) {
            (Ok(0), _) => {
                slot.ended = true;
                return Some(SocketEvent::Ended { conn });
            }
            (Ok(_), Some(bytes)) => Some(SocketEvent::Received { conn, bytes: Bytes::Ring(bytes) }),
            (Ok(_), None) => return Some(SocketEvent::Failed { conn }),
            (Err(_), _) => match Errno::from_raw_os_error(-result) {
                Errno::NOBUFS => {
                    self.queue.grow();
                    None
                }
                Errno::CANCELED | Errno::INTR | Errno::AGAIN => None,
                _ => return Some(SocketEvent::Failed { conn }),
            },
        };
        if !slot.receiving && !slot.paused && !slot.closing {
            self.receive(slot, place);
        }
        event
    }

    fn sent(&self, slot: &mut Slot, place: SocketSlot, result: i32) -> Option<SocketEvent<'static>> {
        let conn = slot.conn;
        match usize::try_from(result) {
            Ok(count) => Some(SocketEvent::Sent { conn, count }),
            Err(_) => match Errno::from_raw_os_error(-result) {
                Errno::INTR | Errno::AGAIN => {
                    self.await_room(slot, place);
                    None
                }
                _ => Some(SocketEvent::Failed { conn }),
            },
        }
    }

    /// An [`SocketEvent::Sent`] of no byte follows as soon as the socket takes bytes.
    fn await_room(&self, slot: &mut Slot, place: SocketSlot) {
        if !slot.wants_room
            && let Some(socket) = &slot.socket
        {
            slot.wants_room = true;
            self.queue.await_room(socket.as_fd(), place.token(Purpose::Room));
        }
    }

    fn receive(&self, slot: &mut Slot, place: SocketSlot) {
        if let Some(socket) = &slot.socket {
            slot.receiving = true;
            slot.cancelled = false;
            self.queue.receive(socket.as_fd(), place.token(Purpose::Receive));
        }
    }

    fn with<T>(&self, place: SocketSlot, change: impl FnOnce(&mut Slot) -> T) -> Option<T> {
        let mut slots = self.slots.borrow_mut();
        let slot = slots.get_mut(place.index as usize).filter(|slot| slot.generation == place.generation)?;
        Some(change(slot))
    }

    /// Closes the socket: no request of its is with the kernel.
    fn vacate(&self, index: u32) {
        let mut slots = self.slots.borrow_mut();
        let slot = &mut slots[index as usize];
        if let Some(socket) = slot.socket.take() {
            self.queue.close(socket, Purpose::Close as u64);
            self.free.borrow_mut().push(index);
        }
    }
}

impl Slot {
    const fn vacant() -> Slot {
        Slot {
            socket: None,
            conn: ConnId { slot: 0, generation: 0 },
            generation: 0,
            receiving: false,
            paused: false,
            cancelled: false,
            wants_room: false,
            closing: false,
            ended: false,
        }
    }

    const fn is_idle(&self) -> bool {
        !self.receiving && !self.wants_room
    }
}

const _: () = assert!(size_of::<Slot>() <= 24, "there is one for each connection, also an idle one");

/// Lets the kernel show, on sockets of our own, that it does all that is relied on. That is a receiving request that
/// stays and takes its buffers from the pool, its cancellation, and a request for room.
fn prove(queue: &Queue) -> io::Result<()> {
    const WORD: &[u8] = b"ruok";
    let (near, far) = UnixStream::pair()?;
    let unfit = |what: &str| io::Error::new(io::ErrorKind::Unsupported, format!("the kernel does not {what}"));
    let await_token = |token: u64| {
        for _ in 0..PROBE_TURNS {
            queue.exchange(&[], None);
            while let Some(completion) = queue.next() {
                if completion.token == token {
                    return Some(completion);
                }
            }
        }
        None
    };
    queue.receive(near.as_fd(), 1);
    let send = Send { socket: far.as_fd(), bytes: WORD, token: 4, last: false };
    queue.exchange(&[send], None);
    let first = await_token(1).ok_or_else(|| unfit("complete a receive"))?;
    if !first.more || first.bytes.as_deref() != Some(WORD) {
        return Err(unfit("keep a receive with buffers of a ring (Linux 6.1 does)"));
    }
    drop(first);
    queue.cancel(1, 2);
    let last = await_token(1).ok_or_else(|| unfit("cancel a receive"))?;
    if last.more || last.result != -Errno::CANCELED.raw_os_error() {
        return Err(unfit("cancel a receive as it should"));
    }
    queue.await_room(near.as_fd(), 3);
    let room = await_token(3).ok_or_else(|| unfit("tell that a socket has room"))?;
    if room.result < 0 { Err(unfit("poll a socket")) } else { Ok(()) }
}
