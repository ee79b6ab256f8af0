//! The terminal while a run lasts: progress on standard error, and Ctrl-C.
//!
//! The coordinating thread only. Knows nothing of the run.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// SIGINT, SIGTERM and SIGHUP as something to ask for, so that the znodes can still be removed.
#[derive(Debug)]
pub(crate) struct Interrupt {
    signals: SignalFd,
    count: u32,
}

impl Interrupt {
    /// Takes the signals over for the rest of the process; threads started later inherit that.
    pub(crate) fn new() -> Result<Self> {
        let mut set = SigSet::empty();
        set.add(Signal::SIGINT);
        set.add(Signal::SIGTERM);
        set.add(Signal::SIGHUP);
        set.thread_block().context("blocking signals")?;
        let signals = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC);
        Ok(Self { signals: signals.context("signalfd")?, count: 0 })
    }

    pub(crate) fn seen(&mut self) -> bool {
        while let Ok(Some(_)) = self.signals.read_signal() {
            self.count += 1;
        }
        self.count > 0
    }

    pub(crate) fn seen_again(&mut self) -> bool {
        self.seen() && self.count > 1
    }
}

/// The progress of a run, a line on standard error every few seconds.
#[derive(Debug)]
pub(crate) struct Progress {
    quiet: bool,
    last: Instant,
}

impl Progress {
    const EVERY: Duration = Duration::from_secs(2);

    pub(crate) fn new(quiet: bool) -> Self {
        Self { quiet, last: Instant::now() }
    }

    /// Prints the progress if the last line is old enough.
    pub(crate) fn now_and_then(&mut self, text: impl FnOnce() -> String) {
        if self.last.elapsed() >= Self::EVERY {
            self.last = Instant::now();
            self.say(&text());
        }
    }

    /// Prints a line, unless --quiet is given.
    pub(crate) fn say(&mut self, text: &str) {
        if !self.quiet {
            self.warn(text);
        }
    }

    /// Prints a line, with --quiet too.
    pub(crate) fn warn(&mut self, text: &str) {
        // Progress that cannot be printed is no reason to end a run.
        let _ = writeln!(std::io::stderr(), "corral bench: {text}");
    }
}
