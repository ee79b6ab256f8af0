//! The only place that gives memory to an io_uring of our own. It has the two queues, the pool of buffers that the
//! kernel receives into, and the eventfd that rings when something has come. Safe to use from outside, whatever is done
//! with it.
//!
//! Lives on the executor's thread it was made on, as the kernel demands. It does not know what a connection is: it
//! carries the number that a request was made with back to its completions.

#![allow(unsafe_code, reason = "the kernel is handed memory and descriptors; each block says why it may have them")]

use std::cell::{Cell, RefCell};
use std::io;
use std::ops::Deref;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU16, Ordering, fence};
use std::time::Duration;

use glommio::io::BufferedFile;
use io_uring::types::{BufRingEntry, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::event::PollFlags;
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use rustix::net::{SendFlags, SocketFlags};

/// Requests that travel to the kernel in one call, as a part of the depth: 256 of 1024. More wait for the next.
const SUBMISSIONS_PART: u32 = 4;
/// Completions that wait here to be looked at, by the depth: 4096 with 1024. The kernel keeps more for us.
const COMPLETIONS_TIMES: u32 = 4;
/// The most bytes of one receive.
const BUFFER_LENGTH: u32 = 4096;
const BUFFER_BYTES: usize = BUFFER_LENGTH as usize;
/// Buffers that the kernel has at the start, and at most. It gets twice as many whenever they do not suffice, and half
/// of them are taken back when few are in use.
const BUFFERS_MIN: u16 = 64;
const BUFFERS_MAX: u16 = 1024;
/// Times the kernel may say that it has no memory for a request just now.
const SUBMIT_TRIES_MAX: usize = 10_000;
/// The only group of buffers.
const GROUP: u16 = 0;
const ENTRY_BYTES: usize = size_of::<BufRingEntry>();

const _: () = assert!(BUFFERS_MAX.is_power_of_two() && BUFFERS_MIN.is_power_of_two());

/// Something that a request led to.
pub(super) struct Completion<'q> {
    /// The token that the request was made with.
    pub(super) token: u64,
    /// A count, or an errno below 0.
    pub(super) result: i32,
    /// Whether the same request will lead to more.
    pub(super) more: bool,
    /// The received bytes.
    pub(super) bytes: Option<Received<'q>>,
    /// The accepted socket.
    pub(super) socket: Option<OwnedFd>,
}

/// An eventfd that a task of the runtime awaits.
pub(in crate::net::client) struct BellFile(BufferedFile);

impl BellFile {
    /// # Errors
    /// When no file descriptor is left.
    pub(in crate::net::client) fn new(bell: BorrowedFd<'_>) -> io::Result<BellFile> {
        let bell = fcntl_dupfd_cloexec(bell, 0)?;
        // SAFETY: the descriptor is ours and from here on only the file's.
        Ok(BellFile(unsafe { BufferedFile::from_raw_fd(bell.into_raw_fd()) }))
    }

    /// Returns when the bell has been rung since the last call; false when the executor ends.
    pub(in crate::net::client) async fn wait(&self) -> bool {
        const COUNTER_BYTES: usize = 8;
        self.0.read_at(0, COUNTER_BYTES).await.is_ok()
    }
}

/// The queues of an io_uring, with its buffers and its bell.
pub(super) struct Queue {
    ring: RefCell<IoUring>,
    /// Requests that the submission queue has no room for.
    waiting: RefCell<Vec<squeue::Entry>>,
    pool: Pool,
    bell: BellFile,
    /// The lowest byte of the tokens that connections are accepted with, and of no other token.
    accepting: Cell<Option<u8>>,
}

