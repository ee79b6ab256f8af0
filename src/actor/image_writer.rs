//! The image writer: a plain thread of low priority that merges a frozen state into the next image file, and the place
//! where large things are dropped.
//!
//! It works in memory bounded by one section and never holds up a core: what it needs is immutable and shared.

use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::{Duration, Instant};

use corral_core::image::{Image, ImageFault, ImageMerger, section_bits_for};
use corral_core::sequencer::FrozenState;
use corral_storage::image::Pace;
use corral_storage::{ImageHead, ImageWriter, MmapDisk, image_index, list_images, purge};

use crate::actor::messages::{Cause, Distrust, ToConsensus, ToWriter, WrittenImage};
use crate::control::Stopwatch;
use crate::node::images::{SECTION_META, SECTION_NODES, load};
use crate::runtime::mailbox::Post;
use crate::runtime::memory;

/// The thread's nice value: the shards' cores come first.
const NICE: i32 = 10;
/// An image is written no faster than this: a million znodes of 100 bytes take 1.4 s.
const IMAGE_BYTES_PER_S: u64 = 128 << 20;
/// Quiet time after which the memory of what was dropped goes back to the kernel.
const GIVE_BACK_AFTER: Duration = Duration::from_millis(200);
/// How often free memory goes back while no image is written.
const GIVE_BACK_EVERY: Duration = Duration::from_secs(10);
/// How soon again after clients have fallen silent.
const GIVE_BACK_CALM: Duration = Duration::from_secs(1);

/// What the writer is told at its start.
pub(crate) struct ImageSettings {
    /// Images kept, the newest included.
    pub(crate) retained: usize,
    /// Whether older ones are removed at all.
    pub(crate) purge: bool,
}

/// Runs until every sender is gone.
pub(crate) fn run(
    disk: &MmapDisk,
    settings: &ImageSettings,
    images: &Stopwatch,
    inbox: &flume::Receiver<ToWriter>,
    consensus: &Post<ToConsensus>,
) {
    lower_priority();
    let mut asked = false;
    let (mut given_back, mut due) = (Instant::now(), Instant::now() + GIVE_BACK_EVERY);
    loop {
        // First what is waiting, then the memory that it left behind; later what others left, in long steps.
        let message = match inbox.recv_deadline(due) {
            Ok(message) => message,
            Err(flume::RecvTimeoutError::Timeout) => {
                let now = Instant::now();
                if asked {
                    memory::give_back();
                    (given_back, due) = (now, now + GIVE_BACK_EVERY);
                } else {
                    memory::ask_executors();
                    due = now + GIVE_BACK_AFTER;
                }
                asked = !asked;
                continue;
            }
            Err(flume::RecvTimeoutError::Disconnected) => return,
        };
        match message {
            ToWriter::Calm if asked => continue,
            ToWriter::Calm => {
                due = due.min(given_back + GIVE_BACK_CALM);
                continue;
            }
            ToWriter::Drop(garbage) => drop(garbage),
            ToWriter::Replaced(image) => look_again(&image, consensus),
            ToWriter::Write(state) => {
                let index = state.index;
                let outcome = match write(disk, settings, images, *state) {
                    Ok(written) => ToConsensus::ImageWritten(written),
                    Err(NotWritten::Damaged(cause, what)) => {
                        let _ = consensus.send(ToConsensus::Distrust(Distrust { cause, what }));
                        ToConsensus::ImageFailed(index)
                    }
                    Err(NotWritten::Failed(reason)) => {
                        tracing::error!("the image was not written, the log keeps everything: {reason}");
                        ToConsensus::ImageFailed(index)
                    }
                };
                let _ = consensus.send(outcome);
            }
        }
        (asked, due) = (false, Instant::now() + GIVE_BACK_AFTER);
    }
}

/// While changes were evaluated above an image, they copied from it, such as the data of a znode whose ACL was set. It is compared
/// with its checksums once more, before any image of these changes is begun, so that no copy of a damaged place gets into one.
/// A start then evaluates them anew.
fn look_again(image: &Image, consensus: &Post<ToConsensus>) {
    if let Err(fault) = image.verify() {
        let _ = consensus.send(ToConsensus::Distrust(Distrust { cause: Cause::Image, what: fault.to_string() }));
    }
}

