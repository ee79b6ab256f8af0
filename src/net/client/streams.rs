//! Client sockets served by the runtime, for kernels that do not support the ring. The events are those of the ring.
//!
//! Lives on the executor that it was made on. Each socket has a task that reads it. The task reads the next piece when the shard has
//! taken the last one.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::net::Shutdown;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use corral_core::ids::ConnId;
use futures_lite::{AsyncRead, AsyncWrite};
use glommio::net::TcpStream;

use super::ring::queue::BellFile;
use super::socket::{Bytes, Outgoing, SocketEvent, SocketSlot};
use crate::runtime::mailbox::Bell;

/// Bytes of one read, and so of one event.
const READ_BYTES_MAX: usize = 4096;

/// One client's socket.
struct Stream {
    conn: ConnId,
    socket: RefCell<TcpStream>,
    /// The reading task, while it reads nothing.
    reader: RefCell<Option<Waker>>,
    paused: Cell<bool>,
    /// The shard has not taken the last event.
    untaken: Cell<bool>,
    closed: Cell<bool>,
}

/// The sockets of one shard.
pub(super) struct Streams {
    inbox: Rc<Inbox>,
    slots: RefCell<Vec<(u32, Option<Rc<Stream>>)>>,
    free: RefCell<Vec<u32>>,
    bell: Arc<Bell>,
}

/// Events that the shard has not taken.
#[derive(Default)]
struct Inbox {
    events: RefCell<VecDeque<(Rc<Stream>, SocketEvent<'static>)>>,
    /// The shard's task, while it waits.
    waiting: RefCell<Option<Waker>>,
    /// The bell has rung since the last wait.
    woken: Cell<bool>,
}

impl Inbox {
    fn push(&self, stream: &Rc<Stream>, event: SocketEvent<'static>) {
        self.events.borrow_mut().push_back((Rc::clone(stream), event));
        self.wake();
    }

    fn wake(&self) {
        if let Some(waiting) = self.waiting.take() {
            waiting.wake();
        }
    }
}

impl Streams {
    /// To be called on the executor that will use it.
    ///
    /// # Errors
    /// When no file descriptor is left.
    pub(super) fn new(bell: Arc<Bell>) -> io::Result<Streams> {
        let (inbox, file) = (Rc::<Inbox>::default(), BellFile::new(bell.outer())?);
        let woken = Rc::clone(&inbox);
        glommio::spawn_local(async move {
            while file.wait().await {
                woken.woken.set(true);
                woken.wake();
            }
        })
        .detach();
        Ok(Streams { inbox, slots: RefCell::default(), free: RefCell::default(), bell })
    }

    pub(super) fn bell(&self) -> &Bell {
        &self.bell
    }

    pub(super) fn adopt(&self, socket: std::net::TcpStream, conn: ConnId) -> SocketSlot {
        let stream = Rc::new(Stream {
            conn,
            socket: RefCell::new(TcpStream::from(socket2::Socket::from(socket))),
            reader: RefCell::default(),
            paused: Cell::new(false),
            untaken: Cell::new(false),
            closed: Cell::new(false),
        });
        glommio::spawn_local(read(Rc::clone(&stream), Rc::clone(&self.inbox))).detach();
        let mut slots = self.slots.borrow_mut();
        let index = self.free.borrow_mut().pop().unwrap_or_else(|| {
            slots.push((0, None));
            u32::try_from(slots.len() - 1).expect("fewer sockets than 2^32")
        });
        let slot = &mut slots[index as usize];
        *slot = (slot.0.wrapping_add(1), Some(stream));
        SocketSlot { index, generation: slot.0 }
    }

    fn stream(&self, place: SocketSlot) -> Option<Rc<Stream>> {
        let slots = self.slots.borrow();
        let (generation, stream) = slots.get(place.index as usize)?;
        stream.clone().filter(|_| *generation == place.generation)
    }

    pub(super) fn pause(&self, place: SocketSlot) {
        if let Some(stream) = self.stream(place) {
            stream.paused.set(true);
        }
    }

    pub(super) fn resume(&self, place: SocketSlot) {
        if let Some(stream) = self.stream(place) {
            stream.paused.set(false);
            stream.wake_reader();
        }
    }

