//! The configuration of a shard.
//!
//! Plain data.

use crate::ids::{ConnId, Origin, ServerId, ShardId};
use crate::limits::ShardLimits;
use crate::shard::sasl::Users;
use crate::shard::walk::is_walk;
use crate::shared::Text;
use crate::tree::acl::{self, AnySaslUser, DigestHash};
use alloc::sync::Arc;
use alloc::vec::Vec;
use corral_wire::OpCode;
use corral_wire::fourletter::FourLetter;
use corral_wire::op::Kind as OpKind;

/// The settings of a shard. They stay as they are, except the users of SASL.
#[derive(Clone)]
pub struct ShardConfig {
    /// Id of the shard.
    pub shard: ShardId,
    /// Server id, 1..=255.
    pub server: ServerId,
    /// Unique to this start of the process.
    pub incarnation: u64,
    /// Least session timeout that is negotiated; a shorter wish is raised to it.
    pub session_timeout_min_ms: i32,
    /// Greatest session timeout that is negotiated; a longer wish is lowered to it.
    pub session_timeout_max_ms: i32,
    /// How long a connection may take to send its connect request.
    pub sessionless_timeout_ms: u64,
    /// four-letter commands that are answered.
    pub whitelist: Vec<FourLetter>,
    /// The hash of the digest scheme. `None`: there is no such scheme.
    pub digest: Option<DigestHash>,
    /// `user:hash` of the super user, if there is one.
    pub super_digest: Option<Text>,
    /// Subject of the super user's client certificate, if there is one.
    pub x509_super: Option<Text>,
    /// Whether reads and events ignore ACLs. Writes do if their batch has `features::SKIP_ACL`.
    pub skip_acl: bool,
    /// A connection must prove an identity of one of these schemes before it may ask for anything. Empty: it need not.
    pub enforce_schemes: Vec<Text>,
    /// Users of SASL. `None`: no mechanism is configured.
    pub sasl_users: Option<Arc<Users>>,
    /// SASL users that are super users.
    pub sasl_super_users: Vec<Text>,
    /// Every SASL user has the rights of this one.
    pub any_sasl_user: Option<AnySaslUser>,
    /// Whether a connection goes on after it failed to prove its SASL user.
    pub allow_sasl_failed: bool,
    /// Secret random bytes; nonces are made of them.
    pub nonce_key: [u8; 16],
    /// Whether ClickHouse Keeper's operations are served.
    pub keeper_extensions: bool,
    /// Whether records of the audit log are made of writes, see [`Effects::audited`](crate::shard::Effects::audited).
    pub audit: bool,
    /// Requests that take as long are in [`Effects::slow`](crate::shard::Effects::slow).
    pub slow_request_ms: u64,
    /// Whether clients that ask for it may read while there is no leader.
    pub read_only: bool,
    /// Whether every read waits until the leader has confirmed how far it must see.
    pub linearizable: bool,
    /// Limits on requests, memory, watches and work.
    pub limits: ShardLimits,
}

impl ShardConfig {
    /// The origin of a command of this connection.
    pub(super) const fn origin(&self, conn: ConnId) -> Origin {
        Origin { server: self.server, shard: self.shard, conn, incarnation: self.incarnation }
    }

    /// Whether the command comes from this shard, since this start of the server.
    pub(super) fn is_mine(&self, origin: Origin) -> bool {
        origin == self.origin(origin.conn)
    }

    /// Whether the operation is proposed to the quorum.
    pub(super) const fn writes(&self, op: OpCode) -> bool {
        matches!(op.kind(), OpKind::Write) || (self.keeper_extensions && op.is_keeper_write())
    }

    /// Whether the operation is a walk that this server serves.
    pub(super) fn walks(&self, op: OpCode) -> bool {
        is_walk(op) && (op.kind() != OpKind::Extension || self.keeper_extensions)
    }

    /// Returns the timeout of a session for the timeout that its client requests, both in milliseconds.
    pub(super) fn negotiated(&self, timeout_ms: i32) -> i32 {
        timeout_ms.clamp(self.session_timeout_min_ms, self.session_timeout_max_ms)
    }
}

/// The first shard of server 1, which answers no four-letter command and serves no extension.
impl Default for ShardConfig {
    fn default() -> Self {
        Self {
            shard: ShardId(0),
            server: ServerId(1),
            incarnation: 1,
            session_timeout_min_ms: 1000,
            session_timeout_max_ms: 60_000,
            sessionless_timeout_ms: 10_000,
            whitelist: Vec::new(),
            digest: Some(acl::sha1),
            super_digest: None,
            x509_super: None,
            skip_acl: false,
            enforce_schemes: Vec::new(),
            sasl_users: None,
            sasl_super_users: Vec::new(),
            any_sasl_user: None,
            allow_sasl_failed: false,
            nonce_key: [0; 16],
            keeper_extensions: false,
            audit: false,
            slow_request_ms: u64::MAX,
            read_only: false,
            linearizable: false,
            limits: ShardLimits::default(),
        }
    }
}
