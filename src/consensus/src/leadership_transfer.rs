//! When a leader transfers leadership because its disk is slow or full.
//!
//! A pure rule of times. The lag behind another server counts, not the slowness of the disk. An append has been durable
//! there for long, and several times as long as it took there. So no leader transfers when all disks are slow. A server
//! transfers once in a long time, so that leadership does not circulate among servers with disks that stall in turn. A
//! leader without space in its log transfers without these waits.

use crate::limits::{TRANSFER_LED_MIN, TRANSFER_PAUSE, TRANSFER_SLOWER};
use crate::types::Micros;

/// The state that the rule depends on.
#[derive(Debug, Default)]
pub(crate) struct TransferPolicy {
    led_since: Option<Micros>,
    /// The append that a successor has durable and this server has not, and since when.
    behind: Option<(Behind, Micros)>,
    handed_over: Option<Micros>,
}

/// The state of the disk of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogDisk {
    /// It writes, perhaps slowly.
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

impl TransferPolicy {
    /// Whether a leader should transfer leadership now. `behind`: its oldest append in flight, if another voter has it
    /// durable. Called every tick, also while this server does not lead.
    pub(crate) fn is_due(
        &mut self,
        now: Micros,
        timeout: Micros,
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
        let passed = |since: Micros, times: u64| now.since(since).0 >= timeout.0.saturating_mul(times);
        let is_slower = |append: Behind, since: Micros| {
            let took = since.since(append.begun).0;
            now.since(since).0 >= took.saturating_mul(TRANSFER_SLOWER)
        };
        if disk == LogDisk::Full {
            return self.behind.is_some_and(|(_, since)| passed(since, 1));
        }
        self.behind.is_some_and(|(append, since)| passed(since, 1) && is_slower(append, since))
            && passed(led_since, TRANSFER_LED_MIN)
            && self.handed_over.is_none_or(|at| passed(at, TRANSFER_PAUSE))
    }

    pub(crate) fn handed_over(&mut self, now: Micros) {
        self.handed_over = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(transfer: &mut TransferPolicy, now: u64, behind: Option<u64>) -> bool {
        due_on(transfer, now, behind, LogDisk::Writes)
    }

    fn due_on(transfer: &mut TransferPolicy, now: u64, behind: Option<u64>, disk: LogDisk) -> bool {
        // The others have it at once.
        let begun = Micros(u64::MAX);
        transfer.is_due(Micros(now), Micros(100), true, behind.map(|number| Behind { number, begun }), disk)
    }

    #[test]
    fn a_full_disk_hands_over_soon_and_as_often_as_it_is_full() {
        let mut transfer = TransferPolicy::default();
        assert!(!due_on(&mut transfer, 10, None, LogDisk::Full), "the others have no space, too");
        for now in [20, 1000] {
            assert!(!due_on(&mut transfer, now, Some(now), LogDisk::Full));
            assert!(!due_on(&mut transfer, now + 99, Some(now), LogDisk::Full));
            assert!(due_on(&mut transfer, now + 100, Some(now), LogDisk::Full));
            transfer.handed_over(Micros(now + 100));
        }
    }

    #[test]
    fn no_transfer_when_all_disks_are_slow() {
        let mut transfer = TransferPolicy::default();
        assert!(!due(&mut transfer, 0, None));
        let behind = Some(Behind { number: 7, begun: Micros(5000) });
        let mut due = |now: u64| transfer.is_due(Micros(now), Micros(100), true, behind, LogDisk::Writes);
        assert!(!due(5500), "the other took 500");
        assert!(!due(5500 + 500 * TRANSFER_SLOWER - 1));
        assert!(due(5500 + 500 * TRANSFER_SLOWER));
    }

    #[test]
    fn a_leader_hands_over_when_it_stays_behind() {
        let mut transfer = TransferPolicy::default();
        assert!(!due(&mut transfer, 0, None));
        assert!(!due(&mut transfer, 5000, Some(7)), "just now");
        assert!(!due(&mut transfer, 5099, Some(7)));
        assert!(due(&mut transfer, 5100, Some(7)));
    }

    #[test]
    fn no_transfer_while_appends_become_durable() {
        let mut transfer = TransferPolicy::default();
        assert!(!due(&mut transfer, 0, None));
        for number in 0..100 {
            assert!(!due(&mut transfer, 5000 + number * 99, Some(number)), "another append each time");
        }
        assert!(!due(&mut transfer, 20_000, None), "others are slow, too");
    }

    #[test]
    fn no_transfer_soon_or_often() {
        let mut transfer = TransferPolicy::default();
        assert!(!due(&mut transfer, 0, Some(1)));
        assert!(!due(&mut transfer, 100 * TRANSFER_LED_MIN - 1, Some(1)), "it has just begun to lead");
        assert!(due(&mut transfer, 100 * TRANSFER_LED_MIN, Some(1)));
        transfer.handed_over(Micros(2000));
        let again = 2000 + 100 * TRANSFER_PAUSE;
        assert!(!due(&mut transfer, again - 1, Some(1)));
        assert!(due(&mut transfer, again, Some(1)));
        assert!(!transfer.is_due(Micros(again), Micros(100), false, None, LogDisk::Writes));
        assert!(!due(&mut transfer, again + 200, Some(1)), "it leads anew");
    }
}
