//! The additional parts of an ensemble's server: its connections to the others, its place in Raft, its clock for
//! elections.
//!
//! Main thread, at start. Everything here is absent from a server that runs alone. It knows no message.

use std::net::SocketAddr;
use std::sync::Arc;

use corral_consensus::{Index, Micros, ServerId};
use corral_engine::{EnsembleSettings, Settings, StoredServers, addresses};
use corral_peer::Generation;
use corral_peer::snapshot::PIECE_BYTES_MAX;

use crate::config::Config;
use crate::data::remembered;
use crate::exit::{Ending, ExitCode, Fault};
use crate::messages::ToConsensus;
use crate::net::peers::{Generations, PeerConnections, setup};
use crate::node::membership;
use crate::node::recovery::Recovery;
use crate::runtime::mailbox::Post;

/// The engine's settings of this server.
pub(crate) fn settings(
    config: &Config,
    shards: usize,
    recovery: &Recovery,
    remembered: Option<StoredServers>,
) -> Settings {
    let ensemble = config.own_member().map(|_| EnsembleSettings {
        own: config.own_id(),
        configured: setup::addresses(config.ensemble.servers.0.iter()),
        client_addr: config.server.client_addr,
        wanted: membership::wanted(config),
        stored: remembered,
        read_only: config.ensemble.read_only,
        election: Micros(u64::from(config.ensemble.election_ms) * 1000),
        generation: recovery.generation,
        piece_bytes: PIECE_BYTES_MAX,
    });
    let snapshots_retained = config.snapshot.snapshots_retained as usize;
    Settings { shards, snapshots_retained, newest: recovery.offered.clone(), ensemble }
}

/// The membership that this server knew last; none if it holds no data.
pub(crate) fn remembered(recovery: &Recovery) -> Option<StoredServers> {
    let holds_data = recovery.member.replica.raft().last_index() > Index(0);
    if holds_data { remembered::read(&recovery.disk) } else { None }
}

/// This process and its data, as the other servers see them.
pub(crate) struct Links<'a> {
    /// Drawn for this process.
    pub(crate) incarnation: u64,
    /// Of this server's data.
    pub(crate) generation: Generation,
    /// The other servers are looked for as this list says, until a list is followed.
    pub(crate) remembered: Option<&'a StoredServers>,
}

/// Listens for the other servers at `address` and dials them. Should the data of another server be of a later
/// generation, that is told to `endings`.
///
/// # Errors
/// When the address cannot be had, or the files of TLS are not usable.
pub(crate) fn start_links(
    config: &Config,
    address: SocketAddr,
    links: &Links<'_>,
    consensus: Post<ToConsensus>,
    endings: flume::Sender<Ending>,
) -> Result<PeerConnections, Fault> {
    let Links { incarnation, generation, remembered } = *links;
    let mut settings = setup::settings(config, address, incarnation)?;
    let end = move |peer| drop(endings.send(Ending::Failed(outdated(peer))));
    settings.generations = Arc::new(Generations::new(generation, end));
    settings.listed = remembered.map(|list| addresses(Some(list.servers.clone()), &settings.peers));
    let servers = config.ensemble.servers.0.len();
    let connections = PeerConnections::start(settings, move |event| drop(consensus.send(ToConsensus::Peer(event))));
    let connections = connections
        .map_err(|error| Fault::new(ExitCode::Internal, format!("no connections to other servers: {error}")))?;
    let port = config.own_member().map(|own| own.port);
    tracing::info!(id = config.server.server_id, port, servers, "member of an ensemble");
    Ok(connections)
}

/// Why a server ends that holds data from before the rescue of another.
fn outdated(rescued: ServerId) -> Fault {
    let sentence = format!(
        "the data of server {rescued} come from a rescue (`corral rescue`, `restore` or `import`); those of this server are older and do not belong \
         to that ensemble: empty the data directory but for `myid` and start, then this server learns everything from the \
         others; if that rescue was a mistake, stop the servers that come from it first, and empty theirs instead",
    );
    Fault::new(ExitCode::DataDirForeign, sentence)
}
