//! Members: an entry is committed only when a majority of the voters hold it, in the middle of a change a majority of
//! both sides. A leader has the votes of such a majority. A membership change is answered when the ensemble has gone
//! over to the new list, not before (Raft, section 6; decision 16).
//!
//! The voters at an index follow from the entries before it, with a small model of its own. A server holds the entries
//! that it acknowledged: an acknowledgement or a vote that was not sent cannot count.

use std::collections::BTreeSet;

use corral_consensus::{ConfChange, Entry, EntryKind, Membership};
use corral_wire::error::ErrorCode;

use crate::check::checkers::Checkers;
use crate::check::entry::{CommittedEntry, EntryPosition};
use crate::check::voters::{Members, Open, Voters};
use crate::model::{Expected, LinkId};
use crate::reconfig::lines;
use crate::request::Body;
use crate::violation::{Checked, Violation, require};

/// A server votes for a candidate, and says so.
pub(super) fn note_vote(checkers: &mut Checkers, term: u64, server: usize, whom: usize) {
    checkers.members.votes.entry((term, whom as u64 + 1)).or_default().insert(server as u64 + 1);
}

/// A server says that it holds the log of that term's leader up to there.
pub(crate) fn holds_upto(checkers: &mut Checkers, term: u64, server: usize, index: u64) {
    let held = checkers.members.held.entry(term).or_default().entry(server as u64 + 1).or_default();
    *held = (*held).max(index);
}

pub(crate) fn appended(checkers: &mut Checkers, entries: &[Entry]) -> Checked {
    for entry in entries.iter().filter(|entry| entry.kind == EntryKind::ConfChange) {
        let change = ConfChange::decode(&entry.payload).map_err(|what| Violation::of("members", what))?;
        checkers.members.changes.insert((entry.index.0, entry.term.0), change);
    }
    Ok(())
}

/// A server has won an election by this membership, with the log committed up to `commit`. It must be a membership
/// that was in force once: other servers have no vote, also if they had one before.
pub(crate) fn counted(checkers: &Checkers, server: usize, known: &Membership, commit: u64) -> Checked {
    let voters = Voters::of(known);
    // No server may have applied the last changes yet: shards lag, or states are corrupt.
    let mut in_force = vec![checkers.members.voters.clone()];
    let unseen = checkers.members.changes.range((checkers.members.upto + 1, 0)..);
    for (_, change) in unseen.take_while(|((index, _), _)| *index <= commit) {
        let mut next = in_force.clone();
        next.iter_mut().for_each(|voters| voters.change(change));
        in_force.append(&mut next);
    }
    require(checkers.members.had.contains(&voters) || in_force.contains(&voters), "members", || {
        format!("server {} takes {voters:?} for the voters, which they never were", server + 1)
    })
}

/// A candidate has won, by the membership that it knows.
pub(super) fn won_by(checkers: &Checkers, term: u64, server: usize, known: &Membership) -> Checked {
    let voters = Voters::of(known);
    let own = server as u64 + 1;
    let votes = checkers.members.votes.get(&(term, own));
    let has = |id: u64| id == own || votes.is_some_and(|votes| votes.contains(&id));
    require(voters.agree(has), "members", || {
        format!("server {own} leads term {term} with the votes of {votes:?} among {voters:?}")
    })
}

