//! corral-peer: the stream between two servers of an ensemble, bytes to types and back.
//!
//! A connection carries frames in one direction. The server that dials sends a [`Handshake`]. The listener sends an
//! [`Answer`] and then nothing any more. After [`Admission::Welcome`] the dialler sends frames, see [`mod@frame`]. If the
//! servers share a secret, a challenge and a proof come between handshake and answer, see [`secret`]. Integers are
//! little-endian, everything is under a CRC32C. No input causes a panic, and the memory held is proportional to the bytes
//! received.
//!
//! It knows no socket, no clock, no thread, and not what is in a frame.

#![warn(missing_docs)]

mod fixed;
pub mod foreign;
pub mod frame;
pub mod handshake;
pub mod secret;
pub mod snapshot;

pub use frame::{Decoder, Frame, FrameError, FrameKey, Header, Kind};
pub use handshake::{Admission, Answer, ClusterName, Generation, Handshake, HandshakeError};
pub use secret::{Challenge, Proof, Secret, Secrets, SecretsError, Transcript};
