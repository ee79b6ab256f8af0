//! Target: a whole server in memory - shards and sequencer, the real ones - under a script of bytes, from four
//! connections.
//!
//! Drives the actors as the server's executors do, without log, network or time. Checks every answer (`judge`), that no
//! client is forgotten, and that all views end equal. Output stays within its limit, and a server that stops becomes
//! empty.

use corral_core::features;
use std::collections::VecDeque;
use std::sync::Arc;

use corral_core::apply::StateMachine;
use corral_core::ids::{ConnId, Millis, Zxid};
use corral_core::limits::ShardLimits;
use corral_core::report::Report;
use corral_core::sequencer::{FrozenState, Sequencer};
use corral_core::session::SessionTable;
use corral_core::shard::{Requests, SessionActivity, ShardConfig, ShardMessage};
use corral_core::tree::snapshot::{Snapshot, initial_snapshot, merge_in_memory};
use corral_core::tree::view::View;
use corral_wire::OpCode;

use super::actors;
use super::judge::{Judge, Session};
use super::script::{CLIENTS, Script, Setup};
use super::tally::Tally;
use crate::request::connect;
use crate::shard_driver::{ShardDriver, ShardEffect};
use crate::violation::{Checked, Violation, require};

/// Bytes of memory that the server may hold for each byte of script, and in any case. The dearest are the smallest things
/// a request can ask for: a watch of a path of one letter, an operation of a multi. In any case there is what waits to be
/// sent to four connections, and a snapshot in the making.
pub(super) const MEMORY: (usize, usize) = (256, 1 << 20);

const FRAME_BYTES_MAX: usize = 2048;
const REPLY_BYTES_HARD: usize = 64 << 10;
/// The most bytes of a reply to one read of a script's small tree, but for multiRead, which has the hard limit.
const READ_BYTES_MAX: usize = 3 << 10;
/// Rounds in which a server must have done what there is to do.
const ROUNDS_MAX: usize = 20_000;

struct Side {
    shard: ShardDriver,
    mail: VecDeque<ShardMessage>,
    /// Requests that have not reached the leader.
    requests: Vec<Requests>,
}

#[derive(Default)]
struct Client {
    conn: Option<ConnId>,
    /// Sent, not arrived.
    wire: Vec<u8>,
    /// The server has said that it reads no further, and not yet that it does again.
    waits: bool,
    /// The server has said that there is something to send.
    dirty: bool,
    last_xid: i32,
    judge: Judge,
}

struct World {
    setup: Setup,
    now: Millis,
    sides: Vec<Side>,
    sequencer: Sequencer,
    /// Syncs that have reached the leader, by shard.
    syncs: Vec<(usize, Vec<ConnId>)>,
    clients: [Client; CLIENTS],
    accepted: u64,
    sessions: Vec<Session>,
    snapshot: Option<FrozenState>,
    index: u64,
    tally: Tally,
    forgets_syncs: bool,
}

thread_local! {
    /// The tree that every run begins with; the same for all, so made once.
    static SNAPSHOT: Arc<Snapshot> = Arc::new(initial_snapshot(1));
}

/// Plays a script; with a bug the answers to syncs get lost on their way.
pub(super) fn play(input: &[u8], forgets_syncs: bool) -> Result<Tally, Violation> {
    let (setup, mut script) = Script::new(input);
    let mut world = World::new(setup, forgets_syncs);
    while let Some((step, client)) = script.step() {
        world.step(step, client, &mut script)?;
    }
    world.settle()?;
    for client in world.clients.iter().filter(|client| client.conn.is_some()) {
        client.judge.is_served()?;
    }
    world.views_are_equal()?;
    world.stop()?;
    Ok(world.tally)
}

