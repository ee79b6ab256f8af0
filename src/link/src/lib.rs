//! The stream between two servers of an ensemble: a hello, its answer, then frames. Bytes to types and back, nothing else.
//!
//! One connection carries one direction. The server that dials sends a [`Hello`] of fixed size; the other one sends an
//! [`Answer`] of fixed size and then nothing any more; after a welcome the dialler sends frames, see [`frame`]. Where the servers
//! share a secret, a challenge and a proof stand between the two, see [`secret`]. Integers are
//! little-endian, everything is under a CRC32C. No input panics, and memory is held in proportion to the bytes that arrived.
//!
//! It knows no socket, no clock, no thread, and not what is in a frame. [`stranger`] names those who speak something else.

pub mod frame;
pub mod hello;
pub mod image;
pub mod secret;
pub mod stranger;

pub use frame::{Decoder, Frame, FrameError, FrameKey, Header, Kind};
pub use hello::{Answer, ClusterName, Generation, Hello, HelloError, Verdict};
pub use secret::{Challenge, Proof, Secret, Secrets, Transcript};
