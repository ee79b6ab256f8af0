//! Reads of this server's log on disk, one at a time: for the repair of the state, or for followers.

use crate::node::RaftNode;
use crate::state_repair::StateRepair;
use crate::types::{Entry, Index};

/// Readers of this server's log on disk.
#[derive(Clone, Copy, Debug)]
enum LogReader {
    /// The repair of the state.
    Repair,
    /// Followers that need more than memory holds.
    Followers,
}

/// The read that is under way.
#[derive(Debug, Default)]
pub(crate) struct LogReads {
    reader: Option<LogReader>,
}

impl LogReads {
    /// Begins a read, if none is under way: `for_repair`, or else for followers. Returns the first and the last index.
    pub(crate) fn begin(&mut self, for_repair: Option<(Index, Index)>, raft: &mut RaftNode) -> Option<(Index, Index)> {
        if self.reader.is_some() {
            return None;
        }
        let (reader, wanted) = match for_repair {
            Some(wanted) => (LogReader::Repair, Some(wanted)),
            None => (LogReader::Followers, raft.begin_to_read()),
        };
        self.reader = wanted.map(|_| reader);
        wanted
    }

    /// Ends the read. Without entries the repair awaits another state: they cannot be read.
    pub(crate) fn end(&mut self, entries: Vec<Entry>, repair: &mut StateRepair, raft: &mut RaftNode) {
        match self.reader.take() {
            Some(LogReader::Repair) if entries.is_empty() && repair.replays() => repair.begin(raft.applied_index()),
            Some(LogReader::Repair) => repair.add(entries),
            Some(LogReader::Followers) => raft.log_read(&entries),
            None => {}
        }
    }
}
