//! The leader's part in a membership change: from the request of a client, over the membership, to the new list.
//!
//! Pure: its input is the members as Raft observes them, and its output is the next proposal. The steps, each tried
//! again at the next look until it can be done:
//!
//! 1. A joining server is wanted as a member without a vote, and so receives everything ([`Sequencer::wanted`]).
//! 2. Once a majority of the new list is in step the membership enters joint consensus with it. The entry that begins
//!    this holds the new list and the origin of the request, so that every server knows them. A server that has not
//!    caught up then is a member without a vote, and gets its vote as soon as it has. If no majority is in step, nothing
//!    happens, and the client receives an error. A leaving server should be in step too, because the end of the joint
//!    membership is the last entry that it receives.
//! 3. The entry that ends it needs a majority of the new servers alone. It holds the command to put the list into the
//!    tree: the client gets its answer when the old servers are not needed any more.
//!
//! A new leader goes on with a change that was begun. A change that was not begun ends with its leader, and so does the
//! connection of the client. Servers that had joined for it are removed again.

use super::Sequencer;
use crate::apply::outcome::Outcome;
use crate::command::{Batch, Command, CommandKind, Proposals};
use crate::ids::{Millis, Origin, WallMillis};
use crate::limits::{RECONFIG_CATCH_UP_MS, RECONFIG_FAREWELL_MS, RECONFIG_GRACE_MS, RECONFIG_UNREACHED_MS};
use crate::report::ReconfigStep;
use crate::servers::{Role, Servers};
use crate::shared::Text;
use crate::{apply, features};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use corral_wire::error::ErrorCode;

/// How far what a client asked for has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waits,
    /// The entry that begins it is on its way.
    Begins,
    /// Nobody's place changes: the commands that change the list alone are on their way.
    Lists,
}

/// A change that a client requested and that is not begun.
pub(super) struct Asked {
    servers: Servers,
    /// Of the list that it takes the place of.
    version: u64,
    /// First zxid of the last batch that was proposed without a word of it.
    behind: Option<u64>,
    origin: Option<Origin>,
    since: Millis,
    /// When a majority of the new list could be reached last.
    reached: Millis,
    stage: Stage,
}

/// The members as Raft observes them.
#[derive(Clone, Debug, Default)]
pub struct MembersSeen {
    /// Ids of the servers with a vote; during a joint change, in the new list.
    pub voters: BTreeSet<u8>,
    /// Ids of the servers without a vote: joining servers and observers.
    pub learners: BTreeSet<u8>,
    /// The membership is in the middle of a change.
    pub joint: bool,
    /// Members that sent a message lately, with this server.
    pub reached: BTreeSet<u8>,
    /// Members that lack little of the log, with this server.
    pub in_step: BTreeSet<u8>,
}

/// A member's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seat {
    /// It has a vote.
    Voter,
    /// It has no vote, and receives the log.
    Learner,
    /// It leaves.
    None,
}

/// An entry that changes the membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// None end a joint change.
    pub changes: Vec<(u8, Seat)>,
    /// As a payload of the log; where it is not empty, changes are made jointly and not ended before the next proposal.
    pub context: Vec<u8>,
}

impl Sequencer {
    /// A client's change was ordered, and has passed all checks that need no look at the members.
    fn ask(&mut self, now: Millis, origin: Option<Origin>, servers: &Servers, version: u64) {
        if self.asked.is_some() || self.machine.begun().is_some() {
            return self.propose_for(origin, CommandKind::ReconfigFails(ErrorCode::ReconfigInProgress));
        }
        let behind = self.proposed.back().map(|batch| batch.first_zxid);
        let servers = servers.clone();
        self.asked =
            Some(Box::new(Asked { servers, version, behind, origin, since: now, reached: now, stage: Stage::Waits }));
        self.asked_changes += 1;
    }

    /// A change was ordered, or came to its end.
    pub(super) fn track_change(&mut self, now: Millis, origin: Option<Origin>, outcome: &Outcome) {
        match outcome {
            Outcome::Underway(next) => self.ask(now, origin, &next.0, next.1),
            // While this change waits, an ordered list is that of another command, and this change is answered in its
            // turn.
            Outcome::Later(answer)
                if matches!(**answer, Outcome::Configured(_))
                    && self.asked.as_ref().is_some_and(|asked| asked.stage != Stage::Waits) =>
            {
                self.forget_asked();
            }
            _ => {}
        }
    }

    /// Returns the configured features, with a mark that no other change may begin. Once this change is in the log,
    /// later commands find out by themselves whether it has ended. Another server may have answered its client before
    /// this server has applied it.
    pub(super) fn features(&self) -> u32 {
        let waits = self.asked.as_ref().is_some_and(|asked| asked.stage == Stage::Waits);
        let reconfiguring = if waits { features::RECONFIGURING } else { 0 };
        let admitted = if self.admits() { features::ADMITTED } else { 0 };
        self.config.features | reconfiguring | features::BOUNDS | admitted
    }

