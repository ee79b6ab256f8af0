//! What a node wants done, filled by `RaftNode::ready`.
//!
//! The fields are independent of each other; nothing in here has to wait for anything else in the same value,
//! except that `Append` must be written before a later one and `install` before entries of the same append.

use crate::message::PeerMessage;
use crate::types::{Entry, EntryKind, HardState, Index, Membership, NodeId, Role, Term};

/// Reused by the caller from turn to turn; `ready` clears it first.
#[derive(Debug, Default)]
pub struct Outputs {
    /// To be written to the log.
    pub append: Option<Append>,
    /// May go out now: whatever must not be said before an append is durable is held back inside the node.
    pub messages: Vec<PeerMessage>,
    /// Committed and durable here, in order, without a gap: to be applied. At most one page
    /// (`limits::COMMITTED_PAGE_BYTES`); call `ready` again for more.
    pub committed: Vec<Entry>,
    /// Answers to `read_index`.
    pub reads: Vec<ReadReady>,
    /// Tokens of `read_index` that will not be answered: no leader for too long, or too many waiting.
    pub reads_refused: Vec<u64>,
    /// Set when role, term or leader changed since last told.
    pub role_change: Option<RoleChange>,
    /// A leader's image replaces log and state. Part of the append of the same output.
    pub install: Option<InstallSnapshot>,
    /// A follower lags behind what is kept in memory and the last image reported by `compact` is too old for it: a
    /// newer image is wanted.
    pub image_wanted: bool,
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
    /// False: only the commit index moved. It need not be synced nor reported, and may be left unwritten.
    pub must_sync: bool,
}

/// What the log stores of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored<'a> {
    /// It counts in the place of the one before.
    HardState(HardState),
    /// It replaces what the log holds from there on.
    Entry(&'a Entry),
}

impl Append {
    /// What the log stores, in this order. Of that a crash before the sync leaves a beginning, and of what is left nothing must be
    /// taken for committed that is to be replaced: so a commit index stands behind the entries that it counts for. In front of a
    /// change of the membership stands that the entries before are committed, if they are: who holds the second of two changes has
    /// to know that the first is in force.
    pub fn stored(&self) -> Vec<Stored<'_>> {
        let mut stored = Vec::with_capacity(self.entries.len() + 2);
        let commit = self.hard_state.map_or(Index(0), |state| state.commit);
        let before = |entry: &Entry| Index(entry.index.0 - 1);
        let mut said = self.entries.first().map_or(commit, |first| commit.min(before(first)));
        let state = |commit: Index| self.hard_state.map(|state| Stored::HardState(HardState { commit, ..state }));
        stored.extend(state(said));
        for entry in &self.entries {
            let sure = commit.min(before(entry));
            if entry.kind == EntryKind::ConfChange && sure > said {
                said = sure;
                stored.extend(state(said));
            }
            stored.push(Stored::Entry(entry));
        }
        if commit > said {
            stored.extend(state(commit));
        }
        stored
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

/// Where the node stands now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoleChange {
    /// What it is.
    pub role: Role,
    /// In which term.
    pub term: Term,
    /// Who leads, if known.
    pub leader: Option<NodeId>,
}

/// The image at `index`, which the transport brought along, takes the place of everything here.
///
/// Install it durably, report the append's number with `persisted`, then `applied(index)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstallSnapshot {
    /// Last index in the image.
    pub index: Index,
    /// Term of that entry.
    pub term: Term,
    /// Membership at that index.
    pub membership: Membership,
    /// The leader it came from.
    pub from: Option<NodeId>,
}

impl Outputs {
    /// Empties it, keeping the buffers.
    pub fn clear(&mut self) {
        self.append = None;
        self.messages.clear();
        self.committed.clear();
        self.reads.clear();
        self.reads_refused.clear();
        self.role_change = None;
        self.install = None;
        self.image_wanted = false;
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.append.is_none()
            && self.messages.is_empty()
            && self.committed.is_empty()
            && self.reads.is_empty()
            && self.reads_refused.is_empty()
            && self.role_change.is_none()
            && self.install.is_none()
            && !self.image_wanted
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    /// What is stored of entries from an index on, `c` for a change of the membership: commit indexes, and `-` for each entry.
    fn check(first: u64, kinds: &str, commit: Option<u64>, expect: &str) {
        let kind = |letter| if letter == 'c' { EntryKind::ConfChange } else { EntryKind::Normal };
        let entry = |(at, letter)| Entry { term: Term(3), index: Index(at), kind: kind(letter), payload: Bytes::new() };
        let entries: Vec<Entry> = (first..).zip(kinds.chars()).map(entry).collect();
        let hard_state = commit.map(|commit| HardState { term: Term(3), vote: Some(NodeId(1)), commit: Index(commit) });
        let append = Append { number: 1, entries, hard_state, must_sync: true };
        let mut at = first;
        let text = |stored: &Stored<'_>| match stored {
            Stored::HardState(state) => {
                assert_eq!((state.term, state.vote), (Term(3), Some(NodeId(1))));
                state.commit.0.to_string()
            }
            Stored::Entry(entry) => {
                assert_eq!(entry.index.0, at);
                at += 1;
                "-".to_owned()
            }
        };
        let found: Vec<String> = append.stored().iter().map(text).collect();
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