    pub(super) fn close(&self, place: SocketSlot) {
        let Some(stream) = self.stream(place) else { return };
        self.slots.borrow_mut()[place.index as usize].1 = None;
        self.free.borrow_mut().push(place.index);
        stream.closed.set(true);
        stream.shut_down();
        stream.wake_reader();
    }

    /// Sends at once what the sockets take. Whether there is an event.
    pub(super) fn exchange(&self, sends: &[Outgoing<'_>]) -> bool {
        for Outgoing { place, bytes, .. } in sends {
            let Some(stream) = self.stream(*place) else { continue };
            match stream.poll_write(&mut Context::from_waker(Waker::noop()), bytes) {
                Poll::Ready(done) => self.inbox.push(&stream, stream.sent(done)),
                Poll::Pending => {
                    let (inbox, bytes) = (Rc::clone(&self.inbox), bytes.to_vec());
                    glommio::spawn_local(async move {
                        let done = poll_fn(|cx| stream.poll_write(cx, &bytes)).await;
                        inbox.push(&stream, stream.sent(done));
                    })
                    .detach();
                }
            }
        }
        self.has_work()
    }

    /// Sends what the socket takes at once; no event follows.
    pub(super) fn send_now(&self, place: SocketSlot, bytes: &[u8]) {
        if let Some(stream) = self.stream(place) {
            let _ = stream.poll_write(&mut Context::from_waker(Waker::noop()), bytes);
        }
    }

    pub(super) fn next(&self) -> Option<SocketEvent<'static>> {
        loop {
            let (stream, event) = self.inbox.events.borrow_mut().pop_front()?;
            if matches!(event, SocketEvent::Received { .. }) {
                stream.untaken.set(false);
                stream.wake_reader();
            }
            if !stream.closed.get() {
                return Some(event);
            }
        }
    }

    pub(super) fn has_work(&self) -> bool {
        !self.inbox.events.borrow().is_empty()
    }

    /// Returns when there is an event, or the bell was rung.
    pub(super) async fn wait(&self) {
        poll_fn(|cx| {
            if self.has_work() || self.inbox.woken.take() {
                return Poll::Ready(());
            }
            *self.inbox.waiting.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// The life of a socket's reading side.
async fn read(stream: Rc<Stream>, inbox: Rc<Inbox>) {
    while let Some(event) = poll_fn(|cx| stream.poll_event(cx)).await {
        let ends = !matches!(event, SocketEvent::Received { .. });
        stream.untaken.set(true);
        inbox.push(&stream, event);
        if ends {
            return;
        }
    }
}

impl Stream {
    /// The next event. `None` when the shard has closed the connection.
    fn poll_event(&self, cx: &mut Context<'_>) -> Poll<Option<SocketEvent<'static>>> {
        if self.closed.get() {
            return Poll::Ready(None);
        }
        if self.paused.get() || self.untaken.get() {
            *self.reader.borrow_mut() = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let (conn, mut buffer) = (self.conn, [0; READ_BYTES_MAX]);
        Pin::new(&mut *self.socket.borrow_mut()).poll_read(cx, &mut buffer).map(|read| {
            Some(match read {
                Ok(0) => SocketEvent::Ended { conn },
                Ok(count) => SocketEvent::Received { conn, bytes: Bytes::Owned(buffer[..count].to_vec()) },
                Err(_) => SocketEvent::Failed { conn },
            })
        })
    }

    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.socket.borrow_mut()).poll_write(cx, bytes)
    }

    fn sent(&self, done: io::Result<usize>) -> SocketEvent<'static> {
        let conn = self.conn;
        done.map_or(SocketEvent::Failed { conn }, |count| SocketEvent::Sent { conn, count })
    }

    fn wake_reader(&self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    /// Ends both directions; a read that waits returns.
    fn shut_down(&self) {
        let socket = self.socket.borrow();
        let shutting = pin!(socket.shutdown(Shutdown::Both));
        // Done at the first poll; an error means that it is closed already.
        let _ = shutting.poll(&mut Context::from_waker(Waker::noop()));
    }
}
