//! A group of replicas in memory: disks written late, one link per direction that breaks as TCP does, and a checker.
//!
//! A link loses only by breaking: everything under way on it is gone, what was not sent yet goes on. Everything is
//! drawn from one seed and time is a counter. The claims of a server about its disk are compared with the disk at that
//! moment.

pub(crate) mod ledger;
mod server;

use std::collections::{BTreeMap, VecDeque};

use bytes::{BufMut, Bytes, BytesMut};
use corral_consensus::limits::APPLIED_WORK_MAX;
use corral_consensus::{
    AppendReply, ConfChange, Effects, MemberChange, Membership, Micros, PeerBody, PeerMessage, Role, ServerId, Term,
    Transition,
};
use corral_types::SplitMix64;
pub(crate) use ledger::Line;
use ledger::{CONTEXT, COST, Ledger};
use server::{Disk, Server, Snapshot};

use crate::setup::{at_of, id_of};

/// Entries that a server reads from its log at once.
const READ_MAX: usize = 3;
/// Steps between two ticks of a server.
pub(crate) const STEPS_PER_TICK: u64 = 5;

/// A stream for these tests.
pub(crate) fn random(seed: u64) -> SplitMix64 {
    SplitMix64::new(seed ^ 0x1f83_d9ab_fb41_bd6b)
}

/// Planted to see that the checker looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A write is reported durable before it is.
    AckBeforeSync,
    /// A restarted server has lost its vote.
    ForgetVote,
}

/// How rough a run is, per mille of steps.
#[derive(Clone, Copy)]
pub(crate) struct Faults {
    pub(crate) delay: u64,
    pub(crate) persist_delay: u64,
    pub(crate) crash: u64,
    pub(crate) cut: u64,
    pub(crate) break_link: u64,
    pub(crate) conf_changes: bool,
    /// A server's state turns out to be damaged.
    pub(crate) distrust: u64,
    pub(crate) bug: Option<Bug>,
}

impl Faults {
    pub(crate) const NONE: Faults = Faults {
        delay: 2,
        persist_delay: 2,
        crash: 0,
        cut: 0,
        break_link: 0,
        conf_changes: false,
        distrust: 0,
        bug: None,
    };

    pub(crate) fn drawn(random: &mut SplitMix64) -> Faults {
        Faults {
            delay: 1 + random.below(20),
            persist_delay: 1 + random.below(30),
            crash: random.below(8),
            cut: random.below(8),
            break_link: random.below(20),
            conf_changes: false,
            distrust: 0,
            bug: None,
        }
    }
}

struct Flying {
    due: u64,
    message: PeerMessage,
    snapshot: Option<Snapshot>,
}

#[derive(Default)]
struct Link {
    flying: VecDeque<Flying>,
    cut: bool,
}

#[derive(Default, Debug)]
pub(crate) struct Counts {
    pub(crate) committed: usize,
    pub(crate) reads: usize,
    pub(crate) installs: usize,
    pub(crate) distrusted: usize,
    pub(crate) log_reads: usize,
    pub(crate) leaders: usize,
    pub(crate) lost_tails: usize,
    pub(crate) came_back: usize,
    pub(crate) contexts: usize,
}

pub(crate) struct Group {
    random: SplitMix64,
    pub(crate) faults: Faults,
    pub(crate) now: u64,
    pub(crate) disks: Vec<Disk>,
    pub(crate) servers: Vec<Option<Server>>,
    links: BTreeMap<(usize, usize), Link>,
    /// The entries applied by any server, from index 1 on.
    pub(crate) committed: Vec<Line>,
    leaders: BTreeMap<Term, ServerId>,
    /// The candidate that each server voted for.
    votes: BTreeMap<(usize, Term), ServerId>,
    /// Members come and go: messages of strangers are no wonder.
    pub(crate) strangers: bool,
    reads: BTreeMap<u64, usize>,
    next_number: u64,
    pub(crate) counts: Counts,
    /// No clients and no operators.
    pub(crate) quiet: bool,
}

