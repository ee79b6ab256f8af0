//! An ensemble in memory: servers with disks, links that lose, delay, double and cut, and a checker.
//!
//! Everything is drawn from one seed and time is a counter, so a run replays exactly; `Net::trace` proves it. The
//! checker holds what was committed anywhere and compares every delivery with it.

mod server;

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use corral_consensus::{
    ConfChange, Entry, MemberChange, Membership, PeerBody, PeerMessage, Role, ServerId, Term, Transition,
};
use corral_types::SplitMix64;
pub(crate) use server::{Disk, Server};

use crate::setup::{at_of, id_of, numbered};

/// Steps between two ticks of a server.
const STEPS_PER_TICK: u64 = 5;

/// A stream for these tests.
pub(crate) fn random(seed: u64) -> SplitMix64 {
    SplitMix64::new(seed ^ 0x5bd1_e995_1234_5678)
}

/// How rough a run is, in percent per event or per step.
#[derive(Clone)]
pub(crate) struct Faults {
    pub(crate) loss: u64,
    pub(crate) double: u64,
    pub(crate) delay: u64,
    pub(crate) persist_delay: u64,
    pub(crate) crash_per_mille: u64,
    pub(crate) cut_per_mille: u64,
    pub(crate) conf_changes: bool,
    pub(crate) big_entries: bool,
}

impl Faults {
    pub(crate) const NONE: Faults = Faults {
        loss: 0,
        double: 0,
        delay: 2,
        persist_delay: 2,
        crash_per_mille: 0,
        cut_per_mille: 0,
        conf_changes: false,
        big_entries: false,
    };

    pub(crate) fn drawn(random: &mut SplitMix64) -> Faults {
        Faults {
            loss: random.below(20),
            double: random.below(20),
            delay: 1 + random.below(25),
            persist_delay: 1 + random.below(30),
            crash_per_mille: random.below(8),
            cut_per_mille: random.below(8),
            conf_changes: false,
            big_entries: false,
        }
    }
}

/// The identity of a committed entry.
pub(crate) type Mark = (Term, usize, u64);

pub(crate) fn mark(entry: &Entry) -> Mark {
    let head = entry.payload.iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    (entry.term, entry.payload.len(), head)
}

pub(crate) struct Net {
    pub(crate) random: SplitMix64,
    pub(crate) faults: Faults,
    pub(crate) now: u64,
    pub(crate) disks: Vec<Disk>,
    pub(crate) servers: Vec<Option<Server>>,
    flying: BTreeMap<(u64, u64), PeerMessage>,
    sent: u64,
    /// Snapshots lost on the way, to be reported to their senders.
    undelivered: Vec<(usize, ServerId)>,
    /// No clients and no operators.
    quiet: bool,
    /// Server to partition number.
    side: Vec<u64>,
    /// The entries committed by any server, from index 1 on.
    pub(crate) committed: Vec<Mark>,
    leaders: BTreeMap<Term, ServerId>,
    reads: BTreeMap<u64, usize>,
    pub(crate) reads_answered: usize,
    pub(crate) installs: usize,
    pub(crate) conf_applied: usize,
    pub(crate) transfers: usize,
    next_proposal: u64,
    next_read: u64,
    pub(crate) trace: u64,
    big: Bytes,
}

impl Net {
    pub(crate) fn new(seed: u64, voters: u64, learners: u64, faults: Faults) -> Net {
        let total = usize::try_from(voters + learners).expect("small");
        let ids = |range: std::ops::RangeInclusive<u64>| range.map(numbered).collect::<Vec<_>>();
        let membership = Membership::simple(&ids(1..=voters), &ids(voters + 1..=voters + learners));
        let mut net = Net {
            random: random(seed),
            faults,
            now: 0,
            disks: vec![Disk::new(membership); total],
            servers: (0..total).map(|_| None).collect(),
            flying: BTreeMap::new(),
            sent: 0,
            undelivered: Vec::new(),
            quiet: false,
            side: vec![0; total],
            committed: Vec::new(),
            leaders: BTreeMap::new(),
            reads: BTreeMap::new(),
            reads_answered: 0,
            installs: 0,
            conf_applied: 0,
            transfers: 0,
            next_proposal: 0,
            next_read: 0,
            trace: 0xcbf2_9ce4_8422_2325,
            big: Bytes::from(vec![7; 1 << 20]),
        };
        for at in 0..total {
            net.start(at);
        }
        net
    }

    pub(crate) fn note(&mut self, value: u64) {
        self.trace = (self.trace ^ value).wrapping_mul(0x0100_0000_01b3);
    }

    pub(crate) fn start(&mut self, at: usize) {
        let seed = self.random.next_u64();
        self.servers[at] = Some(Server::start(at, &self.disks[at], seed));
    }

    fn crash(&mut self, at: usize) {
        if let Some(server) = self.servers[at].take() {
            server.crash(&mut self.disks[at], &mut self.random);
        }
    }

