//! Buffers of bytes to be sent.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;
use core::ops::Deref;

/// An output of so many bytes becomes a chunk. Until then it grows by copies, which all connections that hear of one
/// transaction may have to make at the same time.
const CHUNK_BYTES: usize = 128 * 1024;

/// Bytes that were sent and may lie in front of unsent bytes.
const SENT_KEPT_MAX: usize = 64 * 1024;

/// An event of so many bytes is not copied for each connection that hears of it.
pub(crate) const SHARED_BYTES: usize = 8 * 1024;

/// Bytes that are to be sent.
#[derive(Debug)]
enum Chunk {
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
struct Chunks {
    list: VecDeque<Chunk>,
    bytes: usize,
    capacity: usize,
    /// Bytes that may be unsent beyond the usual limit.
    allowance: usize,
}

impl Chunks {
    fn push(&mut self, chunk: Chunk) {
        if chunk.is_empty() {
            return;
        }
        self.bytes += chunk.len();
        self.capacity += chunk.capacity();
        self.list.push_back(chunk);
    }

    fn drop_first(&mut self) {
        if let Some(first) = self.list.pop_front() {
            self.bytes -= first.len();
            self.capacity -= first.capacity();
        }
    }
}

/// The bytes that a connection is to be sent.
#[derive(Debug, Default)]
pub(crate) struct Output {
    /// Replies are appended to it.
    last: Vec<u8>,
    /// Full chunks that are sent before it.
    earlier: Option<Box<Chunks>>,
    /// How much of the first chunk, or of `last` if there is none, the socket has taken.
    sent: usize,
    /// The driver knows that there is something to send.
    announced: bool,
}

impl Output {
    /// Bytes that the socket has not taken.
    #[inline]
    pub(crate) fn unsent(&self) -> usize {
        self.earlier.as_ref().map_or(0, |earlier| earlier.bytes) + self.last.len() - self.sent
    }

    /// Bytes of memory that it holds.
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.last.capacity() + self.earlier.as_ref().map_or(0, |earlier| earlier.capacity)
    }

    /// The first of the bytes that are to be sent: a chunk's, or all.
    pub(crate) fn front(&self) -> &[u8] {
        let first = self.earlier.as_ref().and_then(|earlier| earlier.list.front());
        &first.map_or(&*self.last, |chunk| chunk)[self.sent..]
    }

    /// Whether there is something to send of which the driver does not know. From now on it knows.
    #[inline]
    pub(crate) fn announce(&mut self) -> bool {
        self.unsent() > 0 && !mem::replace(&mut self.announced, true)
    }

    /// To append replies to it: a buffer from the pool if it has none.
    #[inline]
    pub(crate) fn buffer(&mut self, pool: &mut BufferPool) -> &mut Vec<u8> {
        pool.lend(&mut self.last);
        &mut self.last
    }

    /// The same, to be put back with [`Output::put_back`].
    #[inline]
    pub(crate) fn take_buffer(&mut self, pool: &mut BufferPool) -> Vec<u8> {
        pool.lend(&mut self.last);
        mem::take(&mut self.last)
    }

    #[inline]
    pub(crate) fn put_back(&mut self, buffer: Vec<u8>) {
        self.last = buffer;
    }

    /// So many bytes of the front were sent. A chunk is dropped when it was sent, and sent bytes of the buffer once
    /// they outweigh the rest. A client that always has more to take must not make the server keep sent bytes. An empty
    /// buffer goes to the pool.
    pub(crate) fn forget_sent(&mut self, count: usize, pool: &mut BufferPool) {
        assert!(count <= self.front().len(), "no more was sent than there was");
        self.sent += count;
        if let Some(earlier) = &mut self.earlier {
            if earlier.list.front().is_some_and(|first| first.len() == self.sent) {
                earlier.drop_first();
                self.sent = 0;
            }
            if earlier.list.is_empty() {
                self.earlier = None;
            }
        } else if self.sent >= SENT_KEPT_MAX && self.sent >= self.unsent() {
            self.last.drain(..self.sent);
            self.sent = 0;
        }
        if self.unsent() == 0 {
            (self.sent, self.announced) = (0, false);
            pool.take_back(&mut self.last);
        }
    }

    /// A large buffer becomes a chunk: what comes behind it must not make it grow, which copies it.
    #[inline]
    pub(crate) fn begin_chunk(&mut self) {
        if self.last.len() >= CHUNK_BYTES {
            self.end_chunk();
        }
    }

    /// The buffer becomes a chunk.
    fn end_chunk(&mut self) -> &mut Chunks {
        let earlier = self.earlier.get_or_insert_default();
        earlier.push(Chunk::Own(mem::take(&mut self.last)));
        earlier
    }

    /// Appends bytes. Many are not copied.
    pub(crate) fn append_whole(&mut self, bytes: Vec<u8>) {
        if self.unsent() == 0 {
            (self.last, self.sent) = (bytes, 0);
            return;
        }
        self.begin_chunk();
        if bytes.len() < CHUNK_BYTES {
            self.last.extend_from_slice(&bytes);
        } else {
            self.end_chunk();
            self.last = bytes;
        }
    }

    /// Appends bytes that other connections are sent as well.
    pub(crate) fn append_shared(&mut self, bytes: &Arc<[u8]>) {
        self.end_chunk().push(Chunk::Shared(Arc::clone(bytes)));
    }

    /// Allows all bytes that are unsent now to wait, although they are many. They are one read's reply, and the client
    /// did not choose the size of the tree.
    pub(crate) fn allow_unsent(&mut self) {
        let unsent = self.unsent();
        self.end_chunk().allowance = unsent;
    }

    /// Bytes that may be unsent beyond the usual limit.
    pub(crate) fn allowance(&self) -> usize {
        self.earlier.as_ref().map_or(0, |earlier| earlier.allowance)
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

    fn lend(&mut self, buffer: &mut Vec<u8>) {
        if buffer.capacity() == 0
            && let Some(spare) = self.free.pop()
        {
            *buffer = spare;
        }
    }

    /// Takes an empty buffer away from a connection that goes idle.
    fn take_back(&mut self, buffer: &mut Vec<u8>) {
        let mut spare = mem::take(buffer);
        spare.clear();
        if self.free.len() < Self::KEPT_MAX && (1..=Self::KEPT_BYTES_MAX).contains(&spare.capacity()) {
            self.free.push(spare);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sent_bytes_are_not_kept_for_a_client_that_always_has_more_to_take() {
        const REPLY_BYTES: usize = 10_000;
        let (mut output, mut pool) = (Output::default(), BufferPool::default());
        for number in 0..1000_u32 {
            output.buffer(&mut pool).extend(number.to_be_bytes().iter().cycle().take(REPLY_BYTES));
            if number > 0 {
                // It takes all but the newest.
                assert_eq!(output.front()[..4], (number - 1).to_be_bytes());
                output.forget_sent(REPLY_BYTES, &mut pool);
            }
            let held = output.last.len();
            assert!(held <= 64 * 1024 + 2 * REPLY_BYTES, "{held} bytes are held after {number} replies");
        }
    }
}
