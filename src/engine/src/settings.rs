//! The settings of an engine, given once at its start.

use core::net::SocketAddr;

use corral_consensus::{Membership, Micros, ServerId};
use corral_peer::Generation;

use crate::addresses::{PeerAddress, StoredServers};
use crate::snapshot::Offered;

/// The settings of every server.
pub struct Settings {
    /// Number of shards of this server.
    pub shards: usize,
    /// Number of snapshots that the driver keeps, the newest included.
    pub snapshots_retained: usize,
    /// The snapshot that recovery began with, to be offered to other servers.
    pub newest: Option<Offered>,
    /// The settings of a server of an ensemble; `None` of a standalone server.
    pub ensemble: Option<EnsembleSettings>,
}

/// The settings of a server of an ensemble.
pub struct EnsembleSettings {
    /// The id of this server.
    pub own: ServerId,
    /// The servers of this server's configuration; it may be among them.
    pub configured: Vec<PeerAddress>,
    /// The address for clients, as configured.
    pub client_addr: SocketAddr,
    /// The members that the ensemble is to have, until the list of servers in the tree counts.
    pub wanted: Membership,
    /// The list of servers that an earlier process stored.
    pub stored: Option<StoredServers>,
    /// Whether clients may read while there is no leader.
    pub read_only: bool,
    /// The election timeout. A leader transfers leadership if its log is not synced for so long.
    pub election: Micros,
    /// Generation of the data that recovery found.
    pub generation: Generation,
    /// Bytes of a piece of a snapshot that is sent to another server, at most
    /// [`PIECE_BYTES_MAX`](corral_peer::snapshot::PIECE_BYTES_MAX).
    pub piece_bytes: usize,
}
