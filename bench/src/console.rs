//! What the person at the terminal sees and does while a run lasts: progress on standard error, Ctrl-C.
//!
//! The coordinating thread only. At a terminal the progress is one line rewritten every second, else a line every few
//! seconds. Knows nothing of what runs.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::args::program;

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

/// The progress of a run, on standard error.
#[derive(Debug)]
pub(crate) struct Progress {
    quiet: bool,
    terminal: bool,
    /// Whether the terminal's last line is a progress line, which the next one overwrites.
    drawn: bool,
    last: Instant,
}

impl Progress {
    const TERMINAL_EVERY: Duration = Duration::from_secs(1);
    const LINE_EVERY: Duration = Duration::from_secs(5);

    pub(crate) fn new(quiet: bool) -> Self {
        Self { quiet, terminal: std::io::stderr().is_terminal(), drawn: false, last: Instant::now() }
    }

    /// Prints the progress, at most once a second on a terminal and every five seconds elsewhere.
    pub(crate) fn now_and_then(&mut self, text: impl FnOnce() -> String) {
        // A little less than the period: what comes once a second must not be shown every other second.
        let every = if self.terminal { Self::TERMINAL_EVERY } else { Self::LINE_EVERY } - Duration::from_millis(100);
        if self.quiet || self.last.elapsed() < every {
            return;
        }
        self.last = Instant::now();
        if self.terminal {
            self.drawn = true;
            let _ = write!(std::io::stderr(), "\r\x1b[K{}: {}", program(), text());
        } else {
            self.say(&text());
        }
    }

    /// Prints a line, unless --quiet is given.
    pub(crate) fn say(&mut self, text: &str) {
        if !self.quiet {
            self.clear();
            // Progress that cannot be printed is no reason to end a run.
            let _ = writeln!(std::io::stderr(), "{}: {text}", program());
        }
    }

    /// Prints a warning, with --quiet too.
    pub(crate) fn warn(&mut self, text: &str) {
        self.clear();
        let _ = writeln!(std::io::stderr(), "{}: warning: {text}", program());
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
