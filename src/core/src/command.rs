//! Commands with their origin, as they are proposed, ordered and logged. One log entry holds one [`Batch`].
//!
//! A command carries everything its evaluation needs (identities, time, entropy), so that each server, and each replay
//! of the log, comes to the same result.

mod encoding;
pub mod features;
pub(crate) mod request;
mod waiting;

pub use encoding::BatchError;
pub(crate) use encoding::is_too_heavy;
pub(crate) use waiting::{Renumbered, Waiting, identities_weight};

use crate::ids::{Origin, SessionId, WallMillis};
use crate::servers::Reconfig;
use crate::shared::{Data, Text};
use crate::tree::acl::{AclSpec, Identity};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::slice;
use corral_wire::error::ErrorCode;

/// Which create operation asked: it decides the kind of node and the shape of the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateOp {
    /// create: the reply is the path.
    Create,
    /// create2: the reply is the path and the Stat.
    Create2,
    /// createContainer: a container, deleted some time after its last child.
    Container,
    /// createTTL: a TTL node.
    Ttl,
    /// ClickHouse Keeper's createIfNotExists.
    IfNotExists,
}

/// One operation that may change the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteOp {
    /// `flags` as sent, checked by evaluation; `ttl_ms` is -1 unless `op` is [`CreateOp::Ttl`].
    Create {
        /// The operation of the protocol.
        op: CreateOp,
        /// Path as sent: that of a sequential znode lacks its number.
        path: Text,
        /// Data of the znode. `None` is null data, which is not the same as empty data.
        data: Option<Data>,
        /// ACL as sent.
        acl: AclSpec,
        /// ZooKeeper's create mode.
        flags: i32,
        /// Time to live, milliseconds.
        ttl_ms: i64,
    },
    /// Deletes a znode without children.
    Delete {
        /// Path of the znode.
        path: Text,
        /// Expected version of the data; -1 matches any.
        version: i32,
    },
    /// Replaces the data of a znode.
    SetData {
        /// Path of the znode.
        path: Text,
        /// The new data. `None` is null data.
        data: Option<Data>,
        /// Expected version of the data; -1 matches any.
        version: i32,
    },
    /// Replaces the ACL of a znode.
    SetAcl {
        /// Path of the znode.
        path: Text,
        /// The new ACL as sent.
        acl: AclSpec,
        /// Expected version of the ACL; -1 matches any.
        version: i32,
    },
    /// Changes nothing. Fails unless the znode exists and has this version.
    Check {
        /// Path of the znode.
        path: Text,
        /// Expected version of the data; -1 matches any.
        version: i32,
    },
    /// Fails if the znode exists, with this version unless that is -1.
    CheckNotExists {
        /// Path of the znode.
        path: Text,
        /// Version that makes the check fail; -1 is any.
        version: i32,
    },
    /// Each field of `stat`, in the order of the wire, must be the znode's unless it is -1.
    CheckStat {
        /// Path of the znode.
        path: Text,
        /// Expected version of the data; -1 matches any.
        version: i32,
        /// Boxed, so that the rare operation does not make all others larger.
        stat: Box<[i64; STAT_FIELDS]>,
    },
    /// As delete, but nothing happens where that would fail for the znode's own sake.
    TryRemove {
        /// Path of the znode.
        path: Text,
        /// Expected version of the data; -1 matches any.
        version: i32,
    },
    /// Deletes a znode and all below it, if they are at most `limit`.
    RemoveRecursive {
        /// Path of the subtree's root.
        path: Text,
        /// Most znodes that may be deleted, the root included. Of more, none is deleted: `NotEmpty`.
        limit: u32,
    },
}

impl WriteOp {
    /// The path that it is for, as sent.
    pub fn path(&self) -> &Text {
        match self {
            Self::Create { path, .. }
            | Self::Delete { path, .. }
            | Self::SetData { path, .. }
            | Self::SetAcl { path, .. }
            | Self::Check { path, .. }
            | Self::CheckNotExists { path, .. }
            | Self::CheckStat { path, .. }
            | Self::TryRemove { path, .. }
            | Self::RemoveRecursive { path, .. } => path,
        }
    }

    /// Bytes of the path and the data.
    pub(crate) fn bytes(&self) -> usize {
        let data = match self {
            Self::Create { data, .. } | Self::SetData { data, .. } => data.as_ref(),
            _ => None,
        };
        self.path().len() + data.map_or(0, |data| data.len())
    }
}

/// Fields of a Stat.
pub const STAT_FIELDS: usize = 11;

/// The usage of a subtree when its usage znode was created, to which later changes were added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The usage znode.
    pub path: Text,
    /// Of the usage znode, which must be the same still.
    pub mzxid: u64,
    /// Znodes of the subtree, its root included.
    pub znodes: i64,
    /// Bytes of the data of these znodes. Paths do not count.
    pub bytes: i64,
}

