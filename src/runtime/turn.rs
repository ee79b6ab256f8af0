//! Fair turns on one executor: a task that has used up the turn's time lets the reactor look at every socket and timer
//! before anybody goes on.
//!
//! The runtime's own yielding does not poll for input, and its preemption is coarse. Awaiting a very short timer does
//! force a whole pass. One `Turn` an executor, shared by its tasks.

use std::cell::Cell;
use std::time::{Duration, Instant};

use glommio::timer::Timer;

/// Long enough that the timer is not due at once, short enough not to matter.
const PASS: Duration = Duration::from_nanos(600);

/// The time used since the reactor last had its pass.
#[derive(Debug)]
pub(crate) struct Turn {
    started: Cell<Instant>,
    budget: Duration,
    /// Whether anything was done since the heartbeat last asked.
    busy: Cell<bool>,
}

impl Turn {
    pub(crate) fn new(budget: Duration) -> Turn {
        Turn { started: Cell::new(Instant::now()), budget, busy: Cell::new(false) }
    }

    /// To be called when a task begins to work after waiting: the reactor has just been there.
    pub(crate) fn woken(&self) {
        self.busy.set(true);
        let now = Instant::now();
        if now.duration_since(self.started.get()) > 2 * self.budget {
            self.started.set(now);
        }
    }

    /// To be awaited after each piece of work; returns at once while there is time left in the turn.
    pub(crate) async fn yield_if_over(&self) {
        if self.started.get().elapsed() > self.budget {
            Timer::new(PASS).await;
            self.started.set(Instant::now());
        }
    }

    /// Whether there was work since the last call.
    pub(crate) fn was_busy(&self) -> bool {
        self.busy.replace(false)
    }
}
