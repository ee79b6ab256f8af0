//! Members: an entry is committed only when a majority of the voters hold it, in the middle of a change a majority of
//! both sides. A leader has the votes of such a majority. A membership change is answered when the ensemble has gone
//! over to the new list, not before (Raft, section 6; decision 16).
//!
//! The voters at an index follow from the entries before it, with a small model of its own. A server holds the entries
//! that it acknowledged: an acknowledgement or a vote that was not sent cannot count.

use std::collections::{BTreeMap, BTreeSet};

use corral_consensus::{ConfChange, Entry, EntryKind, MemberChange, Membership, Transition};
use corral_wire::error::ErrorCode;

use super::Checkers;
use super::entry::CommittedEntry;
use super::writes::EntryPosition;
use crate::model::{Expected, LinkId};
use crate::reconfig::{Seats, lines};
use crate::request::Body;
use crate::violation::{Checked, Violation, require};

/// The voters, in the middle of a change those of both sides.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Voters {
    now: BTreeSet<u64>,
    outgoing: BTreeSet<u64>,
}

impl Voters {
    fn of(known: &Membership) -> Voters {
        let ids = |nodes: &[corral_consensus::ServerId]| nodes.iter().map(|node| node.wide()).collect();
        Voters { now: ids(&known.voters), outgoing: ids(&known.voters_outgoing) }
    }

    fn change(&mut self, change: &ConfChange) {
        if change.changes.is_empty() {
            self.outgoing.clear();
            return;
        }
        if change.transition != Transition::Auto || change.changes.len() > 1 {
            self.outgoing = self.now.clone();
        }
        for one in &change.changes {
            match one {
                MemberChange::AddVoter(id) => drop(self.now.insert(id.wide())),
                MemberChange::AddLearner(id) | MemberChange::Remove(id) => drop(self.now.remove(&id.wide())),
            }
        }
    }

    fn agree(&self, has: impl Fn(u64) -> bool) -> bool {
        let majority = |of: &BTreeSet<u64>| of.is_empty() || of.iter().filter(|id| has(**id)).count() * 2 > of.len();
        majority(&self.now) && majority(&self.outgoing)
    }
}

/// A change of the list that a client asked for and that has no answer yet.
#[derive(Clone, Debug)]
struct Open {
    link: LinkId,
    /// Its number among the commands of that connection.
    number: usize,
    next: Seats,
    version: u64,
}

#[derive(Debug, Default)]
pub(super) struct Members {
    voters: Voters,
    /// .. before the last change: a leader may not have applied that one yet.
    before: Voters,
    /// .. and at any time.
    had: BTreeSet<Voters>,
    /// Index of the last entry that was found committed.
    upto: u64,
    /// The changes that entries with this index and term would make.
    changes: BTreeMap<(u64, u64), ConfChange>,
    /// How far the servers said, in that term, that they hold its leader's log.
    held: BTreeMap<u64, BTreeMap<u64, u64>>,
    votes: BTreeMap<(u64, u64), BTreeSet<u64>>,
    term: u64,
    open: Vec<Open>,
    /// There was a change of the list in this term.
    changed: bool,
    /// The new list during a change, and the entry that began it.
    begun: Option<(LinkId, Seats, u64)>,
}

impl Members {
    pub(super) fn of_founders(servers: usize) -> Members {
        let voters = Voters { now: (1..=servers as u64).collect(), outgoing: BTreeSet::new() };
        Members { before: voters.clone(), had: BTreeSet::from([voters.clone()]), voters, ..Members::default() }
    }
}

impl Checkers {
    /// A server votes for a candidate, and says so.
    pub(super) fn vote_said(&mut self, term: u64, server: usize, whom: usize) {
        self.members.votes.entry((term, whom as u64 + 1)).or_default().insert(server as u64 + 1);
    }

    /// A server says that it holds the log of that term's leader up to there.
    pub(crate) fn holds_upto(&mut self, term: u64, server: usize, index: u64) {
        let held = self.members.held.entry(term).or_default().entry(server as u64 + 1).or_default();
        *held = (*held).max(index);
    }

    pub(crate) fn appended(&mut self, entries: &[Entry]) -> Checked {
        for entry in entries.iter().filter(|entry| entry.kind == EntryKind::ConfChange) {
            let change = ConfChange::decode(&entry.payload).map_err(|what| Violation::of("members", what))?;
            self.members.changes.insert((entry.index.0, entry.term.0), change);
        }
        Ok(())
    }

    /// A server has won an election by this membership, with the log committed up to `commit`. It must be a membership
    /// that was in force once: other servers have no vote, also if they had one before.
    pub(crate) fn counted(&self, server: usize, known: &Membership, commit: u64) -> Checked {
        let voters = Voters::of(known);
        // No server may have applied the last changes yet: shards lag, or states are corrupt.
        let mut in_force = vec![self.members.voters.clone()];
        let unseen = self.members.changes.range((self.members.upto + 1, 0)..);
        for (_, change) in unseen.take_while(|((index, _), _)| *index <= commit) {
            let mut next = in_force.clone();
            next.iter_mut().for_each(|voters| voters.change(change));
            in_force.append(&mut next);
        }
        require(self.members.had.contains(&voters) || in_force.contains(&voters), "members", || {
            format!("server {} takes {voters:?} for those who vote, and they never were", server + 1)
        })
    }

    /// A candidate has won, by the membership that it knows.
    pub(super) fn won_by(&self, term: u64, server: usize, known: &Membership) -> Checked {
        let voters = Voters::of(known);
        let own = server as u64 + 1;
        let votes = self.members.votes.get(&(term, own));
        let has = |id: u64| id == own || votes.is_some_and(|votes| votes.contains(&id));
        require(voters.agree(has), "members", || {
            format!("server {own} leads term {term} with the votes of {votes:?} among {voters:?}")
        })
    }