impl Queue {
    /// `bell` is an eventfd that wakes the queue's task. Any thread may write to it, and so does the queue.
    ///
    /// # Errors
    /// The error of the kernel when it does not know the flags (6.1 does), or has no memory left to lock.
    pub(super) fn new(bell: BorrowedFd<'_>, depth: u32) -> io::Result<Queue> {
        let ring: IoUring = IoUring::builder()
            .dontfork()
            .setup_clamp()
            .setup_submit_all()
            .setup_cqsize(depth.saturating_mul(COMPLETIONS_TIMES))
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .build(depth / SUBMISSIONS_PART)?;
        let pool = Pool::new()?;
        // SAFETY: the entries are mapped memory of that many entries, page-aligned, and never unmapped.
        unsafe {
            ring.submitter().register_buf_ring_with_flags(pool.entries.as_ptr() as u64, BUFFERS_MAX, GROUP, 0)?;
        }
        ring.submitter().register_eventfd(bell.as_raw_fd())?;
        let bell = BellFile::new(bell)?;
        let (ring, waiting) = (RefCell::new(ring), RefCell::new(Vec::new()));
        let queue = Queue { ring, waiting, pool, bell, accepting: Cell::new(None) };
        queue.ring.borrow_mut().completion().disable_eventfd();
        Ok(queue)
    }

    /// Receives from the socket until it ends, fails, is cancelled, or no buffer is left (ENOBUFS).
    ///
    /// The socket must stay open until the last completion; else the kernel may receive from another that got its number.
    pub(super) fn receive(&self, socket: BorrowedFd<'_>, token: u64) {
        self.push(opcode::RecvMulti::new(Fd(socket.as_raw_fd()), GROUP).build().user_data(token));
    }

    /// One completion when the socket takes bytes again. It must stay open until then.
    pub(super) fn await_room(&self, socket: BorrowedFd<'_>, token: u64) {
        let events = u32::from(PollFlags::OUT.bits());
        self.push(opcode::PollAdd::new(Fd(socket.as_raw_fd()), events).build().user_data(token));
    }

    /// Accepts one connection. The lowest byte of the token is the same in all calls.
    ///
    /// The kernel would accept all that wait with one request that stays, and take every descriptor of the process.
    pub(super) fn accept(&self, listener: BorrowedFd<'_>, token: u64) {
        let purpose = lowest_byte(token);
        let before = self.accepting.replace(Some(purpose)).unwrap_or(purpose);
        assert_eq!(before, purpose, "one purpose for all that is accepted");
        let flags = SocketFlags::CLOEXEC.bits().cast_signed();
        let accept = opcode::Accept::new(Fd(listener.as_raw_fd()), null_mut(), null_mut()).flags(flags);
        self.push(accept.build().user_data(token));
    }

    /// Closes a socket that no request of ours uses any more.
    pub(super) fn close(&self, socket: OwnedFd, token: u64) {
        let close = opcode::Close::new(Fd(socket.into_raw_fd())).build().user_data(token);
        self.push(close.flags(squeue::Flags::SKIP_SUCCESS));
    }

    /// Ends the request that was made with `target`; it has its last completion soon.
    pub(super) fn cancel(&self, target: u64, token: u64) {
        self.push(opcode::AsyncCancel::new(target).build().user_data(token));
    }

    /// One completion each time that the counter grows.
    pub(super) fn listen(&self, counter: BorrowedFd<'_>, token: u64) {
        let events = u32::from(PollFlags::IN.bits());
        self.push(opcode::PollAdd::new(Fd(counter.as_raw_fd()), events).multi(true).build().user_data(token));
    }

    fn push(&self, entry: squeue::Entry) {
        // SAFETY: none of the entries that are given here points to memory: what is received goes to the registered
        // buffers, which are never unmapped.
        if unsafe { self.ring.borrow_mut().submission().push(&entry) }.is_err() {
            self.waiting.borrow_mut().push(entry);
        }
    }

