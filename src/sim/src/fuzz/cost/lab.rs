//! A whole server in memory - a shard and the sequencer, the real ones - whose every turn is timed.
//!
//! Drives the actors as the server's executors do: a request is one turn of the shard, a log entry one turn of the
//! consensus core and one more of the shard. Entries are decoded from their bytes, as on a follower or in a replay.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use corral_core::change::{AppliedBatch, Change, OpResult, Outcome};
use corral_core::evaluate::{StateMachine, features};
use corral_core::ids::{ConnId, Millis, ShardId, WallMillis};
use corral_core::limits::ShardLimits;
use corral_core::reaper::ReapPolicy;
use corral_core::sequencer::{Sequencer, SequencerConfig, SnapshotPolicy};
use corral_core::shard::{Outputs, Shard, ShardConfig};
use corral_core::snapshot::{Snapshot, merge_in_memory};
use corral_core::view::View;
use corral_core::znode::name_bytes;
use corral_wire::consts::{XID_AUTH, XID_PING, XID_SET_WATCHES};
use corral_wire::fourletter::FourLetter;
use corral_wire::records::ConnectRequest;
use corral_wire::{OpCode, Writer};

use super::bill::{Bill, Core, Request, Turn};
use super::clock::thread_ns;
use super::genome::{self, Call, Gene};
use super::plant::Plant;
use crate::fuzz::memory;

const SERVER: u8 = 1;
const INCARNATION: u64 = 7;
/// As the server's.
const BATCH_BYTES_MAX: usize = 1 << 20;
const ENTRY_BYTES_MAX: usize = 16 << 20;
/// Followers that every log entry is sent to.
const FOLLOWERS: u64 = 2;
/// Rounds in which a server must have done what there is to do.
const ROUNDS_MAX: usize = 200_000;
const SILENT_MS: u64 = 60_000;
/// Snapshots of trees that begin larger are not written.
const SNAPSHOT_BYTES_MAX: usize = 1 << 20;

/// How much of an attack is carried out.
#[derive(Clone, Copy, Debug)]
pub struct Reach {
    pub bytes_max: u64,
    pub requests_max: u64,
    /// An attack that has cost so much has been seen enough of.
    pub ns_max: u64,
    /// The limit on the names below one parent, bytes: the server's, or less so that little input reaches it.
    pub names_bytes_max: u64,
}

#[derive(Clone, Default)]
struct Client {
    conn: Option<ConnId>,
    stopped_reading: bool,
    /// The session and its password, as the server told.
    session: Option<(i64, [u8; 16])>,
    greeted: bool,
    next_xid: i32,
}

/// See the module.
pub(super) struct Lab {
    now: Millis,
    shard: Shard,
    out: Outputs,
    sequencer: Sequencer,
    clients: Vec<Client>,
    /// Which client has a connection.
    at: BTreeMap<ConnId, usize>,
    accepted: u64,
    syncs: Vec<ConnId>,
    index: u64,
    plant: Option<Plant>,
    bill: Bill,
    reach: Reach,
    held_before: i64,
    /// The tree that the run began with, and the parent that has got the most names since.
    before: View,
    most_named: Option<(u64, String)>,
    /// Of the request that runs, or of all that one turn brings.
    request: Request,
    together: bool,
    by: usize,
}

impl Lab {
    pub(super) fn new(snapshot: &Arc<Snapshot>, keeper: bool, plant: Option<Plant>, reach: Reach) -> Lab {
        let bits = features::EXTENDED_TYPES | features::SASL_ACLS | features::X509_ACLS;
        let bits = if keeper { bits | features::KEEPER } else { bits };
        let config = SequencerConfig {
            server: SERVER,
            incarnation: INCARNATION,
            tick_ms: 1000,
            features: bits,
            batch_bytes_max: BATCH_BYTES_MAX,
            entry_bytes_max: ENTRY_BYTES_MAX,
            snapshot: SnapshotPolicy::NEVER,
            reap: ReapPolicy { check_interval_ms: 1000, deletes_per_minute_max: 600, never_used_max_ms: 5000 },
        };
        let names_bytes_max = if plant == Some(Plant::NamesUnlimited) { u64::MAX } else { reach.names_bytes_max };
        let machine = StateMachine::of_snapshot(Arc::clone(snapshot)).with_names_bytes_max(names_bytes_max);
        let mut sequencer = Sequencer::new(config, machine, 0, 0);
        sequencer.lead(Millis(0), 1);
        let shard = Shard::new(shard_config(keeper), View::new(Arc::clone(snapshot)), 0, Millis(0));
        let mut lab = Lab {
            now: Millis(0),
            shard,
            out: Outputs::default(),
            sequencer,
            clients: vec![Client::default(); 8],
            at: BTreeMap::new(),
            accepted: 0,
            syncs: Vec::new(),
            index: 0,
            plant,
            bill: Bill::default(),
            reach,
            held_before: 0,
            before: View::new(Arc::clone(snapshot)),
            most_named: None,
            request: Request::default(),
            together: false,
            by: 0,
        };
        lab.settle();
        lab.begin(reach);
        lab
    }

