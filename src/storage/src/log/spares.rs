//! Spare segment files: allocated, zero-filled, without a place in the log. Recycled instead of removed and made anew.
//!
//! The log thread owns the pool; a [`SpareJob`] runs on any thread that may block.

use std::io;

use super::error::LogError;
use super::segment::spare_name;
use crate::disk::{Disk, Segment};
use crate::field::wide;

/// A segment file outside of the log: made ahead or trimmed. Its content does not matter.
#[must_use = "a spare that is not given to `Log::accept_spare` stays on the disk unused"]
pub struct Spare<D: Disk> {
    name: String,
    /// `None` if found at start and not needed yet.
    file: Option<D::Segment>,
}

/// The slow part of making a segment, for any thread that may block: allocating and zero-filling a file.
#[must_use = "the job does nothing until it is run"]
pub struct SpareJob<D: Disk> {
    disk: D,
    name: String,
    bytes: usize,
}

impl<D: Disk> SpareJob<D> {
    /// Makes the file. Blocks for as long as the disk needs to write it.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] and every other error of the disk. The log is not affected.
    pub fn run(self) -> io::Result<Spare<D>> {
        let file = self.disk.create_segment(&self.name, self.bytes)?;
        Ok(Spare { name: self.name, file: Some(file) })
    }
}

/// The spare segment files of a log.
pub(crate) struct SparePool<D: Disk> {
    disk: D,
    /// Bytes of a segment as configured now.
    segment_bytes: usize,
    /// Spares that are kept, at most.
    max: usize,
    spares: Vec<Spare<D>>,
    /// Number in the name of the next spare.
    number_next: u64,
}

impl<D: Disk> SparePool<D> {
    pub(crate) fn new(disk: D, segment_bytes: usize, max: usize) -> SparePool<D> {
        SparePool { disk, segment_bytes, max, spares: Vec::new(), number_next: 0 }
    }

    /// Adds a file that an earlier process left, by its name and the number in it. It is opened when it is needed.
    pub(crate) fn add_found(&mut self, name: String, number: u64) {
        self.number_next = self.number_next.max(number.saturating_add(1));
        self.spares.push(Spare { name, file: None });
    }

    pub(crate) fn add(&mut self, spare: Spare<D>) {
        self.spares.push(spare);
    }

    /// Work that makes a spare, if there is none.
    pub(crate) fn job(&mut self) -> Option<SpareJob<D>> {
        if !self.spares.is_empty() {
            return None;
        }
        let (disk, bytes) = (self.disk.clone(), self.segment_bytes);
        Some(SpareJob { disk, name: self.name_next(), bytes })
    }

    /// A spare, opened, with its name; made now if there is none. Errors: `NoSpace`, `Io`.
    pub(crate) fn take(&mut self) -> Result<(String, D::Segment), LogError> {
        let bytes = self.segment_bytes;
        while let Some(spare) = self.spares.pop() {
            let file = match spare.file {
                Some(file) => file,
                None => match self.disk.open_segment(&spare.name) {
                    Ok(file) => file,
                    Err(error) => {
                        let error = LogError::no_segment(&spare.name, "cannot open a spare segment", bytes)(error);
                        // For the next try.
                        self.spares.push(spare);
                        return Err(error);
                    }
                },
            };
            if file.bytes().len() == bytes {
                return Ok((spare.name, file));
            }
            // Left from another configuration.
            drop(file);
            self.disk.remove(&spare.name).map_err(LogError::io(&spare.name, "cannot remove a spare segment"))?;
        }
        let name = self.name_next();
        let made = self.disk.create_segment(&name, bytes);
        let file = made.map_err(LogError::no_segment(&name, "cannot make a segment", bytes))?;
        Ok((name, file))
    }

    /// Makes a spare of a segment that left the log. It removes the file instead if there are enough spares, or if it
    /// has another size than configured now. The caller syncs the directory.
    pub(crate) fn recycle(&mut self, name: &str, file: D::Segment, bytes: u64) -> io::Result<()> {
        let fits = bytes == wide(self.segment_bytes);
        if !fits || self.spares.len() >= self.max {
            return self.disk.remove(name);
        }
        let spare = self.name_next();
        let done = self.disk.rename(name, &spare);
        self.spares.push(Spare { name: spare, file: Some(file) });
        done
    }

    fn name_next(&mut self) -> String {
        let number = self.number_next;
        self.number_next = number.saturating_add(1);
        spare_name(number)
    }
}
