//! A whole server in memory - a real shard and the real sequencer - that measures the time of every turn.
//!
//! Drives the actors as the server's executors do. A request is one turn of the shard. A log entry is one turn of the
//! consensus core and one more of the shard. Entries are decoded from their bytes, as on a follower or in a replay.

use corral_core::features;
use corral_core::ops::OpResult;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use corral_core::apply::StateMachine;
use corral_core::apply::outcome::Outcome;
use corral_core::ids::{ConnId, Millis, ShardId, Zxid};
use corral_core::limits::ShardLimits;
use corral_core::sequencer::Sequencer;
use corral_core::shard::{Requests, SessionActivity, ShardMessage};
use corral_core::tree::snapshot::{Snapshot, initial_snapshot, merge_in_memory};
use corral_core::tree::view::View;
use corral_wire::records::ConnectResponse;
use corral_wire::{OpCode, Reader};
use rustix::time::{ClockId, clock_gettime};

use super::attack::{self, Call, Step, Tree};
use crate::fuzz::{actors, memory};
use crate::request::connect;
use crate::shard_driver::{ShardDriver, ShardEffect};

const FEATURES: u32 = features::EXTENDED_TYPES | features::SASL_ACLS | features::X509_ACLS | features::KEEPER;
const BATCH_BYTES_MAX: usize = 1 << 20;
/// Followers that every log entry is sent to.
const FOLLOWERS: u64 = 2;
/// Rounds in which a server must have done what there is to do.
const ROUNDS_MAX: usize = 200_000;
/// Children of `/wide`, and of each znode of `/large`.
const CHILDREN: u32 = 1000;

/// Which of a server's cores.
#[derive(Clone, Copy, Debug)]
pub(super) enum Core {
    Shard,
    Consensus,
}

/// The costs of an attack for the server. Times in ns of the thread's CPU, for the shard and the consensus core.
#[derive(Clone, Debug, Default)]
pub struct Bill {
    /// Requests, and their bytes.
    pub messages: u64,
    pub bytes: u64,
    pub ns: [u64; 2],
    /// The longest turn: the longest time that a core did nothing else.
    pub longest_ns: [u64; 2],
    /// The most units of the server's own cost model in one turn.
    pub most_units: u64,
    pub logged: u64,
    /// Bytes to other clients (events), and to two followers.
    pub others: u64,
    /// Bytes held at the end that were not before.
    pub held: u64,
    pub largest_reply: u64,
    /// Commands that came to an error.
    pub failed: u64,
}

impl Bill {
    /// The lesser of each time, of two runs of the same.
    pub fn least(&mut self, other: &Bill) {
        let mine = self.ns.iter_mut().chain(&mut self.longest_ns);
        for (mine, theirs) in mine.zip(other.ns.iter().chain(&other.longest_ns)) {
            *mine = *theirs.min(mine);
        }
    }
}

#[derive(Clone, Default)]
struct Client {
    conn: Option<ConnId>,
    stopped_reading: bool,
    /// The session and its password, as the server told.
    session: Option<(i64, [u8; 16])>,
    greeted: bool,
    last_xid: i32,
}

pub(super) struct Lab {
    now: Millis,
    shard: ShardDriver,
    sequencer: Sequencer,
    clients: Vec<Client>,
    /// Which client has a connection.
    at: BTreeMap<ConnId, usize>,
    accepted: u64,
    /// Requests that have not reached the leader.
    requests: Vec<Requests>,
    index: u64,
    bill: Bill,
    held_before: i64,
    /// Bytes of the reply to the request that runs, or to all that one turn brings.
    reply: Option<u64>,
    together: bool,
    by: usize,
}

impl Lab {
    pub(super) fn new(snapshot: &Arc<Snapshot>) -> Lab {
        let machine = StateMachine::of_snapshot(Arc::clone(snapshot));
        let config = actors::shard_config(0, ShardLimits::default());
        let mut lab = Lab {
            now: Millis(0),
            shard: ShardDriver::new(config, View::new(Arc::clone(snapshot)), 0, Millis(0)),
            sequencer: actors::sequencer(FEATURES, BATCH_BYTES_MAX, machine),
            clients: vec![Client::default(); 2],
            at: BTreeMap::new(),
            accepted: 0,
            requests: Vec::new(),
            index: 0,
            bill: Bill::default(),
            held_before: 0,
            reply: None,
            together: false,
            by: 0,
        };
        lab.settle();
        lab
    }

    /// Carries out steps, and gives what they cost.
    pub(super) fn measure(&mut self, steps: &[Step]) -> Bill {
        self.bill = Bill::default();
        self.held_before = memory::held();
        self.play(steps, 1, 0, None, true);
        self.bill.held = u64::try_from(memory::held() - self.held_before).unwrap_or(0);
        self.bill.clone()
    }

    /// Carries out steps, each so many times, and with other numbers each time.
    fn play(&mut self, steps: &[Step], times: u32, number: u64, client: Option<usize>, settle: bool) {
        for at in 0..u64::from(times) {
            for step in steps {
                self.step(step, number * u64::from(times) + at, client, settle);
            }
        }
    }

