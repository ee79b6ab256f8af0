//! The ports: where clients and the other servers reach this one, at start and when the list of servers sends it elsewhere.
//!
//! At start on the main thread; then a thread of its own, which may wait for the system's resolver. It listens, and leaves it
//! to others to accept.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use crate::actor::messages::{Moved, ToShard};
use crate::config::value::resolve;
use crate::control::Gauges;
use crate::net::peers::Links;
use crate::runtime::mailbox::Post;

/// Connections the kernel holds while they wait to be accepted.
pub(crate) const BACKLOG: i32 = 4096;

/// Who accepts clients.
#[derive(Clone)]
pub(crate) enum Doorman {
    /// The ring of a shard.
    Ring(Post<ToShard>),
    /// A thread.
    Thread(flume::Sender<TcpListener>),
}

impl Doorman {
    /// Clients are accepted from this listener, and from the one before until that is shut down.
    ///
    /// # Errors
    /// When nobody accepts any more, because the server ends.
    pub(crate) fn accept_from(&self, listener: TcpListener) -> io::Result<()> {
        let told = match self {
            Doorman::Ring(shard) => shard.send(ToShard::Listen(listener)).is_ok(),
            Doorman::Thread(thread) => thread.send(listener).is_ok(),
        };
        if told { Ok(()) } else { Err(io::Error::other("nobody accepts connections any more")) }
    }
}

/// The ports of a server of an ensemble.
pub(crate) struct Ports {
    pub(crate) doorman: Doorman,
    pub(crate) gauges: Arc<Gauges>,
    pub(crate) links: Arc<Links>,
    /// Where other servers reach this one, if it is not the address of its host.
    pub(crate) peer_addr: Option<SocketAddr>,
    /// Where clients are accepted; a copy, to end it by.
    pub(crate) clients: TcpListener,
}

impl Ports {
    /// Listens wherever the list says from now on.
    pub(crate) fn run(mut self, inbox: &flume::Receiver<Moved>) {
        for Moved { peers, clients } in inbox {
            if let Some((host, port)) = peers {
                let outcome = self.let_peers_in(&host, port);
                say("the other servers", &host, port, outcome);
            }
            if let Some((host, port)) = clients {
                let outcome = self.move_clients(&host, port);
                say("clients", &host, port, outcome);
            }
        }
    }

    /// Listens for the others at one more address: those who were away look for it where it was.
    fn let_peers_in(&self, host: &str, port: u16) -> Result<SocketAddr, String> {
        if let Some(reason) = self.links.exposed(host) {
            return Err(reason.to_owned());
        }
        let address = match self.peer_addr {
            Some(address) => SocketAddr::new(address.ip(), port),
            None => resolve(host, port).map_err(|rejection| rejection.reason)?,
        };
        self.links.listen_at(address).map(|()| address).map_err(|error| error.to_string())
    }

    /// Listens for clients there and nowhere else. Who is connected stays so.
    fn move_clients(&mut self, host: &str, port: u16) -> Result<SocketAddr, String> {
        let address = resolve(host, port).map_err(|rejection| rejection.reason)?;
        if self.clients.local_addr().ok() != Some(address) {
            self.accept_at(address).map_err(|error| error.to_string())?;
        }
        Ok(address)
    }

    fn accept_at(&mut self, address: SocketAddr) -> io::Result<()> {
        let listener = listen(address)?;
        let copy = listener.try_clone()?;
        self.doorman.accept_from(listener)?;
        let before = std::mem::replace(&mut self.clients, copy);
        self.gauges.client_port.store(address.port(), Ordering::Relaxed);
        socket2::SockRef::from(&before).shutdown(Shutdown::Both)
    }
}

