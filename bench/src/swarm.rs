//! Sessions of one thread: connected without blocking, their requests with tags, what comes back as events.
//!
//! One epoll loop on the thread that calls it. Checks the order (xid) and the zxid of everything received; the caller checks
//! the record of a reply. Pings quiet sessions and fails when a server is silent. Knows no histogram.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use corral_wire::consts::{XID_NOTIFICATION, XID_PING};
use corral_wire::frame::{FrameError, append_frame};
use corral_wire::records::{ConnectRequest, ConnectResponse, ReplyHeader, WatcherEvent};
use corral_wire::{ErrorCode, OpCode, Reader};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, connect, socket};
use rustls::ClientConfig;

use crate::args::CommonArgs;
use crate::frames::push_frame;
use crate::limits::{EVENTS_MAX, SCRATCH_BYTES};
use crate::link::Link;
use crate::tls::Socket;

/// So many other sockets are served between two looks at a favoured one.
const FAVOUR_EVERY: usize = 8;
/// How long a wait for events lasts before its caller looks at other things.
pub(crate) const POLL: Duration = Duration::from_millis(50);
/// Nanoseconds between two looks at which sessions are quiet or wait for too long.
const LOOK_EVERY_NS: u64 = 100_000_000;
/// The usual reason why a server takes some connections and then no more.
const LIMITED: &str =
    "has it a limit on connections (ZooKeeper: maxClientCnxns; corral: --set limits.connections_per_ip_max=0)";

/// Something that came from a server; the body is the record behind the header.
#[derive(Clone, Debug)]
pub(crate) struct Event<T, B = Vec<u8>> {
    /// The session, as [`Swarm::open`] gave it.
    pub(crate) peer: usize,
    pub(crate) what: What<T>,
    pub(crate) at_ns: u64,
    /// When the connection was begun or the request was due; 0 for notifications.
    pub(crate) since_ns: u64,
    pub(crate) body: B,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What<T> {
    Opened,
    /// The reply to the request with this tag, with its error code or 0.
    Reply(T, i32),
    /// A watch event of this type.
    Notified(i32),
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Connecting,
    Greeting,
    Open,
    Closed,
}

#[derive(Clone, Copy, Debug)]
enum Call<T> {
    Own(T),
    Ping,
    Close,
    /// The server sent it by itself.
    Notification,
}

#[derive(Clone, Copy, Debug)]
struct Waiting<T> {
    xid: i32,
    call: Call<T>,
    since_ns: u64,
}

#[derive(Debug)]
struct Peer<T> {
    server: SocketAddr,
    /// `None` once the session is over.
    link: Option<Link>,
    state: State,
    next_xid: i32,
    zxid_seen: i64,
    waiting: VecDeque<Waiting<T>>,
    granted: Duration,
    begun_ns: u64,
}

/// Sessions of one thread, with requests that have tags of a type.
#[derive(Debug)]
pub(crate) struct Swarm<T> {
    epoll: Epoll,
    peers: Vec<Peer<T>>,
    gone: Vec<usize>,
    tls: Option<Arc<ClientConfig>>,
    start: Instant,
    scratch: Vec<u8>,
    ready: Vec<EpollEvent>,
    timeout_ms: i32,
    pub(crate) reply_timeout: Duration,
    looked_ns: u64,
    granted: u64,
    /// A session with a socket that is looked at between those of others, see [`Swarm::favour`].
    favoured: Option<usize>,
}

impl<T: Copy + std::fmt::Debug> Swarm<T> {
    /// No sessions yet. Its clock counts from `start`.
    pub(crate) fn new(args: &CommonArgs, start: Instant) -> Result<Self> {
        Ok(Self {
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("epoll_create")?,
            peers: Vec::new(),
            gone: Vec::new(),
            tls: args.tls.config()?,
            start,
            scratch: vec![0; SCRATCH_BYTES],
            ready: vec![EpollEvent::empty(); EVENTS_MAX],
            timeout_ms: args.session_timeout_ms,
            reply_timeout: args.reply_timeout,
            looked_ns: 0,
            granted: 0,
            favoured: None,
        })
    }

    /// Nanoseconds since the start.
    pub(crate) fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Begins to open a session. Returns its number, which may be that of an ended session.
    pub(crate) fn open(&mut self, server: SocketAddr) -> Result<usize> {
        let begun_ns = self.now_ns();
        let mut link = Link::new(Socket::new(begin_connect(server)?, server, self.tls.as_ref())?, begun_ns);
        connect_request(&mut link.out, self.timeout_ms)?;
        let at = self.gone.pop().unwrap_or(self.peers.len());
        let wanted = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT, at as u64);
        self.epoll.add(&link.socket.stream, wanted).context("epoll_ctl")?;
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
        if at == self.peers.len() {
            self.peers.push(peer);
        } else {
            self.peers[at] = peer;
        }
        Ok(at)
    }