/// An entry is found committed for the first time: enough of the members hold it.
pub(super) fn is_held(checkers: &mut Checkers, entry: &CommittedEntry) -> Checked {
    let Members { voters, before, held, .. } = &checkers.members;
    let (index, term) = (entry.index, entry.term);
    let enough = checkers.elections.leaders.range(term..).any(|(of, leader)| {
        let said = held.get(of);
        let has = |id: u64| {
            id == *leader as u64 + 1 || said.and_then(|said| said.get(&id)).is_some_and(|upto| *upto >= index)
        };
        voters.agree(has) || before.agree(has)
    });
    require(enough, "members", || {
        let held: Vec<_> = held.range(term..).collect();
        format!("entry {index} of term {term} is committed by {voters:?}, before {before:?}, which hold {held:?}")
    })?;
    let members = &mut checkers.members;
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
pub(crate) fn list_rests(checkers: &Checkers) -> bool {
    checkers.members.open.is_empty() && checkers.members.begun.is_none()
}

/// Whether a client's change is refused because of another. `stamped`: so says the leader.
pub(super) fn is_changing(checkers: &Checkers, stamped: bool) -> Result<bool, Violation> {
    let Members { changed, begun, .. } = &checkers.members;
    require(!stamped || *changed, "members", || "a leader carries out a change without a request".to_owned())?;
    Ok(stamped || begun.is_some())
}

/// A client's change waits for the ensemble to go over.
pub(super) fn is_underway(checkers: &mut Checkers, link: LinkId, number: usize, verdict: &Expected) {
    if let Expected::Underway { next, version } = verdict {
        checkers.members.changed = true;
        checkers.members.open.push(Open { link, number, next: next.clone(), version: *version });
    }
}

/// A leader gives a change up. `link` is the connection that requested it.
pub(super) fn list_fails(
    checkers: &mut Checkers,
    at: &EntryPosition,
    code: ErrorCode,
    link: Option<LinkId>,
) -> Checked {
    checkers.model.zxid = at.zxid;
    let allowed = matches!(code, ErrorCode::NewConfigNoQuorum | ErrorCode::ReconfigInProgress);
    let open = link.and_then(|link| take_open(checkers, link));
    let nothing = || Violation::of("members", format!("{code:?} answers no request"));
    let open = open.filter(|_| allowed).ok_or_else(nothing)?;
    checkers.members.begun.take_if(|begun| begun.0 == open.link);
    answer(checkers, &open, at.zxid, Expected::Reply { err: code.code(), body: Body::Nothing })
}

fn take_open(checkers: &mut Checkers, link: LinkId) -> Option<Open> {
    let at = checkers.members.open.iter().position(|open| open.link == link)?;
    Some(checkers.members.open.remove(at))
}

/// A leader begins a change.
pub(super) fn list_begins(checkers: &mut Checkers, at: &EntryPosition, text: &str, link: Option<LinkId>) -> Checked {
    let open = checkers.members.open.iter().find(|open| Some(open.link) == link);
    let Some(open) = open else { return Err(Violation::of("members", "a change begins without a request")) };
    let right = lines(&open.next);
    require(text == right, "members", || format!("{text:?} begins, {right:?} was requested"))?;
    let version = checkers.model.list.as_ref().map(|list| list.version);
    require(version == Some(open.version), "members", || {
        format!("a change of version {:#x} begins, the list has {version:x?}", open.version)
    })?;
    require(checkers.members.begun.is_none(), "members", || "a change begins in the middle of another".to_owned())?;
    checkers.members.begun = Some((open.link, open.next.clone(), at.index));
    Ok(())
}

/// The ensemble has gone over: it is not joint any more, and enough of the new list's voters have a vote.
pub(super) fn list_ends(checkers: &mut Checkers, at: &EntryPosition) -> Checked {
    let begun = checkers.members.begun.take();
    let (link, next, since) = begun.ok_or_else(|| Violation::of("members", "a change ends that was not begun"))?;
    let Voters { now, outgoing } = &checkers.members.voters;
    let ends = checkers.members.changes.get(&(at.index, at.term)).is_none_or(|change| change.changes.is_empty());
    let ought: BTreeSet<u64> = next.iter().filter(|(_, seat)| !seat.observer).map(|(id, _)| u64::from(*id)).collect();
    let enough = now.is_subset(&ought) && now.len() * 2 > ought.len();
    require(ends && outgoing.is_empty() && enough, "members", || {
        format!("the change to {next:?} begun by entry {since} ends with the voters {now:?}, {outgoing:?} leaving")
    })?;
    let verdict = checkers.model.reconfigured(at.zxid, at.time, next);
    let open = take_open(checkers, link);
    let open = open.ok_or_else(|| Violation::of("members", "a change ends without a request"))?;
    answer(checkers, &open, at.zxid, verdict)
}

fn answer(checkers: &mut Checkers, open: &Open, zxid: u64, verdict: Expected) -> Checked {
    let verdicts = &mut checkers.facts[open.link.0].verdicts;
    let waiting = verdicts.get_mut(open.number);
    *waiting.ok_or_else(|| Violation::of("members", "an answer without a request"))? = (zxid, verdict);
    Ok(())
}
