//! Many sessions driven by one thread for the scenarios: connecting without blocking, requests with tags, replies and
//! watch events as a list of what happened.
//!
//! One epoll loop on the thread that calls it. Order (xid) and zxid of everything received are checked here; the
//! scenario checks the content of a reply. It knows no histogram.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use corral_wire::consts::{XID_NOTIFICATION, XID_PING};
use corral_wire::frame::FrameError;
use corral_wire::records::{ConnectResponse, ReplyHeader, WatcherEvent};
use corral_wire::{OpCode, Reader};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, connect, socket};

use crate::check::{BadReply, error_name};
use crate::limits::{EVENTS_MAX, SCRATCH_BYTES};
use crate::link::Link;
use crate::session::{LIMITED, connect_request, no_zookeeper, refused, silent};
use crate::workload::push_frame;

/// What a scenario calls its requests.
pub(crate) type Tag = u32;

/// The swarm's own tags.
const TAG_PING: Tag = u32::MAX;
const TAG_CLOSE: Tag = u32::MAX - 1;

/// So many other sockets are served between two looks at a favoured one.
const FAVOUR_EVERY: usize = 8;

/// Something that came from a server.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// The session, as [`Swarm::open`] gave it.
    pub(crate) peer: usize,
    pub(crate) what: What,
    /// When it was read.
    pub(crate) at_ns: u64,
    /// When the connection was begun or the request was made (for `Closed` that to close); 0 for notifications.
    pub(crate) since_ns: u64,
    body: Range<usize>,
}

/// What came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// The session is granted.
    Opened,
    /// The reply to a request, with its error code or 0.
    Reply(Tag, i32),
    /// A watch event of this type; its body is the record.
    Notified(i32),
    /// The session is closed, as asked for.
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Connecting,
    Greeting,
    Open,
    /// Closed by us; the server is yet to hang up.
    Closing,
    Gone,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    xid: i32,
    tag: Tag,
    since_ns: u64,
}

#[derive(Debug)]
struct Peer {
    server: SocketAddr,
    /// `None` once the session is over.
    link: Option<Link>,
    state: State,
    next_xid: i32,
    zxid_seen: i64,
    waiting: VecDeque<Waiting>,
    granted: Duration,
    /// When the connection was begun, or when the session was asked to close.
    begun_ns: u64,
}

/// Sessions of one thread.
#[derive(Debug)]
pub(crate) struct Swarm {
    epoll: Epoll,
    peers: Vec<Peer>,
    gone: Vec<usize>,
    start: Instant,
    scratch: Vec<u8>,
    events: Vec<Event>,
    /// The bodies of `events`.
    bytes: Vec<u8>,
    ready: Vec<EpollEvent>,
    timeout_ms: i32,
    reply_timeout: Duration,
    looked_ns: u64,
    /// Sessions that were granted so far.
    granted: u64,
    /// A session whose socket is looked at between those of others, see [`Swarm::favour`].
    favoured: Option<usize>,
}

impl Swarm {
    /// No sessions yet; each will ask for `timeout_ms`, and no reply may take longer than `reply_timeout`.
    pub(crate) fn new(timeout_ms: i32, reply_timeout: Duration) -> Result<Self> {
        Ok(Self {
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("epoll_create")?,
            peers: Vec::new(),
            gone: Vec::new(),
            start: Instant::now(),
            scratch: vec![0; SCRATCH_BYTES],
            events: Vec::new(),
            bytes: Vec::new(),
            ready: vec![EpollEvent::empty(); EVENTS_MAX],
            timeout_ms,
            reply_timeout,
            looked_ns: 0,
            granted: 0,
            favoured: None,
        })
    }

