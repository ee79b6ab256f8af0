//! Reads image files piece by piece, for a check in the background and for what the header alone tells.
//!
//! On the scrubber's and the image writer's threads. It maps nothing: no more than one piece is in memory, and the disk is read no
//! faster than the caller's pace. What a mapping of the file shows is what is read here, because both share the page cache.

use super::reader::{check_crc, check_head, check_table, table_bytes};
use super::{ImageError, ImageHead, ImageName, Layout, decode_head, fault};
use crate::disk::{Disk, Pieces};
use crate::field::{narrow, wide};
use crate::limits::{PAGE_BYTES, PIECE_BYTES};

/// Compares all of an image with its checksums. `pace` is called before each piece is read, with its bytes, and may block.
///
/// # Errors
/// What does not check, naming the section, or what kept the file from being read: see [`ImageError::is_damage`].
pub fn scrub_image<D: Disk>(disk: &D, name: &str, pace: &mut dyn FnMut(usize)) -> Result<ImageHead, ImageError> {
    let file = open(disk, name)?;
    let mut front = vec![0; PAGE_BYTES];
    let front = read(&*file, name, 0, &mut front, pace)?;
    let (head, layout) = check_head(name, front, file.length())?;
    let mut table = vec![0; table_bytes(&layout)];
    let rows = check_table(name, &layout, read(&*file, name, layout.table_offset, &mut table, pace)?)?;
    let mut piece = vec![0; PIECE_BYTES];
    for (section, row) in rows.iter().enumerate() {
        let (mut crc, mut done) = (0, 0);
        while done < row.bytes {
            let wanted = narrow(row.bytes.saturating_sub(done)).min(PIECE_BYTES);
            let into = piece.get_mut(..wanted).unwrap_or_default();
            let content = read(&*file, name, row.offset.saturating_add(done), into, pace)?;
            if content.len() < wanted {
                return Err(ImageError::DamagedSection { file: name.to_owned(), section, what: "it is cut off" });
            }
            crc = crc32c::crc32c_append(crc, content);
            done = done.saturating_add(wide(wanted));
        }
        check_crc(name, section, row, crc)?;
    }
    Ok(head)
}

/// The index of the last log entry in an image: from its name, or from the header where the name does not tell.
///
/// # Errors
/// When the header is needed and cannot be read.
pub fn image_index<D: Disk>(disk: &D, image: &ImageName) -> Result<u64, ImageError> {
    if image.index > 0 {
        return Ok(image.index);
    }
    let (file, mut front) = (open(disk, &image.file)?, vec![0; PAGE_BYTES]);
    let front = read(&*file, &image.file, 0, &mut front, &mut |_| {})?;
    let (head, _): (_, Layout) = decode_head(&image.file, front)?;
    Ok(head.index)
}

fn open<D: Disk>(disk: &D, name: &str) -> Result<Box<dyn Pieces>, ImageError> {
    disk.open_pieces(name).map_err(fault(name, "cannot open the image"))
}

fn read<'a>(
    file: &dyn Pieces,
    name: &str,
    offset: u64,
    into: &'a mut [u8],
    pace: &mut dyn FnMut(usize),
) -> Result<&'a [u8], ImageError> {
    pace(into.len());
    let count = file.read(offset, into).map_err(fault(name, "cannot read the image"))?;
    Ok(into.get(..count).unwrap_or_default())
}
