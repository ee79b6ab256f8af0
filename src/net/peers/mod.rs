//! The connections between the servers of an ensemble: one TCP connection per direction and peer, frames of bytes on
//! it.
//!
//! Plain threads: for each peer a sender, which dials and writes; one listener; for each connection that came in a
//! receiver. The user of the connections hands over messages without waiting and receives everything as a
//! [`ConnectionEvent`], on those threads. The content of a message is not known here. Only configured peers are let in.

mod batch;
mod budget;
mod channel;
mod dial;
pub(crate) mod event;
mod generations;
mod inbound;
pub(crate) mod limits;
mod listener;
mod outbox;
mod outlet;
mod receiver;
mod sender;
pub(crate) mod setup;
#[cfg(test)]
mod tests;
pub(crate) mod tls;
mod traffic;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use bytes::Bytes;
use corral_consensus::ServerId;
use corral_peer::secret::SEAL_BYTES;
use corral_peer::{ClusterName, Generation, Kind, Secrets};
use corral_types::SplitMix64;

pub(crate) use corral_engine::PeerAddress;
pub(crate) use dial::{Resolve, system_resolver};
pub(crate) use event::ConnectionEvent;
pub(crate) use generations::Generations;
pub(crate) use outbox::{NotSent, PeerStats, QueueLimits};

use crate::net::listen::{effective, listen};
use crate::net::peers::dial::{Dialler, EXPOSED, FormerAddresses, exposes};
use crate::net::peers::listener::{Change, KnownPeer, PeerListener};
use crate::net::peers::outbox::PeerOutbox;
use crate::net::peers::sender::Sender;
use crate::net::peers::tls::Tls;
use crate::runtime::mailbox::Bell;

/// The receiver of events: called on the threads of the connections, for one connection never by two at once.
type Events = Arc<dyn Fn(ConnectionEvent) + Send + Sync>;

/// The settings that the connections start with.
pub(crate) struct Settings {
    /// Of this server.
    pub(crate) id: ServerId,
    /// Drawn at the start of this process.
    pub(crate) incarnation: u64,
    pub(crate) cluster: ClusterName,
    /// Of this server's data; of the first generation unless told otherwise.
    pub(crate) generations: Arc<Generations>,
    /// Where peers dial to.
    pub(crate) listener: TcpListener,
    /// The other servers as configured; this one may be among them.
    pub(crate) peers: Vec<PeerAddress>,
    /// Where they are by a list that this server remembers.
    pub(crate) listed: Option<Vec<PeerAddress>>,
    /// `None` = nothing is encrypted and no server proves its identity.
    pub(crate) tls: Option<Tls>,
    /// The secrets that both sides prove to hold; `None` = no proof is requested.
    pub(crate) secrets: Option<Arc<Secrets>>,
    /// Whether connections that are not encrypted may leave this host.
    pub(crate) plaintext: bool,
    pub(crate) resolve: Resolve,
    /// Of each peer's queue.
    pub(crate) queue: QueueLimits,
    /// Bytes received of one peer and still held, beyond which it is not read.
    pub(crate) received_bytes_max: usize,
}

impl Settings {
    /// With the system's resolver and the bounds of `limits`, and in plain text wherever that is wanted.
    pub(crate) fn new(
        id: ServerId,
        incarnation: u64,
        cluster: ClusterName,
        listener: TcpListener,
        peers: Vec<PeerAddress>,
        tls: Option<Tls>,
    ) -> Settings {
        let queue = QueueLimits { bytes_max: limits::QUEUE_BYTES_MAX, messages_max: limits::QUEUE_MESSAGES_MAX };
        let (resolve, received_bytes_max) = (system_resolver(), limits::RECEIVED_BYTES_MAX);
        let generations = Arc::new(Generations::new(Generation::FIRST, |_| ()));
        let plaintext = true;
        Settings {
            id,
            incarnation,
            cluster,
            generations,
            listener,
            peers,
            listed: None,
            tls,
            secrets: None,
            plaintext,
            resolve,
            queue,
            received_bytes_max,
        }
    }
}