fn limits(setup: Setup) -> ShardLimits {
    let normal = ShardLimits {
        frame_bytes_max: FRAME_BYTES_MAX,
        reply_buffer_bytes_soft_max: REPLY_BYTES_HARD / 4,
        reply_buffer_bytes_hard_max: REPLY_BYTES_HARD,
        ..ShardLimits::default()
    };
    if !setup.tight {
        return normal;
    }
    ShardLimits {
        requests_in_flight_per_connection_max: 3,
        queued_bytes_max: 200,
        reply_buffer_bytes_soft_max: 300,
        reply_buffer_bytes_hard_max: 6_000,
        queued_per_connection_max: 3,
        inflight_bytes_per_shard_max: 1_500,
        proposals_bytes_max: 300,
        requests_in_flight_max: 5,
        large_request_bytes: 400,
        large_requests_bytes_max: 900,
        watches_per_connection_max: 6,
        identities_per_connection_max: 3,
        sessions_max: 3,
        ..normal
    }
}

impl World {
    fn new(setup: Setup, forgets_syncs: bool) -> World {
        let snapshot = SNAPSHOT.with(Arc::clone);
        let on = |on: bool, bits: u32| if on { bits } else { 0 };
        let features = on(setup.skip_acl, features::SKIP_ACL)
            | on(setup.extended_types, features::EXTENDED_TYPES)
            | on(setup.all_features, features::ENFORCE_QUOTA | features::SASL_ACLS | features::X509_ACLS)
            | on(setup.keeper_extensions, features::KEEPER)
            | on(setup.all_features && setup.tight, features::RECONFIG);
        let machine = StateMachine::new(View::new(Arc::clone(&snapshot)), SessionTable::new());
        let sequencer = actors::sequencer(features, 4096, machine);
        let side = |id| {
            let (skip_acl, keeper_extensions) = (setup.skip_acl, setup.keeper_extensions);
            let config = ShardConfig { skip_acl, keeper_extensions, ..actors::shard_config(id, limits(setup)) };
            let shard = ShardDriver::new(config, View::new(Arc::clone(&snapshot)), 0, Millis(0));
            Side { shard, mail: VecDeque::new(), requests: Vec::new() }
        };
        let sides = (0..setup.shards).map(side).collect();
        World {
            setup,
            now: Millis(0),
            sides,
            sequencer,
            syncs: Vec::new(),
            clients: Default::default(),
            accepted: 0,
            sessions: Vec::new(),
            snapshot: None,
            index: 0,
            tally: Tally::default(),
            forgets_syncs,
        }
    }

    fn side_of(&self, client: usize) -> usize {
        client % self.setup.shards
    }

    fn step(&mut self, step: u8, client: usize, script: &mut Script<'_>) -> Checked {
        match step {
            0 => {
                let length = usize::from(script.byte());
                self.send(client, script.take(length));
            }
            2 => self.connect(client, script.byte())?,
            3 => _ = self.arrive(client, script.byte().into())?,
            4 => _ = self.take(client, script.byte().into())?,
            5 => _ = self.propose(self.side_of(client)),
            6 => _ = self.commit()?,
            7 => _ = self.mail(self.side_of(client))?,
            8 => self.pass(script.two().into())?,
            9 => self.hang_up(client)?,
            10 => self.snapshot()?,
            11 => self.settle()?,
            _ => {
                let op = OpCode::ALL[usize::from(script.byte()) % OpCode::ALL.len()];
                let length = usize::from(script.two());
                self.conn(client);
                if !self.clients[client].judge.has_greeted() {
                    self.connect(client, 0)?;
                }
                self.request(client, op, script.take(length));
                // All but one of these run the server until nothing is left to do.
                if step != 1 {
                    self.settle()?;
                }
            }
        }
        Ok(())
    }

    /// The client's connection; a new one if the server has ended the last.
    fn conn(&mut self, client: usize) -> ConnId {
        if let Some(conn) = self.clients[client].conn {
            return conn;
        }
        self.accepted += 1;
        let (peer, entropy) = actors::client(self.accepted);
        let side = self.side_of(client);
        let conn = self.sides[side].shard.accept(self.now, peer, entropy).expect("it does not drain");
        self.clients[client] = Client { conn: Some(conn), ..Client::default() };
        conn
    }

