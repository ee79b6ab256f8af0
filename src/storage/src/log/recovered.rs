//! Findings of an open of the log: plain values for the caller and its log lines.

use corral_types::HardState;

/// How far recovery has read; given to the caller after each segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Segments read so far.
    pub segments_done: usize,
    /// Segments there are.
    pub segments: usize,
    /// Bytes of the segments read so far.
    pub bytes_done: u64,
    /// Entries found so far.
    pub entries: u64,
}

/// The findings of [`Log::open`](super::Log::open). The entries themselves are read with
/// [`Log::read`](super::Log::read).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// The hard state that was stored last; `None` if none was.
    pub hard_state: Option<HardState>,
    /// First entry held, or the one to come if none is held.
    pub first_index: u64,
    /// Last entry held; one less than `first_index` if none is.
    pub last_index: u64,
    /// Term of the last entry; `None` if none is held.
    pub last_term: Option<u64>,
    /// The part truncated at the end: as a rule a torn tail that was never acknowledged.
    pub tail_cut: Option<CutInfo>,
    /// Damage to entries that a snapshot holds as well.
    pub stepped_over: Option<SteppedOver>,
    /// There is a log, but no valid copy of the durable point that an earlier process stored in the file `DURABLE`.
    pub durable_point_lost: bool,
    /// Names of segment files that are not part of the log any more, oldest first: a damaged file and those before it. The
    /// caller moves them out of the way.
    pub put_aside: Vec<String>,
}

/// Where the end of the log was cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutInfo {
    /// Name of the segment file.
    pub file: String,
    /// Offset in the file, in bytes, of the first byte that was zeroed.
    pub offset: u64,
    /// Bytes that were zeroed.
    pub bytes: u64,
    /// The durable point at the end of the last process is known, and the truncated part lies behind it. Otherwise
    /// power was lost, or the file `DURABLE` was: as a rule nothing of the cut was acknowledged either, but damage
    /// would look the same.
    pub never_acknowledged: bool,
}

/// Damage that did not fail the open, because a snapshot holds every entry that it can have hit.
///
/// See [`LogConfig::held`](super::LogConfig::held).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SteppedOver {
    /// Name of the file with the first damage.
    pub file: String,
    /// Offset, in bytes, of the first damage in that file.
    pub offset: u64,
    /// How many places are damaged.
    pub places: u64,
}
