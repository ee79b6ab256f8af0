//! Membership changes, as a leader of three takes them.

use super::*;
use crate::apply::StateMachine;
use crate::features;
use crate::ids::{ConnId, ServerId, ShardId};
use crate::sequencer::reaper::ReapPolicy;
use crate::sequencer::{Sequencer, SequencerConfig};
use crate::servers::reconfig::Reconfig;
use crate::session::SessionTable;
use crate::tree::view::View;

const LINES: &str = "server.1=a:1:2:participant;3\nserver.2=b:1:2:participant;3\nserver.3=c:1:2:participant;3\n";
const ASKER: Origin =
    Origin { server: ServerId(2), shard: ShardId(0), conn: ConnId { slot: 1, generation: 1 }, incarnation: 1 };

/// A leader, server 1 of three, and the members as it observes them.
struct Leader {
    sequencer: Sequencer,
    seen: MembersSeen,
    index: u64,
    now: u64,
}

fn set(ids: &[u8]) -> BTreeSet<ServerId> {
    ids.iter().copied().map(ServerId).collect()
}

impl Leader {
    fn new() -> Self {
        let config = SequencerConfig {
            tick_ms: 10,
            features: features::RECONFIG | features::SKIP_ACL,
            batch_bytes_max: 1000,
            reap: ReapPolicy { check_interval_ms: 1000, deletes_per_minute_max: 1, never_used_max_ms: 0 },
            ..SequencerConfig::default()
        };
        let machine = StateMachine::new(View::empty(7), SessionTable::new());
        let mut sequencer = Sequencer::new(config, machine, 0, 0);
        sequencer.configure(Text::from(LINES));
        sequencer.begin_leadership(Millis(0), 1);
        let three = set(&[1, 2, 3]);
        let seen =
            MembersSeen { voters: three.clone(), reached: three.clone(), in_step: three, ..MembersSeen::default() };
        let mut leader = Self { sequencer, seen, index: 0, now: 0 };
        leader.order();
        leader
    }

    /// Orders and applies all waiting commands. Returns the answers to operations that were under way.
    fn order(&mut self) -> Vec<Outcome> {
        let mut answers = Vec::new();
        while let Some(batch) = self.sequencer.take_batch(WallMillis(5)) {
            let payload = batch.encode();
            self.sequencer.proposed(batch);
            answers.extend(self.commit(&payload, true));
        }
        answers
    }

    fn commit(&mut self, payload: &[u8], own: bool) -> Vec<Outcome> {
        self.index += 1;
        let applied = self.sequencer.apply_entry(Millis(self.now), self.index, 1, payload, own).expect("a batch");
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
        let request = Reconfig { joining: text(joining), leaving: text(leaving), members: None, from: -1 };
        let (present, version) = apply::servers(self.sequencer.machine().view()).expect("there is a list");
        let next = request.apply(&present, 1).expect("it is legal");
        self.sequencer.track_change(Millis(self.now), Some(ASKER), &Outcome::Underway(Box::new((next, version))));
    }

    fn look(&mut self, ms: u64) -> Option<Proposal> {
        self.now += ms;
        self.sequencer.reconfigure(Millis(self.now), WallMillis(5), &self.seen)
    }

    /// The membership goes over, as Raft would do it, and the list is there.
    fn carry_out(&mut self, begins: Proposal) -> Vec<Outcome> {
        assert!(self.commit(&begins.context, false).is_empty());
        self.seen.joint = true;
        assert_eq!(self.sequencer.servers().step(), ReconfigStep::Joint);
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
        assert!(!self.sequencer.is_reconfiguring() && self.sequencer.servers().step() == ReconfigStep::None);
        answers
    }

