//! What a published figure must be accompanied by: the machine, the command line, the time.
//!
//! Read from /proc by the coordinating thread at the end of a run. Knows nothing of the load.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Where a run took place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Model name of the first CPU.
    pub cpu: String,
    /// Online CPUs.
    pub cpus: usize,
    /// Kernel release.
    pub kernel: String,
    /// TCP congestion control of new sockets; one that paces (bbr) makes every send dearer.
    pub congestion: String,
}

impl Machine {
    /// This machine.
    #[must_use]
    pub fn here() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let line = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        Self {
            cpu: model.map_or("unknown", |(_, name)| name.trim()).to_owned(),
            cpus: cpuinfo.lines().filter(|line| line.starts_with("processor")).count(),
            kernel: line("/proc/sys/kernel/osrelease"),
            congestion: line("/proc/sys/net/ipv4/tcp_congestion_control"),
        }
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {} CPUs, kernel {}, TCP {}", self.cpu, self.cpus, self.kernel, self.congestion)
    }
}

/// Seconds since 1970.
pub(crate) fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// The words of this process's command line.
pub(crate) fn command_line() -> String {
    command(std::env::args())
}

/// The words of a command line; the program without its directory, which should not be in published figures.
fn command(words: impl Iterator<Item = String>) -> String {
    let mut words = words.map(|word| if word.contains(' ') { format!("'{word}'") } else { word });
    let program = words.next().unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default().to_owned();
    std::iter::once(program).chain(words).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_shown_without_directories() {
        fn check(words: &[&str], expect: &str) {
            assert_eq!(command(words.iter().map(ToString::to_string)), expect);
        }
        check(&["/a/b/corral-bench", "-o", "set"], "corral-bench -o set");
        check(&["x", "--label", "a b"], "x --label 'a b'");
        check(&[], "");
    }
}