impl Group {
    pub(crate) fn new(seed: u64, voters: usize, learners: usize, faults: Faults) -> Group {
        let total = voters + learners;
        let ids: Vec<ServerId> = (0..total).map(id_of).collect();
        let membership = Membership::simple(&ids[..voters], &ids[voters..]);
        let mut group = Group {
            random: random(seed),
            faults,
            now: 0,
            disks: vec![Disk::new(membership); total],
            servers: (0..total).map(|_| None).collect(),
            links: BTreeMap::new(),
            committed: Vec::new(),
            leaders: BTreeMap::new(),
            votes: BTreeMap::new(),
            strangers: faults.conf_changes,
            reads: BTreeMap::new(),
            next_number: 0,
            counts: Counts::default(),
            quiet: false,
        };
        for at in 0..total {
            group.start(at);
        }
        group
    }

    pub(crate) fn start(&mut self, at: usize) {
        let seed = self.random.next_u64();
        self.servers[at] = Some(Server::start(at, &mut self.disks[at], seed, self.faults.bug));
    }

    /// The process ends. Each of its connections is reset, and a server that receives the reset knows that the process
    /// is gone.
    pub(crate) fn crash(&mut self, at: usize) {
        let Some(server) = self.servers[at].take() else { return };
        self.count(&server.ledger);
        server.crash(&mut self.disks[at], &mut self.random);
        for other in 0..self.servers.len() {
            self.break_link(at, other);
            self.break_link(other, at);
            let arrives = self.links.get(&(at, other)).is_none_or(|link| !link.cut);
            if let Some(server) = self.servers[other].as_mut().filter(|_| arrives) {
                server.replica.leader_lost(id_of(at), u32::try_from(other).expect("small") % 3);
            }
        }
    }

    fn count(&mut self, ledger: &Ledger) {
        self.counts.lost_tails += ledger.lost_tails;
        self.counts.came_back += ledger.came_back;
        self.counts.contexts += ledger.contexts;
    }

    fn break_link(&mut self, from: usize, to: usize) {
        let lost = self.links.get_mut(&(from, to)).map(|link| std::mem::take(&mut link.flying));
        let snapshot_lost = lost.iter().flatten().any(|flying| flying.snapshot.is_some());
        if let Some(sender) = &mut self.servers[from] {
            sender.replica.unreachable(id_of(to));
            if snapshot_lost {
                sender.replica.snapshot_sent(id_of(to), false);
            }
        }
    }

    /// Cuts or heals one direction. Messages under way are lost either way.
    pub(crate) fn cut(&mut self, from: usize, to: usize, cut: bool) {
        self.break_link(from, to);
        self.links.entry((from, to)).or_default().cut = cut;
    }

    pub(crate) fn cut_off(&mut self, at: usize, cut: bool) {
        for other in (0..self.servers.len()).filter(|other| *other != at) {
            self.cut(at, other, cut);
            self.cut(other, at, cut);
        }
    }

    pub(crate) fn leader(&self) -> Option<usize> {
        let leads = |server: &&Server| server.replica.is_leading();
        let found = (0..self.servers.len()).filter(|at| self.servers[*at].as_ref().filter(leads).is_some());
        found.max_by_key(|at| self.servers[*at].as_ref().map(|server| server.replica.raft().term()))
    }

    pub(crate) fn run(&mut self, steps: u64) {
        for _ in 0..steps {
            self.step();
        }
    }

    pub(crate) fn run_until(&mut self, limit: u64, what: &str, done: impl Fn(&Group) -> bool) {
        let end = self.now + limit;
        while !done(self) {
            assert!(self.now < end, "never {what}: {}", self.describe());
            self.step();
        }
    }

    /// Ends all faults and runs until every server has every entry, then commits once more.
    pub(crate) fn settle(&mut self, limit: u64) {
        self.faults = Faults { bug: self.faults.bug, ..Faults::NONE };
        self.quiet = true;
        self.links.values_mut().for_each(|link| link.cut = false);
        for at in 0..self.servers.len() {
            if self.servers[at].is_none() {
                self.start(at);
            }
        }
        self.run_until(limit, "whole", Group::is_whole);
        let before = self.committed.len();
        self.offer_to_leader();
        self.run_until(limit, "whole again", |group| group.committed.len() > before && group.is_whole());
        for at in 0..self.servers.len() {
            if let Some(server) = self.servers[at].take() {
                self.count(&server.ledger);
            }
        }
        self.counts.committed += self.committed.len();
        self.counts.leaders += self.leaders.len();
    }