    /// Nanoseconds since the swarm was made.
    pub(crate) fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Begins to open a session. Returns its number, which may be that of one that is over.
    pub(crate) fn open(&mut self, server: SocketAddr) -> Result<usize> {
        let begun_ns = self.now_ns();
        let mut link = Link::new(begin_connect(server, self.granted)?)?;
        link.last_sent_ns = begun_ns;
        connect_request(&mut link.out, self.timeout_ms)?;
        let peer = Peer {
            server,
            link: Some(link),
            state: State::Connecting,
            next_xid: 1,
            zxid_seen: 0,
            waiting: VecDeque::new(),
            granted: Duration::ZERO,
            begun_ns,
        };
        let at = self.gone.pop().unwrap_or(self.peers.len());
        let stream = &peer.link.as_ref().expect("just made").stream;
        let wanted = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT, at as u64);
        self.epoll.add(stream, wanted).context("epoll_ctl")?;
        if at == self.peers.len() {
            self.peers.push(peer);
        } else {
            self.peers[at] = peer;
        }
        Ok(at)
    }

    /// Sends a request: its record is the encoded path and what follows. The reply will come with the tag.
    pub(crate) fn request(&mut self, peer: usize, op: OpCode, record: &[&[u8]], tag: Tag) -> Result<()> {
        self.push(peer, op, record, tag);
        self.flush(peer)
    }

    /// As [`Self::request`], but leaves the sending to a later call.
    pub(crate) fn push(&mut self, peer: usize, op: OpCode, record: &[&[u8]], tag: Tag) {
        let since_ns = self.now_ns();
        let peer = &mut self.peers[peer];
        assert!(peer.state == State::Open, "requests are made of open sessions");
        let xid = if tag == TAG_PING { XID_PING } else { peer.next_xid };
        if tag != TAG_PING {
            peer.next_xid = peer.next_xid.checked_add(1).unwrap_or(1);
        }
        let link = peer.link.as_mut().expect("an open session has a socket");
        push_frame(
            &mut link.out,
            xid,
            op,
            record.first().copied().unwrap_or_default(),
            &record.get(1..).unwrap_or_default().concat(),
        );
        peer.waiting.push_back(Waiting { xid, tag, since_ns });
    }

    /// Asks the server to close a session.
    pub(crate) fn close(&mut self, peer: usize) -> Result<()> {
        self.request(peer, OpCode::CloseSession, &[], TAG_CLOSE)
    }

    pub(crate) fn flush(&mut self, peer: usize) -> Result<()> {
        let now_ns = self.now_ns();
        match &mut self.peers[peer].link {
            Some(link) => link.flush(&self.epoll, peer as u64, now_ns).with_context(|| format!("session {peer}")),
            None => Ok(()),
        }
    }

    /// Looks at this session's socket again and again while others are served, so that its replies are not found late only
    /// because this thread was busy with the others.
    pub(crate) fn favour(&mut self, peer: usize) {
        self.favoured = Some(peer);
    }

    /// Sessions that are not over.
    pub(crate) fn sessions(&self) -> usize {
        self.peers.len() - self.gone.len()
    }

    /// Waits for events, for `timeout` at most. Returns all that came; hand the list to [`Self::recycle`].
    pub(crate) fn poll(&mut self, timeout: Duration) -> Result<Vec<Event>> {
        self.bytes.clear();
        let timeout_ms = u16::try_from(timeout.as_micros().div_ceil(1000)).unwrap_or(u16::MAX);
        let count = match self.epoll.wait(&mut self.ready, timeout_ms) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(error) => return Err(error).context("epoll_wait"),
        };
        for nth in 0..count {
            let peer = usize::try_from(self.ready[nth].data())?;
            let flags = self.ready[nth].events();
            self.serve(peer, flags).with_context(|| format!("session {peer}"))?;
            if let Some(favoured) = self.favoured.filter(|_| nth % FAVOUR_EVERY == 0) {
                self.serve(favoured, EpollFlags::EPOLLIN).with_context(|| format!("session {favoured}"))?;
            }
        }
        self.look_after()?;
        Ok(std::mem::take(&mut self.events))
    }

    /// The record of an event of the last poll, behind its header.
    pub(crate) fn body(&self, event: &Event) -> &[u8] {
        &self.bytes[event.body.clone()]
    }

    /// Takes a list back, to save its memory.
    pub(crate) fn recycle(&mut self, mut events: Vec<Event>) {
        events.clear();
        self.events = events;
    }

    fn serve(&mut self, at: usize, flags: EpollFlags) -> Result<()> {
        let now_ns = self.now_ns();
        let peer = &mut self.peers[at];
        let Some(link) = &mut peer.link else { return Ok(()) };
        if peer.state == State::Connecting {
            if let Some(error) = link.stream.take_error()? {
                return Err(error).with_context(|| unreachable(peer.server, self.granted));
            }
            peer.state = State::Greeting;
            link.expect_write();
            link.flush(&self.epoll, at as u64, now_ns)?;
            return Ok(());
        }
        if flags == EpollFlags::EPOLLOUT {
            return link.flush(&self.epoll, at as u64, now_ns);
        }
        let Some(bytes) = link.receive(&mut self.scratch)? else { return self.hung_up(at, now_ns) };
        let now_ns = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let Peer { link: Some(link), server, state, zxid_seen, waiting, granted, begun_ns, .. } = peer else {
            return Ok(());
        };
        let (events, pool, granted_all) = (&mut self.events, &mut self.bytes, &mut self.granted);
        let taken = link.frames(&self.scratch[..bytes], &mut |body| {
            let mut reader = Reader::new(body);
            let (what, since_ns) = if *state == State::Greeting {
                *granted = greeting(&mut reader, *server)?;
                *granted_all += 1;
                *state = State::Open;
                (What::Opened, *begun_ns)
            } else {
                match judge(&mut reader, waiting, zxid_seen)? {
                    (What::Reply(TAG_PING, _), _) => return Ok(()),
                    (What::Reply(TAG_CLOSE, 0), asked_ns) => {
                        *state = State::Closing;
                        *begun_ns = asked_ns;
                        return Ok(());
                    }
                    (What::Reply(TAG_CLOSE, code), _) => bail!("closeSession: {}", BadReply::Refused { code }),
                    other => other,
                }
            };
            let begin = pool.len();
            pool.extend_from_slice(reader.rest());
            events.push(Event { peer: at, what, at_ns: now_ns, since_ns, body: begin..pool.len() });
            Ok(())
        });
        match taken {
            Err(error) if error.is::<FrameError>() && *state == State::Greeting => {
                return Err(error.context(no_zookeeper(*server)));
            }
            taken => taken?,
        }
        if self.peers[at].state == State::Closing { self.closed(at, now_ns) } else { Ok(()) }
    }

    /// A closed session's socket goes at once: the server has answered and hangs up by itself.
    fn closed(&mut self, at: usize, now_ns: u64) -> Result<()> {
        let peer = &mut self.peers[at];
        let since_ns = peer.begun_ns;
        if let Some(link) = peer.link.take() {
            self.epoll.delete(&link.stream).context("epoll_ctl")?;
        }
        peer.state = State::Gone;
        self.gone.push(at);
        self.events.push(Event { peer: at, what: What::Closed, at_ns: now_ns, since_ns, body: 0..0 });
        Ok(())
    }

    fn hung_up(&mut self, at: usize, now_ns: u64) -> Result<()> {
        let peer = &self.peers[at];
        match peer.state {
            State::Closing | State::Gone => self.closed(at, now_ns),
            State::Greeting => bail!(not_granted(peer.server, self.granted)),
            State::Connecting | State::Open => {
                bail!("the server closed the connection with {} in flight", peer.waiting.len())
            }
        }
    }

    /// Once in a while: pings quiet sessions, and gives up on a server that does not answer.
    fn look_after(&mut self) -> Result<()> {
        let now_ns = self.now_ns();
        if now_ns.saturating_sub(self.looked_ns) < 100_000_000 {
            return Ok(());
        }
        self.looked_ns = now_ns;
        let since = |then_ns: u64| Duration::from_nanos(now_ns.saturating_sub(then_ns));
        for at in 0..self.peers.len() {
            let peer = &self.peers[at];
            let Some(link) = &peer.link else { continue };
            let oldest_ns = match peer.state {
                State::Connecting | State::Greeting => Some(peer.begun_ns),
                _ => peer.waiting.front().map(|oldest| oldest.since_ns),
            };
            let waited = oldest_ns.map(since).unwrap_or_default();
            if waited > self.reply_timeout && peer.state == State::Greeting {
                bail!("{}: no reply for {waited:.1?}", silent(peer.server));
            }
            ensure!(waited <= self.reply_timeout, "session {at} to {}: no reply for {waited:.1?}", peer.server);
            if peer.state == State::Open && peer.waiting.is_empty() && since(link.last_sent_ns) > peer.granted / 3 {
                self.request(at, OpCode::Ping, &[], TAG_PING)?;
            }
        }
        Ok(())
    }
}

