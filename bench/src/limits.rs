//! The bounds of one run of the load generator, each checked before anything is sent. Constants only.

use std::time::Duration;

/// Sessions of one run. One source address has at most about 28,000 free ports towards one server address.
pub(crate) const CONNECTIONS_MAX: u32 = 50_000;
/// Requests in flight on one connection.
pub(crate) const DEPTH_MAX: u32 = 65_536;
/// Client threads.
pub(crate) const THREADS_MAX: u32 = 256;
/// Bytes of a znode's value, or of all values of a multi: a request must stay below the server's default frame limit (0xfffff).
pub(crate) const VALUE_BYTES_MAX: usize = 1_000_000;
/// Znodes prepared for get, exists and set.
pub(crate) const KEYS_MAX: u32 = 10_000_000;
/// Children prepared for the children operation.
pub(crate) const CHILDREN_MAX: u32 = 1_000_000;
/// Znodes one connection may create in a run; their names have nine digits.
pub(crate) const CREATES_PER_CONNECTION_MAX: u32 = 999_999_999;
/// Bytes all requests in flight may take together; more would measure the client's memory.
pub(crate) const IN_FLIGHT_BYTES_MAX: u64 = 1 << 30;
/// Offered requests per second of an open loop.
pub(crate) const RATE_MAX: f64 = 100_000_000.0;
/// One request in a thousand seconds; below that nothing would fall due in a run.
pub(crate) const RATE_MIN: f64 = 0.001;
/// Longest run or warm-up.
pub(crate) const SECONDS_MAX: f64 = 7.0 * 24.0 * 3600.0;
/// How long a server that refused sessions may take to see that all of them are gone, before the znodes are left to it.
pub(crate) const PLACE_WAIT: Duration = Duration::from_secs(1);
/// Bytes of a reply frame; the largest legal one is a listing of `CHILDREN_MAX` names.
pub(crate) const REPLY_BYTES_MAX: usize = 64 << 20;
/// Bytes one read takes off a socket, shared by all connections of a thread.
pub(crate) const SCRATCH_BYTES: usize = 256 << 10;
/// Events taken from the kernel at once.
pub(crate) const EVENTS_MAX: usize = 1024;
/// Requests in flight while znodes are prepared or removed, and their bytes.
pub(crate) const ADMIN_WINDOW: usize = 512;
pub(crate) const ADMIN_WINDOW_BYTES: usize = 1 << 20;
/// Sessions that are opened at the same time before a run.
pub(crate) const OPENING_MAX: usize = 64;
/// The longest latency the histograms tell apart; longer ones count as this.
pub(crate) const LATENCY_MAX: Duration = Duration::from_secs(3600);
/// One weight of a mix; the sum of all must be a 32-bit number.
pub(crate) const WEIGHT_MAX: u32 = 1_000_000;
/// The exponent of Zipf's law; beyond it the first key gets everything.
pub(crate) const ZIPF_THETA_MAX: f64 = 10.0;
/// Operations in one multi.
pub(crate) const MULTI_OPS_MAX: u32 = 10_000;
/// The shortest interval of a timeline, in seconds.
pub(crate) const INTERVAL_SECONDS_MIN: f64 = 0.01;
/// Lines of a timeline: a week of seconds fits.
pub(crate) const TIMELINE_ROWS_MAX: u32 = 700_000;
/// Writes of a watch fan-out.
pub(crate) const ROUNDS_MAX: u32 = 1_000_000;
/// Watches held by idle sessions, all together.
pub(crate) const WATCHES_MAX: u64 = 100_000_000;
/// Sessions in one line for a lock: every session that leaves makes another list them all.
pub(crate) const CONTENDERS_MAX: u32 = 10_000;
