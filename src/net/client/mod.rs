//! The connections of one shard's clients: bytes in, bytes out, pause, resume, close.
//!
//! Lives on the shard's executor. A connection may be encrypted; its handshake was complete before. Below it the sockets are served by a
//! ring, or by the runtime where the kernel has no such ring. The shard's driver sees no difference, except
//! [`Clients::sleeps_in_ring`]. It decides nothing about a connection.

mod ring;
mod socket;
mod streams;
mod tls;
mod unsent;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::mem;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use corral_core::ids::{ConnId, ShardId};
use rustls::ServerConnection;

use self::ring::Ring;
pub(crate) use self::socket::SocketEvent;
use self::socket::{Bytes, Outgoing, SocketSlot};
use self::streams::Streams;
use self::tls::TlsRecords;
use self::unsent::{PORTION, Unsent};
use crate::config::TransportChoice;
use crate::exit::{ExitCode, Fault};
use crate::runtime::mailbox::{Bell, SleepsIn};

/// Bytes that one client is sent in one call of the kernel, which takes some 0.1 ms for them.
const SEND_BYTES_MAX: usize = 128 << 10;
/// Bytes after which no other client is sent something in the same call.
const SENDS_BYTES_MAX: usize = 4 << 20;

/// The bytes that the shard has for a connection.
pub(crate) struct ToSend<'b> {
    /// The first of the bytes.
    pub(crate) bytes: &'b [u8],
    /// The connection ends when these are sent.
    pub(crate) ends: bool,
}

/// One client.
struct Client {
    generation: u32,
    /// It is listed in `unsent`, or its bytes are with the socket, or wait for the socket to have room.
    writing: bool,
    /// Of the peer, in less room than a `SocketAddr` takes.
    address: IpAddr,
    port: u16,
    place: SocketSlot,
    tls: Option<Box<TlsRecords>>,
}

const _: () = assert!(size_of::<Option<Client>>() <= 48, "there is one for each connection, also an idle one");

enum Transport {
    /// An io_uring of our own.
    Ring(Box<Ring>),
    /// The runtime's sockets.
    Streams(Streams),
}

/// The clients of one shard.
pub(crate) struct Clients {
    transport: Transport,
    /// By the slots of the shard's connections.
    list: RefCell<Vec<Option<Client>>>,
    /// Clients that are sent something with the next [`Clients::exchange`].
    unsent: RefCell<Unsent>,
    /// Of encrypted connections: events that come before those of the sockets.
    opened: RefCell<VecDeque<SocketEvent<'static>>>,
}

impl Clients {
    /// To be called on the shard's executor. `bell` wakes it, and its own ring has `depth` entries.
    ///
    /// # Errors
    /// When the ring was asked for and this host does not support it, or when no file descriptor is left.
    pub(crate) fn start(
        choice: TransportChoice,
        depth: u32,
        bell: &Arc<Bell>,
        shard: ShardId,
    ) -> Result<Clients, Fault> {
        let ring = (choice != TransportChoice::Stream).then(|| Ring::new(Arc::clone(bell), depth));
        let transport = match ring {
            Some(Ok(ring)) => Transport::Ring(Box::new(ring)),
            Some(Err(error)) if choice == TransportChoice::Ring => {
                let sentence =
                    format!("runtime.transport is \"ring\", which this host cannot do: {error}; set it to \"auto\"");
                return Err(Fault::new(ExitCode::IoUringMissing, sentence));
            }
            failed => {
                if let Some(Err(error)) = failed {
                    tracing::info!(
                        shard = shard.0,
                        "the sockets are served by the runtime, not by a ring of their own: {error}"
                    );
                }
                let streams = Streams::new(Arc::clone(bell)).map_err(|error| {
                    Fault::new(ExitCode::NofileTooLow, format!("clients cannot be served: {error}"))
                })?;
                Transport::Streams(streams)
            }
        };
        Ok(Clients { transport, list: RefCell::default(), unsent: RefCell::default(), opened: RefCell::default() })
    }

    /// Whether the thread may sleep in [`Clients::exchange`], which accepts connections as well. Otherwise it sleeps in
    /// [`Clients::wait`] alone.
    pub(crate) fn sleeps_in_ring(&self) -> bool {
        matches!(self.transport, Transport::Ring(_))
    }

    /// The bell that ends a sleep from outside.
    pub(crate) fn bell(&self) -> &Bell {
        match &self.transport {
            Transport::Ring(ring) => ring.bell(),
            Transport::Streams(streams) => streams.bell(),
        }
    }

    /// Accepts from this listener, with a ring. A listener before this one is to be shut down by its owner.
    pub(crate) fn listen(&self, listener: TcpListener) {
        if let Transport::Ring(ring) = &self.transport {
            ring.listen(listener);
        }
    }

