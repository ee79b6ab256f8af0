//! Every bound of the crate, by name.
//!
//! A value beyond a bound is refused with a typed error; nothing grows past it and nothing is cut silently.

use crate::types::Micros;

/// Largest number of members (voters, learners, outgoing voters) of one configuration.
pub const MEMBERS_MAX: usize = 64;

/// Largest term. The term becomes the upper half of a zxid, which clients read as a signed 64-bit number.
pub const TERM_MAX: u64 = (1 << 31) - 1;

/// A peer's term may be so far beyond the one this node started with, and by [`TERMS_PER_ELECTION`] more for each election timeout
/// since: more elections than that are not held. A server that was stopped meanwhile is that far behind after a year of
/// an election every half minute.
pub const TERM_AHEAD_MAX: u64 = 1 << 20;

/// See [`TERM_AHEAD_MAX`].
pub const TERMS_PER_ELECTION: u64 = 2;

/// Appends in a row that end before what is committed here, after which the leader is taken to lack it: one that does not is
/// told by the answer to the first.
pub const SHORT_APPENDS_MAX: u32 = 8;

/// Largest log index taken from a peer. Far beyond any real log; keeps index arithmetic from overflowing on nonsense.
pub const INDEX_MAX: u64 = 1 << 62;

/// Largest log index taken from the own disk: beyond what a peer may have led to, with room to append.
pub const RESTORED_INDEX_MAX: u64 = (1 << 63) - 1;

/// Largest number of ticks accepted for a timeout.
pub const TICKS_MAX: u32 = 100_000;

/// Largest value accepted for `Config::max_entry_bytes`.
pub const ENTRY_BYTES_MAX: u32 = 64 << 20;

/// Largest value accepted for `Config::max_inflight_entries`.
pub const INFLIGHT_ENTRIES_MAX: u32 = 1 << 20;

/// Payload bytes proposed but not applied yet; more is refused as full. At least one entry always fits.
pub const UNAPPLIED_BYTES_MAX: u64 = 128 << 20;

/// Payload bytes that a follower whose log stands still, or that applies nothing, takes from its leader; what comes then is dropped,
/// and sent again later.
/// A leader's own and as much for what it has that is not committed here.
pub const UNSTORED_BYTES_MAX: u64 = 2 * UNAPPLIED_BYTES_MAX;

/// What one entry costs in memory beside its payload; counted in every byte budget.
pub const ENTRY_OVERHEAD_BYTES: u64 = 96;

/// Size of one page of committed entries handed out by one `ready`; a page holds at least one entry.
pub const COMMITTED_PAGE_BYTES: u64 = 1 << 20;

/// What the entries that one turn applies may have cost before it leaves the rest to the next one: about two milliseconds. A last
/// entry may go beyond it by all that an entry may cost.
pub const APPLIED_WORK_MAX: u64 = 2_000_000;

/// Bytes of what was applied and is on its way to the slowest reader when no more is applied.
pub const BACKLOG_BYTES_MAX: u64 = 32 << 20;

/// When it has been on its way for so long no more is applied, however small it is: it comes back late to those who wait for it.
pub const BACKLOG_AGE_MAX: Micros = Micros(50_000);

/// While nothing is applied because of that, it is looked at again after so long.
pub const HELD_PAUSE: Micros = Micros(1_000);

/// Payload bytes of others' entries that are looked at before a turn, about; what comes then comes after it.
pub const PREPARED_BYTES_MAX: u64 = 1 << 20;

/// What applying an entry costs beside its commands and its bytes.
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

/// Elections begun because the transport saw the leader go, before the ordinary timeout takes over.
pub const HURRIED_ELECTIONS_MAX: u32 = 4;

/// Ticks from one of them to the next, up to twice as many.
pub const HURRY_TICKS: u32 = 2;

/// A learner so many entries behind what is committed, or fewer, keeps up.
pub const KEEPS_UP_ENTRIES: u64 = 64;

/// Bytes of applied entries kept beyond the budget for followers that take over an image, overhead included. A follower that
/// needs more by the time it has its image needs another one.
pub const AWAITED_BYTES_MAX: u64 = 256 << 20;

/// Election timeouts without a word of such a follower after which nothing more is kept for it.
pub const AWAITED_SILENCE_ELECTIONS: u32 = 10;

/// Largest context of a membership change.
pub const CONF_CONTEXT_BYTES_MAX: usize = 64 << 10;

const _: () = assert!(TERM_AHEAD_MAX * 1000 < TERM_MAX);
const _: () = assert!(COMMITTED_PAGE_BYTES <= UNAPPLIED_BYTES_MAX);
const _: () = assert!(ENTRY_BYTES_MAX as u64 <= UNAPPLIED_BYTES_MAX);
const _: () = assert!(APPEND_BYTES_MAX <= UNAPPLIED_BYTES_MAX);

/// Times the patience with a log that stands still: so long a leader leads before it may hand over because of that.
pub const RELIEF_LED_MIN: u64 = 10;

/// Times what another server took for an append: so much longer a leader's own disk must take for it.
pub const RELIEF_SLOWER: u64 = 3;

/// Times the patience: so long lies between two such hand-overs of one server.
pub const RELIEF_PAUSE: u64 = 375;
