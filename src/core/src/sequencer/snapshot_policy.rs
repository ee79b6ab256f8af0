//! When the next snapshot is due: what a snapshot costs against what the changes since the last one cost in memory and
//! in replay.
//!
//! Part of the sequencer, on the consensus actor's core. It sees sizes and times and nothing else: no znodes, no files,
//! no clock.

use crate::ids::Millis;

/// Time without a write after which a snapshot of fewer changes is written, because the machine is idle. It frees the
/// memory of the changes.
const QUIET_MS: u64 = 10_000;
/// Divisor of the least size of changes then, or of changes that a start has replayed.
const QUIET_DIVISOR: usize = 8;
/// Windows of a calm time.
const CALM_WINDOWS: u64 = 4;
/// A window with less than this part of the busiest one's writing is a calm one.
const CALM_DIVISOR: u64 = 8;
/// Changes that exceed the share by this factor are written before the interval has passed. With a share of a half the
/// tree has then nearly tripled. So all snapshots of a growing tree together are less than twice the last.
const GROWN_FACTOR: usize = 8;
/// So much shorter is the interval then.
const GROWN_DIVISOR: u64 = 4;

/// Units of [`crate::cost`] that a byte of the log takes to evaluate where ordinary small writes are logged. Entries
/// that took more count for as many bytes: a restart spends the same on them again.
const UNITS_PER_BYTE: u64 = 16;

/// When the next snapshot is written: once the changes since the last one outweigh a share of it, or are many.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotPolicy {
    /// Changes smaller than this, in bytes, are never worth a snapshot.
    pub floor_bytes: usize,
    /// Per cent of the snapshot's size.
    pub share_of_snapshot_percent: usize,
    /// Transactions since the last snapshot.
    pub txns_max: u64,
    /// Bytes of log entries since the last snapshot, if they are also more than the share: they are what a restart
    /// replays.
    pub log_bytes_max: u64,
    /// No two snapshots within this time, whatever the size of the changes, unless writing has become calm.
    pub interval_min_ms: u64,
    /// Changes older than this are worth a snapshot, however few.
    pub interval_max_ms: u64,
    /// Writing is calm when it has been much less than before for this long. 0: it never is.
    pub calm_ms: u64,
}

impl SnapshotPolicy {
    /// A policy without any snapshot, except requested ones.
    pub const NEVER: SnapshotPolicy = SnapshotPolicy {
        floor_bytes: usize::MAX,
        share_of_snapshot_percent: 100,
        txns_max: u64::MAX,
        log_bytes_max: u64::MAX,
        interval_min_ms: 0,
        interval_max_ms: u64::MAX,
        calm_ms: 0,
    };
}

/// How much there is to write, in bytes: changes since the last snapshot, and that snapshot.
#[derive(Clone, Copy, Debug)]
pub(super) struct StateSizes {
    pub(super) delta: usize,
    pub(super) snapshot: usize,
}

/// While space is scarce, a snapshot is written that often if anything changed: deletes make it smaller.
pub(super) const SCARCE_SNAPSHOT_MS: u64 = 20_000;

/// The writes since the last snapshot.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SinceSnapshot {
    /// When the last snapshot was begun.
    at: Millis,
    txns: u64,
    log_bytes: u64,
    units: u64,
    /// When the last batch was applied.
    written_at: Millis,
    pace: Pace,
}

impl SinceSnapshot {
    pub(super) const fn age_ms(&self, now: Millis) -> u64 {
        now.since(self.at)
    }

    /// A batch was applied.
    pub(super) fn note(&mut self, policy: &SnapshotPolicy, now: Millis, txns: u64, log_bytes: u64) {
        self.txns += txns;
        self.log_bytes += log_bytes;
        self.written_at = now;
        self.pace.note(policy, now, log_bytes);
    }

    /// Evaluating it took so many units.
    pub(super) const fn spent(&mut self, units: u64) {
        self.units = self.units.saturating_add(units);
    }

    /// A snapshot of all this is begun.
    pub(super) fn begin(&mut self, now: Millis) {
        *self = Self { at: now, written_at: self.written_at, ..Self::default() };
    }

    /// Whether there is anything that the last snapshot does not have.
    pub(super) const fn is_some(&self) -> bool {
        self.txns > 0
    }

