//! The payload of one log entry, and its bytes in the log and between servers.
//!
//! The first zxid (8 bytes) and the format (8 bytes), then fields in the order of the types. Numbers are little-endian.
//! Mostly small numbers are varints of 7 bits a byte, signed ones folded to and fro (0, -1, 1, -2 ..). Text and data
//! come behind their length. A choice is its number in one byte. A batch has exactly one encoding: bytes other than
//! those of [`Batch::encode`] are refused. Knows nothing of the log or of frames.

use super::kinds::{Command, CommandKind};
use super::waiting::{Renumbered, identities_weight};
use crate::encoding::{ACL_ENTRY_WEIGHT, Take, put_bytes, put_list, put_signed, put_text, put_varint};
use crate::features;
use crate::ids::{ConnId, Origin, ServerId, ShardId, WallMillis};
use crate::ops::WriteOp;
use crate::quota::count::Counted;
use crate::servers::reconfig::Reconfig;
use crate::shared::Data;
use crate::tree::acl::{AclSpec, Identity};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::{fmt, mem};
use corral_types::Reader;
use corral_wire::error::ErrorCode;

/// Bytes in front of the fields.
const HEAD_BYTES: usize = 16;
/// Changes whenever the encoding does.
const FORMAT: u64 = 5;

/// At the head of a command: it came from a connection.
const HAS_ORIGIN: u8 = 1;
/// .. of the same start of the same server as the one before that did.
const SAME_SERVER: u8 = 2;

/// Bytes that the smallest item of each list takes. They bound what a list is given room for before it is read, and
/// with it what memory a peer's bytes can ask for.
const COMMAND_BYTES_MIN: usize = 11;
const OP_BYTES_MIN: usize = 3;
const LIST_BYTES_MIN: usize = 1;
const PAIR_BYTES_MIN: usize = 2;

/// Weight of the items of each list beside their text and data, in bytes of memory by and large, as in
/// [`CommandKind::weight`].
const COMMAND_WEIGHT: usize = 128;
const OP_WEIGHT: usize = 128;
const LIST_WEIGHT: usize = 64;
const PAIR_WEIGHT: usize = 64;
/// So much the items in a peer's batch may weigh: twice the largest log entry. A few bytes sent must not take hundreds of
/// memory.
const PEER_WEIGHT_MAX: usize = 128 << 20;
/// Most weight of one command for which a leader has an entry: the commands before it fit beside it.
const COMMAND_WEIGHT_MAX: usize = PEER_WEIGHT_MAX / 2;

/// Whether the items of a command weigh more than another server would take.
pub(crate) fn is_too_heavy(kind: &CommandKind) -> bool {
    let of_acl = |acl: &AclSpec| match acl {
        AclSpec::List(list) | AclSpec::BrokenOff(list) => ACL_ENTRY_WEIGHT * list.len(),
        AclSpec::Open | AclSpec::Missing | AclSpec::Malformed => 0,
    };
    let of_op = |op: &WriteOp| OP_WEIGHT + op.acl().map_or(0, of_acl);
    match kind {
        CommandKind::Op(op) => of_op(op) > COMMAND_WEIGHT_MAX,
        CommandKind::Multi(ops) => ops.iter().map(of_op).sum::<usize>() > COMMAND_WEIGHT_MAX,
        _ => false,
    }
}

/// Why bytes are no batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchError {
    /// Of a format that this version does not read, or with features that it does not know.
    Format,
    /// Cut, or not as this version writes it.
    Bytes,
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Format => "not a batch of the format that this version reads",
            Self::Bytes => "not a batch: cut, or not as this version writes it",
        })
    }
}

impl core::error::Error for BatchError {}

/// The payload of one log entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Wall clock of the leader: `ctime` and `mtime` of the znodes that the batch changes.
    pub time: WallMillis,
    /// Zxid of the first command that takes one; the others follow by one each.
    pub first_zxid: u64,
    /// Bits of `features` in force when the batch was proposed.
    pub features: u32,
    /// Lists of identities that the commands refer to by index.
    pub identities: Vec<Arc<Vec<Identity>>>,
    /// The commands, in the order of their evaluation.
    pub commands: Vec<Command>,
}

