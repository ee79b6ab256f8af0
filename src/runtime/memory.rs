//! Gives the allocator's free memory back to the kernel from time to time, on a thread that no other thread waits for.
//! The allocator itself would only do so while it is being asked for more, which an idle server never does.
//!
//! A thread's memory that another thread freed comes back only through the thread it belongs to. So an executor first
//! takes back its own, which is quick, and then the free memory goes to the kernel.

#![allow(unsafe_code, reason = "the allocator's own interface is C")]

use std::sync::atomic::{AtomicU64, Ordering};

unsafe extern "C" {
    /// mimalloc's: takes back free memory on this thread. With `force` it also does so for pages that were full, and
    /// gives free memory of the whole process to the kernel.
    fn mi_collect(force: bool);
}

/// How often the executors were asked.
static ASKED: AtomicU64 = AtomicU64::new(0);

/// Gives back what is free. Takes time in proportion to it, about 0.1 s a GiB: not for a core.
pub(crate) fn give_back() {
    // SAFETY: callable at any time from any thread; it touches nothing that is allocated. The symbol comes with the crate
    // that is this program's global allocator.
    unsafe { mi_collect(true) }
}

/// Asks every executor to take back what others freed of its memory.
pub(crate) fn ask_executors() {
    ASKED.fetch_add(1, Ordering::Relaxed);
}

/// An executor's side of [`ask_executors`]; `seen` is what this gave before. Tens of microseconds when asked.
pub(crate) fn take_back_if_asked(seen: u64) -> u64 {
    let asked = ASKED.load(Ordering::Relaxed);
    if asked != seen {
        // SAFETY: as above.
        unsafe { mi_collect(false) }
    }
    asked
}
