//! Members with a corrupt state, and the snapshots that a leader announces to them.
//!
//! Such a member asks for a snapshot again and again until it has one. It acknowledges entries all the while, and should
//! not be made the leader.

use std::collections::BTreeMap;

use raft::Raft;

use super::library::Library;
use crate::convert::id_of;
use crate::log::MemLog;
use crate::message::{PeerBody, PeerMessage};
use crate::types::{Index, ServerId, Term};

/// Election timeouts for which the report of a corrupt state counts; it is repeated until the state is replaced.
const REPORTED_ELECTIONS: u32 = 2;

/// Members with a corrupt state. Bounded by the number of members.
#[derive(Default)]
pub(super) struct Repairs {
    /// Ticks for which the last request of each counts.
    members: BTreeMap<ServerId, u32>,
    /// Announcements of snapshots to be sent.
    announcements: BTreeMap<ServerId, PeerMessage>,
}

impl Repairs {
    /// A member, in its term, asks for a snapshot that ends at `least` or behind it. A leader announces its newest one, or
    /// wants a newer one to be written.
    pub(super) fn answer(&mut self, library: &Library, (from, term): (ServerId, Term), least: Index) {
        let answers = library.is_leader() && term == library.term();
        let snapshot = if answers { library.store().snapshot_from(least, from) } else { None };
        let announcement = snapshot.map(|(index, term, membership)| {
            let body = PeerBody::Snapshot { index, term, membership };
            PeerMessage { from: id_of(library.raft().id), to: from, term: library.term(), body }
        });
        self.members.insert(from, REPORTED_ELECTIONS * library.election_ticks());
        self.announcements.extend(announcement.map(|announcement| (from, announcement)));
    }

    /// One tick.
    pub(super) fn tick(&mut self) {
        self.members.retain(|_, left| {
            *left = left.saturating_sub(1);
            *left > 0
        });
    }

    /// Term, role or leader changed: announcements of a former term would be refused.
    pub(super) fn drop_announcements(&mut self) {
        self.announcements.clear();
    }

    /// Moves the announcements to `out`.
    pub(super) fn take_announcements(&mut self, out: &mut Vec<PeerMessage>) {
        out.extend(std::mem::take(&mut self.announcements).into_values());
    }

    /// Whether the state of that member is corrupt.
    pub(super) fn includes(&self, member: ServerId) -> bool {
        self.members.contains_key(&member)
    }
}

/// Requests of a member with a corrupt state for a snapshot that ends at `least` or behind it. The leader announces one. The
/// other members are sent the request as well, because each of them may lead next. None with an empty log.
pub(super) fn requests(raft: &Raft<MemLog>, least: Index) -> Vec<PeerMessage> {
    let log = &raft.raft_log;
    if log.last_index() < least.0 {
        return Vec::new();
    }
    let (commit, last, last_term) = (Index(log.committed), Index(log.last_index()), Term(log.last_term()));
    let request = |to: u64| {
        let body = PeerBody::WantsState { commit, last, last_term, least };
        PeerMessage { from: id_of(raft.id), to: id_of(to), term: Term(raft.term), body }
    };
    let others = raft.prs().iter().map(|(id, _)| *id).filter(|id| *id != raft.id);
    others.map(request).collect()
}