impl Batch {
    /// The commands, each with its zxid if it takes one.
    pub fn with_zxids(&self) -> impl Iterator<Item = (Option<u64>, &Command)> {
        let mut next = self.first_zxid;
        self.commands.iter().map(move |command| {
            let zxid = command.takes_zxid().then_some(next);
            next = next.saturating_add(u64::from(command.takes_zxid()));
            (zxid, command)
        })
    }

    /// Has connections with the same long identities share one copy of them. Usual ones are not worth a look.
    pub(crate) fn share_identities(&mut self) {
        if self.identities.iter().filter(|list| identities_weight(list) > 0).nth(1).is_none() {
            return;
        }
        let lists = mem::take(&mut self.identities);
        let mut renumbered = Renumbered::new();
        let moved: Vec<u32> = lists.iter().map(|list| renumbered.place_of(list, list)).collect();
        self.identities = renumbered.lists;
        for command in &mut self.commands {
            command.identities = moved.get(command.identities as usize).copied().unwrap_or(command.identities);
        }
    }

    /// The bytes that go to the log.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.encoded_bytes_estimate());
        out.extend_from_slice(&self.first_zxid.to_le_bytes());
        out.extend_from_slice(&FORMAT.to_le_bytes());
        out.extend_from_slice(&self.time.0.to_le_bytes());
        put_varint(&mut out, u64::from(self.features));
        put_list(&mut out, &self.identities, |out, list| put_list(out, list, put_identity));
        let mut server = None;
        put_list(&mut out, &self.commands, |out, command| put_command(out, command, &mut server));
        out
    }

    /// Seldom fewer bytes than the encoded batch will have, so that it does not grow by copying.
    fn encoded_bytes_estimate(&self) -> usize {
        const COMMAND_BYTES: usize = 40;
        const OP_BYTES: usize = 24;
        const IDENTITIES_BYTES: usize = 64;
        let of_command = |command: &Command| match &command.kind {
            CommandKind::Op(op) => op.bytes(),
            CommandKind::Multi(ops) => ops.iter().map(|op| OP_BYTES + op.bytes()).sum(),
            CommandKind::Reconfig(request) => request.bytes(),
            _ => 0,
        };
        let commands: usize = self.commands.iter().map(|command| COMMAND_BYTES + of_command(command)).sum();
        HEAD_BYTES + commands + self.identities.len() * IDENTITIES_BYTES + 32
    }

    /// The first zxid of an encoded batch, without reading the rest; 0 when there is none.
    pub fn zxid_of(bytes: &[u8]) -> u64 {
        bytes.first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word))
    }

    /// Reads what [`Batch::encode`] wrote, and nothing else.
    ///
    /// # Errors
    /// When the bytes are no batch, or one of another format.
    pub fn decode(bytes: &[u8]) -> Result<Self, BatchError> {
        Self::decode_within(bytes, usize::MAX)
    }

    /// As [`Batch::decode`], of bytes that a peer sent and that are in no log yet: they may take only so much memory.
    ///
    /// # Errors
    /// As there, and when it would take more.
    pub fn decode_of_peer(bytes: &[u8]) -> Result<Self, BatchError> {
        Self::decode_within(bytes, PEER_WEIGHT_MAX)
    }

    fn decode_within(bytes: &[u8], weight_max: usize) -> Result<Self, BatchError> {
        let (head, fields) = bytes.split_at_checked(HEAD_BYTES).ok_or(BatchError::Bytes)?;
        if head.get(8..) != Some(&FORMAT.to_le_bytes()[..]) {
            return Err(BatchError::Format);
        }
        let mut take = Take { left: Reader::new(fields), weight_left: weight_max, admitted: false };
        let time = take.left.array().map(i64::from_le_bytes).map(WallMillis).ok_or(BatchError::Bytes)?;
        let features = take.number().ok_or(BatchError::Bytes)?;
        if features & !features::KNOWN != 0 {
            return Err(BatchError::Format);
        }
        take.admitted = features & features::ADMITTED != 0;
        let batch = take_batch(&mut take, Self::zxid_of(head), time, features).ok_or(BatchError::Bytes)?;
        if take.left.is_empty() { Ok(batch) } else { Err(BatchError::Bytes) }
    }
}