    /// What was done so far does not count any more.
    pub(super) fn begin(&mut self, reach: Reach) {
        self.reach = reach;
        self.bill = Bill { failed_before: self.bill.failed, ..Bill::default() };
        self.held_before = memory::held();
    }

    /// What the attack has cost since [`Lab::begin`].
    pub(super) fn bill(&mut self) -> Bill {
        self.bill.held = u64::try_from(memory::held() - self.held_before).unwrap_or(0);
        self.bill.names = self.most_named.as_ref().map_or(0, |(_, parent)| listed(self.shard.view(), parent));
        self.bill.names_max = self.reach.names_bytes_max;
        std::mem::take(&mut self.bill)
    }

    fn is_enough(&self) -> bool {
        self.bill.bytes > self.reach.bytes_max
            || self.bill.messages > self.reach.requests_max
            || self.bill.ns() > self.reach.ns_max
    }

    /// Carries out genes, each so many times, and with other numbers each time.
    pub(super) fn play(&mut self, genes: &[Gene], times: u32, number: u64) {
        self.play_as(genes, times, number, None, true);
    }

    fn play_as(&mut self, genes: &[Gene], times: u32, number: u64, client: Option<usize>, settle: bool) {
        for at in 0..u64::from(times) {
            for gene in genes {
                if self.is_enough() {
                    return;
                }
                self.gene(gene, number * u64::from(times) + at, client, settle);
            }
        }
    }

    fn gene(&mut self, gene: &Gene, number: u64, fleet: Option<usize>, settle: bool) {
        let who = |client: u8| fleet.unwrap_or(usize::from(client) % 8);
        match gene {
            Gene::Call(client, call) => {
                let mut body = Vec::new();
                call.encode(number, &mut body);
                let Some(op) = call.op() else { return };
                self.ask(who(*client), op, &body, std::slice::from_ref(call), 1);
            }
            Gene::Many { client, read, times, calls } => {
                let mut body = Vec::new();
                genome::encode_multi(calls, *times, number, &mut body);
                let op = if *read { OpCode::MultiRead } else { OpCode::Multi };
                self.ask(who(*client), op, &body, calls, *times);
            }
            Gene::Auth { client, scheme, user, pad } => {
                let mut body = vec![0; 4];
                genome::bytes(&mut body, scheme.as_bytes());
                let mut user = user.clone().into_bytes();
                user.resize(user.len() + *pad as usize, b'x');
                genome::bytes(&mut body, &user);
                self.ask(who(*client), OpCode::Auth, &body, &[], 0);
            }
            Gene::Repeat(times, genes) => self.play_as(genes, *times, number, fleet, settle),
            Gene::Burst(times, genes) => {
                let before = std::mem::replace(&mut self.together, true);
                self.play_as(genes, *times, number, fleet, false);
                self.together = before;
            }
            Gene::Fleet(count, genes) => {
                for at in 0..u64::from(*count) {
                    if self.is_enough() {
                        return;
                    }
                    self.clients.push(Client::default());
                    let client = self.clients.len() - 1;
                    self.play_as(genes, 1, number * u64::from(*count) + at, Some(client), settle);
                }
            }
            Gene::Attach(client, other, wrong) => self.attach(who(*client), who(*other), *wrong),
            Gene::StopReading(client) => self.clients[who(*client)].stopped_reading = true,
            Gene::HangUp(client) => self.hang_up(who(*client)),
            Gene::Pass(ms) => self.pass(u64::from(*ms)),
            Gene::Snapshot => self.snapshot(),
        }
        if settle {
            self.settle();
        }
        self.bill.peak = self.bill.peak.max(u64::try_from(memory::held() - self.held_before).unwrap_or(0));
    }

