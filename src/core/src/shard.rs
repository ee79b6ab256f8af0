//! The shard actor: one core's connections, its view of the tree, its watches. Serves every read here, at once; turns
//! writes into proposals; moves its view only by committed batches, so it is always at exactly one zxid.
//!
//! Exists once per configured shard. Knows no socket, no clock, no other shard: the driver carries bytes and messages.
//!
//! Order within a connection: requests are answered in the order they came. A write is proposed the moment it is
//! read; a read behind it waits parked, and is served when that write's transaction has been applied and no later one.

use crate::acl;
use crate::change::{AppliedBatch, AppliedTxn, OpResult, Outcome, SessionChange};
use crate::command::{Command, CommandKind, Identity, Origin, Proposals};
use crate::conn::{BufferPool, Close, Conn, Conns, Pending, Phase};
use crate::delta::Delta;
use crate::ids::{ConnId, Millis, SessionId, ShardId};
use crate::image::Image;
use crate::limits::ShardLimits;
use crate::read::{NotServed, ReadContext};
use crate::reply;
use crate::report::Statistics;
use crate::request::{self, Refused};
use crate::shared::Text;
use crate::view::View;
use crate::watch::WatchTable;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::mem;
use core::net::SocketAddr;
use corral_wire::consts::ZXID_UNNUMBERED;
use corral_wire::fourletter::{FourLetter, TELNET_CLOSE};
use corral_wire::frame::next_frame;
use corral_wire::op::Kind as OpKind;
use corral_wire::records::{AuthPacket, ConnectRequest, ReplyHeader, RequestHeader, SyncRequest};
use corral_wire::{ErrorCode, OpCode, Reader};
use hashbrown::HashMap;
use xxhash_rust::xxh3::Xxh3DefaultBuilder;

/// What a shard is told at its start and never changes.
#[derive(Clone, Debug)]
pub struct ShardConfig {
    pub shard: ShardId,
    /// Server id, 1..=255.
    pub server: u8,
    /// Unique to this start of the process.
    pub incarnation: u64,
    pub session_timeout_min_ms: i32,
    pub session_timeout_max_ms: i32,
    /// How long a connection may take to send its connect request.
    pub sessionless_timeout_ms: u64,
    /// Four-letter words that are answered.
    pub whitelist: Vec<FourLetter>,
    /// `user:hash` of the super user, if there is one.
    pub super_digest: Option<Text>,
    pub skip_acl: bool,
    pub limits: ShardLimits,
}

/// Things that are dropped somewhere else: freeing a million entries would stop this core.
#[derive(Debug)]
pub enum Garbage {
    Delta(Delta),
    Frozen(Arc<Delta>),
    Image(Arc<Image>),
}

/// What a shard asks of its driver, collected over a turn.
#[derive(Debug, Default)]
pub struct Outputs {
    /// Connections with something to send, see [`Shard::unsent`].
    pub dirty: Vec<ConnId>,
    /// Connections that may be read from again.
    pub resumed: Vec<ConnId>,
    /// Connections that have ended: the socket is to be closed.
    pub closed: Vec<(ConnId, Close)>,
    /// Connections whose sync waits for the leader.
    pub syncs: Vec<ConnId>,
    /// Four-letter words to be answered with every shard's report.
    pub words: Vec<(ConnId, FourLetter)>,
    pub garbage: Vec<Garbage>,
}

impl Outputs {
    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        self.dirty.is_empty()
            && self.resumed.is_empty()
            && self.closed.is_empty()
            && self.syncs.is_empty()
            && self.words.is_empty()
            && self.garbage.is_empty()
    }
}

