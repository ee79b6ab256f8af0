//! Why a server opens no sessions, or takes no writes: one list for `srvr`, `mntr` and the log.
//!
//! The reasons stand in order: of several the first counts. It does not know how a reason is found.

/// A reason. `None` of it is [`Option::None`]: the server serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Obstacle {
    /// The process ends.
    Stopping = 1,
    /// A checksum of the served state is wrong, and a whole copy is awaited.
    Damaged = 2,
    /// The state differs from that of the other servers at the same zxid.
    Diverged = 3,
    /// Log or snapshot have no space.
    DiskFull = 4,
    /// The snapshot of another server is received or installed.
    SnapshotAwaited = 5,
    /// It holds no data, and waits for a leader or for the other founders.
    NoData = 6,
    /// The leader's log lacks entries that were committed here, or the other way round.
    LogContradicts = 7,
    /// It is not a member of the ensemble.
    NotListed = 8,
    /// No server leads, as far as this one knows.
    NoLeader = 9,
    /// A server leads, and there is no connection to it.
    LeaderNotConnected = 10,
    /// The leader is handing over.
    HandingOver = 11,
    /// Commands do not come back although there is a leader.
    NoProgress = 12,
}

impl Obstacle {
    /// All reasons, in their order.
    pub const ALL: [Self; 12] = [
        Self::Stopping,
        Self::Damaged,
        Self::Diverged,
        Self::DiskFull,
        Self::SnapshotAwaited,
        Self::NoData,
        Self::LogContradicts,
        Self::NotListed,
        Self::NoLeader,
        Self::LeaderNotConnected,
        Self::HandingOver,
        Self::NoProgress,
    ];

    /// As `mntr` has it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Stopping => "stopping",
            Self::Damaged => "damaged",
            Self::Diverged => "diverged",
            Self::DiskFull => "disk-full",
            Self::SnapshotAwaited => "snapshot-awaited",
            Self::NoData => "no-data",
            Self::LogContradicts => "log-contradicts",
            Self::NotListed => "not-listed",
            Self::NoLeader => "no-leader",
            Self::LeaderNotConnected => "leader-not-connected",
            Self::HandingOver => "handing-over",
            Self::NoProgress => "no-progress",
        }
    }

    /// As `srvr` and the log have it.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Stopping => "it is stopping",
            Self::Damaged => "its data are damaged, and it waits for another server's snapshot",
            Self::Diverged => {
                "its data differ from those of the other servers, and it waits for another server's snapshot"
            }
            Self::DiskFull => "its disk is full",
            Self::SnapshotAwaited => "it waits for a snapshot of the data from the leader",
            Self::NoData => "it has no data and waits for a leader or for the other servers to start",
            Self::LogContradicts => {
                "its log and the leader's contradict each other, one of them was given an old copy of its data"
            }
            Self::NotListed => "it is not a member of the ensemble",
            Self::NoLeader => "it knows no leader",
            Self::LeaderNotConnected => "it is not connected to the leader",
            Self::HandingOver => "the leader is handing over",
            Self::NoProgress => "the writes that it forwards to the leader are not applied here",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_place_and_words_of_its_own() {
        for (place, one) in Obstacle::ALL.iter().enumerate() {
            assert_eq!(usize::from(*one as u8), place + 1);
            let same = |other: &&Obstacle| other.word() == one.word() || other.sentence() == one.sentence();
            assert_eq!(Obstacle::ALL.iter().filter(same).count(), 1, "{one:?}");
            assert!(!one.word().contains([' ', '\t']));
        }
    }
}
