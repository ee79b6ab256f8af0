//! `corral log dump`: prints the records of a log directory, also of a damaged one, or the entries of an archive. The main thread only;
//! reads, never writes.
//!
//! An unfinished record at the end is the result of a power failure, and no damage. A place without a valid record
//! below the durable point is damage.

pub(super) mod filter;
mod json;
mod transactions;

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;

use bytes::Bytes;
use clap::Args;
use corral_backup::entries::{Entry, Place};
use corral_consensus::ConfChange;
use corral_storage::{Dump, DumpItem, DumpRecord, MmapDisk, RecordKind, confirm_damage};
use serde_json::json;

use crate::cli::archive::files::Archive;
use crate::cli::archive::restore::each_entry;
use crate::cli::backup_file::{Source, object};
use crate::cli::log::filter::Filter;
use crate::cli::log::transactions::Operation;
use crate::cli::output::Output;
use crate::data::damage::Damage;
use crate::exit::{ExitCode, Fault};

/// Arguments of `corral log dump`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The log directory: the server's --log-dir, or its --data-dir. Or an archive, or a file of its entries
    #[arg(value_name = "DIR", default_value = "data")]
    directory: PathBuf,
    /// File of the keys that decrypt an archive, as age-keygen writes them
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// Only the records, not the operations in them
    #[arg(long, conflicts_with_all = ["path", "session", "zxid", "since"])]
    records: bool,
    /// Print JSON Lines: one object for each record, each operation, and the end
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    filter: Filter,
}

/// The totals for the last line.
#[derive(Default)]
struct Totals {
    segments: u64,
    records: u64,
    payload_bytes: u64,
    bad_payloads: u64,
    unreadable: u64,
    last: Option<DumpRecord>,
}

/// Prints every segment, record and gap, one a line, below each entry its operations, and where the log ends.
///
/// # Errors
/// A fault when the directory, or a file in it, cannot be read, or is not corral's, or when the log or archive is damaged.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Fault> {
    let archive = Archive::find(&arguments.directory)?;
    if archive.is_some() || arguments.directory.is_file() || object(&arguments.directory).is_some() {
        return arguments.dump_archive(archive.as_ref());
    }
    let disk = MmapDisk::open_read_only(&arguments.directory)?;
    let unreadable = |error: io::Error| {
        Fault::new(ExitCode::StorageUnavailable, format!("{}: cannot be read: {error}", arguments.directory.display()))
    };
    let mut items = Dump::new(disk.clone()).map_err(unreadable)?;
    let mut out = Output::new();
    let (mut totals, mut damage) = (Totals::default(), Damage::default());
    while let Some(item) = items.next() {
        totals.add(&item);
        damage.add(&item);
        for line in arguments.lines(&mut items, &item) {
            if !out.line(&line)? {
                return Ok(());
            }
        }
    }
    let confirm = |file: &str, offset, durable| confirm_damage(&disk, file, offset, durable, &mut |_| {});
    let verdict = damage.sentence(confirm).map_err(unreadable);
    out.line(&if arguments.json {
        totals.json(verdict.as_ref().ok().and_then(Option::as_deref)).to_string()
    } else {
        totals.line()
    })?;
    out.finish()?;
    if totals.unreadable > 0 {
        let sentence = format!("{} segments cannot be read; see their lines", totals.unreadable);
        return Err(Fault::new(ExitCode::StorageUnavailable, sentence));
    }
    verdict?.map_or(Ok(()), |sentence| Err(Fault::new(ExitCode::DataDamaged, sentence)))
}

impl Arguments {
    fn dump_archive(&self, archive: Option<&Archive>) -> Result<(), Fault> {
        let source = Source::new(&self.directory, self.identity.as_deref());
        let (mut out, mut totals) = (Output::new(), Totals::default());
        let read = each_entry(archive, &source, &mut |file, entry| {
            totals.records += 1;
            totals.payload_bytes = totals.payload_bytes.saturating_add(entry.payload.len() as u64);
            for line in self.entry_lines(file, entry) {
                if !out.line(&line)? {
                    return Ok(false);
                }
            }
            Ok(true)
        });
        let Totals { records, payload_bytes, .. } = totals;
        let damage =
            read.as_ref().err().filter(|fault| fault.code == ExitCode::DataDamaged).map(|fault| &*fault.sentence);
        out.line(&match self.json {
            true => {
                json!({"kind": "end", "records": records, "payload_bytes": payload_bytes, "damage": damage}).to_string()
            }
            false => format!("records: {records}, bytes of payload: {payload_bytes}"),
        })?;
        out.finish()?;
        read
    }