/// See the module.
pub struct Shard {
    config: ShardConfig,
    pub(crate) view: View,
    pub(crate) watches: WatchTable,
    pub(crate) conns: Conns,
    sessions: HashMap<SessionId, ConnId, Xxh3DefaultBuilder>,
    /// Living sessions of the whole server, here or not.
    pub(crate) sessions_alive: u64,
    proposals: Proposals,
    /// Counts `take_proposals`, to know whether an identity is in the table of this turn already. Starts at 1.
    turn: u64,
    /// Bytes of each proposed command that has not come back, oldest first.
    in_flight: VecDeque<usize>,
    pub(crate) in_flight_bytes: usize,
    /// Stalled because too much is in flight from this shard.
    held_back: Vec<ConnId>,
    draining: bool,
    heard: Vec<ConnId>,
    reported_at: Millis,
    scanned_at: Millis,
    buffers: BufferPool,
    pub(crate) event: Vec<u8>,
    pub(crate) statistics: Statistics,
}

/// The verdict on a connection after some of its input: go on, or end it.
type Verdict = Result<(), Close>;

impl Shard {
    /// A shard without connections, at the zxid of `view`.
    pub fn new(config: ShardConfig, view: View, sessions_alive: u64, now: Millis) -> Self {
        let watches = WatchTable::new(config.limits.watches_per_conn_max);
        Self {
            config,
            view,
            watches,
            conns: Conns::default(),
            sessions: HashMap::with_hasher(Xxh3DefaultBuilder::new()),
            sessions_alive,
            proposals: Proposals::default(),
            turn: 1,
            in_flight: VecDeque::new(),
            in_flight_bytes: 0,
            held_back: Vec::new(),
            draining: false,
            heard: Vec::new(),
            reported_at: now,
            scanned_at: now,
            buffers: BufferPool::default(),
            event: Vec::new(),
            statistics: Statistics::default(),
        }
    }

    pub const fn config(&self) -> &ShardConfig {
        &self.config
    }

    pub const fn view(&self) -> &View {
        &self.view
    }

    /// Connections open now.
    pub const fn connections(&self) -> usize {
        self.conns.len()
    }

    /// A connection was accepted. `entropy` is fresh from the system's generator: it becomes the password of a session.
    pub fn accepted(&mut self, now: Millis, peer: SocketAddr, entropy: [u8; 16]) -> ConnId {
        let address = alloc::format!("{}", peer.ip().to_canonical());
        let identities = Arc::new(vec![acl::identity("ip", &address)]);
        self.conns.insert(|id| Conn::new(id, peer, entropy, now, identities))
    }

    /// Bytes came in. They are taken whole; while the connection is stalled the driver reads no more of it.
    pub fn received(&mut self, now: Millis, id: ConnId, bytes: &[u8], out: &mut Outputs) {
        let Some(mut conn) = self.conns.take(id) else { return };
        conn.heard = now;
        if !mem::replace(&mut conn.heard_noted, true) {
            self.heard.push(id);
        }
        let verdict = if conn.input.is_empty() {
            self.consume(now, &mut conn, bytes, out).map(|used| conn.input.extend_from_slice(&bytes[used..]))
        } else {
            conn.input.extend_from_slice(bytes);
            self.consume_kept(now, &mut conn, out)
        };
        self.settle(now, conn, verdict, out);
    }

    /// Whether the driver should leave this connection's socket unread for now.
    pub fn is_stalled(&self, id: ConnId) -> bool {
        self.conns.get(id).is_none_or(|conn| conn.stalled)
    }

    /// The bytes that wait to be sent.
    pub fn unsent(&self, id: ConnId) -> &[u8] {
        self.conns.get(id).map_or(&[], |conn| &conn.output[conn.sent..])
    }

    /// The socket took `count` bytes of [`Shard::unsent`].
    pub fn sent(&mut self, now: Millis, id: ConnId, count: usize, out: &mut Outputs) {
        let Some(mut conn) = self.conns.take(id) else { return };
        conn.sent += count;
        assert!(conn.sent <= conn.output.len(), "no more was sent than there was");
        if conn.unsent() == 0 {
            conn.sent = 0;
            conn.announced = false;
            self.buffers.take_back(&mut conn.output);
        }
        let verdict = self.resume(now, &mut conn, out);
        self.settle(now, conn, verdict, out);
    }

