//! Frames: a length word and that many bytes, in both directions.
//!
//! `next_frame` reads what a connection has received so far; `append_frame` writes a frame with a body from a closure.
//! `begin_frame` and `end_frame` are for a frame that is written over several turns. Runs on the connection's core, keeps no state.
//! It knows neither sockets nor what a frame holds. Compare the first four bytes of a fresh connection with
//! `fourletter` before asking for a frame.

use alloc::vec::Vec;
use core::fmt;

use crate::jute::{Writer, patch_i32};
use crate::limits::LENGTH_BYTES;

pub use crate::limits::FRAME_MAX_DEFAULT;

/// Why a frame is invalid. The connection is to be closed without a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// The length word of a received frame is negative or beyond the limit.
    BadLength {
        /// The length word as received.
        length: i32,
        /// The limit in bytes.
        max: usize,
    },
    /// An encoded frame is longer than a length word can state (2 GiB). It was removed from the output.
    Unsendable {
        /// Its length in bytes.
        bytes: usize,
    },
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::BadLength { length, max } => write!(f, "frame length {length} is not within 0..={max}"),
            Self::Unsendable { bytes } => write!(f, "a frame of {bytes} bytes cannot be sent"),
        }
    }
}

impl core::error::Error for FrameError {}

/// Bytes of the first frame in `buf`, length word included; `None` if the length word was not received whole, or is negative.
#[must_use]
pub fn frame_bytes(buf: &[u8]) -> Option<usize> {
    let word = buf.first_chunk::<LENGTH_BYTES>()?;
    usize::try_from(i32::from_be_bytes(*word)).ok()?.checked_add(LENGTH_BYTES)
}

/// Finds the first frame in `buf`: its body, and its bytes with the length word. `None` if more bytes are needed.
///
/// `max` limits the body in bytes ([`FRAME_MAX_DEFAULT`] in ZooKeeper). The length is checked as soon as its four bytes
/// were received. So a connection never buffers bytes of a frame that will be refused. Takes constant time.
///
/// # Errors
/// [`FrameError::BadLength`].
pub fn next_frame(buf: &[u8], max: usize) -> Result<Option<(&[u8], usize)>, FrameError> {
    let Some((word, rest)) = buf.split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let length = i32::from_be_bytes(*word);
    let body_bytes = match usize::try_from(length) {
        Ok(bytes) if bytes <= max => bytes,
        _ => return Err(FrameError::BadLength { length, max }),
    };
    Ok(rest.get(..body_bytes).map(|body| (body, body_bytes.saturating_add(LENGTH_BYTES))))
}

/// The start of a frame under construction; made by [`begin_frame`], consumed by [`end_frame`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a frame that is begun must be ended"]
pub struct FrameMark {
    start: usize,
}

/// Begins a frame: reserves its length word at the end of `out`.
pub fn begin_frame(out: &mut Vec<u8>) -> FrameMark {
    let start = out.len();
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    FrameMark { start }
}

/// Ends a frame: stores the length of everything in `out` behind its length word.
///
/// # Errors
/// [`FrameError::Unsendable`] if the body has 2 GiB or more; `out` is then as it was before [`begin_frame`].
///
/// # Panics
/// If `out` is not the vector the frame was begun in, or was cut since.
pub fn end_frame(out: &mut Vec<u8>, mark: FrameMark) -> Result<(), FrameError> {
    let bytes = out
        .len()
        .checked_sub(mark.start)
        .and_then(|all| all.checked_sub(LENGTH_BYTES))
        .expect("the length word was reserved in this vector and output only grows");
    let Ok(length) = i32::try_from(bytes) else {
        out.truncate(mark.start);
        return Err(FrameError::Unsendable { bytes });
    };
    patch_i32(out, mark.start, length);
    Ok(())
}

/// Appends a frame. `encode` writes its body.
///
/// # Errors
/// [`FrameError::Unsendable`] as of [`end_frame`].
pub fn append_frame(out: &mut Vec<u8>, encode: impl FnOnce(&mut Writer<'_>)) -> Result<(), FrameError> {
    let mark = begin_frame(out);
    encode(&mut Writer::new(out));
    end_frame(out, mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_or_refused() {
        type Found<'a> = Result<Option<(&'a [u8], usize)>, FrameError>;
        fn check(buf: &[u8], expect: Found<'_>) {
            assert_eq!(next_frame(buf, 3), expect, "{buf:x?}");
        }
        check(b"", Ok(None));
        check(b"\0\0\0", Ok(None));
        check(b"\0\0\0\x02a", Ok(None));
        check(b"\0\0\0\0", Ok(Some((b"", 4))));
        check(b"\0\0\0\x03abcd", Ok(Some((b"abc", 7))));
        check(b"\0\0\0\x04", Err(FrameError::BadLength { length: 4, max: 3 }));
        check(b"\xff\xff\xff\xff", Err(FrameError::BadLength { length: -1, max: 3 }));
        check(b"ruok", Err(FrameError::BadLength { length: 0x7275_6f6b, max: 3 }));
    }

    #[test]
    fn frames_are_patched_one_after_the_other() {
        let mut out = Vec::new();
        for body in [&b"abc"[..], b""] {
            append_frame(&mut out, |writer| writer.raw(body)).expect("short");
        }
        assert_eq!(out, b"\0\0\0\x03abc\0\0\0\0");
    }
}
