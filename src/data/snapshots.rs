//! Snapshots between files and the core: opening, checking on all CPUs, choosing the one to start from.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use corral_core::tree::snapshot::{
    CheckedMeta, CheckedSection, SectionChecksums, Snapshot, SnapshotBytes, SnapshotFault, SnapshotLayout,
};
use corral_engine::{LoadedSnapshot, SnapshotContent};
use corral_storage::{Bytes, MmapDisk, SnapshotError, SnapshotFile, SnapshotHead, list_snapshots, snapshot_name};

use crate::exit::{ExitCode, Fault};

/// Kind of a section that holds znodes.
pub(crate) const SECTION_NODES: u32 = 1;
/// Kind of the last section: counts, ACLs, sessions.
pub(crate) const SECTION_META: u32 = 2;

/// A smaller mapping is unmapped where it is dropped.
const UNMAPPED_AT_ONCE_BYTES: usize = 16 << 20;

/// How often a long check says how far it is.
const SAY_EVERY: Duration = Duration::from_secs(1);

/// A mapped snapshot file as other servers are given it.
struct Given(Arc<dyn Bytes>);

impl SnapshotContent for Given {
    fn size(&self) -> u64 {
        self.0.as_slice().len() as u64
    }

    fn copy(&self, offset: u64, bytes: usize) -> bytes::Bytes {
        let offset = usize::try_from(offset).expect("a file that is mapped has such offsets");
        bytes::Bytes::copy_from_slice(&self.0.as_slice()[offset..][..bytes])
    }
}

/// A snapshot file's mapping as the core wants it.
struct Mapped(Option<Mapping>);

struct Mapping {
    file: SnapshotFile,
    bytes: Arc<dyn Bytes>,
}

impl Mapped {
    fn of(file: &SnapshotFile) -> Self {
        Self(Some(Mapping { file: file.clone(), bytes: file.bytes() }))
    }

    fn mapping(&self) -> &Mapping {
        self.0.as_ref().expect("it is taken when this is dropped")
    }
}

impl Drop for Mapped {
    /// To unmap gigabytes takes long. The last to hold them may be a core that serves, where a znode's data were lent
    /// from here.
    fn drop(&mut self) {
        let mapping = self.0.take();
        if mapping.as_ref().is_some_and(|mapping| mapping.bytes.as_slice().len() >= UNMAPPED_AT_ONCE_BYTES) {
            // Without a thread it is done here.
            let _ = thread::Builder::new().name("unmap".to_owned()).spawn(move || drop(mapping));
        }
    }
}

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        self.mapping().bytes.as_slice()
    }
}

impl SectionChecksums for Mapped {
    fn verify(&self, section: usize, bytes: &[u8]) -> Result<(), String> {
        self.mapping().file.verify_copy(section, bytes).map_err(|error| error.to_string())
    }
}

// SAFETY: the mapping is read-only, private to this value and as long as the file. Snapshot files are written under a
// temporary name, never again after they got their own, and the data directory is locked against other servers.
#[allow(unsafe_code)]
unsafe impl SnapshotBytes for Mapped {
    fn checksums(&self) -> Option<&dyn SectionChecksums> {
        Some(self)
    }
}

/// The damage of a snapshot file, with file and section.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Damage {
    #[error("{file}: sections of an unknown kind or order")]
    Layout { file: String },
    #[error(transparent)]
    File(#[from] SnapshotError),
    #[error("{file}: {fault}")]
    Content { file: String, fault: SnapshotFault },
}

impl Damage {
    /// For `map_err`: what the core finds wrong about the content of this file.
    fn of(file: &str) -> impl FnOnce(SnapshotFault) -> Damage {
        move |fault| Damage::Content { file: file.to_owned(), fault }
    }
}

/// Why a snapshot is not loaded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    #[error(transparent)]
    Damaged(#[from] Damage),
    /// It may be whole, and is not to be read here and now: no permission, no memory, of another version. Nothing may
    /// take its place because of that.
    #[error(transparent)]
    Unread(Fault),
}

impl From<SnapshotError> for Unusable {
    fn from(error: SnapshotError) -> Self {
        if error.is_damage() {
            return Self::Damaged(error.into());
        }
        let is_io = matches!(error, SnapshotError::Io { .. });
        let Fault { code, sentence } = Fault::from(error);
        if !is_io {
            return Self::Unread(Fault { code, sentence });
        }
        let advice = "nothing says that the snapshot is damaged, and nothing was changed: let this server read it, and start again";
        Self::Unread(Fault::new(code, format!("{sentence}; {advice}")))
    }
}

/// The data from which a start begins.
pub(crate) struct Found {
    /// The newest snapshot that is whole.
    pub(crate) newest: Option<LoadedSnapshot>,
    /// The fault of each snapshot that was passed over.
    pub(crate) damaged: Vec<String>,
}

impl Found {
    /// The text about the replacement of damaged snapshots, if there are any and a log from this entry on reaches far
    /// enough back.
    pub(crate) fn instead(&self, log_from: u64) -> Option<String> {
        let files = match self.damaged.len() {
            0 => return None,
            1 => "a damaged snapshot was passed over".to_owned(),
            count => format!("{count} damaged snapshots were passed over"),
        };
        let (index, from) = match &self.newest {
            Some(older) => {
                let file = snapshot_name(older.zxid, older.index);
                (older.index, format!("{file}, which is whole, and the log behind it"))
            }
            None => (0, "the log, which goes back to the beginning".to_owned()),
        };
        let advice = "look at the disk; damaged files go when newer snapshots take their place";
        (log_from <= index + 1).then(|| format!("{files}: the whole state comes from {from}; {advice}"))
    }
}