    /// The socket failed or the client closed it.
    pub fn hung_up(&mut self, id: ConnId, out: &mut Outputs) {
        if let Some(conn) = self.conns.take(id) {
            self.end(&conn, Close::HungUp, out);
        }
    }

    /// Bytes of proposals not taken yet; the driver takes them before they outgrow a log entry.
    pub const fn proposal_bytes(&self) -> usize {
        self.proposals.bytes
    }

    /// The turn's proposals, if there are any.
    pub fn take_proposals(&mut self) -> Option<Proposals> {
        if self.proposals.commands.is_empty() {
            return None;
        }
        self.turn += 1;
        Some(mem::take(&mut self.proposals))
    }

    /// A committed batch: the only thing that moves the view. Transaction by transaction: events, then the new state,
    /// then the answers and the reads that waited for it.
    pub fn apply(&mut self, now: Millis, batch: &AppliedBatch, out: &mut Outputs) {
        for txn in &batch.txns {
            for change in &txn.changes {
                self.notify(now, txn.zxid, change, out);
                self.view.apply(change);
            }
            self.view.set_zxid(txn.zxid);
            if let Some(change) = txn.session {
                self.session_changed(now, change, txn.origin, out);
            }
            if let Some(origin) = txn.origin.filter(|origin| self.is_mine(*origin)) {
                let bytes = self.in_flight.pop_front().expect("every command of ours that comes back was in flight");
                self.in_flight_bytes -= bytes;
                self.answer(now, origin.conn, txn, out);
            }
        }
        if self.in_flight_bytes < self.config.limits.in_flight_bytes_max {
            for id in mem::take(&mut self.held_back) {
                self.resume_by_id(now, id, out);
            }
        }
        self.close_if_drained(now, out);
    }

    /// A sync asked for in [`Outputs::syncs`] has come back from the leader, behind every batch it stands for.
    pub fn synced(&mut self, now: Millis, id: ConnId, out: &mut Outputs) {
        let Some(mut conn) = self.conns.take(id) else { return };
        if let Some(Pending::Sync { done, .. }) = conn.pending.back_mut() {
            *done = true;
            conn.barred = false;
        }
        let verdict = self.catch_up(now, &mut conn).and_then(|()| self.resume(now, &mut conn, out));
        self.settle(now, conn, verdict, out);
    }

    /// Time passes; call it every few hundred milliseconds. Gives the sessions heard from since the last call, and the
    /// time up to which that list is complete: the last call's, because every socket has had its turn since.
    pub fn tick(&mut self, now: Millis, out: &mut Outputs) -> (Millis, Vec<(SessionId, Millis)>) {
        const SCAN_MS: u64 = 1000;
        let mut list = Vec::with_capacity(self.heard.len());
        for id in mem::take(&mut self.heard) {
            if let Some(conn) = self.conns.get_mut(id) {
                conn.heard_noted = false;
                if conn.session != SessionId(0) {
                    list.push((conn.session, conn.heard));
                }
            }
        }
        if now.since(self.scanned_at) >= SCAN_MS {
            self.scanned_at = now;
            self.close_overdue(now, out);
        }
        (mem::replace(&mut self.reported_at, now), list)
    }

    /// The server stops: nothing more is read. Connections end when every answer under way has been sent.
    pub fn drain(&mut self, now: Millis, out: &mut Outputs) {
        self.draining = true;
        self.close_if_drained(now, out);
    }

    fn close_if_drained(&mut self, now: Millis, out: &mut Outputs) {
        if !self.draining || !self.in_flight.is_empty() || self.conns.len() == 0 {
            return;
        }
        let all: Vec<ConnId> = self.conns.iter().map(|conn| conn.id).collect();
        for id in all {
            if let Some(mut conn) = self.conns.take(id) {
                conn.close_after_flush(now, Close::Shutdown);
                self.settle(now, conn, Ok(()), out);
            }
        }
    }

    /// The state machine froze its delta at this shard's zxid; the shard uses the shared one from now on.
    pub fn adopt_frozen(&mut self, frozen: Arc<Delta>, out: &mut Outputs) {
        let own = self.view.adopt_frozen(frozen);
        out.garbage.push(Garbage::Delta(own));
    }

