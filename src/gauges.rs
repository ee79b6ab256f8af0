//! Counters of plain threads, for reports: shared numbers, each written by one thread, none on the path of a request.

pub(crate) mod latencies;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use corral_core::ids::{ServerId, Zxid};
use corral_core::report::{LatencyFacts, Mode, Obstacle, Quorum, Scarcity, ScrubFacts, Timing};
use corral_core::sequencer::ReconfigStep;
use corral_core::servers::Servers;
use corral_core::sizes::Sizes;
use corral_engine::{Status, StoredServers};

use self::latencies::Latencies;

/// Counters of the process.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    /// Stalls of a core that were long enough for the watchdog to see them.
    pub(crate) freezes: Occurrences,
    /// Place of the present mode in `Mode::ALL`.
    mode: AtomicU8,
    /// Since when this server looks for a leader, and since when it leads.
    role_since: Mutex<RoleSince>,
    elections: Stopwatch,
    looking_count: AtomicU64,
    /// Place in `ReconfigStep::ALL`.
    reconfig: AtomicU8,
    /// Of an ensemble: the voters, and the members that keep up with this leader. Written once a tick. No thread holds
    /// it for long.
    quorum: Mutex<Option<Quorum>>,
    /// Id of the leader; 0: none is known.
    leader: AtomicU64,
    /// Of the log entries that this server proposed.
    proposals: Mutex<Sizes>,
    /// Syncs of the log that took longer than `log.sync_warning_ms`.
    pub(crate) slow_syncs: Occurrences,
    /// Log entries that are committed and not applied here.
    lag: AtomicU64,
    /// See [`Gauges::clock_ahead_ms`].
    clock_ahead_ms: AtomicI64,
    /// Number of a [`Scarcity`]; 0: nothing is scarce.
    scarcity: AtomicU8,
    /// Whether this leader refuses writes that add data, and how many it refused.
    growth_refusing: AtomicBool,
    growth_refused: AtomicU64,
    /// Of the consensus actor: the tree's changes since its snapshot, and log entries in memory.
    delta_bytes: AtomicU64,
    log_bytes: AtomicU64,
    /// Times that this server let another lead because its log was stalled.
    pub(crate) slow_disk_transfers: AtomicU64,
    pub(crate) log_entries_kept: AtomicU64,
    /// There is no space for the log or for another server's snapshot: entries of the leader are not accepted.
    pub(crate) stalled: AtomicBool,
    /// The obstacle that the consensus actor found. 0 while it serves.
    obstacle: AtomicU8,
    /// The fault of the data here that the comparison of digests or the scrubber found.
    withheld: AtomicU8,
    /// Place in the log of the snapshot that is served; 0: none that is a file.
    pub(crate) served_snapshot: AtomicU64,
    /// When the last scrub was complete, in seconds since 1970; 0: not yet.
    pub(crate) scrubbed_at_s: AtomicU64,
    /// Read by scrubs.
    pub(crate) scrub_bytes: AtomicU64,
    /// Snapshot files and logs that were found damaged.
    pub(crate) scrub_damaged: AtomicU64,
    /// Differences between digests of the tree, since the start.
    pub(crate) digest_mismatches: AtomicU64,
    /// For `hash`; written when there is a new one.
    digests: Mutex<Vec<(Zxid, u64)>>,
    /// Of an ensemble: the list of servers. For `conf`.
    members: Mutex<Option<StoredServers>>,
    /// Where clients connect.
    pub(crate) client_port: AtomicU16,
    /// TLS handshakes of clients that failed.
    pub(crate) handshakes_failed: AtomicU64,
    /// Where clients of TLS connect; 0: there is no such port.
    pub(crate) secure_port: AtomicU16,
    /// Connections closed on accept.
    pub(crate) refused: AtomicU64,
    /// Syncs of the log.
    pub(crate) syncs: Stopwatch,
    /// Snapshots written.
    pub(crate) snapshots: Stopwatch,
    /// Of each shard, and of the consensus actor.
    latencies: Mutex<Vec<Arc<Latencies>>>,
}

