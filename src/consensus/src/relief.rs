//! When a leader whose disk stands still lets another lead, and when it does not although it could.
//!
//! A pure rule of times on the consensus actor's core. What counts is not how slow a disk is, but that another server has had
//! durable for long what this one still has not: where all disks are slow, nobody hands over. A server hands over once in a
//! long time, so that leadership does not go round among servers whose disks stall in turn.

use crate::limits::{RELIEF_LED_MIN, RELIEF_PAUSE};
use crate::types::Micros;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Relief {
    led_since: Option<Micros>,
    /// The append that a successor has durable and this server has not, and since when that is so.
    behind: Option<(u64, Micros)>,
    handed_over: Option<Micros>,
}

impl Relief {
    /// Whether a leader should hand over now. `behind`: the number of its oldest append under way, if the successor has it
    /// durable. To be asked each tick, leading or not.
    pub(crate) fn is_due(&mut self, now: Micros, patience: Micros, leading: bool, behind: Option<u64>) -> bool {
        if !leading {
            (self.led_since, self.behind) = (None, None);
            return false;
        }
        let led_since = *self.led_since.get_or_insert(now);
        if self.behind.map(|(number, _)| number) != behind {
            self.behind = behind.map(|number| (number, now));
        }
        let passed = |since: Micros, times: u64| now.since(since).0 >= patience.0.saturating_mul(times);
        self.behind.is_some_and(|(_, since)| passed(since, 1))
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
        relief.is_due(Micros(now), Micros(100), true, behind)
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
        assert!(!relief.is_due(Micros(again), Micros(100), false, Some(1)));
        assert!(!due(&mut relief, again + 200, Some(1)), "it leads anew");
    }
}