    /// The frozen delta is part of the new image.
    pub fn swap_image(&mut self, image: Arc<Image>, out: &mut Outputs) {
        let (old, frozen) = self.view.swap_image(image);
        out.garbage.push(Garbage::Image(old));
        out.garbage.extend(frozen.map(Garbage::Frozen));
    }

    // ----- input -----

    fn consume_kept(&mut self, now: Millis, conn: &mut Conn, out: &mut Outputs) -> Verdict {
        let mut input = mem::take(&mut conn.input);
        let used = self.consume(now, conn, &input, out)?;
        if used == input.len() {
            input = Vec::new();
        } else {
            input.drain(..used);
        }
        conn.input = input;
        Ok(())
    }

    /// Takes whole frames off the front of `bytes` until there is none or the connection must wait.
    fn consume(&mut self, now: Millis, conn: &mut Conn, bytes: &[u8], out: &mut Outputs) -> Result<usize, Close> {
        let mut used = 0;
        loop {
            if matches!(conn.phase, Phase::Closing { .. }) {
                return Ok(bytes.len());
            }
            conn.stalled = self.must_wait(conn);
            if conn.stalled {
                return Ok(used);
            }
            let rest = &bytes[used..];
            if conn.phase == Phase::Greeting && self.greeted_with_word(now, conn, rest, out)? {
                return Ok(bytes.len());
            }
            let Ok(found) = next_frame(rest, self.config.limits.frame_bytes_max) else {
                return Err(bad_length(conn.phase, rest));
            };
            let Some((frame, length)) = found else { return Ok(used) };
            if conn.phase == Phase::Greeting {
                self.connect(now, conn, frame)?;
            } else {
                self.request(now, conn, frame, out)?;
            }
            used += length;
        }
    }

    /// Whether something of this connection, or of the shard, must be finished before more is read.
    fn must_wait(&mut self, conn: &Conn) -> bool {
        let limits = &self.config.limits;
        if self.in_flight_bytes >= limits.in_flight_bytes_max {
            self.held_back.push(conn.id);
            return true;
        }
        self.draining
            || conn.barred
            || conn.phase == Phase::Connecting
            || conn.pending.len() >= limits.requests_per_conn_max
            || conn.parked_bytes >= limits.parked_bytes_max
            || conn.unsent() >= limits.reply_bytes_soft
    }

    fn resume_by_id(&mut self, now: Millis, id: ConnId, out: &mut Outputs) {
        if let Some(mut conn) = self.conns.take(id) {
            let verdict = self.resume(now, &mut conn, out);
            self.settle(now, conn, verdict, out);
        }
    }

    /// Goes on with a stalled connection's input if what held it back is gone.
    fn resume(&mut self, now: Millis, conn: &mut Conn, out: &mut Outputs) -> Verdict {
        if !conn.stalled {
            return Ok(());
        }
        self.consume_kept(now, conn, out)?;
        if !conn.stalled {
            out.resumed.push(conn.id);
        }
        Ok(())
    }

    /// Puts a connection back after it was worked on, or ends it.
    fn settle(&mut self, now: Millis, mut conn: Box<Conn>, verdict: Verdict, out: &mut Outputs) {
        if conn.unsent() > self.config.limits.reply_bytes_hard {
            return self.end(&conn, Close::SlowReader, out);
        }
        if let Err(why) = verdict {
            conn.close_after_flush(now, why);
        }
        if let Phase::Closing { why, .. } = conn.phase
            && conn.unsent() == 0
        {
            return self.end(&conn, why, out);
        }
        if conn.unsent() > 0 && !mem::replace(&mut conn.announced, true) {
            out.dirty.push(conn.id);
        }
        self.conns.put_back(conn);
    }