impl Gauges {
    /// Histograms for a thread.
    pub(crate) fn add_latencies(&self) -> Arc<Latencies> {
        let new = Arc::new(Latencies::default());
        self.latencies.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&new));
        new
    }

    /// The times of all threads.
    pub(crate) fn latencies(&self) -> LatencyFacts {
        latencies::sum(&self.latencies.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The mode of this server.
    pub(crate) fn mode(&self) -> Mode {
        let place = usize::from(self.mode.load(Ordering::Relaxed));
        Mode::ALL.get(place).copied().unwrap_or_default()
    }

    /// The status of this server, from the engine.
    pub(crate) fn show(&self, status: &Status) {
        self.set_mode(status.mode);
        self.set_reconfig(status.reconfig);
        self.stalled.store(status.stalled, Ordering::Relaxed);
        self.slow_disk_transfers.store(status.slow_disk_transfers, Ordering::Relaxed);
        self.log_entries_kept.store(status.log_entries_kept, Ordering::Relaxed);
        self.served_snapshot.store(status.served_snapshot, Ordering::Relaxed);
        self.lag.store(status.lag, Ordering::Relaxed);
        self.clock_ahead_ms.store(status.clock_ahead_ms.unwrap_or(0), Ordering::Relaxed);
        self.growth_refusing.store(status.growth_refusing, Ordering::Relaxed);
        self.growth_refused.store(status.growth_refused, Ordering::Relaxed);
        self.delta_bytes.store(status.delta_bytes, Ordering::Relaxed);
        self.log_bytes.store(status.log_bytes, Ordering::Relaxed);
        self.leader.store(status.leader.map_or(0, |leader| leader.wide()), Ordering::Relaxed);
        *self.proposals.lock().unwrap_or_else(PoisonError::into_inner) = status.proposals;
        let number = |obstacle: Option<Obstacle>| obstacle.map_or(0, |one| one as u8);
        self.obstacle.store(number(status.found), Ordering::Relaxed);
        self.withheld.store(number(status.withheld), Ordering::Relaxed);
        if let Some(quorum) = status.quorum {
            *self.quorum.lock().unwrap_or_else(PoisonError::into_inner) = Some(quorum);
        }
    }

    fn set_mode(&self, mode: Mode) {
        self.note_role(mode);
        let place = Mode::ALL.iter().position(|one| *one == mode).unwrap_or_default();
        self.mode.store(u8::try_from(place).unwrap_or_default(), Ordering::Relaxed);
    }

    fn note_role(&self, mode: Mode) {
        let mut since = self.role_since.lock().unwrap_or_else(PoisonError::into_inner);
        match mode {
            Mode::Looking | Mode::ReadOnly => {
                if since.looks.is_none() {
                    self.looking_count.fetch_add(1, Ordering::Relaxed);
                }
                since.looks.get_or_insert_with(Instant::now);
                since.leads = None;
            }
            Mode::Leader | Mode::Follower | Mode::Observer | Mode::Standalone => {
                if let Some(looked) = since.looks.take() {
                    self.elections.note(looked.elapsed());
                }
                since.leads = since.leads.or_else(|| Some(Instant::now())).filter(|_| mode == Mode::Leader);
            }
        }
    }

    /// Searches for a leader: their times and number. Then the milliseconds since this server began to lead.
    pub(crate) fn elections(&self) -> (Timing, u64, Option<u64>) {
        let leads = self.role_since.lock().unwrap_or_else(PoisonError::into_inner).leads;
        let led_ms = leads.map(|since| u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX));
        (self.elections.timing(), self.looking_count.load(Ordering::Relaxed), led_ms)
    }

    /// Why it opens no sessions or takes no writes.
    pub(crate) fn obstacle(&self) -> Option<Obstacle> {
        let of = |number: &AtomicU8| Obstacle::ALL.into_iter().find(|one| *one as u8 == number.load(Ordering::Relaxed));
        [of(&self.withheld), of(&self.obstacle)].into_iter().flatten().min()
    }

    /// Bytes of the consensus actor: the tree's changes since its snapshot, then log entries in memory.
    pub(crate) fn consensus_bytes(&self) -> (u64, u64) {
        (self.delta_bytes.load(Ordering::Relaxed), self.log_bytes.load(Ordering::Relaxed))
    }

    /// How far a membership change is.
    pub(crate) fn reconfig(&self) -> ReconfigStep {
        let place = usize::from(self.reconfig.load(Ordering::Relaxed));
        ReconfigStep::ALL.get(place).copied().unwrap_or_default()
    }

    fn set_reconfig(&self, step: ReconfigStep) {
        let place = ReconfigStep::ALL.iter().position(|one| *one == step).unwrap_or_default();
        self.reconfig.store(u8::try_from(place).unwrap_or_default(), Ordering::Relaxed);
    }

    /// The digests of the tree, and how often one differed since the last time.
    pub(crate) fn show_digests(&self, mismatches: u64, log: &VecDeque<(Zxid, u64)>) {
        self.digest_mismatches.fetch_add(mismatches, Ordering::Relaxed);
        let mut shown = self.digests.lock().unwrap_or_else(PoisonError::into_inner);
        if shown.last() != log.back() {
            shown.clear();
            shown.extend(log);
        }
    }

    /// The last digests that were logged, oldest first.
    pub(crate) fn digests(&self) -> Vec<(Zxid, u64)> {
        self.digests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A member of an ensemble starts: it knows this list of servers and no leader.
    pub(crate) fn start_as_member(&self, list: StoredServers) {
        self.set_mode(Mode::Looking);
        self.show_members(list);
    }

    /// The list of servers, from the configuration or newer.
    pub(crate) fn show_members(&self, list: StoredServers) {
        *self.members.lock().unwrap_or_else(PoisonError::into_inner) = Some(list);
    }

    /// The list of servers and its version; `None` on a standalone server.
    pub(crate) fn members(&self) -> Option<(Servers, u64)> {
        let list = self.members.lock().unwrap_or_else(PoisonError::into_inner).clone();
        list.map(|StoredServers { servers, version }| (servers, version))
    }

    /// Id of the leader of the ensemble, if this server knows one.
    pub(crate) fn leader(&self) -> Option<ServerId> {
        ServerId::from_wide(self.leader.load(Ordering::Relaxed))
    }

    /// Milliseconds by which the wall clock is ahead of the leader's; 0 while that is not known.
    pub(crate) fn clock_ahead_ms(&self) -> i64 {
        self.clock_ahead_ms.load(Ordering::Relaxed)
    }

    /// Log entries that are committed and not applied here, as of the last tick.
    pub(crate) fn lag(&self) -> u64 {
        self.lag.load(Ordering::Relaxed)
    }

    /// Whether disk space or memory is scarce.
    pub(crate) fn scarcity(&self) -> Option<Scarcity> {
        Scarcity::ALL.into_iter().find(|one| *one as u8 == self.scarcity.load(Ordering::Relaxed))
    }

    pub(crate) fn set_scarcity(&self, scarcity: Option<Scarcity>) {
        self.scarcity.store(scarcity.map_or(0, |one| one as u8), Ordering::Relaxed);
    }

    /// Whether this leader refuses writes that add data, and how many it refused, as of the last tick.
    pub(crate) fn growth(&self) -> (bool, u64) {
        (self.growth_refusing.load(Ordering::Relaxed), self.growth_refused.load(Ordering::Relaxed))
    }

    /// Sizes of the log entries that this server proposed.
    pub(crate) fn proposals(&self) -> Sizes {
        *self.proposals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Findings of scrubs.
    pub(crate) fn scrub(&self) -> ScrubFacts {
        ScrubFacts {
            completed_s: self.scrubbed_at_s.load(Ordering::Relaxed),
            bytes: self.scrub_bytes.load(Ordering::Relaxed),
            damaged: self.scrub_damaged.load(Ordering::Relaxed),
            heals: self.withheld.load(Ordering::Relaxed) != 0,
        }
    }

    /// The voters, and the members that keep up. `None` of a standalone server.
    pub(crate) fn quorum(&self) -> Option<Quorum> {
        *self.quorum.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `srst`: all but the freezes and the hand-overs, which must stay visible.
    pub(crate) fn reset(&self) {
        self.refused.store(0, Ordering::Relaxed);
        self.slow_syncs.count.store(0, Ordering::Relaxed);
        self.syncs.reset();
        self.snapshots.reset();
        self.elections.reset();
        self.latencies.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|one| one.reset());
    }
}

/// See [`Gauges`].
#[derive(Debug, Default)]
struct RoleSince {
    looks: Option<Instant>,
    leads: Option<Instant>,
}

/// How often something happened, and when it last did.
#[derive(Debug, Default)]
pub(crate) struct Occurrences {
    count: AtomicU64,
    /// Unix seconds; 0: never.
    last_s: AtomicU64,
}

impl Occurrences {
    pub(crate) fn note(&self) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.last_s.store(now.as_secs(), Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// When it last happened, in Unix seconds; 0: never.
    pub(crate) fn last_s(&self) -> u64 {
        self.last_s.load(Ordering::Relaxed)
    }
}

/// How long something took, each time; written by one thread.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    count: AtomicU64,
    us_sum: AtomicU64,
    us_min: AtomicU64,
    us_max: AtomicU64,
}

impl Default for Stopwatch {
    fn default() -> Stopwatch {
        let zero = || AtomicU64::new(0);
        Stopwatch { count: zero(), us_sum: zero(), us_min: AtomicU64::new(u64::MAX), us_max: zero() }
    }
}

impl Stopwatch {
    pub(crate) fn note(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.us_sum.fetch_add(us, Ordering::Relaxed);
        self.us_min.fetch_min(us, Ordering::Relaxed);
        self.us_max.fetch_max(us, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn timing(&self) -> Timing {
        let load = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let us_min = Some(load(&self.us_min)).filter(|us| *us != u64::MAX).unwrap_or(0);
        Timing { count: load(&self.count), us_sum: load(&self.us_sum), us_min, us_max: load(&self.us_max) }
    }

    fn reset(&self) {
        self.us_min.store(u64::MAX, Ordering::Relaxed);
        for number in [&self.count, &self.us_sum, &self.us_max] {
            number.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopwatch_sums_up_and_forgets() {
        let watch = Stopwatch::default();
        assert_eq!(watch.timing(), Timing::default());
        for us in [300, 20, 100] {
            watch.note(Duration::from_micros(us));
        }
        assert_eq!(watch.timing(), Timing { count: 3, us_sum: 420, us_min: 20, us_max: 300 });
        watch.reset();
        assert_eq!(watch.timing(), Timing::default());
    }
}