    pub(crate) fn is_whole(&self) -> bool {
        let Some(leader) = self.leader().and_then(|at| self.servers[at].as_ref()) else { return false };
        let membership = leader.replica.raft().membership();
        let has_all =
            |at: usize| self.servers[at].as_ref().is_some_and(|server| server.checked == self.committed.len());
        let mut members = (0..self.servers.len()).filter(|at| membership.contains(id_of(*at)));
        !membership.is_joint() && !self.committed.is_empty() && members.all(has_all)
    }

    fn describe(&self) -> String {
        let line = |server: &Server| {
            let raft = server.replica.raft();
            format!(
                "{:?} {} {:?} commit {} last {}",
                raft.role(),
                raft.term(),
                raft.leader(),
                raft.commit(),
                raft.last_index()
            )
        };
        let lines: Vec<String> = self.servers.iter().flatten().map(line).collect();
        format!("{} committed; {}", self.committed.len(), lines.join("; "))
    }

    pub(crate) fn step(&mut self) {
        self.now += 1;
        self.deliver();
        self.disturb();
        for at in 0..self.servers.len() {
            if self.servers[at].is_some() {
                self.turn(at);
            }
        }
    }

    fn chance(&mut self, per_mille: u64) -> bool {
        self.random.below(1000) < per_mille
    }

    fn disturb(&mut self) {
        let total = self.servers.len();
        if self.chance(self.faults.crash) {
            let at = self.random.index(total);
            self.crash(at);
        }
        for at in 0..total {
            if self.servers[at].is_none() && self.chance(7) {
                self.start(at);
            }
        }
        if self.chance(self.faults.distrust) {
            let at = self.random.index(total);
            self.distrust(at);
        }
        let (from, to) = (self.random.index(total), self.random.index(total));
        if from != to && self.chance(self.faults.break_link) {
            self.break_link(from, to);
        }
        if from != to && self.chance(self.faults.cut) {
            let whole = self.chance(500);
            if whole { self.cut_off(from, true) } else { self.cut(from, to, true) }
        } else if self.chance(2 * self.faults.cut) {
            let cut: Vec<(usize, usize)> =
                self.links.iter().filter(|(_, link)| link.cut).map(|(between, _)| *between).collect();
            cut.iter().for_each(|(from, to)| self.cut(*from, *to, false));
        }
    }

    /// Corrupts the applied state of this server, and reports that to it. A sound server must be left that needs
    /// nothing but the logs of the others.
    pub(crate) fn distrust(&mut self, at: usize) {
        let is_corrupt = |at: usize| self.servers[at].as_ref().is_some_and(|server| server.replica.is_state_corrupt());
        let corrupt = (0..self.servers.len()).filter(|other| *other == at || is_corrupt(*other));
        let needs = corrupt.map(|at| self.disks[at].snapshot.index).max();
        let has = |server: &Server| !server.replica.is_state_corrupt() && Some(server.replica.applied()) >= needs;
        let mut others = (0..self.servers.len()).filter(|other| *other != at);
        if !others.any(|other| self.servers[other].as_ref().is_some_and(has)) {
            return;
        }
        let Some(server) = &mut self.servers[at] else { return };
        if server.replica.mark_state_corrupt() {
            self.counts.distrusted += 1;
            server.ledger.lines.fill(Line::default());
        }
    }

    fn deliver(&mut self) {
        let due: Vec<(usize, usize)> = self.links.keys().copied().collect();
        for (from, to) in due {
            while let Some(flying) = self
                .links
                .get_mut(&(from, to))
                .and_then(|link| if link.flying.front()?.due <= self.now { link.flying.pop_front() } else { None })
            {
                self.arrive(from, to, flying);
            }
        }
    }