    fn end(&mut self, conn: &Conn, why: Close, out: &mut Outputs) {
        let hasher = self.view.hasher();
        self.watches.drop_conn(conn.id, |path| hasher.hash(path));
        if self.sessions.get(&conn.session) == Some(&conn.id) {
            self.sessions.remove(&conn.session);
        }
        self.conns.forget(conn);
        out.closed.push((conn.id, why));
    }

    fn close_overdue(&mut self, now: Millis, out: &mut Outputs) {
        const LINGER_MS: u64 = 5000;
        let sessionless = self.config.sessionless_timeout_ms;
        let overdue = |conn: &Conn| match conn.phase {
            Phase::Greeting if now.since(conn.opened) > sessionless => Some(Close::NeverConnected),
            Phase::Closing { since, why } if now.since(since) > LINGER_MS => Some(why),
            Phase::Live if now.since(conn.heard) > u64::try_from(conn.timeout_ms).unwrap_or(0) => Some(Close::Silent),
            _ => None,
        };
        let list: Vec<(ConnId, Close)> = self.conns.iter().filter_map(|conn| Some((conn.id, overdue(conn)?))).collect();
        for (id, why) in list {
            if let Some(conn) = self.conns.take(id) {
                self.end(&conn, why, out);
            }
        }
    }

    // ----- greeting -----

    /// True when the connection began with a four-letter word, which is all it will ever say.
    fn greeted_with_word(
        &mut self,
        now: Millis,
        conn: &mut Conn,
        bytes: &[u8],
        out: &mut Outputs,
    ) -> Result<bool, Close> {
        if conn.word.is_some() {
            return Ok(true);
        }
        let Some(first) = bytes.first_chunk::<4>() else { return Ok(false) };
        if *first == TELNET_CLOSE {
            return Err(Close::Done);
        }
        let Some(word) = FourLetter::from_bytes(*first) else { return Ok(false) };
        conn.word = Some(word);
        if !self.config.whitelist.contains(&word) {
            let refusal = alloc::format!("{} is not executed because it is not in the whitelist.\n", word.name());
            self.say(conn, refusal.as_bytes());
            return Err(Close::Done);
        }
        match word {
            FourLetter::Ruok => self.say(conn, b"imok"),
            FourLetter::Isro => self.say(conn, b"rw"),
            _ => {
                out.words.push((conn.id, word));
                return Ok(true);
            }
        }
        conn.close_after_flush(now, Close::Done);
        Ok(true)
    }

    /// The text for a four-letter word is ready; `None` for one that this server does not serve.
    pub fn answer_word(&mut self, now: Millis, id: ConnId, text: &str, out: &mut Outputs) {
        let Some(mut conn) = self.conns.take(id) else { return };
        self.say(&mut conn, text.as_bytes());
        self.settle(now, conn, Err(Close::Done), out);
    }

    fn say(&mut self, conn: &mut Conn, text: &[u8]) {
        self.buffers.lend(&mut conn.output);
        conn.output.extend_from_slice(text);
    }

