//! Sessions: the replicated table, and the leader's deadlines (protocol chapter 15).

mod ephemerals;
mod expiry;
mod table;

use crate::command::Origin;

pub use ephemerals::Ephemerals;
pub use expiry::{Expiry, Witness};
pub use table::SessionTable;

/// A session as every server knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pub timeout_ms: i32,
    pub password: [u8; 16],
    /// The connection that created or last attached it; after a restart one of an earlier process.
    pub owner: Option<Origin>,
    pub ephemerals: Ephemerals,
}