    fn arrive(&mut self, from: usize, to: usize, flying: Flying) {
        let Flying { message, snapshot, .. } = flying;
        let announced = snapshot.is_some();
        let mut taken = false;
        if let Some(server) = &mut self.servers[to] {
            server.receive(snapshot);
            if let Err(error) = server.replica.step(&mut server.ledger, message.clone()) {
                assert!(error.is_harmless() || self.strangers, "{error}: {message:?}");
            }
            taken = true;
        }
        if announced && let Some(sender) = &mut self.servers[from] {
            sender.replica.snapshot_sent(id_of(to), taken);
        }
    }

    fn send(&mut self, at: usize, message: PeerMessage) {
        let to = at_of(message.to);
        if to >= self.servers.len() {
            return;
        }
        self.check_said(at, &message);
        let mut bytes = BytesMut::new();
        message.encode(&mut bytes);
        assert_eq!(PeerMessage::decode(&bytes.freeze()).as_ref(), Ok(&message), "encoding");
        let snapshot = match &message.body {
            PeerBody::Snapshot { index, .. } => {
                let snapshot = self.disks[at].snapshot.clone();
                assert!(snapshot.index >= *index, "a snapshot is announced that is on the disk");
                Some(snapshot).filter(|snapshot| snapshot.index == *index)
            }
            _ => None,
        };
        let lost = matches!(message.body, PeerBody::Snapshot { .. }) && snapshot.is_none();
        let delay = 1 + self.random.below(self.faults.delay);
        let link = self.links.entry((at, to)).or_default();
        if link.cut || lost {
            if let Some(sender) = self.servers[at].as_mut().filter(|_| lost || snapshot.is_some()) {
                sender.replica.snapshot_sent(message.to, false);
            }
            return;
        }
        let due = link.flying.back().map_or(0, |last| last.due).max(self.now + delay);
        link.flying.push_back(Flying { due, message, snapshot });
    }

    /// Checks that a server claims nothing that its disk does not hold: a vote, a candidacy, an entry.
    fn check_said(&mut self, at: usize, message: &PeerMessage) {
        let disk = &self.disks[at];
        let hard = disk.hard;
        let voted_for =
            |whom: ServerId| hard.term > message.term || hard.term == message.term && hard.vote == Some(whom);
        match &message.body {
            PeerBody::VoteReply { pre: false, granted: true, .. } => {
                assert!(voted_for(message.to), "server {at} gives a vote that is not durable: {message:?}");
                let known = *self.votes.entry((at, message.term)).or_insert(message.to);
                assert_eq!(known, message.to, "server {at} votes twice in term {}", message.term);
            }
            PeerBody::Vote { pre: false, .. } => {
                assert!(voted_for(message.from), "server {at} stands with a vote that is not durable: {message:?}");
            }
            // An acknowledgement to a former leader was true once, and the same write may replace the entry.
            PeerBody::AppendReply(AppendReply::Accepted { index, .. }) if hard.term <= message.term => {
                assert!(*index <= disk.last(), "server {at} acknowledges {index}, its disk ends at {}", disk.last());
            }
            _ => {}
        }
    }

    fn turn(&mut self, at: usize) {
        let mut server = self.servers[at].take().expect("running");
        server.persist_due(self.now, &mut self.disks[at]);
        if (self.now + at as u64).is_multiple_of(STEPS_PER_TICK) {
            server.replica.tick();
            self.ask_for_state(at, &server);
        }
        if !self.quiet {
            self.use_it(&mut server);
        }
        let (mut effects, before) = (Effects::default(), server.replica.applied());
        while server
            .replica
            .turn(&mut server.ledger, Micros(self.now), &mut effects)
            .expect("the ledger takes everything")
        {}
        if let Some((from, upto)) = effects.log_wanted {
            let held = self.disks[at].entries.iter().filter(|entry| (from..=upto).contains(&entry.index));
            server.replica.log_read(held.take(READ_MAX).cloned().collect());
            self.counts.log_reads += 1;
        }
        let applied = server.replica.applied().0 - before.0;
        server.replace_state(&mut self.disks[at]);
        assert!(applied <= APPLIED_WORK_MAX.div_ceil(COST), "{applied} entries in one turn");
        let messages = std::mem::take(&mut effects.messages);
        self.look(at, &mut server, &effects);
        let due = self.now + 1 + self.random.below(self.faults.persist_delay);
        server.write(&mut effects, due, self.faults.bug);
        if self.random.below(60) == 0 {
            server.make_snapshot(&mut self.disks[at]);
        }
        self.servers[at] = Some(server);
        for message in messages {
            self.send(at, message);
        }
    }

