//! Raft for corral, without IO: no clock, no operating system randomness, no socket, no file.
//!
//! [`RaftNode`] is a plain struct on the consensus actor's core. Its inputs are ticks, proposals, messages of peers, and
//! reports that something is durable or applied. Its requests to the driver are in the [`Outputs`] of [`RaftNode::ready`].
//! [`Replica`] drives a node together with the [`Machine`] that it replicates. The server and the deterministic simulator
//! drive the same structs: equal inputs with an equal [`Config::seed`] give equal outputs.
//!
//! The algorithm is that of the `raft` crate. None of its types is public here, and inputs that would make it panic are
//! refused before. This crate knows nothing of znodes, sessions, log segments or connections.
//!
//! # Examples
//! A group of one elects itself, and commits what is proposed when its log is durable:
//! ```
//! use bytes::Bytes;
//! use corral_consensus::{Config, ServerId, Outputs, RaftNode, Restored, Role};
//!
//! let config = Config {
//!     id: ServerId(1),
//!     voters: vec![ServerId(1)],
//!     learners: Vec::new(),
//!     election_ticks: 10,
//!     heartbeat_ticks: 1,
//!     max_inflight_entries: 64,
//!     max_entry_bytes: 1 << 20,
//!     log_cache_bytes: 1 << 20,
//!     seed: 7,
//! };
//! let mut node = RaftNode::new(config, Restored::default())?;
//! node.campaign();
//! assert_eq!(node.role(), Role::Leader);
//! node.propose(Bytes::from_static(b"hello"))?;
//!
//! let (mut out, mut committed) = (Outputs::default(), Vec::new());
//! while node.ready(&mut out) {
//!     committed.append(&mut out.committed);
//!     if let Some(append) = out.append.take().filter(|append| append.must_sync) {
//!         // Write the entries to the log and sync it, then:
//!         node.persisted(append.number);
//!     }
//! }
//! node.applied(committed.last().expect("two entries are committed").index);
//! assert_eq!(committed.last().expect("two entries").payload, Bytes::from_static(b"hello"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![warn(missing_docs)]

mod appends;
mod awaited;
mod backlog;
mod conf_change;
mod config;
mod convert;
mod effects;
mod error;
mod grouping;
mod leadership_transfer;
pub mod limits;
mod log;
mod log_reads;
mod logger;
mod membership;
mod message;
mod node;
mod notice_delay;
mod outputs;
mod reader;
mod reads;
mod replica;
mod state_repair;
mod types;

pub use backlog::Backlog;
pub use conf_change::{ConfChange, MemberChange, Transition};
pub use config::{BOOTSTRAP_INDEX, BOOTSTRAP_TERM, Config, Restored};
pub use corral_types::Machine;
pub use effects::{Effects, Install};
pub use error::{ConfChangeError, ConsensusError, PeerError, ProposeError, TransferError};
pub use grouping::APPENDS_MAX;
pub use leadership_transfer::LogDisk;
pub use log::ReplacedLog;
pub use membership::Membership;
pub use message::{AppendReply, PeerBody, PeerMessage, ReadContext};
pub use node::{Followers, RaftNode};
pub use outputs::{Append, InstallSnapshot, Outputs, ReadReady, RoleChange};
pub use replica::Replica;
pub use types::{Entry, EntryKind, HardState, Index, Micros, Role, ServerId, Term};