    /// Whether it is time for the next snapshot.
    pub(super) fn wants_snapshot(&self, policy: &SnapshotPolicy, now: Millis, sizes: StateSizes) -> bool {
        let age = now.since(self.at);
        let worth = worth(policy, sizes.snapshot);
        let quiet = now.since(self.written_at) >= QUIET_MS;
        let due = self.is_due(policy, sizes, if quiet { worth / QUIET_DIVISOR } else { worth });
        let interval = if due && self.pace.is_calm(policy, now) {
            0
        } else if sizes.delta / GROWN_FACTOR > worth || self.is_dear(policy, sizes) {
            policy.interval_min_ms / GROWN_DIVISOR
        } else {
            policy.interval_min_ms
        };
        age >= interval && (due || age >= policy.interval_max_ms)
    }

    /// Whether a start has replayed so much that the next one had better not.
    pub(super) fn wants_snapshot_of_replay(&self, policy: &SnapshotPolicy, sizes: StateSizes) -> bool {
        self.is_due(policy, sizes, worth(policy, sizes.snapshot) / QUIET_DIVISOR)
    }

    /// Two and a half times the work that makes a snapshot due: it does not wait for the whole of the interval. The
    /// fastest ordinary writing gets there just before that is over.
    fn is_dear(&self, policy: &SnapshotPolicy, sizes: StateSizes) -> bool {
        self.units / UNITS_PER_BYTE / 5 > log_max(policy, sizes.snapshot) / 2
    }

    fn is_due(&self, policy: &SnapshotPolicy, sizes: StateSizes, worth: usize) -> bool {
        let log = self.log_bytes.max(self.units / UNITS_PER_BYTE);
        sizes.delta > worth || self.txns >= policy.txns_max || log >= log_max(policy, sizes.snapshot)
    }
}

const fn share(policy: &SnapshotPolicy, snapshot: usize) -> usize {
    snapshot / 100 * policy.share_of_snapshot_percent
}

/// Bytes of log, or work for as many, that are worth a snapshot.
fn log_max(policy: &SnapshotPolicy, snapshot: usize) -> u64 {
    policy.log_bytes_max.max(share(policy, snapshot) as u64)
}

fn worth(policy: &SnapshotPolicy, snapshot: usize) -> usize {
    policy.floor_bytes.max(share(policy, snapshot))
}

/// How fast is written: bytes of the log in windows of a quarter of the calm time.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    /// The window of the last write, counted from the beginning of time, and its bytes.
    window: u64,
    bytes: u64,
    /// Bytes of the busiest window.
    peak: u64,
    /// The last window that was not much calmer than the busiest.
    busy: u64,
}

impl Pace {
    fn note(&mut self, policy: &SnapshotPolicy, now: Millis, bytes: u64) {
        let window = window_of(policy, now);
        if self.window != window {
            (self.window, self.bytes) = (window, 0);
        }
        self.bytes += bytes;
        self.peak = self.peak.max(self.bytes);
        if self.bytes > self.peak / CALM_DIVISOR {
            self.busy = window;
        }
    }

    /// A whole calm time lies behind the last busy window.
    fn is_calm(&self, policy: &SnapshotPolicy, now: Millis) -> bool {
        policy.calm_ms > 0 && window_of(policy, now).saturating_sub(self.busy) > CALM_WINDOWS
    }
}

