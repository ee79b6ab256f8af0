//! A server process as the simulator drives it: the real shards and the real engine, and the state of their drivers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use corral_consensus::{Membership, Micros, ServerId};
use corral_core::apply::outcome::AppliedBatch;
use corral_core::ids::ConnId;
use corral_core::sequencer::FrozenState;
use corral_engine::{self as engine, Engine, LogQueue};
use corral_storage::log::Log;
use corral_storage::{SimDisk, SnapshotReceiver, SnapshotWriter};

use crate::model::LinkId;
use crate::shard_driver::ShardDriver;
use crate::world::event::Event;
use crate::world::observed_machine::ObservedMachine;

/// One shard and its driver's state.
pub(crate) struct ShardSide {
    pub(crate) shard: ShardDriver,
    pub(crate) links: BTreeMap<ConnId, LinkId>,
    /// Batches that it has applied.
    pub(crate) taken: u64,
    /// Batches that it has not applied to their ends, oldest first.
    pub(crate) batches: VecDeque<Arc<AppliedBatch>>,
    pub(crate) turn_planned: bool,
    /// The events that came while the shard was paused; `None` while it runs.
    pub(crate) deferred: Option<VecDeque<Event>>,
}

pub(crate) struct LogSide {
    pub(crate) log: Log<SimDisk>,
    pub(crate) inbox: LogQueue,
    /// A turn is planned or a sync is under way.
    pub(crate) busy: bool,
    pub(crate) appends: u64,
    pub(crate) is_full: bool,
    pub(crate) failed: bool,
    /// The part of the log that was damaged at the start, and that the newest snapshot holds.
    pub(crate) damaged: Option<String>,
}

impl LogSide {
    pub(crate) fn new(log: Log<SimDisk>, damaged: Option<String>) -> LogSide {
        LogSide { log, inbox: LogQueue::default(), busy: false, appends: 0, is_full: false, failed: false, damaged }
    }
}

#[derive(Default)]
pub(crate) struct WriterSide {
    pub(crate) waiting: VecDeque<Box<FrozenState>>,
    /// One is being written, or about to be.
    pub(crate) busy: bool,
    pub(crate) half: Option<HalfWritten>,
}

/// A snapshot with written sections that has no name yet.
pub(crate) struct HalfWritten {
    pub(crate) file: SnapshotWriter<SimDisk>,
    pub(crate) index: u64,
    pub(crate) term: u64,
}

/// The snapshot that is received, by the index of its last entry.
pub(crate) type Receiving = (u64, SnapshotReceiver<SimDisk>);

pub(crate) struct Server {
    pub(crate) shards: Vec<ShardSide>,
    pub(crate) engine: Engine<ObservedMachine>,
    pub(crate) inbox: VecDeque<engine::Event>,
    pub(crate) turn_planned: bool,
    pub(crate) wake_at: Option<Micros>,
    pub(crate) log: LogSide,
    pub(crate) writer: WriterSide,
    pub(crate) receiving: Option<Receiving>,
    pub(crate) incarnation: u64,
    pub(crate) led: bool,
    /// Requests of its clients go to the leader, and so do its reports of them.
    pub(crate) flows: bool,
    /// The servers that it dials and lets in, with all ports at which it has known them.
    pub(crate) known: BTreeMap<ServerId, BTreeSet<u16>>,
    /// The ports at which it accepts other servers.
    pub(crate) listens: BTreeSet<u16>,
    pub(crate) members: Membership,
    pub(crate) distrusts: bool,
    /// Leaderships given up because of a slow disk.
    pub(crate) slow_disk_transfers: u64,
}