    pub(super) fn forget_asked(&mut self) {
        self.asked_changes += u64::from(self.asked.take().is_some());
    }

    /// Whether a look at the members is worth while before the next tick.
    pub fn is_reconfiguring(&self) -> bool {
        self.is_leading() && (self.asked.is_some() || self.machine.begun().is_some())
    }

    /// How far a membership change is, as far as this server knows.
    pub fn reconfig_step(&self) -> ReconfigStep {
        match (&self.asked, self.machine.begun()) {
            (_, Some(_)) => ReconfigStep::Joint,
            (Some(asked), None) if asked.stage == Stage::Waits => ReconfigStep::CatchingUp,
            (Some(_), None) => ReconfigStep::Entering,
            (None, None) => ReconfigStep::None,
        }
    }

    /// Changes whenever [`Sequencer::known_servers`] does.
    pub const fn servers_version(&self) -> u64 {
        self.machine.list_changes() + self.asked_changes
    }

    /// The list and its version, if clients may change it or have changed it; otherwise each server goes by its own
    /// configuration.
    pub fn listed_servers(&self) -> Option<(Servers, u64)> {
        apply::servers(self.machine.view()).filter(|(_, version)| *version != 0)
    }

    fn list(&self) -> Option<Servers> {
        self.listed_servers().map(|(servers, _)| servers)
    }

    /// Returns all servers that this one must be able to reach: the servers of the list, and the joining servers.
    /// `None` where the configuration counts.
    pub fn known_servers(&self) -> Option<Servers> {
        let mut servers = self.list()?;
        let more = [self.asked.as_ref().map(|asked| &asked.servers), self.machine.begun().map(|begun| &begun.servers)];
        for (id, server) in more.into_iter().flatten().flat_map(|list| &list.0) {
            // A server that moves is reached at its old address until the list has the new one.
            servers.0.entry(*id).or_insert_with(|| server.clone());
        }
        Some(servers)
    }

    /// Whether this server is in the list, or, while that is being changed, will be; `None` where the configuration
    /// counts.
    pub fn lists(&self, server: u8) -> Option<bool> {
        let list = self.list()?;
        let next = self.machine.begun().map_or(&list, |begun| &begun.servers);
        Some(next.0.contains_key(&server))
    }

    /// Returns the servers that should be members now, and their roles. `None` where the configuration counts. A
    /// joining server learns first, and a future observer gets no vote any more.
    pub fn wanted(&self) -> Option<Vec<(u8, Role)>> {
        let servers = self.list()?;
        let mut wanted: Vec<(u8, Role)> = servers.roles().collect();
        if let Some(asked) = &self.asked {
            let observes = |id: &u8| asked.servers.0.get(id).is_some_and(|server| server.role == Role::Observer);
            wanted.iter_mut().filter(|(id, _)| observes(id)).for_each(|(_, role)| *role = Role::Observer);
            let joining = asked.servers.0.keys().filter(|id| !servers.0.contains_key(id));
            wanted.extend(joining.map(|id| (*id, Role::Observer)));
        }
        Some(wanted)
    }

    /// The next step of a membership change, if one can be done now. To be called only when the log has room for it and
    /// no membership change is on its way. The result must be proposed at once.
    pub fn reconfigure(&mut self, now: Millis, wall: WallMillis, seen: &MembersSeen) -> Option<Proposal> {
        let zxid = self.next_zxid?;
        if let Some(begun) = self.machine.begun() {
            if !seen.joint {
                // It did not fit the membership.
                let origin = begun.origin;
                let fails = CommandKind::ReconfigFails(ErrorCode::NewConfigNoQuorum);
                if self.queue.commands() == 0 && self.proposed.is_empty() {
                    self.propose_for(origin, fails);
                }
                return None;
            }
            self.next_zxid = Some(zxid + 1);
            return Some(Proposal {
                changes: Vec::new(),
                context: self.context(wall, zxid, None, CommandKind::ReconfigEnds),
            });
        }
        if seen.joint {
            return None;
        }
        match &self.asked {
            None => self.send_away(seen),
            Some(asked) => match asked.stage {
                Stage::Waits => self.go_over(now, wall, zxid, seen),
                Stage::Begins => {
                    // Begun and ended since.
                    self.forget_asked();
                    None
                }
                Stage::Lists => None,
            },
        }
    }

