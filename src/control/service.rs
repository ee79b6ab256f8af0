//! Tells the supervisor (systemd) that the server serves, or why it does not, and that it is alive. Looks at disk space and memory, too.
//!
//! On the control thread.

use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use corral_core::report::{MemoryUse, Mode, SpaceFacts, scarcity};
use sd_notify::NotifyState;
use tokio::time::sleep;

use super::facts::anonymous_bytes;
use super::space::Space;
use crate::gauges::Gauges;
use crate::messages::{Event, ToConsensus};
use crate::runtime::mailbox::Post;

const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Messages that wait for the supervisor. More are dropped.
const NOTES_MAX: usize = 8;

/// The server, its disks and its memory.
pub(crate) struct Service {
    pub(crate) gauges: Arc<Gauges>,
    pub(crate) space: Space,
    pub(crate) consensus: Post<ToConsensus>,
    /// See the keys `limits.reserve_disk_space` and `limits.memory_bytes_max`.
    pub(crate) reserves_disk_space: bool,
    pub(crate) memory_bytes_max: u64,
}

impl Service {
    /// Looks again and again, until the process ends.
    pub(super) async fn run(self) {
        let (mut is_ready, mut said) = (false, String::new());
        let mut low: Vec<String> = Vec::new();
        loop {
            let spaces = self.space.look();
            warn(&spaces, &mut low);
            self.watch_scarcity(&spaces);
            let (serves, status) = self.status();
            tell(Note::Watchdog);
            if status != said {
                said.clone_from(&status);
                tell(Note::Status(status));
            }
            if serves && !is_ready {
                tell(Note::Ready);
                is_ready = true;
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Tells the engine when disk space or memory becomes scarce, and when it is no more.
    fn watch_scarcity(&self, spaces: &[SpaceFacts]) {
        let present = self.gauges.scarcity();
        let spaces = if self.reserves_disk_space { spaces } else { &[] };
        let bytes = if self.memory_bytes_max > 0 { anonymous_bytes() } else { 0 };
        let found = scarcity(present, spaces, MemoryUse { bytes, bytes_max: self.memory_bytes_max });
        if found == present {
            return;
        }
        self.gauges.set_scarcity(found);
        let _ = self.consensus.send(Event::Scarce(found.is_some()).into());
        match found {
            Some(scarcity) => {
                tracing::warn!(
                    "a leader would transfer leadership or refuse writes that add data: {}",
                    scarcity.sentence()
                );
            }
            None => tracing::info!("disk space and memory are no longer scarce"),
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

/// A message to the supervisor.
enum Note {
    Ready,
    Stopping,
    Watchdog,
    Status(String),
}

/// The server ends. Does not block.
pub(super) fn stopping() {
    tell(Note::Stopping);
}

/// Hands a message to the thread that sends it. If that waits for the supervisor, the message is dropped.
fn tell(note: Note) {
    static SENDER: OnceLock<Option<flume::Sender<Note>>> = OnceLock::new();
    if let Some(sender) = SENDER.get_or_init(sender) {
        let _ = sender.try_send(note);
    }
}

/// To a thread that sends messages; `None` without a supervisor.
fn sender() -> Option<flume::Sender<Note>> {
    std::env::var_os("NOTIFY_SOCKET")?;
    let (sender, notes) = flume::bounded(NOTES_MAX);
    let send = move || {
        for note in notes {
            let state = match &note {
                Note::Ready => NotifyState::Ready,
                Note::Stopping => NotifyState::Stopping,
                Note::Watchdog => NotifyState::Watchdog,
                Note::Status(status) => NotifyState::Status(status),
            };
            // A supervisor that hears nothing acts by itself.
            let _ = sd_notify::notify(&[state]);
        }
    };
    // Without a thread it hears nothing.
    thread::Builder::new().name("notify".to_owned()).spawn(send).ok()?;
    Some(sender)
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
