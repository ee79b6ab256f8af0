//! A batch as bytes, in an entry of the log and between servers.
//!
//! The first zxid (8 bytes) and the format (8 bytes), then fields in the order of the types. Numbers are little-endian.
//! Mostly small numbers are varints of 7 bits a byte, signed ones folded to and fro (0, -1, 1, -2 ..). Text and data
//! come behind their length. A choice is its number in one byte. A batch has exactly one encoding: bytes other than
//! those of [`Batch::encode`] are refused. Knows nothing of the log or of frames.

use super::{Batch, Command, CommandKind, CreateOp, STAT_FIELDS, WriteOp};
use crate::command::{Counted, features};
use crate::ids::{ConnId, Origin, SessionId, ShardId, WallMillis};
use crate::servers::Reconfig;
use crate::shared::{Data, Text};
use crate::tree::acl::{AclEntry, AclSpec, Identity};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
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
/// [`crate::command::request::weight`].
const COMMAND_WEIGHT: usize = 128;
const OP_WEIGHT: usize = 128;
const LIST_WEIGHT: usize = 64;
const PAIR_WEIGHT: usize = 64;
const ACL_ENTRY_WEIGHT: usize = 32;
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
    let of_op = |op: &WriteOp| match op {
        WriteOp::Create { acl, .. } | WriteOp::SetAcl { acl, .. } => OP_WEIGHT + of_acl(acl),
        _ => OP_WEIGHT,
    };
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

impl Batch {
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
        let mut take = Take { rest: fields, weight_left: weight_max, admitted: false };
        let time = take.array().map(i64::from_le_bytes).map(WallMillis).ok_or(BatchError::Bytes)?;
        let features = take.number().ok_or(BatchError::Bytes)?;
        if features & !features::KNOWN != 0 {
            return Err(BatchError::Format);
        }
        take.admitted = features & features::ADMITTED != 0;
        let batch = take.batch(Self::zxid_of(head), time, features).ok_or(BatchError::Bytes)?;
        if take.rest.is_empty() { Ok(batch) } else { Err(BatchError::Bytes) }
    }
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_varint(out, (value.cast_unsigned() << 1) ^ (value >> 63).cast_unsigned());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// As [`put_data`].
fn put_text(out: &mut Vec<u8>, text: Option<&Text>) {
    put_maybe(out, text.map(|text| text.as_bytes()));
}

/// 0 is none, anything else one more than the length.
fn put_data(out: &mut Vec<u8>, data: Option<&Data>) {
    put_maybe(out, data.map(|data| &**data));
}

fn put_maybe(out: &mut Vec<u8>, data: Option<&[u8]>) {
    match data {
        None => out.push(0),
        Some(data) => {
            put_varint(out, data.len() as u64 + 1);
            out.extend_from_slice(data);
        }
    }
}

fn put_list<T>(out: &mut Vec<u8>, list: &[T], mut put: impl FnMut(&mut Vec<u8>, &T)) {
    put_varint(out, list.len() as u64);
    for item in list {
        put(out, item);
    }
}

fn put_identity(out: &mut Vec<u8>, identity: &Identity) {
    put_bytes(out, identity.scheme.as_bytes());
    put_bytes(out, identity.id.as_bytes());
}

