//! The numbers of the domain, each a type of its own, so that two of them never swap places in a call.

use core::fmt;
use corral_types::Micros;
pub use corral_types::ServerId;
use rkyv::{Archive, Deserialize, Serialize};

/// A transaction id: `epoch << 32 | counter`. Only ever grows; clients rely on that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Zxid(pub u64);

impl Zxid {
    /// Zxids of later epochs are negative numbers to clients.
    pub const EPOCH_MAX: u32 = i32::MAX.cast_unsigned();

    /// The first zxid of an epoch is `of(epoch, 1)`; counter 0 stands for "nothing yet in this epoch".
    pub const fn of(epoch: u32, counter: u32) -> Self {
        Self(((epoch as u64) << 32) | counter as u64)
    }

    /// The upper 32 bits: the number of the leadership.
    pub const fn epoch(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The lower 32 bits: the number of the transaction in its epoch.
    pub const fn counter(self) -> u32 {
        (self.0 & 0xffff_ffff) as u32
    }

    /// As the signed number that travels on the wire.
    pub const fn wire(self) -> i64 {
        self.0.cast_signed()
    }
}

impl fmt::Display for Zxid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:x}", self.0)
    }
}

/// A client session's id, never 0. Issued by the state machine, unique for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Archive, Serialize, Deserialize)]
pub struct SessionId(pub i64);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:x}", self.0)
    }
}

/// A shard of this server: one core's share of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Archive, Serialize, Deserialize)]
pub struct ShardId(pub u16);

/// A connection of one shard. The generation tells a slot's present tenant from its former ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Archive, Serialize, Deserialize)]
pub struct ConnId {
    /// Place in the shard's table of connections. A later connection may have the same one.
    pub slot: u32,
    /// Number of the tenant of the slot.
    pub generation: u32,
}

/// Milliseconds on a monotonic clock that starts with the process. Deadlines and latencies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

impl Millis {
    /// The millisecond that this time is in.
    pub const fn of(at: Micros) -> Self {
        Self(at.0 / 1000)
    }

    /// The beginning of this millisecond.
    pub const fn micros(self) -> Micros {
        Micros(self.0.saturating_mul(1000))
    }

    /// So many milliseconds later, at most `u64::MAX`.
    pub const fn plus(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds since `earlier`; 0 if that is later.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Milliseconds since 1970 on the wall clock. Only ever stored in `ctime` and `mtime`; nothing is decided by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Archive, Serialize, Deserialize)]
pub struct WallMillis(pub i64);

/// The number of a server in a snapshot.
#[derive(Archive, Serialize)]
#[rkyv(remote = ServerId)]
pub struct ServerNumber(pub u8);

/// The connection that asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Archive, Serialize)]
pub struct Origin {
    /// The server with that connection.
    #[rkyv(with = ServerNumber)]
    pub server: ServerId,
    /// Shard that owns the connection.
    pub shard: ShardId,
    /// The connection on that shard.
    pub conn: ConnId,
    /// Start of the process that issued `conn`, so that a replayed command never answers a later connection.
    pub incarnation: u64,
}
