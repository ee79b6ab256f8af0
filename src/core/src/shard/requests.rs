//! Requests of a session: writes become proposals, reads are served or wait for the writes before them.

use super::in_flight::Proposed;
use super::memory::Wanting;
use super::{Answer, Served, Shard};
use crate::command::request;
use crate::command::{Command, CommandKind, identities_weight};
use crate::ids::{ConnId, Millis, Origin, Zxid};
use crate::limits::{ANSWERED_MAX, AUTH_BYTE_COST, IDENTITIES_BYTES_MAX, MULTI_OP_COST, REQUEST_COST};
use crate::ops::decode::Refused;
use crate::shard::audit::Draft;
use crate::shard::conn::{Close, Conn, Pending};
use crate::shard::counters::Answered;
use crate::shard::load;
use crate::shard::read::{self, PutOff, Unserved};
use crate::shard::reply;
use crate::shard::sasl::{self, Failed, Proven, Users};
use crate::tree::acl::{self, AnySaslUser, Identity};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use corral_types::Micros;
use corral_wire::consts::{XID_PING, ZXID_UNNUMBERED};
use corral_wire::limits::REQUEST_HEADER_BYTES;
use corral_wire::op::Kind as OpKind;
use corral_wire::records::{AuthPacket, GetSaslRequest, ReplyHeader, RequestHeader, SetSaslResponse, SyncRequest};
use corral_wire::{ErrorCode, OpCode, Reader};

impl Shard {
    /// Takes a request, unless it is a write that must wait: then the connection is queued for it.
    pub(super) fn request(&mut self, now: Millis, conn: &mut Conn, frame: &[u8]) -> Served {
        let mut reader = Reader::new(frame);
        let header = RequestHeader::decode(&mut reader).map_err(|_| Close::Malformed)?;
        let op = OpCode::from_i32(header.op);
        match op.map(OpCode::kind) {
            Some(OpKind::Connection) if op == Some(OpCode::Auth) => {
                return self.authenticate(conn, header.xid, &mut reader);
            }
            Some(OpKind::Connection) if op == Some(OpCode::Sasl) => {
                return self.sasl(conn, header.xid, &mut reader);
            }
            _ if !self.config.enforce_schemes.is_empty() && !self.is_authenticated(conn) => {
                reply::error(
                    conn.output.buffer(&mut self.buffers),
                    header.xid,
                    Zxid(0),
                    ErrorCode::SessionClosedRequireSaslAuth,
                );
                self.count_sent(conn);
                return Err(Close::Unauthenticated);
            }
            Some(_) if op.is_some_and(|op| self.writes(op)) && !conn.session.is_read_only() => {
                let op = op.expect("has a kind");
                if self.queues_unseen(conn, op, frame.len()) {
                    return Ok(());
                }
                let large = self.large(frame)?;
                self.turn.spend(REQUEST_COST + frame.len());
                if let Ok(kind) = self.command(op, &conn.identities, &mut reader)
                    && !(self.refuses_growth && kind.adds_data())
                {
                    if let CommandKind::Multi(ops) = &kind {
                        self.turn.spend(ops.len() * MULTI_OP_COST);
                    }
                    let Some(cost) = self.admit_write(conn, &kind, frame.len()) else { return Ok(()) };
                    conn.blocked |= matches!(op, OpCode::CloseSession | OpCode::Reconfig);
                    conn.pending.push(Pending::Write { xid: header.xid, op, at: self.clock });
                    self.propose(conn, kind, large, cost);
                    return Ok(());
                }
            }
            _ if op == Some(OpCode::Sync) && !conn.session.is_read_only() => {
                if let Ok(request) = SyncRequest::decode(&mut reader) {
                    let path = request.path.map(|path| path.as_bytes().into());
                    conn.pending.push(Pending::Sync { xid: header.xid, path, done: false, at: self.clock });
                    conn.blocked = true;
                    self.freshness.ask(conn);
                    return Ok(());
                }
            }
            Some(_) if op.is_some_and(|op| self.walks(op)) => {
                self.queue_long(conn, header.xid, op.expect("has a kind"), reader.rest());
                return self.catch_up(now, conn);
            }
            _ => {}
        }
        let first = conn.pending.is_empty();
        if first && (self.view.zxid() >= self.freshness.gate() || self.may_see_before(conn, frame)) {
            self.serve_decoded(now, conn, frame, header, self.clock)?;
            return if conn.pending.is_empty() { Ok(()) } else { self.catch_up(now, conn) };
        }
        if let Some(op) = op.filter(|op| self.will_be_long(*op, reader.rest())) {
            self.queue_long(conn, header.xid, op, reader.rest());
            return if first { self.catch_up(now, conn) } else { Ok(()) };
        }
        let (floor, barrier) = (self.freshness.floor(), self.freshness.barrier(conn, op));
        conn.pending.push(Pending::Queued { frame: frame.into(), floor, barrier, at: self.clock });
        if first { self.catch_up(now, conn) } else { Ok(()) }
    }

