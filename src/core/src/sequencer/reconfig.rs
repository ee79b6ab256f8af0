//! The leader's part in a membership change: from the request of a client, over the membership, to the new list.
//!
//! Pure: its input is the members as Raft observes them, and its output is the next proposal. The steps, each tried
//! again at the next look until it can be done:
//!
//! 1. A joining server is wanted as a member without a vote, and so receives everything ([`ServerList::wanted`]).
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

use crate::apply::outcome::Outcome;
use crate::apply::{self, Begun, StateMachine};
use crate::command::{Batch, Command, CommandKind};
use crate::ids::{Millis, Origin, ServerId, WallMillis};
use crate::limits::{RECONFIG_CATCH_UP_MS, RECONFIG_FAREWELL_MS, RECONFIG_GRACE_MS, RECONFIG_UNREACHED_MS};
use crate::servers::{Role, Servers};
use crate::shared::Text;
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
    /// No seat changes: the commands that change the list alone are on their way.
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

/// How far a membership change is. The first two only the leader knows of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReconfigStep {
    /// None is under way.
    #[default]
    None,
    /// Joining servers receive everything, until a majority of the new list is in step.
    CatchingUp,
    /// The entry with which the old and the new list begin to count is on its way.
    Entering,
    /// Majorities of both lists are needed, until the entry is committed with which the new one counts alone.
    Joint,
}

impl ReconfigStep {
    /// All steps, in their order.
    pub const ALL: [Self; 4] = [Self::None, Self::CatchingUp, Self::Entering, Self::Joint];

    /// The name in `mntr`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::CatchingUp => "catching-up",
            Self::Entering => "entering",
            Self::Joint => "joint",
        }
    }
}

/// The members as Raft observes them.
#[derive(Clone, Debug, Default)]
pub struct MembersSeen {
    /// Ids of the servers with a vote; during a joint change, in the new list.
    pub voters: BTreeSet<ServerId>,
    /// Ids of the servers without a vote: joining servers and observers.
    pub learners: BTreeSet<ServerId>,
    /// The membership is in the middle of a change.
    pub joint: bool,
    /// Members that sent a message lately, with this server.
    pub reached: BTreeSet<ServerId>,
    /// Members that lack little of the log, with this server.
    pub in_step: BTreeSet<ServerId>,
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
    pub changes: Vec<(ServerId, Seat)>,
    /// As a payload of the log; where it is not empty, changes are made jointly and not ended before the next proposal.
    pub context: Vec<u8>,
}

/// The next work of the sequencer for a change.
pub(super) enum Step {
    /// Proposes an entry of its own. The command in an entry that ends a joint change takes the next zxid.
    Propose(Proposal),
    /// Proposes a command, behind everything that waits.
    Last(Command),
    /// Proposes commands, ahead of everything that waits.
    First(Vec<Command>),
}

/// The present state of the sequencer, as far as the next step depends on it.
pub(super) struct Present<'m> {
    pub(super) now: Millis,
    pub(super) wall: WallMillis,
    pub(super) machine: &'m StateMachine,
    /// The zxid that the next command takes.
    pub(super) next_zxid: u64,
    /// The configured bits of `features`.
    pub(super) features: u32,
    /// First zxid of the oldest batch that is proposed and not applied.
    pub(super) oldest_proposed: Option<u64>,
    /// No command waits, and no batch is proposed that is not applied.
    pub(super) is_idle: bool,
}

impl Present<'_> {
    /// The payload of an entry with this command.
    fn context(&self, origin: Option<Origin>, kind: CommandKind) -> Vec<u8> {
        let commands = Vec::from([Command::own(origin, kind)]);
        let (time, first_zxid, features) = (self.wall, self.next_zxid, self.features);
        Batch { time, first_zxid, features, identities: Vec::new(), commands }.encode()
    }
}

