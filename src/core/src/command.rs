//! Commands with their origin, as they are proposed, ordered and logged. One log entry holds one [`Batch`].
//!
//! A command carries everything its evaluation needs (identities, time, entropy), so that each server, and each replay
//! of the log, comes to the same result.

mod batch;
mod kinds;
mod waiting;

pub(crate) use batch::is_too_heavy;
pub use batch::{Batch, BatchError};
pub use kinds::{Command, CommandKind};
pub use waiting::Proposals;
pub(crate) use waiting::{Renumbered, Waiting, identities_weight};
