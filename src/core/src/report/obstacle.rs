//! Why a server opens no sessions, or takes no writes: one list for `srvr`, `mntr` and the log.
//!
//! The reasons stand in order: of several the first counts. It does not know how a reason is found.

/// A reason. `None` of it is [`Option::None`]: the server serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Obstacle {
    /// The process ends.
    Stopping = 1,
    /// A checksum of what is served is wrong, and a whole copy is awaited.
    Damaged = 2,
    /// The state differs from that of the other servers at the same zxid.
    Diverged = 3,
    /// The same, and no other server has a sound state and the entries of its log.
    CannotHeal = 4,
    /// Log or snapshot have no space.
    DiskFull = 5,
    /// The snapshot of another server is received or installed.
    SnapshotAwaited = 6,
    /// It holds no data, and waits for a leader or for the other founders.
    NoData = 7,
    /// The leader's log lacks entries that were committed here, or the other way round.
    LogContradicts = 8,
    /// It is not a member of the ensemble.
    NotListed = 9,
    /// No server leads, as far as this one knows.
    NoLeader = 10,
    /// A server leads, and there is no connection to it.
    LeaderNotConnected = 11,
    /// The leader is handing over.
    HandingOver = 12,
    /// Commands do not come back although there is a leader.
    NoProgress = 13,
}

impl Obstacle {
    pub const ALL: [Self; 13] = [
        Self::Stopping,
        Self::Damaged,
        Self::Diverged,
        Self::CannotHeal,
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
            Self::CannotHeal => "cannot-heal",
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
            Self::Damaged => "its data are damaged and a copy from another server is awaited",
            Self::Diverged => "its data differ from those of the other servers",
            Self::CannotHeal => {
                "its data differ from those of the other servers, and no server that runs has all entries and sound data"
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
            Self::NoProgress => "what it sends to the leader does not come back",
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