/// Changes of the list that the state does not hold.
#[derive(Default)]
pub(super) struct Reconfiguration {
    /// A change on request of a client, while this server leads.
    asked: Option<Box<Asked>>,
    /// Index of the last committed change that a corrupt state does not apply, and its list.
    ahead: Option<(u64, Servers)>,
    /// How often these two have changed.
    unapplied_changes: u64,
}

impl Reconfiguration {
    /// A change was ordered, or came to its end. `newest_proposed` is the first zxid of the last batch that is proposed and not
    /// applied. Returns the answer to a change that cannot begin.
    pub(super) fn track(
        &mut self,
        now: Millis,
        machine: &StateMachine,
        newest_proposed: Option<u64>,
        origin: Option<Origin>,
        outcome: &Outcome,
    ) -> Option<Command> {
        match outcome {
            // It has passed all checks that need no look at the members.
            Outcome::Underway(next) => {
                if self.asked.is_some() || machine.begun().is_some() {
                    return Some(failed(origin, ErrorCode::ReconfigInProgress));
                }
                let (servers, version) = (next.0.clone(), next.1);
                let behind = newest_proposed;
                let stage = Stage::Waits;
                self.asked =
                    Some(Box::new(Asked { servers, version, behind, origin, since: now, reached: now, stage }));
                self.unapplied_changes += 1;
            }
            // While this change waits, an ordered list is that of another command, and this change is answered in its
            // turn.
            Outcome::Later(answer)
                if matches!(**answer, Outcome::Configured(_))
                    && self.asked.as_ref().is_some_and(|asked| asked.stage != Stage::Waits) =>
            {
                self.forget();
            }
            _ => {}
        }
        None
    }

    /// Whether a change was asked for and is not in the log: no other change may begin. Once this change is in the log,
    /// later commands find out by themselves whether it has ended. Another server may have answered its client before
    /// this server has applied it.
    pub(super) fn waits(&self) -> bool {
        self.asked.as_ref().is_some_and(|asked| asked.stage == Stage::Waits)
    }

    pub(super) fn forget(&mut self) {
        self.unapplied_changes += u64::from(self.asked.take().is_some());
    }

    /// Another list may have taken the place of the former one.
    pub(super) const fn note_installed(&mut self, list_changes: u64) {
        self.unapplied_changes += list_changes + 1;
    }

    /// See [`Machine::membership_ahead`](corral_types::Machine::membership_ahead). A step without a list keeps the last one.
    pub(super) fn note_ahead(&mut self, index: u64, context: &[u8]) {
        if let Some(begun) = Begun::decode(context) {
            self.ahead = Some((index, begun.servers));
            self.unapplied_changes += 1;
        }
    }

    /// Whether a change is under way.
    pub(super) fn is_under_way(&self, machine: &StateMachine) -> bool {
        self.asked.is_some() || machine.begun().is_some()
    }

    /// The next step of a membership change, if one can be done now.
    pub(super) fn next(&mut self, present: &Present<'_>, seen: &MembersSeen) -> Option<Step> {
        if let Some(begun) = present.machine.begun() {
            if seen.joint {
                let context = present.context(None, CommandKind::ReconfigEnds);
                return Some(Step::Propose(Proposal { changes: Vec::new(), context }));
            }
            // It did not fit the membership.
            return present.is_idle.then(|| Step::Last(failed(begun.origin, ErrorCode::NewConfigNoQuorum)));
        }
        if seen.joint {
            return None;
        }
        match self.asked.as_ref().map(|asked| asked.stage) {
            None => send_away(present.machine, seen).map(Step::Propose),
            Some(Stage::Waits) => self.go_over(present, seen),
            Some(Stage::Begins) => {
                // Begun and ended since.
                self.forget();
                None
            }
            Some(Stage::Lists) => None,
        }
    }