    /// Queues a read that takes more than a turn. Nothing is taken behind it.
    fn queue_long(&mut self, conn: &mut Conn, xid: i32, op: OpCode, record: &[u8]) {
        conn.blocked = true;
        let (begun, floor, barrier) = (None, self.freshness.floor(), self.freshness.barrier(conn, Some(op)));
        conn.pending.push(Pending::Long { xid, op, record: record.into(), begun, floor, barrier, at: self.clock });
    }

    /// Whether the connection has proven an identity of a scheme that every connection must prove.
    fn is_authenticated(&self, conn: &Conn) -> bool {
        conn.identities.iter().any(|who| self.config.enforce_schemes.contains(&who.scheme))
    }

    /// Decodes a write of a connection with these identities.
    fn command(&self, op: OpCode, who: &[Identity], reader: &mut Reader<'_>) -> Result<CommandKind, Refused> {
        let mut kind = request::command(op, self.config.keeper_extensions, reader)?;
        if self.config.digest.is_none() {
            request::acls(&mut kind).for_each(request::refuse_digests);
        }
        if let Some(any) = &self.config.any_sasl_user {
            request::acls(&mut kind).for_each(|acl| acl::expand_proven(acl, who, any));
        }
        Ok(kind)
    }

    /// Whether the operation is proposed to the quorum.
    pub(super) const fn writes(&self, op: OpCode) -> bool {
        matches!(op.kind(), OpKind::Write) || (self.config.keeper_extensions && op.is_keeper_write())
    }

    /// Returns the bytes that the frame counts for among the large requests.
    fn large(&self, frame: &[u8]) -> Result<usize, Close> {
        let limits = &self.config.limits;
        if limits.large_request_bytes == 0 || frame.len() <= limits.large_request_bytes {
            return Ok(0);
        }
        if self.in_flight.has_room_for_large(frame.len(), limits) { Ok(frame.len()) } else { Err(Close::LargeRequests) }
    }

    /// `large` is what the request counts for among the large ones, `cost` among the costly.
    pub(super) fn propose(&mut self, conn: &mut Conn, kind: CommandKind, large: usize, cost: u64) {
        (conn.identity_turn, conn.identity_place) =
            self.in_flight.place_of(&conn.identities, (conn.identity_turn, conn.identity_place));
        let weight = request::weight(&kind);
        let origin = Some(self.origin(conn.id));
        let draft = if self.config.audit { self.draft(conn, &kind) } else { None };
        let command = Command { origin, session: conn.session.id(), identities: conn.identity_place, kind };
        self.in_flight.push(command, Proposed { conn: conn.id, weight, large, cost, draft });
        conn.pending.note_proposed();
    }

    fn draft(&self, conn: &Conn, kind: &CommandKind) -> Option<Box<Draft>> {
        match &self.config.any_sasl_user {
            None => Draft::of(conn.session.id(), &conn.identities, kind),
            any => Draft::of(
                conn.session.id(),
                &Arc::new(acl::proven(&conn.identities, any.as_ref()).cloned().collect()),
                kind,
            ),
        }
    }

