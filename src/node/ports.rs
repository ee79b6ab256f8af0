//! The ports: where clients and the other servers reach this one, at start and when the membership sends it
//! elsewhere.
//!
//! At start on the main thread; then a thread of its own, which may wait for the system's resolver. It listens, and
//! leaves it to others to accept.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use corral_engine::Moved;
use corral_storage::MmapDisk;
use flume::RecvTimeoutError;
use socket2::Socket;

use crate::config::Config;
use crate::config::value::{Rejection, every_address, resolve};
use crate::data::remembered;
use crate::exit::Fault;
use crate::gauges::Gauges;
use crate::messages::ToShard;
use crate::net::acceptor::BACKLOG;
use crate::net::handshakes::Speaks;
use crate::net::listen::{self, effective};
use crate::net::peers::PeerConnections;
use crate::runtime::mailbox::Post;

/// A failed step for a list is tried again after this time.
const AGAIN_AFTER: Duration = Duration::from_secs(5);
/// How often an address that is in use is tried at start, and how often when the list says so.
const START_TRIES: u32 = 400;
const MOVE_TRIES: u32 = 40;
const TRY_PAUSE: Duration = Duration::from_millis(5);

/// Why this server does not listen at an address of the list of servers. [`failed`] gives the address and the remedy.
#[derive(Debug, thiserror::Error)]
enum CannotListen {
    #[error("{}", .0.reason)]
    Host(#[from] Rejection),
    #[error("{0}")]
    Exposed(&'static str),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The acceptor of clients.
#[derive(Clone)]
pub(crate) enum ListensOn {
    /// The ring of a shard.
    Ring(Post<ToShard>),
    /// A thread.
    Thread(flume::Sender<TcpListener>),
    /// The thread of the TLS handshakes.
    Handshakes(flume::Sender<(TcpListener, Speaks)>, Speaks),
}

impl ListensOn {
    /// Clients are accepted from this listener, and from the one before until that is shut down.
    ///
    /// # Errors
    /// When no thread accepts any more, because the server ends.
    pub(crate) fn accept_from(&self, listener: TcpListener) -> io::Result<()> {
        let told = match self {
            ListensOn::Ring(shard) => shard.send(ToShard::Listen(listener)).is_ok(),
            ListensOn::Thread(thread) => thread.send(listener).is_ok(),
            ListensOn::Handshakes(thread, speaks) => thread.send((listener, *speaks)).is_ok(),
        };
        if told { Ok(()) } else { Err(io::Error::other("the acceptor has ended")) }
    }
}

/// The ports of a server of an ensemble.
pub(crate) struct Ports {
    pub(crate) listens_on: ListensOn,
    pub(crate) gauges: Arc<Gauges>,
    pub(crate) connections: Arc<PeerConnections>,
    /// Where the list is remembered.
    pub(crate) disk: MmapDisk,
    /// Where other servers reach this one, if it is not the address of its host.
    pub(crate) peer_addr: Option<SocketAddr>,
    pub(crate) configured: Configured,
    /// Where clients are accepted; a copy, to end it by.
    pub(crate) clients: TcpListener,
    /// No connection is accepted there: another process took its address in between.
    pub(crate) is_shut: bool,
}

/// Where the configuration says that this server is found.
pub(crate) struct Configured {
    pub(crate) peers: Option<(String, u16)>,
    pub(crate) clients: SocketAddr,
}

/// Steps for a list, which are tried until they succeed or a later list replaces them.
#[derive(Default)]
struct Due {
    now: Moved,
    /// The last text about each failure: of the others, of clients, of the list.
    said: [String; 3],
}

impl Due {
    fn overtake(&mut self, later: Moved) {
        let Moved { peers, clients, list } = later;
        self.now.peers = peers.or(self.now.peers.take());
        self.now.clients = clients.or(self.now.clients.take());
        self.now.list = list.or(self.now.list.take());
    }

    /// Says what failed, unless that was said last.
    fn complain(&mut self, of: usize, reason: String) {
        if self.said[of] != reason {
            tracing::error!("{reason}");
            self.said[of] = reason;
        }
    }
}

impl Ports {
    /// Listens wherever the list says from now on, and remembers the list.
    pub(crate) fn run(mut self, inbox: &flume::Receiver<Moved>) {
        let mut due = Due::default();
        loop {
            let idle = due.now == Moved::default();
            let told =
                if idle { inbox.recv().map_err(RecvTimeoutError::from) } else { inbox.recv_timeout(AGAIN_AFTER) };
            match told {
                Ok(moved) => due.overtake(moved),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            inbox.try_iter().for_each(|moved| due.overtake(moved));
            self.carry_out(&mut due);
        }
    }

    /// Does what can be done; the rest stays due.
    fn carry_out(&mut self, due: &mut Due) {
        if let Some(list) = due.now.list.take()
            && let Err(error) = remembered::write(&self.disk, &list)
        {
            due.complain(2, format!("the membership cannot be remembered, trying again: {error}"));
            due.now.list = Some(list);
        }
        if let Some((host, port)) = due.now.peers.take() {
            match self.let_peers_in(&host, port) {
                Ok(address) => {
                    due.said[0].clear();
                    let is_configured = self.configured.peers.as_ref().is_some_and(|own| *own == (host, port));
                    say_moved("the other servers", address, is_configured);
                }
                Err(reason) => {
                    due.complain(0, failed("the other servers", &host, port, &reason));
                    due.now.peers = Some((host, port));
                }
            }
        }
        if let Some((host, port)) = due.now.clients.take() {
            match self.move_clients(&host, port) {
                Ok(address) => {
                    due.said[1].clear();
                    let configured = self.configured.clients;
                    let is_any = configured.ip().is_unspecified() && configured.port() == address.port();
                    say_moved("clients", address, configured == address || is_any);
                }
                Err(reason) => {
                    due.complain(1, failed("clients", &host, port, &reason));
                    due.now.clients = Some((host, port));
                }
            }
        }
    }

    /// Listens for the others at one more address: servers that were not running look for it where it was.
    fn let_peers_in(&self, host: &str, port: u16) -> Result<SocketAddr, CannotListen> {
        let address = match self.peer_addr {
            Some(address) => SocketAddr::new(address.ip(), port),
            None => resolve(host, port)?,
        };
        if let Some(reason) = self.connections.exposed(address.ip()) {
            return Err(CannotListen::Exposed(reason));
        }
        self.connections.listen_at(address)?;
        Ok(address)
    }

    /// Listens for clients there and nowhere else. Connected clients stay connected.
    fn move_clients(&mut self, host: &str, port: u16) -> Result<SocketAddr, CannotListen> {
        let address = effective(self.client_address(host, port)?);
        let present = self.clients.local_addr()?;
        if self.is_shut || (present.port() == port && present != address) {
            self.replace_at(present, address)?;
        } else if present != address {
            self.accept_at(address, MOVE_TRIES)?;
        }
        Ok(address)
    }

    /// The address of the list. The list has `0.0.0.0` where a line names a port alone: then every address counts, unless
    /// the configuration says IPv4.
    fn client_address(&self, host: &str, port: u16) -> Result<SocketAddr, Rejection> {
        let every_ipv4 = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let is_any = host.parse() == Ok(every_ipv4) && self.configured.clients.ip() != every_ipv4;
        if is_any { Ok(every_address(port)) } else { resolve(host, port) }
    }

    /// Listens at another host of the same port, which the listener of now may stand in the way of.
    fn replace_at(&mut self, present: SocketAddr, address: SocketAddr) -> io::Result<()> {
        // An address that is not of this host is detected before any listener is shut.
        listen::bind(SocketAddr::new(address.ip(), 0))?;
        shut(&self.clients);
        self.is_shut = true;
        self.accept_at(address, 1).or_else(|error| {
            self.accept_at(present, START_TRIES).map_err(|lost| {
                io::Error::new(lost.kind(), format!("{error}; nor is it let back to {present}: {lost}"))
            })?;
            Err(error)
        })
    }

    fn accept_at(&mut self, address: SocketAddr, tries: u32) -> io::Result<()> {
        let listener = open(address, tries)?;
        let copy = listener.try_clone()?;
        self.listens_on.accept_from(listener)?;
        shut(&std::mem::replace(&mut self.clients, copy));
        self.is_shut = false;
        self.gauges.client_port.store(address.port(), Ordering::Relaxed);
        Ok(())
    }
}

/// Accepts no connection from it any more.
fn shut(listener: &TcpListener) {
    // Fails only where it is shut already.
    let _ = socket2::SockRef::from(listener).shutdown(Shutdown::Both);
}

fn say_moved(who: &str, address: SocketAddr, is_configured: bool) {
    if is_configured {
        tracing::info!(%address, "the membership gives this server another address, as its configuration does; {who} use it now");
    } else {
        tracing::warn!(
            %address,
            "the membership gives this server another address; {who} use it now; change its configuration accordingly \
             before its next start"
        );
    }
}

fn failed(who: &str, host: &str, port: u16, reason: &CannotListen) -> String {
    format!(
        "the membership says that {who} find this one at {host}:{port}, where it cannot listen, trying again every {} s: \
         {reason}; correct the list, or stop the program that uses the address",
        AGAIN_AFTER.as_secs()
    )
}

fn open(address: SocketAddr, tries: u32) -> io::Result<TcpListener> {
    let socket = bind_within(address, tries)?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// The keys of addresses.
pub(crate) const CLIENT_ADDR: &str = "server.client_addr";
const TLS_ADDR: &str = "tls.client_addr";
pub(crate) const HTTP_ADDR: &str = "metrics.http_addr";

/// Sockets with their addresses, which do not listen yet. An address in use ends the start at once.
pub(crate) struct Sockets {
    pub(crate) clients: Socket,
    /// For TLS alone.
    pub(crate) secure: Option<Socket>,
    pub(crate) http: Option<Socket>,
}

impl Sockets {
    /// # Errors
    /// If an address cannot be had.
    pub(crate) fn bind(config: &Config) -> Result<Sockets, Fault> {
        let bound = |address, key| bind(address).map_err(|error| listen::fault(address, &error, key));
        Ok(Sockets {
            clients: bound(config.server.client_addr, CLIENT_ADDR)?,
            secure: config.tls.client_addr.map(|address| bound(address, TLS_ADDR)).transpose()?,
            http: config.metrics.http_addr.map(|address| bound(address, HTTP_ADDR)).transpose()?,
        })
    }
}

/// Listens at the address that this key gives.
///
/// # Errors
/// If another program listens there.
pub(crate) fn listen_on(socket: Socket, address: SocketAddr, key: &str) -> Result<TcpListener, Fault> {
    socket.listen(BACKLOG).map_err(|error| listen::fault(address, &error, key))?;
    Ok(socket.into())
}

/// Takes the address, without accepting connections yet: the port opens when the server can serve.
///
/// The kernel takes down the rings of a killed process after the process is gone, and with them the socket that they
/// accept from. A server that is started again at once finds the address in use for some milliseconds.
fn bind(address: SocketAddr) -> io::Result<Socket> {
    bind_within(address, START_TRIES)
}

fn bind_within(address: SocketAddr, tries: u32) -> io::Result<Socket> {
    for _ in 1..tries {
        match listen::bind(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => thread::sleep(TRY_PAUSE),
            other => return other,
        }
    }
    listen::bind(address)
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use corral_consensus::ServerId;
    use corral_core::servers::Servers;
    use corral_storage::SyncRecipe;

    use super::*;
    use crate::config::Config;
    use crate::net::acceptor::{Acceptor, ConnectionLimits, Give, SharedAcceptor};
    use crate::net::peers::{PeerAddress, Settings};
    use crate::runtime::clock::Clock;
    use crate::runtime::mailbox::{Bell, mailbox};
    use corral_engine::StoredServers;

    const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn free() -> TcpListener {
        TcpListener::bind((LOCAL, 0)).expect("loopback has a free port")
    }

    fn port(listener: &TcpListener) -> u16 {
        listener.local_addr().expect("it is bound").port()
    }

    fn connects(port: u16) -> bool {
        TcpStream::connect((LOCAL, port)).is_ok()
    }

    /// Ports of a server with a thread that accepts clients, and the messages to its one shard.
    fn ports() -> (Ports, flume::Receiver<ToShard>) {
        let (clients, gauges) = (free(), Arc::new(Gauges::default()));
        let (post, inbox) = mailbox(&Bell::new().expect("a file can be opened"));
        let give: Give = Box::new(move |accepted| post.send(ToShard::Accepted(accepted)).is_ok());
        let acceptor = Acceptor::new(
            ConnectionLimits::nine(),
            vec![give],
            flume::unbounded().1,
            Clock::start(),
            Arc::clone(&gauges),
        );
        let acceptor = SharedAcceptor::new(acceptor);
        let (listens_on, listeners) = flume::unbounded();
        thread::spawn(move || Acceptor::run(&acceptor, &listeners));
        let listens_on = ListensOn::Thread(listens_on);
        listens_on.accept_from(clients.try_clone().expect("it can be cloned")).expect("the thread is there");
        let peers = free();
        let own = PeerAddress { id: ServerId(1), host: LOCAL.to_string(), port: port(&peers) };
        let settings = Settings::new(ServerId(1), 7, Config::default().ensemble.cluster, peers, vec![own], None);
        let settings = Settings { plaintext: false, ..settings };
        let connections = Arc::new(PeerConnections::start(settings, |_| ()).expect("threads can be started"));
        let configured = Configured { peers: None, clients: clients.local_addr().expect("it is bound") };
        let directory = tempfile::tempdir().expect("there is room");
        let disk = MmapDisk::open(directory.path(), SyncRecipe::default()).expect("it is a directory");
        let _ = directory.keep();
        (Ports { listens_on, gauges, connections, disk, peer_addr: None, configured, clients, is_shut: false }, inbox)
    }

    #[test]
    fn clients_are_accepted_where_the_list_says_and_nowhere_else() {
        let (mut ports, inbox) = ports();
        let accepted = || matches!(inbox.recv_timeout(Duration::from_secs(5)), Ok(ToShard::Accepted(_)));
        let first = port(&ports.clients);
        assert!(connects(first) && accepted());
        let next = port(&free());
        assert_eq!(ports.move_clients("127.0.0.1", next).expect("it can listen there"), SocketAddr::new(LOCAL, next));
        assert!(connects(next) && accepted());
        assert!(!connects(first));
        assert_eq!(ports.gauges.client_port.load(Ordering::Relaxed), next);
        // Where another process listens it cannot; it goes on where it was.
        let taken = free();
        assert!(ports.move_clients("127.0.0.1", port(&taken)).is_err());
        assert!(ports.move_clients("192.0.2.1", next).is_err());
        assert!(connects(next) && accepted());
        assert_eq!(ports.move_clients("127.0.0.1", next).expect("it can listen there"), SocketAddr::new(LOCAL, next));
        assert!(connects(next) && accepted());
    }

    #[test]
    fn clients_go_to_another_host_of_the_same_port_and_back() {
        let (mut ports, inbox) = ports();
        let accepted = || matches!(inbox.recv_timeout(Duration::from_secs(5)), Ok(ToShard::Accepted(_)));
        let same = port(&ports.clients);
        let any = effective(every_address(same));
        assert_eq!(ports.move_clients("0.0.0.0", same).expect("it can listen there"), any);
        assert!(TcpStream::connect(("127.0.0.2", same)).is_ok() && accepted());
        assert!(connects(same) && accepted());
        assert_eq!(ports.move_clients("127.0.0.1", same).expect("it can listen there"), SocketAddr::new(LOCAL, same));
        assert!(TcpStream::connect(("127.0.0.2", same)).is_err());
        assert!(connects(same) && accepted());
        // Where another process listens, or it is no address of this host, it goes on where it was.
        let other = TcpListener::bind(("127.0.0.2", same)).expect("it is free");
        assert!(ports.move_clients("0.0.0.0", same).is_err());
        assert!(connects(same) && accepted());
        assert!(ports.move_clients("192.0.2.1", same).is_err());
        assert!(connects(same) && accepted());
        drop(other);
        assert_eq!(ports.move_clients("0.0.0.0", same).expect("it can listen there"), any);
        assert!(connects(same) && accepted());
    }

    #[test]
    fn what_failed_is_tried_again_until_it_is_overtaken() {
        let (mut ports, _inbox) = ports();
        let at = |port: u16| Some((LOCAL.to_string(), port));
        let (taken, next) = (free(), port(&free()));
        let list =
            |version: u64| Servers::parse("server.1=a:1:2").map(|(servers, _)| StoredServers { servers, version });
        let mut due = Due::default();
        due.overtake(Moved { clients: at(port(&taken)), peers: at(port(&taken)), list: list(1) });
        ports.carry_out(&mut due);
        let left = Moved { clients: at(port(&taken)), peers: at(port(&taken)), list: None };
        assert_eq!(due.now, left);
        assert!(
            due.said[0].contains("the other servers find") && due.said[1].contains("clients find"),
            "{:?}",
            due.said
        );
        assert_eq!(remembered::read(&ports.disk), list(1));
        due.overtake(Moved { peers: at(next), list: list(2), ..Moved::default() });
        due.overtake(Moved { list: list(3), ..Moved::default() });
        ports.carry_out(&mut due);
        assert!(connects(next));
        assert_eq!(due.now, Moved { clients: at(port(&taken)), ..Moved::default() });
        assert_eq!(remembered::read(&ports.disk), list(3));
        let there = port(&taken);
        drop(taken);
        ports.carry_out(&mut due);
        assert_eq!(due.now, Moved::default());
        assert!(connects(there));
    }

    #[test]
    fn peers_are_let_in_where_the_list_says_and_where_it_said() {
        let (ports, _inbox) = ports();
        let moves: Vec<u16> = (0..4).map(|_| port(&free())).collect();
        let outcomes: Vec<_> = moves.iter().map(|port| ports.let_peers_in("127.0.0.1", *port)).collect();
        assert!(outcomes[..3].iter().all(Result::is_ok), "{outcomes:?}");
        assert!(moves[..3].iter().all(|port| connects(*port)));
        let too_many = outcomes[3].as_ref().expect_err("there is a limit");
        assert!(too_many.to_string().contains("4 addresses"), "{too_many}");
        assert!(ports.let_peers_in("127.0.0.1", moves[0]).is_ok(), "it listens there");
        let refusal = ports.let_peers_in("192.0.2.1", 1).expect_err("nothing is encrypted");
        assert!(refusal.to_string().contains("ensemble.allow_plaintext"), "{refusal}");
    }
}