    fn send(&mut self, client: usize, bytes: &[u8]) {
        self.conn(client);
        let client = &mut self.clients[client];
        client.judge.sends(bytes, FRAME_BYTES_MAX);
        client.wire.extend_from_slice(bytes);
    }

    fn request(&mut self, client: usize, op: OpCode, body: &[u8]) {
        let frame = actors::request(op, body, &mut self.clients[client].last_xid);
        self.send(client, &frame);
    }

    /// Bits of `how`: 0..2 the known session, or a new one; 3 a wrong password; 4 without the last byte. Bit 5: the
    /// client is ahead; 6: long timeout; 7: not at once.
    fn connect(&mut self, client: usize, how: u8) -> Checked {
        self.conn(client);
        let known = usize::from(how & 7).checked_sub(1).and_then(|at| self.sessions.get(at).copied());
        let (session_id, mut passwd) = known.unwrap_or_default();
        passwd[0] ^= u8::from(how & 8 != 0);
        let last_zxid_seen = if how & 32 == 0 { 0 } else { i64::MAX };
        let timeout_ms = if how & 64 == 0 { 4000 } else { i32::MAX };
        let read_only = (how & 16 == 0).then_some(false);
        self.send(client, &connect((session_id, passwd), last_zxid_seen, timeout_ms, read_only));
        if how & 128 == 0 { self.arrive(client, 0).map(|_| ()) } else { Ok(()) }
    }

    /// Bytes reach the server, unless it does not read. True if some did.
    fn arrive(&mut self, client: usize, count: usize) -> Result<bool, Violation> {
        let Some(conn) = self.clients[client].conn.filter(|_| !self.clients[client].waits) else { return Ok(false) };
        let wire = &mut self.clients[client].wire;
        let count = if count == 0 { wire.len() } else { count.min(wire.len()) };
        if count == 0 {
            return Ok(false);
        }
        let bytes: Vec<u8> = wire.drain(..count).collect();
        let at = self.side_of(client);
        let (now, side) = (self.now, &mut self.sides[at]);
        side.shard.receive(now, conn, &bytes, Zxid(0));
        let stalled = side.shard.is_stalled(conn);
        self.clients[client].waits = stalled;
        self.carry_out(at)?;
        Ok(true)
    }

    /// The client reads. True if there was something.
    fn take(&mut self, client: usize, count: usize) -> Result<bool, Violation> {
        let Some(conn) = self.clients[client].conn.filter(|_| self.clients[client].dirty) else { return Ok(false) };
        let at = self.side_of(client);
        let side = &mut self.sides[at];
        let unsent = side.shard.unsent(conn);
        let count = if count == 0 { unsent.len() } else { count.min(unsent.len()) };
        self.clients[client].dirty = count < side.shard.unsent_bytes(conn);
        let bytes = side.shard.send(self.now, conn, count);
        let begun = self.clients[client].judge.receives(&bytes, &mut self.tally)?;
        self.sessions.extend(begun.filter(|begun| self.sessions.len() < 7 && !self.sessions.contains(begun)));
        self.carry_out(at)?;
        Ok(true)
    }

    fn carry_out(&mut self, at: usize) -> Checked {
        loop {
            while let Some(effect) = self.sides[at].shard.next_effect() {
                self.do_one(at, effect)?;
            }
            let side = &mut self.sides[at];
            if !side.shard.needs_turn() {
                return self.output_is_bounded(at);
            }
            side.shard.turn(self.now);
        }
    }

