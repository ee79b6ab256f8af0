//! The allocator's memory beyond what is in use: given back to the kernel from time to time, by a thread that nobody
//! waits for. The allocator itself would only do so while it is being asked for more, which an idle server never does.

#![allow(unsafe_code, reason = "the allocator's own interface is C")]

unsafe extern "C" {
    /// mimalloc's: takes back what is free on this thread and gives free memory of the whole process to the kernel.
    fn mi_collect(force: bool);
}

/// Gives back what is free. Takes time in proportion to it, about 0.1 s a GiB: not for a core.
pub(crate) fn give_back() {
    // SAFETY: callable at any time from any thread; it touches nothing that is allocated. The symbol comes with the crate
    // that is this program's global allocator.
    unsafe { mi_collect(true) }
}
