//! `corral log dump`: prints the records of a log directory, also of a damaged one. The main thread only; reads, never
//! writes.
//!
//! An unfinished record at the end is what a power failure leaves, and no damage; a place without a valid record below what
//! is known to be durable is.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use corral_storage::{Dump, DumpItem, DumpRecord, MmapDisk};

use crate::cli::Output;
use crate::exit::{ExitCode, Fault};

/// Arguments of `corral log dump`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The log directory: the server's --log-dir, or its --data-dir
    #[arg(value_name = "DIR", default_value = "data")]
    path: PathBuf,
}

/// What was seen, for the last line.
#[derive(Default)]
struct Totals {
    segments: u64,
    records: u64,
    payload_bytes: u64,
    bad_payloads: u64,
    unreadable: u64,
    last: Option<DumpRecord>,
}

/// Prints every segment, record and gap, one a line, and where the log ends.
///
/// # Errors
/// A fault when the directory, or a file in it, cannot be read, or is not corral's, or when the log is damaged.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Fault> {
    let disk = MmapDisk::open_read_only(&arguments.path)?;
    let items = Dump::new(disk).map_err(|error| {
        Fault::new(ExitCode::StorageUnavailable, format!("{}: cannot be listed: {error}", arguments.path.display()))
    })?;
    let mut out = Output::new();
    let (mut totals, mut damage) = (Totals::default(), Damage::default());
    for item in items {
        totals.add(&item);
        damage.add(&item);
        if !out.line(&line(&item))? {
            return Ok(());
        }
    }
    out.line(&totals.line())?;
    out.finish()?;
    if totals.unreadable > 0 {
        let sentence = format!("{} segments cannot be read; see their lines", totals.unreadable);
        return Err(Fault::new(ExitCode::StorageUnavailable, sentence));
    }
    damage.sentence().map_or(Ok(()), |sentence| Err(Fault::new(ExitCode::DataDamaged, sentence)))
}

fn line(item: &DumpItem) -> String {
    match item {
        DumpItem::Segment { file, bytes, generation, base, fault, watermark } => {
            let mut text = format!("{file} segment {bytes} bytes, generation {generation}");
            let mut add = |part: String| text.write_str(&part).expect("a String takes every write");
            if let Some(base) = base {
                add(format!(", log position {base}"));
            }
            if let Some(watermark) = watermark {
                add(format!(", durable to {watermark}"));
            }
            if let Some(fault) = fault {
                add(format!(", HEADER DAMAGED: {fault}"));
            }
            text
        }
        DumpItem::Record(record) => {
            let payload = if record.payload_checks { "" } else { ", PAYLOAD DOES NOT CHECK" };
            format!(
                "{} {:>10} {:?}: term {}, index {}, zxid 0x{:x}, durable to {}, {} bytes{payload}",
                record.file,
                record.offset,
                record.kind,
                record.term,
                record.index,
                record.first_zxid,
                record.watermark,
                record.payload_bytes
            )
        }
        DumpItem::Mark { file, offset, watermark } => {
            format!("{file} {offset:>10} Mark: durable to {watermark}")
        }
        DumpItem::Gap { file, offset, bytes, zero: true } => format!("{file} {offset:>10} free, {bytes} bytes"),
        DumpItem::Gap { file, offset, bytes, zero: false } => {
            format!(
                "{file} {offset:>10} no record, {bytes} bytes: an earlier use of the file, an unfinished record, or \
                 damage (the end of this list says which)"
            )
        }
        DumpItem::Unreadable { file, error } => format!("{file} CANNOT BE READ: {error}"),
        _ => "an item that this program does not know".to_owned(),
    }
}

/// Finds the first place that was durable and holds no valid record. What ends a file is judged by what was known up to
/// there: a server that runs may write on behind it meanwhile.
#[derive(Default)]
struct Damage {
    base: Option<u64>,
    /// Highest log position that is known to be durable.
    durable: u64,
    /// No record has been seen behind it yet.
    open: Option<Place>,
    first: Option<Place>,
}

/// A place without a valid record.
struct Place {
    file: String,
    offset: u64,
    position: u64,
}

impl Damage {
    fn add(&mut self, item: &DumpItem) {
        match item {
            DumpItem::Segment { base, watermark, .. } => {
                (self.base, self.open) = (*base, None);
                self.durable = self.durable.max(watermark.unwrap_or(0));
            }
            DumpItem::Record(record) => {
                self.durable = self.durable.max(record.watermark);
                let gap = self.open.take();
                let bad = || (!record.payload_checks).then(|| self.place(&record.file, record.offset)).flatten();
                if let Some(place) = gap.or_else(bad) {
                    self.first.get_or_insert(place);
                }
            }
            DumpItem::Mark { watermark, .. } => {
                self.durable = self.durable.max(*watermark);
                if let Some(place) = self.open.take().filter(|place| place.position < self.durable) {
                    self.first.get_or_insert(place);
                }
            }
            DumpItem::Gap { file, offset, .. } => match self.place(file, *offset) {
                Some(place) if place.position < self.durable => drop(self.first.get_or_insert(place)),
                other => self.open = other,
            },
            _ => {}
        }
    }