    pub(super) const fn origin(&self, conn: ConnId) -> Origin {
        Origin { server: self.config.server, shard: self.config.shard, conn, incarnation: self.config.incarnation }
    }

    pub(super) fn is_mine(&self, origin: Origin) -> bool {
        origin == self.origin(origin.conn)
    }

    /// Adds an identity to the connection; done at once, ahead of requests that wait (protocol chapter 17.6).
    pub(super) fn authenticate(&mut self, conn: &mut Conn, xid: i32, reader: &mut Reader<'_>) -> Served {
        // The hash of its credential is what it costs.
        self.turn.spend(AUTH_BYTE_COST * reader.remaining());
        let packet = AuthPacket::decode(reader).map_err(|_| Close::Malformed)?;
        let proven = match (packet.scheme, packet.auth, self.config.digest) {
            (Some("ip"), ..) => None,
            (Some("digest"), Some(credentials), Some(hash)) => {
                Some(acl::identity("digest", &acl::digest_id(credentials, hash)))
            }
            _ => {
                reply::error(conn.output.buffer(&mut self.buffers), xid, Zxid(0), ErrorCode::AuthFailed);
                self.count_sent(conn);
                return Err(Close::AuthFailed);
            }
        };
        if let Some(identity) = proven {
            self.add_identity(conn, identity)?;
        }
        reply::done(conn.output.buffer(&mut self.buffers), xid, Zxid(0));
        self.count_sent(conn);
        Ok(())
    }

    /// A step of a SASL exchange; done at once, as an auth packet is. The first token may be anything. Without users the exchange ends at once, without an identity and
    /// without an error, as ZooKeeper ends it where no mechanism is configured. A null token closes the connection there too.
    fn sasl(&mut self, conn: &mut Conn, xid: i32, reader: &mut Reader<'_>) -> Served {
        self.turn.spend(AUTH_BYTE_COST * reader.remaining());
        let request = GetSaslRequest::decode(reader).map_err(|_| Close::Malformed)?;
        let token = request.token.ok_or(Close::Malformed)?;
        let Some(users) = self.config.sasl_users.clone() else {
            self.answer_sasl(conn, ReplyHeader::ok(xid, 0), None);
            return Ok(());
        };
        if !self.sasl.has_begun(conn.id) && token.len() <= sasl::TOKEN_BYTES_MAX {
            let challenge = sasl::challenge(self.sasl.begin(conn.id, &self.config.nonce_key, self.config.shard));
            self.answer_sasl(conn, ReplyHeader::ok(xid, 0), Some(challenge.as_bytes()));
            return Ok(());
        }
        let nonce = self.sasl.end(conn.id).ok_or(Failed);
        let proven = nonce.and_then(|nonce| sasl::verify(&nonce, token, &users));
        if let Ok(Proven { user, proof }) = proven {
            self.add_identity(conn, acl::identity("sasl", &user))?;
            self.answer_sasl(conn, ReplyHeader::ok(xid, 0), Some(proof.as_bytes()));
            return Ok(());
        }
        let is_enforced = self.config.enforce_schemes.iter().any(|scheme| &**scheme == "sasl");
        if self.config.allow_sasl_failed && !is_enforced {
            self.answer_sasl(conn, ReplyHeader::ok(xid, 0), None);
            return Ok(());
        }
        let code = if is_enforced { ErrorCode::SessionClosedRequireSaslAuth } else { ErrorCode::AuthFailed };
        self.answer_sasl(conn, ReplyHeader { xid, zxid: 0, err: code.code() }, None);
        Err(Close::AuthFailed)
    }

    /// Exchanges that end from now on are judged by these users.
    pub(super) fn set_sasl_users(&mut self, users: Arc<Users>) {
        self.config.sasl_users = Some(users);
    }

    fn answer_sasl(&mut self, conn: &mut Conn, header: ReplyHeader, token: Option<&[u8]>) {
        reply::frame(conn.output.buffer(&mut self.buffers), |writer| {
            header.encode(writer);
            SetSaslResponse { token }.encode(writer);
        });
        self.count_sent(conn);
    }

