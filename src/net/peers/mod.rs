//! The links between the servers of an ensemble: one TCP connection per direction and peer, frames of bytes on it.
//!
//! Plain threads: for each peer a sender, which dials and writes; one door, which listens; for each connection that came in
//! a receiver. Whoever uses the links hands over messages without waiting and hears of everything as a [`PeerEvent`], on
//! those threads. What is in a message is not known here. Only configured peers are let in.

mod batch;
mod budget;
mod channel;
mod complaint;
mod dial;
mod door;
pub(crate) mod event;
mod guest;
mod lane;
pub(crate) mod limits;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;
pub(crate) mod tls;

use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use bytes::Bytes;
use corral_consensus::NodeId;
use corral_link::{ClusterName, Kind};

pub(crate) use dial::{PeerAddress, Resolve, system_resolver};
pub(crate) use event::PeerEvent;
pub(crate) use lane::{NotSent, PeerStats, QueueLimits};

use crate::net::peers::dial::Dialler;
use crate::net::peers::door::{Door, Place};
use crate::net::peers::lane::Lane;
use crate::net::peers::sender::Sender;
use crate::net::peers::tls::Tls;
use crate::runtime::mailbox::Bell;

/// Who hears of events: called on the threads of the links, for one connection never by two at once.
type Events = Arc<dyn Fn(PeerEvent) + Send + Sync>;

/// What the links are started with.
pub(crate) struct Settings {
    /// Of this server.
    pub(crate) id: NodeId,
    /// Drawn at the start of this process.
    pub(crate) incarnation: u64,
    pub(crate) cluster: ClusterName,
    /// Where peers dial to.
    pub(crate) listener: TcpListener,
    /// The other servers; this one may be among them.
    pub(crate) peers: Vec<PeerAddress>,
    /// `None` = nothing is encrypted and nobody proves who it is.
    pub(crate) tls: Option<Tls>,
    pub(crate) resolve: Resolve,
    /// Of each peer's queue.
    pub(crate) queue: QueueLimits,
    /// Bytes received of one peer and still held, beyond which it is not read.
    pub(crate) received_bytes_max: usize,
}

impl Settings {
    /// With the system's resolver and the bounds of `limits`.
    pub(crate) fn new(
        id: NodeId,
        incarnation: u64,
        cluster: ClusterName,
        listener: TcpListener,
        peers: Vec<PeerAddress>,
        tls: Option<Tls>,
    ) -> Settings {
        let queue = QueueLimits { bytes_max: limits::QUEUE_BYTES_MAX, messages_max: limits::QUEUE_MESSAGES_MAX };
        let (resolve, received_bytes_max) = (system_resolver(), limits::RECEIVED_BYTES_MAX);
        Settings { id, incarnation, cluster, listener, peers, tls, resolve, queue, received_bytes_max }
    }
}

/// The running links.
pub(crate) struct Links {
    lanes: BTreeMap<NodeId, Arc<Lane>>,
    stopping: Arc<AtomicBool>,
    door_bell: Arc<Bell>,
    /// Tells that every thread has ended.
    ended: flume::Receiver<()>,
}

