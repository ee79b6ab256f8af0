//! The snapshot: the whole state at one zxid, immutable, read in place from bytes of the caller (a mapping).
//!
//! Cut by the top bits of the path hash into sections, each an archive of its own. A meta section has counts, distinct
//! ACL lists and sessions. Every core and the snapshot writer share one snapshot. Knows no files and no checksums:
//! bytes in, bytes out. Reading stays inside the bytes, even if these are corrupt: nonsense reads as absent. A
//! reference that leads out of a section that was checked ends the process: its bytes were changed since.

mod annex;
mod fault;
mod format;
mod layout;
mod meta;
mod node;
mod read;
mod section;
mod write;

pub use fault::SnapshotFault;
pub use format::SnapshotSession;
pub use layout::{SECTION_ALIGN, SECTION_BYTES_MAX, SECTION_BYTES_TARGET, SnapshotLayout, SnapshotStats};
pub use meta::CheckedMeta;
pub use node::{Names, SnapshotNode};
pub use read::{Lender, Snapshot};
pub use section::{AlignedBytes, CheckedSection, SectionChecksums, SnapshotBytes};
pub use write::{SnapshotMerger, TreeBuilder, initial_nodes, initial_snapshot, merge_in_memory, section_bits_for};
