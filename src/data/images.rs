//! Images between files and the core: opening, checking on all CPUs, choosing the one to start from.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use corral_core::image::{CheckedMeta, CheckedSection, Image, ImageBytes, ImageFault, ImageLayout, SectionChecksums};
use corral_engine::{LoadedImage, SnapshotBytes};
use corral_storage::{Bytes, ImageError, ImageFile, ImageHead, MmapDisk, image_name, list_images};

use crate::exit::{ExitCode, Fault};

/// Kind of a section that holds znodes.
pub(crate) const SECTION_NODES: u32 = 1;
/// Kind of the last section: counts, ACLs, sessions.
pub(crate) const SECTION_META: u32 = 2;

/// A smaller mapping is unmapped where it is dropped.
const UNMAPPED_AT_ONCE_BYTES: usize = 16 << 20;

/// How often a long check says how far it is.
const SAY_EVERY: Duration = Duration::from_secs(1);

/// A mapped image file as other servers are given it.
struct Given(Arc<dyn Bytes>);

impl SnapshotBytes for Given {
    fn size(&self) -> u64 {
        self.0.as_slice().len() as u64
    }

    fn copy(&self, offset: u64, bytes: usize) -> bytes::Bytes {
        let offset = usize::try_from(offset).expect("a file that is mapped has such offsets");
        bytes::Bytes::copy_from_slice(&self.0.as_slice()[offset..][..bytes])
    }
}

/// An image file's mapping as the core wants it.
struct Mapped(Option<Mapping>);

struct Mapping {
    file: ImageFile,
    bytes: Arc<dyn Bytes>,
}

impl Mapped {
    fn of(file: &ImageFile) -> Self {
        Self(Some(Mapping { file: file.clone(), bytes: file.bytes() }))
    }

    fn mapping(&self) -> &Mapping {
        self.0.as_ref().expect("it is taken when this is dropped")
    }
}

impl Drop for Mapped {
    /// To unmap gigabytes takes long. The last to hold them may be a core that serves, where a znode's data were lent from here.
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

// SAFETY: the mapping is read-only, private to this value and as long as the file. Image files are written under a
// temporary name, never again after they got their own, and the data directory is locked against other servers.
#[allow(unsafe_code)]
unsafe impl ImageBytes for Mapped {
    fn checksums(&self) -> Option<&dyn SectionChecksums> {
        Some(self)
    }
}

/// Why an image is not loaded.
#[derive(Debug)]
pub(crate) enum Unusable {
    /// It is damaged, as this sentence says with file and section.
    Damaged(String),
    /// It may be whole, and is not to be read here and now: no permission, no memory, of another version. Nothing may take its
    /// place because of that.
    Unread(Fault),
}

impl From<String> for Unusable {
    fn from(damage: String) -> Self {
        Self::Damaged(damage)
    }
}

impl From<ImageError> for Unusable {
    fn from(error: ImageError) -> Self {
        if error.is_damage() {
            return Self::Damaged(error.to_string());
        }
        let is_io = matches!(error, ImageError::Io { .. });
        let Fault { code, sentence } = Fault::from(error);
        if !is_io {
            return Self::Unread(Fault { code, sentence });
        }
        let advice =
            "nothing says that the image is damaged, and nothing was changed: let this server read it, and start again";
        Self::Unread(Fault::new(code, format!("{sentence}; {advice}")))
    }
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged(sentence) => f.write_str(sentence),
            Self::Unread(fault) => fault.fmt(f),
        }
    }
}

/// What the data directory has to start from.
pub(crate) struct Found {
    /// The newest image that is whole.
    pub(crate) newest: Option<LoadedImage>,
    /// What is wrong with each image that was passed over.
    pub(crate) damaged: Vec<String>,
}

impl Found {
    /// What stands in for damaged images, if there are any and a log that begins with this entry reaches far enough back.
    pub(crate) fn instead(&self, log_from: u64) -> Option<String> {
        let files = match self.damaged.len() {
            0 => return None,
            1 => "a damaged image was passed over".to_owned(),
            count => format!("{count} damaged images were passed over"),
        };
        let (index, from) = match &self.newest {
            Some(older) => {
                let file = image_name(older.zxid, older.index);
                (older.index, format!("{file}, which is whole, and the log behind it"))
            }
            None => (0, "the log, which goes back to the beginning".to_owned()),
        };
        let advice = "look at the disk; damaged files go when newer images take their place";
        (log_from <= index + 1).then(|| format!("{files}: the whole state comes from {from}; {advice}"))
    }
}