    fn units(&self) -> u64 {
        self.sequencer.machine().units_spent()
    }

    /// Times one turn of a core.
    fn turn<R>(&mut self, core: Core, op: Option<OpCode>, work: impl FnOnce(&mut Lab) -> R) -> R {
        let (units, allocated) = (self.units(), memory::allocated());
        let begun = thread_ns();
        let done = work(self);
        let ns = thread_ns() - begun;
        self.request.ns += ns;
        self.request.allocated += memory::allocated() - allocated;
        self.bill.turn(Turn { ns, core, op }, self.units() - units);
        done
    }

    fn ask(&mut self, client: usize, op: OpCode, body: &[u8], calls: &[Call], times: u32) {
        if self.clients[client].conn.is_none() {
            self.connect(client, None);
        }
        let xid = match op {
            OpCode::Ping => XID_PING,
            OpCode::Auth => XID_AUTH,
            OpCode::SetWatches | OpCode::SetWatches2 => XID_SET_WATCHES,
            _ => {
                self.clients[client].next_xid += 1;
                self.clients[client].next_xid
            }
        };
        let mut frame = Vec::with_capacity(body.len() + 12);
        frame.extend_from_slice(&(u32::try_from(body.len() + 8).unwrap_or(u32::MAX)).to_be_bytes());
        frame.extend_from_slice(&xid.to_be_bytes());
        frame.extend_from_slice(&op.number().to_be_bytes());
        frame.extend_from_slice(body);
        self.send(client, Some(op), &frame, calls, times);
    }

    fn send(&mut self, client: usize, op: Option<OpCode>, frame: &[u8], calls: &[Call], times: u32) {
        let Some(conn) = self.clients[client].conn else { return };
        if self.shard.is_stalled(conn) {
            self.settle();
        }
        self.bill.messages += 1;
        let inner = calls.last().and_then(Call::op).filter(|inner| Some(*inner) != op);
        if self.together {
            self.request.op = op;
            self.request.inner = inner;
            self.request.bytes += frame.len() as u64;
        } else {
            self.end_request();
            self.request = Request { op, inner, bytes: frame.len() as u64, ..Request::default() };
        }
        self.by = client;
        self.bill.bytes += frame.len() as u64;
        self.turn(Core::Shard, op, |lab| {
            lab.shard.received(lab.now, conn, frame, &mut lab.out);
            if let Some(plant) = lab.plant {
                plant.works(lab.shard.view(), calls, times);
            }
        });
        self.carry_out();
    }

    fn end_request(&mut self) {
        let request = std::mem::take(&mut self.request);
        if request.bytes > 0 {
            self.bill.request(request);
        }
    }

