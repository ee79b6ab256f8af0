//! The tree that the cases work on: paths and data of its znodes, and the order in which they are used.

/// Operations of a run at most; what is prepared is prepared for as many.
pub(crate) const TIMES_MAX: u32 = 2048;
/// The znodes, below one parent, of the tree that the cases work on.
pub(crate) const ZNODES: u32 = 16_384;
pub(crate) const DATA: [u8; 100] = [7; 100];

pub(crate) fn path(number: u32) -> String {
    format!("/micro/k/{number:08}")
}

/// The path of a znode that is not there yet.
pub(crate) fn new_path(number: u32) -> String {
    format!("/micro/n/{number:09}")
}

/// Paths of the tree in an order without a pattern, the same in every run: each is there once before any comes again.
pub(crate) fn key(number: u32) -> String {
    const _: () = assert!(ZNODES.is_power_of_two());
    path(number.wrapping_mul(0x9e37_79b1) % ZNODES)
}
