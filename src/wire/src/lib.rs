//! corral-wire: the ZooKeeper 3.9 client protocol, bytes to types and back.
//!
//! Every record decodes into a view that borrows from its frame, and encodes by appending to a caller's `Vec<u8>`. Decoding
//! never allocates. The crate keeps no state and runs on the core that owns the connection. It knows no socket, no session,
//! no tree, no clock. The server above it decides what an operation means.
//!
//! Begin with [`frame::next_frame`], then [`records::RequestHeader`], then the record that [`op::OpCode`] names.
//!
//! # Examples
//!
//! A server decodes the frame of a getData, and encodes its reply:
//!
//! ```
//! use corral_wire::frame::{FRAME_MAX_DEFAULT, append_frame, next_frame};
//! use corral_wire::records::{GetDataRequest, GetDataResponse, ReplyHeader, RequestHeader, Stat};
//! use corral_wire::{OpCode, Reader};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // As received: length 18, xid 1, operation 4, path of 5 bytes, no watch.
//! let received = b"\0\0\0\x12\0\0\0\x01\0\0\0\x04\0\0\0\x05/lock\0";
//! let (body, used) = next_frame(received, FRAME_MAX_DEFAULT)?.expect("the frame is whole");
//! assert_eq!(used, received.len());
//!
//! let mut reader = Reader::new(body);
//! let header = RequestHeader::decode(&mut reader)?;
//! assert_eq!(OpCode::from_i32(header.op), Some(OpCode::GetData));
//! let request = GetDataRequest::decode(&mut reader)?;
//! assert_eq!((request.path, request.watch), (Some("/lock"), false));
//!
//! let mut out = Vec::new();
//! append_frame(&mut out, |writer| {
//!     ReplyHeader::ok(header.xid, 0x1_0000_0005).encode(writer);
//!     let stat = Stat { data_length: 5, ..Stat::default() };
//!     GetDataResponse { data: Some(b"owner"), stat }.encode(writer);
//! })?;
//! assert_eq!(out[..4], (out.len() as u32 - 4).to_be_bytes());
//! # Ok(())
//! # }
//! ```

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
