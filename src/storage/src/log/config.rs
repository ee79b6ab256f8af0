//! How a log is opened, and the check of it.

use super::error::LogError;
use crate::field::align_up;
use crate::limits::{self, PAGE_BYTES, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN};

/// Options of [`Log::open`](super::Log::open).
#[derive(Debug, Clone)]
pub struct LogConfig {
    /// Bytes of a new segment: whole pages, from [`limits::SEGMENT_BYTES_MIN`] to [`limits::SEGMENT_BYTES_MAX`].
    pub segment_bytes: usize,
    /// Spare segment files that are kept for recycling, at most.
    pub spares_max: usize,
    /// Whether an empty directory begins a new log. Set it to `false` if the directory holds snapshots: then a missing log
    /// is a loss of data, and the open fails with [`LogError::NoLog`].
    pub create_if_missing: bool,
    /// Index of the first entry of a new log. Raft begins at 1.
    pub first_index: u64,
    /// Index of the last entry in a snapshot with matching checksums; 0 without one. Damage that can have hit no later
    /// entry does not fail the open: recovery continues behind it, see [`SteppedOver`](super::SteppedOver).
    pub held: u64,
    /// Input of the salt of new segments. Random on a server, so that a client cannot forge a record inside its data; fixed
    /// in a simulation.
    pub seed: u64,
}

impl Default for LogConfig {
    fn default() -> LogConfig {
        LogConfig {
            segment_bytes: limits::SEGMENT_BYTES_DEFAULT,
            spares_max: limits::SPARES_MAX_DEFAULT,
            create_if_missing: true,
            first_index: 1,
            held: 0,
            seed: 0,
        }
    }
}

impl LogConfig {
    /// Whether the segment size is within its limits.
    pub(crate) fn check(&self) -> Result<(), LogError> {
        let is_whole_pages = align_up(self.segment_bytes, PAGE_BYTES) == self.segment_bytes;
        if !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&self.segment_bytes) || !is_whole_pages {
            return Err(LogError::Config { what: "the segment size must be whole pages between 16 KiB and 1 GiB" });
        }
        Ok(())
    }
}
