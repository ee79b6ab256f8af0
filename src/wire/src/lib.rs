//! corral-wire: the ZooKeeper 3.9 client protocol, bytes to types and back, nothing else.
//!
//! Every record decodes into a view that borrows from the frame it came in and encodes by appending to a caller's
//! `Vec<u8>`; decoding never allocates. The crate runs on whichever core owns the connection and keeps no state.
//! It knows no socket, no session, no tree, no clock; what an operation means is decided by the server above it.
//!
//! Start with [`frame::next_frame`], then [`records::RequestHeader`], then the record [`op::OpCode`] names.

#![no_std]
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::arithmetic_side_effects))]
#![deny(missing_docs)]

extern crate alloc;

pub mod consts;
pub mod error;
pub mod fourletter;
pub mod frame;
pub mod jute;
pub mod limits;
pub mod multi;
pub mod op;
pub mod records;
pub mod vector;

pub use error::{DecodeError, ErrorCode};
pub use jute::{Reader, Wire, Writer};
pub use op::OpCode;
pub use vector::{Vector, VectorBuf, VectorEncoder};
