//! When the next batch goes to the log: at once, behind the one under way, or a moment later, so that those just answered
//! can join in.
//!
//! Clients that wait for each answer come in a crowd: all whose writes were answered or waited when an append became
//! durable write again at once. Without patience they fall into two or three groups that wait for each other's
//! syncs; together they wait for one. Pure: time comes in, in microseconds; knows neither log nor Raft.

use crate::types::Micros;

/// Appends handed out and not yet durable before the next proposal waits: one being synced, one queued behind it.
pub const APPENDS_MAX: usize = 2;
/// Writers with which a crowd is large: while one part's append is synced, another's is got ready, and nobody is waited for.
pub(crate) const LARGE: usize = 16;
/// Longest wait for a crowd, however slow the disk.
const PATIENCE_MAX: Micros = Micros(1_000);
/// Groups that go at once after the crowd has failed to come so often in a row, as a power of two.
const DOUBTS_MAX: u32 = 6;
/// Weight of the past in the smoothed time of an append, as a power of two.
const SMOOTHING: u32 = 3;

/// What is to be done with the writes that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// They go to the log now.
    Go,
    /// An append becomes durable first.
    Behind,
    /// The time comes first, or more writes do.
    Until(Micros),
}

/// What there is to do and what is being done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Writes that wait for an append.
    pub(crate) writes: usize,
    /// Appends handed out and not yet durable.
    pub(crate) appends: usize,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Grouping {
    /// From an append's being handed out to its being durable: smoothed, times 2^SMOOTHING.
    append_us_scaled: u64,
    /// When an append last became durable.
    durable_at: Micros,
    /// Writes that were answered at that time, or were under way, or waited.
    crowd: usize,
    /// The present group has been waited for.
    waited: bool,
    /// How often in a row patience was in vain.
    doubts: u32,
    /// Groups that go at once before patience is tried again.
    hurried: u32,
}

impl Grouping {
    /// An append became durable, so long after it was handed out. `crowd`: the writes it held, and those not yet durable.
    pub(crate) fn durable(&mut self, now: Micros, took: Micros, crowd: usize) {
        let before = self.append_us_scaled;
        self.append_us_scaled = if before == 0 { took.0 << SMOOTHING } else { before - (before >> SMOOTHING) + took.0 };
        (self.durable_at, self.crowd) = (now, crowd);
    }

    /// What is to be done with the writes that wait, one at least.
    pub(crate) fn judge(&mut self, now: Micros, load: Load) -> Verdict {
        if load.appends > 0 {
            let ready = self.crowd >= LARGE && load.appends < APPENDS_MAX;
            return if ready { Verdict::Go } else { Verdict::Behind };
        }
        let until = self.durable_at.plus(self.patience());
        let all = load.writes >= self.crowd || self.crowd >= LARGE;
        if !all && self.hurried == 0 && now < until {
            self.waited = true;
            return Verdict::Until(until);
        }
        if std::mem::take(&mut self.waited) {
            // The odd one that comes late is no reason to give up the others.
            let worth_it = all || load.writes + self.crowd / 4 >= self.crowd;
            self.doubts = if worth_it { 0 } else { (self.doubts + 1).min(DOUBTS_MAX) };
            self.hurried = (1 << self.doubts) - 1;
        } else {
            self.hurried = self.hurried.saturating_sub(1);
        }
        Verdict::Go
    }

    /// Half of what those pay who come too late and wait for one more append.
    fn patience(&self) -> Micros {
        Micros(self.append_us_scaled >> (SMOOTHING + 1)).min(PATIENCE_MAX)
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
                let crowd = answered.len() + others + waiting(&due);
                grouping.durable(Micros(now), Micros(now - since), crowd);
                answered.into_iter().for_each(|client| due[client] = Some(now + thinks[client]));
            }
            let load = Load { writes: waiting(&due), appends: under_way.len() };
            if load.writes > 0 && grouping.judge(Micros(now), load) == Verdict::Go {
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
    fn a_lone_writer_waits_for_nobody() {
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
    fn who_does_not_come_back_is_soon_waited_for_no_more() {
        let mut thinks = vec![60; 4];
        thinks.extend([5_000, 7_000, 11_000]);
        let (_, writes) = run(&thinks, 100_000);
        let quick = run(&[60; 4], 100_000).1;
        assert!(writes > quick * 9 / 10, "{writes} writes, {quick} without the slow ones");
        // Nobody comes back in time: as if there were no patience.
        let (appends, _) = run(&[700; 8], 100_000);
        assert!(appends >= 100_000 / (SYNC_US + 700), "{appends} appends");
    }

    #[test]
    fn a_large_crowd_keeps_the_log_busy() {
        let (appends, writes) = run(&[60; 64], 100_000);
        assert!(appends >= 100_000 / SYNC_US - 3, "{appends} appends");
        assert!(writes > appends * 20, "{writes} writes in {appends} appends");
    }

    #[test]
    fn patience_has_an_end() {
        let mut grouping = Grouping::default();
        grouping.durable(Micros(1_000), Micros(400), 5);
        let load = Load { writes: 2, appends: 0 };
        assert_eq!(grouping.judge(Micros(1_001), load), Verdict::Until(Micros(1_200)));
        assert_eq!(grouping.judge(Micros(1_200), load), Verdict::Go);
        assert_eq!(grouping.judge(Micros(1_201), Load { writes: 9, appends: 1 }), Verdict::Behind);
        grouping.durable(Micros(90_000), Micros(80_000), 5);
        let Verdict::Until(until) = run_out(&mut grouping, Micros(90_001)) else {
            panic!("a slow disk is worth a wait")
        };
        assert_eq!(until, Micros(91_000));
    }

    /// The verdict once the doubts of before are forgotten.
    fn run_out(grouping: &mut Grouping, now: Micros) -> Verdict {
        grouping.hurried = 0;
        grouping.judge(now, Load { writes: 2, appends: 0 })
    }
}
