//! Every decision of one server of corral: events in, effects out.
//!
//! An [`Engine`] is a state machine without clock, file, socket or thread. A *driver* reports what happens as
//! [`Event`]s, and carries out the [`Effect`]s that the engine returns. The server drives it on the consensus actor's
//! core, the simulator on simulated disks and networks. Equal events at equal times give equal effects.
//!
//! # Order of calls
//!
//! 1. [`recovery::recover`] makes the replica from the data on disk. [`Engine::new`] takes it, and [`Engine::begin`] is called once.
//! 2. The driver calls [`Engine::handle`] for each event. As soon as [`Engine::needs_turn`] is true it goes on with step 3.
//! 3. It calls [`Engine::turn`] until that returns [`Turned::Done`], and again at the time given there if no event comes before.
//! 4. After each of these calls it takes the effects ([`Engine::take_effects`]), and carries them out in their order before the next
//!    call. Long work (a write of the log, a snapshot, a message) runs in the background. Its end is an event.
//! 5. [`Event::Tick`] comes once in a unit of Raft's time.
//! 6. After [`Effect::End`] the engine is not called any more.
//!
//! # Guarantees of the driver
//!
//! - Effects keep their order for each receiver: the log, each shard, each connection. Between receivers there is no order.
//! - Data reported durable ([`Event::Durable`], [`Event::SnapshotWritten`], [`Incoming::Whole`]) survive a loss of power.
//! - A message is sent only after the appends that were given before it were handed to the log. The engine itself ensures that
//!   no message promises what is not durable yet.
//!
//! Other effects may be lost with the process. Values from another server, in [`PeerEvent::Frame`] and [`Event::Incoming`], may be
//! arbitrary: an invalid one closes its connection.

#![doc = include_str!("example.md")]
#![warn(missing_docs)]

mod addresses;
mod arrivals;
mod damage;
mod effect;
mod engine;
mod event;
pub mod extra;
mod frame_error;
mod known_features;
mod log_queue;
mod machine;
mod membership;
mod one_way;
mod outgoing;
mod peers;
mod progress;
mod quorum_counter;
mod reception;
pub mod recovery;
mod served_mode;
mod serving;
mod settings;
mod snapshot;
mod transfer;

pub use addresses::{Moved, PeerAddress, StoredServers, addresses};
pub use damage::{OnDamage, Purpose, on_damage};
pub use effect::{Effect, Ended, Garbage, Status, ToLog, ToPeers};
pub use engine::{Engine, Turned};
pub use event::{CorruptState, Event, Finding, Incoming, Now, PeerEvent, Receive, WrittenSnapshot};
pub use log_queue::LogQueue;
pub use machine::Replicated;
pub use progress::{CatchUp, LogPosition, Progress, log_position_of};
pub use settings::{EnsembleSettings, Settings};
pub use snapshot::{Arrived, LoadedSnapshot, Offered, SnapshotContent};
