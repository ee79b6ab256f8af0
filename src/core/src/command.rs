//! What is proposed, ordered and logged: commands with their origin. One log entry holds one [`Batch`].
//!
//! A command carries everything its evaluation needs (identities, time, entropy), so that each server, and each replay
//! of the log, comes to the same result.

use crate::ids::{ConnId, SessionId, ShardId, WallMillis, Zxid};
use crate::shared::{Data, Text};
use crate::znode::AclEntry;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem::size_of;
use core::slice;
use rkyv::rancor::{Error, Source};
use rkyv::util::AlignedVec;
use rkyv::{Archive, Deserialize, Serialize};

/// The connection that asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Archive, Serialize, Deserialize)]
pub struct Origin {
    /// Server id, 1..=255.
    pub server: u8,
    pub shard: ShardId,
    pub conn: ConnId,
    /// Start of the process that issued `conn`, so that a replayed command never answers a later connection.
    pub incarnation: u64,
}

/// A proven identity of a connection, such as (`ip`, `10.0.0.7`) or (`digest`, `user:hash`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Archive, Serialize, Deserialize)]
pub struct Identity {
    pub scheme: Text,
    pub id: Text,
}

/// An ACL as a client sent it, before it is checked and expanded.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub enum AclSpec {
    /// Exactly one entry, `world:anyone` with all permissions.
    Open,
    /// Null or empty: refused by evaluation, in its place among the checks.
    Missing,
    List(Vec<AclEntry>),
    /// Holds a null scheme: refused by evaluation.
    Malformed,
    /// The entries before one with a null id, at which the check of the list breaks off.
    BrokenOff(Vec<AclEntry>),
}

/// Which create operation asked: it decides the kind of node and the shape of the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub enum CreateOp {
    Create,
    Create2,
    Container,
    Ttl,
    /// ClickHouse Keeper's createIfNotExists.
    IfNotExists,
}

/// One operation that may change the tree.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub enum WriteOp {
    /// `flags` as sent, checked by evaluation; `ttl_ms` is -1 unless `op` is [`CreateOp::Ttl`].
    Create {
        op: CreateOp,
        path: Text,
        data: Option<Data>,
        acl: AclSpec,
        flags: i32,
        ttl_ms: i64,
    },
    Delete {
        path: Text,
        version: i32,
    },
    SetData {
        path: Text,
        data: Option<Data>,
        version: i32,
    },
    SetAcl {
        path: Text,
        acl: AclSpec,
        version: i32,
    },
    Check {
        path: Text,
        version: i32,
    },
    /// Fails if the znode exists, with this version unless that is -1.
    CheckNotExists {
        path: Text,
        version: i32,
    },
    /// Each field of `stat`, in the order of the wire, must be the znode's unless it is -1.
    CheckStat {
        path: Text,
        version: i32,
        /// Boxed, so that the rare operation does not make all others larger.
        stat: Box<[i64; STAT_FIELDS]>,
    },
    /// As delete, but nothing happens where that would fail for the znode's own sake.
    TryRemove {
        path: Text,
        version: i32,
    },
    /// Deletes a znode and all below it, if they are at most `limit`.
    RemoveRecursive {
        path: Text,
        limit: u32,
    },
}

impl WriteOp {
    /// Bytes of the path and the data.
    fn bytes(&self) -> usize {
        match self {
            Self::Create { path, data, .. } | Self::SetData { path, data, .. } => {
                path.len() + data.as_ref().map_or(0, |data| data.len())
            }
            Self::Delete { path, .. }
            | Self::SetAcl { path, .. }
            | Self::Check { path, .. }
            | Self::CheckNotExists { path, .. }
            | Self::CheckStat { path, .. }
            | Self::TryRemove { path, .. }
            | Self::RemoveRecursive { path, .. } => path.len(),
        }
    }
}

/// Fields of a Stat.
pub const STAT_FIELDS: usize = 11;

/// What a command asks for.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub enum CommandKind {
    Op(WriteOp),
    Multi(Vec<WriteOp>),
    /// `timeout_ms` is negotiated already; the password is fresh entropy.
    CreateSession {
        timeout_ms: i32,
        password: [u8; 16],
    },
    AttachSession {
        session: SessionId,
        timeout_ms: i32,
        password: [u8; 16],
    },
    CloseSession,
    /// What it asks for does not matter: a server that is alone refuses it.
    Reconfig,
    /// The server's own: makes sure that these znodes exist with this data. Parents come before children.
    SystemNodes(Vec<(Text, Data)>),
    /// The server's own: deletes a container or TTL node that has outlived its use, if nothing has changed since it was
    /// chosen.
    Reap {
        path: Text,
        mzxid: u64,
    },
    /// A multi whose records make no sense. It takes its zxid all the same, as in ZooKeeper.
    Undecodable,
}

/// One command. `identities` indexes the table of the batch it travels in.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct Command {
    pub origin: Option<Origin>,
    /// The session on whose behalf; 0 for the server's own and for session set-up.
    pub session: SessionId,
    pub identities: u32,
    pub kind: CommandKind,
}