/// The running connections.
pub(crate) struct PeerConnections {
    /// Written when the membership changes, and read otherwise; no thread holds it for long.
    known: RwLock<Known>,
    /// The other servers as the connections were started with.
    configured: Vec<PeerAddress>,
    common: Common,
    stopping: Arc<AtomicBool>,
    listener_bell: Arc<Bell>,
    /// Where peers may come in.
    entrances: Mutex<Vec<SocketAddr>>,
    changes: flume::Sender<Change>,
}

/// The peers that the connections know.
#[derive(Default)]
struct Known {
    peers: BTreeMap<ServerId, Peer>,
    /// Senders of removed peers.
    parted: BTreeMap<ServerId, JoinHandle<()>>,
    /// Where each was that ever was a peer.
    former_addresses: BTreeMap<ServerId, FormerAddresses>,
    /// Peers without connections, because descriptors or threads are missing.
    missing: Vec<PeerAddress>,
}

/// The connections' record of one peer.
struct Peer {
    address: PeerAddress,
    outbox: Arc<PeerOutbox>,
    sender: JoinHandle<()>,
}

/// The parts that every sender is made of.
struct Common {
    id: ServerId,
    incarnation: u64,
    /// Of the tokens by which others know this process.
    seed: [u8; SEAL_BYTES],
    cluster: ClusterName,
    generations: Arc<Generations>,
    tls: Option<Tls>,
    secrets: Option<Arc<Secrets>>,
    plaintext: bool,
    resolve: Resolve,
    queue: QueueLimits,
    streams: Arc<AtomicU64>,
    events: Events,
    /// Each thread that lives holds one more.
    alive: Arc<()>,
}

impl PeerConnections {
    /// Starts every thread: from here on peers are dialled and let in, and `events` is called. It must not wait for
    /// long: the connection it is called for waits meanwhile.
    ///
    /// # Errors
    /// When descriptors, threads or randomness are not to be had; what was started ends again.
    pub(crate) fn start(
        settings: Settings,
        events: impl Fn(ConnectionEvent) + Send + Sync + 'static,
    ) -> io::Result<PeerConnections> {
        let Settings { id, incarnation, cluster, generations, listener, .. } = settings;
        let Settings { peers, listed, tls, secrets, plaintext, resolve, queue, received_bytes_max, .. } = settings;
        let mut seed = [0; SEAL_BYTES];
        getrandom::fill(&mut seed).map_err(|error| io::Error::other(error.to_string()))?;
        let (changes, changed) = flume::unbounded();
        let (streams, alive) = (Arc::new(AtomicU64::new(1)), Arc::new(()));
        let events: Events = Arc::new(events);
        let common = Common {
            id,
            incarnation,
            seed,
            cluster,
            generations,
            tls,
            secrets,
            plaintext,
            resolve,
            queue,
            streams,
            events,
            alive,
        };
        let (stopping, listener_bell) = (Arc::new(AtomicBool::new(false)), Bell::new()?);
        listener.set_nonblocking(true)?;
        let known = RwLock::default();
        let entrances = Mutex::new(vec![listener.local_addr()?]);
        let connections =
            PeerConnections { known, configured: peers.clone(), common, stopping, listener_bell, entrances, changes };
        // The listener receives them before it accepts any connection.
        connections.configure(listed.unwrap_or(peers))?;
        let common = &connections.common;
        let listener = PeerListener {
            own: id,
            cluster: common.cluster.clone(),
            generations: Arc::clone(&common.generations),
            listeners: vec![listener],
            bell: Arc::clone(&connections.listener_bell),
            places: BTreeMap::new(),
            parted: BTreeMap::new(),
            changes: changed,
            tls: common.tls.clone(),
            secrets: common.secrets.clone(),
            received_bytes_max,
            streams: Arc::clone(&common.streams),
            stopping: Arc::clone(&connections.stopping),
            events: Arc::clone(&common.events),
            alive: Arc::clone(&common.alive),
            inbound: Vec::new(),
            complaints: BTreeMap::new(),
        };
        thread::Builder::new().name("peers".to_owned()).spawn(move || listener.run())?;
        Ok(connections)
    }

