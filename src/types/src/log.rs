//! The log as recovery and storage share it: records, entries as the log holds them, and the interface of a log that
//! was just opened.

use core::ops::ControlFlow;

use crate::entry::{EntryKind, HardState};
use crate::ids::{Index, Term};

/// An entry as the log stores it. When read back, the payload is a slice of the mapped segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredEntry<'a> {
    /// Term of the leader that proposed it.
    pub term: Term,
    /// Position in the log.
    pub index: Index,
    /// The kind of the payload.
    pub kind: EntryKind,
    /// First zxid of the batch in the payload, 0 if there is none. The log stores it and does not interpret it.
    pub first_zxid: u64,
    /// Its payload.
    pub payload: &'a [u8],
}

/// One item of an append to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// An entry. If its index is not behind the last entry, it replaces the entry with that index and all after it, as a
    /// Raft follower needs.
    Entry(StoredEntry<'a>),
    /// A hard state, which replaces the one before.
    HardState(HardState),
}

/// A log that was just opened. Every function blocks as long as the disk does. A position in the log is an index and the
/// term of its entry.
pub trait StoredLog {
    /// A fault of the disk, or damage.
    type Error;

    /// Index of the first and of the last entry held. If there is none, the first is the index of the next entry, and the
    /// last the one before it.
    fn held(&self) -> (u64, u64);

    /// The newest hard state held.
    fn hard_state(&self) -> Option<HardState>;

    /// The term of the last entry, if damage was stepped over. Only entries that a snapshot holds are stepped over, but
    /// the newest hard state may have been among the damaged records.
    fn stepped_over(&self) -> Option<Term>;

    /// Makes the log continue behind a snapshot that ends at `position`. If the log ends before it, or holds another entry
    /// there, all its entries are void. Durable when it returns.
    ///
    /// # Errors
    /// Those of the disk.
    fn go_on_behind(&mut self, position: (u64, u64)) -> Result<(), Self::Error>;

    /// The position before `position` behind which the log holds at least `bytes` of entries up to there, if it reaches so
    /// far back.
    fn reach_back(&self, position: (u64, u64), bytes: u64) -> (u64, u64);

    /// The term of an entry, if the log holds it.
    fn term(&self, index: u64) -> Option<u64>;

    /// Calls `visit` with each entry of a range of indices, both ends included, until it breaks.
    ///
    /// # Errors
    /// Those of the disk, and damage.
    fn visit(
        &self,
        range: (u64, u64),
        visit: &mut dyn FnMut(StoredEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), Self::Error>;

    /// Appends all records, or none of them. Durable when it returns.
    ///
    /// # Errors
    /// Those of the disk.
    fn write(&mut self, records: &[Record<'_>]) -> Result<(), Self::Error>;
}