impl Command {
    /// The paths of its operations on znodes, in order.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        let ops = match &self.kind {
            CommandKind::Op(op) => slice::from_ref(op),
            CommandKind::Multi(ops) => ops,
            _ => &[],
        };
        ops.iter().map(|op| match op {
            WriteOp::Create { path, .. }
            | WriteOp::Delete { path, .. }
            | WriteOp::SetData { path, .. }
            | WriteOp::SetAcl { path, .. }
            | WriteOp::Check { path, .. }
            | WriteOp::CheckNotExists { path, .. }
            | WriteOp::CheckStat { path, .. }
            | WriteOp::TryRemove { path, .. }
            | WriteOp::RemoveRecursive { path, .. } => &**path,
        })
    }

    /// Attaching moves a connection, not the tree: as in ZooKeeper it takes no zxid.
    pub const fn takes_zxid(&self) -> bool {
        !matches!(self.kind, CommandKind::AttachSession { .. })
    }
}

/// The commands of one turn, ordered, with the identities they speak with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proposals {
    pub identities: Vec<Arc<Vec<Identity>>>,
    pub commands: Vec<Command>,
    /// Bytes of paths and data, for the limits on what is in flight.
    pub bytes: usize,
}

/// The payload of one log entry.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct Batch {
    pub time: WallMillis,
    /// Zxid of the first command that takes one; the others follow by one each.
    pub first_zxid: u64,
    /// Bits of `evaluate::features` in force when the batch was proposed.
    pub features: u32,
    #[rkyv(with = rkyv::with::Map<rkyv::with::Unshare>)]
    pub identities: Vec<Arc<Vec<Identity>>>,
    pub commands: Vec<Command>,
}

impl Batch {
    pub fn first_zxid(&self) -> Zxid {
        Zxid(self.first_zxid)
    }

    /// The bytes that go to the log: the first zxid, the format's version, then the archive.
    ///
    /// # Errors
    /// When an allocation of the archive fails to be described; never for a batch within the limits.
    pub fn encode(&self) -> Result<AlignedVec, Error> {
        let mut bytes = AlignedVec::<16>::with_capacity(self.encoded_bytes_estimate());
        bytes.extend_from_slice(&self.first_zxid.to_le_bytes());
        bytes.extend_from_slice(&FORMAT.to_le_bytes());
        rkyv::api::high::to_bytes_in::<_, Error>(self, bytes)
    }

    /// About as many bytes as the encoded batch will have, so that it seldom grows by copying.
    fn encoded_bytes_estimate(&self) -> usize {
        const COMMAND_BYTES: usize = size_of::<ArchivedCommand>() + 16;
        const MULTI_OP_BYTES: usize = size_of::<ArchivedWriteOp>() + 128;
        let of_command = |command: &Command| match &command.kind {
            CommandKind::Op(op) => op.bytes(),
            CommandKind::Multi(ops) => ops.iter().map(|op| MULTI_OP_BYTES + op.bytes()).sum(),
            _ => 0,
        };
        let commands: usize = self.commands.iter().map(|command| COMMAND_BYTES + of_command(command)).sum();
        HEAD_BYTES + commands + self.identities.len() * 64 + 256
    }

    /// The first zxid of an encoded batch, without reading the rest; 0 when there is none.
    pub fn zxid_of(bytes: &[u8]) -> u64 {
        bytes.first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word))
    }

    /// Reads what [`Batch::encode`] wrote, checking every offset. `bytes` may have any alignment.
    ///
    /// # Errors
    /// When the bytes are no batch, or one of another format.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let (head, archive) = bytes.split_at_checked(HEAD_BYTES).unwrap_or_default();
        if head.get(8..) != Some(&FORMAT.to_le_bytes()[..]) {
            return Err(Error::new(WrongFormat));
        }
        let mut aligned = AlignedVec::<16>::with_capacity(archive.len());
        aligned.extend_from_slice(archive);
        rkyv::from_bytes::<Self, Error>(&aligned)
    }
}

/// Bytes in front of the archive; keeps it aligned.
const HEAD_BYTES: usize = 16;
/// Changes whenever the archived form of a batch does.
const FORMAT: u64 = 4;

/// The payload of a log entry is not of the format this version writes.
#[derive(Debug)]
struct WrongFormat;

impl core::fmt::Display for WrongFormat {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("not a batch of this format")
    }
}

impl core::error::Error for WrongFormat {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn batches_survive_the_log() {
        let create = WriteOp::Create {
            op: CreateOp::Ttl,
            path: Text::from("/a"),
            data: Some(Data::from(&b"x"[..])),
            acl: AclSpec::List(vec![AclEntry { perms: 1, scheme: Text::from("ip"), id: Text::from("::1") }]),
            flags: 5,
            ttl_ms: 7,
        };
        let origin = Origin { server: 1, shard: ShardId(2), conn: ConnId { slot: 3, generation: 4 }, incarnation: 5 };
        let identity = Identity { scheme: Text::from("ip"), id: Text::from("::1") };
        let command = |kind| Command { origin: Some(origin), session: SessionId(9), identities: 0, kind };
        let batch = Batch {
            time: WallMillis(77),
            first_zxid: 0x1_0000_0001,
            features: 3,
            identities: vec![Arc::new(vec![identity])],
            commands: vec![command(CommandKind::Op(create)), command(CommandKind::CloseSession)],
        };
        let bytes = batch.encode().expect("small");
        assert_eq!(Batch::decode(&bytes).ok().as_ref(), Some(&batch));
        assert_eq!(Batch::zxid_of(&bytes), 0x1_0000_0001);
        for end in 0..bytes.len() {
            assert!(Batch::decode(&bytes[..end]).is_err(), "cut at {end}");
        }
        for at in 0..bytes.len() {
            let mut bad = bytes.to_vec();
            bad[at] ^= 0xff;
            let _ = Batch::decode(&bad);
        }
    }
}
