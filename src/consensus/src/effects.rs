//! Effects: what a replica asks of its driver.

use crate::log::ReplacedLog;
use crate::message::PeerMessage;
use crate::outputs::{Append, InstallSnapshot, RoleChange};
use crate::types::{Index, Micros};

/// Effects of one turn.
#[derive(Debug, Default)]
#[must_use = "an append that is not written is never acknowledged"]
pub struct Effects {
    /// To be written to the log in this order, then reported with [`crate::Replica::persisted`].
    pub appends: Vec<Append>,
    /// A leader's snapshot, which was received before, replaces log and machine: see [`Install`].
    pub installs: Vec<Install>,
    /// Entries that those snapshots replace: dropped on another thread, because that takes long.
    pub replaced: Vec<ReplacedLog>,
    /// To be sent to the other members now, in this order.
    pub messages: Vec<PeerMessage>,
    /// The newest role, if role, term or leader have changed since the last turn.
    pub role: Option<RoleChange>,
    /// A member lags so far behind that it needs a snapshot newer than the last one reported by [`crate::Replica::compact`].
    pub snapshot_wanted: bool,
    /// The first and the last of the entries to be read from this server's log. The driver reads at least the first one,
    /// and reports [`crate::Replica::log_read`].
    pub log_wanted: Option<(Index, Index)>,
    /// Tokens of [`crate::Replica::read_index`] with an applied index: their reads may be served now.
    pub reads: Vec<u64>,
    /// Tokens of [`crate::Replica::read_index`] that are refused.
    pub reads_refused: Vec<u64>,
    /// Another turn is wanted at that time, whatever else happens. Commands wait for others to join them, or committed
    /// entries wait until the driver has handled everything else. In the second case it is the time of this turn.
    pub wake_at: Option<Micros>,
    /// Cost of the applied entries.
    pub(crate) work: u64,
}

/// A snapshot that replaces log and machine.
///
/// The log is emptied, and continues behind `snapshot.index`, before the append of this number is written. When that
/// append is durable the driver reports it, puts the state of the snapshot into the machine, and calls
/// [`crate::Replica::installed`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Install {
    /// Number of the append it is part of.
    pub number: u64,
    /// Which snapshot.
    pub snapshot: InstallSnapshot,
}
