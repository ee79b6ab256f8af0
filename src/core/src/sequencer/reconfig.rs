//! The leader's part in a change of the list of servers: from what a client asked for, over the membership, to the new list.
//!
//! Pure: it is told what Raft sees of the members, and says what to propose. The steps, each tried again at the next look
//! until it can be done:
//!
//! 1. Who joins is wanted as a member without a vote, and so is given everything ([`Sequencer::wanted`]).
//! 2. Once a majority of the new list is in step the membership goes over to it, jointly. The entry that begins this brings
//!    the new list and who asked for it, so that every server knows them. Who has not caught up then is a member without a
//!    vote and has it later, as soon as he has. If no majority comes, nothing happens, but that the client is told so.
//! 3. The entry that ends it, which a majority of the new servers alone has to have, brings the word to put the list
//!    into the tree: the client hears of it when the old servers are not needed any more.
//!
//! A new leader goes on with what was begun. What was not begun ends with its leader, and with it the connection of the
//! client; who had joined is sent away again.

use super::Sequencer;
use crate::change::Outcome;
use crate::command::{Batch, Command, CommandKind, Origin, Proposals};
use crate::evaluate::{self, features};
use crate::ids::{Millis, SessionId, WallMillis};
use crate::limits::{RECONFIG_CATCH_UP_MS, RECONFIG_GRACE_MS, RECONFIG_UNREACHED_MS};
use crate::report::ReconfigStep;
use crate::servers::{Role, Servers};
use crate::shared::Text;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use corral_wire::error::ErrorCode;

/// What a client asked for and is not begun.
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
    /// The entry that begins it is on its way.
    proposed: bool,
}

/// What Raft sees of the members.
#[derive(Clone, Debug, Default)]
pub struct MembersSeen {
    pub voters: BTreeSet<u8>,
    pub learners: BTreeSet<u8>,
    /// The membership is in the middle of a change.
    pub joint: bool,
    /// Those that were heard from lately; with this server.
    pub reached: BTreeSet<u8>,
    /// Those that lack little of the log; with this server.
    pub in_step: BTreeSet<u8>,
}