    fn do_one(&mut self, at: usize, effect: ShardEffect) -> Checked {
        let side = &mut self.sides[at];
        match effect {
            ShardEffect::Question(question) => {
                let mut report = Report::default();
                let (mut from, mut pieces) = (Some(0), 0);
                while let Some(place) = from {
                    pieces += 1;
                    let piece = side.shard.report(question.command, place);
                    from = piece.next;
                    report.take(question.command, piece);
                }
                let text = format!("{pieces} pieces\n");
                side.shard.take(self.now, ShardMessage::FourLetterAnswered { conn: question.conn, text });
            }
            ShardEffect::Dirty(conn) => self.client_of(at, conn, "has something to send")?.dirty = true,
            // It may have ended in the same turn.
            ShardEffect::Resumed(conn) => {
                if let Ok(client) = self.client_of(at, conn, "is read again") {
                    client.waits = false;
                }
            }
            ShardEffect::Closed(conn, _) => {
                self.client_of(at, conn, "is closed")?.conn = None;
                self.tally.closed += 1;
            }
            ShardEffect::Requests(requests) => side.requests.push(requests),
            ShardEffect::Activity(SessionActivity { upto, sessions }) => {
                self.sequencer.take_activity(side.shard.config().shard, upto, &sessions);
            }
            ShardEffect::Applied | ShardEffect::Drained => {}
        }
        Ok(())
    }

    fn client_of(&mut self, at: usize, conn: ConnId, why: &str) -> Result<&mut Client, Violation> {
        let shards = self.setup.shards;
        let mut own = self.clients.iter_mut().enumerate().filter(|(client, _)| client % shards == at);
        own.find(|(_, client)| client.conn == Some(conn))
            .map(|(_, client)| client)
            .ok_or_else(|| Violation::of("connections", format!("{conn:?} {why}, but there is none")))
    }

    fn output_is_bounded(&self, at: usize) -> Checked {
        let side = &self.sides[at];
        let limits = limits(self.setup);
        let most = 2 * limits.reply_buffer_bytes_hard_max + limits.queued_per_connection_max * READ_BYTES_MAX;
        for conn in self.clients.iter().filter_map(|client| client.conn) {
            let unsent = side.shard.unsent_bytes(conn);
            require(unsent <= most, "output", || format!("{unsent} bytes wait for one client, {most} may"))?;
        }
        Ok(())
    }

    /// A shard's requests reach the leader. True if there were some.
    fn propose(&mut self, at: usize) -> bool {
        let requests = std::mem::take(&mut self.sides[at].requests);
        let some = !requests.is_empty();
        for Requests { proposals, syncs } in requests {
            self.sequencer.enqueue(self.now, proposals);
            self.syncs.push((at, syncs));
        }
        some
    }

    fn commit(&mut self) -> Result<bool, Violation> {
        let mut some = false;
        while let Some(batch) = self.sequencer.take_batch(actors::wall(self.now)) {
            some = true;
            let payload = batch.encode();
            if !self.setup.decoded {
                self.sequencer.proposed(batch);
            }
            self.index += 1;
            let applied = self.sequencer.apply_entry(self.now, self.index, 1, &payload, !self.setup.decoded);
            let applied = applied.map_err(|_| Violation::of("log", "an entry of our own is no batch"))?;
            self.tell(&ShardMessage::Batch(Arc::new(applied)));
        }
        for (at, syncs) in std::mem::take(&mut self.syncs) {
            some = true;
            if !self.forgets_syncs {
                self.sides[at].mail.push_back(ShardMessage::Synced(syncs));
            }
        }
        Ok(some)
    }

    fn tell(&mut self, event: &ShardMessage) {
        self.sides.iter_mut().for_each(|side| side.mail.push_back(event.clone()));
    }

    /// A shard takes a message. True if there was one.
    fn mail(&mut self, at: usize) -> Result<bool, Violation> {
        let now = self.now;
        let Side { shard, mail, .. } = &mut self.sides[at];
        let Some(mail) = mail.pop_front() else { return Ok(false) };
        shard.take(now, mail);
        self.carry_out(at)?;
        Ok(true)
    }

