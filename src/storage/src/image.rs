//! The image container: one immutable file with a checked header and opaque, checksummed, aligned sections.
//!
//! Written by the image writer thread, mapped and verified by whoever starts the server, then shared by all cores as
//! plain bytes. It knows the zxid, term and index the image stands for as numbers and the sections as bytes.
//!
//! Layout, little endian: a header page; the sections, each beginning at a multiple of 64; the section table (offset u64,
//! length u64, kind u32, CRC32C u32 each) at the end. The header names the table's place and checksum and the length of
//! the file, so nothing can be cut off or added unseen.

mod reader;
mod receiver;
mod scrub;
mod writer;

use std::io;

use nix::libc;

pub use reader::ImageFile;
pub use receiver::{ImageReceiver, remove_incoming};
pub use scrub::{image_index, scrub_image};
pub use writer::{ImageWriter, Pace};

use crate::disk::{Disk, TEMPORARY_SUFFIX};
use crate::field::{Put, Take};
use crate::limits::PAGE_BYTES;
use crate::log::ADVICE;

const MAGIC: [u8; 8] = *b"corralIM";
const FORMAT_VERSION: u32 = 1;
const HEAD_CHECKED_BYTES: usize = 68;
const TABLE_ROW_BYTES: usize = 24;

/// What can go wrong with an image, each with what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    #[error("{file}: {what}: {source}")]
    Io { file: String, what: &'static str, source: io::Error },
    #[error("{file}: no space for the image: {source}; free space, the server goes on with its older image")]
    NoSpace { file: String, source: io::Error },
    #[error("{file}: not an image file; remove it if it is not corral's, else {advice}", advice = ADVICE)]
    NotAnImage { file: String },
    #[error("{file}: format version {found}, this program reads {expected}; use the version that wrote it")]
    WrongVersion { file: String, found: u32, expected: u32 },
    #[error("{file}: header or section table damaged: {what}")]
    Damaged { file: String, what: &'static str },
    #[error("{file}: section {section} damaged: {what}")]
    DamagedSection { file: String, section: usize, what: &'static str },
    #[error("{file}: section {section} damaged: the {bytes} bytes from offset {offset} on do not match their checksum")]
    ChangedSection { file: String, section: usize, offset: u64, bytes: u64 },
    #[error("{file}: {found} sections, at most {max} are supported")]
    TooManySections { file: String, found: usize, max: usize },
}

impl ImageError {
    /// Whether the file is known to be damaged. If not, it may be whole and only could not be read here and now: for want of memory or of
    /// permission, or because another version wrote it.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            ImageError::Io { source, .. } => is_lost(source),
            ImageError::NoSpace { .. } | ImageError::WrongVersion { .. } => false,
            ImageError::NotAnImage { .. }
            | ImageError::Damaged { .. }
            | ImageError::DamagedSection { .. }
            | ImageError::ChangedSection { .. }
            | ImageError::TooManySections { .. } => true,
        }
    }
}

/// Whether this error of a file says that the disk cannot give back what it held. A mapping says `EFAULT` for that when its pages are
/// brought into memory.
pub(crate) fn is_lost(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::EFAULT | libc::EHWPOISON | libc::EUCLEAN))
}

/// What an image stands for. Numbers to this crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageHead {
    /// Last zxid contained.
    pub zxid: u64,
    /// Raft term of the last entry contained.
    pub term: u64,
    /// Raft index of the last entry contained.
    pub index: u64,
    /// Seed of the path hash that spreads the state over the sections.
    pub seed: u64,
}

/// One row of the section table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) kind: u32,
    pub(crate) crc: u32,
}

/// The header's fields besides what the image stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) sections: u32,
    pub(crate) file_bytes: u64,
    pub(crate) table_offset: u64,
    pub(crate) table_crc: u32,
}

/// Name and place of an image file in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageName {
    pub file: String,
    pub zxid: u64,
    /// Of the last log entry in it; 0 where the name does not tell, as names of earlier versions.
    pub index: u64,
}

/// The images in a directory, newest first, by their names alone.
pub fn list_images<D: Disk>(disk: &D) -> io::Result<Vec<ImageName>> {
    let mut images: Vec<_> = disk
        .list()?
        .into_iter()
        .filter_map(|file| place_in(&file).map(|(zxid, index)| ImageName { file, zxid, index }))
        .collect();
    images.sort_unstable_by_key(|image| std::cmp::Reverse((image.zxid, image.index)));
    Ok(images)
}