fn window_of(policy: &SnapshotPolicy, now: Millis) -> u64 {
    now.0 / (policy.calm_ms / CALM_WINDOWS).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const MIB: usize = 1 << 20;

    fn policy() -> SnapshotPolicy {
        SnapshotPolicy {
            floor_bytes: 64 * MIB,
            share_of_snapshot_percent: 50,
            txns_max: u64::MAX,
            log_bytes_max: 128 << 20,
            interval_min_ms: 10_000,
            interval_max_ms: 3_600_000,
            calm_ms: 1000,
        }
    }

    /// Some seconds of writing, then others; each second grows delta and log by so many bytes. Looks at it every 100
    /// ms, as the server does, and takes a snapshot whenever one is wanted. Gives the times of the snapshots.
    fn snapshots(policy: &SnapshotPolicy, seconds: &[(u64, usize, u64)]) -> Vec<u64> {
        let (mut since, mut snapshots, mut sizes) =
            (SinceSnapshot::default(), Vec::new(), StateSizes { delta: 0, snapshot: 0 });
        let mut now = Millis(0);
        for (duration, delta, log) in seconds {
            for _ in 0..duration * 10 {
                if *log > 0 {
                    since.note(policy, now, 1, log / 10);
                    sizes.delta += delta / 10;
                }
                if since.is_some() && since.wants_snapshot(policy, now, sizes) {
                    since.begin(now);
                    snapshots.push(now.0);
                    // A znode in a snapshot takes less than half of its size in a delta.
                    sizes = StateSizes { delta: 0, snapshot: sizes.snapshot + sizes.delta * 2 / 5 };
                }
                now = now.plus(100);
            }
        }
        snapshots
    }

    #[test]
    fn a_burst_is_written_a_second_after_its_end() {
        let load = |seconds| (seconds, 100 * MIB, 60 << 20);
        assert_eq!(snapshots(&policy(), &[load(4), (30, 0, 0)]), [5000]);
        let trickle = (30, MIB, 1 << 20);
        assert_eq!(snapshots(&policy(), &[load(4), trickle]), [5000], "what trickles is as good as nothing");
        let later = SnapshotPolicy { calm_ms: 0, ..policy() };
        assert_eq!(snapshots(&later, &[load(4), (30, 0, 0)]), [10_000], "without it the interval is waited for");
    }

    #[test]
    fn a_steady_load_has_its_snapshots_at_the_interval_and_by_share_alone() {
        // setData of few znodes: the log grows, the changes do not.
        assert_eq!(snapshots(&policy(), &[(60, 0, 60 << 20)]), [10_000, 20_000, 30_000, 40_000, 50_000]);
        let slow = snapshots(&policy(), &[(600, MIB, 1 << 20)]);
        assert!(slow.windows(2).all(|pair| pair[1] - pair[0] >= 64_000), "{slow:?}");
        // Bursts below the share, each with a calm time behind it, wait until they are worth a snapshot together.
        let bursts: Vec<_> = (0..20).flat_map(|_| [(1, 10 * MIB, 10 << 20), (2, 0, 0)]).collect();
        assert_eq!(snapshots(&policy(), &bursts).len(), 3);
    }

    #[test]
    fn a_tree_that_grows_fast_does_not_wait_for_the_interval() {
        let times = snapshots(&policy(), &[(20, 150 * MIB, 90 << 20)]);
        assert_eq!(times, [3400, 9000, 19_000], "the second by its size, the third by the interval");
        assert_eq!(snapshots(&policy(), &[(9, 40 * MIB, 20 << 20)]), [] as [u64; 0], "what grows slowly does");
    }

    #[test]
    fn small_entries_that_are_dear_to_apply_have_a_snapshot_early() {
        let begun = |units_each_second: u64| {
            let (mut since, sizes) = (SinceSnapshot::default(), StateSizes { delta: 0, snapshot: 16 * MIB });
            let wanted = |second: &u64| {
                since.note(&policy(), Millis(second * 1000), 1, 1000);
                since.spent(units_each_second);
                since.wants_snapshot(&policy(), Millis(second * 1000), sizes)
            };
            (1..100).find(wanted)
        };
        assert_eq!(begun(1_000_000_000), Some(6), "a core that does nothing else");
        assert_eq!(begun(500_000_000), Some(10), "the fastest ordinary writing: the interval");
        assert_eq!(begun(40_000_000), Some(54));
        assert_eq!(begun(1_000_000), None);
    }

    #[test]
    fn what_was_replayed_is_worth_a_snapshot_at_an_eighth() {
        let mut since = SinceSnapshot::default();
        since.note(&policy(), Millis(0), 1, 1);
        for (delta, snapshot, expect) in
            [(0, 0, false), (8, 0, false), (9, 0, true), (9, 1600, false), (101, 1600, true)]
        {
            let sizes = StateSizes { delta: delta * MIB, snapshot: snapshot * MIB };
            assert_eq!(since.wants_snapshot_of_replay(&policy(), sizes), expect, "{sizes:?}");
        }
    }
}