    pub(super) fn add_identity(&self, conn: &mut Conn, identity: Identity) -> Served {
        let is_super = match &*identity.scheme {
            "digest" => self.config.super_digest.as_ref() == Some(&identity.id),
            "sasl" => self.config.sasl_super_users.contains(&identity.id),
            "x509" => self.config.x509_super.as_ref() == Some(&identity.id),
            _ => false,
        };
        let mut list = Vec::clone(&conn.identities);
        let any = self.config.any_sasl_user.as_ref().filter(|_| &*identity.scheme == "sasl").map(AnySaslUser::identity);
        for new in is_super.then(|| acl::identity("super", "")).into_iter().chain([identity]).chain(any) {
            if !list.contains(&new) {
                list.push(new);
            }
        }
        let too_many = list.len() > self.config.limits.identities_per_connection_max;
        if too_many || identities_weight(&list) > IDENTITIES_BYTES_MAX {
            return Err(Close::IdentityLimit);
        }
        conn.identities = Arc::new(list);
        (conn.identity_turn, conn.identity_place) = (0, 0);
        Ok(())
    }

    /// Answers a request that need not, or cannot, be proposed. Everything before it has been answered.
    pub(super) fn serve(&mut self, now: Millis, conn: &mut Conn, frame: &[u8], at: Micros) -> Served {
        let header = RequestHeader::decode(&mut Reader::new(frame)).map_err(|_| Close::Malformed)?;
        self.serve_decoded(now, conn, frame, header, at)
    }

    /// As [`Shard::serve`], with the header of the frame.
    fn serve_decoded(
        &mut self,
        now: Millis,
        conn: &mut Conn,
        frame: &[u8],
        header: RequestHeader,
        at: Micros,
    ) -> Served {
        let mut reader = Reader::new(frame.get(REQUEST_HEADER_BYTES..).unwrap_or_default());
        let begins = conn.unsent();
        let zxid = self.view.zxid();
        let op = OpCode::from_i32(header.op);
        let served = match op {
            Some(op) if self.is_throttled(now, conn, op, at) => {
                self.statistics.throttled += 1;
                reply::error(conn.output.buffer(&mut self.buffers), header.xid, Zxid(0), ErrorCode::ThrottledOp);
                Ok(())
            }
            Some(OpCode::Ping) => {
                // Its own xid does not count: ZooKeeper answers every ping with this one.
                reply::done(conn.output.buffer(&mut self.buffers), XID_PING, zxid);
                Ok(())
            }
            Some(op) if conn.session.is_read_only() && (op == OpCode::Sync || self.writes(op)) => {
                return self.refuse_write(now, conn, Answered { op: Some(op), xid: header.xid, at, update: false });
            }
            Some(OpCode::Sync) => {
                reply::error(conn.output.buffer(&mut self.buffers), header.xid, zxid, ErrorCode::MarshallingError);
                Ok(())
            }
            Some(op) if self.writes(op) => {
                self.turn.spend(frame.len());
                self.answer_refused(conn, op, header.xid, &mut reader)
            }
            Some(op)
                if op.kind() == OpKind::Read || (op.kind() == OpKind::Extension && self.config.keeper_extensions) =>
            {
                let (mut context, mut output) = self.read_context(conn);
                let served = read::serve(&mut context, &mut output, header.xid, op, &mut reader);
                let cost = context.cost.get();
                conn.output.put_back(output);
                self.turn.spend(cost);
                served
            }
            _ => Err(Unserved::Unknown),
        };
        self.turn.spend(REQUEST_COST);
        if let Err(Unserved::Later(why)) = served {
            self.put_off(now, conn, frame, at, why);
            return Ok(());
        }
        self.count_reply(conn, now, Answered { op, xid: header.xid, at, update: false }, conn.unsent() - begins);
        if !self.effects.slow.is_empty()
            && let Some(path) = load::path(frame)
        {
            self.effects.slow.name(conn.session.id(), header.xid, path);
        }
        let unsent = conn.unsent();
        if unsent > self.config.limits.reply_buffer_bytes_soft_max {
            conn.output.allow_unsent();
        }
        served.map_err(|_| {
            let refusal = ReplyHeader::error(header.xid, ZXID_UNNUMBERED, ErrorCode::Unimplemented);
            reply::frame(conn.output.buffer(&mut self.buffers), |writer| refusal.encode(writer));
            Close::UnknownOp(header.op)
        })
    }