    /// Sends, hands the other requests to the kernel, and lets it do what it has put off. With a limit it sleeps until there
    /// is a completion that is none of the sends', or the limit is over. Whether there is one.
    ///
    /// A send completes at once: with the bytes that the socket took, or with EAGAIN.
    pub(super) fn exchange(&self, sends: &[Send<'_>], sleep: Option<Duration>) -> bool {
        let mut ring = self.ring.borrow_mut();
        let mut waiting = self.waiting.borrow_mut();
        let sends = sends.iter().map(Send::entry);
        let mut entries = waiting.drain(..).chain(sends);
        let (mut sent, mut tries) = (0, 0);
        let mut next = entries.next();
        while let Some(entry) = next.take() {
            // SAFETY: a send's bytes are borrowed for this call, which does not return before the kernel has taken
            // every entry. The kernel does not look at them later, because it is told not to wait.
            if unsafe { ring.submission().push(&entry) }.is_err() {
                submit(&ring, &mut tries);
                next = Some(entry);
            } else {
                sent += usize::from(entry.get_opcode() == u32::from(opcode::Send::CODE));
                next = entries.next();
            }
        }
        let sleep = sleep.filter(|limit| !limit.is_zero());
        let come = |ring: &mut IoUring| ring.completion().len() > sent;
        if sleep.is_some() && !come(&mut ring) {
            let limit = Timespec::from(sleep.unwrap_or_default());
            let woken = ring.submitter().submit_with_args(sent + 1, &SubmitArgs::new().timespec(&limit));
            check(woken);
        }
        let slept = sleep.is_some();
        loop {
            let queue = ring.submission();
            let puts_off = !slept && tries == 0 && (queue.taskrun() || queue.cq_overflow());
            if queue.is_empty() && !puts_off {
                break;
            }
            drop(queue);
            submit(&ring, &mut tries);
        }
        self.pool.note(ring.completion().len().saturating_sub(sent));
        come(&mut ring)
    }

    /// The next thing that has come.
    pub(super) fn next(&self) -> Option<Completion<'_>> {
        let entry = self.ring.borrow_mut().completion().next()?;
        let bytes = cqueue::buffer_select(entry.flags()).map(|id| {
            let length = usize::try_from(entry.result()).unwrap_or(0);
            // SAFETY: the kernel has just given this buffer up, once, with that many bytes in it.
            unsafe { self.pool.received(id, length) }
        });
        let (token, result, more) = (entry.user_data(), entry.result(), cqueue::more(entry.flags()));
        let accepted = self.accepting.get() == Some(lowest_byte(token)) && result >= 0;
        // SAFETY: the kernel has just made this descriptor for us, and tells of it once.
        let socket = accepted.then(|| unsafe { OwnedFd::from_raw_fd(result) });
        Some(Completion { token, result, more, bytes, socket })
    }

    /// Whether something has come, or there is something to tell the kernel. Work that the kernel puts off is not seen
    /// here. Its mark for that may stay when nothing is left, so a caller that relied on it might never sleep.
    pub(super) fn has_work(&self) -> bool {
        let mut ring = self.ring.borrow_mut();
        !ring.submission().is_empty() || !ring.completion().is_empty()
    }

    /// Gives the kernel more buffers, if it may have more.
    pub(super) fn grow(&self) {
        self.pool.grow();
    }

    /// Some time has passed. Takes buffers back that were not needed meanwhile, and gives their memory to the kernel.
    pub(super) fn give_back(&self) {
        let mut ring = self.ring.borrow_mut();
        // Bytes that the kernel received lie in buffers that it gives up only by a completion.
        if ring.completion().is_empty() && !ring.submission().cq_overflow() {
            self.pool.give_back();
        }
    }

    /// Buffers that are to be in use.
    #[cfg(test)]
    pub(super) fn buffers(&self) -> u16 {
        self.pool.wanted.get()
    }

    /// Returns when something has come since the last look, or the bell was rung; at once if it already has.
    pub(super) async fn wait(&self) {
        self.ring.borrow_mut().completion().enable_eventfd();
        // It rings for every completion from here on; earlier ones are collected.
        fence(Ordering::SeqCst);
        if !self.exchange(&[], None) {
            self.bell.wait().await;
        }
        self.ring.borrow_mut().completion().disable_eventfd();
    }
}

