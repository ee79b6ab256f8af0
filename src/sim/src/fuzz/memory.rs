//! An allocator that counts what the calling thread holds, so that a target's appetite can be measured.
//!
//! A program that wants [`peak`] to mean something installs [`Counting`] as its global allocator; without it every peak is
//! 0, see [`is_counted`]. Any thread; each counts for itself.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;

use mimalloc::MiMalloc;

/// The server's allocator, with a count of the bytes held.
pub struct Counting;

thread_local! {
    /// Signed, because another thread than the allocating one may free memory.
    static HELD: Cell<i64> = const { Cell::new(0) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

fn note(more: usize, less: usize) {
    let signed = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
    // A thread that is ending has no counters any more, and no reader of them.
    let _ = HELD.try_with(|held| {
        let now = held.get().wrapping_add(signed(more)).wrapping_sub(signed(less));
        held.set(now);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(now)));
    });
}

#[allow(unsafe_code, reason = "a counting allocator can only be written against the unsafe trait")]
// SAFETY: every call goes to the server's allocator unchanged; the counters are thread-locals without destructors.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 0);
        // SAFETY: the caller's promises are passed on.
        unsafe { MiMalloc.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note(0, layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { MiMalloc.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size, layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { MiMalloc.realloc(pointer, layout, size) }
    }
}

/// Runs `work` and gives the most bytes that it held at any moment.
pub fn peak<R>(work: impl FnOnce() -> R) -> (R, usize) {
    let before = HELD.with(Cell::get);
    PEAK.with(|peak| peak.set(before));
    let done = work();
    let most = PEAK.with(Cell::get) - before;
    (done, usize::try_from(most).unwrap_or(0))
}

/// Bytes that the calling thread holds now. It means something as a difference alone.
pub fn held() -> i64 {
    HELD.with(Cell::get)
}

/// Whether this program has installed [`Counting`].
pub fn is_counted() -> bool {
    peak(|| drop(std::hint::black_box(vec![0_u8; 1000]))).1 >= 1000
}
