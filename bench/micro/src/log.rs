//! The log's part: records stored into a segment in memory, as the log thread stores them into a mapping. No sync.

use super::tree::TIMES_MAX;
use corral_storage::{Entry, EntryKind, Log, LogConfig, Record, SimDisk};

/// A segment that holds whatever a case appends, so that none rolls to the next.
const SEGMENT_BYTES: usize = 64 << 20;
/// A lone small write, and a batch of 64.
const PAYLOADS_BYTES: [usize; 2] = [512, 16 << 10];
const _: () = assert!(TIMES_MAX as usize * (PAYLOADS_BYTES[1] + 4096) < SEGMENT_BYTES);

fn append(times: u32, payload_bytes: usize) {
    let config = LogConfig { segment_bytes: SEGMENT_BYTES, spares_max: 1, seed: 7, ..LogConfig::default() };
    let (mut log, _) = Log::open(SimDisk::new(), config, &mut |_| {}).expect("a new log");
    let payload = vec![7; payload_bytes];
    for index in 1..=u64::from(times) {
        let entry = Entry { term: 1, index, kind: EntryKind::Normal, first_zxid: index, payload: &payload };
        log.append(&[Record::Entry(entry)]).expect("there is room");
    }
    std::mem::forget(log);
}

pub(crate) fn append_small(times: u32) {
    append(times, PAYLOADS_BYTES[0]);
}

pub(crate) fn append_batch(times: u32) {
    append(times, PAYLOADS_BYTES[1]);
}