    /// Appends a request to the output of an open session; [`Self::flush`] sends it. `encode` writes the whole frame with this
    /// xid. The reply will come with the tag and with `since_ns`.
    pub(crate) fn push(&mut self, peer: usize, tag: T, since_ns: u64, encode: impl FnOnce(&mut Vec<u8>, i32)) {
        let peer = &mut self.peers[peer];
        let xid = peer.next_xid;
        peer.next_xid = xid.checked_add(1).unwrap_or(1);
        peer.call(Call::Own(tag), xid, since_ns, encode);
    }

    /// Sends a request now: its record is the encoded path and the following bytes.
    pub(crate) fn request(&mut self, peer: usize, op: OpCode, record: [&[u8]; 2], tag: T) -> Result<()> {
        let now_ns = self.now_ns();
        self.push(peer, tag, now_ns, |out, xid| push_frame(out, xid, op, record[0], record[1]));
        self.flush(peer)
    }

    pub(crate) fn close(&mut self, at: usize) -> Result<()> {
        let now_ns = self.now_ns();
        let peer = &mut self.peers[at];
        let xid = peer.next_xid;
        peer.call(Call::Close, xid, now_ns, |out, xid| push_frame(out, xid, OpCode::CloseSession, &[], &[]));
        self.flush(at)
    }

    /// Closes every open session and waits until all are over. Other events meanwhile are passed on.
    pub(crate) fn close_all(&mut self, mut take: impl FnMut(Event<T>) -> Result<()>) -> Result<()> {
        for at in 0..self.peers.len() {
            let closing = self.peers[at].waiting.iter().any(|of| matches!(of.call, Call::Close));
            if self.peers[at].state == State::Open && !closing {
                self.close(at)?;
            }
        }
        while self.sessions() > 0 {
            for event in self.poll(POLL)? {
                match event.what {
                    What::Closed => {}
                    What::Opened => self.close(event.peer)?,
                    _ => take(event)?,
                }
            }
        }
        Ok(())
    }

    /// Sends what was appended to a session's output, as far as the socket takes it.
    pub(crate) fn flush(&mut self, peer: usize) -> Result<()> {
        let now_ns = self.now_ns();
        match &mut self.peers[peer].link {
            Some(link) => link.flush(&self.epoll, peer as u64, now_ns).with_context(|| self.name(peer)),
            None => Ok(()),
        }
    }

    /// Looks at this session's socket again and again while others are served. So its replies are not found late only
    /// because this thread was busy with the others.
    pub(crate) fn favour(&mut self, peer: usize) {
        self.favoured = Some(peer);
    }

    /// Sessions that are not over.
    pub(crate) fn sessions(&self) -> usize {
        self.peers.len() - self.gone.len()
    }

    pub(crate) fn all_answered(&self) -> bool {
        self.peers.iter().all(|peer| peer.waiting.is_empty())
    }

    /// Waits for sockets that are ready, for `timeout_ms` at most, and looks after quiet sessions. Returns how many are ready.
    pub(crate) fn wait(&mut self, timeout_ms: u16) -> Result<usize> {
        self.look_after()?;
        match self.epoll.wait(&mut self.ready, timeout_ms) {
            Ok(count) => Ok(count),
            Err(Errno::EINTR) => Ok(0),
            Err(error) => Err(error).context("epoll_wait"),
        }
    }

    /// The nth ready session of the last wait, to be served.
    pub(crate) fn ready(&self, nth: usize) -> (usize, EpollFlags) {
        let event = &self.ready[nth];
        (usize::try_from(event.data()).expect("the number of a session"), event.events())
    }

    /// Waits for events, for `timeout` at most. Returns all that came.
    pub(crate) fn poll(&mut self, timeout: Duration) -> Result<Vec<Event<T>>> {
        let count = self.wait(u16::try_from(timeout.as_micros().div_ceil(1000)).unwrap_or(u16::MAX))?;
        let mut events = Vec::new();
        let mut take = |event: Event<T, &[u8]>| {
            let Event { peer, what, at_ns, since_ns, body } = event;
            events.push(Event { peer, what, at_ns, since_ns, body: body.to_vec() });
            Ok(())
        };
        for nth in 0..count {
            let (peer, flags) = self.ready(nth);
            self.serve(peer, flags, &mut take).with_context(|| self.name(peer))?;
            if let Some(favoured) = self.favoured.filter(|_| nth % FAVOUR_EVERY == 0) {
                self.serve(favoured, EpollFlags::EPOLLIN, &mut take)?;
            }
        }
        Ok(events)
    }