/// The newest snapshot that is whole. A damaged one is named and passed over. The log still holds its entries, back to
/// the oldest snapshot that is kept, or to the beginning. `mismatches`: see [`load`].
///
/// # Errors
/// When the directory cannot be read, or a snapshot that is newer than the newest whole one, and not known to be
/// damaged.
pub(crate) fn newest(disk: &MmapDisk, threads: usize, mismatches: &AtomicU64) -> Result<Found, Fault> {
    let names = list_snapshots(disk).map_err(|error| Fault::new(ExitCode::StorageUnavailable, error.to_string()))?;
    let mut damaged = Vec::new();
    for name in &names {
        match load(disk, &name.file, threads, mismatches) {
            Ok(loaded) => return Ok(Found { newest: Some(loaded), damaged }),
            Err(Unusable::Unread(fault)) => return Err(fault),
            Err(Unusable::Damaged(reason)) => {
                tracing::error!("snapshot passed over, trying the one before it: {reason}");
                damaged.push(reason.to_string());
            }
        }
    }
    Ok(Found { newest: None, damaged })
}

/// Maps a snapshot and checks every section, on as many threads. `mismatches` grows by one if its znodes do not have
/// the stored digest.
///
/// # Errors
/// The damage, with file and section, or the reason why the file cannot be read.
pub(crate) fn load(
    disk: &MmapDisk,
    name: &str,
    threads: usize,
    mismatches: &AtomicU64,
) -> Result<LoadedSnapshot, Unusable> {
    let file = SnapshotFile::open(disk, name)?;
    let layout = layout(&file)?;
    let bytes: Arc<dyn SnapshotBytes> = Arc::new(Mapped::of(&file));
    let sections = check_sections(&file, &bytes, &layout, threads)?;
    file.verify_section(layout.sections.len()).map_err(Damage::File)?;
    let meta = CheckedMeta::check(&bytes, &layout).map_err(Damage::of(name))?;
    let snapshot = Snapshot::assemble(meta, sections).map_err(|fault| {
        mismatches.fetch_add(u64::from(matches!(fault, SnapshotFault::Digest { .. })), Ordering::Relaxed);
        Damage::of(name)(fault)
    })?;
    let SnapshotHead { index, term, zxid, .. } = file.head();
    Ok(LoadedSnapshot { snapshot: Arc::new(snapshot), index, term, zxid, bytes: Arc::new(Given(file.bytes())) })
}

/// The part besides the tree of the newest snapshot with a whole last section, whatever else of it is damaged.
pub(crate) fn readable_extra(disk: &MmapDisk) -> Option<Vec<u8>> {
    let extra = |name: &str| {
        let file = SnapshotFile::open(disk, name).ok()?;
        let layout = layout(&file).ok()?;
        let bytes: Arc<dyn SnapshotBytes> = Arc::new(Mapped::of(&file));
        file.verify_section(layout.sections.len()).ok()?;
        Some(CheckedMeta::check(&bytes, &layout).ok()?.extra().to_vec())
    };
    list_snapshots(disk).ok()?.iter().find_map(|name| extra(&name.file))
}

fn layout(file: &SnapshotFile) -> Result<SnapshotLayout, Damage> {
    let unknown = || Damage::Layout { file: file.name().to_owned() };
    let count = file.section_count();
    let well_formed = count >= 2
        && (0..count)
            .all(|at| file.section_kind(at) == Some(if at + 1 == count { SECTION_META } else { SECTION_NODES }));
    let ranges: Option<Vec<_>> = (0..count).map(|at| file.section_range(at)).collect();
    match (well_formed, ranges) {
        (true, Some(mut sections)) => {
            let meta = sections.pop().ok_or_else(unknown)?;
            let head = file.head();
            Ok(SnapshotLayout { seed: head.seed, zxid: head.zxid, sections, meta })
        }
        _ => Err(unknown()),
    }
}

/// Checksum and structure of each section; the work is shared out section by section.
fn check_sections(
    file: &SnapshotFile,
    bytes: &Arc<dyn SnapshotBytes>,
    layout: &SnapshotLayout,
    threads: usize,
) -> Result<Vec<CheckedSection>, Damage> {
    let count = layout.sections.len();
    let next = AtomicUsize::new(0);
    let work = |tell: bool| -> Result<Vec<(usize, CheckedSection)>, Damage> {
        let (mut checked, mut said) = (Vec::new(), Instant::now());
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= count {
                return Ok(checked);
            }
            if tell && said.elapsed() >= SAY_EVERY {
                said = Instant::now();
                tracing::info!(file = file.name(), sections_done = at, sections = count, "checking the snapshot");
            }
            file.verify_section(at)?;
            let section = CheckedSection::check(bytes, layout, at).map_err(Damage::of(file.name()))?;
            checked.push((at, section));
        }
    };
    let mut checked = thread::scope(|scope| {
        let helpers: Vec<_> = (1..threads.min(count).max(1)).map(|_| scope.spawn(|| work(false))).collect();
        let mut all = work(true)?;
        for helper in helpers {
            all.append(&mut helper.join().expect("checking does not panic")?);
        }
        Ok::<_, Damage>(all)
    })?;
    checked.sort_unstable_by_key(|(at, _)| *at);
    Ok(checked.into_iter().map(|(_, section)| section).collect())
}
