//! The time, read once a turn and handed to the actors.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use corral_consensus::Micros;
use corral_core::ids::{Millis, WallMillis};

/// Whole milliseconds, as log lines show them.
pub(crate) fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A monotonic clock that starts with the process, and the wall clock beside it. Copied to every thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock { start: Instant::now() }
    }

    /// Monotonic, for deadlines and latencies.
    pub(crate) fn now(&self) -> Millis {
        Millis(whole_ms(self.start.elapsed()))
    }

    /// The same clock, finer: for how long something took.
    pub(crate) fn now_us(&self) -> Micros {
        Micros(u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    /// For `ctime` and `mtime` alone.
    pub(crate) fn wall(&self) -> WallMillis {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        WallMillis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}