/// The kind of a command, with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandKind {
    /// One write of a client.
    Op(WriteOp),
    /// Writes of a client that all take effect, or none.
    Multi(Vec<WriteOp>),
    /// `timeout_ms` is negotiated already; the password is fresh entropy.
    CreateSession {
        /// Session timeout, milliseconds.
        timeout_ms: i32,
        /// Password of the new session.
        password: [u8; 16],
    },
    /// Moves a session to the connection of the origin, if the password matches.
    AttachSession {
        /// Id of the session.
        session: SessionId,
        /// Negotiated timeout, milliseconds. It replaces the former timeout.
        timeout_ms: i32,
        /// Password as the client sent it.
        password: [u8; 16],
    },
    /// Ends the command's session and deletes its ephemerals: for its client, or because it expired.
    CloseSession,
    /// A membership change.
    Reconfig(Box<Reconfig>),
    /// The server's own: what the leader's configuration says of the servers, line by line.
    Configured(Text),
    /// The leader's own: the list that the membership is being changed to, for the client that is named as its origin.
    ReconfigBegins(Text),
    /// The leader's own: the membership is that of the list which was begun.
    ReconfigEnds,
    /// The leader's own: the change that this client asked for is not to be.
    ReconfigFails(ErrorCode),
    /// The server's own: makes sure that these znodes exist with this data. Parents come before children.
    SystemNodes(Vec<(Text, Data)>),
    /// The server's own: deletes a container or TTL node that has outlived its use, if nothing has changed since it was
    /// chosen.
    Reap {
        /// Path of the container or TTL node.
        path: Text,
        /// Zxid of the znode's last change when it was chosen.
        mzxid: u64,
    },
    /// The leader's own: what a subtree with a quota used when that was set, counted piece by piece.
    QuotaCounted(Box<Counted>),
    /// A multi with records that cannot be decoded. It takes its zxid all the same, as in ZooKeeper.
    Undecodable,
    /// The leader refused a client's command before it was logged, with this code. It takes its zxid all the same. Only in a batch
    /// with `command::features::ADMITTED`.
    Refused(ErrorCode),
}

impl CommandKind {
    /// Whether it may add data to the tree.
    pub(crate) fn adds_data(&self) -> bool {
        let adds =
            |op: &WriteOp| matches!(op, WriteOp::Create { .. } | WriteOp::SetData { .. } | WriteOp::SetAcl { .. });
        match self {
            Self::Op(op) => adds(op),
            Self::Multi(ops) => ops.iter().any(adds),
            _ => false,
        }
    }

    /// Whether a client can ask for it; the others are the leader's own.
    pub const fn is_clients(&self) -> bool {
        match self {
            Self::Op(_)
            | Self::Multi(_)
            | Self::CreateSession { .. }
            | Self::AttachSession { .. }
            | Self::CloseSession
            | Self::Reconfig(_)
            | Self::Undecodable => true,
            Self::Configured(_)
            | Self::ReconfigBegins(_)
            | Self::ReconfigEnds
            | Self::ReconfigFails(_)
            | Self::SystemNodes(_)
            | Self::Reap { .. }
            | Self::QuotaCounted(_)
            | Self::Refused(_) => false,
        }
    }
}

/// One command. `identities` indexes the table of the batch it travels in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The connection that receives the outcome; `None` if no connection waits for it.
    pub origin: Option<Origin>,
    /// The session of the client; 0 for the server's own commands and for session set-up.
    pub session: SessionId,
    /// Index into the `identities` of the [`Proposals`] or [`Batch`].
    pub identities: u32,
    /// The operation with its arguments.
    pub kind: CommandKind,
}

impl Command {
    /// A command of the server itself. `origin` is the connection that gets the outcome.
    pub const fn own(origin: Option<Origin>, kind: CommandKind) -> Self {
        Self { origin, session: SessionId(0), identities: 0, kind }
    }

    /// The paths of its operations on znodes, in order.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        let ops = match &self.kind {
            CommandKind::Op(op) => slice::from_ref(op),
            CommandKind::Multi(ops) => ops,
            _ => &[],
        };
        ops.iter().map(|op| &**op.path())
    }

    /// Whether one of its operations creates a znode at such a path.
    pub(crate) fn creates(&self, at: impl Fn(&str) -> bool) -> bool {
        let ops = match &self.kind {
            CommandKind::Op(op) => slice::from_ref(op),
            CommandKind::Multi(ops) => ops,
            _ => &[],
        };
        ops.iter().any(|op| matches!(op, WriteOp::Create { path, .. } if at(path)))
    }

    /// Attaching moves a connection, not the tree: as in ZooKeeper it takes no zxid. Nor does what only announces a
    /// change.
    pub const fn takes_zxid(&self) -> bool {
        !matches!(self.kind, CommandKind::AttachSession { .. } | CommandKind::ReconfigBegins(_))
    }
}

/// The commands of one turn, ordered, with the identities they speak with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proposals {
    /// Lists of identities that the commands refer to by index.
    pub identities: Vec<Arc<Vec<Identity>>>,
    /// The commands, in the order in which they are to be evaluated.
    pub commands: Vec<Command>,
    /// Bytes by and large, seldom fewer than it takes in the log. The size of log entries, and of commands in flight,
    /// is counted by them.
    pub bytes: usize,
    /// Most cost of their evaluation, in units of [`crate::cost`]: it also limits a log entry. 0 before the sequencer
    /// has taken them.
    pub cost: u64,
    /// Part of that cost for closing sessions. It grows with the ephemerals that they get until then.
    pub cost_of_closing: u64,
    /// Number of losses of a leader before them, see [`crate::forwarding`]: what comes of a former one is not
    /// ordered.
    pub generation: u32,
}

/// The payload of one log entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Wall clock of the leader: `ctime` and `mtime` of the znodes that the batch changes.
    pub time: WallMillis,
    /// Zxid of the first command that takes one; the others follow by one each.
    pub first_zxid: u64,
    /// Bits of `command::features` in force when the batch was proposed.
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
}
