//! One server of a simulated world: its process, if it runs, and the parts that outlive the process.

use std::collections::{BTreeMap, VecDeque};

use corral_consensus::ServerId;
use corral_engine::StoredServers;
use corral_storage::SimDisk;

use crate::world::event::Event;
use crate::world::server::Server;

/// One server: its process, if it runs, and the parts that outlive it.
#[derive(Default)]
pub(crate) struct Node {
    pub(crate) disk: SimDisk,
    pub(crate) disk_stops: bool,
    pub(crate) disk_slow: bool,
    pub(crate) server: Option<Box<Server>>,
    pub(crate) life: u32,
    pub(crate) starting: bool,
    /// Its own clock is ahead of the world's by so many milliseconds.
    pub(crate) clock_ahead_ms: u64,
    /// The events that wait until the process continues; `None` while it runs.
    pub(crate) frozen: Option<VecDeque<Event>>,
    /// Before this time signs of life that reach it may not reach the leader.
    pub(crate) unsure_until: u64,
    /// The servers by its configuration, with their ports for each other.
    pub(crate) file: BTreeMap<ServerId, u16>,
    /// .. and an operator has left one out.
    pub(crate) has_odd_file: bool,
    /// The newest membership that it has known.
    pub(crate) remembered: Option<StoredServers>,
    /// It noted that its state is not to be trusted.
    pub(crate) distrusted: Option<String>,
    /// Its damaged data were put aside, and no snapshot of another server has replaced them.
    pub(crate) is_healing: bool,
    /// Units that a command may cost in its build.
    pub(crate) command_cost_max: u64,
    /// Its disk space or memory is scarce.
    pub(crate) is_scarce: bool,
    /// A snapshot file with a byte that changed, and its earlier content.
    pub(crate) spoiled: Option<(String, Vec<u8>)>,
}