    fn step(&mut self, step: &Step, number: u64, fleet: Option<usize>, settle: bool) {
        let who = |client: u8| fleet.unwrap_or(usize::from(client));
        match step {
            Step::Call(client, call) => {
                let mut body = Vec::new();
                call.encode(number, &mut body);
                self.ask(who(*client), call.op, &body);
            }
            Step::Many(op, times, calls) => self.ask(who(0), *op, &attack::encode_multi(calls, *times, number)),
            Step::Auth(letters) => {
                let mut body = vec![0; 4];
                attack::bytes(&mut body, b"digest");
                attack::bytes(&mut body, &vec![b'x'; *letters]);
                self.ask(who(0), OpCode::Auth, &body);
            }
            Step::Repeat(times, steps) => self.play(steps, *times, number, fleet, settle),
            Step::Burst(times, steps) => {
                self.together = true;
                self.play(steps, *times, number, fleet, false);
                self.together = false;
            }
            Step::Fleet(count, steps) => {
                for at in 0..u64::from(*count) {
                    self.clients.push(Client::default());
                    let client = self.clients.len() - 1;
                    self.play(steps, 1, number * u64::from(*count) + at, Some(client), settle);
                }
            }
            Step::Attach(client, other, wrong) => self.attach(who(*client), who(*other), *wrong),
            Step::StopReading => self.clients[who(0)].stopped_reading = true,
            Step::Pass(ms) => self.pass(*ms),
            Step::Snapshot => self.snapshot(),
        }
        if settle {
            self.settle();
        }
    }

    fn turn<R>(&mut self, core: Core, work: impl FnOnce(&mut Lab) -> R) -> R {
        let spent = |lab: &Lab| lab.sequencer.machine().units_spent();
        let units = spent(self);
        let begun = thread_ns();
        let done = work(self);
        let ns = thread_ns() - begun;
        self.bill.ns[core as usize] += ns;
        let longest = &mut self.bill.longest_ns[core as usize];
        *longest = ns.max(*longest);
        self.bill.most_units = self.bill.most_units.max(spent(self) - units);
        done
    }

    fn ask(&mut self, client: usize, op: OpCode, body: &[u8]) {
        if self.clients[client].conn.is_none() {
            self.connect(client, None);
        }
        let frame = actors::request(op, body, &mut self.clients[client].last_xid);
        self.send(client, &frame);
    }

    fn send(&mut self, client: usize, frame: &[u8]) {
        let Some(conn) = self.clients[client].conn else { return };
        if self.shard.is_stalled(conn) {
            self.settle();
        }
        self.bill.messages += 1;
        if !self.together || self.reply.is_none() {
            self.reply = Some(0);
        }
        self.by = client;
        self.bill.bytes += frame.len() as u64;
        self.turn(Core::Shard, |lab| lab.shard.receive(lab.now, conn, frame, Zxid(0)));
        self.carry_out();
    }

    fn connect(&mut self, client: usize, session: Option<(i64, [u8; 16])>) {
        self.accepted += 1;
        let (peer, entropy) = actors::client(self.accepted);
        let conn = self.turn(Core::Shard, |lab| lab.shard.accept(lab.now, peer, entropy)).expect("it does not drain");
        self.clients[client] = Client { conn: Some(conn), ..Client::default() };
        self.at.insert(conn, client);
        self.send(client, &connect(session.unwrap_or_default(), 0, 40_000, Some(false)));
        self.settle();
    }

    fn attach(&mut self, client: usize, other: usize, wrong: bool) {
        let Some((session, mut password)) = self.clients[other].session else { return };
        password[0] ^= u8::from(wrong);
        self.connect(client, Some((session, password)));
    }

    fn pass(&mut self, ms: u64) {
        self.now = self.now.plus(ms);
        self.turn(Core::Shard, |lab| lab.shard.tick(lab.now));
        self.carry_out();
        self.turn(Core::Consensus, |lab| lab.sequencer.tick(lab.now, actors::wall(lab.now)));
        self.settle();
    }

    /// The content of the snapshot itself is no memory of the server's, so it does not count.
    fn snapshot(&mut self) {
        let held = memory::held();
        let frozen = self.sequencer.freeze(self.now, Vec::new());
        self.shard.take(self.now, ShardMessage::Adopt(Arc::clone(&frozen.delta)));
        let sessions = frozen.sessions.to_snapshot();
        let snapshot = merge_in_memory(&frozen.snapshot, &frozen.delta, 0, sessions, Vec::new());
        let snapshot = Arc::new(snapshot.unwrap_or_else(|_| panic!("the state cannot be written as a snapshot")));
        self.shard.take(self.now, ShardMessage::Swap(Arc::clone(&snapshot)));
        self.sequencer.snapshot_ready(snapshot);
        self.carry_out();
        self.held_before += memory::held() - held;
    }

