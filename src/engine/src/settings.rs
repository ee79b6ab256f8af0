//! What an engine is told of its server, once.

use core::net::SocketAddr;

use corral_consensus::{Membership, Micros};
use corral_link::Generation;

use crate::addresses::{PeerAddress, Remembered};
use crate::transfer::Offered;

/// Of every server.
pub struct Settings {
    /// Shards of this server.
    pub shards: usize,
    /// The image that recovery began with, for other servers.
    pub newest: Option<Offered>,
    /// Present where it is one of an ensemble.
    pub ensemble: Option<EnsembleSettings>,
}

/// Of a server of an ensemble.
pub struct EnsembleSettings {
    /// This server.
    pub own: u8,
    /// The servers as this one is configured with them; this one may be among them.
    pub configured: Vec<PeerAddress>,
    /// Where clients find this server, as configured.
    pub client_addr: SocketAddr,
    /// Who ought to belong to the ensemble, until a list of servers tells.
    pub wanted: Membership,
    /// A list of servers that was known before this start.
    pub remembered: Option<Remembered>,
    /// Without a leader it serves those who only read.
    pub read_only: bool,
    /// The election timeout: a leader whose log stands still for so long lets another lead.
    pub election: Micros,
    /// Of the data that recovery found.
    pub generation: Generation,
    /// Bytes of a piece of an image that is given to another server, at most
    /// [`PIECE_BYTES_MAX`](corral_link::image::PIECE_BYTES_MAX).
    pub piece_bytes: usize,
}
