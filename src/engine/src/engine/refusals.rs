//! Log lines about commands that a quota or a limit refused.

use corral_core::ids::Millis;
use corral_core::quota::usage::QuotaExceeded;
use corral_core::sequencer::{Oversized, Sequencer};

/// Logs refusals since the last call, as often as the sequencer reports them.
pub(super) fn log_refusals(sequencer: &mut Sequencer, now: Millis) {
    if let Some(report) = sequencer.quota_report(now) {
        let QuotaExceeded { path, of, usage, limit, hard, refused } = report.last;
        tracing::warn!(path = &*path, ?of, usage, limit, hard, refused, writes = report.writes, "quota exceeded");
    }
    if let Some(Oversized { session, bytes, bytes_max }) = sequencer.take_oversized() {
        tracing::warn!(%session, bytes, bytes_max, "a command that exceeds the maximum log entry size was refused");
    }
}
