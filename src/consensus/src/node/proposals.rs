//! How much a leader may have proposed that is not applied yet.
//!
//! Bounds the memory that the log takes while it is written, replicated and applied: entries by count, and bytes with
//! the overhead of each entry. One entry always fits.

use raft::StateRole;

use crate::config::Config;
use crate::convert::id_of;
use crate::error::ProposeError;
use crate::limits;
use crate::log::MemLog;
use crate::types::ServerId;

/// Limits of the proposals in flight.
pub(super) struct ProposalLimits {
    entry_bytes_max: u32,
    entries_max: u64,
    /// Bytes proposed since the last `ready`: the log in memory does not count them yet.
    unready_bytes: u64,
}

impl ProposalLimits {
    pub(super) fn new(config: &Config) -> ProposalLimits {
        ProposalLimits {
            entry_bytes_max: config.max_entry_bytes,
            entries_max: u64::from(config.max_inflight_entries),
            unready_bytes: 0,
        }
    }

    /// Bytes of the largest payload.
    pub(super) fn entry_bytes_max(&self) -> u32 {
        self.entry_bytes_max
    }

    /// Bytes proposed since the last `ready`, overhead included.
    pub(super) fn unready_bytes(&self) -> u64 {
        self.unready_bytes
    }

    /// Checks the size of a payload.
    pub(super) fn check_size(&self, bytes: usize) -> Result<(), ProposeError> {
        if bytes == 0 {
            return Err(ProposeError::Empty);
        }
        if bytes > self.entry_bytes_max as usize {
            return Err(ProposeError::TooLarge { bytes, max: self.entry_bytes_max });
        }
        Ok(())
    }

    /// Whether this node may propose an entry of so many payload bytes now.
    pub(super) fn check_room(&self, raft: &raft::Raft<MemLog>, payload_bytes: u64) -> Result<(), ProposeError> {
        if raft.state != StateRole::Leader {
            return Err(ProposeError::NotLeader { leader: ServerId::from_wide(raft.leader_id) });
        }
        if let Some(to) = raft.lead_transferee {
            return Err(ProposeError::Transferring { to: id_of(to) });
        }
        let log = &raft.raft_log;
        let entries = log.last_index() - log.applied;
        let held = self.unready_bytes + log.store.unapplied_bytes();
        let bytes = payload_bytes + limits::ENTRY_OVERHEAD_BYTES;
        if entries >= self.entries_max || held > 0 && held + bytes > limits::UNAPPLIED_BYTES_MAX {
            return Err(ProposeError::Full);
        }
        Ok(())
    }

    /// An entry of so many payload bytes was proposed.
    pub(super) fn proposed(&mut self, payload_bytes: u64) {
        self.unready_bytes += payload_bytes + limits::ENTRY_OVERHEAD_BYTES;
    }

    /// The proposals are handed out: the log in memory counts them from here on.
    pub(super) fn handed_out(&mut self) {
        self.unready_bytes = 0;
    }
}
