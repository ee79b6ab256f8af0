//! Buffers of what is to be sent.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Deref;

/// An output of so many bytes becomes a chunk. Until then it grows by copies, which all connections that hear of one
/// transaction may have to make at the same time.
pub(super) const CHUNK_BYTES: usize = 128 * 1024;

/// An event of so many bytes is not copied for each connection that hears of it.
pub(crate) const SHARED_BYTES: usize = 8 * 1024;

/// Bytes that are to be sent.
#[derive(Debug)]
pub(super) enum Chunk {
    Own(Vec<u8>),
    /// The same bytes are sent to others.
    Shared(Arc<[u8]>),
}

impl Chunk {
    /// Bytes that it counts for. Of shared ones each connection counts all, because any of them may be the last to send them.
    fn capacity(&self) -> usize {
        match self {
            Self::Own(bytes) => bytes.capacity(),
            Self::Shared(bytes) => bytes.len(),
        }
    }
}

impl Deref for Chunk {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }
}

/// Chunks of output, oldest first. Of the first one a part may have been sent.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    pub(super) list: VecDeque<Chunk>,
    pub(super) bytes: usize,
    pub(super) capacity: usize,
    /// Bytes that may be unsent beyond what may otherwise be.
    pub(super) allowance: usize,
}

impl Chunks {
    pub(super) fn push(&mut self, chunk: Chunk) {
        if chunk.is_empty() {
            return;
        }
        self.bytes += chunk.len();
        self.capacity += chunk.capacity();
        self.list.push_back(chunk);
    }

    pub(super) fn drop_first(&mut self) {
        if let Some(first) = self.list.pop_front() {
            self.bytes -= first.len();
            self.capacity -= first.capacity();
        }
    }
}

/// Output buffers that went empty, for the next connection that has something to say.
#[derive(Debug, Default)]
pub(crate) struct BufferPool {
    free: Vec<Vec<u8>>,
}

impl BufferPool {
    const KEPT_MAX: usize = 64;
    const KEPT_BYTES_MAX: usize = 64 * 1024;

    pub(crate) fn lend(&mut self, buffer: &mut Vec<u8>) {
        if buffer.capacity() == 0
            && let Some(spare) = self.free.pop()
        {
            *buffer = spare;
        }
    }

    /// Takes an empty buffer away from a connection that goes idle.
    pub(crate) fn take_back(&mut self, buffer: &mut Vec<u8>) {
        let mut spare = core::mem::take(buffer);
        spare.clear();
        if self.free.len() < Self::KEPT_MAX && (1..=Self::KEPT_BYTES_MAX).contains(&spare.capacity()) {
            self.free.push(spare);
        }
    }
}
