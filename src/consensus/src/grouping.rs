//! Group commit: when the next batch goes to the log. At once, behind the append in flight, or a moment later, so that
//! clients that were just answered can join.
//!
//! Clients that wait for each answer write at the same time: when an append becomes durable, all of them write again.
//! Without a wait they would split into two or three groups that wait for each other's syncs. Together they wait for one.
//! Pure: time comes in, in microseconds. It knows neither log nor Raft.

use crate::types::Micros;

/// Appends in flight at which the next batch waits: one is synced, one is queued behind it.
pub const APPENDS_MAX: usize = 2;
/// Commands with which a group is large. Then there is no wait: while one append is synced the next one is prepared.
pub(crate) const LARGE: usize = 16;
/// Longest wait for a group, however slow the disk.
const WAIT_MAX: Micros = Micros(1_000);
/// Largest number of waits in vain that count. After `n` of them in a row, `2^n - 1` batches go without a wait.
const VAIN_WAITS_MAX: u32 = 6;
/// Weight of the past in the smoothed time of an append, as a power of two.
const SMOOTHING: u32 = 3;

/// The decision about the queued commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupDecision {
    /// They go to the log now.
    Go,
    /// They wait until an append is durable.
    Behind,
    /// They wait until that time, or until more commands come.
    Until(Micros),
}

/// Queued commands and appends in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Queued commands.
    pub(crate) writes: usize,
    /// Appends in flight.
    pub(crate) appends: usize,
}

/// The state that the decision depends on.
#[derive(Debug, Default)]
pub(crate) struct Grouping {
    /// Smoothed time from handing out an append until it is durable, times 2^SMOOTHING.
    append_us_scaled: u64,
    /// When an append last became durable.
    durable_at: Micros,
    /// Commands that were answered at that time, were in flight, or were queued.
    group: usize,
    /// The present batch has waited.
    waited: bool,
    /// Waits in vain in a row.
    vain_waits: u32,
    /// Batches that go at once before the next wait.
    without_wait: u32,
}

impl Grouping {
    /// An append became durable, so long after it was handed out. `group`: its commands, and those not durable yet.
    pub(crate) fn durable(&mut self, now: Micros, took: Micros, group: usize) {
        let before = self.append_us_scaled;
        self.append_us_scaled = if before == 0 { took.0 << SMOOTHING } else { before - (before >> SMOOTHING) + took.0 };
        (self.durable_at, self.group) = (now, group);
    }

    /// Decides about the queued commands, of which there is at least one.
    pub(crate) fn decide(&mut self, now: Micros, load: Load) -> GroupDecision {
        if load.appends > 0 {
            let ready = self.group >= LARGE && load.appends < APPENDS_MAX;
            return if ready { GroupDecision::Go } else { GroupDecision::Behind };
        }
        let until = self.durable_at.plus(self.wait());
        let all = load.writes >= self.group || self.group >= LARGE;
        if !all && self.without_wait == 0 && now < until {
            self.waited = true;
            return GroupDecision::Until(until);
        }
        if std::mem::take(&mut self.waited) {
            // A few missing commands are no reason to stop waiting.
            let worth_it = all || load.writes + self.group / 4 >= self.group;
            self.vain_waits = if worth_it { 0 } else { (self.vain_waits + 1).min(VAIN_WAITS_MAX) };
            self.without_wait = (1 << self.vain_waits) - 1;
        } else {
            self.without_wait = self.without_wait.saturating_sub(1);
        }
        GroupDecision::Go
    }