    /// Waits for so many replies; anything else is an error.
    pub(crate) fn replies(
        &mut self,
        count: usize,
        mut take: impl FnMut(T, i32, &Event<T>) -> Result<()>,
    ) -> Result<()> {
        let mut left = count;
        while left > 0 {
            for event in self.poll(POLL)? {
                let What::Reply(tag, error) = event.what else { return Err(unexpected(&event)) };
                take(tag, error, &event).with_context(|| format!("session {}", event.peer))?;
                left -= 1;
            }
        }
        Ok(())
    }

    /// Reads one session's socket once, and passes on the events.
    pub(crate) fn serve(
        &mut self,
        at: usize,
        flags: EpollFlags,
        take: &mut impl FnMut(Event<T, &[u8]>) -> Result<()>,
    ) -> Result<()> {
        let peer = &mut self.peers[at];
        let Some(link) = &mut peer.link else { return Ok(()) };
        if peer.state == State::Connecting {
            if let Some(error) = link.socket.stream.take_error()? {
                return Err(error).with_context(|| unreachable(peer.server));
            }
            peer.state = State::Greeting;
        }
        if flags == EpollFlags::EPOLLOUT {
            return self.flush(at);
        }
        let received = link.receive(&mut self.scratch)?;
        let now_ns = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let Some(bytes) = received else { return Err(peer.hung_up(self.granted)) };
        let Peer { server, link: Some(link), state, zxid_seen, waiting, granted, begun_ns, .. } = peer else {
            return Ok(());
        };
        if bytes > 0 {
            link.last_received_ns = now_ns;
        }
        let (mut closed_ns, granted_all) = (None, &mut self.granted);
        let taken = link.frames(&self.scratch[..bytes], &mut |body| {
            let mut reader = Reader::new(body);
            let (what, since_ns) = if *state == State::Greeting {
                *granted = greeting(&mut reader, *server)?;
                *granted_all += 1;
                *state = State::Open;
                (What::Opened, *begun_ns)
            } else {
                let (call, number, since_ns) = judge(&mut reader, waiting, zxid_seen)?;
                match call {
                    Call::Own(tag) => (What::Reply(tag, number), since_ns),
                    Call::Ping => return Ok(()),
                    Call::Close => {
                        closed_ns = Some(since_ns);
                        return granted_or("closeSession", number);
                    }
                    Call::Notification => (What::Notified(number), 0),
                }
            };
            take(Event { peer: at, what, at_ns: now_ns, since_ns, body: reader.rest() })
        });
        match taken {
            Err(error) if error.is::<FrameError>() && *state == State::Greeting => {
                return Err(error.context(no_zookeeper(*server)));
            }
            taken => taken?,
        }
        let Some(since_ns) = closed_ns else { return Ok(()) };
        // The socket is closed at once: the server has answered and closes by itself.
        self.epoll.delete(&link.socket.stream).context("epoll_ctl")?;
        (peer.link, peer.state) = (None, State::Closed);
        self.gone.push(at);
        take(Event { peer: at, what: What::Closed, at_ns: now_ns, since_ns, body: &[] })
    }

    /// Once in a while: pings quiet sessions, and fails if a server does not answer.
    fn look_after(&mut self) -> Result<()> {
        let now_ns = self.now_ns();
        if now_ns.saturating_sub(self.looked_ns) < LOOK_EVERY_NS {
            return Ok(());
        }
        self.looked_ns = now_ns;
        let since = |then_ns: u64| Duration::from_nanos(now_ns.saturating_sub(then_ns));
        for at in 0..self.peers.len() {
            let peer = &mut self.peers[at];
            let Some(link) = &peer.link else { continue };
            let greeted = peer.state == State::Open;
            let waited = match peer.waiting.front() {
                // A request of an open loop may have waited for its turn: only a silent server is at fault.
                Some(oldest) => since(oldest.since_ns).min(since(link.last_received_ns.min(link.last_sent_ns))),
                None if greeted => Duration::ZERO,
                None => since(peer.begun_ns),
            };
            if waited > self.reply_timeout {
                ensure!(greeted, "nothing answered; does it speak ZooKeeper's protocol at {}?", peer.server);
                bail!("{}: no reply for {waited:.1?}", self.name(at));
            }
            if greeted && peer.waiting.is_empty() && since(link.last_sent_ns) > peer.granted / 3 {
                peer.call(Call::Ping, XID_PING, now_ns, |out, xid| push_frame(out, xid, OpCode::Ping, &[], &[]));
                self.flush(at)?;
            }
        }
        Ok(())
    }

