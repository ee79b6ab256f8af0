//! Numbers, each a type of its own, so that two of them never swap places in a call.

use core::fmt;

/// Identity of one server of the ensemble, 1 to 255. 0 names no server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub u8);

impl ServerId {
    /// From a number of 64 bits, as the Raft library, the log and peer messages have it. `None` of 0, and of numbers beyond
    /// 255.
    #[must_use]
    pub fn from_wide(id: u64) -> Option<ServerId> {
        u8::try_from(id).ok().filter(|id| *id != 0).map(ServerId)
    }

    /// As a number of 64 bits.
    #[must_use]
    pub const fn wide(self) -> u64 {
        self.0 as u64
    }
}

/// Raft term; 0 only before the first election.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub u64);

/// Raft log index; the first entry has index 1, 0 means "before the first entry".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Index(pub u64);

/// Microseconds on the driver's monotonic clock: for durations, never for replicated values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Micros(pub u64);

impl Micros {
    /// `time` later, saturating.
    #[must_use]
    pub const fn plus(self, time: Micros) -> Micros {
        Micros(self.0.saturating_add(time.0))
    }

    /// The time since `earlier`, 0 if that is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Micros) -> Micros {
        Micros(self.0.saturating_sub(earlier.0))
    }
}

macro_rules! display_inner {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}
display_inner!(ServerId, Term, Index);