    fn connect(&mut self, now: Millis, conn: &mut Conn, frame: &[u8]) -> Verdict {
        let request = ConnectRequest::decode(&mut Reader::new(frame)).map_err(|_| Close::Malformed)?;
        conn.knows_read_only = request.read_only.is_some();
        if request.last_zxid_seen > self.view.zxid().wire() {
            return Err(Close::ClientAhead);
        }
        let timeout_ms =
            request.timeout_ms.clamp(self.config.session_timeout_min_ms, self.config.session_timeout_max_ms);
        let kind = if request.session_id == 0 {
            if self.sessions_alive >= self.config.limits.sessions_max {
                return Err(Close::SessionLimit);
            }
            CommandKind::CreateSession { timeout_ms, password: conn.entropy }
        } else {
            let password = request.passwd.and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; 16]);
            CommandKind::AttachSession { session: SessionId(request.session_id), timeout_ms, password }
        };
        conn.phase = Phase::Connecting;
        conn.pending.push_back(Pending::Connect { at: now });
        self.propose(conn, kind);
        Ok(())
    }

    // ----- requests -----

    fn request(&mut self, now: Millis, conn: &mut Conn, frame: &[u8], out: &mut Outputs) -> Verdict {
        let mut reader = Reader::new(frame);
        let header = RequestHeader::decode(&mut reader).map_err(|_| Close::Malformed)?;
        conn.counters.received += 1;
        self.statistics.received += 1;
        let op = OpCode::from_i32(header.op);
        match op.map(OpCode::kind) {
            Some(OpKind::Connection) if op == Some(OpCode::Auth) => {
                return self.authenticate(now, conn, header.xid, &mut reader);
            }
            Some(OpKind::Write) => {
                let op = op.expect("has a kind");
                if let Ok(kind) = request::command(op, &mut reader) {
                    conn.barred |= op == OpCode::CloseSession;
                    conn.pending.push_back(Pending::Write { xid: header.xid, op, at: now });
                    self.propose(conn, kind);
                    return Ok(());
                }
            }
            _ if op == Some(OpCode::Sync) => {
                let path = SyncRequest::decode(&mut reader).ok().and_then(|request| request.path);
                if let Some(path) = path {
                    let path = path.as_bytes().into();
                    conn.pending.push_back(Pending::Sync { xid: header.xid, path, done: false, at: now });
                    conn.barred = true;
                    out.syncs.push(conn.id);
                    return Ok(());
                }
            }
            _ => {}
        }
        if conn.pending.is_empty() {
            return self.serve(now, conn, frame, now);
        }
        conn.parked_bytes += frame.len();
        conn.pending.push_back(Pending::Parked { frame: frame.into(), at: now });
        Ok(())
    }

    fn propose(&mut self, conn: &mut Conn, kind: CommandKind) {
        if conn.identity_slot.0 != self.turn {
            let slot = u32::try_from(self.proposals.identities.len()).expect("fewer identities than connections");
            conn.identity_slot = (self.turn, slot);
            self.proposals.identities.push(Arc::clone(&conn.identities));
        }
        let bytes = request::weight(&kind);
        let origin = Some(self.origin(conn.id));
        self.proposals.bytes += bytes;
        self.proposals.commands.push(Command { origin, session: conn.session, identities: conn.identity_slot.1, kind });
        self.in_flight.push_back(bytes);
        self.in_flight_bytes += bytes;
    }

    const fn origin(&self, conn: ConnId) -> Origin {
        Origin { server: self.config.server, shard: self.config.shard, conn, incarnation: self.config.incarnation }
    }

    fn is_mine(&self, origin: Origin) -> bool {
        origin == self.origin(origin.conn)
    }

    /// Adds an identity to the connection; done at once, ahead of requests that wait (protocol chapter 17.6).
    fn authenticate(&mut self, now: Millis, conn: &mut Conn, xid: i32, reader: &mut Reader<'_>) -> Verdict {
        let packet = AuthPacket::decode(reader).map_err(|_| Close::Malformed)?;
        self.buffers.lend(&mut conn.output);
        let proven = match packet.scheme {
            Some("digest") => Some(acl::identity("digest", &acl::digest_id(packet.auth.unwrap_or_default()))),
            Some("ip") => None,
            _ => {
                reply::error(&mut conn.output, xid, crate::ids::Zxid(0), ErrorCode::AuthFailed);
                self.count_reply(conn, now, now);
                return Err(Close::AuthFailed);
            }
        };
        if let Some(identity) = proven {
            self.add_identity(conn, identity)?;
        }
        reply::done(&mut conn.output, xid, crate::ids::Zxid(0));
        self.count_reply(conn, now, now);
        Ok(())
    }

    fn add_identity(&self, conn: &mut Conn, identity: Identity) -> Verdict {
        let is_super = self.config.super_digest.as_ref() == Some(&identity.id);
        let mut list = Vec::clone(&conn.identities);
        for new in is_super.then(|| acl::identity("super", "")).into_iter().chain([identity]) {
            if !list.contains(&new) {
                list.push(new);
            }
        }
        if list.len() > self.config.limits.identities_per_conn_max {
            return Err(Close::AuthFailed);
        }
        conn.identities = Arc::new(list);
        conn.identity_slot = (0, 0);
        Ok(())
    }

    /// Answers a request that need not, or cannot, be proposed. Everything before it has been answered.
    fn serve(&mut self, now: Millis, conn: &mut Conn, frame: &[u8], at: Millis) -> Verdict {
        let mut reader = Reader::new(frame);
        let header = RequestHeader::decode(&mut reader).map_err(|_| Close::Malformed)?;
        self.buffers.lend(&mut conn.output);
        let zxid = self.view.zxid();
        let op = OpCode::from_i32(header.op);
        let served = match op {
            Some(OpCode::Ping) => {
                reply::done(&mut conn.output, header.xid, zxid);
                Ok(())
            }
            Some(OpCode::Sync) => {
                reply::error(&mut conn.output, header.xid, zxid, ErrorCode::MarshallingError);
                Ok(())
            }
            Some(op) if op.kind() == OpKind::Write => match request::command(op, &mut reader) {
                Err(Refused::NotServed) => Err(NotServed),
                _ => {
                    reply::error(&mut conn.output, header.xid, zxid, ErrorCode::MarshallingError);
                    Ok(())
                }
            },
            Some(op) if op.kind() == OpKind::Read => {
                let Self { view, watches, config, .. } = self;
                let identities = conn.identities.as_slice();
                let mut context = ReadContext { view, watches, conn: conn.id, identities, skip_acl: config.skip_acl };
                context.serve(&mut conn.output, header.xid, op, &mut reader)
            }
            _ => Err(NotServed),
        };
        self.count_reply(conn, now, at);
        served.map_err(|NotServed| {
            let refusal = ReplyHeader::error(header.xid, ZXID_UNNUMBERED, ErrorCode::Unimplemented);
            reply::frame(&mut conn.output, |writer| refusal.encode(writer));
            Close::UnknownOp(header.op)
        })
    }

    fn count_reply(&mut self, conn: &mut Conn, now: Millis, at: Millis) {
        conn.counters.sent += 1;
        self.statistics.sent += 1;
        self.statistics.latency(now.since(at));
    }

    // ----- outcomes -----

    fn answer(&mut self, now: Millis, id: ConnId, txn: &AppliedTxn, out: &mut Outputs) {
        let Some(mut conn) = self.conns.take(id) else { return };
        let verdict = self
            .answer_first(now, &mut conn, txn)
            .and_then(|()| self.catch_up(now, &mut conn))
            .and_then(|()| self.resume(now, &mut conn, out));
        self.settle(now, conn, verdict, out);
    }

    /// The oldest unanswered request of the connection is the one this transaction belongs to: both are in order.
    fn answer_first(&mut self, now: Millis, conn: &mut Conn, txn: &AppliedTxn) -> Verdict {
        self.buffers.lend(&mut conn.output);
        match conn.pending.pop_front() {
            Some(Pending::Write { xid, op, at }) => {
                if matches!(txn.outcome, Outcome::Op(OpResult::Error(ErrorCode::SessionMoved))) || moved(&txn.outcome) {
                    return Err(Close::SessionMoved);
                }
                reply::outcome(&mut conn.output, xid, txn.zxid, &txn.outcome);
                self.count_reply(conn, now, at);
                if op == OpCode::CloseSession { Err(Close::Done) } else { Ok(()) }
            }
            Some(Pending::Connect { at }) => {
                self.count_reply(conn, now, at);
                self.connected(conn, &txn.outcome)
            }
            other => unreachable!("a command of this connection came back, but {other:?} waits first"),
        }
    }

    fn connected(&mut self, conn: &mut Conn, outcome: &Outcome) -> Verdict {
        match outcome {
            Outcome::SessionCreated { session, timeout_ms, password }
            | Outcome::SessionAttached { session, timeout_ms, password } => {
                conn.phase = Phase::Live;
                conn.session = *session;
                conn.timeout_ms = *timeout_ms;
                self.sessions.insert(*session, conn.id);
                reply::connected(&mut conn.output, session.0, *timeout_ms, password, conn.knows_read_only);
                Ok(())
            }
            _ => {
                reply::connected(&mut conn.output, 0, 0, &[0; 16], conn.knows_read_only);
                Err(Close::SessionRefused)
            }
        }
    }

    /// Serves what waited for the requests before it, up to the next one that still waits itself.
    fn catch_up(&mut self, now: Millis, conn: &mut Conn) -> Verdict {
        while matches!(conn.pending.front(), Some(Pending::Parked { .. } | Pending::Sync { done: true, .. })) {
            match conn.pending.pop_front() {
                Some(Pending::Parked { frame, at }) => {
                    conn.parked_bytes -= frame.len();
                    self.serve(now, conn, &frame, at)?;
                }
                Some(Pending::Sync { xid, path, at, .. }) => {
                    self.buffers.lend(&mut conn.output);
                    let zxid = self.view.zxid().wire();
                    reply::frame(&mut conn.output, |writer| {
                        ReplyHeader::ok(xid, zxid).encode(writer);
                        writer.buffer(Some(&path));
                    });
                    self.count_reply(conn, now, at);
                }
                other => unreachable!("{other:?} was in front"),
            }
        }
        Ok(())
    }

    fn session_changed(&mut self, now: Millis, change: SessionChange, origin: Option<Origin>, out: &mut Outputs) {
        let asker = origin.filter(|origin| self.is_mine(*origin)).map(|origin| origin.conn);
        let (session, why) = match change {
            SessionChange::Created(_) => {
                self.sessions_alive += 1;
                return;
            }
            SessionChange::Attached(session) => (session, Close::SessionMoved),
            SessionChange::Closed(session) => {
                self.sessions_alive -= 1;
                (session, Close::SessionExpired)
            }
        };
        let bound = self.sessions.get(&session).copied().filter(|conn| Some(*conn) != asker);
        if let Some(conn) = bound.and_then(|conn| self.conns.take(conn)) {
            self.end_now(now, conn, why, out);
        }
    }

    /// Ends a connection whose session went elsewhere: what is queued for it may still leave.
    fn end_now(&mut self, now: Millis, mut conn: Box<Conn>, why: Close, out: &mut Outputs) {
        if self.sessions.get(&conn.session) == Some(&conn.id) {
            self.sessions.remove(&conn.session);
        }
        conn.close_after_flush(now, why);
        self.settle(now, conn, Ok(()), out);
    }

    /// Appends an event to a connection's output, unless it may not see the node.
    pub(crate) fn deliver(&mut self, now: Millis, id: ConnId, out: &mut Outputs) {
        let Some(mut conn) = self.conns.take(id) else { return };
        if !matches!(conn.phase, Phase::Closing { .. }) {
            self.buffers.lend(&mut conn.output);
            conn.output.extend_from_slice(&self.event);
            conn.counters.sent += 1;
            self.statistics.sent += 1;
        }
        self.settle(now, conn, Ok(()), out);
    }

    pub(crate) fn identities(&self, id: ConnId) -> Option<&Arc<Vec<Identity>>> {
        self.conns.get(id).map(|conn| &conn.identities)
    }
}

fn moved(outcome: &Outcome) -> bool {
    let is_moved = |result: &OpResult| *result == OpResult::Error(ErrorCode::SessionMoved);
    matches!(outcome, Outcome::Multi(results) if results.iter().any(is_moved))
}

fn bad_length(phase: Phase, bytes: &[u8]) -> Close {
    let word = bytes.first_chunk::<4>().copied().unwrap_or_default();
    match &word {
        b"GET " | b"POST" | b"HEAD" | b"PUT " | b"OPTI" if phase == Phase::Greeting => Close::ForeignProtocol("HTTP"),
        [0x16, 0x03, _, _] if phase == Phase::Greeting => Close::ForeignProtocol("TLS"),
        _ => Close::BadLength(i32::from_be_bytes(word)),
    }
}
