//! The configuration of a sequencer.

use super::reaper::ReapPolicy;
use super::snapshot_policy::SnapshotPolicy;
use crate::cost::COMMAND_MAX;
use crate::ids::ServerId;

/// The configuration of a sequencer at its start.
#[derive(Clone, Copy, Debug)]
pub struct SequencerConfig {
    /// Server id, 1..=255.
    pub server: ServerId,
    /// Unique to this start of the process.
    pub incarnation: u64,
    /// Width of the expiry buckets.
    pub tick_ms: u64,
    /// Bits of `features`.
    pub features: u32,
    /// Bytes of commands in one log entry, exceeded by at most the proposals of one turn.
    pub batch_bytes_max: usize,
    /// Bytes of the largest log entry there may be.
    pub entry_bytes_max: usize,
    /// Units that one command may cost: [`COMMAND_MAX`], or less in a simulated server of another build.
    pub command_cost_max: u64,
    /// When a snapshot is due.
    pub snapshot: SnapshotPolicy,
    /// How containers and TTL nodes are found and deleted.
    pub reap: ReapPolicy,
}

/// Server 1, which takes no snapshot of its own accord.
impl Default for SequencerConfig {
    fn default() -> Self {
        Self {
            server: ServerId(1),
            incarnation: 1,
            tick_ms: 1000,
            features: 0,
            batch_bytes_max: 1 << 20,
            entry_bytes_max: 64 << 20,
            command_cost_max: COMMAND_MAX,
            snapshot: SnapshotPolicy::NEVER,
            reap: ReapPolicy { check_interval_ms: 60_000, deletes_per_minute_max: 1, never_used_max_ms: 0 },
        }
    }
}
