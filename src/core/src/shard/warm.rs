//! Looking ahead in requests that a connection sent at once: the znodes of all its reads are touched before the first
//! is served.
//!
//! On the shard's core. In a tree beyond the caches a look-up is a chain of cache misses, and one request after the
//! other waits for each link. Touched side by side, the misses of many chains overlap. Serves nothing and decides
//! nothing: every touched znode is looked up again.

use crate::shard::read::Outline;
use crate::tree::view::{View, Warming};
use corral_wire::frame::next_frame;
use corral_wire::records::RequestHeader;
use corral_wire::{OpCode, Reader};

/// Bytes of the shortest request that names a path: header, length of the path, one byte.
const REQUEST_BYTES_MIN: usize = 4 + 8 + 4 + 1;

/// Bytes that are looked at in one go. A connection that was not read on may have megabytes of requests without a path,
/// and is served for a turn at a time.
const LOOK_BYTES_MAX: usize = 64 << 10;

/// Touches the znodes that the next requests in `bytes` will read. Gives the bytes it has looked at, at least one,
/// after which it is to be called again.
pub(super) fn look_ahead(view: &View, frame_bytes_max: usize, bytes: &[u8]) -> usize {
    if bytes.len() < 2 * REQUEST_BYTES_MIN || !view.is_large() {
        return bytes.len().max(1);
    }
    let hasher = view.hasher();
    let mut warming = Warming::new(view.layers());
    let mut seen = 0;
    while !warming.is_full()
        && seen < LOOK_BYTES_MAX
        && let Ok(Some((frame, length))) = next_frame(&bytes[seen..], frame_bytes_max)
    {
        seen += length;
        if let Some(path) = read_path(frame) {
            warming.add(hasher.hash(path));
        }
    }
    warming.prefetch();
    if warming.is_full() || seen >= LOOK_BYTES_MAX { seen } else { bytes.len() }
}

/// The path of a request that reads one znode.
fn read_path(frame: &[u8]) -> Option<&str> {
    let mut reader = Reader::new(frame);
    let header = RequestHeader::decode(&mut reader).ok()?;
    let reads_znode = Outline::of(OpCode::from_i32(header.op)?).reads_znode;
    if reads_znode { reader.string().ok()? } else { None }
}
