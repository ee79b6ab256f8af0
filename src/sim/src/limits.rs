//! Every bound of the simulator by name.

/// Events of one run; more means that it goes round in circles. The busiest known had 3.3 million.
pub(crate) const EVENTS_MAX: u64 = 10_000_000;
/// Simulated time within which a healthy server must have served every client.
pub(crate) const HEAL_MS_MAX: u64 = 120_000;
/// Largest frame a client takes.
pub(crate) const REPLY_BYTES_MAX: usize = 16 << 20;
/// Bytes of proposals that a shard hands out together.
pub(crate) const PROPOSALS_BYTES_MAX: usize = 4 << 10;
/// Messages taken in one turn.
pub(crate) const MAILBOX_BATCH: usize = 256;
/// Appends taken into one sync.
pub(crate) const GROUP_MAX: usize = 64;
/// Lines of a trace shown for a failure.
pub const TRACE_LINES: usize = 80;
/// Znodes beyond which no quota begins: a server counts more than a thousand in pieces, the model all at once.
pub(crate) const COUNTED_MAX: usize = 800;
/// Children deleted beyond which no quota begins, for the same reason: beyond a thousand in one transaction.
pub(crate) const DELETED_MAX: i32 = 250;
