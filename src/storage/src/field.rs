//! Little-endian fields in byte slices, without a panic and without an index.
//!
//! `Put` fills a fixed array; `Reader` of `corral-types` reads one. Used by both file formats; knows neither.

use crate::limits::PAGE_BYTES;

/// Fills the front of a slice; asserts that the caller sized it.
pub(crate) struct Put<'a>(pub(crate) &'a mut [u8]);

impl Put<'_> {
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        let whole = std::mem::take(&mut self.0);
        let (head, rest) = whole.split_at_mut_checked(bytes.len()).expect("the caller sized the buffer");
        head.copy_from_slice(bytes);
        self.0 = rest;
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }
}

/// `usize` to `u64`; the crate asserts 64-bit sizes.
pub(crate) fn wide(value: usize) -> u64 {
    value as u64
}

/// `u64` to `usize`; the crate asserts 64-bit sizes.
#[allow(clippy::cast_possible_truncation, reason = "the crate root asserts that usize has 64 bits")]
pub(crate) fn narrow(value: u64) -> usize {
    value as usize
}

/// Rounds up to a multiple of `unit` (a power of two); saturates far beyond every limit.
pub(crate) fn align_up(value: usize, unit: usize) -> usize {
    value.checked_next_multiple_of(unit).unwrap_or(usize::MAX)
}

/// Whether every byte is zero; compares page by page.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    const ZERO: [u8; PAGE_BYTES] = [0; PAGE_BYTES];
    bytes.chunks(PAGE_BYTES).all(|chunk| ZERO.starts_with(chunk))
}
