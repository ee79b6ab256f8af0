//! Mailboxes between threads: a channel, and a bell for a receiver that sleeps somewhere else than in the channel.
//!
//! Any thread. A shard that serves a ring of its own sleeps in that ring, so a sender of a message rings its bell. It
//! does so only if the receiver says that it sleeps. A receiver that awaits the channel never says so.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering, fence};

use rustix::event::{EventfdFlags, eventfd};

/// A mailbox with a receiver that sleeps by this bell: the sending end, and the receiving one.
pub(crate) fn mailbox<T>(bell: &Arc<Bell>) -> (Post<T>, flume::Receiver<T>) {
    let (sender, receiver) = flume::unbounded();
    (Post { sender, bell: Arc::clone(bell) }, receiver)
}

/// The sending end of a mailbox.
#[derive(Debug)]
pub(crate) struct Post<T> {
    sender: flume::Sender<T>,
    bell: Arc<Bell>,
}

impl<T> Post<T> {
    /// Leaves a message, and wakes the receiver if it sleeps. Never waits.
    ///
    /// # Errors
    /// The message, if the receiver is gone.
    pub(crate) fn send(&self, message: T) -> Result<(), flume::SendError<T>> {
        self.sender.send(message)?;
        self.bell.ring();
        Ok(())
    }
}

impl<T> Clone for Post<T> {
    fn clone(&self) -> Self {
        Post { sender: self.sender.clone(), bell: Arc::clone(&self.bell) }
    }
}

/// Where the receiver sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SleepsIn {
    /// In its own ring, which polls [`Bell::inner`].
    Ring = 1,
    /// In the runtime, where a task awaits [`Bell::outer`].
    Runtime = 2,
}

const AWAKE: u8 = 0;

/// Wakes one executor that sleeps in a ring, by counters in the kernel that become larger.
///
/// There are two because a ring that is woken by one eventfd tells it to another only after some 50 ms. The kernel does
/// not let the one ring the other at once.
#[derive(Debug)]
pub(crate) struct Bell {
    inner: OwnedFd,
    outer: OwnedFd,
    /// A [`SleepsIn`], or `AWAKE`.
    asleep: AtomicU8,
}

impl Bell {
    /// # Errors
    /// When no file can be opened.
    pub(crate) fn new() -> io::Result<Arc<Bell>> {
        // The outer one is awaited by a read, which shall wait.
        let (inner, outer) = (eventfd(0, EventfdFlags::CLOEXEC)?, eventfd(0, EventfdFlags::CLOEXEC)?);
        Ok(Arc::new(Bell { inner, outer, asleep: AtomicU8::new(AWAKE) }))
    }

    /// The receiver is about to sleep: from here on it is rung for. It must look into its mailboxes once more after
    /// this.
    pub(crate) fn listen(&self, sleeps_in: SleepsIn) {
        self.asleep.store(sleeps_in as u8, Ordering::Relaxed);
        // Either we see the message, or its sender sees that we sleep.
        fence(Ordering::SeqCst);
    }

    /// The receiver is awake and will look into its mailboxes by itself.
    pub(crate) fn awake(&self) {
        self.asleep.store(AWAKE, Ordering::Relaxed);
    }

    /// To be polled, and never read.
    pub(crate) fn inner(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }

    /// To be read, which waits until it is rung.
    pub(crate) fn outer(&self) -> BorrowedFd<'_> {
        self.outer.as_fd()
    }

    /// Ends a sleep in the runtime, this or the next one.
    pub(crate) fn rouse(&self) {
        increase(&self.outer);
    }

    /// Wakes the receiver, once a sleep. The message for it has been left before.
    pub(crate) fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) == AWAKE {
            return;
        }
        match self.asleep.swap(AWAKE, Ordering::Relaxed) {
            AWAKE => {}
            sleeps_in if sleeps_in == SleepsIn::Ring as u8 => increase(&self.inner),
            _ => increase(&self.outer),
        }
    }
}

/// Can only fail when the counter is full, after 2^64 calls.
fn increase(counter: &OwnedFd) {
    let _ = rustix::io::write(counter, &1_u64.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_sleeper_is_rung_for_and_once() {
        let bell = Bell::new().expect("a file can be opened");
        let (post, inbox) = mailbox(&bell);
        let signals = |counter: BorrowedFd<'_>| {
            let mut polled = [rustix::event::PollFd::from_borrowed_fd(counter, rustix::event::PollFlags::IN)];
            let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
            if rustix::event::poll(&mut polled, Some(&now)).expect("it can be polled") == 0 {
                return 0;
            }
            let mut bytes = [0; 8];
            rustix::io::read(counter, &mut bytes).expect("it can be read");
            u64::from_ne_bytes(bytes)
        };
        let count = || (signals(bell.inner()), signals(bell.outer()));
        let send = |number: i32| post.send(number).expect("the receiver is there");
        send(1);
        assert_eq!(count(), (0, 0));
        bell.listen(SleepsIn::Ring);
        send(2);
        post.clone().send(3).expect("the receiver is there");
        assert_eq!(count(), (1, 0));
        bell.listen(SleepsIn::Runtime);
        send(4);
        assert_eq!(count(), (0, 1));
        bell.listen(SleepsIn::Ring);
        bell.awake();
        send(5);
        assert_eq!(count(), (0, 0));
        bell.rouse();
        assert_eq!(count(), (0, 1));
        assert_eq!(inbox.try_iter().collect::<Vec<i32>>(), [1, 2, 3, 4, 5]);
        drop(inbox);
        assert!(post.send(6).is_err());
    }
}
