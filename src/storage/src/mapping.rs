//! The only place of this crate with `unsafe`: memory mappings of files in the data directory.
//!
//! Everything above sees plain slices. The directory's lock protects the files. Code of this crate never truncates or
//! removes them while they are mapped. They are fully allocated before they are mapped for writing.

#![allow(unsafe_code, reason = "mapping a file is unsafe by nature; nothing else in this crate is")]

mod lost_page;

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use memmap2::{Advice, Mmap, MmapMut, MmapOptions, UncheckedAdvice};
use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, raise, sigaction};

/// Exit code of the process when a page of a mapped file is lost.
static EXIT_CODE: AtomicI32 = AtomicI32::new(0);
/// A thread is ending the process.
static ENDS: AtomicBool = AtomicBool::new(false);

/// Installs a signal handler that ends the process if a page of a mapped file is lost, with this exit code.
///
/// A page is lost if another program cut the file off, or if the disk fails. The handler writes file and offset to standard
/// error. Without it SIGBUS kills the process without a message. Call it once, before the first mapping is used.
///
/// # Errors
/// If the handler cannot be installed.
pub fn end_on_lost_page(exit_code: u8) -> io::Result<()> {
    EXIT_CODE.store(exit_code.into(), Ordering::Relaxed);
    let action = SigAction::new(SigHandler::SigAction(page_lost), SaFlags::SA_SIGINFO, SigSet::empty());
    // SAFETY: the handler does nothing but system calls on its own stack, and never returns to the access that failed.
    // The process has no other handler of this signal that would be lost. The standard library's reports overflows of
    // the stack, which raise SIGSEGV here.
    unsafe { sigaction(Signal::SIGBUS, &action) }.map(drop).map_err(io::Error::from)
}

extern "C" fn page_lost(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel gives a pointer to its description of the signal, valid while the handler
    // runs.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as u64) };
    while ENDS.swap(true, Ordering::Relaxed) {
        // Another thread reports it, and ends this one too.
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
    // Above 0: of the memory, not sent by a process.
    if code > 0 && lost_page::report(address, &mut StandardError) {
        // SAFETY: the call takes no pointer. No destructor may run: the interrupted thread may hold any lock.
        unsafe { libc::_exit(EXIT_CODE.load(Ordering::Relaxed)) }
    }
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: the default action is no code of ours. The signal then ends the process as if there were no handler.
    if unsafe { sigaction(Signal::SIGBUS, &default) }.is_ok() {
        let _ = raise(Signal::SIGBUS);
    }
}

/// The descriptor alone: the library's own handle is locked while it is written to.
struct StandardError;

impl io::Write for StandardError {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        nix::unistd::write(io::stderr(), bytes).map_err(io::Error::from)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Maps the first `bytes` bytes of `file` for shared writing. No page is brought into memory yet, see [`warm`].
pub(crate) fn map_for_writing(file: &File, bytes: usize) -> io::Result<MmapMut> {
    // SAFETY: a mapping is undefined behaviour if the file changes under a live reference. The data directory is held
    // by an exclusive lock, a segment is mapped by one `Log` only, and no code of ours shortens a file. `bytes` is the
    // length the file has, all of it allocated, so that no store can raise SIGBUS for want of space.
    unsafe { MmapOptions::new().len(bytes).map_mut(file) }
}

/// Brings the pages of `from..to` into memory, so that using them waits for no disk.
pub(crate) fn warm(mapping: &MmapMut, from: usize, to: usize) -> io::Result<()> {
    populate(|advice| mapping.advise_range(advice, from, to.saturating_sub(from)))
}

/// Takes the pages of `from..to` off the process's memory; they stay in the page cache for as long as the kernel likes.
pub(crate) fn release(mapping: &MmapMut, from: usize, to: usize) -> io::Result<()> {
    // SAFETY: the mapping is shared and of a file, so no content is lost. A page that was written to stays dirty and is
    // written back as ever, and the next use of the range finds the same bytes. No live slice changes.
    unsafe { mapping.unchecked_advise_range(UncheckedAdvice::DontNeed, from, to.saturating_sub(from)) }
}

/// Maps the first `bytes` bytes of `file` for reading and brings the pages into memory.
pub(crate) fn map_for_reading(file: &File, bytes: usize) -> io::Result<Mmap> {
    // SAFETY: as above: only files that are complete are mapped for reading (snapshot files, committed by rename). They
    // are never written again, and removing one leaves its mapping intact.
    let mapping = unsafe { MmapOptions::new().len(bytes).map(file)? };
    populate(|advice| mapping.advise(advice))?;
    Ok(mapping)
}

/// Has `bytes` bytes of `file` from `offset` on written to the disk and waits for that. It takes care of neither the
/// file's size nor the disk's own cache. Nothing is durable by this, but a later sync has less to do. Unlike a sync it
/// asks neither journal nor disk for a flush, which the syncs of other files would wait behind.
pub(crate) fn write_back(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    const HOW: libc::c_uint =
        libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    let length = |value: u64| i64::try_from(value).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
    let (offset, bytes) = (length(offset)?, length(bytes)?);
    // SAFETY: the call takes no pointer, and the descriptor is open for as long as `file` is borrowed.
    if unsafe { libc::sync_file_range(file.as_raw_fd(), offset, bytes, HOW) } == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

/// Faults all pages in. A kernel before 5.14 does not know the advice: then pages fault in on first use. A page that
/// cannot be read is an error here instead of a SIGBUS later.
fn populate(advise: impl Fn(Advice) -> io::Result<()>) -> io::Result<()> {
    match advise(Advice::PopulateRead) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapped_file_is_named() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        file.as_file().set_len(3 * 4096).expect("it grows");
        let mapping = map_for_reading(file.as_file(), 3 * 4096).expect("it is mapped");
        let mut said = Vec::new();
        assert!(lost_page::report(mapping.as_ptr() as u64 + 5000, &mut said));
        let said = String::from_utf8(said).expect("it is text");
        let begins = format!("corral: {}: the page at offset 5000 cannot be read", file.path().display());
        assert!(said.starts_with(&begins) && said.ends_with("first\n"), "{said}");
        let nowhere = Box::new(5);
        assert!(!lost_page::report(std::ptr::from_ref(&*nowhere) as u64, &mut Vec::new()));
    }
}