fn put_identity(out: &mut Vec<u8>, identity: &Identity) {
    put_bytes(out, identity.scheme.as_bytes());
    put_bytes(out, identity.id.as_bytes());
}

/// `server`: server and start of the last origin in the batch.
fn put_command(out: &mut Vec<u8>, command: &Command, server: &mut Option<(ServerId, u64)>) {
    match command.origin {
        None => out.push(0),
        Some(Origin { server: id, shard, conn, incarnation }) => {
            let this = Some((id, incarnation));
            if mem::replace(server, this) == this {
                out.push(HAS_ORIGIN | SAME_SERVER);
            } else {
                out.push(HAS_ORIGIN);
                out.push(id.0);
                out.extend_from_slice(&incarnation.to_le_bytes());
            }
            put_varint(out, u64::from(shard.0));
            put_varint(out, u64::from(conn.slot));
            put_varint(out, u64::from(conn.generation));
        }
    }
    out.extend_from_slice(&command.session.0.to_le_bytes());
    put_varint(out, u64::from(command.identities));
    put_kind(out, &command.kind);
}

fn put_kind(out: &mut Vec<u8>, kind: &CommandKind) {
    match kind {
        CommandKind::Op(op) => {
            out.push(0);
            op.put(out);
        }
        CommandKind::Multi(ops) => {
            out.push(1);
            put_list(out, ops, |out, op| op.put(out));
        }
        CommandKind::CreateSession { timeout_ms, password } => {
            out.push(2);
            put_signed(out, i64::from(*timeout_ms));
            out.extend_from_slice(password);
        }
        CommandKind::AttachSession { session, timeout_ms, password } => {
            out.push(3);
            out.extend_from_slice(&session.0.to_le_bytes());
            put_signed(out, i64::from(*timeout_ms));
            out.extend_from_slice(password);
        }
        CommandKind::CloseSession => out.push(4),
        // The one without operands has had this number for long.
        CommandKind::Reconfig(request) if **request == Reconfig::default() => out.push(5),
        CommandKind::Reconfig(request) => {
            let Reconfig { joining, leaving, members, from } = &**request;
            out.push(9);
            [joining, leaving, members].iter().for_each(|text| put_text(out, text.as_ref()));
            put_signed(out, *from);
        }
        CommandKind::Configured(lines) => {
            out.push(10);
            put_bytes(out, lines.as_bytes());
        }
        CommandKind::ReconfigBegins(lines) => {
            out.push(11);
            put_bytes(out, lines.as_bytes());
        }
        CommandKind::ReconfigEnds => out.push(12),
        CommandKind::ReconfigFails(code) => {
            out.push(13);
            put_signed(out, i64::from(code.code()));
        }
        CommandKind::SystemNodes(nodes) => {
            out.push(6);
            put_list(out, nodes, |out, (path, data)| {
                put_bytes(out, path.as_bytes());
                put_bytes(out, data);
            });
        }
        CommandKind::Reap { path, mzxid } => {
            out.push(7);
            put_bytes(out, path.as_bytes());
            put_varint(out, *mzxid);
        }
        CommandKind::Undecodable => out.push(8),
        CommandKind::QuotaCounted(counted) => {
            out.push(14);
            put_bytes(out, counted.path.as_bytes());
            put_varint(out, counted.mzxid);
            put_signed(out, counted.znodes);
            put_signed(out, counted.bytes);
        }
        CommandKind::Refused(code) => {
            out.push(15);
            put_signed(out, i64::from(code.code()));
        }
    }
}