    /// Takes a connected socket over, with TLS if its handshake made one, and receives from it.
    pub(crate) fn adopt(&self, stream: TcpStream, peer: SocketAddr, conn: ConnId, tls: Option<ServerConnection>) {
        let place = match &self.transport {
            Transport::Ring(ring) => ring.adopt(stream, conn),
            Transport::Streams(streams) => streams.adopt(stream, conn),
        };
        let slot = conn.slot as usize;
        let mut list = self.list.borrow_mut();
        if list.len() <= slot {
            list.resize_with(slot + 1, || None);
        }
        let (address, port) = (peer.ip(), peer.port());
        let tls = tls.map(|connection| Box::new(TlsRecords::new(connection)));
        let is_encrypted = tls.is_some();
        list[slot] = Some(Client { generation: conn.generation, writing: false, address, port, place, tls });
        drop(list);
        if is_encrypted {
            // Bytes that came with the end of the handshake.
            self.open(conn, &[]);
        }
    }

    /// Decrypts what has come of a connection, into events.
    fn open(&self, conn: ConnId, sealed: &[u8]) {
        let opened = self.with(conn, |client| {
            let tls = client.tls.as_mut()?;
            Some((tls.open(sealed), tls.wants_write()))
        });
        let Some((opened, wants_write)) = opened.flatten() else { return };
        let mut events = self.opened.borrow_mut();
        if !opened.bytes.is_empty() {
            events.push_back(SocketEvent::Received { conn, bytes: Bytes::Owned(opened.bytes) });
        }
        if let Some(error) = opened.failed {
            tracing::debug!(slot = conn.slot, "TLS of a connection failed: {error}");
            events.push_back(SocketEvent::Failed { conn });
        } else if opened.ended {
            events.push_back(SocketEvent::Ended { conn });
        }
        drop(events);
        if wants_write {
            self.send_later(conn);
        }
    }

    /// Whether the slot has a connection that is not closed.
    pub(crate) fn is_occupied(&self, slot: u32) -> bool {
        self.list.borrow().get(slot as usize).is_some_and(Option::is_some)
    }

    /// Receives nothing more, except bytes that the kernel has already.
    pub(crate) fn pause(&self, conn: ConnId) {
        let Some(place) = self.with(conn, |client| client.place) else { return };
        match &self.transport {
            Transport::Ring(ring) => ring.pause(place),
            Transport::Streams(streams) => streams.pause(place),
        }
    }

    /// Receives again.
    pub(crate) fn resume(&self, conn: ConnId) {
        let Some(place) = self.with(conn, |client| client.place) else { return };
        match &self.transport {
            Transport::Ring(ring) => ring.resume(place),
            Transport::Streams(streams) => streams.resume(place),
        }
    }

    /// Ends both directions and closes the socket. No event of the connection follows. The client's address; `None` if the connection
    /// is closed already.
    pub(crate) fn close(&self, conn: ConnId) -> Option<SocketAddr> {
        let mut list = self.list.borrow_mut();
        let slot = list.get_mut(conn.slot as usize)?;
        let Client { address, port, place, tls, .. } = slot.take_if(|client| client.generation == conn.generation)?;
        let last = tls.map(|mut tls| tls.end()).unwrap_or_default();
        if !last.is_empty() {
            match &self.transport {
                Transport::Ring(ring) => ring.send_now(place, &last),
                Transport::Streams(streams) => streams.send_now(place, &last),
            }
        }
        match &self.transport {
            Transport::Ring(ring) => ring.close(place),
            Transport::Streams(streams) => streams.close(place),
        }
        Some(SocketAddr::new(address, port))
    }

    /// The connection has something to be sent: the next [`Clients::exchange`] asks for it.
    pub(crate) fn send_later(&self, conn: ConnId) {
        if self.with(conn, |client| !mem::replace(&mut client.writing, true)) == Some(true) {
            self.unsent.borrow_mut().push(conn);
        }
    }

