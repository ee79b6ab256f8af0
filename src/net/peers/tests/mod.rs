//! Tests of the connections over real loopback sockets: the actions of both ends, and those of a stranger.
//!
//! A `Server` is one end with the events it told; a `Fake` speaks bytes by hand.

mod faults;
mod hostile;
mod hosts;
mod secrets;
mod tls;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once};
use std::time::{Duration, Instant};

use bytes::Bytes;
use corral_consensus::ServerId;
use corral_peer::handshake::{ANSWER_BYTES, HANDSHAKE_BYTES};
use corral_peer::{Admission, Answer, ClusterName, Generation, Handshake};
use socket2::Socket;

use super::event::{ConnectionEvent, Direction, Reason};
use super::{Generations, Kind, NotSent, PeerAddress, PeerConnections, Settings};
use crate::net::listen;

/// How long anything may take that happens at once on a quiet host.
const SOON: Duration = Duration::from_secs(60);

fn listener() -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free")
}

/// A port that refuses connections until it is opened. No other program can take it meanwhile.
struct ClosedPort(Socket);

impl ClosedPort {
    fn new() -> ClosedPort {
        ClosedPort(listen::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a port is free"))
    }

    fn port(&self) -> u16 {
        self.0.local_addr().ok().and_then(|address| address.as_socket()).expect("it is bound").port()
    }

    fn open(self) -> TcpListener {
        self.0.listen(16).expect("it is bound");
        self.0.into()
    }
}

fn address(id: u8, port: u16) -> PeerAddress {
    PeerAddress { id: ServerId(id), host: "127.0.0.1".to_owned(), port }
}

fn port(listener: &TcpListener) -> u16 {
    listener.local_addr().expect("it is bound").port()
}

fn cluster() -> ClusterName {
    ClusterName::new("corral").expect("a name")
}

/// One end of connections.
struct Server {
    connections: PeerConnections,
    events: flume::Receiver<ConnectionEvent>,
    port: u16,
}

impl Server {
    /// A server with the peers it may have, changed before it starts.
    fn start(
        id: u8,
        incarnation: u64,
        listener: TcpListener,
        peers: Vec<PeerAddress>,
        change: impl FnOnce(&mut Settings),
    ) -> Server {
        collect_log();
        let port = port(&listener);
        let mut settings = Settings::new(ServerId(id), incarnation, cluster(), listener, peers, None);
        change(&mut settings);
        let (sender, events) = flume::unbounded();
        let connections =
            PeerConnections::start(settings, move |event| drop(sender.send(event))).expect("threads can be started");
        Server { connections, events, port }
    }

    /// The next event, dropped from the queue.
    fn next(&self) -> ConnectionEvent {
        self.events.recv_timeout(SOON).expect("something happens")
    }

    /// Waits for a connection of the direction: its stream and incarnation.
    fn up(&self, wanted: Direction) -> (u64, u64) {
        loop {
            if let ConnectionEvent::Up { direction, stream, incarnation, .. } = self.next()
                && direction == wanted
            {
                return (stream, incarnation);
            }
        }
    }

    /// Waits for the end of a connection of the direction.
    fn down(&self, wanted: Direction) -> Reason {
        loop {
            if let ConnectionEvent::Down { direction, reason, .. } = self.next()
                && direction == wanted
            {
                return reason;
            }
        }
    }

    /// Waits until so many frames have come.
    fn frames(&self, count: usize) -> Vec<(Kind, Bytes)> {
        let mut found = Vec::new();
        while found.len() < count {
            if let ConnectionEvent::Frames { frames, .. } = self.next() {
                found.extend(frames.into_iter().map(|frame| (frame.kind, frame.payload)));
            }
        }
        found
    }

    fn send(&self, peer: u8, kind: Kind, payload: &[u8]) -> Result<(), NotSent> {
        let sent = self.connections.send(ServerId(peer), kind, Bytes::copy_from_slice(payload));
        self.connections.flush();
        sent
    }
}

/// Servers 1 and 2, connected both ways.
fn pair(change: impl Fn(&mut Settings)) -> (Server, Server) {
    let (first, second) = (listener(), listener());
    let peers = vec![address(1, port(&first)), address(2, port(&second))];
    let first = Server::start(1, 11, first, peers.clone(), &change);
    let second = Server::start(2, 22, second, peers, &change);
    for (server, incarnation) in [(&first, 22), (&second, 11)] {
        assert_eq!(server.both_up(), incarnation);
    }
    (first, second)
}

impl Server {
    fn down_any(&self) -> Reason {
        loop {
            if let ConnectionEvent::Down { reason, .. } = self.next() {
                return reason;
            }
        }
    }

    fn next_of(&self, wanted: Direction) -> ConnectionEvent {
        loop {
            let event = self.next();
            if let ConnectionEvent::Up { direction, .. } | ConnectionEvent::Down { direction, .. } = &event
                && *direction == wanted
            {
                return event;
            }
        }
    }

    /// Waits for a connection of each direction; the incarnation of the peer, which it tells on its own alone.
    fn both_up(&self) -> u64 {
        let (one, other) = (self.up_any(), self.up_any());
        assert_eq!(one.min(other), 0);
        one.max(other)
    }

