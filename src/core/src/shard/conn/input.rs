//! Bytes that a connection has sent and its shard has not taken.

use alloc::boxed::Box;
use alloc::vec::Vec;
use corral_wire::frame::frame_bytes;

/// Bytes in the order in which they came: whole requests of a connection that has to wait, or a part of one.
///
/// The cost of taking some off the front does not depend on the bytes behind them. A connection that waits after each
/// request may have megabytes here.
#[derive(Debug, Default)]
pub(crate) struct Input {
    /// Most connections have none.
    kept: Option<Box<Kept>>,
}

#[derive(Debug, Default)]
struct Kept {
    bytes: Vec<u8>,
    /// Taken, and still in front. Fewer than half of all.
    taken: usize,
}

impl Kept {
    fn close_up(&mut self) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
    }
}

impl Input {
    pub(crate) const fn is_empty(&self) -> bool {
        self.kept.is_none()
    }

    pub(crate) fn len(&self) -> usize {
        self.kept.as_ref().map_or(0, |kept| kept.bytes.len() - kept.taken)
    }

    /// Bytes of memory.
    pub(crate) fn capacity(&self) -> usize {
        self.kept.as_ref().map_or(0, |kept| kept.bytes.capacity())
    }

    pub(crate) fn rest(&self) -> &[u8] {
        self.kept.as_ref().map_or(&[], |kept| &kept.bytes[kept.taken..])
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.kept.get_or_insert_default().bytes.extend_from_slice(bytes);
        }
    }

    /// The first bytes of the rest were taken. Gives the memory back with the last of them.
    pub(crate) fn take(&mut self, count: usize) {
        if count >= self.len() {
            self.kept = None;
        } else if let Some(kept) = &mut self.kept {
            kept.taken += count;
            if kept.taken >= kept.bytes.len() / 2 {
                kept.close_up();
            }
        }
    }

    /// Bytes that are missing of the request that the rest begins with; 0 when it is whole, or its length has not come.
    pub(crate) fn missing(&self) -> usize {
        frame_bytes(self.rest()).map_or(0, |whole| whole.saturating_sub(self.len()))
    }

    /// Whether there is memory for so many bytes more.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.bytes.capacity() - kept.bytes.len() >= bytes)
    }

    /// Gets memory for so many bytes more, and for no others.
    pub(crate) fn make_room(&mut self, bytes: usize) {
        let kept = self.kept.get_or_insert_default();
        kept.close_up();
        kept.bytes.reserve_exact(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_in_order_and_few_are_moved() {
        const TAKEN: usize = 17;
        let all: Vec<u8> = (0..1_000_000_u32).map(|number| number.to_le_bytes()[number as usize % 3]).collect();
        let (mut input, mut out, mut moved) = (Input::default(), Vec::new(), 0);
        let mut bytes = all.chunks(TAKEN * 2);
        bytes.by_ref().take(20_000).for_each(|some| input.append(some));
        while !input.is_empty() {
            let some = TAKEN.min(input.len());
            out.extend_from_slice(&input.rest()[..some]);
            let taken = |input: &Input| input.kept.as_ref().map_or(usize::MAX, |kept| kept.taken);
            let before = taken(&input);
            input.take(some);
            moved += if taken(&input) < before { input.len() } else { 0 };
            bytes.next().into_iter().for_each(|some| input.append(some));
        }
        assert!(out == all);
        assert!(moved <= all.len(), "{moved} bytes were moved");
        assert_eq!((input.capacity(), input.len(), input.missing()), (0, 0, 0));
    }

    #[test]
    fn room_is_made_behind_what_is_left() {
        let mut input = Input::default();
        input.append(&[9, 9, 9, 0, 0, 0, 6, 1, 2]);
        input.take(3);
        assert_eq!((input.len(), input.missing()), (6, 4));
        input.make_room(100);
        assert!(input.has_room(100) && input.rest() == [0, 0, 0, 6, 1, 2]);
    }
}