    /// Whether some connection has something to be sent.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent.borrow().is_empty()
    }

    /// Sends a portion of the bytes for clients, and collects events. With a limit, and if nothing is left to be sent, the thread
    /// sleeps until an event or the end of the limit. One [`SocketEvent::Sent`] follows for each connection of the portion. Returns whether
    /// there is something to do.
    pub(crate) fn exchange<'s>(&self, to_send: impl Fn(ConnId) -> ToSend<'s>, sleep: Option<Duration>) -> bool {
        let mut unsent = self.unsent.borrow_mut();
        let mut room = SENDS_BYTES_MAX;
        let mut sends = Vec::with_capacity(PORTION);
        let mut encrypted = Vec::new();
        unsent.take(|conn| {
            self.with(conn, |client| {
                let ToSend { bytes, ends } = to_send(conn);
                let some = &bytes[..bytes.len().min(SEND_BYTES_MAX)];
                // The end of an encrypted connection is sent behind the bytes, when it is closed.
                let (count, last) = match &mut client.tls {
                    Some(tls) => (tls.seal(some).len(), false),
                    None => (some.len(), ends && some.len() == bytes.len()),
                };
                if count == 0 {
                    client.writing = false;
                    return;
                }
                if client.tls.is_some() {
                    encrypted.push((sends.len(), conn));
                }
                sends.push(Outgoing { place: client.place, bytes: some, last });
                room = room.saturating_sub(count);
            });
            room > 0
        });
        let list = self.list.borrow();
        for (at, conn) in encrypted {
            let tls = list.get(conn.slot as usize).and_then(|client| client.as_ref()?.tls.as_ref());
            sends[at].bytes = tls.map_or(&[], |tls| tls.unsent());
        }
        // The last bytes leave when the connection is closed: that is for the next turn.
        let closing = sends.iter().any(|send| send.last);
        let sleep = sleep.filter(|_| unsent.is_empty() && !closing && self.opened.borrow().is_empty());
        drop(unsent);
        let come = match &self.transport {
            Transport::Ring(ring) => ring.exchange(&sends, sleep),
            Transport::Streams(streams) => streams.exchange(&sends),
        };
        come || closing || !self.opened.borrow().is_empty()
    }

    /// Collects what has come, without sending anything. Whether there is something to do.
    pub(crate) fn poll(&self) -> bool {
        match &self.transport {
            Transport::Ring(ring) => ring.exchange(&[], None),
            Transport::Streams(streams) => streams.has_work(),
        }
    }

    /// The next event that [`Clients::exchange`] has collected.
    pub(crate) fn next(&self) -> Option<SocketEvent<'_>> {
        loop {
            if let Some(opened) = self.opened.borrow_mut().pop_front() {
                return Some(opened);
            }
            let event = match &self.transport {
                Transport::Ring(ring) => ring.next()?,
                Transport::Streams(streams) => streams.next()?,
            };
            match event {
                SocketEvent::Received { conn, bytes } if self.is_encrypted(conn) => self.open(conn, &bytes),
                SocketEvent::Sent { conn, count } => match self.sent(conn, count) {
                    Some(count) => return Some(SocketEvent::Sent { conn, count }),
                    None => self.send_later(conn),
                },
                event => return Some(event),
            }
        }
    }

    fn is_encrypted(&self, conn: ConnId) -> bool {
        self.with(conn, |client| client.tls.is_some()) == Some(true)
    }

    /// The socket took so many bytes. Returns the count in bytes of the shard. `None` if the rest of an encrypted piece goes first.
    fn sent(&self, conn: ConnId, count: usize) -> Option<usize> {
        let sent = self.with(conn, |client| {
            client.writing = false;
            client.tls.as_mut().map_or(Some(count), |tls| tls.sent(count))
        });
        sent.unwrap_or(Some(count))
    }

    /// Whether a call of [`Clients::exchange`] or [`Clients::next`] would lead to something.
    pub(crate) fn has_work(&self) -> bool {
        !self.opened.borrow().is_empty()
            || match &self.transport {
                Transport::Ring(ring) => ring.has_work(),
                Transport::Streams(streams) => streams.has_work(),
            }
    }

    /// To be called a few times a second. It gives back memory that was not needed since the last call, and accepts
    /// again if that has failed.
    pub(crate) fn look_after(&self) {
        if let Transport::Ring(ring) = &self.transport {
            ring.look_after();
        }
    }

    /// Returns when there is something to do; other tasks of the executor run meanwhile. `is_quiet` says whether nothing else is to be
    /// done, and is asked when the bell is listened to already.
    pub(crate) async fn wait(&self, is_quiet: impl Fn() -> bool) -> bool {
        self.bell().listen(SleepsIn::Runtime);
        let sleeps = is_quiet();
        if sleeps {
            match &self.transport {
                Transport::Ring(ring) => ring.wait().await,
                Transport::Streams(streams) => streams.wait().await,
            }
        }
        self.bell().awake();
        sleeps
    }

    fn with<T>(&self, conn: ConnId, look: impl FnOnce(&mut Client) -> T) -> Option<T> {
        let mut list = self.list.borrow_mut();
        let client =
            list.get_mut(conn.slot as usize)?.as_mut().filter(|client| client.generation == conn.generation)?;
        Some(look(client))
    }
}
