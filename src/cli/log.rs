//! `corral log dump`: prints the records of a log directory, also of a damaged one. The main thread only; reads, never
//! writes.
//!
//! An unfinished record at the end is what a power failure leaves, and no damage; a place without a valid record below what
//! is known to be durable is.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;

use clap::Args;
use corral_storage::{Dump, DumpItem, DumpRecord, MmapDisk, confirm};

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
    let unreadable = |error: io::Error| {
        Fault::new(ExitCode::StorageUnavailable, format!("{}: cannot be read: {error}", arguments.path.display()))
    };
    let items = Dump::new(disk.clone()).map_err(unreadable)?;
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
    let confirm = |file: &str, offset, durable| confirm(&disk, file, offset, durable, &mut |_| {});
    let sentence = damage.sentence(confirm).map_err(unreadable)?;
    sentence.map_or(Ok(()), |sentence| Err(Fault::new(ExitCode::DataDamaged, sentence)))
}

fn line(item: &DumpItem) -> String {
    match item {
        DumpItem::Durable { file, watermark, .. } => format!("DURABLE: durable to {watermark}, in {file}"),
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
            let payload = if record.payload_checks { "" } else { ", PAYLOAD NOT VALID: unfinished, or damage" };
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
                 damage (if it is damage, the last line says so)"
            )
        }
        DumpItem::Unreadable { file, error, .. } => format!("{file} CANNOT BE READ: {error}"),
        _ => "an item that this program does not know".to_owned(),
    }
}

/// Finds the places that hold no valid record, and how far the log was durable. A server may write the log meanwhile, so a place
/// is damage only if it holds no valid record when it is read once more, after that position is known.
#[derive(Default)]
pub(crate) struct Damage {
    base: Option<u64>,
    /// Highest log position that is known to be durable.
    durable: u64,
    /// The first in each file. There is at most one in each, so it grows with the files alone.
    suspects: Vec<Place>,
    /// What the file `DURABLE` states of a segment that is missing with all behind it.
    missing: Option<String>,
    /// The first segment that the disk cannot give back.
    lost: Option<String>,
    /// The first one that could not be read for another reason: nothing is known of it.
    unread: Option<String>,
}

/// A place without a valid record.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    file: String,
    /// `None` for a segment whose header is damaged.
    offset: Option<u64>,
    position: u64,
}

impl Damage {
    pub(crate) fn add(&mut self, item: &DumpItem) {
        match item {
            DumpItem::Durable { file, watermark, is_held } => {
                if *is_held {
                    self.durable = self.durable.max(*watermark);
                } else {
                    let sentence = format!(
                        "the log is damaged: {file} is missing, and the log was durable up to {watermark} in it"
                    );
                    self.missing = Some(sentence);
                }
            }
            DumpItem::Segment { file, base, fault, watermark, .. } => {
                self.base = *base;
                self.durable = self.durable.max(watermark.unwrap_or(0));
                if fault.is_some() {
                    self.suspects.push(Place { file: file.clone(), offset: None, position: 0 });
                }
            }
            DumpItem::Record(record) => {
                self.durable = self.durable.max(record.watermark);
                if !record.payload_checks {
                    self.suspect(&record.file, record.offset);
                }
            }
            DumpItem::Mark { file, offset, watermark } => {
                self.durable = self.durable.max(*watermark);
                // The next record goes here, so this is where a second look goes on, not behind it.
                self.suspect(file, *offset);
            }
            DumpItem::Gap { file, offset, .. } => self.suspect(file, *offset),
            DumpItem::Unreadable { file, error, is_lost } => {
                let (of, sentence) = match is_lost {
                    true => (&mut self.lost, format!("the log is damaged: the disk cannot read {file}: {error}")),
                    false => (&mut self.unread, format!("{file}: {error}")),
                };
                of.get_or_insert(sentence);
            }
            _ => {}
        }
    }

    fn suspect(&mut self, file: &str, offset: u64) {
        if self.suspects.last().is_some_and(|place| place.file == file) {
            return;
        }
        if let Some(base) = self.base {
            let position = base.saturating_add(offset);
            self.suspects.push(Place { file: file.to_owned(), offset: Some(offset), position });
        }
    }

    /// The first place that `confirm` finds damaged, given file, offset and the durable position.
    pub(crate) fn sentence<E>(
        &self,
        mut confirm: impl FnMut(&str, Option<u64>, u64) -> Result<Option<u64>, E>,
    ) -> Result<Option<String>, E> {
        for place in self.suspects.iter().filter(|place| place.position < self.durable || place.offset.is_none()) {
            let Some(at) = confirm(&place.file, place.offset, self.durable)? else { continue };
            let Some(offset) = place.offset else {
                return Ok(Some(format!("the log is damaged: the header of {} is not valid", place.file)));
            };
            return Ok(Some(format!(
                "the log is damaged: {} holds no valid record at offset {at}, which is position {} of the log, and it was \
                 durable up to {}",
                place.file,
                place.position.saturating_add(at.saturating_sub(offset)),
                self.durable
            )));
        }
        Ok(self.lost.as_ref().or(self.missing.as_ref()).cloned())
    }

    /// The first segment of which nothing is known, and why.
    pub(crate) fn unread(&self) -> Option<&str> {
        self.unread.as_deref()
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
            "segments: {}, records: {}, bytes of payload: {}, payloads that do not check: {}{end}",
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

    /// What is said if the places that `still_bad` names hold no valid record when they are read once more.
    fn judged(items: &[DumpItem], still_bad: bool) -> Option<String> {
        let mut damage = Damage::default();
        items.iter().for_each(|item| damage.add(item));
        let sentence = damage.sentence(|_, offset, _| Ok::<_, ()>(still_bad.then_some(offset.unwrap_or(0))));
        sentence.expect("it is read")
    }

    #[test]
    fn what_was_durable_and_is_no_record_is_damage() {
        let found = |items: &[DumpItem]| {
            assert_eq!(judged(items, false), None, "a server wrote it meanwhile");
            judged(items, true).expect("damage is seen")
        };
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
        let of_a_later_file = [segment(1000, 1200), record(100, 1100, true), gap(200), segment(11_000, 11_300)];
        assert!(found(&of_a_later_file).contains("offset 200"));
        let stated = |is_held| DumpItem::Durable { file: "log-1".to_owned(), watermark: 1300, is_held };
        assert!(found(&[stated(true), segment(1000, 0), record(100, 0, true), gap(200)]).contains("offset 200"));
        let missing = [stated(false), segment(1000, 0), record(100, 0, true), gap(200)];
        assert!(judged(&missing, false).expect("damage is seen").contains("log-1 is missing"));
        let mut header = segment(1000, 0);
        let DumpItem::Segment { base, fault, .. } = &mut header else { unreachable!("it is a segment") };
        (*base, *fault) = (None, Some("damaged"));
        assert!(found(&[header, gap(200)]).contains("header"));
    }

    #[test]
    fn an_unfinished_end_is_none() {
        let judged = |items: &[DumpItem]| judged(items, true);
        assert_eq!(judged(&[]), None);
        assert_eq!(judged(&[segment(1000, 1200), record(100, 1100, true), gap(200)]), None);
        assert_eq!(judged(&[segment(1000, 0), record(100, 0, true), mark(200, 1200), gap(264)]), None);
        assert_eq!(judged(&[segment(1000, 1200), record(100, 1100, true), record(200, 1200, false)]), None);
    }
}
