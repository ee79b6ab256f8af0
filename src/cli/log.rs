//! `corral log dump`: prints the records of a log directory, also of a damaged one. The main thread only; reads, never
//! writes.
//!
//! It judges nothing: an unfinished record at the end is what a power failure leaves, and only the server's recovery
//! knows whether it had been acknowledged.

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
/// A fault when the directory, or a file in it, cannot be read, or is not corral's.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Fault> {
    let disk = MmapDisk::open_read_only(&arguments.path)?;
    let items = Dump::new(disk).map_err(|error| {
        Fault::new(ExitCode::StorageUnavailable, format!("{}: cannot be listed: {error}", arguments.path.display()))
    })?;
    let mut out = Output::new();
    let mut totals = Totals::default();
    for item in items {
        totals.add(&item);
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
    Ok(())
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
        DumpItem::Gap { file, offset, bytes, zero: true } => format!("{file} {offset:>10} free, {bytes} bytes"),
        DumpItem::Gap { file, offset, bytes, zero: false } => {
            format!(
                "{file} {offset:>10} no record, {bytes} bytes: an earlier use of the file, an unfinished record, or \
                damage"
            )
        }
        DumpItem::Unreadable { file, error } => format!("{file} CANNOT BE READ: {error}"),
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
