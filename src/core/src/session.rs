//! Sessions: the replicated table, and the leader's deadlines (protocol chapter 15).

mod ephemerals;
mod expiry;
mod table;

use crate::ids::Origin;

pub use ephemerals::Ephemerals;
pub use expiry::{Expiry, Witness};
pub use table::SessionTable;

/// A session as every server knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Negotiated timeout, milliseconds. The leader ends a session that is inactive for longer.
    pub timeout_ms: i32,
    /// The secret with which a client attaches the session to another connection.
    pub password: [u8; 16],
    /// The connection that created or last attached it; after a restart one of an earlier process.
    pub owner: Option<Origin>,
    /// Paths of the session's ephemeral znodes.
    pub ephemerals: Ephemerals,
}
