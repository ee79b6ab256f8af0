//! The node's outputs: what the library has ready, turned into `Outputs`, and the messages that must wait.

use raft::StateRole;
use raft::eraftpb::{self, Message};

use super::{Awaiting, RaftNode};
use crate::conf_change::ConfChange;
use crate::convert;
use crate::limits;
use crate::message::PeerBody;
use crate::outputs::{Append, InstallSnapshot, Outputs, RoleChange};
use crate::types::{Entry, EntryKind, Index, Term};

impl RaftNode {
    /// Collects what is to be done into `out`, which is cleared first. False: nothing. Call again until false.
    pub fn ready(&mut self, out: &mut Outputs) -> bool {
        out.clear();
        self.ask_reads();
        self.release_held(out);
        self.release_committed(out);
        if self.raw.has_ready() {
            self.take_ready(out);
        }
        self.reads.drain(&mut out.reads, &mut out.reads_refused);
        out.image_wanted = self.raw.store().take_image_wanted();
        let now = RoleChange { role: self.role(), term: self.term(), leader: self.leader() };
        if now != self.told {
            self.told = now;
            out.role_change = Some(now);
        }
        !out.is_empty()
    }

    fn ask_reads(&mut self) {
        let raft = &mut self.raw.raft;
        let can_answer = match raft.state {
            StateRole::Leader => raft.commit_to_current_term(),
            _ => raft.leader_id != 0,
        };
        if !can_answer || !self.reads.has_something_take_requests() {
            return;
        }
        for context in self.reads.take_requests() {
            // Dropped requests are asked again.
            let _ = raft.step(convert::read_request(context));
        }
    }

    fn release_held(&mut self, out: &mut Outputs) {
        let durable = self.durable_number();
        while self.held.front().is_some_and(|(number, _)| *number <= durable) {
            let (_, message) = self.held.pop_front().expect("just seen");
            out.messages.push(message);
        }
    }

    fn take_ready(&mut self, out: &mut Outputs) {
        let mut ready = self.raw.ready();
        let number = ready.number();
        self.last_number = number;
        self.unready_bytes = 0;
        if !ready.snapshot().is_empty() {
            out.install = Some(self.install(ready.snapshot().get_metadata()));
        }
        let entries = ready.take_entries();
        let committed = ready.take_committed_entries();
        let changes_members = committed.iter().any(convert::is_conf_change);
        let must_sync = ready.must_sync() || changes_members;
        let hard_state = match ready.hs() {
            None if changes_members || must_sync && self.raw.store().holds_conf_change() => {
                // What was said of the commit index before was not synced. A leader makes a change of the membership when the
                // one before is committed, and says so with it. Who acknowledges the second has to know after a crash that the
                // first is in force, or he could be elected by the votes of the membership before both.
                Some(convert::hard_state_out(&self.raw.raft.hard_state()))
            }
            changed => changed.map(convert::hard_state_out),
        };
        let entries_out = entries.iter().map(convert::entry_out).collect();
        let append = Append { number, entries: entries_out, hard_state, must_sync };
        self.raw.mut_store().append(entries);
        if append.must_sync {
            let vote = hard_state.is_some_and(|hard| (hard.term, hard.vote) != self.hard_told);
            let log = !append.entries.is_empty() || out.install.is_some();
            self.awaiting.push_back(Awaiting { number, log, vote });
        }
        if let Some(hard) = hard_state {
            self.hard_told = (hard.term, hard.vote);
        }
        if append.must_sync || hard_state.is_some() {
            out.append = Some(append);
        }
        let (free, after) = (ready.take_messages(), ready.take_persisted_messages());
        self.sort_messages(free, after, out);
        for state in ready.take_read_states() {
            if let Some(context) = convert::context_out(&state.request_ctx) {
                self.reads.answer(context, Index(state.index));
            }
        }
        self.take_committed(number, committed, out);
        self.raw.advance_append_async(ready);
        if self.awaiting.is_empty() {
            self.raw.on_persist_ready(number);
        }
    }

    fn install(&mut self, meta: &eraftpb::SnapshotMetadata) -> InstallSnapshot {
        let (index, term) = (Index(meta.index), Term(meta.term));
        let membership = convert::membership_out(meta.get_conf_state());
        self.raw.mut_store().install(index, term);
        self.delivered = index.0;
        self.committed_later.clear();
        self.conf_pending.clear();
        self.conf_history.clear();
        self.conf_history.push_back((index.0, membership.clone()));
        self.newborn = None;
        self.trust();
        self.fit_log();
        InstallSnapshot { index, term, membership, from: self.leader() }
    }

    /// A leader's messages may go at once, but for those of a term that is not durable here: after a crash the same
    /// term could be led again with other entries. Only a voter without other voters gets to lead so early. That a
    /// follower hears its leader promises nothing of its log, and goes as early: with slow disks everywhere a leader
    /// would otherwise hear of no majority, and step down. All others wait for every append handed out so far.
    fn sort_messages(&mut self, free: Vec<Message>, after: Vec<Message>, out: &mut Outputs) {
        let vote_pending = self.awaiting.iter().rev().find(|append| append.vote).map(|append| append.number);
        let any_pending = self.awaiting.back().map(|append| append.number);
        let term = self.raw.raft.term;
        for (messages, wait) in [(free, vote_pending), (after, any_pending)] {
            for message in messages {
                let Some(message) = convert::message_out(&message, term) else { continue };
                self.note_told(&message);
                let says_alive = matches!(message.body, PeerBody::HeartbeatReply { .. });
                match if says_alive { vote_pending } else { wait } {
                    None => out.messages.push(message),
                    Some(_) if self.held.len() >= limits::HELD_MESSAGES_MAX => {
                        tracing::debug!("message to node {} dropped: too many wait for an append", message.to);
                    }
                    Some(number) => {
                        let number = self.held.back().map_or(number, |(last, _)| number.max(*last));
                        self.held.push_back((number, message));
                    }
                }
            }
        }
    }

    /// A membership is not acted on before its commit is durable here: a server that forgot it in a crash would count
    /// votes by the former membership, and could be elected beside the leader of the new one. So such an entry, and what
    /// follows it, waits for the append of this number, which holds the commit index.
    fn take_committed(&mut self, number: u64, entries: Vec<eraftpb::Entry>, out: &mut Outputs) {
        for entry in &entries {
            let entry = convert::entry_out(entry);
            if self.committed_later.is_empty() && entry.kind != EntryKind::ConfChange {
                self.deliver(entry, out);
            } else {
                self.committed_later.push_back((number, entry));
            }
        }
    }

    fn release_committed(&mut self, out: &mut Outputs) {
        let durable = self.durable_number();
        while self.committed_later.front().is_some_and(|(number, _)| *number <= durable) {
            let (_, entry) = self.committed_later.pop_front().expect("just seen");
            self.deliver(entry, out);
        }
    }

    fn deliver(&mut self, entry: Entry, out: &mut Outputs) {
        assert!(entry.index.0 == self.delivered + 1, "entry {} follows {}", entry.index, self.delivered);
        self.delivered = entry.index.0;
        if entry.kind == EntryKind::ConfChange {
            let change = ConfChange::decode(&entry.payload).expect("checked before it entered the log");
            self.conf_pending.push_back((entry.index.0, change));
        }
        out.committed.push(entry);
    }
}