    /// The lines of an entry in a file of an archive.
    fn entry_lines(&self, file: &str, entry: &Entry<'_>) -> Vec<String> {
        let Place { index, term, .. } = entry.place;
        let kind = if entry.is_membership { RecordKind::Membership } else { RecordKind::Entry };
        let bytes = entry.payload.len();
        let mut lines = Vec::new();
        if self.filter.is_empty() {
            lines.push(match self.json {
                true => {
                    let record = format!("{kind:?}");
                    json!({"kind": "record", "file": file, "record": record, "term": term, "index": index, "bytes": bytes})
                        .to_string()
                }
                false => format!("{file} {kind:?}: term {term}, index {index}, {bytes} bytes"),
            });
        }
        if !self.records {
            lines.extend(self.shown(index, operations_in(kind, Bytes::copy_from_slice(entry.payload))));
        }
        lines
    }

    /// The lines of an item: itself, and the operations of a log entry.
    fn lines(&self, dump: &mut Dump<'_, MmapDisk>, item: &DumpItem) -> Vec<String> {
        let mut lines = Vec::new();
        if self.filter.is_empty() {
            match self.json {
                true => lines.extend(json::of(item).map(|object| object.to_string())),
                false => lines.push(line(item)),
            }
        }
        let DumpItem::Record(record) = item else { return lines };
        if self.records {
            return lines;
        }
        lines.extend(self.shown(record.index, operations(dump, record)));
        lines
    }

    /// The lines of the operations in the entry with this index.
    fn shown(&self, index: u64, operations: Result<Vec<Operation>, String>) -> Vec<String> {
        match operations {
            Ok(found) => {
                let shown = found.iter().filter(|operation| self.filter.takes(operation));
                let line = |operation: &Operation| match self.json {
                    true => operation.json(index).to_string(),
                    false => operation.to_string(),
                };
                shown.map(line).collect()
            }
            Err(error) if self.json => vec![json!({"kind": "error", "index": index, "error": error}).to_string()],
            Err(error) => vec![format!("    {error}")],
        }
    }
}

/// The operations of a log entry.
fn operations(dump: &mut Dump<'_, MmapDisk>, record: &DumpRecord) -> Result<Vec<Operation>, String> {
    if !record.payload_checks || !matches!(record.kind, RecordKind::Entry | RecordKind::Membership) {
        return Ok(Vec::new());
    }
    let payload = dump.payload(record).map_err(|error| format!("the payload cannot be read any more: {error}"))?;
    operations_in(record.kind, Bytes::from(payload))
}

fn operations_in(kind: RecordKind, mut payload: Bytes) -> Result<Vec<Operation>, String> {
    if kind == RecordKind::Membership {
        payload = ConfChange::decode(&payload).map_err(|error| error.to_string())?.context;
    }
    // The first entry of a term is empty.
    if payload.is_empty() {
        Ok(Vec::new())
    } else {
        transactions::operations(&payload).map_err(|error| error.to_string())
    }
}

fn line(item: &DumpItem) -> String {
    match item {
        DumpItem::Durable { file, watermark, .. } => format!("DURABLE: durable to {watermark}, in {file}"),
        DumpItem::Segment { file, bytes, generation, base, fault, watermark, .. } => {
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

    fn json(&self, damage: Option<&str>) -> serde_json::Value {
        let last =
            self.last.as_ref().map(|last| json!({"file": last.file, "offset": last.offset, "index": last.index}));
        json!({
            "kind": "end", "segments": self.segments, "records": self.records, "payload_bytes": self.payload_bytes,
            "invalid_payloads": self.bad_payloads, "unreadable": self.unreadable, "last": last, "damage": damage,
        })
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
