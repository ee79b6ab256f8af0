//! Committed entries in the log of a running server, read beside it.
//!
//! Blocks, on a thread of its own. A log also holds entries that another leader replaced, and entries that are not committed yet.
//! A later record replaces those with its index and above. An entry is committed if a zxid of its epoch was applied that is not
//! below its own. For the leader of an epoch keeps its own entries, and everything that was committed before.

use std::io::{self, Write};
use std::path::Path;

use corral_backup::entries::{COUNT_MAX, FRONT_BYTES, PAYLOAD_BYTES_MAX, Place, front_before, front_of};
use corral_backup::envelope::{Content, Envelope, Head};
use corral_core::ids::Zxid;
use corral_storage::{Dump, DumpItem, DumpRecord, MmapDisk, RecordKind};

/// Entries behind another one, which is in the log or right before its begin.
pub(crate) struct Committed {
    dump: Dump<'static, MmapDisk>,
    found: Found,
}

impl Committed {
    /// Finds the entries behind the one with this index. `applied` is a zxid that this server has applied.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub(crate) fn find(log_dir: &Path, before: u64, applied: Zxid) -> io::Result<Committed> {
        let disk = MmapDisk::open_read_only(log_dir).map_err(io::Error::other)?;
        let (mut dump, mut found) = (Dump::new(disk)?, Found { wanted: before, applied, ..Found::default() });
        dump.skip_to(before);
        for item in dump.by_ref() {
            match item {
                DumpItem::Segment { salt, .. } => found.salt = salt,
                // Where the log ends, or a record that is being written.
                DumpItem::Record(record) if !record.payload_checks => break,
                DumpItem::Record(record) => {
                    let goes_on = found.add(record);
                    if !goes_on {
                        break;
                    }
                }
                DumpItem::Unreadable { file, error, .. } => return Err(io::Error::other(format!("{file}: {error}"))),
                _ => {}
            }
        }
        found.entries.retain(|record| record.index <= found.committed);
        Ok(Committed { dump, found })
    }

    /// The head of a backup with that of the state behind the entry before.
    pub(crate) fn identify(&self, head: Head) -> Head {
        let (crc, salt) = self.found.before.map_or((0, 0), |(place, salt)| (place.crc, salt));
        Head { crc, salt, ..head }
    }

    /// The head of their envelope. The body is empty if the log does not go on from the entry before.
    pub(crate) fn head(&self, server: u8, time_ms: i64) -> Head {
        let Some((before, salt)) = self.found.before else {
            let content = Content::Entries;
            return Head { content, server, index: 0, term: 0, crc: 0, salt: 0, zxid: 0, time_ms, bytes: 0 };
        };
        let Place { index, term, crc } = self.found.entries.last().map_or(before, place);
        let payloads: u64 = self.found.entries.iter().map(|record| record.payload_bytes).sum();
        let bytes = payloads + ((1 + self.found.entries.len()) * FRONT_BYTES) as u64;
        Head { content: Content::Entries, server, index, term, crc, salt, zxid: 0, time_ms, bytes }
    }

    /// Writes the envelope.
    ///
    /// # Errors
    /// Those of the writer. If a segment was dropped meanwhile.
    pub(crate) fn write(mut self, head: &Head, to: impl Write) -> io::Result<()> {
        let mut envelope = Envelope::begin(head, to)?;
        if let Some((before, _)) = self.found.before {
            envelope.write(&front_before(before))?;
            for record in &self.found.entries {
                let bytes = u32::try_from(record.payload_bytes).map_err(io::Error::other)?;
                envelope.write(&front_of(place(record), record.kind == RecordKind::Membership, bytes))?;
                envelope.write(&self.dump.payload(record)?)?;
            }
        }
        envelope.finish().map(drop)
    }
}

fn place(record: &DumpRecord) -> Place {
    Place { index: record.index, term: record.term, crc: record.payload_crc }
}

/// Content of a log.
#[derive(Default)]
struct Found {
    /// Index of the entry before.
    wanted: u64,
    applied: Zxid,
    /// Of the segment that is read.
    salt: u32,
    /// The entry before, and the salt of its segment. Of an entry before the begin of the log only the index is known.
    before: Option<(Place, u32)>,
    /// The entries behind it, without a gap.
    entries: Vec<DumpRecord>,
    bytes: u64,
    /// Index of the entry that the log goes on with.
    next: Option<u64>,
    /// The highest index that is known to be committed.
    committed: u64,
}

impl Found {
    /// Takes the next record. False if the log does not go on with it.
    fn add(&mut self, record: DumpRecord) -> bool {
        let (index, is_behind_gap) = (record.index, self.next.is_none_or(|next| record.index > next));
        match record.kind {
            RecordKind::Start if is_behind_gap => {
                // The log begins, or a snapshot took the place of all entries before.
                self.entries.clear();
                let place = Place { index: self.wanted, term: 0, crc: 0 };
                self.before = (index == self.wanted + 1).then_some((place, self.salt));
                self.next = Some(index);
            }
            RecordKind::Entry | RecordKind::Membership if is_behind_gap => return false,
            RecordKind::Entry | RecordKind::Membership => {
                self.truncate(index);
                self.next = Some(index.saturating_add(1));
                let zxid = Zxid(record.first_zxid);
                if zxid.epoch() == self.applied.epoch() && zxid <= self.applied {
                    self.committed = self.committed.max(index);
                }
                if index == self.wanted {
                    self.before = Some((place(&record), self.salt));
                } else if self.before.is_some()
                    && index == self.wanted + 1 + self.entries.len() as u64
                    && self.has_room()
                {
                    self.bytes += record.payload_bytes;
                    self.entries.push(record);
                }
            }
            _ => {}
        }
        true
    }

    fn has_room(&self) -> bool {
        self.bytes < PAYLOAD_BYTES_MAX as u64 && self.entries.len() < COUNT_MAX
    }

    /// Drops the entries with this index and above.
    fn truncate(&mut self, index: u64) {
        self.before = self.before.filter(|(before, _)| before.index < index);
        while let Some(last) = self.entries.pop_if(|last| last.index >= index) {
            self.bytes -= last.payload_bytes;
        }
    }
}