/// Removes all but the `keep` newest images (at least one stays) and what an interrupted writer left. Call it on the
/// writer's thread, after the newest has been verified. Answers the number of images removed. A removed image that is
/// still mapped stays readable until it is dropped.
pub fn purge<D: Disk>(disk: &D, keep: usize) -> io::Result<usize> {
    let old: Vec<_> = list_images(disk)?.into_iter().skip(keep.max(1)).collect();
    for image in &old {
        disk.remove(&image.file)?;
    }
    for name in disk.list()? {
        if name.strip_suffix(TEMPORARY_SUFFIX).and_then(place_in).is_some() {
            disk.remove(&name)?;
        }
    }
    disk.sync_dir()?;
    Ok(old.len())
}

/// File name of the image at `zxid` that ends with the log entry `index`. Entries that change no znode have no zxid of their
/// own, so that an image taken over and one of the server's own may be at the same zxid: neither may take the other's place.
#[must_use]
pub fn image_name(zxid: u64, index: u64) -> String {
    format!("image-{zxid:016x}-{index:016x}.img")
}

/// What an error of the disk means for an image file.
fn fault(file: &str, what: &'static str) -> impl FnOnce(io::Error) -> ImageError {
    let file = file.to_owned();
    move |source| match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ImageError::NoSpace { file, source },
        _ => ImageError::Io { file, what, source },
    }
}

/// Zxid and index that the name of an image tells.
fn place_in(name: &str) -> Option<(u64, u64)> {
    let number = |digits: &str| {
        let canonical = digits.len() == 16 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if canonical { u64::from_str_radix(digits, 16).ok() } else { None }
    };
    let place = name.strip_prefix("image-")?.strip_suffix(".img")?;
    match place.split_once('-') {
        Some((zxid, index)) => Some((number(zxid)?, number(index)?)),
        None => Some((number(place)?, 0)),
    }
}

pub(crate) fn encode_head(head: &ImageHead, layout: &Layout) -> [u8; PAGE_BYTES] {
    let mut page = [0; PAGE_BYTES];
    let mut put = Put(&mut page);
    put.bytes(&MAGIC);
    put.u32(FORMAT_VERSION);
    put.u32(layout.sections);
    put.u64(head.zxid);
    put.u64(head.term);
    put.u64(head.index);
    put.u64(head.seed);
    put.u64(layout.file_bytes);
    put.u64(layout.table_offset);
    put.u32(layout.table_crc);
    let (checked, rest) = page.split_at_mut_checked(HEAD_CHECKED_BYTES).expect("a page is longer than its header");
    Put(rest).u32(crc32c::crc32c(checked));
    page
}

pub(crate) fn decode_head(file: &str, bytes: &[u8]) -> Result<(ImageHead, Layout), ImageError> {
    let damaged = |what| ImageError::Damaged { file: file.to_owned(), what };
    let page = bytes.get(..PAGE_BYTES).ok_or_else(|| damaged("the file is too short"))?;
    let fields = || {
        let mut take = Take(page);
        let magic = take.bytes(MAGIC.len())?;
        let version = take.u32()?;
        let sections = take.u32()?;
        let head = ImageHead { zxid: take.u64()?, term: take.u64()?, index: take.u64()?, seed: take.u64()? };
        let (file_bytes, table_offset, table_crc) = (take.u64()?, take.u64()?, take.u32()?);
        let crc_matches = take.u32()? == crc32c::crc32c(page.get(..HEAD_CHECKED_BYTES)?);
        Some((magic, version, crc_matches, head, Layout { sections, file_bytes, table_offset, table_crc }))
    };
    let (magic, version, crc_matches, head, layout) = fields().ok_or_else(|| damaged("the file is too short"))?;
    if magic != MAGIC {
        return Err(ImageError::NotAnImage { file: file.to_owned() });
    }
    if !crc_matches {
        return Err(damaged("the header does not match its checksum"));
    }
    if version != FORMAT_VERSION {
        return Err(ImageError::WrongVersion { file: file.to_owned(), found: version, expected: FORMAT_VERSION });
    }
    Ok((head, layout))
}

pub(crate) fn encode_row(row: &Row) -> [u8; TABLE_ROW_BYTES] {
    let mut bytes = [0; TABLE_ROW_BYTES];
    let mut put = Put(&mut bytes);
    put.u64(row.offset);
    put.u64(row.bytes);
    put.u32(row.kind);
    put.u32(row.crc);
    bytes
}

pub(crate) fn decode_row(bytes: &[u8]) -> Option<Row> {
    let mut take = Take(bytes);
    Some(Row { offset: take.u64()?, bytes: take.u64()?, kind: take.u32()?, crc: take.u32()? })
}