fn lowest_byte(token: u64) -> u8 {
    token.to_le_bytes()[0]
}

/// Bytes that a socket is to be sent.
pub(super) struct Send<'b> {
    pub(super) socket: BorrowedFd<'b>,
    pub(super) bytes: &'b [u8],
    pub(super) token: u64,
    /// The end of the stream follows at once: the kernel may send the bytes with it.
    pub(super) last: bool,
}

impl Send<'_> {
    fn entry(&self) -> squeue::Entry {
        let length = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        let more = if self.last { SendFlags::MORE } else { SendFlags::empty() };
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL | more;
        let send = opcode::Send::new(Fd(self.socket.as_raw_fd()), self.bytes.as_ptr(), length);
        send.flags(flags.bits().cast_signed()).build().user_data(self.token)
    }
}

fn submit(ring: &IoUring, tries: &mut usize) {
    check(ring.submit());
    *tries += 1;
    assert!(*tries < SUBMIT_TRIES_MAX, "the kernel has memory for a request");
}

/// Checks the kernel's result of a call that hands it requests.
fn check(result: io::Result<usize>) {
    let Err(error) = result else { return };
    match Errno::from_io_error(&error) {
        // A signal; no memory, or too many completions, for now; the end of a sleep.
        Some(Errno::INTR | Errno::AGAIN | Errno::BUSY | Errno::TIME) => {}
        _ => panic!("the kernel takes the requests of a ring that is set up: {error}"),
    }
}

/// The buffers, and the ring of the buffers that the kernel may fill next. The memory is never unmapped: the kernel may
/// still write to it a while after the ring's descriptor is closed.
struct Pool {
    entries: NonNull<BufRingEntry>,
    bytes: NonNull<u8>,
    tail: Cell<u16>,
    /// Buffers that were ever used. The others were never touched.
    count: Cell<u16>,
    /// How many of them shall be in use: the kernel has them, or a reader holds their bytes.
    wanted: Cell<u16>,
    /// Buffers that are not in use, and have no memory.
    spare: RefCell<Vec<u16>>,
    /// Number of buffers that readers hold.
    lent: Cell<u16>,
    /// The most that held something at one time since the last look.
    busiest: Cell<usize>,
}

impl Pool {
    fn new() -> io::Result<Pool> {
        let (buffers, entries) = (usize::from(BUFFERS_MAX) * BUFFER_BYTES, usize::from(BUFFERS_MAX) * ENTRY_BYTES);
        // SAFETY: new memory at an address of the kernel's choice; no other code knows it.
        let mapped = unsafe {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            mmap_anonymous(null_mut(), buffers + entries, protection, MapFlags::PRIVATE)?
        };
        let bytes = NonNull::new(mapped.cast::<u8>()).expect("a mapping is nowhere near address 0");
        // SAFETY: the entries lie behind the buffers, and the size of those is a multiple of a page.
        let entries = unsafe { bytes.add(buffers) }.cast::<BufRingEntry>();
        let pool = Pool {
            entries,
            bytes,
            tail: Cell::new(0),
            count: Cell::new(0),
            wanted: Cell::new(BUFFERS_MIN),
            spare: RefCell::default(),
            lent: Cell::new(0),
            busiest: Cell::new(0),
        };
        (0..BUFFERS_MIN).for_each(|_| pool.add());
        Ok(pool)
    }

    fn grow(&self) {
        self.wanted.set(BUFFERS_MAX.min(self.wanted.get() * 2));
        while self.in_use() < self.wanted.get() {
            self.add();
        }
    }

    fn in_use(&self) -> u16 {
        let spare = u16::try_from(self.spare.borrow().len()).expect("no more than there are");
        self.count.get() - spare
    }