/// A member's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seat {
    Voter,
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
            Some(Box::new(Asked { servers, version, behind, origin, since: now, reached: now, proposed: false }));
        self.asked_changes += 1;
    }

    /// A change was ordered, or came to its end.
    pub(super) fn track_change(&mut self, now: Millis, origin: Option<Origin>, outcome: &Outcome) {
        match outcome {
            Outcome::Underway(next) => self.ask(now, origin, &next.0, next.1),
            // One that was ordered meanwhile is another's: it is answered when its turn comes.
            Outcome::Later(answer)
                if matches!(**answer, Outcome::Configured(_))
                    && self.asked.as_ref().is_some_and(|asked| asked.proposed) =>
            {
                self.forget_asked();
            }
            _ => {}
        }
    }

    /// As configured, and that no other change is to be taken up. Once this one is in the log, what is ordered behind it finds
    /// out by itself whether it has ended: another server may have told its client so before this one has applied it.
    pub(super) fn features(&self) -> u32 {
        let waits = self.asked.as_ref().is_some_and(|asked| !asked.proposed);
        let reconfiguring = if waits { features::RECONFIGURING } else { 0 };
        self.config.features | reconfiguring
    }

    pub(super) fn forget_asked(&mut self) {
        self.asked_changes += u64::from(self.asked.take().is_some());
    }

    /// Whether a look at the members is worth while before the next tick.
    pub fn is_reconfiguring(&self) -> bool {
        self.is_leading() && (self.asked.is_some() || self.machine.begun().is_some())
    }

    /// How far a change of the list of servers is, as far as this server knows.
    pub fn reconfig_step(&self) -> ReconfigStep {
        match (&self.asked, self.machine.begun()) {
            (_, Some(_)) => ReconfigStep::Joint,
            (Some(asked), None) if asked.proposed => ReconfigStep::Entering,
            (Some(_), None) => ReconfigStep::CatchingUp,
            (None, None) => ReconfigStep::None,
        }
    }

    /// Changes whenever [`Sequencer::known_servers`] does.
    pub const fn servers_version(&self) -> u64 {
        self.machine.list_changes() + self.asked_changes
    }

    /// The list, if clients may change it or have changed it; otherwise each server goes by its own configuration.
    fn list(&self) -> Option<Servers> {
        let (servers, version) = evaluate::servers(self.machine.view())?;
        (version != 0).then_some(servers)
    }

    /// All servers that this one has to be able to reach: those of the list, and those who are to join. `None` where the
    /// configuration counts.
    pub fn known_servers(&self) -> Option<Servers> {
        let mut servers = self.list()?;
        let more = [self.asked.as_ref().map(|asked| &asked.servers), self.machine.begun().map(|begun| &begun.servers)];
        for (id, server) in more.into_iter().flatten().flat_map(|list| &list.0) {
            // One that moves is found where it was until the list says so.
            servers.0.entry(*id).or_insert_with(|| server.clone());
        }
        Some(servers)
    }

    /// Whether this server is in the list, or, while that is being changed, will be; `None` where the configuration counts.
    pub fn lists(&self, server: u8) -> Option<bool> {
        let list = self.list()?;
        let next = self.machine.begun().map_or(&list, |begun| &begun.servers);
        Some(next.0.contains_key(&server))
    }

    /// Who ought to be a member now, and with which role; `None` where the configuration counts. Who is to join is to learn
    /// first.
    pub fn wanted(&self) -> Option<Vec<(u8, Role)>> {
        let servers = self.list()?;
        let mut wanted: Vec<(u8, Role)> = servers.roles().collect();
        if let Some(asked) = &self.asked {
            let joining = asked.servers.0.keys().filter(|id| !servers.0.contains_key(id));
            wanted.extend(joining.map(|id| (*id, Role::Observer)));
        }
        Some(wanted)
    }

    /// The next step of a change of the list of servers, if one can be done now. To be called only when the log has room
    /// for it and no change of the membership is on its way; what is given has to be proposed at once.
    pub fn reconfigure(&mut self, now: Millis, wall: WallMillis, seen: &MembersSeen) -> Option<Proposal> {
        let zxid = self.next_zxid?;
        if let Some(begun) = self.machine.begun() {
            if !seen.joint {
                // It did not fit the membership.
                let origin = begun.origin;
                let fails = CommandKind::ReconfigFails(ErrorCode::NewConfigNoQuorum);
                if self.commands_waiting == 0 && self.proposed.is_empty() {
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
            Some(asked) if asked.proposed => {
                // Begun and ended since.
                self.forget_asked();
                None
            }
            Some(_) => self.go_over(now, wall, zxid, seen),
        }
    }

    /// Who learns and is not in the list had joined for a change that was not made.
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
        if evaluate::servers(self.machine.view()).is_none_or(|(_, version)| version != asked.version) {
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
        if is_majority(&seen.in_step) && (all || waited >= RECONFIG_GRACE_MS) {
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
        asked.proposed = true;
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
            // All that is new is who will have a vote later. What waits has to find out that the list is another: no batch
            // says any more that a change is on its way.
            self.forget_asked();
            let own = |origin, kind| Command { origin, session: SessionId(0), identities: 0, kind };
            let commands =
                Vec::from([own(origin, CommandKind::ReconfigBegins(lines)), own(None, CommandKind::ReconfigEnds)]);
            self.wait_in_front(Proposals { commands, ..Proposals::default() });
            return None;
        }
        Some(Proposal { changes, context: self.context(wall, zxid, origin, CommandKind::ReconfigBegins(lines)) })
    }

    /// The proposal was not taken.
    pub fn reconfigure_failed(&mut self) {
        if let Some(asked) = self.asked.take_if(|asked| asked.proposed) {
            self.asked_changes += 1;
            self.propose_for(asked.origin, CommandKind::ReconfigFails(ErrorCode::NewConfigNoQuorum));
        }
    }

    fn propose_for(&mut self, origin: Option<Origin>, kind: CommandKind) {
        let commands = Vec::from([Command { origin, session: SessionId(0), identities: 0, kind }]);
        self.wait(Proposals { commands, ..Proposals::default() });
    }

    fn context(&self, time: WallMillis, first_zxid: u64, origin: Option<Origin>, kind: CommandKind) -> Vec<u8> {
        let commands = Vec::from([Command { origin, session: SessionId(0), identities: 0, kind }]);
        let features = self.config.features;
        Batch { time, first_zxid, features, identities: Vec::new(), commands }.encode()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::StateMachine;
    use crate::ids::{ConnId, ShardId};
    use crate::reaper::ReapPolicy;
    use crate::sequencer::{SequencerConfig, SnapshotPolicy};
    use crate::session::SessionTable;
    use crate::view::View;

    const LINES: &str = "server.1=a:1:2:participant;3\nserver.2=b:1:2:participant;3\nserver.3=c:1:2:participant;3\n";
    const ASKER: Origin =
        Origin { server: 2, shard: ShardId(0), conn: ConnId { slot: 1, generation: 1 }, incarnation: 1 };

    /// A leader, server 1 of three, and what it sees of the others.
    struct Leader {
        sequencer: Sequencer,
        seen: MembersSeen,
        index: u64,
        now: u64,
    }

    fn set(ids: &[u8]) -> BTreeSet<u8> {
        ids.iter().copied().collect()
    }

    impl Leader {
        fn new() -> Self {
            let config = SequencerConfig {
                server: 1,
                incarnation: 1,
                tick_ms: 10,
                features: features::RECONFIG | features::SKIP_ACL,
                batch_bytes_max: 1000,
                snapshot: SnapshotPolicy::NEVER,
                reap: ReapPolicy { check_interval_ms: 1000, deletes_per_minute_max: 1, never_used_max_ms: 0 },
            };
            let machine = StateMachine::new(View::empty(7), SessionTable::new());
            let mut sequencer = Sequencer::new(config, machine, 0, 0);
            sequencer.configure(Text::from(LINES));
            sequencer.lead(Millis(0), 1);
            let three = set(&[1, 2, 3]);
            let seen =
                MembersSeen { voters: three.clone(), reached: three.clone(), in_step: three, ..MembersSeen::default() };
            let mut leader = Self { sequencer, seen, index: 0, now: 0 };
            leader.order();
            leader
        }

        /// Everything that waits is ordered and applied; the answers to what was under way.
        fn order(&mut self) -> Vec<Outcome> {
            let mut answers = Vec::new();
            while let Some(batch) = self.sequencer.next_batch(WallMillis(5)) {
                let payload = batch.encode();
                self.sequencer.proposed(batch);
                answers.extend(self.commit(&payload, true));
            }
            answers
        }

        fn commit(&mut self, payload: &[u8], own: bool) -> Vec<Outcome> {
            self.index += 1;
            let applied = self.sequencer.commit(Millis(self.now), self.index, 1, payload, own).expect("a batch");
            let later = applied.txns.into_iter().filter_map(|txn| match txn.outcome {
                Outcome::Later(answer) => {
                    assert_eq!(txn.origin, Some(ASKER));
                    Some(*answer)
                }
                _ => None,
            });
            later.collect()
        }

        /// A client asks; the checks of evaluation are not looked at here.
        fn ask(&mut self, joining: &str, leaving: &str) {
            let text = |text: &str| (!text.is_empty()).then(|| Text::from(text));
            let request =
                crate::servers::Reconfig { joining: text(joining), leaving: text(leaving), members: None, from: -1 };
            let (present, version) = evaluate::servers(self.sequencer.machine().view()).expect("there is a list");
            let next = request.apply(&present, 1).expect("it is legal");
            self.sequencer.ask(Millis(self.now), Some(ASKER), &next, version);
        }

        fn look(&mut self, ms: u64) -> Option<Proposal> {
            self.now += ms;
            self.sequencer.reconfigure(Millis(self.now), WallMillis(5), &self.seen)
        }

        /// The membership goes over, as Raft would do it, and the list is there.
        fn carry_out(&mut self, begins: Proposal) -> Vec<Outcome> {
            assert!(self.commit(&begins.context, false).is_empty());
            self.seen.joint = true;
            assert_eq!(self.sequencer.reconfig_step(), ReconfigStep::Joint);
            let ends = self.look(1).expect("nothing is in the way");
            assert!(ends.changes.is_empty());
            let answers = self.commit(&ends.context, false);
            self.seen.joint = false;
            for (id, seat) in begins.changes {
                self.seen.voters.remove(&id);
                self.seen.learners.remove(&id);
                match seat {
                    Seat::Voter => self.seen.voters.insert(id),
                    Seat::Learner => self.seen.learners.insert(id),
                    Seat::None => false,
                };
            }
            assert!(!self.sequencer.is_reconfiguring() && self.sequencer.reconfig_step() == ReconfigStep::None);
            answers
        }

        fn ids(&self) -> Vec<u8> {
            let list = evaluate::servers(self.sequencer.machine().view()).expect("there is a list").0;
            list.0.keys().copied().collect()
        }
    }

    fn configured(answers: &[Outcome]) -> bool {
        matches!(answers, [Outcome::Configured(_)])
    }

    fn failed(answers: &[Outcome], code: ErrorCode) -> bool {
        matches!(answers, [answer] if *answer == Outcome::refused(code))
    }

    #[test]
    fn who_joins_learns_first() {
        let mut leader = Leader::new();
        let version = leader.sequencer.servers_version();
        leader.ask("server.4=d:1:2;3", "");
        assert!(leader.sequencer.is_reconfiguring() && leader.sequencer.servers_version() != version);
        assert!(leader.sequencer.known_servers().is_some_and(|list| list.0.contains_key(&4)), "it is to be dialled");
        assert_eq!(leader.sequencer.wanted().expect("a list").last(), Some(&(4, Role::Observer)));
        assert_eq!(leader.look(10), None, "a majority is there, and the joiner may yet come");
        assert_eq!(leader.sequencer.reconfig_step(), ReconfigStep::CatchingUp);
        (leader.seen.learners, leader.seen.in_step) = (set(&[4]), set(&[1, 2, 3, 4]));
        let begins = leader.look(10).expect("it is in step");
        assert_eq!(
            (begins.changes.as_slice(), leader.sequencer.reconfig_step()),
            (&[(4, Seat::Voter)][..], ReconfigStep::Entering)
        );
        assert_eq!(leader.ids(), [1, 2, 3]);
        let answers = leader.carry_out(begins);
        assert!(configured(&answers));
        assert_eq!(leader.ids(), [1, 2, 3, 4]);
        assert_eq!(leader.look(10), None);
    }

    #[test]
    fn nobody_waits_for_long_for_one_who_is_not_needed() {
        let mut leader = Leader::new();
        leader.ask("server.4=d:1:2;3", "");
        leader.seen.learners = set(&[4]);
        assert_eq!(leader.look(RECONFIG_GRACE_MS - 1), None);
        assert_eq!(leader.look(1), None);
        let answers = leader.order();
        assert!(configured(&answers), "it learns already, and votes later: {answers:?}");
        assert_eq!(leader.ids(), [1, 2, 3, 4]);
        assert_eq!(leader.sequencer.wanted().expect("a list").last(), Some(&(4, Role::Participant)));
        assert_eq!(leader.look(10), None);
    }

    #[test]
    fn without_a_majority_nothing_happens() {
        let mut leader = Leader::new();
        leader.ask("server.4=d:1:2;3,server.5=e:1:2;3", "2,3");
        leader.seen.learners = set(&[4, 5]);
        assert_eq!(leader.look(RECONFIG_UNREACHED_MS), None);
        assert!(failed(&leader.order(), ErrorCode::NewConfigNoQuorum));
        assert_eq!(leader.ids(), [1, 2, 3]);
        assert_eq!(leader.look(1), Some(Proposal { changes: [(4, Seat::None)].into(), context: Vec::new() }));
        // Who can be reached is waited for.
        let mut leader = Leader::new();
        leader.ask("server.4=d:1:2;3,server.5=e:1:2;3", "2,3");
        leader.seen.reached = set(&[1, 4]);
        for _ in 0..RECONFIG_CATCH_UP_MS / 1000 - 1 {
            assert_eq!(leader.look(1000), None);
            assert!(leader.order().is_empty());
        }
        assert_eq!(leader.look(1000), None);
        assert!(failed(&leader.order(), ErrorCode::NewConfigNoQuorum));
    }

    #[test]
    fn one_after_the_other() {
        let mut leader = Leader::new();
        leader.ask("server.4=d:1:2:observer;3", "");
        leader.ask("", "3");
        assert!(failed(&leader.order(), ErrorCode::ReconfigInProgress));
        let begins = leader.look(1).expect("an observer is not waited for");
        assert_eq!(begins.changes, [(4, Seat::Learner)]);
        assert!(configured(&leader.carry_out(begins)));
        leader.ask("", "1,4");
        let begins = leader.look(1).expect("the others are in step");
        assert_eq!(begins.changes, [(1, Seat::None), (4, Seat::None)]);
        assert_eq!([1, 2].map(|id| leader.sequencer.lists(id)), [Some(true); 2]);
        assert!(configured(&leader.carry_out(begins)));
        assert_eq!([1, 2].map(|id| leader.sequencer.lists(id)), [Some(false), Some(true)]);
        assert_eq!(leader.ids(), [2, 3]);
        leader.ask("server.2=b:1:2:observer;3", "");
        let begins = leader.look(1).expect("one is enough");
        assert_eq!(begins.changes, [(2, Seat::Learner)]);
    }

    /// It was forgotten with the end of the one before, and its client waited for ever.
    #[test]
    fn who_asks_before_the_end_of_another_change_is_answered() {
        let mut leader = Leader::new();
        leader.ask("server.4=d:1:2;3", "");
        leader.seen.learners = set(&[4]);
        assert_eq!(leader.look(RECONFIG_GRACE_MS), None, "it learns already, and votes later");
        leader.ask("", "3");
        assert!(configured(&leader.order()));
        assert_eq!(leader.look(1), None);
        assert!(
            failed(&leader.order(), ErrorCode::ReconfigInProgress),
            "the list is another one than it was asked for"
        );
        assert_eq!(leader.ids(), [1, 2, 3, 4]);
        assert!(!leader.sequencer.is_reconfiguring());
    }

    /// A change of an address that waited then was made first, and was lost with the list that had been asked for before.
    #[test]
    fn nothing_that_waits_comes_before_a_change_of_the_list_alone() {
        let mut leader = Leader::new();
        leader.ask("server.4=d:1:2;3", "");
        leader.seen.learners = set(&[4]);
        leader.sequencer.propose_own(CommandKind::ReconfigFails(ErrorCode::NewConfigNoQuorum));
        assert_eq!(leader.look(RECONFIG_GRACE_MS), None, "it learns already, and votes later");
        let batch = leader.sequencer.next_batch(WallMillis(5)).expect("something waits");
        let kinds: Vec<&CommandKind> = batch.commands.iter().map(|command| &command.kind).collect();
        assert!(
            matches!(
                kinds[..],
                [CommandKind::ReconfigBegins(_), CommandKind::ReconfigEnds, CommandKind::ReconfigFails(_)]
            ),
            "{kinds:?}"
        );
    }

    #[test]
    fn no_other_change_slips_in_between() {
        let mut leader = Leader::new();
        let own = |sequencer: &mut Sequencer| sequencer.propose_own(CommandKind::ReconfigEnds);
        own(&mut leader.sequencer);
        let before = leader.sequencer.next_batch(WallMillis(5)).expect("something waits");
        assert_eq!(before.features & features::RECONFIGURING, 0);
        let payload = before.encode();
        leader.sequencer.proposed(before);
        leader.ask("", "3");
        assert_eq!(leader.look(1), None, "who knows what is in that batch");
        own(&mut leader.sequencer);
        let behind = leader.sequencer.next_batch(WallMillis(5)).expect("something waits");
        assert_ne!(behind.features & features::RECONFIGURING, 0);
        leader.sequencer.proposed(behind);
        leader.commit(&payload, true);
        assert!(leader.look(1).is_some());
        // In that batch was another change.
        let mut leader = Leader::new();
        let (present, version) = evaluate::servers(leader.sequencer.machine().view()).expect("there is a list");
        leader.sequencer.ask(Millis(0), Some(ASKER), &present, version - 1);
        assert_eq!(leader.look(1), None);
        assert!(failed(&leader.order(), ErrorCode::ReconfigInProgress));
    }

    #[test]
    fn a_new_leader_goes_on_with_what_was_begun() {
        let mut leader = Leader::new();
        leader.ask("", "3");
        let begins = leader.look(1).expect("the others are in step");
        leader.commit(&begins.context, false);
        leader.seen.joint = true;
        leader.sequencer.follow();
        assert!(!leader.sequencer.is_reconfiguring() && leader.look(1).is_none());
        leader.sequencer.lead(Millis(leader.now), 2);
        assert!(leader.sequencer.is_reconfiguring());
        let ends = leader.look(1).expect("it was begun");
        assert!(configured(&leader.commit(&ends.context, false)));
        assert_eq!(leader.ids(), [1, 2]);
    }

    #[test]
    fn what_raft_refuses_is_told() {
        let mut leader = Leader::new();
        leader.ask("", "3");
        assert!(leader.look(1).is_some());
        leader.sequencer.reconfigure_failed();
        assert!(failed(&leader.order(), ErrorCode::NewConfigNoQuorum));
        leader.ask("", "3");
        let begins = leader.look(1).expect("again");
        leader.commit(&begins.context, false);
        assert_eq!(leader.look(1), None, "it is in the log, and the membership is what it was");
        assert!(failed(&leader.order(), ErrorCode::NewConfigNoQuorum));
        assert!(leader.sequencer.machine().begun().is_none());
    }
}
