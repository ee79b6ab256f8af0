//! Whether writes that add data are refused, so that a disk that fills or memory that runs out stops no server.

use alloc::string::String;

/// Of the file system of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpaceFacts {
    /// Path of the directory.
    pub directory: String,
    /// Bytes left for unprivileged processes; `u64::MAX` where that is not known.
    pub free_bytes: u64,
    /// For the next log segments and snapshots there.
    pub needed_bytes: u64,
}

impl SpaceFacts {
    /// Whether the next log segments and snapshots have no room.
    pub const fn is_low(&self) -> bool {
        self.free_bytes < self.needed_bytes
    }
}

/// A scarce resource of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Scarcity {
    /// Less than half of the needed disk space was free, and three quarters are not free yet.
    Disk = 1,
    /// Memory reached `limits.memory_bytes_max`, and is not below nine tenths of it yet.
    Memory = 2,
}

impl Scarcity {
    /// All resources.
    pub const ALL: [Self; 2] = [Self::Disk, Self::Memory];

    /// For the log and for probes.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Disk => "a disk is nearly full; free space",
            Self::Memory => {
                "the memory of the server reached limits.memory_bytes_max; delete data or watches, close connections, or raise the limit"
            }
        }
    }
}

/// Anonymous memory of the process.
#[derive(Clone, Copy, Debug)]
pub struct MemoryUse {
    /// Bytes in use.
    pub bytes: u64,
    /// 0: there is no limit.
    pub bytes_max: u64,
}

/// Judges disks and memory. Refusal begins when less than half of the needed space is free, and ends at three quarters. It begins
/// at the limit of memory, and ends below nine tenths.
pub fn scarcity(present: Option<Scarcity>, spaces: &[SpaceFacts], memory: MemoryUse) -> Option<Scarcity> {
    let space_min = |needed: u64| if present == Some(Scarcity::Disk) { needed / 4 * 3 } else { needed / 2 };
    if spaces.iter().any(|space| space.free_bytes < space_min(space.needed_bytes)) {
        return Some(Scarcity::Disk);
    }
    let MemoryUse { bytes, bytes_max } = memory;
    let limit = if present == Some(Scarcity::Memory) { bytes_max / 10 * 9 } else { bytes_max };
    (bytes_max > 0 && bytes >= limit).then_some(Scarcity::Memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_begins_and_ends_at_different_amounts() {
        let judge = |present, free_bytes, bytes| {
            let space = SpaceFacts { directory: String::new(), free_bytes, needed_bytes: 400 };
            scarcity(present, &[SpaceFacts::default(), space], MemoryUse { bytes, bytes_max: 1000 })
        };
        let (disk, memory) = (Some(Scarcity::Disk), Some(Scarcity::Memory));
        assert_eq!([judge(None, 200, 0), judge(None, 199, 0)], [None, disk]);
        assert_eq!([judge(disk, 299, 0), judge(disk, 300, 0)], [disk, None]);
        assert_eq!([judge(None, 400, 999), judge(None, 400, 1000)], [None, memory]);
        assert_eq!([judge(memory, 400, 900), judge(memory, 400, 899)], [memory, None]);
        assert_eq!(judge(memory, 0, 1000), disk);
        assert_eq!(scarcity(None, &[], MemoryUse { bytes: u64::MAX, bytes_max: 0 }), None);
    }
}