pub(crate) fn lower_priority() {
    let me = rustix::thread::gettid();
    if let Err(error) = rustix::process::setpriority_process(Some(me), NICE) {
        tracing::warn!("a thread for images keeps the default priority: {error}");
    }
}

/// Why there is no new image.
#[derive(Debug)]
pub(crate) enum NotWritten {
    /// The image below does not match its checksums any more: nothing of it was copied. Or the znodes do not have the digest that
    /// was kept with the changes. Where, or which.
    Damaged(Cause, String),
    /// In a sentence.
    Failed(String),
}

impl NotWritten {
    fn merge(fault: ImageFault) -> NotWritten {
        match fault {
            ImageFault::Damaged(place) => NotWritten::Damaged(Cause::Image, place),
            fault @ ImageFault::Diverged { .. } => NotWritten::Damaged(Cause::Digest, fault.to_string()),
            other => NotWritten::Failed(other.to_string()),
        }
    }

    fn failed(error: impl std::fmt::Display) -> NotWritten {
        NotWritten::Failed(error.to_string())
    }

    /// As a sentence.
    pub(crate) fn text(self) -> String {
        match self {
            NotWritten::Damaged(_, text) | NotWritten::Failed(text) => text,
        }
    }
}

/// Writes an image, maps and checks it, and removes those that are not kept.
///
/// # Errors
/// [`NotWritten`]; the images that were there stay.
pub(crate) fn write(
    disk: &MmapDisk,
    settings: &ImageSettings,
    images: &Stopwatch,
    state: FrozenState,
) -> Result<WrittenImage, NotWritten> {
    let started = Instant::now();
    let FrozenState { image: below, delta, sessions, zxid, index, term, extra, .. } = state;
    let head = ImageHead { zxid: zxid.0, term, index, seed: below.seed() };
    let mut file = ImageWriter::begin(disk, head, Some(pace())).map_err(NotWritten::failed)?;
    let mut merger = ImageMerger::new(&below, &delta, section_bits_for(&below, &delta));
    while let Some(section) = merger.next_section().map_err(NotWritten::merge)? {
        file.section(SECTION_NODES, &section).map_err(NotWritten::failed)?;
    }
    let stats = merger.stats();
    let meta = merger.finish(zxid, sessions.to_image(), extra).map_err(NotWritten::merge)?;
    file.section(SECTION_META, &meta).map_err(NotWritten::failed)?;
    let bytes = file.bytes();
    let name = file.finish().map_err(NotWritten::failed)?;
    let image =
        load(disk, &name.file, 1, &AtomicU64::new(0)).map_err(|unusable| NotWritten::Failed(unusable.to_string()))?;
    let log_from = retire(disk, settings, index).map_err(NotWritten::failed)?;
    let took = started.elapsed();
    images.note(took);
    let took_ms = took.as_millis();
    tracing::info!(file = %name.file, %zxid, nodes = stats.nodes, bytes, took_ms, "image written");
    Ok(WrittenImage { image: image.image, bytes: image.bytes, index, term, log_from })
}

/// Keeps an image from taking all of the disk: the log shares it, and each of the log's syncs waits for what the disk was
/// given before.
fn pace() -> Pace {
    let mut before = Instant::now();
    Box::new(move |bytes| {
        let due = before + Duration::from_nanos(bytes as u64 * 1_000_000_000 / IMAGE_BYTES_PER_S);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        // A slow piece is not made up for.
        before = Instant::now();
    })
}

/// Removes old images if that is wanted, and says from where on the log is needed: after the oldest image that stays,
/// so that a damaged newest image can be done without.
fn retire(disk: &MmapDisk, settings: &ImageSettings, newest: u64) -> std::io::Result<u64> {
    if settings.purge {
        purge(disk, settings.retained)?;
    }
    let names: Vec<_> = list_images(disk)?.into_iter().take(settings.retained).collect();
    if names.len() < 2 && settings.retained > 1 {
        // The first image of all: what stands in for a second one is the whole log.
        return Ok(1);
    }
    let mut oldest = newest;
    for name in names {
        match image_index(disk, &name) {
            Ok(index) => oldest = oldest.min(index),
            Err(error) => tracing::warn!("an older image cannot be read and does not count: {error}"),
        }
    }
    Ok(oldest + 1)
}
