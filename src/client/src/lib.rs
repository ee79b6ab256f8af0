//! A client of the ZooKeeper protocol: one session over one connection at a time, with watches that outlive a connection.
//!
//! [`Connector`] opens a session, [`Client`] sends requests and [`Events`] brings what the watches found. A task of tokio owns the
//! connection. It knows the protocol, but no recipe, no command line and no file.

#![warn(missing_docs)]

mod address;
mod client;
mod connection;
mod error;
mod session;
mod types;
mod watches;

pub use address::Servers;
pub use client::{Client, Reply};
pub use connection::Credentials;
pub use corral_wire::ErrorCode;
pub use corral_wire::consts::{AddWatchMode, CreateMode, EventType, KeeperState, WatcherType};
pub use corral_wire::records::Stat;
pub use error::Error;
pub use session::{Connector, Identity, Status};
pub use types::{Acl, Creation, Write};
pub use watches::{Event, Events, Watcher, watcher};