    fn ids(&self) -> Vec<u8> {
        let list = apply::servers(self.sequencer.machine().view()).expect("there is a list").0;
        list.0.keys().map(|id| id.0).collect()
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
    let version = leader.sequencer.servers().version();
    leader.ask("server.4=d:1:2;3", "");
    assert!(leader.sequencer.is_reconfiguring() && leader.sequencer.servers().version() != version);
    assert!(
        leader.sequencer.servers().known().is_some_and(|list| list.0.contains_key(&ServerId(4))),
        "it is to be dialled"
    );
    assert_eq!(leader.sequencer.servers().wanted().expect("a list").last(), Some(&(ServerId(4), Role::Observer)));
    assert_eq!(leader.look(10), None, "a majority is there, and the joiner may yet come");
    assert_eq!(leader.sequencer.servers().step(), ReconfigStep::CatchingUp);
    (leader.seen.learners, leader.seen.in_step) = (set(&[4]), set(&[1, 2, 3, 4]));
    let begins = leader.look(10).expect("it is in step");
    assert_eq!(
        (begins.changes.as_slice(), leader.sequencer.servers().step()),
        (&[(ServerId(4), Seat::Voter)][..], ReconfigStep::Entering)
    );
    assert_eq!(leader.ids(), [1, 2, 3]);
    let answers = leader.carry_out(begins);
    assert!(configured(&answers));
    assert_eq!(leader.ids(), [1, 2, 3, 4]);
    assert_eq!(leader.look(10), None);
}

#[test]
fn a_server_that_is_not_needed_is_not_waited_for_long() {
    let mut leader = Leader::new();
    leader.ask("server.4=d:1:2;3", "");
    leader.seen.learners = set(&[4]);
    assert_eq!(leader.look(RECONFIG_GRACE_MS - 1), None);
    assert_eq!(leader.look(1), None);
    let answers = leader.order();
    assert!(configured(&answers), "it learns already, and votes later: {answers:?}");
    assert_eq!(leader.ids(), [1, 2, 3, 4]);
    assert_eq!(leader.sequencer.servers().wanted().expect("a list").last(), Some(&(ServerId(4), Role::Participant)));
    assert_eq!(leader.look(10), None);
}

#[test]
fn who_leaves_hears_of_it_if_he_can() {
    let mut leader = Leader::new();
    leader.ask("", "3");
    leader.seen.in_step = set(&[1, 2]);
    assert_eq!(leader.look(RECONFIG_FAREWELL_MS - 1), None);
    assert_eq!(leader.look(1).expect("he may be lost").changes, [(ServerId(3), Seat::None)]);
    let mut leader = Leader::new();
    leader.ask("", "3");
    leader.seen.in_step = set(&[1, 2]);
    assert_eq!(leader.look(10), None);
    leader.seen.in_step = set(&[1, 2, 3]);
    assert_eq!(leader.look(10).expect("he is in step").changes, [(ServerId(3), Seat::None)]);
}

/// It got its vote between the order to observe and the list that says so, and had it for ever.
#[test]
fn who_is_to_observe_is_given_no_vote_meanwhile() {
    let mut leader = Leader::new();
    leader.seen.voters = set(&[1, 2]);
    (leader.seen.learners, leader.seen.in_step) = (set(&[3]), set(&[1, 2]));
    let role = |leader: &Leader| leader.sequencer.servers().wanted().expect("a list").last().copied();
    assert_eq!(role(&leader), Some((ServerId(3), Role::Participant)), "it was emptied, and learns");
    leader.ask("server.3=c:1:2:observer;3", "");
    assert_eq!(role(&leader), Some((ServerId(3), Role::Observer)));
    for _ in 0..2 {
        assert_eq!(leader.look(10), None, "its place is the right one already");
        assert_eq!(
            (role(&leader), leader.sequencer.servers().step()),
            (Some((ServerId(3), Role::Observer)), ReconfigStep::Entering)
        );
    }
    assert!(configured(&leader.order()));
    assert_eq!((role(&leader), leader.sequencer.is_reconfiguring()), (Some((ServerId(3), Role::Observer)), false));
}

#[test]
fn without_a_majority_nothing_happens() {
    let mut leader = Leader::new();
    leader.ask("server.4=d:1:2;3,server.5=e:1:2;3", "2,3");
    leader.seen.learners = set(&[4, 5]);
    assert_eq!(leader.look(RECONFIG_UNREACHED_MS), None);
    assert!(failed(&leader.order(), ErrorCode::NewConfigNoQuorum));
    assert_eq!(leader.ids(), [1, 2, 3]);
    assert_eq!(leader.look(1), Some(Proposal { changes: [(ServerId(4), Seat::None)].into(), context: Vec::new() }));
    // The change waits for servers that can be reached.
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
    assert_eq!(begins.changes, [(ServerId(4), Seat::Learner)]);
    assert!(configured(&leader.carry_out(begins)));
    leader.seen.in_step.insert(ServerId(4));
    leader.ask("", "1,4");
    let begins = leader.look(1).expect("the others are in step");
    assert_eq!(begins.changes, [(ServerId(1), Seat::None), (ServerId(4), Seat::None)]);
    assert_eq!([1, 2].map(|id| leader.sequencer.servers().lists(ServerId(id))), [Some(true); 2]);
    assert!(configured(&leader.carry_out(begins)));
    assert_eq!([1, 2].map(|id| leader.sequencer.servers().lists(ServerId(id))), [Some(false), Some(true)]);
    assert_eq!(leader.ids(), [2, 3]);
    leader.ask("server.2=b:1:2:observer;3", "");
    let begins = leader.look(1).expect("one is enough");
    assert_eq!(begins.changes, [(ServerId(2), Seat::Learner)]);
}

/// It was forgotten with the end of the one before, and its client waited for ever.
#[test]
fn who_asks_before_the_end_of_another_change_is_answered() {
    let mut leader = Leader::new();
    leader.ask("server.4=d:1:2;3", "");
    leader.seen.learners = set(&[4]);
    assert_eq!(leader.look(RECONFIG_GRACE_MS), None, "it learns already, and votes later");
    leader.ask("", "3");
    let answers = leader.order();
    let (first, second) = answers.split_at(1);
    assert!(configured(first) && failed(second, ErrorCode::ReconfigInProgress), "{answers:?}");
    assert_eq!((leader.look(1), leader.ids().as_slice()), (None, &[1, 2, 3, 4][..]));
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
    let batch = leader.sequencer.take_batch(WallMillis(5)).expect("something waits");
    let kinds: Vec<&CommandKind> = batch.commands.iter().map(|command| &command.kind).collect();
    assert!(
        matches!(kinds[..], [CommandKind::ReconfigBegins(_), CommandKind::ReconfigEnds, CommandKind::ReconfigFails(_)]),
        "{kinds:?}"
    );
}

#[test]
fn no_other_change_slips_in_between() {
    let mut leader = Leader::new();
    let own = |sequencer: &mut Sequencer| sequencer.propose_own(CommandKind::ReconfigEnds);
    own(&mut leader.sequencer);
    let before = leader.sequencer.take_batch(WallMillis(5)).expect("something waits");
    assert_eq!(before.features & features::RECONFIGURING, 0);
    let payload = before.encode();
    leader.sequencer.proposed(before);
    leader.ask("", "3");
    assert_eq!(leader.look(1), None, "who knows what is in that batch");
    own(&mut leader.sequencer);
    let behind = leader.sequencer.take_batch(WallMillis(5)).expect("something waits");
    assert_ne!(behind.features & features::RECONFIGURING, 0);
    leader.sequencer.proposed(behind);
    leader.commit(&payload, true);
    assert!(leader.look(1).is_some());
    // In that batch was another change.
    let mut leader = Leader::new();
    let (present, version) = apply::servers(leader.sequencer.machine().view()).expect("there is a list");
    leader.sequencer.track_change(Millis(0), Some(ASKER), &Outcome::Underway(Box::new((present, version - 1))));
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
    leader.sequencer.end_leadership();
    assert!(!leader.sequencer.is_reconfiguring() && leader.look(1).is_none());
    leader.sequencer.begin_leadership(Millis(leader.now), 2);
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