    /// Removes a learner that is not in the list, because it had joined for a change that was not made.
    fn send_away(&self, seen: &MembersSeen) -> Option<Proposal> {
        if seen.learners.is_empty() {
            return None;
        }
        let servers = self.list()?;
        let id = seen.learners.iter().find(|id| !servers.0.contains_key(id))?;
        Some(Proposal { changes: Vec::from([(*id, Seat::None)]), context: Vec::new() })
    }

    fn go_over(&mut self, now: Millis, wall: WallMillis, zxid: u64, seen: &MembersSeen) -> Option<Proposal> {
        let asked = self.asked.as_mut()?;
        // Another change may be among what was ordered before this one was known.
        if self.proposed.front().is_some_and(|batch| Some(batch.first_zxid) <= asked.behind) {
            return None;
        }
        if apply::servers(self.machine.view()).is_none_or(|(_, version)| version != asked.version) {
            let origin = asked.origin;
            self.forget_asked();
            self.propose_for(origin, CommandKind::ReconfigFails(ErrorCode::ReconfigInProgress));
            return None;
        }
        let voters: BTreeSet<u8> =
            asked.servers.roles().filter(|(_, role)| *role == Role::Participant).map(|(id, _)| id).collect();
        let is_majority = |of: &BTreeSet<u8>| voters.intersection(of).count() * 2 > voters.len();
        if is_majority(&seen.reached) {
            asked.reached = now;
        }
        let waited = now.since(asked.since);
        let all = voters.iter().all(|id| seen.in_step.contains(id) || seen.voters.contains(id));
        let leaves = |id: &&u8| !asked.servers.0.contains_key(id);
        let told = seen.voters.union(&seen.learners).filter(leaves).all(|id| seen.in_step.contains(id));
        let goes_on = (all || waited >= RECONFIG_GRACE_MS) && (told || waited >= RECONFIG_FAREWELL_MS);
        if is_majority(&seen.in_step) && goes_on {
            return self.begin(wall, zxid, seen, &voters);
        }
        if now.since(asked.reached) >= RECONFIG_UNREACHED_MS || waited >= RECONFIG_CATCH_UP_MS {
            let origin = asked.origin;
            self.forget_asked();
            self.propose_for(origin, CommandKind::ReconfigFails(ErrorCode::NewConfigNoQuorum));
        }
        None
    }

    fn begin(&mut self, wall: WallMillis, zxid: u64, seen: &MembersSeen, voters: &BTreeSet<u8>) -> Option<Proposal> {
        let asked = self.asked.as_mut()?;
        let (lines, origin) = (Text::from(asked.servers.lines()), asked.origin);
        let seat = |id: &u8| match () {
            () if voters.contains(id) && (seen.voters.contains(id) || seen.in_step.contains(id)) => Seat::Voter,
            () if asked.servers.0.contains_key(id) => Seat::Learner,
            () => Seat::None,
        };
        let now = |id: &u8| match () {
            () if seen.voters.contains(id) => Seat::Voter,
            () if seen.learners.contains(id) => Seat::Learner,
            () => Seat::None,
        };
        let all: BTreeSet<u8> =
            seen.voters.iter().chain(&seen.learners).chain(asked.servers.0.keys()).copied().collect();
        let changes: Vec<(u8, Seat)> = all.iter().filter(|id| seat(id) != now(id)).map(|id| (*id, seat(id))).collect();
        if changes.is_empty() {
            // Only later votes are new. Waiting commands must find out that the list is another: batches no longer have
            // the mark of a change on its way.
            asked.stage = Stage::Lists;
            let begins = Command::own(origin, CommandKind::ReconfigBegins(lines));
            let commands = Vec::from([begins, Command::own(None, CommandKind::ReconfigEnds)]);
            self.queue.push_front(Proposals { commands, ..Proposals::default() });
            return None;
        }
        asked.stage = Stage::Begins;
        Some(Proposal { changes, context: self.context(wall, zxid, origin, CommandKind::ReconfigBegins(lines)) })
    }

    /// The proposal was not taken.
    pub fn reconfigure_failed(&mut self) {
        if let Some(asked) = self.asked.take_if(|asked| asked.stage == Stage::Begins) {
            self.asked_changes += 1;
            self.propose_for(asked.origin, CommandKind::ReconfigFails(ErrorCode::NewConfigNoQuorum));
        }
    }

    pub(super) fn propose_for(&mut self, origin: Option<Origin>, kind: CommandKind) {
        let commands = Vec::from([Command::own(origin, kind)]);
        self.wait(Proposals { commands, ..Proposals::default() });
    }

    fn context(&self, time: WallMillis, first_zxid: u64, origin: Option<Origin>, kind: CommandKind) -> Vec<u8> {
        let commands = Vec::from([Command::own(origin, kind)]);
        let features = self.config.features;
        Batch { time, first_zxid, features, identities: Vec::new(), commands }.encode()
    }
}

#[cfg(test)]
mod tests;