impl Links {
    /// Starts every thread: from here on peers are dialled and let in, and `events` is called. It must not wait for long:
    /// the connection it is called for stands still meanwhile.
    ///
    /// # Errors
    /// When descriptors, threads or randomness are not to be had; what was started ends again.
    pub(crate) fn start(settings: Settings, events: impl Fn(PeerEvent) + Send + Sync + 'static) -> io::Result<Links> {
        let Settings { id, incarnation, cluster, listener, peers, tls, resolve, queue, received_bytes_max } = settings;
        let (events, stopping): (Events, _) = (Arc::new(events), Arc::new(AtomicBool::new(false)));
        let streams = Arc::new(AtomicU64::new(1));
        let (alive, ended) = flume::bounded(0);
        let mut links = Links { lanes: BTreeMap::new(), stopping, door_bell: Bell::new()?, ended };
        listener.set_nonblocking(true)?;
        let (mut places, mut senders) = (BTreeMap::new(), Vec::new());
        for peer in peers.into_iter().filter(|peer| peer.id != id) {
            let (lane, inbox) = Lane::new(peer.id, queue, Bell::new()?);
            let lane = Arc::new(lane);
            links.lanes.insert(peer.id, Arc::clone(&lane));
            places.insert(peer.id, Place::new(peer.clone(), Arc::clone(&lane)));
            let dialler = Dialler {
                own: id,
                incarnation,
                cluster: cluster.clone(),
                peer,
                tls: tls.clone(),
                resolve: Arc::clone(&resolve),
                stopping: Arc::clone(&links.stopping),
            };
            senders.push(Sender {
                lane,
                queue: inbox,
                dialler,
                streams: Arc::clone(&streams),
                stopping: Arc::clone(&links.stopping),
                events: Arc::clone(&events),
                noise: noise()?,
            });
        }
        let door = Door {
            own: id,
            incarnation,
            cluster,
            listener,
            bell: Arc::clone(&links.door_bell),
            places,
            tls,
            received_bytes_max,
            streams,
            stopping: Arc::clone(&links.stopping),
            events,
            alive: alive.clone(),
            guests: Vec::new(),
            complaints: BTreeMap::new(),
        };
        let started = links.spawn(door, senders, alive);
        if started.is_err() {
            links.stop();
        }
        started.map(|()| links)
    }

    fn spawn(&self, door: Door, senders: Vec<Sender>, alive: flume::Sender<()>) -> io::Result<()> {
        let held = alive.clone();
        thread::Builder::new().name("peers".to_owned()).spawn(move || {
            door.run();
            drop(held);
        })?;
        for sender in senders {
            let held = alive.clone();
            let name = format!("peer {} out", sender.lane.peer.0);
            thread::Builder::new().name(name).spawn(move || {
                sender.run();
                drop(held);
            })?;
        }
        Ok(())
    }

    /// Queues a message for a peer, on whatever connection stands. Never waits. Being queued does not mean that it arrives.
    ///
    /// # Errors
    /// Why it was not queued; after `NotSent::Broken` nothing more is taken for that connection.
    pub(crate) fn send(&self, peer: NodeId, kind: Kind, payload: Bytes) -> Result<(), NotSent> {
        self.lanes.get(&peer).ok_or(NotSent::Unknown)?.send(None, kind, payload)
    }

    /// As `send`, on this connection or not at all: of the messages of one stream a prefix arrives, in order.
    ///
    /// # Errors
    /// As `send`.
    pub(crate) fn send_on(&self, peer: NodeId, stream: u64, kind: Kind, payload: Bytes) -> Result<(), NotSent> {
        self.lanes.get(&peer).ok_or(NotSent::Unknown)?.send(Some(stream), kind, payload)
    }

    /// The figures of every peer, by id.
    pub(crate) fn stats(&self) -> Vec<PeerStats> {
        self.lanes.values().map(|lane| lane.stats()).collect()
    }

    /// Ends every connection, after what is queued has been written if that goes quickly, and waits for the threads. False
    /// when one of them is stuck in the system's resolver; it does nothing any more when that answers.
    pub(crate) fn stop(&self) -> bool {
        self.stopping.store(true, Ordering::SeqCst);
        self.door_bell.rouse();
        self.lanes.values().for_each(|lane| lane.bell.rouse());
        let ended = self.ended.recv_deadline(Instant::now() + limits::STOP_MAX);
        let all = matches!(ended, Err(flume::RecvTimeoutError::Disconnected));
        if !all {
            tracing::warn!("a thread of the links to other servers waits for the resolver and is left behind");
        }
        all
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        if !self.stopping.load(Ordering::SeqCst) {
            self.stop();
        }
    }
}

/// A seed for pauses; never 0.
fn noise() -> io::Result<u64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(u64::from_le_bytes(bytes) | 1)
}