    fn up_any(&self) -> u64 {
        loop {
            if let ConnectionEvent::Up { incarnation, .. } = self.next() {
                return incarnation;
            }
        }
    }
}

/// A server 2 that is made of bytes.
struct Fake {
    listener: TcpListener,
}

impl Fake {
    /// With a server 1 that dials it.
    fn with_server(change: impl FnOnce(&mut Settings)) -> (Fake, Server) {
        let fake = Fake { listener: listener() };
        let server = Server::start(1, 11, listener(), vec![address(2, port(&fake.listener))], change);
        (fake, server)
    }

    /// Lets server 1 in.
    fn welcome(&self) -> TcpStream {
        let (mut socket, _) = self.listener.accept().expect("it dials");
        let mut handshake = [0; HANDSHAKE_BYTES];
        socket.read_exact(&mut handshake).expect("it sends its handshake");
        let handshake = Handshake::decode(&handshake).expect("the handshake is good");
        assert_eq!((handshake.from, handshake.to, handshake.incarnation), (1, 2, 11));
        self.answer(&mut socket, Admission::Welcome);
        socket
    }

    fn answer(&self, socket: &mut TcpStream, verdict: Admission) {
        let answer = Answer { verdict, id: 2, generation: Generation::FIRST };
        socket.write_all(&answer.encode()).expect("it listens");
    }
}

/// A handshake as server 2 sends it to server 1.
fn handshake() -> Handshake {
    Handshake { cluster: cluster(), from: 2, to: 1, generation: Generation::FIRST, incarnation: 22, token: [22; 7] }
}

/// Sends a handshake as server 2 and gives the answer.
fn knock(port: u16, change: impl FnOnce(&mut Handshake)) -> (TcpStream, Option<Answer>) {
    let mut handshake = handshake();
    change(&mut handshake);
    let mut socket = connected(port);
    socket.write_all(&handshake.encode()).expect("somebody listens");
    let mut answer = [0; ANSWER_BYTES];
    let answer = socket.read_exact(&mut answer).ok().map(|()| Answer::decode(&answer).expect("the answer is good"));
    (socket, answer)
}

fn connected(port: u16) -> TcpStream {
    let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("somebody listens");
    socket.set_read_timeout(Some(SOON)).expect("a time is legal");
    socket
}

/// Ends a connection as the kernel of a process that died with unread bytes does.
fn reset(socket: TcpStream) {
    rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::ZERO)).expect("the option exists");
    drop(socket);
}

/// Waits until the condition holds.
#[track_caller]
fn until(what: &str, condition: impl Fn() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < SOON, "it does not come to pass: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct ToLog;

impl std::io::Write for ToLog {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOG.lock().expect("nobody panics with the log").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Collects what all tests log.
fn collect_log() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(|| ToLog).finish();
        tracing::subscriber::set_global_default(subscriber).expect("the only one");
    });
}

/// Waits until a line of the log holds all of the parts.
#[track_caller]
fn logged(parts: &[&str]) {
    until(&format!("a line of the log with {parts:?}"), || {
        let log = LOG.lock().expect("nobody panics with the log").clone();
        String::from_utf8_lossy(&log).lines().any(|line| parts.iter().all(|part| line.contains(part)))
    });
}

#[test]
fn messages_arrive_in_order_and_whole_both_ways() {
    let (first, second) = pair(|_| ());
    let messages: Vec<(Kind, Vec<u8>)> = (0_usize..500)
        .map(|at| (Kind::ALL[at % 4], vec![at.to_le_bytes()[0]; [0, 1, 100, 20_000, 300_000][at % 5]]))
        .collect();
    for (from, to, peer) in [(&first, &second, 2), (&second, &first, 1)] {
        for (kind, payload) in &messages {
            from.send(peer, *kind, payload).expect("there is room");
        }
        let found = to.frames(messages.len());
        assert!(found.iter().zip(&messages).all(|(found, sent)| found.0 == sent.0 && found.1 == sent.1));
        until("everything is written", || from.connections.stats()[0].queued_messages == 0);
        let (out, into) = (from.connections.stats(), to.connections.stats());
        assert_eq!((out[0].messages_out, into[0].messages_in), (500, 500));
        assert_eq!((out[0].queued_bytes, out[0].dropped, out[0].reconnects), (0, 0, 0));
        assert_eq!(out[0].bytes_out, into[0].bytes_in);
        assert!(out[0].up_out && out[0].up_in);
    }
    assert_eq!(first.send(3, Kind::Raft, b""), Err(NotSent::Unknown));
    assert!(first.connections.stop() && second.connections.stop());
}

#[test]
fn a_stop_writes_what_is_queued_and_ends_every_thread() {
    let (first, second) = pair(|_| ());
    for _ in 0..100 {
        first.send(2, Kind::Forward, &[1; 1000]).expect("there is room");
    }
    assert!(first.connections.stop());
    assert_eq!(second.frames(100).len(), 100);
    assert_eq!(second.down(Direction::In), Reason::Closed);
    assert_eq!(first.send(2, Kind::Forward, b""), Err(NotSent::Down));
}
