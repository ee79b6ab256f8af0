//! Outputs: what a node wants done, as [`RaftNode::ready`](crate::RaftNode::ready) gives it.
//!
//! The fields are independent of each other, with two exceptions. Appends are written in their order, and `install` is
//! carried out before the entries of the same append are written.

use crate::log::ReplacedLog;
use crate::membership::Membership;
use crate::message::PeerMessage;
use crate::types::{Entry, EntryKind, HardState, Index, Role, ServerId, Term};
use corral_types::{Record, StoredEntry};

/// The outputs of one call of [`RaftNode::ready`](crate::RaftNode::ready), which clears the former ones first. The caller
/// reuses the buffers.
#[derive(Debug, Default)]
pub struct Outputs {
    /// To be written to the log.
    pub append: Option<Append>,
    /// To be sent now. A message that must wait until an append is durable is held inside the node.
    pub messages: Vec<PeerMessage>,
    /// Committed and durable here, in order, without a gap: to be applied. At most one page
    /// (`limits::COMMITTED_PAGE_BYTES`); call `ready` again for more.
    pub committed: Vec<Entry>,
    /// Answers to `read_index`.
    pub reads: Vec<ReadReady>,
    /// Tokens of `read_index` that are refused: no leader confirmed them in time, or too many waited.
    pub reads_refused: Vec<u64>,
    /// The new role, if role, term or leader have changed since the last call.
    pub role_change: Option<RoleChange>,
    /// A leader's snapshot replaces log and state. Part of the append of the same output.
    pub install: Option<InstallSnapshot>,
    /// The entries that the snapshot replaces: dropped on another thread, because that takes long.
    pub replaced: Option<ReplacedLog>,
    /// A follower lags behind the log in memory, and the last snapshot reported by `compact` is too old for it: a newer
    /// one is wanted.
    pub snapshot_wanted: bool,
}

/// One write to the log. Writes are done in the order of `number`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Append {
    /// Grows by at least one from append to append; reported back with `RaftNode::persisted`.
    pub number: u64,
    /// May begin before the end of the log: then what the log holds from there on is replaced.
    pub entries: Vec<Entry>,
    /// To be written if present.
    pub hard_state: Option<HardState>,
    /// False: only the commit index moved. It need not be synced nor reported, and may be left unwritten: the next append
    /// that is synced holds it.
    pub must_sync: bool,
}

impl Append {
    /// The records that the log stores, in this order. A crash before the sync may leave only a first part of them. No
    /// entry that is to be replaced may then count as committed, so a commit index is stored behind the entries that it
    /// covers. A commit index is also stored in front of a membership change. A server that holds the second of two
    /// changes must know that the first is in force. `first_zxid` reads the first zxid of a batch.
    #[must_use]
    pub fn records(&self, first_zxid: fn(&[u8]) -> u64) -> Vec<Record<'_>> {
        let mut records = Vec::with_capacity(self.entries.len() + 2);
        let commit = self.hard_state.map_or(Index(0), |state| state.commit);
        let before = |entry: &Entry| Index(entry.index.0 - 1);
        let mut stored_commit = self.entries.first().map_or(commit, |first| commit.min(before(first)));
        let state = |commit: Index| self.hard_state.map(|state| Record::HardState(HardState { commit, ..state }));
        records.extend(state(stored_commit));
        for entry in &self.entries {
            let sure = commit.min(before(entry));
            if entry.kind == EntryKind::ConfChange && sure > stored_commit {
                stored_commit = sure;
                records.extend(state(stored_commit));
            }
            let Entry { term, index, kind, payload } = entry;
            let first_zxid = if *kind == EntryKind::Normal { first_zxid(payload) } else { 0 };
            records.push(Record::Entry(StoredEntry { term: *term, index: *index, kind: *kind, first_zxid, payload }));
        }
        if commit > stored_commit {
            records.extend(state(commit));
        }
        records
    }
}

/// A read that began with `read_index(token)` sees everything acknowledged before once `index` is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadReady {
    /// The caller's token.
    pub token: u64,
    /// To be applied before the read is served.
    pub index: Index,
}

/// The role of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoleChange {
    /// The role.
    pub role: Role,
    /// The term.
    pub term: Term,
    /// The leader, if one is known.
    pub leader: Option<ServerId>,
}

/// The received snapshot at `index` replaces log and state.
///
/// Install it durably, report the append's number with `persisted`, then `applied(index)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstallSnapshot {
    /// Last index in the snapshot.
    pub index: Index,
    /// Term of that entry.
    pub term: Term,
    /// Membership at that index.
    pub membership: Membership,
    /// The leader it came from.
    pub from: Option<ServerId>,
}

impl Outputs {
    /// Clears it, and keeps the buffers.
    pub fn clear(&mut self) {
        self.append = None;
        self.messages.clear();
        self.committed.clear();
        self.reads.clear();
        self.reads_refused.clear();
        self.role_change = None;
        self.install = None;
        self.replaced = None;
        self.snapshot_wanted = false;
    }

    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.append.is_none()
            && self.messages.is_empty()
            && self.committed.is_empty()
            && self.reads.is_empty()
            && self.reads_refused.is_empty()
            && self.role_change.is_none()
            && self.install.is_none()
            && !self.snapshot_wanted
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    /// Checks the records that are stored for entries from an index on, `c` for a membership change. `expect` has
    /// commit indexes, and `-` for each entry.
    fn check(first: u64, kinds: &str, commit: Option<u64>, expect: &str) {
        let kind = |letter| if letter == 'c' { EntryKind::ConfChange } else { EntryKind::Normal };
        let entry = |(at, letter)| Entry { term: Term(3), index: Index(at), kind: kind(letter), payload: Bytes::new() };
        let entries: Vec<Entry> = (first..).zip(kinds.chars()).map(entry).collect();
        let hard_state =
            commit.map(|commit| HardState { term: Term(3), vote: Some(ServerId(1)), commit: Index(commit) });
        let append = Append { number: 1, entries, hard_state, must_sync: true };
        let mut at = first;
        let text = |record: &Record<'_>| match record {
            Record::HardState(state) => {
                assert_eq!((state.term, state.vote), (Term(3), Some(ServerId(1))));
                state.commit.0.to_string()
            }
            Record::Entry(entry) => {
                assert_eq!(entry.index.0, at);
                at += 1;
                "-".to_owned()
            }
        };
        let found: Vec<String> = append.records(|_| 0).iter().map(text).collect();
        assert_eq!(found.join(" "), expect, "{first} {kinds:?} {commit:?}");
    }

    #[test]
    fn a_commit_index_stands_behind_what_it_counts_for() {
        check(8, "", Some(7), "7");
        check(8, "nnn", None, "- - -");
        check(8, "nnn", Some(5), "5 - - -");
        check(8, "nnn", Some(7), "7 - - -");
        check(8, "nnn", Some(8), "7 - - - 8");
        check(8, "nnn", Some(20), "7 - - - 20");
        check(1, "n", Some(1), "0 - 1");
    }

    #[test]
    fn what_is_committed_before_a_change_of_the_membership_stands_before_it() {
        check(8, "cnc", Some(7), "7 - - -");
        check(8, "ncnc", Some(9), "7 - 8 - - 9 -");
        check(8, "cncn", Some(20), "7 - - 9 - - 20");
        check(8, "cc", Some(8), "7 - 8 -");
    }
}