/// Judges a frame of an open session: what it is and when its request was made.
fn judge(reader: &mut Reader<'_>, waiting: &mut VecDeque<Waiting>, zxid_seen: &mut i64) -> Result<(What, u64)> {
    let header = ReplyHeader::decode(reader)?;
    if header.xid == XID_NOTIFICATION {
        let event = WatcherEvent::decode(&mut reader.clone())?;
        // Servers before 3.9 number no event. One with a number must come before any state that contains the change.
        if header.zxid > 0 && header.zxid < *zxid_seen {
            return Err(BadReply::WentBack { before: *zxid_seen, found: header.zxid }.into());
        }
        return Ok((What::Notified(event.event_type), 0));
    }
    let Some(Waiting { xid, tag, since_ns }) = waiting.pop_front() else { bail!("a reply came without a request") };
    if header.xid != xid {
        return Err(BadReply::Xid { expected: xid, found: header.xid }.into());
    }
    if header.zxid < *zxid_seen {
        return Err(BadReply::WentBack { before: *zxid_seen, found: header.zxid }.into());
    }
    *zxid_seen = header.zxid;
    ensure!(header.err == 0 || reader.remaining() == 0, BadReply::Trailing(reader.remaining()));
    Ok((What::Reply(tag, header.err), since_ns))
}