    /// Half of the time that a command loses if it comes too late and waits for one more append.
    fn wait(&self) -> Micros {
        Micros(self.append_us_scaled >> (SMOOTHING + 1)).min(WAIT_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNC: u64 = 200;
    const SYNC_US: usize = 200;

    /// Clients that write again `thinks[n]` microseconds after each answer, until a time: how many appends they share,
    /// and how many writes are done.
    fn run(thinks: &[u64], until: u64) -> (usize, usize) {
        let mut grouping = Grouping::default();
        let mut due: Vec<Option<u64>> = thinks.iter().enumerate().map(|(n, _)| Some(n as u64 * 7)).collect();
        let mut under_way: Vec<(u64, u64, Vec<usize>)> = Vec::new();
        let (mut appends, mut writes) = (0, 0);
        for now in 0..until {
            let waiting = |due: &[Option<u64>]| due.iter().flatten().filter(|at| **at <= now).count();
            if under_way.first().is_some_and(|(_, done, _)| *done == now) {
                let (since, _, answered) = under_way.remove(0);
                writes += answered.len();
                let others: usize = under_way.iter().map(|(_, _, clients)| clients.len()).sum();
                let group = answered.len() + others + waiting(&due);
                grouping.durable(Micros(now), Micros(now - since), group);
                answered.into_iter().for_each(|client| due[client] = Some(now + thinks[client]));
            }
            let load = Load { writes: waiting(&due), appends: under_way.len() };
            if load.writes > 0 && grouping.decide(Micros(now), load) == GroupDecision::Go {
                appends += 1;
                let group: Vec<usize> = (0..due.len()).filter(|at| due[*at].is_some_and(|at| at <= now)).collect();
                group.iter().for_each(|client| due[*client] = None);
                let begins = under_way.last().map_or(now, |(_, done, _)| *done);
                under_way.push((now, begins + SYNC, group));
            }
        }
        (appends, writes)
    }

    #[test]
    fn a_single_writer_does_not_wait() {
        let (appends, writes) = run(&[50], 100_000);
        assert_eq!(writes, 100_000 / (SYNC_US + 50));
        assert!(appends - writes <= 1);
    }

    #[test]
    fn clients_that_come_back_at_once_share_an_append() {
        for clients in 2..LARGE {
            let (appends, writes) = run(&vec![60; clients], 100_000);
            assert!(writes > 370 * clients, "{writes} writes of {clients} clients");
            assert!(writes >= (appends - 4) * clients, "{appends} appends for {writes} writes of {clients} clients");
        }
    }

    #[test]
    fn slow_clients_are_soon_not_waited_for() {
        let mut thinks = vec![60; 4];
        thinks.extend([5_000, 7_000, 11_000]);
        let (_, writes) = run(&thinks, 100_000);
        let quick = run(&[60; 4], 100_000).1;
        assert!(writes > quick * 9 / 10, "{writes} writes, {quick} without the slow ones");
        // No client writes again in time: as if there were no wait.
        let (appends, _) = run(&[700; 8], 100_000);
        assert!(appends >= 100_000 / (SYNC_US + 700), "{appends} appends");
    }

    #[test]
    fn a_large_group_keeps_the_log_busy() {
        let (appends, writes) = run(&[60; 64], 100_000);
        assert!(appends >= 100_000 / SYNC_US - 3, "{appends} appends");
        assert!(writes > appends * 20, "{writes} writes in {appends} appends");
    }

    #[test]
    fn the_wait_is_bounded() {
        let mut grouping = Grouping::default();
        grouping.durable(Micros(1_000), Micros(400), 5);
        let load = Load { writes: 2, appends: 0 };
        assert_eq!(grouping.decide(Micros(1_001), load), GroupDecision::Until(Micros(1_200)));
        assert_eq!(grouping.decide(Micros(1_200), load), GroupDecision::Go);
        assert_eq!(grouping.decide(Micros(1_201), Load { writes: 9, appends: 1 }), GroupDecision::Behind);
        grouping.durable(Micros(90_000), Micros(80_000), 5);
        let GroupDecision::Until(until) = run_out(&mut grouping, Micros(90_001)) else {
            panic!("a slow disk is worth a wait")
        };
        assert_eq!(until, Micros(91_000));
    }

    /// The decision after former waits in vain no longer count.
    fn run_out(grouping: &mut Grouping, now: Micros) -> GroupDecision {
        grouping.without_wait = 0;
        grouping.decide(now, Load { writes: 2, appends: 0 })
    }
}
