//! Everything that one server of corral decides, and nothing that it does.
//!
//! An [`Engine`] is a state machine without clock, file, socket or thread. A *driver* reports what happens as [`Event`]s and
//! carries out the [`Effect`]s that the engine asks for. The server drives it on the consensus actor's core; the simulator drives
//! the same engine in a world that it makes up. Equal events at equal times give equal effects.
//!
//! # Who calls what
//!
//! 1. [`recovery::recover`] makes the replica of what the disk holds; [`Engine::new`] takes it, and [`Engine::begin`] is called once.
//! 2. The driver calls [`Engine::handle`] for what has happened: for one event or for many at once, but for no more as soon as
//!    [`Engine::needs_turn`].
//! 3. Then it calls [`Engine::turn`] until that answers [`Turned::Done`], and again at the time named there if nothing happens before.
//! 4. After each of these calls it takes the effects ([`Engine::take_effects`]) and carries them out, in their order, before the next
//!    call. What takes time (a write of the log, an image, a message) goes on by itself; its end is an event.
//! 5. [`Event::Tick`] comes once in a unit of Raft's time.
//! 6. Behind [`Effect::End`] nothing is called any more.
//!
//! # What the driver owes
//!
//! Each kind of effect keeps its order: what is to be written to the log, what each shard hears, what is sent on a connection.
//! Nothing else is ordered. Effects may be lost with the process, with two exceptions that the driver guarantees: what is
//! reported as durable ([`Event::Durable`], [`Event::ImageWritten`], [`Incoming::Whole`]) survives a loss of power, and a
//! message is sent only after the appends that were given before it were handed to the log; the engine itself sees to it that no
//! message promises what is not durable yet.
//!
//! Every value that comes from another server, in [`Event::Frame`] and [`Event::Incoming`], may be anything: what does not make
//! sense closes the connection it came on.

mod addresses;
mod census;
mod effect;
mod engine;
mod event;
pub mod extra;
mod machine;
mod peers;
mod progress;
pub mod recovery;
mod serving;
mod settings;
mod transfer;

pub use addresses::{Moved, PeerAddress, Remembered, addresses};
pub use effect::{Answer, Effect, Ended, Status, ToLog, ToShards};
pub use engine::{Engine, Turned};
pub use event::{Cause, Distrust, Event, Incoming, Now, Receive, WrittenImage};
pub use machine::{Replicated, ReplicatedMember};
pub use progress::{CatchUp, Place, Progress, place_of};
pub use settings::{EnsembleSettings, Settings};
pub use transfer::{Arrived, LoadedImage, Offered, SnapshotBytes};
