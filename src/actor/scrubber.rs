//! The scrubber: a plain thread of low priority that reads every image file and every log segment once in a configured
//! time and compares them with their checksums.
//!
//! What it reads of the newest image is what the server serves: a mapping and its file share their pages. It decides nothing;
//! it tells the consensus actor. A damaged image that is not the one that is served is put aside. A segment that
//! is being written is read again before damage is reported.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use corral_storage::{Dump, DumpItem, ImageFile, MmapDisk, confirm, list_images};

use crate::actor::image_writer::lower_priority;
use crate::actor::messages::{Cause, Distrust, ToConsensus};
use crate::cli::log::Damage;
use crate::control::Gauges;
use crate::node::quarantine::put_file_aside;
use crate::runtime::mailbox::Post;

/// How often a long scrub tells how far it is.
const SAY_EVERY: Duration = Duration::from_secs(60);
/// A log that is being written is read so often before damage is reported.
const LOG_READS: usize = 3;

/// What the scrubber is told at its start.
pub(crate) struct ScrubSettings {
    /// Time from the end of one scrub to the beginning of the next; `None`: only when asked.
    pub(crate) interval: Option<Duration>,
    pub(crate) bytes_per_s: u64,
    pub(crate) log_dir: PathBuf,
}

/// What the scrubber works with.
pub(crate) struct Scrubber {
    pub(crate) disk: MmapDisk,
    pub(crate) settings: ScrubSettings,
    pub(crate) gauges: Arc<Gauges>,
    pub(crate) consensus: Post<ToConsensus>,
}

/// How far a scrub is.
struct Pass {
    bytes: u64,
    damaged: u64,
    bytes_per_s: u64,
    said: Instant,
}

impl Pass {
    fn rest(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        thread::sleep(Duration::from_nanos((bytes as u64).saturating_mul(1_000_000_000) / self.bytes_per_s.max(1)));
        if self.said.elapsed() >= SAY_EVERY {
            self.said = Instant::now();
            tracing::info!(bytes = self.bytes, damaged = self.damaged, "scrubbing");
        }
    }
}

impl Scrubber {
    /// Runs until nobody can ask any more.
    pub(crate) fn run(self, asked: &flume::Receiver<()>) {
        lower_priority();
        loop {
            let ended = match self.settings.interval {
                Some(interval) => asked.recv_timeout(interval) == Err(flume::RecvTimeoutError::Disconnected),
                None => asked.recv().is_err(),
            };
            if ended {
                return;
            }
            // Who asked meanwhile is served by this scrub, too.
            asked.try_iter().for_each(drop);
            self.scrub();
        }
    }

    fn scrub(&self) {
        let (started, bytes_per_s) = (Instant::now(), self.settings.bytes_per_s);
        let mut pass = Pass { bytes: 0, damaged: 0, bytes_per_s, said: started };
        if let Err(error) = self.images(&mut pass).and_then(|()| self.log(&mut pass)) {
            tracing::warn!("scrub interrupted, the next one begins anew: {error}");
            return;
        }
        let (Pass { bytes, damaged, .. }, took_ms) = (pass, started.elapsed().as_millis());
        self.gauges.scrub_bytes.fetch_add(bytes, Ordering::Relaxed);
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        self.gauges.scrubbed_at_s.store(now_s, Ordering::Relaxed);
        tracing::info!(bytes, damaged, took_ms, "scrub complete");
    }

    fn found(&self, pass: &mut Pass) {
        pass.damaged += 1;
        self.gauges.scrub_damaged.fetch_add(1, Ordering::Relaxed);
    }

    fn images(&self, pass: &mut Pass) -> std::io::Result<()> {
        for image in list_images(&self.disk)? {
            let Err(what) = self.image(&image.file, pass) else { continue };
            // Purged, or replaced by another of its name, meanwhile?
            let names = list_images(&self.disk)?;
            if names.iter().all(|name| name.file != image.file) || self.image(&image.file, pass).is_ok() {
                continue;
            }
            self.found(pass);
            if image.index > 0 && image.index == self.gauges.served_image.load(Ordering::Relaxed) {
                let _ = self.consensus.send(ToConsensus::Distrust(Distrust { cause: Cause::Image, what }));
            } else {
                tracing::error!(
                    "{what}; it is not the one that is served and is put into the directory `damaged`; look at the disk"
                );
                put_file_aside(&self.disk, &image.file)?;
            }
        }
        Ok(())
    }

    fn image(&self, name: &str, pass: &mut Pass) -> Result<(), String> {
        let file = ImageFile::open(&self.disk, name).map_err(|error| error.to_string())?;
        (0..file.section_count()).try_for_each(|section| {
            file.verify_paced(section, &mut |bytes| pass.rest(bytes)).map_err(|error| error.to_string())
        })
    }

    fn log(&self, pass: &mut Pass) -> std::io::Result<()> {
        let mut what = None;
        for _ in 0..LOG_READS {
            what = self.segments(pass)?;
            if what.is_none() {
                return Ok(());
            }
        }
        if let Some(what) = what {
            self.found(pass);
            let _ = self.consensus.send(ToConsensus::LogDamaged(what));
        }
        Ok(())
    }

    /// Damage to what was known to be durable.
    fn segments(&self, pass: &mut Pass) -> std::io::Result<Option<String>> {
        let disk = MmapDisk::open_read_only(&self.settings.log_dir).map_err(std::io::Error::other)?;
        let mut damage = Damage::default();
        for item in Dump::new(disk.clone())? {
            if let DumpItem::Segment { bytes, .. } = &item {
                pass.rest(usize::try_from(*bytes).unwrap_or(0));
            }
            damage.add(&item);
        }
        damage.sentence(|file, offset, durable| confirm(&disk, file, offset, durable))
    }
}
