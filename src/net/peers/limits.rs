//! Every bound of the connections between servers, by name.
//!
//! Plain constants. `Settings` overrides values that a test wants smaller or shorter, and holds these otherwise.

use std::time::Duration;

use corral_peer::frame::PAYLOAD_BYTES_MAX;

/// Bytes waiting for one peer, with the overhead of each message. One message always fits.
pub(crate) const QUEUE_BYTES_MAX: usize = 64 << 20;
/// Messages waiting for one peer.
pub(crate) const QUEUE_MESSAGES_MAX: usize = 16_384;
/// Overhead of a waiting message beside its payload, in bytes.
pub(crate) const MESSAGE_OVERHEAD_BYTES: usize = 128;
/// Bytes received from one peer and not taken by the receiver of events yet; beyond it that peer is not read. A read
/// and one frame more can be there.
pub(crate) const RECEIVED_BYTES_MAX: usize = 64 << 20;
/// Bytes handed to the kernel in one go, if frames are small.
pub(crate) const BATCH_BYTES_MAX: usize = 1 << 20;
/// Bytes waiting for one peer, overhead included, that the queuing thread writes itself. The sender's thread writes
/// more.
pub(crate) const DIRECT_BYTES_MAX: usize = 16 << 10;
/// Frames handed to the kernel in one go.
pub(crate) const BATCH_FRAMES_MAX: usize = 1024;
/// Pieces of memory handed to the kernel in one call.
pub(crate) const PIECES_MAX: usize = 64;
/// A payload up to this long is copied behind its header, a longer one is handed to the kernel where it is.
pub(crate) const COPIED_BYTES_MAX: usize = 16 << 10;
/// Bytes read from a peer in one call.
pub(crate) const READ_BYTES: usize = 256 << 10;
/// Connections that have not sent its handshake. One more ends the oldest: a peer has sent its handshake by then.
pub(crate) const STRANGERS_MAX: usize = 256;
/// Connections taken from one listener before the accepted ones get their turn. So a connection that has sent its
/// handshake is not displaced while its proof is on its way.
pub(crate) const ACCEPTED_MAX: usize = 16;
/// Connections of one peer that are still ending while it dials again.
pub(crate) const ENDING_MAX: usize = 4;
/// Connections the kernel holds for one listener while they wait to be accepted.
pub(crate) const BACKLOG: i32 = 128;
/// Addresses that are tried of one name at each dial.
pub(crate) const ADDRESSES_MAX: usize = 8;
/// Places where a peer listened before and is looked for still.
pub(crate) const FORMER_MAX: usize = 3;
/// Places where this server listens for the others: where its configuration says, and wherever the list has said since.
pub(crate) const LISTENERS_MAX: usize = 1 + FORMER_MAX;

/// How long a dial to one address may take.
pub(crate) const CONNECT_MAX: Duration = Duration::from_secs(1);
/// How long it may take from the connection to the end of handshake and answer, TLS included.
pub(crate) const HANDSHAKE_MAX: Duration = Duration::from_secs(2);
/// First pause after a failed dial; it doubles up to `PAUSE_MAX`. The pause is drawn between half of it and all of it.
pub(crate) const PAUSE_MIN: Duration = Duration::from_millis(20);
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(1);
/// A peer with messages that were not understood is not let in for this long.
pub(crate) const SHUT_FOR: Duration = Duration::from_secs(1);
/// A server that holds data and is not known here is remembered for this long after it knocked; it does so every
/// `PAUSE_MAX`.
pub(crate) const STRANGER_COUNTS_FOR: Duration = Duration::from_secs(10);
/// A peer that is not reached for less than this, because its process does not run, is starting or being restarted: no
/// event.
pub(crate) const ORDINARY: Duration = Duration::from_secs(10);
/// A connection that lived this long makes the pauses short again.
pub(crate) const LASTING: Duration = Duration::from_secs(5);
/// A host that acknowledges nothing for this long is dead, be there data under way or not.
pub(crate) const DEAD_AFTER: Duration = Duration::from_secs(5);
/// An idle connection is probed after this long, and then at this interval.
pub(crate) const PROBE_AFTER: Duration = Duration::from_secs(2);
pub(crate) const PROBE_INTERVAL: Duration = Duration::from_secs(1);
pub(crate) const PROBES_MAX: u32 = 3;
/// A peer is given up after it takes no byte for this long although some are due.
pub(crate) const STALL_MAX: Duration = Duration::from_secs(10);
/// How long a sender that is told to stop may take to write what is queued.
pub(crate) const STOP_FLUSH_MAX: Duration = Duration::from_millis(200);
/// How long `stop` waits for the threads; a thread that is stuck in the resolver is left behind.
pub(crate) const STOP_MAX: Duration = Duration::from_secs(2);
/// How often it looks whether they have ended.
pub(crate) const STOP_LOOK: Duration = Duration::from_micros(200);

const _: () = assert!(QUEUE_BYTES_MAX > BATCH_BYTES_MAX);
const _: () = assert!(PAYLOAD_BYTES_MAX as usize <= 2 * QUEUE_BYTES_MAX);
const _: () = assert!(READ_BYTES <= RECEIVED_BYTES_MAX);