fn take_batch(take: &mut Take<'_>, first_zxid: u64, time: WallMillis, features: u32) -> Option<Batch> {
    // An empty list is a byte, and there may be millions of them.
    let none = Arc::default();
    let identities = take.list(LIST_BYTES_MIN, LIST_WEIGHT, |take| {
        let list = take.list(PAIR_BYTES_MIN, PAIR_WEIGHT, take_identity)?;
        Some(if list.is_empty() { Arc::clone(&none) } else { Arc::new(list) })
    })?;
    let mut server = None;
    let commands = take.list(COMMAND_BYTES_MIN, COMMAND_WEIGHT, |take| take_command(take, &mut server))?;
    Some(Batch { time, first_zxid, features, identities, commands })
}

fn take_identity(take: &mut Take<'_>) -> Option<Identity> {
    Some(Identity { scheme: take.text()?, id: take.text()? })
}

fn take_command(take: &mut Take<'_>, server: &mut Option<(ServerId, u64)>) -> Option<Command> {
    let origin = take_origin(take, server)?;
    Some(Command { origin, session: take.session()?, identities: take.number()?, kind: take_kind(take)? })
}

fn take_origin(take: &mut Take<'_>, server: &mut Option<(ServerId, u64)>) -> Option<Option<Origin>> {
    let (id, incarnation) = match take.left.u8()? {
        0 => return Some(None),
        HAS_ORIGIN => {
            let this = (ServerId(take.left.u8()?), take.left.u64()?);
            if server.replace(this) == Some(this) {
                return None;
            }
            this
        }
        flags => (*server).filter(|_| flags == HAS_ORIGIN | SAME_SERVER)?,
    };
    let shard = ShardId(take.number()?);
    let conn = ConnId { slot: take.number()?, generation: take.number()? };
    Some(Some(Origin { server: id, shard, conn, incarnation }))
}

fn take_kind(take: &mut Take<'_>) -> Option<CommandKind> {
    Some(match take.left.u8()? {
        0 => CommandKind::Op(WriteOp::take(take)?),
        1 => CommandKind::Multi(take.list(OP_BYTES_MIN, OP_WEIGHT, WriteOp::take)?),
        2 => CommandKind::CreateSession { timeout_ms: take.signed()?, password: take.left.array()? },
        3 => CommandKind::AttachSession {
            session: take.session()?,
            timeout_ms: take.signed()?,
            password: take.left.array()?,
        },
        4 => CommandKind::CloseSession,
        5 => CommandKind::Reconfig(Box::default()),
        6 => CommandKind::SystemNodes(
            take.list(PAIR_BYTES_MIN, PAIR_WEIGHT, |take| Some((take.text()?, Data::from(take.bytes()?))))?,
        ),
        7 => CommandKind::Reap { path: take.text()?, mzxid: take.varint()? },
        8 => CommandKind::Undecodable,
        9 => CommandKind::Reconfig(take_reconfig(take)?),
        10 => CommandKind::Configured(take.text()?),
        11 => CommandKind::ReconfigBegins(take.text()?),
        12 => CommandKind::ReconfigEnds,
        13 => CommandKind::ReconfigFails(ErrorCode::from_i32(take.signed()?)?),
        14 => CommandKind::QuotaCounted(Box::new(Counted {
            path: take.text()?,
            mzxid: take.varint()?,
            znodes: take.signed()?,
            bytes: take.signed()?,
        })),
        15 if take.admitted => CommandKind::Refused(ErrorCode::from_i32(take.signed()?)?),
        _ => return None,
    })
}

fn take_reconfig(take: &mut Take<'_>) -> Option<Box<Reconfig>> {
    let (joining, leaving, members) = (take.maybe_text()?, take.maybe_text()?, take.maybe_text()?);
    let request = Reconfig { joining, leaving, members, from: take.signed()? };
    (request != Reconfig::default()).then(|| Box::new(request))
}

#[cfg(test)]
mod tests;