    /// From now on these are the servers. Where this one is among them is where the others find it. Connections with a
    /// peer that stays, at the same address, are left alone. With a new peer they begin, with a removed peer they end.
    /// A peer with another address is dialled at the former one, too.
    ///
    /// # Errors
    /// When descriptors, threads or randomness are missing; [`PeerConnections::add_missing`] begins what was not begun.
    pub(crate) fn configure(&self, peers: Vec<PeerAddress>) -> io::Result<()> {
        let own = peers.iter().find(|peer| peer.id == self.common.id);
        if let (Some(tls), Some(own)) = (&self.common.tls, own) {
            tls.known_as(own);
        }
        let wanted: BTreeMap<ServerId, PeerAddress> =
            peers.into_iter().filter(|peer| peer.id != self.common.id).map(|peer| (peer.id, peer)).collect();
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let stays = |id: &ServerId, peer: &Peer| wanted.get(id) == Some(&peer.address);
        let leaving: Vec<ServerId> =
            known.peers.iter().filter(|(id, peer)| !stays(id, peer)).map(|(id, _)| *id).collect();
        for id in leaving {
            if let Some(peer) = known.peers.remove(&id) {
                peer.outbox.stop();
                known.parted.insert(id, peer.sender);
                known.former_addresses.entry(id).or_default().add(peer.address, wanted.get(&id));
            }
            if !wanted.contains_key(&id) {
                self.tell_listener(Change::Remove(id));
            }
        }
        known.missing = wanted.into_values().filter(|peer| !known.peers.contains_key(&peer.id)).collect();
        self.add_all(&mut known)
    }

    /// Begins the connections that an earlier call could not begin.
    ///
    /// # Errors
    /// As [`PeerConnections::configure`].
    pub(crate) fn add_missing(&self) -> io::Result<()> {
        if self.known().missing.is_empty() {
            return Ok(());
        }
        self.add_all(&mut self.known.write().unwrap_or_else(PoisonError::into_inner))
    }

    fn add_all(&self, known: &mut Known) -> io::Result<()> {
        while let Some(address) = known.missing.last().cloned() {
            self.add(known, address)?;
            known.missing.pop();
        }
        Ok(())
    }

    /// Peers are let in at this address, too, if they are not yet.
    ///
    /// # Errors
    /// When it cannot be listened on, or there are [`limits::LISTENERS_MAX`] already.
    pub(crate) fn listen_at(&self, address: SocketAddr) -> io::Result<()> {
        let address = effective(address);
        let mut entrances = self.entrances.lock().unwrap_or_else(PoisonError::into_inner);
        if entrances.contains(&address) {
            return Ok(());
        }
        if entrances.len() >= limits::LISTENERS_MAX {
            return Err(io::Error::other(format!("it listens at {} addresses already", entrances.len())));
        }
        let listener = listen(address, limits::BACKLOG)?;
        listener.set_nonblocking(true)?;
        entrances.push(address);
        self.tell_listener(Change::Listen(listener));
        Ok(())
    }

    /// Of this server's data.
    #[cfg(test)]
    pub(crate) fn generation(&self) -> Generation {
        self.common.generations.own()
    }

    /// A server that holds data of this cluster, is none that this one knows, and knocked lately.
    pub(crate) fn stranger(&self) -> Option<ServerId> {
        self.common.generations.stranger()
    }

    /// This server, which held nothing, has taken over data of that generation. Where that may set it apart from
    /// connected servers, every connection ends and begins anew.
    ///
    /// # Errors
    /// As [`PeerConnections::configure`].
    pub(crate) fn adopt(&self, generation: Generation) -> io::Result<()> {
        if !self.common.generations.adopt(generation) {
            return Ok(());
        }
        let known = self.known();
        let addresses = known.peers.values().map(|peer| &peer.address);
        let peers = addresses.chain(&known.missing).cloned().collect();
        drop(known);
        self.configure(Vec::new())?;
        self.configure(peers)
    }

