//! Every bound of the crate, by name.
//!
//! A value beyond a bound is refused with a typed error; nothing grows past it and nothing is cut silently.

use crate::types::Micros;

/// Largest number of members (voters, learners, outgoing voters) of one configuration.
pub const MEMBERS_MAX: usize = 64;

/// Largest term. The term becomes the upper half of a zxid, which clients read as a signed 64-bit number.
pub const TERM_MAX: u64 = (1 << 31) - 1;

/// How far a peer's term may be beyond the term that this node started with. Each election timeout since then adds
/// [`TERMS_PER_ELECTION`]. With an election every half minute a stopped server lags so far after a year.
pub const TERM_AHEAD_MAX: u64 = 1 << 20;

/// Terms that one election timeout may add, see [`TERM_AHEAD_MAX`].
pub const TERMS_PER_ELECTION: u64 = 2;

/// Appends in a row that end before what is committed here, after which the leader counts as lacking it. The reply to the
/// first one informs a leader that does not lack it.
pub const SHORT_APPENDS_MAX: u32 = 8;

/// Largest log index accepted from a peer. Far beyond any real log, and small enough that index arithmetic does not
/// overflow.
pub const INDEX_MAX: u64 = 1 << 62;

/// Largest log index accepted from the own disk: beyond what a peer may have caused, with room to append.
pub const RESTORED_INDEX_MAX: u64 = (1 << 63) - 1;

/// Largest number of ticks accepted for a timeout.
pub const TICKS_MAX: u32 = 100_000;

/// Largest value accepted for `Config::max_entry_bytes`.
pub const ENTRY_BYTES_MAX: u32 = 64 << 20;

/// Largest value accepted for `Config::max_inflight_entries`.
pub const INFLIGHT_ENTRIES_MAX: u32 = 1 << 20;

/// Payload bytes in flight, proposed and not applied. A proposal beyond that is refused as full; one entry always fits.
pub const UNAPPLIED_BYTES_MAX: u64 = 128 << 20;

/// Payload bytes that a follower accepts while its log is slow or it applies nothing. Further entries are dropped, and
/// sent again later. Twice the limit of a leader, because a new leader may have as much that is not committed here.
/// Entries in the log at the start that are not known to be committed may exceed it.
pub const UNSTORED_BYTES_MAX: u64 = 2 * UNAPPLIED_BYTES_MAX;

/// Memory of one entry beside its payload, counted in every byte budget.
pub const ENTRY_OVERHEAD_BYTES: u64 = 96;

/// Size of one page of committed entries handed out by one `ready`; a page holds at least one entry.
pub const COMMITTED_PAGE_BYTES: u64 = 1 << 20;

/// Cost of the entries that one turn applies, in nanoseconds by estimate: about two milliseconds. The last entry may exceed
/// it by the cost of one entry.
pub const APPLIED_WORK_MAX: u64 = 2_000_000;

/// Bytes in flight to the slowest reader at which nothing more is applied.
pub const BACKLOG_BYTES_MAX: u64 = 32 << 20;

/// Age of the oldest piece in flight at which nothing more is applied, however small it is: clients wait for it.
pub const BACKLOG_AGE_MAX: Micros = Micros(50_000);

/// Time until that is checked again.
pub const HELD_PAUSE: Micros = Micros(1_000);

/// Payload bytes of received entries that are prepared before a turn; further messages wait until after it.
pub const PREPARED_BYTES_MAX: u64 = 1 << 20;

/// Cost of applying an entry, beside its commands and its bytes, in nanoseconds by estimate.
pub const ENTRY_WORK: u64 = 1000;

/// Size of the entries in one append message; a message holds at least one entry.
pub const APPEND_BYTES_MAX: u64 = 1 << 20;

/// Most entries accepted in one append message.
pub const APPEND_ENTRIES_MAX: usize = 1 << 18;

/// Most append messages in flight to one follower.
pub const INFLIGHT_MESSAGES_MAX: usize = 256;

/// Most messages held back until an append is durable; later ones are dropped, which Raft takes as message loss.
pub const HELD_MESSAGES_MAX: usize = 4096;

/// Most read-index requests waiting at one time, own and forwarded ones each.
pub const READS_PENDING_MAX: usize = 1 << 16;

/// A read-index request unanswered for this many election timeouts is refused.
pub const READ_TIMEOUT_ELECTIONS: u32 = 4;

/// Elections attempted after the end of the leader's process, before the ordinary timeout counts.
pub const EARLY_ELECTIONS_MAX: u32 = 4;

/// Ticks between two such attempts, up to twice as many.
pub const EARLY_ELECTION_TICKS: u32 = 2;

/// A member keeps up if it is at most so many entries behind the commit index.
pub const KEEPS_UP_ENTRIES: u64 = 64;

/// Election timeouts without a message of such a follower after which nothing more is kept for it.
pub const AWAITED_SILENCE_ELECTIONS: u32 = 10;

/// Largest context of a membership change.
pub const CONF_CONTEXT_BYTES_MAX: usize = 64 << 10;

const _: () = assert!(TERM_AHEAD_MAX * 1000 < TERM_MAX);
const _: () = assert!(COMMITTED_PAGE_BYTES <= UNAPPLIED_BYTES_MAX);
const _: () = assert!(ENTRY_BYTES_MAX as u64 <= UNAPPLIED_BYTES_MAX);
const _: () = assert!(APPEND_BYTES_MAX <= UNAPPLIED_BYTES_MAX);

/// How long a leader leads before it may transfer leadership because of a slow disk, in timeouts.
pub const TRANSFER_LED_MIN: u64 = 10;

/// How much longer an append must take on the leader's disk than on another server's, as a factor.
pub const TRANSFER_SLOWER: u64 = 3;

/// Time between two such transfers of one server, in timeouts.
pub const TRANSFER_PAUSE: u64 = 375;
