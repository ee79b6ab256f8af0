//! Writes of a session are decoded and become proposals, and how much a shard proposes before some of its proposals have come back.
//!
//! Commands are ordered first come, first served, so a write waits for everything that was proposed before it. A
//! connection may always have writes in flight that cost less than [`FREE_COST_MAX`] together. Writes beyond that are
//! costly: they are proposed only while the shard's costly writes in flight cost less than `COSTLY_COST_MAX` of `write_queues`.
//! Otherwise the connection queues for its turn, and is read no further meanwhile. So the cheap write of another
//! connection has at most that and one command before it, for each shard, however many clients send costly ones.

use crate::apply::{Circumstances, cost_at_most};
use crate::command::{Command, CommandKind};
use crate::ops::WriteOp;
use crate::ops::decode::Refused;
use crate::quota::counts;
use crate::servers::reconfig::Reconfig;
use crate::shard::audit::Draft;
use crate::shard::conn::{Close, Conn};
use crate::shard::in_flight::Proposed;
use crate::shard::state::ShardState;
use crate::shared::Text;
use crate::tree::acl::{self, AclSpec, Identity};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use corral_wire::multi::{MultiKind, MultiRequest};
use corral_wire::op::Kind;
use corral_wire::records::ReconfigRequest;
use corral_wire::{DecodeError, OpCode, Reader};

/// Cost of the writes of one connection together, in units of [`crate::cost`], before they are costly: some hundreds of
/// single writes.
const FREE_COST_MAX: u64 = 500_000;

/// So many single writes of a connection are not costly, if none has more than [`COSTLY_BYTES`].
const FREE_SINGLE_MAX: u32 = 32;

/// Below it are the quotas.
const QUOTAS: &str = "/zookeeper/quota";

/// A write of more bytes may be costly; a multi is not looked at more closely while costly writes have to queue.
const COSTLY_BYTES: usize = 8 << 10;

/// Cost of a byte on its way to the log, in units of [`crate::cost`], for a disk that takes 250 MB a second.
const LOG_BYTE_COST: u64 = 4;

/// A write of more bytes is always costly.
const ALWAYS_COSTLY_BYTES: usize = (FREE_COST_MAX / LOG_BYTE_COST) as usize;

/// Decodes a write of a connection with these identities.
pub(super) fn decode(
    shard: &ShardState,
    op: OpCode,
    who: &[Identity],
    reader: &mut Reader<'_>,
) -> Result<CommandKind, Refused> {
    let mut kind = command(op, shard.config.keeper_extensions, reader)?;
    if shard.config.digest.is_none() {
        kind.acls_mut().for_each(refuse_digests);
    }
    if let Some(any) = &shard.config.any_sasl_user {
        kind.acls_mut().for_each(|acl| acl::expand_proven(acl, who, any));
    }
    Ok(kind)
}

/// Decodes the record of a write. `keeper` says that ClickHouse Keeper's operations are served.
fn command(op: OpCode, keeper: bool, reader: &mut Reader<'_>) -> Result<CommandKind, Refused> {
    match op {
        OpCode::CloseSession => Ok(CommandKind::CloseSession),
        OpCode::Reconfig => Ok(CommandKind::Reconfig(Box::new(reconfig(&ReconfigRequest::decode(reader)?)))),
        OpCode::Multi => multi(if keeper { MultiKind::KeeperWrite } else { MultiKind::Write }, reader),
        op if op.kind() == Kind::Write || (keeper && op.is_keeper_write()) => {
            Ok(CommandKind::Op(WriteOp::decode(op, reader)?))
        }
        _ => Err(Refused::NotServed),
    }
}

fn reconfig(request: &ReconfigRequest<'_>) -> Reconfig {
    Reconfig {
        joining: request.joining_servers.map(Text::from),
        leaving: request.leaving_servers.map(Text::from),
        members: request.new_members.map(Text::from),
        from: request.cur_config_id,
    }
}

fn multi(kind: MultiKind, reader: &mut Reader<'_>) -> Result<CommandKind, Refused> {
    let request = match MultiRequest::decode(kind, reader) {
        Ok(request) => request,
        // This alone stops ZooKeeper before the zxid is taken.
        Err(DecodeError::NullAcl) => return Err(Refused::Undecodable),
        Err(DecodeError::TooManyOps) => return Err(Refused::TooManyOps),
        Err(_) => return Ok(CommandKind::Undecodable),
    };
    if request.iter().any(|op| op.path().is_none()) {
        return Ok(CommandKind::Undecodable);
    }
    let mut ops = Vec::with_capacity(request.len());
    for op in request.iter() {
        ops.push(WriteOp::of_multi(op)?);
    }
    Ok(CommandKind::Multi(ops))
}