    fn ask_for_state(&mut self, at: usize, server: &Server) {
        for request in server.replica.state_requests() {
            self.send(at, request);
        }
    }

    /// Clients and operators at work.
    fn use_it(&mut self, server: &mut Server) {
        if server.replica.is_leading() && self.chance(200) {
            self.next_number += 1;
            server.ledger.waiting.push_back(self.next_number);
        }
        if self.chance(30) {
            self.next_number += 1;
            self.reads.insert(self.next_number, self.committed.len());
            server.replica.read_index(self.next_number);
        }
        if self.chance(2) {
            let to = id_of(self.random.index(self.servers.len()));
            // Refused unless it leads and the other votes.
            let _ = server.replica.transfer(to);
        }
        if self.faults.conf_changes && self.chance(20) {
            let change = self.drawn_change();
            // Refused unless it leads and the change fits.
            let _ = server.replica.propose_conf_change(change);
        }
    }

    fn drawn_change(&mut self) -> ConfChange {
        let count = 1 + self.random.below(3);
        let drawn = |random: &mut SplitMix64, total| {
            let id = id_of(random.index(total));
            match random.below(4) {
                0 => MemberChange::Remove(id),
                1 => MemberChange::AddLearner(id),
                _ => MemberChange::AddVoter(id),
            }
        };
        let changes = (0..count).map(|_| drawn(&mut self.random, self.servers.len())).collect();
        ConfChange { changes, transition: Transition::Auto, context: self.context() }
    }

    pub(crate) fn context(&mut self) -> Bytes {
        self.next_number += 1;
        let mut context = BytesMut::new();
        context.put_u64(u64::from(CONTEXT) << 56 | self.next_number);
        context.freeze()
    }

    /// A number for the leader to order, if there is one.
    pub(crate) fn offer_to_leader(&mut self) -> u64 {
        self.next_number += 1;
        let at = self.leader().expect("somebody leads");
        let server = self.servers[at].as_mut().expect("it leads");
        server.ledger.waiting.push_back(self.next_number);
        self.next_number
    }

    fn look(&mut self, at: usize, server: &mut Server, effects: &Effects) {
        if let Some(change) = effects.role.filter(|change| change.role == Role::Leader) {
            let known = self.leaders.entry(change.term).or_insert(id_of(at));
            assert_eq!(*known, id_of(at), "two leaders in term {}", change.term);
        }
        for token in &effects.reads {
            let needs = self.reads.remove(token).expect("asked once");
            let has = server.ledger.lines.len();
            assert!(has >= needs, "a read sees {has} entries and misses {needs}");
            self.counts.reads += 1;
        }
        self.counts.installs += effects.installs.len();
        let lines = &server.ledger.lines;
        for (index, line) in lines.iter().enumerate().skip(server.checked) {
            self.check_applied(index, *line);
        }
        server.checked = server.checked.max(lines.len());
    }

    /// An applied entry equals the entry that the other servers applied at that index, or is the next one. By then it
    /// is on the disks of a majority.
    fn check_applied(&mut self, at: usize, line: Line) {
        if let Some(known) = self.committed.get(at) {
            assert_eq!(*known, line, "entry {} differs", at + 1);
            return;
        }
        assert_eq!(at, self.committed.len(), "entry {} skips some", at + 1);
        self.committed.push(line);
        if !self.strangers {
            let voters = &self.disks[0].snapshot.membership.voters;
            let index = corral_consensus::Index(at as u64 + 1);
            let count = voters.iter().filter(|id| self.disks[at_of(**id)].holds(index, line.0)).count();
            assert!(count * 2 > voters.len(), "entry {index} is applied, but on {count} disks only");
        }
    }
}
