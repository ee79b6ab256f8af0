//! Frames and parts of frames that any session of the load generator sends, and the value that every znode holds.
//!
//! Pure: records in, bytes out.

use anyhow::{Context, Result};
use corral_wire::frame::{append_frame, next_frame};
use corral_wire::records::{Acl, RequestHeader};
use corral_wire::{OpCode, Wire, Writer};

/// Appends a frame: header, encoded path, the rest of the record. Both may be empty.
pub(crate) fn push_frame(out: &mut Vec<u8>, xid: i32, op: OpCode, path: &[u8], tail: &[u8]) {
    let encoded = append_frame(out, |writer| {
        RequestHeader { xid, op: op.number() }.encode(writer);
        writer.raw(path);
        writer.raw(tail);
    });
    encoded.expect("a request is far smaller than 2 GiB");
}

/// The fields behind the path in a create by a flag (0 is persistent, 3 ephemeral and sequential), open to every
/// client.
pub(crate) fn create_tail(writer: &mut Writer<'_>, value: &[u8], flags: i32) {
    writer.buffer(Some(value));
    Some(Acl::OPEN_ACL_UNSAFE).encode(writer);
    writer.i32(flags);
}

/// The fields behind the path in a setData.
pub(crate) fn set_tail(writer: &mut Writer<'_>, value: &[u8], version: i32) {
    writer.buffer(Some(value));
    writer.i32(version);
}

/// The frames of a stream of bytes that comes in pieces.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    partial: Vec<u8>,
}

impl Frames {
    /// Hands the body of every whole frame received so far to `take`, which returns whether to go on.
    pub(crate) fn take(
        &mut self,
        received: &[u8],
        frame_bytes_max: usize,
        mut take: impl FnMut(&[u8]) -> Result<bool>,
    ) -> Result<bool> {
        let mut joined = std::mem::take(&mut self.partial);
        let whole = joined.is_empty();
        if !whole {
            joined.extend_from_slice(received);
        }
        let bytes = if whole { received } else { &joined };
        let (mut used, mut open) = (0, true);
        while open
            && let Some((body, frame_bytes)) = next_frame(&bytes[used..], frame_bytes_max).context("invalid frame")?
        {
            used += frame_bytes;
            open = take(body)?;
        }
        // An idle connection holds no memory for earlier bytes.
        if whole {
            self.partial = bytes[used..].to_vec();
        } else if used < joined.len() {
            joined.drain(..used);
            self.partial = joined;
        }
        Ok(open)
    }
}

/// A path or name as a record holds it.
pub(crate) fn encoded_path(path: &str) -> Vec<u8> {
    encoded(|writer| writer.str(path))
}

pub(crate) fn encoded(fill: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    fill(&mut Writer::new(&mut out));
    out
}

/// The value every znode holds, so that any server's reply can be compared byte by byte; the echo knows it too.
#[must_use]
pub fn value(bytes: usize) -> Vec<u8> {
    b"abcdefghijklmnopqrstuvw".iter().copied().cycle().take(bytes).collect()
}