    fn name(&self, peer: usize) -> String {
        format!("session {peer} to {}", self.peers[peer].server)
    }
}

impl<T> Peer<T> {
    fn call(&mut self, call: Call<T>, xid: i32, since_ns: u64, encode: impl FnOnce(&mut Vec<u8>, i32)) {
        assert!(self.state == State::Open, "requests are made of open sessions");
        encode(&mut self.link.as_mut().expect("an open session has a socket").out, xid);
        self.waiting.push_back(Waiting { xid, call, since_ns });
    }

    /// The error if the server closes the connection; `granted` sessions were before.
    fn hung_up(&self, granted: u64) -> anyhow::Error {
        if self.state == State::Open {
            return anyhow!("the server closed the connection with {} in flight", self.waiting.len());
        }
        let or = if granted == 0 { "does it speak another protocol?" } else { "has the server ended?" };
        anyhow!("{} closed the connection after {granted} sessions were granted; {LIMITED} or {or}", self.server)
    }
}

pub(crate) fn unexpected<T: std::fmt::Debug>(event: &Event<T>) -> anyhow::Error {
    anyhow!("session {}: {:?}, which was not requested", event.peer, event.what)
}

/// Judges a frame of an open session: what it is, its error or the type of the event, and when its request was made.
fn judge<T>(
    reader: &mut Reader<'_>,
    waiting: &mut VecDeque<Waiting<T>>,
    zxid_seen: &mut i64,
) -> Result<(Call<T>, i32, u64)> {
    let header = ReplyHeader::decode(reader)?;
    let notification = header.xid == XID_NOTIFICATION;
    // Servers before 3.9 number no event. One with a number must come before any state that contains the change.
    ensure!(
        header.zxid >= *zxid_seen || (notification && header.zxid <= 0),
        "the reply's zxid 0x{:x} is before 0x{zxid_seen:x}, which this session saw already",
        header.zxid
    );
    if notification {
        let event = WatcherEvent::decode(&mut reader.clone())?;
        return Ok((Call::Notification, event.event_type, 0));
    }
    let Some(Waiting { xid, call, since_ns }) = waiting.pop_front() else { bail!("a reply came without a request") };
    ensure!(header.xid == xid, "the reply has xid {}, the request next in turn has {xid}", header.xid);
    *zxid_seen = header.zxid;
    let left = reader.remaining();
    ensure!(header.err == 0 || left == 0, "{left} bytes follow the reply's record");
    Ok((call, header.err, since_ns))
}

/// The name of an error code; 0 is success.
pub(crate) fn error_name(code: i32) -> &'static str {
    ErrorCode::from_i32(code).map_or(if code == 0 { "OK" } else { "an unknown error" }, ErrorCode::name)
}

/// Fails unless the reply is a success.
pub(crate) fn granted_or(what: &str, error: i32) -> Result<()> {
    ensure!(error == 0, "{what}: the server answered {} ({error})", error_name(error));
    Ok(())
}

fn greeting(reader: &mut Reader<'_>, server: SocketAddr) -> Result<Duration> {
    let response = ConnectResponse::decode(reader).with_context(|| no_zookeeper(server))?;
    let granted = u64::try_from(response.timeout_ms).unwrap_or(0);
    ensure!(granted > 0, "{server} granted no session");
    Ok(Duration::from_millis(granted))
}

fn no_zookeeper(server: SocketAddr) -> String {
    format!("{server} does not speak ZooKeeper's protocol: its answer to the connect request is something else")
}

fn unreachable(server: SocketAddr) -> String {
    format!("{server} cannot be reached; does the server run there?")
}

fn connect_request(out: &mut Vec<u8>, timeout_ms: i32) -> Result<()> {
    let (passwd, read_only) = (Some(&[0; 16][..]), Some(false));
    let request =
        ConnectRequest { protocol_version: 0, last_zxid_seen: 0, timeout_ms, session_id: 0, passwd, read_only };
    Ok(append_frame(out, |writer| request.encode(writer))?)
}

fn begin_connect(server: SocketAddr) -> Result<TcpStream> {
    let family = if server.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let fd = socket(family, SockType::Stream, flags, None).context("socket")?;
    match connect(fd.as_raw_fd(), &SockaddrStorage::from(server)) {
        Ok(()) | Err(Errno::EINPROGRESS) => {}
        Err(Errno::EADDRNOTAVAIL) => bail!("this address has no free port left towards {server}"),
        Err(error) => return Err(error).with_context(|| unreachable(server)),
    }
    let stream = TcpStream::from(fd);
    stream.set_nodelay(true)?;
    Ok(stream)
}