    /// Nothing where the segment's header does not tell where it lies.
    fn place(&self, file: &str, offset: u64) -> Option<Place> {
        self.base.map(|base| Place { file: file.to_owned(), offset, position: base.saturating_add(offset) })
    }

    fn sentence(&self) -> Option<String> {
        let place = self.first.as_ref().filter(|place| place.position < self.durable)?;
        Some(format!(
            "the log is damaged: {} holds no valid record at offset {}, which is position {} of the log, and it was durable up \
             to {}",
            place.file, place.offset, place.position, self.durable
        ))
    }
}

impl Totals {
    fn add(&mut self, item: &DumpItem) {
        match item {
            DumpItem::Segment { .. } => self.segments += 1,
            DumpItem::Record(record) => {
                self.records += 1;
                self.payload_bytes = self.payload_bytes.saturating_add(record.payload_bytes);
                self.bad_payloads += u64::from(!record.payload_checks);
                self.last = Some(record.clone());
            }
            DumpItem::Unreadable { .. } => self.unreadable += 1,
            _ => {}
        }
    }

    fn line(&self) -> String {
        let end = match &self.last {
            Some(last) => format!("; the last is at {} offset {}, index {}", last.file, last.offset, last.index),
            None => String::new(),
        };
        format!(
            "{} segments, {} records, {} bytes of payload, {} payloads that do not check{end}",
            self.segments, self.records, self.payload_bytes, self.bad_payloads
        )
    }
}

#[cfg(test)]
mod tests {
    use corral_storage::log::RecordKind;

    use super::*;

    fn segment(base: u64, watermark: u64) -> DumpItem {
        let (file, bytes) = ("log-1".to_owned(), 10_000);
        DumpItem::Segment { file, bytes, generation: 1, base: Some(base), fault: None, watermark: Some(watermark) }
    }

    fn record(offset: u64, watermark: u64, payload_checks: bool) -> DumpItem {
        DumpItem::Record(DumpRecord {
            file: "log-1".to_owned(),
            offset,
            kind: RecordKind::Entry,
            term: 1,
            index: 1,
            first_zxid: 1,
            watermark,
            payload_bytes: 8,
            payload_checks,
        })
    }

    fn gap(offset: u64) -> DumpItem {
        DumpItem::Gap { file: "log-1".to_owned(), offset, bytes: 100, zero: false }
    }

    fn mark(offset: u64, watermark: u64) -> DumpItem {
        DumpItem::Mark { file: "log-1".to_owned(), offset, watermark }
    }

    fn judged(items: &[DumpItem]) -> Option<String> {
        let mut damage = Damage::default();
        items.iter().for_each(|item| damage.add(item));
        damage.sentence()
    }

    #[test]
    fn what_was_durable_and_is_no_record_is_damage() {
        let found = |items: &[DumpItem]| judged(items).expect("damage is seen");
        assert!(
            found(&[segment(1000, 1300), record(100, 1100, true), gap(200)])
                .contains("offset 200, which is position 1200")
        );
        let later = [segment(1000, 0), record(100, 0, true), gap(200), record(300, 1250, true)];
        assert!(found(&later).contains("durable up to 1250"));
        assert!(found(&[segment(1000, 1300), record(100, 1100, false), gap(200)]).contains("offset 100"));
        let marked = [segment(1000, 0), record(100, 0, true), record(200, 1100, false), mark(300, 1300)];
        assert!(found(&marked).contains("offset 200"));
        let marked = [segment(1000, 0), record(100, 0, true), gap(200), mark(300, 1300), gap(364)];
        assert!(found(&marked).contains("offset 200"));
    }

    #[test]
    fn an_unfinished_end_is_none() {
        assert_eq!(judged(&[]), None);
        assert_eq!(judged(&[segment(1000, 1200), record(100, 1100, true), gap(200)]), None);
        assert_eq!(judged(&[segment(1000, 0), record(100, 0, true), mark(200, 1200), gap(264)]), None);
        assert_eq!(judged(&[segment(1000, 1200), record(100, 1100, true), record(200, 1200, false)]), None);
        let written_on = [segment(1000, 1200), record(100, 1100, true), gap(200), segment(11_000, 11_300)];
        assert_eq!(judged(&written_on), None, "a server runs");
    }
}