fn say(who: &str, host: &str, port: u16, outcome: Result<SocketAddr, String>) {
    match outcome {
        Ok(address) => tracing::warn!(
            %address,
            "the list of servers has moved this one, {who} find it there now: its configuration must say so before it is \
             started again"
        ),
        Err(reason) => tracing::error!(
            "the list of servers says that {who} find this one at {host}:{port}, where it cannot listen: {reason}; correct the \
             list, or its configuration and start it again"
        ),
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = bind(address)?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Takes the address, without letting anybody connect yet: the port opens when there is somebody to serve.
///
/// The kernel takes down the rings of a process that was killed after the process is gone, and with them the socket that
/// they accept from: whoever starts the server again at once finds the address in use for some milliseconds.
pub(crate) fn bind(address: SocketAddr) -> io::Result<socket2::Socket> {
    const TRIES: u32 = 400;
    const PAUSE: Duration = Duration::from_millis(5);
    for _ in 1..TRIES {
        match try_bind(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => thread::sleep(PAUSE),
            other => return other,
        }
    }
    try_bind(address)
}

fn try_bind(address: SocketAddr) -> io::Result<socket2::Socket> {
    let socket = socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    // What is accepted from it inherits this.
    socket.set_nodelay(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, TcpStream};

    use corral_consensus::NodeId;

    use super::*;
    use crate::config::Config;
    use crate::net::acceptor::{Acceptor, ConnectionLimits};
    use crate::net::peers::{PeerAddress, Settings};
    use crate::runtime::mailbox::{Bell, mailbox};

    #[test]
    fn what_is_accepted_sends_without_delay() {
        let listener = bind("127.0.0.1:0".parse().expect("an address")).expect("loopback has a free port");
        listener.listen(1).expect("it is bound");
        let listener = TcpListener::from(listener);
        let _far = std::net::TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
        let (near, _) = listener.accept().expect("one connects");
        assert!(near.nodelay().expect("it can be asked"));
    }

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

    /// Ports of a server whose clients are accepted by a thread, and what its one shard is told.
    fn ports() -> (Ports, flume::Receiver<ToShard>) {
        let (clients, gauges) = (free(), Arc::new(Gauges::default()));
        let (post, inbox) = mailbox(&Bell::new().expect("a file can be opened"));
        let limits = ConnectionLimits { total: 9, per_address: 0, per_shard: vec![9] };
        let mut acceptor = Acceptor::new(limits, vec![post], flume::unbounded().1, Arc::clone(&gauges));
        let (doorman, listeners) = flume::unbounded();
        thread::spawn(move || acceptor.run(&listeners));
        let doorman = Doorman::Thread(doorman);
        doorman.accept_from(clients.try_clone().expect("it can be cloned")).expect("the thread is there");
        let peers = free();
        let own = PeerAddress { id: NodeId(1), host: LOCAL.to_string(), port: port(&peers) };
        let settings = Settings::new(NodeId(1), 7, Config::default().ensemble.cluster, peers, vec![own], None);
        let settings = Settings { plaintext: false, ..settings };
        let links = Arc::new(Links::start(settings, |_| ()).expect("threads can be started"));
        (Ports { doorman, gauges, links, peer_addr: None, clients }, inbox)
    }

    #[test]
    fn clients_are_accepted_where_the_list_says_and_nowhere_else() {
        let (mut ports, inbox) = ports();
        let accepted = || matches!(inbox.recv_timeout(Duration::from_secs(5)), Ok(ToShard::Accepted(_)));
        let first = port(&ports.clients);
        assert!(connects(first) && accepted());
        let next = port(&free());
        assert_eq!(ports.move_clients("127.0.0.1", next), Ok(SocketAddr::new(LOCAL, next)));
        assert!(connects(next) && accepted());
        assert!(!connects(first));
        assert_eq!(ports.gauges.client_port.load(Ordering::Relaxed), next);
        // Where somebody else listens it cannot; it goes on where it was.
        let taken = free();
        assert!(ports.move_clients("127.0.0.1", port(&taken)).is_err());
        assert!(ports.move_clients("192.0.2.1", next).is_err());
        assert!(connects(next) && accepted());
        assert_eq!(ports.move_clients("127.0.0.1", next), Ok(SocketAddr::new(LOCAL, next)));
        assert!(connects(next) && accepted());
    }

    #[test]
    fn peers_are_let_in_where_the_list_says_and_where_it_said() {
        let (ports, _inbox) = ports();
        let moves: Vec<u16> = (0..4).map(|_| port(&free())).collect();
        let outcomes: Vec<_> = moves.iter().map(|port| ports.let_peers_in("127.0.0.1", *port)).collect();
        assert!(outcomes[..3].iter().all(Result::is_ok), "{outcomes:?}");
        assert!(moves[..3].iter().all(|port| connects(*port)));
        let too_many = outcomes[3].as_ref().expect_err("there is a limit");
        assert!(too_many.contains("4 addresses"), "{too_many}");
        assert!(ports.let_peers_in("127.0.0.1", moves[0]).is_ok(), "it listens there");
        let refusal = ports.let_peers_in("192.0.2.1", 1).expect_err("nothing is encrypted");
        assert!(refusal.contains("ensemble.allow_plaintext"), "{refusal}");
    }
}
