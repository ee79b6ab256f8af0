//! The hard state and the kinds of entries, as bytes of the log, and how far it is durable.
//!
//! Plain values without IO.

use corral_types::{EntryKind, HardState, Index, Reader, ServerId, Term};

use super::record::RecordKind;
use crate::field::Put;

/// Bytes of an encoded [`HardState`].
pub(crate) const HARD_STATE_BYTES: usize = 24;

/// Term, vote and commit index. A vote of 0 is none.
pub(crate) fn encode_hard_state(state: HardState) -> [u8; HARD_STATE_BYTES] {
    let mut bytes = [0; HARD_STATE_BYTES];
    let mut put = Put(&mut bytes);
    put.u64(state.term.0);
    put.u64(state.vote.map_or(0, ServerId::wide));
    put.u64(state.commit.0);
    bytes
}

/// `None` if the payload is shorter than a hard state.
pub(crate) fn decode_hard_state(payload: &[u8]) -> Option<HardState> {
    let mut take = Reader::new(payload);
    let (term, vote, commit) = (take.u64()?, take.u64()?, take.u64()?);
    Some(HardState { term: Term(term), vote: ServerId::from_wide(vote), commit: Index(commit) })
}

/// The kind of the record that stores an entry of this kind.
pub(crate) fn record_kind(kind: EntryKind) -> RecordKind {
    match kind {
        EntryKind::Normal => RecordKind::Entry,
        EntryKind::ConfChange => RecordKind::Membership,
    }
}

/// `None` for records that are not entries.
pub(crate) fn entry_kind(kind: RecordKind) -> Option<EntryKind> {
    [EntryKind::Normal, EntryKind::ConfChange].into_iter().find(|entry| record_kind(*entry) == kind)
}

/// How far the log is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Durable {
    /// Log position, in bytes, up to which everything is durable.
    pub position: u64,
    /// Last entry of the log; after a sync it is durable with all before it.
    pub last_index: u64,
}
