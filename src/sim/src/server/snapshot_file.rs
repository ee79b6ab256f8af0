//! Snapshot files on the simulated disk, as the server loads them and as others read them.

use std::sync::Arc;

use bytes::Bytes;
use corral_core::tree::snapshot::{AlignedBytes, SectionChecksums, Snapshot, SnapshotLayout};
use corral_engine::{LoadedSnapshot, SnapshotContent};
use corral_storage::SnapshotError::{Damaged, DamagedSection};
use corral_storage::{SimDisk, SnapshotFile, SnapshotHead, list_snapshots};
use rkyv::util::AlignedVec;

pub(crate) const SECTION_NODES: u32 = 1;
pub(crate) const SECTION_META: u32 = 2;
/// The file of a snapshot, which may have changed since it was loaded. Sections are compared with it. Other servers are
/// given its bytes as they are now, or were before it was purged.
struct OnDisk {
    disk: SimDisk,
    name: String,
    whole: Vec<u8>,
}

impl SnapshotContent for OnDisk {
    fn size(&self) -> u64 {
        self.whole.len() as u64
    }

    fn copy(&self, offset: u64, bytes: usize) -> Bytes {
        let offset = usize::try_from(offset).expect("files are small here");
        let now = self.disk.content(&self.name).filter(|now| now.len() == self.whole.len());
        Bytes::copy_from_slice(&now.as_ref().unwrap_or(&self.whole)[offset..][..bytes])
    }
}

impl SectionChecksums for OnDisk {
    fn verify(&self, section: usize, _: &[u8]) -> Result<(), String> {
        // A file that was purged is whole in the mapping.
        let Some(content) = self.disk.content(&self.name) else { return Ok(()) };
        // On a disk of its own, so that no step counts.
        let copy = SimDisk::new();
        copy.place(&self.name, content);
        let Ok(file) = SnapshotFile::open(&copy, &self.name) else { return Ok(()) };
        match file.verify_section(section) {
            Err(error @ (Damaged { .. } | DamagedSection { .. })) => Err(error.to_string()),
            _ => Ok(()),
        }
    }
}

/// The newest snapshot that is whole. A damaged one is passed over, if the log reaches far enough back for that.
pub(super) fn newest(disk: &SimDisk) -> Result<Option<LoadedSnapshot>, String> {
    let names = list_snapshots(disk).map_err(text)?;
    let mut passed_over = None;
    for name in &names {
        match load(disk, &name.file) {
            Ok(loaded) => return Ok(Some(loaded)),
            Err(error) if error.contains("damaged") => passed_over = Some(error),
            Err(error) => return Err(error),
        }
    }
    passed_over.map_or(Ok(None), Err)
}

pub(crate) fn load(disk: &SimDisk, name: &str) -> Result<LoadedSnapshot, String> {
    let file = SnapshotFile::open(disk, name).map_err(text)?;
    let ranges: Option<Vec<_>> = (0..file.section_count()).map(|at| file.section_range(at)).collect();
    let mut sections = ranges.ok_or("a section without a place")?;
    let meta = sections.pop().ok_or("a snapshot without sections")?;
    let SnapshotHead { index, term, zxid, seed } = file.head();
    let layout = SnapshotLayout { seed, zxid, sections, meta };
    let whole = file.bytes().as_slice().to_vec();
    let mut copy = AlignedVec::new();
    copy.extend_from_slice(&whole);
    let on_disk = Arc::new(OnDisk { disk: disk.clone(), name: name.to_owned(), whole });
    let bytes = Arc::new(AlignedBytes::judged_by(copy, on_disk.clone()));
    for section in 0..=layout.sections.len() {
        file.verify_section(section).map_err(text)?;
    }
    let snapshot = Snapshot::open(bytes, &layout).map_err(text)?;
    Ok(LoadedSnapshot { snapshot: Arc::new(snapshot), index, term, zxid, bytes: on_disk })
}

/// An error as a sentence.
pub(super) fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