/// Fails unless the reply is a success.
pub(crate) fn granted(what: &str, error: i32) -> Result<()> {
    ensure!(error == 0, "{what}: the server answered {} ({error})", error_name(error));
    Ok(())
}

fn greeting(reader: &mut Reader<'_>, server: SocketAddr) -> Result<Duration> {
    let response = ConnectResponse::decode(reader).with_context(|| no_zookeeper(server))?;
    let granted = u64::try_from(response.timeout_ms).unwrap_or(0);
    ensure!(granted > 0, "{server} granted no session");
    Ok(Duration::from_millis(granted))
}

/// The error if no connection can be made; `granted` sessions were before.
fn unreachable(server: SocketAddr, granted: u64) -> String {
    match granted {
        0 => format!("{server} cannot be reached; is the server running there?"),
        _ => {
            format!("{server} cannot be reached any more, after {granted} sessions were granted; has the server ended?")
        }
    }
}

/// The error if a connection is closed before its session is granted; `granted` sessions were before.
fn not_granted(server: SocketAddr, granted: u64) -> String {
    let closed = format!("{server} closed the connection instead of granting a session");
    match granted {
        0 => refused(server),
        _ => format!("{closed}, after {granted} sessions were granted; has the server ended, or {LIMITED}?"),
    }
}

fn begin_connect(server: SocketAddr, granted: u64) -> Result<TcpStream> {
    let family = if server.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let fd = socket(family, SockType::Stream, flags, None).context("socket")?;
    match connect(fd.as_raw_fd(), &SockaddrStorage::from(server)) {
        Ok(()) | Err(Errno::EINPROGRESS) => {}
        Err(Errno::EADDRNOTAVAIL) => bail!("this address has no free port left towards {server}"),
        Err(error) => return Err(error).with_context(|| unreachable(server, granted)),
    }
    let stream = TcpStream::from(fd);
    stream.set_nodelay(true)?;
    Ok(stream)
}
