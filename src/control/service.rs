//! Tells the supervisor (systemd) that the server serves, or why it does not, and that it is alive. Looks at the disk space, too.
//!
//! On the control thread.

use std::sync::Arc;
use std::time::Duration;

use corral_core::report::{Mode, SpaceFacts};
use sd_notify::NotifyState;
use tokio::time::sleep;

use super::space::Space;
use crate::gauges::Gauges;

const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Looks between two looks at the disks.
const DISKS_EVERY: u32 = 20;

/// The server and its disks.
pub(crate) struct Service {
    pub(crate) gauges: Arc<Gauges>,
    pub(crate) space: Space,
}

impl Service {
    /// Looks again and again, until the process ends.
    pub(super) async fn run(self) {
        let is_supervised = std::env::var_os("NOTIFY_SOCKET").is_some();
        let (mut is_ready, mut said) = (false, String::new());
        let mut low: Vec<String> = Vec::new();
        let mut looks = 0_u32;
        loop {
            if looks.is_multiple_of(DISKS_EVERY) {
                warn(&self.space.look(), &mut low);
            }
            looks = looks.wrapping_add(1);
            if is_supervised {
                let (serves, status) = self.status();
                tell(&[NotifyState::Watchdog]);
                if status != said {
                    tell(&[NotifyState::Status(&status)]);
                    said = status;
                }
                if serves && !is_ready {
                    tell(&[NotifyState::Ready]);
                    is_ready = true;
                }
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Whether it serves, and a sentence.
    fn status(&self) -> (bool, String) {
        let (mode, obstacle) = (self.gauges.mode(), self.gauges.obstacle());
        match obstacle {
            Some(obstacle) => (false, format!("does not serve: {}", obstacle.sentence())),
            None if matches!(mode, Mode::Looking) => (false, "does not serve: it knows no leader".to_owned()),
            None => (true, format!("serves as {}", mode.word())),
        }
    }
}

/// From here on the supervisor waits for the end. Does not wait.
pub(super) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// A supervisor that hears nothing acts by itself.
fn tell(states: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(states);
}

/// Logs directories of which the space became low, or is enough again.
fn warn(spaces: &[SpaceFacts], low: &mut Vec<String>) {
    for space in spaces {
        let SpaceFacts { directory, free_bytes, needed_bytes } = space;
        let (is_low, was_low) = (space.is_low(), low.contains(directory));
        let (free_mib, needed_mib) = (free_bytes >> 20, needed_bytes >> 20);
        if is_low && !was_low {
            tracing::warn!(%directory, free_mib, needed_mib, "little disk space is left for the next log segments and snapshots; free space");
            low.push(directory.clone());
        } else if was_low && !is_low {
            tracing::info!(%directory, free_mib, needed_mib, "enough disk space is left again");
            low.retain(|one| one != directory);
        }
    }
}