    fn go_over(&mut self, present: &Present<'_>, seen: &MembersSeen) -> Option<Step> {
        let asked = self.asked.as_mut()?;
        // Another change may be among what was ordered before this one was known.
        if present.oldest_proposed.is_some_and(|zxid| Some(zxid) <= asked.behind) {
            return None;
        }
        let (origin, now) = (asked.origin, present.now);
        if apply::servers(present.machine.view()).is_none_or(|(_, version)| version != asked.version) {
            self.forget();
            return Some(Step::Last(failed(origin, ErrorCode::ReconfigInProgress)));
        }
        let voters: BTreeSet<ServerId> =
            asked.servers.roles().filter(|(_, role)| *role == Role::Participant).map(|(id, _)| id).collect();
        let is_majority = |of: &BTreeSet<ServerId>| voters.intersection(of).count() * 2 > voters.len();
        if is_majority(&seen.reached) {
            asked.reached = now;
        }
        let waited = now.since(asked.since);
        let all = voters.iter().all(|id| seen.in_step.contains(id) || seen.voters.contains(id));
        let leaves = |id: &&ServerId| !asked.servers.0.contains_key(id);
        let told = seen.voters.union(&seen.learners).filter(leaves).all(|id| seen.in_step.contains(id));
        let goes_on = (all || waited >= RECONFIG_GRACE_MS) && (told || waited >= RECONFIG_FAREWELL_MS);
        if is_majority(&seen.in_step) && goes_on {
            return Some(asked.begin(present, seen, &voters));
        }
        if now.since(asked.reached) >= RECONFIG_UNREACHED_MS || waited >= RECONFIG_CATCH_UP_MS {
            self.forget();
            return Some(Step::Last(failed(origin, ErrorCode::NewConfigNoQuorum)));
        }
        None
    }

    /// The proposal was not taken. Returns the answer to the change.
    pub(super) fn fail(&mut self) -> Option<Command> {
        let asked = self.asked.take_if(|asked| asked.stage == Stage::Begins)?;
        self.unapplied_changes += 1;
        Some(failed(asked.origin, ErrorCode::NewConfigNoQuorum))
    }
}

impl Asked {
    fn begin(&mut self, present: &Present<'_>, seen: &MembersSeen, voters: &BTreeSet<ServerId>) -> Step {
        let begins = CommandKind::ReconfigBegins(Text::from(self.servers.lines()));
        let seat = |id: &ServerId| match () {
            () if voters.contains(id) && (seen.voters.contains(id) || seen.in_step.contains(id)) => Seat::Voter,
            () if self.servers.0.contains_key(id) => Seat::Learner,
            () => Seat::None,
        };
        let now = |id: &ServerId| match () {
            () if seen.voters.contains(id) => Seat::Voter,
            () if seen.learners.contains(id) => Seat::Learner,
            () => Seat::None,
        };
        let all: BTreeSet<_> = seen.voters.iter().chain(&seen.learners).chain(self.servers.0.keys()).copied().collect();
        let changes: Vec<_> = all.iter().filter(|id| seat(id) != now(id)).map(|id| (*id, seat(id))).collect();
        if changes.is_empty() {
            // Only later votes are new. Waiting commands must find out that the list is another: batches no longer have
            // the mark of a change on its way.
            self.stage = Stage::Lists;
            let begins = Command::own(self.origin, begins);
            return Step::First(Vec::from([begins, Command::own(None, CommandKind::ReconfigEnds)]));
        }
        self.stage = Stage::Begins;
        Step::Propose(Proposal { changes, context: present.context(self.origin, begins) })
    }
}

fn failed(origin: Option<Origin>, error: ErrorCode) -> Command {
    Command::own(origin, CommandKind::ReconfigFails(error))
}

/// Removes a learner that is not in the list, because it had joined for a change that was not made.
fn send_away(machine: &StateMachine, seen: &MembersSeen) -> Option<Proposal> {
    if seen.learners.is_empty() {
        return None;
    }
    let (servers, _) = listed(machine)?;
    let id = seen.learners.iter().find(|id| !servers.0.contains_key(id))?;
    Some(Proposal { changes: Vec::from([(*id, Seat::None)]), context: Vec::new() })
}

