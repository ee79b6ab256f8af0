//! When a leader whose disk stands still lets another lead, and when it does not although it could.
//!
//! A pure rule of times on the consensus actor's core. What counts is not how slow a disk is, but that another server has had
//! durable for long what this one still has not, and for several times as long as it took that one: where all disks are slow,
//! nobody hands over. A server hands over once in a long time, so that leadership does not go round among servers whose
//! disks stall in turn. Where the log has no space there is nothing to weigh: nobody knows when there will be.

use crate::limits::{RELIEF_LED_MIN, RELIEF_PAUSE, RELIEF_SLOWER};
use crate::types::Micros;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Relief {
    led_since: Option<Micros>,
    /// The append that a successor has durable and this server has not, and since when that is so.
    behind: Option<(Behind, Micros)>,
    handed_over: Option<Micros>,
}

/// What is known of the disk under the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogDisk {
    /// It takes what it is given, sooner or later.
    Writes,
    /// It has no space for the next append.
    Full,
}

/// An append that another server has durable, and this one has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Behind {
    pub(crate) number: u64,
    /// When this server began to write it.
    pub(crate) begun: Micros,
}

impl Relief {
    /// Whether a leader should hand over now. `behind`: its oldest append under way, if another voter has it durable. To be
    /// asked each tick, leading or not.
    pub(crate) fn is_due(
        &mut self,
        now: Micros,
        patience: Micros,
        leading: bool,
        behind: Option<Behind>,
        disk: LogDisk,
    ) -> bool {
        if !leading {
            (self.led_since, self.behind) = (None, None);
            return false;
        }
        let led_since = *self.led_since.get_or_insert(now);
        if self.behind.map(|(append, _)| append) != behind {
            self.behind = behind.map(|append| (append, now));
        }
        let passed = |since: Micros, times: u64| now.since(since).0 >= patience.0.saturating_mul(times);
        let is_slower = |append: Behind, since: Micros| {
            let took = since.since(append.begun).0;
            now.since(since).0 >= took.saturating_mul(RELIEF_SLOWER)
        };
        if disk == LogDisk::Full {
            return self.behind.is_some_and(|(_, since)| passed(since, 1));
        }
        self.behind.is_some_and(|(append, since)| passed(since, 1) && is_slower(append, since))
            && passed(led_since, RELIEF_LED_MIN)
            && self.handed_over.is_none_or(|at| passed(at, RELIEF_PAUSE))
    }

    pub(crate) fn handed_over(&mut self, now: Micros) {
        self.handed_over = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(relief: &mut Relief, now: u64, behind: Option<u64>) -> bool {
        due_on(relief, now, behind, LogDisk::Writes)
    }

    fn due_on(relief: &mut Relief, now: u64, behind: Option<u64>, disk: LogDisk) -> bool {
        // The others have it at once.
        let begun = Micros(u64::MAX);
        relief.is_due(Micros(now), Micros(100), true, behind.map(|number| Behind { number, begun }), disk)
    }

    #[test]
    fn a_full_disk_hands_over_soon_and_as_often_as_it_is_full() {
        let mut relief = Relief::default();
        assert!(!due_on(&mut relief, 10, None, LogDisk::Full), "the others have no space, too");
        for now in [20, 1000] {
            assert!(!due_on(&mut relief, now, Some(now), LogDisk::Full));
            assert!(!due_on(&mut relief, now + 99, Some(now), LogDisk::Full));
            assert!(due_on(&mut relief, now + 100, Some(now), LogDisk::Full));
            relief.handed_over(Micros(now + 100));
        }
    }

    #[test]
    fn where_all_disks_are_slow_being_last_is_no_reason() {
        let mut relief = Relief::default();
        assert!(!due(&mut relief, 0, None));
        let behind = Some(Behind { number: 7, begun: Micros(5000) });
        let mut due = |now: u64| relief.is_due(Micros(now), Micros(100), true, behind, LogDisk::Writes);
        assert!(!due(5500), "the other took 500");
        assert!(!due(5500 + 500 * RELIEF_SLOWER - 1));
        assert!(due(5500 + 500 * RELIEF_SLOWER));
    }

    #[test]
    fn a_leader_hands_over_when_it_stays_behind() {
        let mut relief = Relief::default();
        assert!(!due(&mut relief, 0, None));
        assert!(!due(&mut relief, 5000, Some(7)), "just now");
        assert!(!due(&mut relief, 5099, Some(7)));
        assert!(due(&mut relief, 5100, Some(7)));
    }

    #[test]
    fn a_slow_disk_that_gets_on_is_no_reason() {
        let mut relief = Relief::default();
        assert!(!due(&mut relief, 0, None));
        for number in 0..100 {
            assert!(!due(&mut relief, 5000 + number * 99, Some(number)), "another append each time");
        }
        assert!(!due(&mut relief, 20_000, None), "others are slow, too");
    }

    #[test]
    fn nobody_hands_over_soon_or_often() {
        let mut relief = Relief::default();
        assert!(!due(&mut relief, 0, Some(1)));
        assert!(!due(&mut relief, 100 * RELIEF_LED_MIN - 1, Some(1)), "it has just begun to lead");
        assert!(due(&mut relief, 100 * RELIEF_LED_MIN, Some(1)));
        relief.handed_over(Micros(2000));
        let again = 2000 + 100 * RELIEF_PAUSE;
        assert!(!due(&mut relief, again - 1, Some(1)));
        assert!(due(&mut relief, again, Some(1)));
        assert!(!relief.is_due(Micros(again), Micros(100), false, None, LogDisk::Writes));
        assert!(!due(&mut relief, again + 200, Some(1)), "it leads anew");
    }
}