    /// Why there may be no connections by way of this address, if so.
    pub(crate) fn exposed(&self, address: IpAddr) -> Option<&'static str> {
        exposes(self.common.tls.as_ref(), self.common.plaintext, address).then_some(EXPOSED)
    }

    /// The TLS settings of the connections, if they are encrypted.
    pub(crate) fn tls(&self) -> Option<&Tls> {
        self.common.tls.as_ref()
    }

    fn known(&self) -> RwLockReadGuard<'_, Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, known: &mut Known, address: PeerAddress) -> io::Result<()> {
        let (common, id) = (&self.common, address.id);
        let (outbox, queue) = PeerOutbox::new(id, common.queue, Bell::new()?);
        let outbox = Arc::new(outbox);
        let dialler = Dialler {
            own: common.id,
            incarnation: common.incarnation,
            seed: common.seed,
            cluster: common.cluster.clone(),
            generations: Arc::clone(&common.generations),
            peer: address.clone(),
            former_addresses: known.former_addresses.entry(id).or_default().clone(),
            configured: self.configured.iter().find(|peer| peer.id == id).cloned(),
            tls: common.tls.clone(),
            secrets: common.secrets.clone(),
            plaintext: common.plaintext,
            resolve: Arc::clone(&common.resolve),
        };
        let sender = Sender {
            outbox: Arc::clone(&outbox),
            queue,
            dialler,
            streams: Arc::clone(&common.streams),
            events: Arc::clone(&common.events),
            before: known.parted.remove(&id),
            noise: noise()?,
        };
        let alive = Arc::clone(&common.alive);
        let run = move || {
            sender.run();
            drop(alive);
        };
        let sender = thread::Builder::new().name(format!("peer {} out", id.0)).spawn(run)?;
        self.tell_listener(Change::Put(KnownPeer::new(address.clone(), Arc::clone(&outbox))));
        known.peers.insert(id, Peer { address, outbox, sender });
        Ok(())
    }

    fn tell_listener(&self, change: Change) {
        // Fails only when the listener has ended, because the connections are stopped.
        let _ = self.changes.send(change);
        self.listener_bell.rouse();
    }

    /// Queues a message for a peer, on its present connection: it leaves with the next [`PeerConnections::flush`].
    /// Never waits. Being queued does not mean that it arrives.
    ///
    /// # Errors
    /// Why it was not queued; after `NotSent::Broken` nothing more is taken for that connection.
    pub(crate) fn send(&self, peer: ServerId, kind: Kind, payload: Bytes) -> Result<(), NotSent> {
        self.known().peers.get(&peer).ok_or(NotSent::Unknown)?.outbox.send(None, kind, payload)
    }

    /// As `send`, on this connection or not at all: of the messages of one stream a prefix arrives, in order.
    ///
    /// # Errors
    /// As `send`.
    pub(crate) fn send_on(&self, peer: ServerId, stream: u64, kind: Kind, payload: Bytes) -> Result<(), NotSent> {
        self.known().peers.get(&peer).ok_or(NotSent::Unknown)?.outbox.send(Some(stream), kind, payload)
    }

    /// Sends the queued messages, a little of them on this very thread. Never waits.
    pub(crate) fn flush(&self) {
        self.known().peers.values().for_each(|peer| peer.outbox.flush());
    }

    /// Ends the connection, because the messages of this peer on it are not understood. The peer is not let in again
    /// for a while. Does not wait.
    pub(crate) fn shut(&self, peer: ServerId, stream: u64) {
        self.tell_listener(Change::Shut { peer, stream });
    }

    /// The figures of every peer, by id.
    pub(crate) fn stats(&self) -> Vec<PeerStats> {
        self.known().peers.values().map(|peer| peer.outbox.stats()).collect()
    }

    /// Ends every connection, after what is queued has been written if that goes quickly, and waits for the threads.
    /// False when one of them is stuck in the system's resolver; it does nothing any more when that answers.
    pub(crate) fn stop(&self) -> bool {
        self.stopping.store(true, Ordering::SeqCst);
        self.listener_bell.rouse();
        self.known().peers.values().for_each(|peer| peer.outbox.stop());
        let deadline = Instant::now() + limits::STOP_MAX;
        while Arc::strong_count(&self.common.alive) > 1 {
            if Instant::now() >= deadline {
                tracing::warn!("a thread still waits for the name resolver at shutdown and is abandoned");
                return false;
            }
            thread::sleep(limits::STOP_LOOK);
        }
        true
    }
}

impl Drop for PeerConnections {
    fn drop(&mut self) {
        if !self.stopping.load(Ordering::SeqCst) {
            self.stop();
        }
    }
}

/// The randomness of one sender's pauses.
fn noise() -> io::Result<SplitMix64> {
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(SplitMix64::new(u64::from_le_bytes(seed)))
}