    fn carry_out(&mut self) {
        loop {
            while let Some(effect) = self.shard.next_effect() {
                match effect {
                    ShardEffect::Requests(requests) => self.requests.push(requests),
                    ShardEffect::Closed(conn, _) => {
                        if let Some(client) = self.at.remove(&conn) {
                            self.clients[client].conn.take_if(|of| *of == conn);
                        }
                    }
                    ShardEffect::Dirty(conn) => self.read(conn),
                    ShardEffect::Activity(SessionActivity { upto, sessions }) => {
                        self.turn(Core::Consensus, |lab| lab.sequencer.take_activity(ShardId(0), upto, &sessions));
                    }
                    ShardEffect::Question(_)
                    | ShardEffect::Resumed(_)
                    | ShardEffect::Applied
                    | ShardEffect::Drained => {}
                }
            }
            if !self.shard.needs_turn() {
                return;
            }
            self.turn(Core::Shard, |lab| lab.shard.turn(lab.now));
        }
    }

    /// A client reads all there is, unless it has stopped reading.
    fn read(&mut self, conn: ConnId) {
        let unsent = self.shard.unsent_bytes(conn) as u64;
        let Some(at) = self.at.get(&conn).copied().filter(|at| self.clients[*at].conn == Some(conn)) else { return };
        if self.clients[at].stopped_reading || unsent == 0 {
            return;
        }
        if at == self.by {
            if let Some(reply) = &mut self.reply {
                *reply += unsent;
                self.bill.largest_reply = self.bill.largest_reply.max(*reply);
            }
        } else {
            self.bill.others += unsent;
        }
        self.greet(at, conn);
        loop {
            let count = self.shard.unsent(conn).len();
            if count == 0 {
                return;
            }
            self.turn(Core::Shard, |lab| lab.shard.send(lab.now, conn, count));
        }
    }

    fn greet(&mut self, at: usize, conn: ConnId) {
        let client = &mut self.clients[at];
        if std::mem::replace(&mut client.greeted, true) {
            return;
        }
        let greeting = self.shard.unsent(conn).get(4..).unwrap_or_default();
        let response = ConnectResponse::decode(&mut Reader::new(greeting)).ok();
        client.session = response.and_then(|response| Some((response.session_id, response.passwd?.try_into().ok()?)));
    }

    fn commit(&mut self) -> bool {
        let mut some = false;
        let mut synced = Vec::new();
        for Requests { proposals, syncs } in std::mem::take(&mut self.requests) {
            some = true;
            self.turn(Core::Consensus, |lab| lab.sequencer.enqueue(lab.now, proposals));
            synced.extend(syncs);
        }
        while let Some(batch) = self.sequencer.take_batch(actors::wall(self.now)) {
            some = true;
            let payload = self.turn(Core::Consensus, |_| batch.encode());
            drop(batch);
            self.index += 1;
            self.bill.logged += payload.len() as u64;
            self.bill.others += FOLLOWERS * payload.len() as u64;
            let applied = self.turn(Core::Consensus, |lab| {
                lab.sequencer.apply_entry(lab.now, lab.index, 1, &payload, false).expect("an entry of our own")
            });
            self.bill.failed += applied.txns.iter().filter(|txn| has_failed(&txn.outcome)).count() as u64;
            let batch = ShardMessage::Batch(Arc::new(applied));
            self.turn(Core::Shard, |lab| lab.shard.take(lab.now, batch));
            self.carry_out();
        }
        for conn in synced {
            self.turn(Core::Shard, |lab| lab.shard.take(lab.now, ShardMessage::Synced(vec![conn])));
            self.carry_out();
        }
        some
    }

    fn settle(&mut self) {
        for _ in 0..ROUNDS_MAX {
            self.carry_out();
            if !self.commit() {
                self.reply = None;
                return;
            }
        }
        panic!("still busy after {ROUNDS_MAX} rounds");
    }
}

/// The snapshot of a tree, as ordinary clients make it.
pub(super) fn snapshot(tree: Tree) -> Arc<Snapshot> {
    let create = |path: String| Step::Call(0, Call::create(path));
    let children = |name: &str| Step::Many(OpCode::Multi, CHILDREN, vec![Call::create(format!("{name}#"))]);
    let mut steps = vec![create("/a".into()), create("/b".into())];
    match tree {
        Tree::Small => {}
        Tree::Wide => steps.extend([create("/wide".into()), Step::Repeat(20, vec![children("/wide/n")])]),
        Tree::Large => {
            steps.push(create("/large".into()));
            steps.extend((0..150).flat_map(|at| [create(format!("/large/{at}")), children(&format!("/large/{at}/n"))]));
        }
    }
    let mut lab = Lab::new(&Arc::new(initial_snapshot(1)));
    lab.measure(&steps);
    let frozen = lab.sequencer.freeze(lab.now, Vec::new());
    let snapshot = merge_in_memory(&frozen.snapshot, &frozen.delta, 0, Vec::new(), Vec::new());
    Arc::new(snapshot.expect("a starting tree is small"))
}

fn has_failed(outcome: &Outcome) -> bool {
    let failed = |result: &OpResult| matches!(result, OpResult::Error(_));
    match outcome {
        Outcome::Op(result) => failed(result),
        Outcome::Multi(results) => results.iter().any(failed),
        _ => false,
    }
}

/// CPU time of the calling thread, ns. Other threads and processes do not count.
fn thread_ns() -> u64 {
    let time = Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default();
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
