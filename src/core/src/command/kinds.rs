//! One command: its kind with its arguments, and the connection that asked.

use crate::ids::{Origin, SessionId};
use crate::ops::{self, WriteOp};
use crate::quota::count::Counted;
use crate::servers::reconfig::Reconfig;
use crate::shared::{Data, Text};
use crate::tree::acl::AclSpec;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::slice;
use corral_wire::error::ErrorCode;

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
    /// with `features::ADMITTED`.
    Refused(ErrorCode),
}

impl CommandKind {
    /// Whether it may add data to the tree.
    pub(crate) fn adds_data(&self) -> bool {
        self.ops().iter().any(WriteOp::adds_data)
    }

    /// Its operations on znodes, in order.
    fn ops(&self) -> &[WriteOp] {
        match self {
            Self::Op(op) => slice::from_ref(op),
            Self::Multi(ops) => ops,
            _ => &[],
        }
    }

    /// The ACLs of its operations, as they were sent.
    pub(crate) fn acls_mut(&mut self) -> impl Iterator<Item = &mut AclSpec> {
        let ops = match self {
            Self::Op(op) => slice::from_mut(op),
            Self::Multi(ops) => ops,
            _ => &mut [],
        };
        ops.iter_mut().filter_map(WriteOp::acl_mut)
    }

    /// Bytes of client text and data a command holds, for the limits on commands in flight.
    pub(crate) fn weight(&self) -> usize {
        const FIXED: usize = 128;
        match self {
            Self::Op(op) => FIXED + op_weight(op),
            Self::Multi(ops) => FIXED + ops.iter().map(|op| FIXED + op_weight(op)).sum::<usize>(),
            Self::Reap { path, .. } => FIXED + path.len(),
            Self::QuotaCounted(counted) => FIXED + counted.path.len(),
            Self::Reconfig(request) => FIXED + request.bytes(),
            Self::Configured(lines) | Self::ReconfigBegins(lines) => FIXED + lines.len(),
            Self::SystemNodes(nodes) => nodes.iter().map(|(path, data)| FIXED + path.len() + data.len()).sum(),
            Self::CreateSession { .. }
            | Self::AttachSession { .. }
            | Self::CloseSession
            | Self::ReconfigEnds
            | Self::ReconfigFails(_)
            | Self::Undecodable
            | Self::Refused(_) => FIXED,
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

fn op_weight(op: &WriteOp) -> usize {
    op.bytes() + op.acl().map_or(0, acl_weight)
}

fn acl_weight(acl: &AclSpec) -> usize {
    const FIXED: usize = 32;
    match acl {
        AclSpec::List(list) | AclSpec::BrokenOff(list) => {
            list.iter().map(|entry| FIXED + entry.scheme.len() + entry.id.len()).sum()
        }
        AclSpec::Open | AclSpec::Missing | AclSpec::Malformed => 0,
    }
}

/// One command. `identities` indexes the table of the batch it travels in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The connection that receives the outcome; `None` if no connection waits for it.
    pub origin: Option<Origin>,
    /// The session of the client; 0 for the server's own commands and for session set-up.
    pub session: SessionId,
    /// Index into the `identities` of the [`Proposals`](super::Proposals) or [`Batch`](super::Batch).
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
        self.kind.ops().iter().map(|op| &**op.path())
    }

    /// Whether one of its operations creates a znode at such a path.
    pub(crate) fn creates(&self, at: impl Fn(&str) -> bool) -> bool {
        self.kind.ops().iter().any(|op| matches!(op, WriteOp::Create(ops::Create { path, .. }) if at(path)))
    }

    /// Attaching moves a connection, not the tree: as in ZooKeeper it takes no zxid. Nor does what only announces a
    /// change.
    pub const fn takes_zxid(&self) -> bool {
        !matches!(self.kind, CommandKind::AttachSession { .. } | CommandKind::ReconfigBegins(_))
    }
}