/// The newest image that is whole. A damaged one is named and passed over: the log still holds what it held, back to the
/// oldest image that is kept, or to the beginning. `mismatches`: see [`load`].
///
/// # Errors
/// When the directory cannot be read, or an image that is newer than the newest whole one, and not known to be damaged.
pub(crate) fn newest(disk: &MmapDisk, threads: usize, mismatches: &AtomicU64) -> Result<Found, Fault> {
    let names = list_images(disk).map_err(|error| Fault::new(ExitCode::StorageUnavailable, error.to_string()))?;
    let mut damaged = Vec::new();
    for name in &names {
        match load(disk, &name.file, threads, mismatches) {
            Ok(loaded) => return Ok(Found { newest: Some(loaded), damaged }),
            Err(Unusable::Unread(fault)) => return Err(fault),
            Err(Unusable::Damaged(reason)) => {
                tracing::error!("image passed over, trying the one before it: {reason}");
                damaged.push(reason);
            }
        }
    }
    Ok(Found { newest: None, damaged })
}

/// Maps an image and checks every section, on as many threads. `mismatches` grows by one if the digest of its znodes is not the
/// one that was stored.
///
/// # Errors
/// A sentence that names file and section, or what keeps the file from being read.
pub(crate) fn load(
    disk: &MmapDisk,
    name: &str,
    threads: usize,
    mismatches: &AtomicU64,
) -> Result<LoadedImage, Unusable> {
    let file = ImageFile::open(disk, name)?;
    let layout = layout(&file)?;
    let bytes: Arc<dyn ImageBytes> = Arc::new(Mapped::of(&file));
    let sections = check_sections(&file, &bytes, &layout, threads)?;
    file.verify_section(layout.sections.len()).map_err(|error| error.to_string())?;
    let meta = CheckedMeta::check(&bytes, &layout).map_err(|fault| format!("{name}: {fault}"))?;
    let image = Image::assemble(meta, sections).map_err(|fault| {
        mismatches.fetch_add(u64::from(matches!(fault, ImageFault::Digest { .. })), Ordering::Relaxed);
        format!("{name}: {fault}")
    })?;
    let ImageHead { index, term, zxid, .. } = file.head();
    Ok(LoadedImage { image: Arc::new(image), index, term, zxid, bytes: Arc::new(Given(file.bytes())) })
}

/// What the newest image keeps besides the tree, of those whose last section is whole, whatever else of them is damaged.
pub(crate) fn readable_extra(disk: &MmapDisk) -> Option<Vec<u8>> {
    let extra = |name: &str| {
        let file = ImageFile::open(disk, name).ok()?;
        let layout = layout(&file).ok()?;
        let bytes: Arc<dyn ImageBytes> = Arc::new(Mapped::of(&file));
        file.verify_section(layout.sections.len()).ok()?;
        Some(CheckedMeta::check(&bytes, &layout).ok()?.extra().to_vec())
    };
    list_images(disk).ok()?.iter().find_map(|name| extra(&name.file))
}

fn layout(file: &ImageFile) -> Result<ImageLayout, String> {
    let count = file.section_count();
    let well_formed = count >= 2
        && (0..count)
            .all(|at| file.section_kind(at) == Some(if at + 1 == count { SECTION_META } else { SECTION_NODES }));
    let ranges: Option<Vec<_>> = (0..count).map(|at| file.section_range(at)).collect();
    match (well_formed, ranges) {
        (true, Some(mut sections)) => {
            let meta = sections.pop().ok_or("an image without sections")?;
            let head = file.head();
            Ok(ImageLayout { seed: head.seed, zxid: head.zxid, sections, meta })
        }
        _ => Err(format!("{}: sections of an unknown kind or order", file.name())),
    }
}

/// Checksum and structure of each section; the work is shared out section by section.
fn check_sections(
    file: &ImageFile,
    bytes: &Arc<dyn ImageBytes>,
    layout: &ImageLayout,
    threads: usize,
) -> Result<Vec<CheckedSection>, String> {
    let count = layout.sections.len();
    let next = AtomicUsize::new(0);
    let work = |tell: bool| -> Result<Vec<(usize, CheckedSection)>, String> {
        let (mut checked, mut said) = (Vec::new(), Instant::now());
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= count {
                return Ok(checked);
            }
            if tell && said.elapsed() >= SAY_EVERY {
                said = Instant::now();
                tracing::info!(file = file.name(), sections_done = at, sections = count, "checking the image");
            }
            file.verify_section(at).map_err(|error| error.to_string())?;
            let section =
                CheckedSection::check(bytes, layout, at).map_err(|fault| format!("{}: {fault}", file.name()))?;
            checked.push((at, section));
        }
    };
    let mut checked = thread::scope(|scope| {
        let helpers: Vec<_> = (1..threads.min(count).max(1)).map(|_| scope.spawn(|| work(false))).collect();
        let mut all = work(true)?;
        for helper in helpers {
            all.append(&mut helper.join().expect("checking does not panic")?);
        }
        Ok::<_, String>(all)
    })?;
    checked.sort_unstable_by_key(|(at, _)| *at);
    Ok(checked.into_iter().map(|(_, section)| section).collect())
}
