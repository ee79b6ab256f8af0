//! Measures how long a file system takes to sync a small write, as the log makes them.
//!
//! It blocks. The file has no name, so nothing is left behind, however the process ends.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open};

/// Writes that are measured.
const ROUNDS: u32 = 64;
/// Bytes of each.
const WRITE_BYTES: usize = 4096;

/// Times of a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Latency {
    pub(super) p50: Duration,
    pub(super) p99: Duration,
    pub(super) max: Duration,
}

/// Writes and syncs in this directory.
///
/// # Errors
/// If the file system offers no file without a name, or a write or sync fails.
pub(super) fn measure(directory: &Path) -> io::Result<Latency> {
    let unnamed = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = File::from(open(directory, unnamed, Mode::RUSR | Mode::WUSR)?);
    let page = [0x5a; WRITE_BYTES];
    let write = |round: u32| file.write_all_at(&page, u64::from(round) * WRITE_BYTES as u64);
    // Segments of the log are allocated ahead, too.
    (0..ROUNDS).try_for_each(write)?;
    file.sync_all()?;
    let round = |round| {
        let started = Instant::now();
        write(round)?;
        file.sync_data()?;
        Ok(started.elapsed())
    };
    (0..ROUNDS).map(round).collect::<io::Result<Vec<Duration>>>().map(of)
}

/// Quantiles by the nearest rank. Zero without times.
fn of(mut times: Vec<Duration>) -> Latency {
    times.sort_unstable();
    let at = |percent: usize| {
        let rank = (times.len() * percent).div_ceil(100);
        times.get(rank.saturating_sub(1)).copied().unwrap_or_default()
    };
    Latency { p50: at(50), p99: at(99), max: at(100) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_nearest_rank() {
        let ms = Duration::from_millis;
        let latency = of((1..=200).rev().map(ms).collect());
        assert_eq!(latency, Latency { p50: ms(100), p99: ms(198), max: ms(200) });
        assert_eq!(of(Vec::new()).max, Duration::ZERO);
    }

    #[test]
    fn nothing_is_left_behind() {
        let directory = tempfile::tempdir().expect("a directory can be made");
        match measure(directory.path()) {
            Ok(latency) => assert!(latency.p50 <= latency.p99 && latency.p99 <= latency.max),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{error}"),
        }
        assert_eq!(std::fs::read_dir(directory.path()).expect("it is there").count(), 0);
    }
}