    /// So many hold something now.
    fn note(&self, holding: usize) {
        self.busiest.set(self.busiest.get().max(holding));
    }

    /// Wants half as many if not even a quarter was needed since the last call. The kernel's buffers give up their
    /// memory at once, which costs it a page fault for each that it uses again. Each surplus one goes when it has been
    /// used. Not to be called while the kernel has put bytes into a buffer that were not collected.
    fn give_back(&self) {
        let busiest = self.busiest.replace(0);
        let wanted = self.wanted.get();
        if self.lent.get() == 0 && wanted > BUFFERS_MIN && busiest < usize::from(wanted / 4) {
            self.wanted.set(wanted / 2);
            self.clear(0, self.count.get());
        }
    }

    /// Gives the memory of some buffers to the kernel. Their content is not needed any more.
    fn clear(&self, first: u16, count: u16) {
        // A buffer may be part of a page that holds another one's bytes.
        if rustix::param::page_size() > BUFFER_BYTES {
            return;
        }
        // SAFETY: whole pages within the mapping, which no reference points to. `lent` shows that for one caller, and
        // the other has just got the buffer back. It reads as zeroes afterwards. After an error the memory is
        // unchanged.
        unsafe {
            let start = self.bytes.add(usize::from(first) * BUFFER_BYTES);
            let _ = madvise(start.as_ptr().cast(), usize::from(count) * BUFFER_BYTES, Advice::LinuxDontNeed);
        }
    }

    /// Gives the kernel one more.
    fn add(&self) {
        let id = self.spare.borrow_mut().pop().unwrap_or_else(|| self.count.replace(self.count.get() + 1));
        self.give(id);
    }

    /// A reader returns a buffer.
    fn take_back(&self, id: u16) {
        self.lent.set(self.lent.get() - 1);
        if self.in_use() > self.wanted.get() {
            self.clear(id, 1);
            self.spare.borrow_mut().push(id);
        } else {
            self.give(id);
        }
    }

    /// Gives the kernel a buffer that no reader holds.
    fn give(&self, id: u16) {
        assert!(id < self.count.get(), "a buffer of the pool");
        let tail = self.tail.get();
        self.tail.set(tail.wrapping_add(1));
        // SAFETY: the place is within the entries. The kernel does not read it before the tail has moved beyond it,
        // because there are never more buffers than places. The tail lies in the first entry's unused bytes.
        unsafe {
            let entry = &mut *self.entries.add(usize::from(tail % BUFFERS_MAX)).as_ptr();
            entry.set_addr(self.bytes.add(usize::from(id) * BUFFER_BYTES).as_ptr() as u64);
            entry.set_len(BUFFER_LENGTH);
            entry.set_bid(id);
            let shared = &*BufRingEntry::tail(self.entries.as_ptr()).cast::<AtomicU16>();
            shared.store(tail.wrapping_add(1), Ordering::Release);
        }
    }

    /// The bytes that the kernel has put into a buffer.
    ///
    /// # Safety
    /// The kernel has given up this buffer with `length` bytes in it, and this is called once each time that it does.
    unsafe fn received(&self, id: u16, length: usize) -> Received<'_> {
        assert!(id < self.count.get() && length <= BUFFER_BYTES, "a buffer that was given away");
        self.lent.set(self.lent.get() + 1);
        Received { pool: self, id, length }
    }
}

/// Received bytes; the buffer goes back to the kernel when this is dropped.
pub(crate) struct Received<'q> {
    pool: &'q Pool,
    id: u16,
    length: usize,
}

impl Deref for Received<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: within the mapping, which starts as zeroes and is never unmapped. No other code has this buffer
        // before it is given back.
        unsafe {
            let start = self.pool.bytes.add(usize::from(self.id) * BUFFER_BYTES);
            std::slice::from_raw_parts(start.as_ptr(), self.length)
        }
    }
}

impl Drop for Received<'_> {
    fn drop(&mut self) {
        self.pool.take_back(self.id);
    }
}
