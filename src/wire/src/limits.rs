//! The sizes the protocol fixes and the limits this crate holds to.
//!
//! Constants only; a server may configure a smaller or larger request frame and pass it to `frame::next_frame`.
//! Knows nothing of connections, queues or memory budgets: those limits belong to the server.

/// Largest request frame in bytes after the length word: ZooKeeper's default `jute.maxbuffer`.
pub const FRAME_MAX_DEFAULT: usize = 0xf_ffff;

/// Bytes of the length word in front of every frame, of every string and buffer length and of every vector count.
pub const LENGTH_BYTES: usize = 4;

/// Bytes of a `Stat` on the wire.
pub const STAT_BYTES: usize = 68;

/// Bytes of the session password in a `ConnectResponse`.
pub const PASSWD_BYTES: usize = 16;

/// Bytes of a `RequestHeader`.
pub const REQUEST_HEADER_BYTES: usize = 8;

/// Bytes of a `ReplyHeader`, hence of every error reply.
pub const REPLY_HEADER_BYTES: usize = 16;

/// Bytes of a `MultiHeader`.
pub const MULTI_HEADER_BYTES: usize = 9;

/// Most operations of a multi or multiRead: the server's budget for a request allows no more.
///
/// A frame of the default size cannot hold so many.
pub const MULTI_OPS_MAX: usize = 66_666;