    pub(crate) fn leader(&self) -> Option<usize> {
        let leads = |server: &Server| server.node.role() == Role::Leader;
        let found = (0..self.servers.len()).filter(|at| self.servers[*at].as_ref().is_some_and(leads));
        found.max_by_key(|at| self.servers[*at].as_ref().map(|server| server.node.term()))
    }

    pub(crate) fn run(&mut self, steps: u64) {
        for _ in 0..steps {
            self.step();
        }
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

    /// Ends all faults and runs until every server has every entry, then commits once more.
    pub(crate) fn settle(&mut self, limit: u64) {
        self.faults = Faults { big_entries: self.faults.big_entries, ..Faults::NONE };
        self.side.fill(0);
        for at in 0..self.servers.len() {
            if self.servers[at].is_none() {
                self.start(at);
            }
        }
        self.quiet = true;
        self.run_until(limit, "whole", |net| net.everybody_has_all());
        let before = self.committed.len();
        self.run_until(limit, "proposal", |net| net.leader().is_some_and(|at| net.propose(at)));
        self.run_until(limit, "whole again", |net| net.committed.len() > before && net.everybody_has_all());
    }

    fn run_until(&mut self, limit: u64, what: &str, done: impl Fn(&mut Net) -> bool) {
        let deadline = self.now + limit;
        while !done(self) {
            assert!(self.now < deadline, "never {what}: {}", self.describe());
            self.step();
        }
    }

    fn everybody_has_all(&self) -> bool {
        let Some(leader) = self.leader().and_then(|at| self.servers[at].as_ref()) else { return false };
        let membership = leader.node.membership();
        let applied = |at: usize| self.servers[at].as_ref().map_or(0, |server| server.applied);
        let mut members = (0..self.servers.len()).filter(|at| membership.contains(id_of(*at)));
        !membership.is_joint() && members.all(|at| applied(at) == self.committed.len() as u64)
    }

    fn describe(&self) -> String {
        let line = |server: &Server| {
            let node = &server.node;
            let (role, leader) = (node.role(), node.leader());
            format!("{:?} {} {:?} commit {} last {}", role, node.term(), leader, node.commit(), node.last_index())
        };
        let lines: Vec<String> = self.servers.iter().flatten().map(line).collect();
        format!("{} committed; {}", self.committed.len(), lines.join("; "))
    }

    fn disturb(&mut self) {
        let total = self.servers.len();
        if self.random.below(1000) < self.faults.crash_per_mille {
            let at = self.random.index(total);
            self.crash(at);
        }
        for at in 0..self.servers.len() {
            if self.servers[at].is_none() && self.random.below(150) == 0 {
                self.start(at);
            }
        }
        if self.random.below(1000) < self.faults.cut_per_mille {
            for at in 0..self.side.len() {
                self.side[at] = self.random.below(2);
            }
        } else if self.random.below(1000) < 2 * self.faults.cut_per_mille {
            self.side.fill(0);
        }
    }

    fn deliver(&mut self) {
        for (from, to) in std::mem::take(&mut self.undelivered) {
            if let Some(sender) = &mut self.servers[from] {
                sender.node.report_snapshot(to, false);
            }
        }
        while let Some(due) = self.flying.first_entry()
            && due.key().0 <= self.now
        {
            let message = due.remove();
            let (from, to) = (at_of(message.from), at_of(message.to));
            let snapshot = matches!(message.body, PeerBody::Snapshot { .. });
            let arrives = self.side[from] == self.side[to] && self.servers[to].is_some();
            if snapshot && let Some(sender) = &mut self.servers[from] {
                sender.node.report_snapshot(message.to, arrives);
            }
            if let Some(server) = &mut self.servers[to]
                && arrives
                && let Err(error) = server.node.step(message.clone())
            {
                let kind = format!("{:.300}", format!("{message:?}"));
                assert!(error.is_harmless() || self.strangers(), "{error}: {kind}");
            }
        }
    }

    /// Members that left, or are not known yet, are strangers to others for a while.
    fn strangers(&self) -> bool {
        self.faults.conf_changes || self.conf_applied > 0
    }

    fn send(&mut self, message: PeerMessage) {
        if at_of(message.to) >= self.servers.len() {
            return;
        }
        if !self.faults.big_entries {
            let mut bytes = BytesMut::new();
            message.encode(&mut bytes);
            assert_eq!(PeerMessage::decode(&bytes.freeze()).as_ref(), Ok(&message), "encoding");
        }
        if self.random.chance(self.faults.loss) {
            if matches!(message.body, PeerBody::Snapshot { .. }) {
                self.undelivered.push((at_of(message.from), message.to));
            }
            return;
        }
        let copies = 1 + u64::from(self.random.chance(self.faults.double));
        for _ in 0..copies {
            self.sent += 1;
            let due = self.now + 1 + self.random.below(self.faults.delay);
            self.flying.insert((due, self.sent), message.clone());
        }
    }

    fn turn(&mut self, at: usize) {
        let mut server = self.servers[at].take().expect("running");
        server.persist_due(self.now, &mut self.disks[at]);
        if (self.now + at as u64).is_multiple_of(STEPS_PER_TICK) {
            server.node.tick();
        }
        if !self.quiet {
            self.use_it(&mut server);
        }
        server.read_for_followers(&self.disks[at]);
        while server.node.ready(&mut server.out) {
            let outgoing = std::mem::take(&mut server.out.messages);
            for message in outgoing {
                self.send(message);
            }
            self.take_outputs(at, &mut server);
        }
        server.apply_some(&mut self.random, &mut self.conf_applied);
        if self.random.below(60) == 0 {
            server.make_snapshot(&mut self.disks[at]);
        }
        self.servers[at] = Some(server);
    }

    /// Clients and operators at work.
    fn use_it(&mut self, server: &mut Server) {
        if server.node.role() == Role::Leader && self.random.chance(20) {
            let payload = self.payload();
            // Refused while leadership moves or too much waits: the client would try again.
            let _ = server.node.propose(payload);
        }
        if self.random.chance(3) {
            self.next_read += 1;
            self.reads.insert(self.next_read, self.committed.len());
            server.node.read_index(self.next_read);
        }
        if self.random.below(500) == 0 {
            let to = numbered(1 + self.random.below(self.side.len() as u64));
            self.transfers += usize::from(server.node.transfer_leader(to).is_ok());
        }
        if self.faults.conf_changes && self.random.chance(2) {
            let change = self.drawn_change();
            // Refused unless it leads and the change fits.
            let _ = server.node.propose_conf_change(change);
        }
    }

    fn drawn_change(&mut self) -> ConfChange {
        let count = 1 + self.random.below(3);
        let mut changes = Vec::new();
        for _ in 0..count {
            let id = numbered(1 + self.random.below(self.side.len() as u64));
            changes.push(match self.random.below(4) {
                0 => MemberChange::Remove(id),
                1 => MemberChange::AddLearner(id),
                _ => MemberChange::AddVoter(id),
            });
        }
        let transition = if self.random.chance(30) { Transition::JointImplicit } else { Transition::Auto };
        ConfChange { changes, transition, context: Bytes::new() }
    }

    /// False if the server does not take it now.
    pub(crate) fn propose(&mut self, at: usize) -> bool {
        let payload = self.payload();
        self.servers[at].as_mut().is_some_and(|server| server.node.propose(payload).is_ok())
    }

    fn payload(&mut self) -> Bytes {
        self.next_proposal += 1;
        if self.faults.big_entries {
            let length = 900_000 + self.next_proposal % 100_000;
            return self.big.slice(..usize::try_from(length).expect("small"));
        }
        Bytes::copy_from_slice(&self.next_proposal.to_be_bytes())
    }

    fn take_outputs(&mut self, at: usize, server: &mut Server) {
        if let Some(change) = server.out.role_change {
            self.note(change.term.0 << 8 | change.role as u64);
            if change.role == Role::Leader {
                let known = self.leaders.entry(change.term).or_insert(server.node.id());
                assert_eq!(*known, server.node.id(), "two leaders in term {}", change.term);
            }
        }
        for read in &server.out.reads {
            let needs = self.reads.remove(&read.token).expect("asked once");
            assert!(read.index.0 >= needs as u64, "read at {} misses {needs}", read.index);
            self.reads_answered += 1;
        }
        if let Some(install) = &server.out.install {
            assert!(install.index.0 <= self.committed.len() as u64, "a snapshot holds committed entries only");
            self.installs += 1;
        }
        for entry in std::mem::take(&mut server.out.committed) {
            self.check_committed(&entry);
            self.note((at as u64) << 48 ^ entry.index.0 << 16 ^ entry.term.0);
            server.to_apply.push_back(entry);
        }
        server.take_append(self.now, &mut self.random, self.faults.persist_delay);
    }

    /// A delivered entry equals the entry that the other servers delivered at that index, or is the next one. By then
    /// it is on the disks of a majority.
    fn check_committed(&mut self, entry: &Entry) {
        let at = usize::try_from(entry.index.0 - 1).expect("small");
        if let Some(known) = self.committed.get(at) {
            assert_eq!(*known, mark(entry), "entry {} differs", entry.index);
            return;
        }
        assert_eq!(at, self.committed.len(), "entry {} skips some", entry.index);
        self.committed.push(mark(entry));
        if self.conf_applied == 0 && !self.faults.conf_changes {
            let voters = &self.disks[0].membership.voters;
            let has = |id: &&ServerId| self.disks[at_of(**id)].holds(entry.index, entry.term);
            let count = voters.iter().filter(has).count();
            assert!(count * 2 > voters.len(), "entry {} is on {count} disks", entry.index);
        }
    }
}

/// Seeds to run: as many as usual, or all in `CORRAL_SEEDS=first..end` for long runs outside CI.
pub(crate) fn seeds(usual: u64) -> std::ops::Range<u64> {
    let Ok(asked) = std::env::var("CORRAL_SEEDS") else { return 0..usual };
    let parts = asked.split_once("..").and_then(|(first, end)| Some(first.parse().ok()?..end.parse().ok()?));
    parts.expect("CORRAL_SEEDS is first..end")
}