    fn pass(&mut self, ms: u64) -> Checked {
        self.now = self.now.plus(ms);
        for at in 0..self.sides.len() {
            self.sides[at].shard.tick(self.now);
            self.carry_out(at)?;
        }
        self.sequencer.tick(self.now, actors::wall(self.now));
        Ok(())
    }

    fn hang_up(&mut self, client: usize) -> Checked {
        let Some(conn) = self.clients[client].conn else { return Ok(()) };
        let at = self.side_of(client);
        self.sides[at].shard.hang_up(self.now, conn);
        self.carry_out(at)
    }

    fn snapshot(&mut self) -> Checked {
        // Snapshots are far apart: each shard has taken the last into use before the next begins.
        let is_swap = |event: &ShardMessage| matches!(event, ShardMessage::Swap(_));
        if self.sides.iter().any(|side| side.mail.iter().any(is_swap)) {
            return Ok(());
        }
        let Some(frozen) = self.snapshot.take() else {
            let frozen = self.sequencer.freeze(self.now, Vec::new());
            self.tell(&ShardMessage::Adopt(Arc::clone(&frozen.delta)));
            self.snapshot = Some(frozen);
            return Ok(());
        };
        let snapshot = merge_in_memory(&frozen.snapshot, &frozen.delta, 0, frozen.sessions.to_snapshot(), Vec::new());
        let snapshot = Arc::new(snapshot.map_err(|fault| Violation::of("snapshot", format!("{fault:?}")))?);
        self.tell(&ShardMessage::Swap(Arc::clone(&snapshot)));
        self.sequencer.snapshot_ready(snapshot);
        Ok(())
    }

    fn settle(&mut self) -> Checked {
        for _ in 0..ROUNDS_MAX {
            let mut busy = false;
            for client in 0..CLIENTS {
                busy |= self.arrive(client, 0)?;
            }
            for at in 0..self.sides.len() {
                busy |= self.propose(at);
            }
            busy |= self.commit()?;
            for at in 0..self.sides.len() {
                while self.mail(at)? {
                    busy = true;
                }
            }
            for client in 0..CLIENTS {
                busy |= self.take(client, 0)?;
            }
            if !busy {
                return self.nobody_is_forgotten();
            }
        }
        Err(Violation::of("progress", format!("still busy after {ROUNDS_MAX} rounds")))
    }

    fn nobody_is_forgotten(&self) -> Checked {
        for (at, client) in self.clients.iter().enumerate() {
            let Some(conn) = client.conn else { continue };
            let shard = &self.sides[self.side_of(at)].shard;
            require(client.wire.is_empty(), "progress", || format!("connection {at} is never read again"))?;
            let unsent = shard.unsent_bytes(conn);
            require(unsent == 0, "progress", || format!("{unsent} bytes for connection {at} are never announced"))?;
        }
        Ok(())
    }

    fn views_are_equal(&self) -> Checked {
        let machine = self.sequencer.machine();
        for side in &self.sides {
            let view = side.shard.view();
            require(view.zxid() == machine.view().zxid(), "views", || "a shard is at another zxid".to_owned())?;
            require(view.digest() == machine.view().digest(), "views", || "a shard sees another tree".to_owned())?;
        }
        Ok(())
    }

    /// The server stops, and every session runs out.
    fn stop(&mut self) -> Checked {
        for at in 0..self.sides.len() {
            self.sides[at].shard.take(self.now, ShardMessage::Drain);
            self.carry_out(at)?;
        }
        self.settle()?;
        let open: usize = self.sides.iter().map(|side| side.shard.connections()).sum();
        require(open == 0, "stop", || format!("{open} connections stay"))?;
        for _ in 0..3 {
            self.pass(60_000)?;
            self.settle()?;
        }
        let left = self.sequencer.sessions().len();
        let ephemerals = self.sequencer.view().ephemerals_count();
        require(left == 0 && ephemerals == 0, "stop", || format!("{left} sessions and {ephemerals} ephemerals stay"))?;
        self.views_are_equal()
    }
}
