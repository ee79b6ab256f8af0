//! Client sockets: accepted by one plain thread, served on the shards' executors, by one of two data paths.
//! PeerConnections to other servers are in [`peers`].
//!
//! The seam between the data paths is [`Transport`]: what a shard's driver asks of a socket is the same, but on a ring
//! events come to one task of the shard, while each stream has a task that reads it.

pub(crate) mod acceptor;
pub(crate) mod listen;
pub(crate) mod peers;
pub(crate) mod ring;
pub(crate) mod stream;

use std::sync::Arc;

use corral_core::ids::ShardId;

use crate::config::TransportChoice;
use crate::exit::{ExitCode, Fault};
use crate::net::ring::Ring;
use crate::runtime::mailbox::Bell;

/// The data path of one shard.
pub(crate) enum Transport {
    /// An io_uring of our own, see [`ring`].
    Ring(Box<Ring>),
    /// The runtime's sockets, see [`stream`].
    Streams,
}

impl Transport {
    /// To be called on the shard's executor, which `bell` wakes and whose own ring has `depth` entries.
    ///
    /// # Errors
    /// When the ring was asked for and this host cannot do it.
    pub(crate) fn start(
        choice: TransportChoice,
        depth: u32,
        bell: &Arc<Bell>,
        shard: ShardId,
    ) -> Result<Transport, Fault> {
        if choice == TransportChoice::Stream {
            return Ok(Transport::Streams);
        }
        match Ring::new(Arc::clone(bell), depth) {
            Ok(ring) => Ok(Transport::Ring(Box::new(ring))),
            Err(error) if choice == TransportChoice::Auto => {
                tracing::info!(
                    shard = shard.0,
                    "the sockets are served by the runtime, not by a ring of their own: {error}"
                );
                Ok(Transport::Streams)
            }
            Err(error) => {
                let sentence =
                    format!("runtime.transport is \"ring\", which this host cannot do: {error}; set it to \"auto\"");
                Err(Fault::new(ExitCode::IoUringMissing, sentence))
            }
        }
    }

    /// The ring, if that is what serves.
    pub(crate) fn ring(&self) -> Option<&Ring> {
        match self {
            Transport::Ring(ring) => Some(ring),
            Transport::Streams => None,
        }
    }
}
