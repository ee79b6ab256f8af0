//! Sessions: the replicated table, and the leader's deadlines (protocol chapter 15).

mod ephemerals;
mod expiry;
mod table;

pub use ephemerals::Ephemerals;
pub use expiry::{Expiry, Witness};
pub use table::{Session, SessionTable};