/// The list and its version, if clients may change it or have changed it.
fn listed(machine: &StateMachine) -> Option<(Servers, u64)> {
    apply::servers(machine.view()).filter(|(_, version)| *version != 0)
}

/// The list of servers, and the change of it that is under way.
#[derive(Clone, Copy)]
pub struct ServerList<'s> {
    machine: &'s StateMachine,
    reconfiguration: &'s Reconfiguration,
    /// Index of the last entry that the state holds.
    applied: u64,
}

impl<'s> ServerList<'s> {
    pub(super) const fn new(machine: &'s StateMachine, reconfiguration: &'s Reconfiguration, applied: u64) -> Self {
        Self { machine, reconfiguration, applied }
    }

    /// How far a membership change is, as far as this server knows.
    pub fn step(&self) -> ReconfigStep {
        match (&self.reconfiguration.asked, self.machine.begun()) {
            (_, Some(_)) => ReconfigStep::Joint,
            (Some(asked), None) if asked.stage == Stage::Waits => ReconfigStep::CatchingUp,
            (Some(_), None) => ReconfigStep::Entering,
            (None, None) => ReconfigStep::None,
        }
    }

    /// Changes whenever [`ServerList::known`] does.
    pub const fn version(&self) -> u64 {
        self.machine.list_changes() + self.reconfiguration.unapplied_changes
    }

    /// The list and its version, if clients may change it or have changed it; otherwise each server goes by its own
    /// configuration.
    pub fn listed(&self) -> Option<(Servers, u64)> {
        listed(self.machine)
    }

    fn list(&self) -> Option<Servers> {
        self.listed().map(|(servers, _)| servers)
    }

    /// Returns all servers that this one must be able to reach: the servers of the list, and the joining servers. With
    /// a corrupt state, also those of a committed change. `None` where the configuration counts.
    pub fn known(&self) -> Option<Servers> {
        let mut servers = self.list()?;
        let asked = self.reconfiguration.asked.as_ref().map(|asked| &asked.servers);
        let ahead = self.reconfiguration.ahead.as_ref().filter(|(index, _)| *index > self.applied);
        let more = [asked, self.machine.begun().map(|begun| &begun.servers), ahead.map(|(_, servers)| servers)];
        for (id, server) in more.into_iter().flatten().flat_map(|list| &list.0) {
            // A server that moves is reached at its old address until the list has the new one.
            servers.0.entry(*id).or_insert_with(|| server.clone());
        }
        Some(servers)
    }

    /// Whether a server is in the list, or, while that is being changed, will be; `None` where the configuration
    /// counts.
    pub fn lists(&self, server: ServerId) -> Option<bool> {
        let list = self.list()?;
        let next = self.machine.begun().map_or(&list, |begun| &begun.servers);
        Some(next.0.contains_key(&server))
    }

    /// Returns the servers that should be members now, and their roles. `None` where the configuration counts. A
    /// joining server learns first, and a future observer gets no vote any more.
    pub fn wanted(&self) -> Option<Vec<(ServerId, Role)>> {
        let servers = self.list()?;
        let mut wanted: Vec<(ServerId, Role)> = servers.roles().collect();
        if let Some(asked) = &self.reconfiguration.asked {
            let observes = |id: &ServerId| asked.servers.0.get(id).is_some_and(|server| server.role == Role::Observer);
            wanted.iter_mut().filter(|(id, _)| observes(id)).for_each(|(_, role)| *role = Role::Observer);
            let joining = asked.servers.0.keys().filter(|id| !servers.0.contains_key(id));
            wanted.extend(joining.map(|id| (*id, Role::Observer)));
        }
        Some(wanted)
    }
}

#[cfg(test)]
mod tests;