    /// An entry is found committed for the first time: enough of the members hold it.
    pub(super) fn is_held(&mut self, entry: &CommittedEntry) -> Checked {
        let Members { voters, before, held, .. } = &self.members;
        let (index, term) = (entry.index, entry.term);
        let enough = self.leaders_since(term).any(|(of, leader)| {
            let said = held.get(&of);
            let has = |id: u64| {
                id == leader as u64 + 1 || said.and_then(|said| said.get(&id)).is_some_and(|upto| *upto >= index)
            };
            voters.agree(has) || before.agree(has)
        });
        require(enough, "members", || {
            let held: Vec<_> = held.range(term..).collect();
            format!("entry {index} of term {term} is committed by {voters:?}, before {before:?}, who hold {held:?}")
        })?;
        let members = &mut self.members;
        require(term >= members.term, "members", || format!("entry {index} of term {term} after {}", members.term))?;
        if term > members.term {
            // A change that was not begun ended with its leader, and is never answered.
            members.term = term;
            let begun = members.begun.as_ref().map(|(link, ..)| *link);
            members.open.retain(|open| Some(open.link) == begun);
            members.changed = begun.is_some();
        }
        members.upto = index;
        if let Some(change) = members.changes.get(&(index, term)) {
            members.before = members.voters.clone();
            members.voters.change(change);
            members.had.insert(members.voters.clone());
        }
        Ok(())
    }

    // ----- the membership -----

    /// Whether no change of the list is requested or begun, as far as the log shows.
    pub(crate) fn list_rests(&self) -> bool {
        self.members.open.is_empty() && self.members.begun.is_none()
    }

    /// Whether a client's change is refused because of another. `stamped`: so says the leader.
    pub(super) fn is_changing(&self, stamped: bool) -> Result<bool, Violation> {
        let Members { changed, begun, .. } = &self.members;
        require(!stamped || *changed, "members", || "a leader has a change in hand that nobody asked for".to_owned())?;
        Ok(stamped || begun.is_some())
    }

    /// A client's change waits for the ensemble to go over.
    pub(super) fn is_underway(&mut self, link: LinkId, number: usize, verdict: &Expected) {
        if let Expected::Underway { next, version } = verdict {
            self.members.changed = true;
            self.members.open.push(Open { link, number, next: next.clone(), version: *version });
        }
    }

    /// A leader gives a change up. `link` is the connection that requested it.
    pub(super) fn list_fails(&mut self, at: &EntryPosition, code: ErrorCode, link: Option<LinkId>) -> Checked {
        self.model.zxid = at.zxid;
        let allowed = matches!(code, ErrorCode::NewConfigNoQuorum | ErrorCode::ReconfigInProgress);
        let open = link.and_then(|link| self.take_open(link));
        let nothing = || Violation::of("members", format!("{code:?} is the answer to nothing"));
        let open = open.filter(|_| allowed).ok_or_else(nothing)?;
        self.members.begun.take_if(|begun| begun.0 == open.link);
        self.answer(&open, at.zxid, Expected::Reply { err: code.code(), body: Body::Nothing })
    }

    fn take_open(&mut self, link: LinkId) -> Option<Open> {
        let at = self.members.open.iter().position(|open| open.link == link)?;
        Some(self.members.open.remove(at))
    }

    /// A leader begins a change.
    pub(super) fn list_begins(&mut self, at: &EntryPosition, text: &str, link: Option<LinkId>) -> Checked {
        let open = self.members.open.iter().find(|open| Some(open.link) == link);
        let Some(open) = open else { return Err(Violation::of("members", "a change begins that nobody asked for")) };
        let right = lines(&open.next);
        require(text == right, "members", || format!("{text:?} begins, asked for was {right:?}"))?;
        let version = self.model.list.as_ref().map(|list| list.version);
        require(version == Some(open.version), "members", || {
            format!("a change of version {:#x} begins, the list has {version:x?}", open.version)
        })?;
        require(self.members.begun.is_none(), "members", || "a change begins in the middle of another".to_owned())?;
        self.members.begun = Some((open.link, open.next.clone(), at.index));
        Ok(())
    }

    /// The ensemble has gone over: it is not joint any more, and enough of the new list's voters have a vote.
    pub(super) fn list_ends(&mut self, at: &EntryPosition) -> Checked {
        let begun = self.members.begun.take();
        let (link, next, since) = begun.ok_or_else(|| Violation::of("members", "a change ends that was not begun"))?;
        let Voters { now, outgoing } = &self.members.voters;
        let ends = self.members.changes.get(&(at.index, at.term)).is_none_or(|change| change.changes.is_empty());
        let ought: BTreeSet<u64> =
            next.iter().filter(|(_, seat)| !seat.observer).map(|(id, _)| u64::from(*id)).collect();
        let enough = now.is_subset(&ought) && now.len() * 2 > ought.len();
        require(ends && outgoing.is_empty() && enough, "members", || {
            format!("the change to {next:?} begun by entry {since} ends with the voters {now:?}, {outgoing:?} leaving")
        })?;
        let verdict = self.model.reconfigured(at.zxid, at.time, next);
        let open = self.take_open(link);
        let open = open.ok_or_else(|| Violation::of("members", "a change ends that was not requested"))?;
        self.answer(&open, at.zxid, verdict)
    }

    fn answer(&mut self, open: &Open, zxid: u64, verdict: Expected) -> Checked {
        let verdicts = &mut self.facts[open.link.0].verdicts;
        let waiting = verdicts.get_mut(open.number);
        *waiting.ok_or_else(|| Violation::of("members", "an answer to what was not asked"))? = (zxid, verdict);
        Ok(())
    }
}
