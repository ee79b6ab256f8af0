//! Appends that are handed out and not durable yet, and the messages that must wait for them.
//!
//! The library's appends are asynchronous: entries, term and vote are handed out to be written, and are reported durable
//! later. A promise to another member must not leave before what it promises is durable here.
//!
//! Invariants:
//! - Appends become durable in the order of their numbers; held messages leave in the order in which they were made.
//! - A message held for append `n` is released when all appends up to `n` are durable, not before.

use std::collections::VecDeque;

use crate::limits;
use crate::message::{PeerBody, PeerMessage};
use crate::outputs::Append;
use crate::types::{HardState, ServerId, Term};

/// Appends in flight to the log of this server, with the messages that wait for them.
pub(super) struct Durability {
    /// Appends handed out and not reported durable, oldest first.
    appends: VecDeque<AppendInFlight>,
    /// Number of the last append handed out.
    last_number: u64,
    /// Term and vote handed out last.
    vote: (Term, Option<ServerId>),
    /// The last commit index was handed out with an append that need not be stored.
    commit_unstored: bool,
    /// Messages that may leave when the append of that number is durable.
    messages: VecDeque<(u64, PeerMessage)>,
}

/// An append that must become durable.
struct AppendInFlight {
    number: u64,
    /// Holds entries or a snapshot.
    changes_log: bool,
    /// Changes term or vote.
    changes_vote: bool,
}

impl Durability {
    /// `hard_state` is durable, and nothing is in flight.
    pub(super) fn new(hard_state: &HardState) -> Durability {
        Durability {
            appends: VecDeque::new(),
            last_number: 0,
            vote: (hard_state.term, hard_state.vote),
            commit_unstored: false,
            messages: VecDeque::new(),
        }
    }

    /// This append is handed out. `installs`: a snapshot is part of it.
    pub(super) fn handed_out(&mut self, append: &Append, installs: bool) {
        self.last_number = append.number;
        let vote = append.hard_state.map(|hard| (hard.term, hard.vote));
        if append.must_sync {
            let changes_log = !append.entries.is_empty() || installs;
            let changes_vote = vote.is_some_and(|vote| vote != self.vote);
            self.appends.push_back(AppendInFlight { number: append.number, changes_log, changes_vote });
        }
        if let Some(vote) = vote {
            self.vote = vote;
            self.commit_unstored = !append.must_sync;
        }
    }

    /// All appends up to this number are durable.
    ///
    /// # Panics
    /// If no append of this number was handed out: acknowledging what was never written must not go on.
    pub(super) fn persisted(&mut self, number: u64) {
        assert!(number <= self.last_number, "append {number} reported durable, {} is the last", self.last_number);
        while self.appends.front().is_some_and(|append| append.number <= number) {
            self.appends.pop_front();
        }
    }

    /// All appends up to this number are durable.
    pub(super) fn durable_number(&self) -> u64 {
        self.appends.front().map_or(self.last_number, |append| append.number - 1)
    }

    /// Whether nothing handed out is yet to become durable.
    pub(super) fn is_settled(&self) -> bool {
        self.appends.is_empty()
    }

    /// Whether the next append that is synced should hold the commit index, because the last one was not stored.
    pub(super) fn commit_unstored(&self) -> bool {
        self.commit_unstored
    }

    /// Whether entries or a snapshot are yet to become durable.
    pub(super) fn log_in_flight(&self) -> bool {
        self.appends.iter().any(|append| append.changes_log)
    }

    /// Whether a term or a vote is yet to become durable.
    pub(super) fn vote_in_flight(&self) -> bool {
        self.appends.iter().any(|append| append.changes_vote)
    }

    /// Adds `message` to `out`, or holds it. `from_leader`: the library lets it leave before the entries of the same
    /// append are durable.
    ///
    /// A leader's messages leave at once, except messages of a term that is not durable here. After a crash the same
    /// term could be led again with other entries. Only a voter without other voters leads so early. The reply to a
    /// heartbeat promises nothing about the log, and leaves as early. Otherwise a leader would hear of no majority
    /// while all disks are slow, and step down. Every other message waits for all appends handed out so far.
    pub(super) fn send_or_hold(&mut self, message: PeerMessage, from_leader: bool, out: &mut Vec<PeerMessage>) {
        let waits_for = if from_leader || matches!(message.body, PeerBody::HeartbeatReply { .. }) {
            self.appends.iter().rev().find(|append| append.changes_vote)
        } else {
            self.appends.back()
        };
        match waits_for.map(|append| append.number) {
            None => out.push(message),
            Some(_) if self.messages.len() >= limits::HELD_MESSAGES_MAX => {
                tracing::debug!("message to node {} dropped: too many wait for an append", message.to);
            }
            Some(number) => {
                let number = self.messages.back().map_or(number, |(last, _)| number.max(*last));
                self.messages.push_back((number, message));
            }
        }
    }

    /// Moves messages to `out` once the append that they waited for is durable.
    pub(super) fn release_messages(&mut self, out: &mut Vec<PeerMessage>) {
        let durable = self.durable_number();
        while self.messages.front().is_some_and(|(number, _)| *number <= durable) {
            let (_, message) = self.messages.pop_front().expect("just seen");
            out.push(message);
        }
    }
}