/// `server`: server and start of the last origin in the batch.
fn put_command(out: &mut Vec<u8>, command: &Command, server: &mut Option<(u8, u64)>) {
    match command.origin {
        None => out.push(0),
        Some(Origin { server: id, shard, conn, incarnation }) => {
            let this = Some((id, incarnation));
            if core::mem::replace(server, this) == this {
                out.push(HAS_ORIGIN | SAME_SERVER);
            } else {
                out.push(HAS_ORIGIN);
                out.push(id);
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
            put_op(out, op);
        }
        CommandKind::Multi(ops) => {
            out.push(1);
            put_list(out, ops, put_op);
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

fn put_op(out: &mut Vec<u8>, op: &WriteOp) {
    match op {
        WriteOp::Create { op, path, data, acl, flags, ttl_ms } => {
            out.push(0);
            put_bytes(out, path.as_bytes());
            out.push(match op {
                CreateOp::Create => 0,
                CreateOp::Create2 => 1,
                CreateOp::Container => 2,
                CreateOp::Ttl => 3,
                CreateOp::IfNotExists => 4,
            });
            put_data(out, data.as_ref());
            put_acl(out, acl);
            put_signed(out, i64::from(*flags));
            put_signed(out, *ttl_ms);
        }
        WriteOp::Delete { path, version } => put_versioned(out, 1, path, *version),
        WriteOp::SetData { path, data, version } => {
            put_versioned(out, 2, path, *version);
            put_data(out, data.as_ref());
        }
        WriteOp::SetAcl { path, acl, version } => {
            put_versioned(out, 3, path, *version);
            put_acl(out, acl);
        }
        WriteOp::Check { path, version } => put_versioned(out, 4, path, *version),
        WriteOp::CheckNotExists { path, version } => put_versioned(out, 5, path, *version),
        WriteOp::CheckStat { path, version, stat } => {
            put_versioned(out, 6, path, *version);
            stat.iter().for_each(|field| put_signed(out, *field));
        }
        WriteOp::TryRemove { path, version } => put_versioned(out, 7, path, *version),
        WriteOp::RemoveRecursive { path, limit } => {
            out.push(8);
            put_bytes(out, path.as_bytes());
            put_varint(out, u64::from(*limit));
        }
    }
}

fn put_versioned(out: &mut Vec<u8>, number: u8, path: &Text, version: i32) {
    out.push(number);
    put_bytes(out, path.as_bytes());
    put_signed(out, i64::from(version));
}

fn put_acl(out: &mut Vec<u8>, acl: &AclSpec) {
    let (number, entries) = match acl {
        AclSpec::Open => (0, None),
        AclSpec::Missing => (1, None),
        AclSpec::List(entries) => (2, Some(entries)),
        AclSpec::Malformed => (3, None),
        AclSpec::BrokenOff(entries) => (4, Some(entries)),
    };
    out.push(number);
    if let Some(entries) = entries {
        put_list(out, entries, |out, AclEntry { perms, scheme, id }| {
            put_signed(out, i64::from(*perms));
            put_bytes(out, scheme.as_bytes());
            put_bytes(out, id.as_bytes());
        });
    }
}

/// The bytes left to be read. `None` from any reader: no batch.
struct Take<'a> {
    rest: &'a [u8],
    /// Most weight of the items that are yet to come.
    weight_left: usize,
    /// The batch has `features::ADMITTED`.
    admitted: bool,
}

impl<'a> Take<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn slice(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(bytes)?;
        self.rest = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*taken)
    }

    /// The shortest form alone.
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits || byte == 0 && shift > 0 {
                return None;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn number<T: TryFrom<u64>>(&mut self) -> Option<T> {
        T::try_from(self.varint()?).ok()
    }

    fn signed<T: TryFrom<i64>>(&mut self) -> Option<T> {
        let folded = self.varint()?;
        T::try_from((folded >> 1).cast_signed() ^ -(folded & 1).cast_signed()).ok()
    }

    fn session(&mut self) -> Option<SessionId> {
        self.array().map(i64::from_le_bytes).map(SessionId)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let bytes = self.number()?;
        self.slice(bytes)
    }

    fn text(&mut self) -> Option<Text> {
        core::str::from_utf8(self.bytes()?).ok().map(Text::from)
    }

    fn data(&mut self) -> Option<Option<Data>> {
        Some(self.maybe()?.map(Data::from))
    }

    fn maybe_text(&mut self) -> Option<Option<Text>> {
        match self.maybe()? {
            None => Some(None),
            Some(bytes) => core::str::from_utf8(bytes).ok().map(|text| Some(Text::from(text))),
        }
    }

    fn maybe(&mut self) -> Option<Option<&'a [u8]>> {
        match self.number::<usize>()? {
            0 => Some(None),
            more => self.slice(more - 1).map(Some),
        }
    }

    /// A list of items that take at least `item_bytes_min`, and weigh `weight`, each.
    fn list<T>(
        &mut self,
        item_bytes_min: usize,
        weight: usize,
        mut take: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        let count = self.number::<usize>()?;
        if count > self.rest.len() / item_bytes_min {
            return None;
        }
        self.weight_left = self.weight_left.checked_sub(count.checked_mul(weight)?)?;
        let mut list = Vec::with_capacity(count);
        for _ in 0..count {
            list.push(take(self)?);
        }
        Some(list)
    }

    fn batch(&mut self, first_zxid: u64, time: WallMillis, features: u32) -> Option<Batch> {
        // An empty list is a byte, and there may be millions of them.
        let none = Arc::default();
        let identities = self.list(LIST_BYTES_MIN, LIST_WEIGHT, |take| {
            let list = take.list(PAIR_BYTES_MIN, PAIR_WEIGHT, Self::identity)?;
            Some(if list.is_empty() { Arc::clone(&none) } else { Arc::new(list) })
        })?;
        let mut server = None;
        let commands = self.list(COMMAND_BYTES_MIN, COMMAND_WEIGHT, |take| take.command(&mut server))?;
        Some(Batch { time, first_zxid, features, identities, commands })
    }

    fn identity(&mut self) -> Option<Identity> {
        Some(Identity { scheme: self.text()?, id: self.text()? })
    }

    fn command(&mut self, server: &mut Option<(u8, u64)>) -> Option<Command> {
        let origin = self.origin(server)?;
        Some(Command { origin, session: self.session()?, identities: self.number()?, kind: self.kind()? })
    }

    fn origin(&mut self, server: &mut Option<(u8, u64)>) -> Option<Option<Origin>> {
        let (id, incarnation) = match self.byte()? {
            0 => return Some(None),
            HAS_ORIGIN => {
                let this = (self.byte()?, u64::from_le_bytes(self.array()?));
                if server.replace(this) == Some(this) {
                    return None;
                }
                this
            }
            flags => (*server).filter(|_| flags == HAS_ORIGIN | SAME_SERVER)?,
        };
        let shard = ShardId(self.number()?);
        let conn = ConnId { slot: self.number()?, generation: self.number()? };
        Some(Some(Origin { server: id, shard, conn, incarnation }))
    }

    fn kind(&mut self) -> Option<CommandKind> {
        Some(match self.byte()? {
            0 => CommandKind::Op(self.op()?),
            1 => CommandKind::Multi(self.list(OP_BYTES_MIN, OP_WEIGHT, Self::op)?),
            2 => CommandKind::CreateSession { timeout_ms: self.signed()?, password: self.array()? },
            3 => CommandKind::AttachSession {
                session: self.session()?,
                timeout_ms: self.signed()?,
                password: self.array()?,
            },
            4 => CommandKind::CloseSession,
            5 => CommandKind::Reconfig(Box::default()),
            6 => CommandKind::SystemNodes(
                self.list(PAIR_BYTES_MIN, PAIR_WEIGHT, |take| Some((take.text()?, Data::from(take.bytes()?))))?,
            ),
            7 => CommandKind::Reap { path: self.text()?, mzxid: self.varint()? },
            8 => CommandKind::Undecodable,
            9 => CommandKind::Reconfig(self.reconfig()?),
            10 => CommandKind::Configured(self.text()?),
            11 => CommandKind::ReconfigBegins(self.text()?),
            12 => CommandKind::ReconfigEnds,
            13 => CommandKind::ReconfigFails(ErrorCode::from_i32(self.signed()?)?),
            14 => CommandKind::QuotaCounted(Box::new(Counted {
                path: self.text()?,
                mzxid: self.varint()?,
                znodes: self.signed()?,
                bytes: self.signed()?,
            })),
            15 if self.admitted => CommandKind::Refused(ErrorCode::from_i32(self.signed()?)?),
            _ => return None,
        })
    }

    fn reconfig(&mut self) -> Option<Box<Reconfig>> {
        let (joining, leaving, members) = (self.maybe_text()?, self.maybe_text()?, self.maybe_text()?);
        let request = Reconfig { joining, leaving, members, from: self.signed()? };
        (request != Reconfig::default()).then(|| Box::new(request))
    }

    fn op(&mut self) -> Option<WriteOp> {
        let number = self.byte()?;
        let path = self.text()?;
        Some(match number {
            0 => WriteOp::Create {
                path,
                op: match self.byte()? {
                    0 => CreateOp::Create,
                    1 => CreateOp::Create2,
                    2 => CreateOp::Container,
                    3 => CreateOp::Ttl,
                    4 => CreateOp::IfNotExists,
                    _ => return None,
                },
                data: self.data()?,
                acl: self.acl()?,
                flags: self.signed()?,
                ttl_ms: self.signed()?,
            },
            1 => WriteOp::Delete { path, version: self.signed()? },
            2 => WriteOp::SetData { path, version: self.signed()?, data: self.data()? },
            3 => WriteOp::SetAcl { path, version: self.signed()?, acl: self.acl()? },
            4 => WriteOp::Check { path, version: self.signed()? },
            5 => WriteOp::CheckNotExists { path, version: self.signed()? },
            6 => WriteOp::CheckStat { path, version: self.signed()?, stat: self.stat()? },
            7 => WriteOp::TryRemove { path, version: self.signed()? },
            8 => WriteOp::RemoveRecursive { path, limit: self.number()? },
            _ => return None,
        })
    }

    fn stat(&mut self) -> Option<Box<[i64; STAT_FIELDS]>> {
        let mut stat = Box::new([0; STAT_FIELDS]);
        for field in &mut *stat {
            *field = self.signed()?;
        }
        Some(stat)
    }

    fn acl(&mut self) -> Option<AclSpec> {
        const ENTRY_BYTES_MIN: usize = 3;
        let entry = |take: &mut Self| Some(AclEntry { perms: take.signed()?, scheme: take.text()?, id: take.text()? });
        Some(match self.byte()? {
            0 => AclSpec::Open,
            1 => AclSpec::Missing,
            2 => AclSpec::List(self.list(ENTRY_BYTES_MIN, ACL_ENTRY_WEIGHT, entry)?),
            3 => AclSpec::Malformed,
            4 => AclSpec::BrokenOff(self.list(ENTRY_BYTES_MIN, ACL_ENTRY_WEIGHT, entry)?),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests;