    /// Answers a write that is not proposed.
    fn answer_refused(
        &mut self,
        conn: &mut Conn,
        op: OpCode,
        xid: i32,
        reader: &mut Reader<'_>,
    ) -> Result<(), Unserved> {
        let code = match self.command(op, &conn.identities, reader) {
            Err(Refused::NotServed) => return Err(Unserved::Unknown),
            Err(Refused::TooManyOps) => ErrorCode::ThrottledOp,
            Err(_) => ErrorCode::MarshallingError,
            // Otherwise it would have been proposed.
            Ok(_) => {
                self.statistics.growth_refused += 1;
                ErrorCode::QuotaExceeded
            }
        };
        reply::error(conn.output.buffer(&mut self.buffers), xid, self.view.zxid(), code);
        Ok(())
    }

    /// A read that is not answered in this turn: it is the first again, and is done in pieces, or waits for memory.
    #[cold]
    fn put_off(&mut self, now: Millis, conn: &mut Conn, frame: &[u8], at: Micros, why: PutOff) {
        let mut reader = Reader::new(frame);
        let header = RequestHeader::decode(&mut reader);
        match (why, header.ok().and_then(|header| Some((header.xid, OpCode::from_i32(header.op)?)))) {
            (PutOff::Long, Some((xid, op))) => {
                let (record, begun, floor, barrier) = (reader.rest().into(), None, Zxid(0), 0);
                conn.pending.push_front(Pending::Long { xid, op, record, begun, floor, barrier, at });
                conn.blocked = true;
            }
            (PutOff::Long, None) => unreachable!("only a read that is known is put off"),
            (PutOff::Turn | PutOff::Room(_), _) => {
                conn.pending.push_front(Pending::Queued { frame: frame.into(), floor: Zxid(0), barrier: 0, at });
                match why {
                    PutOff::Room(need) => {
                        self.memory.wait(conn, Wanting { conn: conn.id, need, list: false, since: now });
                    }
                    _ => self.go_on_later(conn),
                }
            }
        }
    }

    /// Whether a request is refused: it waited too long, its client has too much to read, or a write behind it has
    /// waited long enough.
    fn is_throttled(&self, now: Millis, conn: &Conn, op: OpCode, at: Micros) -> bool {
        let limits = &self.config.limits;
        let late = limits.throttled_op_wait_ms > 0 && now.since(Millis::of(at)) > limits.throttled_op_wait_ms;
        let too_much = conn.unsent() > limits.reply_buffer_bytes_hard_max;
        op != OpCode::Ping && (late || too_much || self.delay.is_too_much(conn.id))
    }

    /// Counts a reply of so many bytes, its length word included: a few plain stores, because every read comes by here. Sizes of 0 do
    /// not count.
    pub(super) fn count_reply(&mut self, conn: &mut Conn, now: Millis, what: Answered, bytes: usize) {
        if bytes > 0 {
            self.statistics.replies.note(bytes - size_of::<i32>());
        }
        let ms = now.since(Millis::of(what.at));
        if let Some(op) = what.op.filter(|_| self.effects.answered.len() < ANSWERED_MAX) {
            self.effects.answered.push(Answer { op, at: what.at });
        }
        conn.counters.replied(what, self.view.zxid(), now, ms);
        self.statistics.sent += 1;
        let latency = if what.update { &mut self.statistics.updates } else { &mut self.statistics.reads };
        latency.note(ms);
        if ms >= self.config.slow_request_ms {
            self.effects.slow.note(conn, what, self.view.zxid(), ms);
        }
    }

    /// Counts a reply that tells nothing of how fast this server is.
    fn count_sent(&mut self, conn: &mut Conn) {
        conn.counters.sent += 1;
        self.statistics.sent += 1;
    }
}
