//! corral-storage: the bytes on disk. Log segments, image files and the seam to the disk below them.
//!
//! It knows bytes only: a zxid is a `u64` it stores, a payload is a slice. It knows nothing of znodes, sessions, Raft's
//! rules or archives. It is synchronous and has no thread of its own: the log thread owns a [`Log`], the image writer
//! thread owns an [`ImageWriter`], and both hold a clone of the same [`Disk`]. Nothing here is called on a core.
//!
//! Promise: damage is never served and never silently dropped. What was synced and acknowledged is found again or the
//! open is refused with the file, the offset and what to do. The tests corrupt every byte to hold us to it.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

pub mod disk;
mod field;
pub mod image;
pub mod limits;
pub mod log;
mod mapping;
mod mmap_disk;
pub mod sim_disk;

pub use disk::{Bytes, Disk, NewFile, Pieces, Segment};
pub use image::{
    ImageError, ImageFile, ImageHead, ImageName, ImageReceiver, ImageWriter, image_index, image_name, list_images,
    purge, remove_incoming, scrub_image,
};
pub use log::dump::{Dump, DumpItem, DumpRecord, confirm};
pub use log::{
    CutInfo, Durable, Entry, EntryKind, HardState, Log, LogConfig, LogError, Progress, Record, RecordKind, Recovered,
    Spare, SpareJob,
};
pub use mapping::end_on_lost_page;
pub use mmap_disk::{Access, DiskError, MmapDisk, SyncRecipe};
pub use sim_disk::SimDisk;

const _: () = assert!(usize::BITS == 64, "segment and image offsets are held in usize");
