//! Takes an image that another server sends, piece by piece, and lets it be an image only once all of it checks.
//!
//! Runs on whichever thread receives. Until [`ImageReceiver::finish`] the file has a name that nobody opens and that a
//! start removes. It knows neither the sender nor how pieces travel; a transfer that broke off goes on where
//! [`ImageReceiver::received`] says.

use super::{ImageError, ImageFile, ImageName, fault, image_name};
use crate::disk::{Disk, NewFile};
use crate::field::{narrow, wide};
use crate::limits::{IMAGE_BLOCK_BYTES, IMAGE_BYTES_MAX, PAGE_BYTES};

/// Begins the name of an image that has not been checked yet.
const INCOMING: &str = "incoming-";

/// An image on its way in. Dropped before [`ImageReceiver::finish`] it leaves nothing behind.
pub struct ImageReceiver<D: Disk> {
    disk: D,
    file: D::NewFile,
    zxid: u64,
    bytes: u64,
    received: u64,
    /// Pushed to the disk up to here.
    pushed: u64,
}

impl<D: Disk> ImageReceiver<D> {
    /// `zxid` and `bytes` are what the sender says of the whole file.
    ///
    /// # Errors
    /// `Damaged` when no image has that size, `NoSpace` and `Io`.
    pub fn begin(disk: &D, zxid: u64, bytes: u64) -> Result<ImageReceiver<D>, ImageError> {
        let name = incoming_name(zxid);
        if !(wide(PAGE_BYTES)..=IMAGE_BYTES_MAX).contains(&bytes) {
            return Err(ImageError::Damaged { file: name, what: "no image has the size that is announced" });
        }
        let file = disk.create_file(&name).map_err(fault(&name, "cannot make the file"))?;
        Ok(ImageReceiver { disk: disk.clone(), file, zxid, bytes, received: 0, pushed: 0 })
    }

    /// Bytes taken so far, from the beginning: where the sender goes on.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Whether nothing is missing.
    pub fn is_whole(&self) -> bool {
        self.received == self.bytes
    }

    /// Takes the next piece. What has been taken goes to the disk block by block.
    ///
    /// # Errors
    /// `Damaged` when it is more than was announced, `NoSpace` and `Io`. The transfer is over then.
    pub fn take(&mut self, piece: &[u8]) -> Result<(), ImageError> {
        let name = incoming_name(self.zxid);
        let end = self.received.saturating_add(wide(piece.len()));
        if end > self.bytes {
            return Err(ImageError::Damaged { file: name, what: "more bytes than were announced" });
        }
        self.file.write_at(self.received, piece).map_err(fault(&name, "cannot write"))?;
        self.received = end;
        let waiting = end.saturating_sub(self.pushed);
        if waiting >= wide(IMAGE_BLOCK_BYTES) || self.is_whole() {
            self.file.push(self.pushed, narrow(waiting)).map_err(fault(&name, "cannot write back"))?;
            self.pushed = end;
        }
        Ok(())
    }

    /// Makes the file durable, checks header, table and every section, and gives it its name.
    ///
    /// # Errors
    /// What does not check, naming the section; the file is removed then.
    pub fn finish(self) -> Result<ImageName, ImageError> {
        let incoming = incoming_name(self.zxid);
        if !self.is_whole() {
            return Err(ImageError::Damaged { file: incoming, what: "bytes are missing" });
        }
        let ImageReceiver { disk, file, zxid, .. } = self;
        file.commit().map_err(fault(&incoming, "cannot make the image durable"))?;
        let index = match check(&disk, &incoming, zxid) {
            Ok(index) => index,
            Err(error) => {
                disk.remove(&incoming).map_err(fault(&incoming, "cannot remove a damaged image"))?;
                return Err(error);
            }
        };
        let file = image_name(zxid, index);
        let named = disk.rename(&incoming, &file).and_then(|()| disk.sync_dir());
        named.map_err(fault(&incoming, "cannot name the image"))?;
        Ok(ImageName { file, zxid, index })
    }
}

fn incoming_name(zxid: u64) -> String {
    format!("{INCOMING}image-{zxid:016x}.img")
}

/// The index at which the image ends.
fn check<D: Disk>(disk: &D, name: &str, zxid: u64) -> Result<u64, ImageError> {
    let image = ImageFile::open(disk, name)?;
    if image.head().zxid != zxid {
        return Err(ImageError::Damaged { file: name.to_owned(), what: "the header's zxid is not the announced one" });
    }
    (0..image.section_count()).try_for_each(|section| image.verify_section(section))?;
    Ok(image.head().index)
}

/// Removes what transfers left that a crash interrupted; to be called at a start. Answers how many files.
///
/// # Errors
/// The directory's.
pub fn remove_incoming<D: Disk>(disk: &D) -> std::io::Result<usize> {
    let left: Vec<_> = disk.list()?.into_iter().filter(|name| name.starts_with(INCOMING)).collect();
    for name in &left {
        disk.remove(name)?;
    }
    if !left.is_empty() {
        disk.sync_dir()?;
    }
    Ok(left.len())
}
