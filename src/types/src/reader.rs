//! Reads little-endian fields from the front of a byte slice.

use core::mem;

/// The bytes that are left to be read. A field that they are too short for is `None`, and is not taken.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads these bytes from their front.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }

    /// The next `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    /// The next `count` bytes.
    #[inline]
    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    /// The next byte.
    #[inline]
    pub fn u8(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// The next integer of 16 bits.
    #[inline]
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// The next integer of 32 bits.
    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// The next integer of 64 bits.
    #[inline]
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// All bytes that are left.
    pub fn rest(&mut self) -> &'a [u8] {
        mem::take(&mut self.0)
    }

    /// How many bytes are left.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no byte is left.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_little_endian_and_a_cut_field_is_not_taken() {
        let bytes = [1, 2, 0, 3, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 5, 6, 7, 8, 9];
        let mut reader = Reader::new(&bytes);
        assert_eq!((reader.u8(), reader.u16(), reader.u32(), reader.u64()), (Some(1), Some(2), Some(3), Some(4)));
        assert_eq!((reader.array(), reader.bytes(1)), (Some([5, 6]), Some(&[7][..])));
        assert_eq!((reader.u32(), reader.u64(), reader.bytes(3), reader.array::<3>()), (None, None, None, None));
        assert_eq!((reader.len(), reader.is_empty(), reader.rest()), (2, false, &[8, 9][..]));
        assert!(reader.is_empty() && reader.u8().is_none());
    }
}
