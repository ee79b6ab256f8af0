//! The limits of this crate: sizes and counts, in bytes unless the name says otherwise.
//!
//! Sizes that are part of a file format (page, header, alignment) may not change without a new format version.

/// Unit of write-back, and the bytes that damage takes at once. A header has a page of its own.
pub const PAGE_BYTES: usize = 4096;
/// Unit that a disk writes or loses as a whole. The simulated disk tears even that.
pub const SECTOR_BYTES: usize = 512;

/// Smallest segment that [`LogConfig`](crate::LogConfig) accepts. Only tests use it.
pub const SEGMENT_BYTES_MIN: usize = 4 * PAGE_BYTES;
/// Smallest segment a server's configuration should allow.
pub const SEGMENT_BYTES_MIN_PRODUCTION: usize = 4 << 20;
/// Segment size when nothing is configured.
pub const SEGMENT_BYTES_DEFAULT: usize = 64 << 20;
/// Largest segment: offsets in the entry index are 32 bits wide.
pub const SEGMENT_BYTES_MAX: usize = 1 << 30;
/// Most segments one directory may hold before the open is refused.
pub const SEGMENTS_MAX: usize = 65_536;
/// Spare segments kept for recycling when nothing is configured.
pub const SPARES_MAX_DEFAULT: usize = 2;

/// The active segment is brought into memory in steps of this size ahead of its end, and released in such steps behind it.
pub const WARM_BYTES: usize = 1 << 20;

/// Bytes of entries that [`Log::visit`](crate::Log::visit) reads in one go.
pub const VISIT_BYTES: usize = 8 << 20;
/// Bytes of entries that [`Log::read_page`](crate::Log::read_page) reads: writes wait meanwhile.
pub const READ_PAGE_BYTES: usize = 1 << 20;

/// Largest payload of one log record, whatever the segment size.
pub const RECORD_PAYLOAD_BYTES_MAX: usize = 256 << 20;

/// Alignment of every section in a snapshot file; a multiple of the alignment that archives need (16).
pub const SNAPSHOT_ALIGN_BYTES: usize = 64;
/// Most sections of one snapshot.
pub const SNAPSHOT_SECTIONS_MAX: usize = 4096;
/// A snapshot is written in blocks of this size, with the pace hook called between two.
///
/// It is a huge page of x86-64 and of ARM with small pages. Mapped in one piece, random look-ups took a quarter to a
/// third less time than with small pages. Populating the mapping took a tenth of the time.
pub const SNAPSHOT_BLOCK_BYTES: usize = 2 << 20;
/// A file that is read in pieces is read in pieces of this size.
pub const PIECE_BYTES: usize = 1 << 20;
/// Largest snapshot file that is opened.
pub const SNAPSHOT_BYTES_MAX: u64 = 1 << 44;

const _: () = assert!(SEGMENT_BYTES_MIN.is_multiple_of(PAGE_BYTES));
const _: () = assert!(PAGE_BYTES.is_multiple_of(SECTOR_BYTES) && WARM_BYTES.is_multiple_of(PAGE_BYTES));
const _: () = assert!(SEGMENT_BYTES_MAX <= u32::MAX as usize);
const _: () = assert!(SNAPSHOT_BLOCK_BYTES.is_multiple_of(PAGE_BYTES));
const _: () = assert!(SNAPSHOT_ALIGN_BYTES >= 16 && PAGE_BYTES.is_multiple_of(SNAPSHOT_ALIGN_BYTES));

/// A new segment is filled and synced in portions of this many bytes.
pub const FILL_SYNC_BYTES: usize = 2 << 20;
