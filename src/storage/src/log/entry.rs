//! Entries and the hard state, as the log stores them for Raft. Numbers and bytes; their meaning is Raft's.
//!
//! Plain values without IO.

use super::record::RecordKind;
use crate::field::{Put, Take};

/// Raft's hard state: what a server must store besides its entries before it answers a message.
///
/// This crate stores the three numbers and does not interpret them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HardState {
    /// Current term.
    pub term: u64,
    /// Id of the server that got this server's vote in `term`; 0 for none.
    pub vote: u64,
    /// Index of the last entry known to be committed.
    pub commit: u64,
}

/// Bytes of an encoded [`HardState`].
pub(crate) const HARD_STATE_BYTES: usize = 24;

impl HardState {
    pub(crate) fn encode(self) -> [u8; HARD_STATE_BYTES] {
        let mut bytes = [0; HARD_STATE_BYTES];
        let mut put = Put(&mut bytes);
        put.u64(self.term);
        put.u64(self.vote);
        put.u64(self.commit);
        bytes
    }

    /// `None` if the payload is shorter than a hard state.
    pub(crate) fn decode(payload: &[u8]) -> Option<HardState> {
        let mut take = Take(payload);
        Some(HardState { term: take.u64()?, vote: take.u64()?, commit: take.u64()? })
    }
}

/// The use of an entry's payload in Raft. The log stores it and treats all kinds alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EntryKind {
    /// A batch of transactions, or nothing.
    #[default]
    Normal,
    /// A change of the membership.
    Membership,
}

impl EntryKind {
    /// The kind of the record that stores such an entry.
    pub(crate) fn record(self) -> RecordKind {
        match self {
            EntryKind::Normal => RecordKind::Entry,
            EntryKind::Membership => RecordKind::Membership,
        }
    }

    /// `None` for records that are not entries.
    pub(crate) fn of(kind: RecordKind) -> Option<EntryKind> {
        [EntryKind::Normal, EntryKind::Membership].into_iter().find(|entry| entry.record() == kind)
    }
}

/// One Raft entry, to be appended or as read back. When read back, the payload is a slice of the mapped segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Term of the leader that proposed the entry.
    pub term: u64,
    /// Place in the log, counted in entries.
    pub index: u64,
    /// The kind of the payload.
    pub kind: EntryKind,
    /// First zxid of the batch in the payload; stored, not interpreted.
    pub first_zxid: u64,
    /// At most [`Log::payload_bytes_max`](super::Log::payload_bytes_max) bytes.
    pub payload: &'a [u8],
}

/// One item for [`Log::append`](super::Log::append).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record<'a> {
    /// An entry. If its index is not behind the last entry, it replaces the entry with that index and all after it, as a
    /// Raft follower needs.
    Entry(Entry<'a>),
    /// A hard state, which replaces the one before.
    HardState(HardState),
}

/// How far the log is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Durable {
    /// Log position, in bytes, up to which everything is durable.
    pub position: u64,
    /// Last entry of the log; after a sync it is durable with all before it.
    pub last_index: u64,
}
