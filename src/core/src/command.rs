//! What is proposed, ordered and logged: commands with their origin. One log entry holds one [`Batch`].
//!
//! A command carries everything its evaluation needs (identities, time, entropy), so that each server, and each replay
//! of the log, comes to the same result.

use crate::ids::{ConnId, SessionId, ShardId, WallMillis, Zxid};
use crate::shared::{Data, Text};
use crate::znode::AclEntry;
use alloc::sync::Arc;
use alloc::vec::Vec;
use rkyv::rancor::Error;
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
    /// Holds a null scheme or id: refused by evaluation.
    Malformed,
}

/// Which create operation asked: it decides the kind of node and the shape of the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub enum CreateOp {
    Create,
    Create2,
    Container,
    Ttl,
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
}

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

    /// The bytes that go to the log.
    ///
    /// # Errors
    /// When an allocation of the archive fails to be described; never for a batch within the limits.
    pub fn encode(&self) -> Result<AlignedVec, Error> {
        rkyv::to_bytes::<Error>(self)
    }

    /// Reads what [`Batch::encode`] wrote, checking every offset. `bytes` may have any alignment.
    ///
    /// # Errors
    /// When the bytes are no batch.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let mut aligned = AlignedVec::<16>::with_capacity(bytes.len());
        aligned.extend_from_slice(bytes);
        rkyv::from_bytes::<Self, Error>(&aligned)
    }
}
