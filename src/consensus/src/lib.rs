//! Raft for corral, without IO: no clock, no operating system randomness, no socket, no file.
//!
//! [`RaftNode`] is a plain struct that lives on the consensus actor's core. Inputs are ticks, proposals, peer
//! messages and "this is durable / this is applied" reports; everything it wants done comes out of
//! [`RaftNode::ready`] as [`Outputs`]. The same struct is driven by the server and by the deterministic simulator:
//! equal inputs with an equal [`Config::seed`] give equal outputs.
//!
//! The algorithm is the `raft` crate's, wrapped wholly: none of its types appears here, and whatever would make it
//! panic is refused before it gets there. It knows nothing of znodes, sessions, log segments or links.

mod awaited;
mod backlog;
mod check;
mod conf_change;
mod convert;
mod error;
mod grouping;
pub mod limits;
mod log;
mod logger;
mod message;
mod node;
mod notices;
mod outputs;
mod reads;
mod reconcile;
mod relief;
mod replica;
mod rng;
mod types;

pub use backlog::Backlog;
pub use conf_change::{ConfChange, MemberChange, Transition};
pub use error::{ConfChangeError, ConsensusError, PeerError, ProposeError, TransferError};
pub use grouping::APPENDS_MAX;
pub use message::{AppendReply, PeerBody, PeerMessage, ReadContext};
pub use node::{FORMED_INDEX, FORMED_TERM, RaftNode};
pub use outputs::{Append, InstallSnapshot, Outputs, ReadReady, RoleChange, Stored};
pub use relief::LogDisk;
pub use replica::{Effects, Install, Machine, Replica};
pub use types::{Config, Entry, EntryKind, HardState, Index, Membership, Micros, NodeId, Restored, Role, Term};