/// Makes an ACL that names a digest invalid: the server has no such scheme.
fn refuse_digests(acl: &mut AclSpec) {
    if let AclSpec::List(list) | AclSpec::BrokenOff(list) = acl
        && list.iter().any(|entry| &*entry.scheme == "digest")
    {
        *acl = AclSpec::Malformed;
    }
}

/// Returns the bytes that the frame counts for among the large requests.
pub(super) fn large(shard: &ShardState, frame: &[u8]) -> Result<usize, Close> {
    let limits = &shard.config.limits;
    if limits.large_request_bytes == 0 || frame.len() <= limits.large_request_bytes {
        return Ok(0);
    }
    if shard.in_flight.has_room_for_large(frame.len(), limits) { Ok(frame.len()) } else { Err(Close::LargeRequests) }
}

/// `large` is what the request counts for among the large ones, `cost` among the costly.
pub(super) fn propose(shard: &mut ShardState, conn: &mut Conn, kind: CommandKind, large: usize, cost: u64) {
    (conn.identity_turn, conn.identity_place) =
        shard.in_flight.place_of(&conn.identities, (conn.identity_turn, conn.identity_place));
    let weight = kind.weight();
    let origin = Some(shard.config.origin(conn.id));
    let draft = if shard.config.audit { draft(shard, conn, &kind) } else { None };
    let command = Command { origin, session: conn.session.id(), identities: conn.identity_place, kind };
    shard.in_flight.push(command, Proposed { conn: conn.id, weight, large, cost, draft });
    conn.pending.note_proposed();
}

fn draft(shard: &ShardState, conn: &Conn, kind: &CommandKind) -> Option<Box<Draft>> {
    match &shard.config.any_sasl_user {
        None => Draft::of(conn.session.id(), &conn.identities, kind),
        any => Draft::of(
            conn.session.id(),
            &Arc::new(acl::proven(&conn.identities, any.as_ref()).cloned().collect()),
            kind,
        ),
    }
}

/// Whether the connection is queued for its next write, which is not decoded yet.
#[inline]
pub(super) fn queues_unseen(shard: &mut ShardState, conn: &mut Conn, op: OpCode, bytes: usize) -> bool {
    let may_cost = if op == OpCode::Multi { COSTLY_BYTES } else { ALWAYS_COSTLY_BYTES };
    let queues = shard.writes.held || bytes > may_cost && shard.writes.has_to_queue(shard.in_flight.cost());
    if queues {
        shard.writes.queue(conn);
    }
    queues
}

/// The cost of the connection's next write, of so many bytes, among the costly ones; 0 if the write is not costly. `None` if the
/// write has to wait: the connection is queued.
#[inline]
pub(super) fn admit_write(shard: &mut ShardState, conn: &mut Conn, kind: &CommandKind, bytes: usize) -> Option<u64> {
    let is_free = conn.pending.proposed() < FREE_SINGLE_MAX && bytes <= COSTLY_BYTES && is_single(kind);
    if is_free { Some(0) } else { admit_by_cost(shard, conn, kind, bytes) }
}

fn admit_by_cost(shard: &mut ShardState, conn: &mut Conn, kind: &CommandKind, bytes: usize) -> Option<u64> {
    let cost = cost_of(shard, conn, kind) + LOG_BYTE_COST * bytes as u64;
    if cost.saturating_mul(u64::from(conn.pending.proposed()) + 1) <= FREE_COST_MAX {
        return Some(0);
    }
    if shard.writes.has_to_queue(shard.in_flight.cost()) {
        shard.writes.queue(conn);
        return None;
    }
    Some(cost)
}

fn cost_of(shard: &ShardState, conn: &Conn, kind: &CommandKind) -> u64 {
    let mut at = Circumstances { identities: conn.identities.len(), ..Circumstances::default() };
    if matches!(kind, CommandKind::Multi(_) | CommandKind::CloseSession) {
        at.quotas = shard.view.get(QUOTAS).is_some_and(|quotas| quotas.stat().num_children > 0);
    }
    if let (CommandKind::CloseSession, Some(list)) = (kind, shard.sessions.ephemerals(conn.session.id())) {
        (at.ephemerals, at.ephemerals_bytes) = (list.len(), list.bytes());
    }
    cost_at_most(kind, at)
}

/// Whether a command changes one znode and counts none.
fn is_single(kind: &CommandKind) -> bool {
    match kind {
        CommandKind::Op(WriteOp::Create(create)) => !counts(&create.path),
        CommandKind::Op(op) => !matches!(op, WriteOp::RemoveRecursive(..)),
        _ => false,
    }
}