    fn connect(&mut self, client: usize, session: Option<(i64, [u8; 16])>) {
        self.accepted += 1;
        let [.., low] = self.accepted.to_be_bytes();
        let peer = SocketAddr::from((Ipv4Addr::new(127, 0, 0, 1), 1000 + u16::from(low)));
        let mut entropy = [0x5a; 16];
        entropy[..8].copy_from_slice(&self.accepted.to_be_bytes());
        let conn = self.turn(Core::Shard, None, |lab| lab.shard.accepted(lab.now, peer, entropy));
        self.clients[client] = Client { conn: Some(conn), ..Client::default() };
        self.at.insert(conn, client);
        let (session_id, passwd) = session.unwrap_or_default();
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: 40_000,
            session_id,
            passwd: Some(&passwd),
            read_only: Some(false),
        };
        let mut frame = vec![0; 4];
        request.encode(&mut Writer::new(&mut frame));
        frame[3] = u8::try_from(frame.len() - 4).expect("short");
        self.send(client, Some(OpCode::CreateSession), &frame, &[], 0);
        self.settle();
    }

    fn attach(&mut self, client: usize, other: usize, wrong: bool) {
        let Some((session, mut password)) = self.clients[other].session else { return };
        password[0] ^= u8::from(wrong);
        self.connect(client, Some((session, password)));
    }

    fn hang_up(&mut self, client: usize) {
        if let Some(conn) = self.clients[client].conn.take() {
            self.at.remove(&conn);
            self.turn(Core::Shard, None, |lab| lab.shard.hung_up(conn, &mut lab.out));
            self.carry_out();
        }
    }

    fn pass(&mut self, ms: u64) {
        self.end_request();
        self.request = Request::default();
        self.now = self.now.plus(ms.min(10 * SILENT_MS));
        let (upto, heard) = self.turn(Core::Shard, None, |lab| lab.shard.tick(lab.now, &mut lab.out));
        self.carry_out();
        self.turn(Core::Consensus, None, |lab| {
            lab.sequencer.heard(ShardId(0), upto, &heard);
            lab.sequencer.tick(lab.now, wall(lab.now));
        });
        self.settle();
    }

    /// What the snapshot itself holds is no memory of the server's, so it does not count.
    fn snapshot(&mut self) {
        let before = self.shard.view().snapshot().bytes();
        if before > SNAPSHOT_BYTES_MAX {
            return;
        }
        let held = memory::held();
        let frozen = self.sequencer.freeze(self.now, Vec::new());
        self.shard.adopt_frozen(Arc::clone(&frozen.delta), &mut self.out);
        let Ok(snapshot) =
            merge_in_memory(&frozen.snapshot, &frozen.delta, 0, frozen.sessions.to_snapshot(), Vec::new())
        else {
            panic!("the state cannot be written as a snapshot");
        };
        let snapshot = Arc::new(snapshot);
        self.bill.snapshot += snapshot.bytes().saturating_sub(before) as u64;
        self.shard.swap_snapshot(Arc::clone(&snapshot), &mut self.out);
        self.sequencer.snapshot_ready(snapshot);
        self.carry_out();
        self.held_before += memory::held() - held;
    }

    /// Does what the shard asks for.
    fn carry_out(&mut self) {
        loop {
            while self.shard.is_walking() {
                let op = self.request.op;
                self.turn(Core::Shard, op, |lab| lab.shard.walk_on(lab.now, &mut lab.out));
            }
            let out = std::mem::take(&mut self.out);
            if out.is_empty() {
                return;
            }
            self.syncs.extend(out.syncs);
            for question in out.questions {
                self.shard.answer_four_letter(self.now, question.conn, Vec::new(), &mut self.out);
            }
            for (conn, _) in out.closed {
                self.bill.closed += 1;
                if let Some(client) = self.client_of(conn) {
                    self.clients[client].conn = None;
                }
                self.at.remove(&conn);
            }
            for conn in out.dirty {
                self.take(conn);
            }
        }
    }

    fn client_of(&self, conn: ConnId) -> Option<usize> {
        self.at.get(&conn).copied().filter(|at| self.clients[*at].conn == Some(conn))
    }

    /// A client reads all there is, unless it has stopped reading.
    fn take(&mut self, conn: ConnId) {
        let unsent = self.shard.unsent_bytes(conn);
        let by = self.clients[self.by].conn == Some(conn);
        let at = if by { Some(self.by) } else { self.client_of(conn) };
        let Some(at) = at else { return };
        if self.clients[at].stopped_reading || unsent == 0 {
            return;
        }
        if by {
            self.request.reply += unsent as u64;
            self.bill.replied += unsent as u64;
        } else {
            self.bill.others += unsent as u64;
        }
        self.greet(at, conn);
        let op = self.request.op;
        loop {
            let count = self.shard.unsent(conn).len();
            if count == 0 {
                return;
            }
            self.turn(Core::Shard, op, |lab| lab.shard.sent(lab.now, conn, count, &mut lab.out));
        }
    }

    fn greet(&mut self, at: usize, conn: ConnId) {
        let client = &mut self.clients[at];
        if std::mem::replace(&mut client.greeted, true) {
            return;
        }
        let greeting = self.shard.unsent(conn);
        let words = greeting.get(12..20).and_then(|bytes| bytes.first_chunk::<8>());
        let password = greeting.get(24..40).and_then(|bytes| bytes.first_chunk::<16>());
        if let (Some(id), Some(password)) = (words, password) {
            client.session = Some((i64::from_be_bytes(*id), *password));
        }
    }

    /// Everything that was proposed is committed. True if there was anything.
    fn commit(&mut self) -> bool {
        let mut some = false;
        let op = self.request.op;
        while let Some(proposals) = self.shard.take_proposals() {
            some = true;
            self.turn(Core::Consensus, op, |lab| lab.sequencer.enqueue(lab.now, proposals));
        }
        while let Some(batch) = self.sequencer.next_batch(wall(self.now)) {
            some = true;
            let payload = self.turn(Core::Consensus, op, |_| batch.encode());
            drop(batch);
            self.index += 1;
            self.bill.entries += 1;
            self.bill.logged += payload.len() as u64;
            self.bill.others += FOLLOWERS * payload.len() as u64;
            let applied = self.turn(Core::Consensus, op, |lab| {
                lab.sequencer.commit(lab.now, lab.index, 1, &payload, false).expect("an entry of our own")
            });
            self.note_names(&applied);
            self.bill.failed += applied.txns.iter().filter(|txn| has_failed(&txn.outcome)).count() as u64;
            let mut next = 0;
            while next < applied.txns.len() {
                next = self.turn(Core::Shard, op, |lab| lab.shard.apply_some(lab.now, &applied, next, &mut lab.out));
                self.carry_out();
            }
        }
        for conn in std::mem::take(&mut self.syncs) {
            some = true;
            self.turn(Core::Shard, op, |lab| lab.shard.synced(lab.now, conn, &mut lab.out));
            self.carry_out();
        }
        some
    }

    /// Of the parents that got names, which has the most.
    fn note_names(&mut self, applied: &AppliedBatch) {
        for change in applied.txns.iter().flat_map(|txn| &txn.changes) {
            let Change::Created { at, .. } = change else { continue };
            let parent = at.parent();
            let of = |view: &View| view.get(parent).map_or(0, |node| node.stat().names_bytes);
            let names = of(self.sequencer.machine().view());
            if names > of(&self.before) && self.most_named.as_ref().is_none_or(|(most, _)| names > *most) {
                self.most_named = Some((names, parent.to_owned()));
            }
        }
    }

    /// Runs until nothing is left to do.
    fn settle(&mut self) {
        for _ in 0..ROUNDS_MAX {
            self.carry_out();
            if !self.commit() {
                self.end_request();
                return;
            }
        }
        panic!("still busy after {ROUNDS_MAX} rounds");
    }

    /// The snapshot of the present tree, without sessions.
    pub(super) fn into_snapshot(mut self) -> Arc<Snapshot> {
        let frozen = self.sequencer.freeze(self.now, Vec::new());
        let snapshot = merge_in_memory(&frozen.snapshot, &frozen.delta, 0, Vec::new(), Vec::new());
        Arc::new(snapshot.expect("a starting tree is small"))
    }
}

fn has_failed(outcome: &Outcome) -> bool {
    let failed = |result: &OpResult| matches!(result, OpResult::Error(_));
    match outcome {
        Outcome::Op(result) => failed(result),
        Outcome::Multi(results) => results.iter().any(failed),
        _ => false,
    }
}

/// Bytes of the names below a parent, by its listing.
fn listed(view: &View, parent: &str) -> u64 {
    view.children(parent).into_iter().flatten().map(name_bytes).sum()
}

fn wall(now: Millis) -> WallMillis {
    WallMillis(1_700_000_000_000 + now.0.cast_signed())
}

fn shard_config(keeper: bool) -> ShardConfig {
    ShardConfig {
        shard: ShardId(0),
        server: SERVER,
        incarnation: INCARNATION,
        session_timeout_min_ms: 4_000,
        session_timeout_max_ms: 40_000,
        sessionless_timeout_ms: 2_000,
        whitelist: FourLetter::ALL.iter().copied().filter(|word| *word != FourLetter::Dump).collect(),
        super_digest: None,
        skip_acl: false,
        enforce_digest: false,
        keeper_extensions: keeper,
        read_only: false,
        linearizable: false,
        limits: ShardLimits::default(),
    }
}
