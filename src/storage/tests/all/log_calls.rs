//! The guarantees of each call of the log, without crashes: order, limits, recycling, space, dumps, configuration.

use std::io;

use crate::common::{OwnedEntry, config, entries, hard_state, open};
use corral_storage::{Disk, Dump, DumpItem, Durable, Log, LogConfig, LogError, RecordKind, SimDisk};
use corral_types::{EntryKind, HardState, Index, Record, StoredEntry, Term};

fn append(log: &mut Log<SimDisk>, made: &[OwnedEntry]) {
    let records: Vec<_> = made.iter().map(OwnedEntry::record).collect();
    log.append(&records).expect("appends");
}

fn run(term: u64, indexes: std::ops::RangeInclusive<u64>, bytes: usize) -> Vec<OwnedEntry> {
    indexes.map(|index| OwnedEntry::made(term, index, bytes)).collect()
}

#[test]
fn a_new_log_is_empty_and_begins_where_configured() {
    let disk = SimDisk::new();
    let (log, recovered) =
        Log::open(disk.clone(), LogConfig { first_index: 77, ..config() }, &mut |_| {}).expect("opens");
    assert_eq!((recovered.first_index, recovered.last_index), (77, 76));
    assert_eq!((recovered.hard_state, recovered.last_term, recovered.tail_cut), (None, None, None));
    assert_eq!(log.durable(), Durable { position: log.durable().position, last_index: 76 });
    drop(log);
    let (_, recovered) = open(&disk).expect("opens again");
    assert_eq!((recovered.first_index, recovered.last_index), (77, 76));
}

#[test]
fn reading_begins_earlier_by_as_many_bytes_as_asked_for() {
    let disk = SimDisk::new();
    let (mut log, _) = open(&disk).expect("opens");
    append(&mut log, &run(1, 1..=20, 1000));
    append(&mut log, &run(3, 21..=30, 1000));
    log.sync().expect("syncs");
    let check =
        |at: (u64, u64), bytes, expect| assert_eq!(log.reach_back(at, bytes), expect, "{bytes} bytes before {at:?}");
    check((25, 3), 0, (25, 3));
    check((25, 3), 999, (25, 3));
    check((25, 3), 3_500, (22, 3));
    check((25, 3), 8_900, (17, 1));
    // The term of the entry before the first one is not known.
    check((25, 3), 1 << 30, (1, 1));
    check((1, 1), 1 << 30, (1, 1));
    // Another entry was committed there, none is held there, an empty tree has none.
    check((25, 2), 1 << 30, (25, 2));
    check((31, 3), 1 << 30, (31, 3));
    check((0, 0), 1 << 30, (0, 0));
}

#[test]
fn a_missing_log_is_refused_where_one_must_be() {
    let config = LogConfig { create_if_missing: false, ..config() };
    assert!(matches!(Log::open(SimDisk::new(), config, &mut |_| {}), Err(LogError::NoLog)));
}

#[test]
fn entries_come_back_with_their_hard_state() {
    let disk = SimDisk::new();
    let (mut log, _) = open(&disk).expect("opens");
    let made = run(3, 1..=100, 333);
    append(&mut log, &made);
    let state = hard_state(3, 2, 99);
    log.append(&[Record::HardState(state)]).expect("appends");
    let before = log.durable().position;
    let durable = log.sync().expect("syncs");
    assert!(durable.position > before && durable.last_index == 100);
    assert_eq!(log.sync().expect("syncs"), durable, "a second sync has nothing to do");
    assert_eq!(entries(&log).expect("reads"), made);
    drop(log);
    let mut told = Vec::new();
    let (log, recovered) = Log::open(disk, config(), &mut |progress| told.push(progress)).expect("opens");
    assert_eq!((recovered.hard_state, recovered.last_term), (Some(state), Some(3)));
    assert_eq!((recovered.first_index, recovered.last_index), (1, 100));
    assert_eq!(entries(&log).expect("reads"), made);
    let last = told.last().expect("progress is told");
    assert!(told.len() > 2 && last.entries == 100 && last.segments_done == told.len());
}

#[test]
fn an_earlier_index_supersedes_the_tail() {
    let disk = SimDisk::new();
    let (mut log, _) = open(&disk).expect("opens");
    append(&mut log, &run(1, 1..=60, 300));
    append(&mut log, &run(2, 31..=40, 300));
    assert_eq!((log.last_index(), log.term(30), log.term(31), log.term(41)), (40, Some(1), Some(2), None));
    let expected = [run(1, 1..=30, 300), run(2, 31..=40, 300)].concat();
    assert_eq!(entries(&log).expect("reads"), expected);
    log.sync().expect("syncs");
    drop(log);
    let (log, recovered) = open(&disk).expect("opens");
    assert_eq!((recovered.last_index, recovered.last_term), (40, Some(2)));
    assert_eq!(entries(&log).expect("reads"), expected);
}

#[test]
fn reading_is_bounded_but_never_stuck() {
    let disk = SimDisk::new();
    let (mut log, _) = open(&disk).expect("opens");
    append(&mut log, &run(1, 1..=10, 100));
    for (from, max_bytes, next) in [(1, 0, 2), (1, 100, 2), (1, 250, 3), (5, 10_000, 11), (11, 10, 11)] {
        assert_eq!(log.read(from, max_bytes, &mut |_| {}).expect("reads"), next, "from {from} max {max_bytes}");
    }
    for from in [0, 12, u64::MAX] {
        let outcome = log.read(from, 10, &mut |_| {});
        assert!(matches!(outcome, Err(LogError::NotHeld { first: 1, next: 11, .. })), "from {from}");
    }
}

#[test]
fn a_batch_that_cannot_be_taken_leaves_the_log_as_it_was() {
    let disk = SimDisk::new();
    let (mut log, _) = open(&disk).expect("opens");
    append(&mut log, &run(1, 1..=5, 10));
    let huge = vec![0; log.payload_bytes_max() + 1];
    let entry = |index, payload| {
        Record::Entry(StoredEntry {
            term: Term(1),
            index: Index(index),
            kind: EntryKind::Normal,
            first_zxid: 0,
            payload,
        })
    };
    assert!(matches!(log.append(&[entry(6, b"x"), entry(8, b"gap")]), Err(LogError::OutOfOrder { next: 7, .. })));
    assert!(matches!(log.append(&[entry(0, b"x")]), Err(LogError::OutOfOrder { .. })));
    assert!(matches!(log.append(&[entry(6, b"x"), entry(7, &huge)]), Err(LogError::TooLarge { .. })));
    assert_eq!(log.last_index(), 5);
    log.append(&[entry(6, &huge[1..])]).expect("the largest payload fits");
    log.append(&[entry(7, &huge[1..]), entry(8, b"after")]).expect("and rolls");
    log.sync().expect("syncs");
    drop(log);
    let (log, _) = open(&disk).expect("opens");
    assert_eq!(log.last_index(), 8);
}

#[test]
fn trimmed_segments_are_recycled_and_their_records_never_return() {
    let disk = SimDisk::new();
    let (mut log, _) = open(&disk).expect("opens");
    let (mut recycled, mut made) = (0, 0);
    for round in 0..40_u64 {
        let from = log.last_index() + 1;
        append(&mut log, &run(1 + round, from..=from + 19, 190));
        log.append(&[Record::HardState(hard_state(1 + round, 1, from))]).expect("appends");
        log.sync().expect("syncs");
        recycled += log.trim_before(from).expect("trims");
        if round % 3 == 0 {
            // The tail of a recycled file is full of old records; none of them may be found.
            let expected = entries(&log).expect("reads");
            drop(log);
            let (again, recovered) = open(&disk).expect("opens");
            assert_eq!(recovered.tail_cut, None, "old records are no torn tail");
            assert_eq!(recovered.hard_state, Some(hard_state(1 + round, 1, from)));
            let found = entries(&again).expect("reads");
            assert!(expected.ends_with(&found) || found.ends_with(&expected));
            log = again;
        }
        made = made.max(disk.list().expect("lists").len());
    }
    assert!(recycled > 10 && made <= 6, "{recycled} recycled, at most {made} files");
}

#[test]
fn the_pool_of_spares_is_bounded_and_can_be_filled_from_elsewhere() {
    let disk = SimDisk::new();
    let (mut log, _) = open(&disk).expect("opens");
    let job = log.spare_job().expect("there is no spare");
    let spare = std::thread::scope(|scope| scope.spawn(|| job.run()).join().expect("runs")).expect("makes a file");
    log.accept_spare(spare);
    assert!(log.spare_job().is_none());
    assert!(log.prepare_ahead().expect("prepares"));
    assert!(!log.prepare_ahead().expect("nothing to do"));
    assert!(log.room().1);
    append(&mut log, &run(1, 1..=400, 300));
    log.sync().expect("syncs");
    assert!(log.trim_before(400).expect("trims") > 5);
    let names = disk.list().expect("lists");
    assert_eq!(names.iter().filter(|name| name.starts_with("spare-")).count(), 1, "{names:?}");
}

#[test]
fn a_full_disk_refuses_writes_and_nothing_else() {
    let disk = SimDisk::new();
    let (mut log, _) = open(&disk).expect("opens");
    disk.limit_space(Some(20 << 10));
    let mut refused_at = 0;
    for index in 1..200 {
        let entry = OwnedEntry::made(1, index, 300);
        match log.append(&[entry.record()]) {
            Ok(()) => {}
            Err(LogError::NoSpace { .. }) => {
                refused_at = index;
                break;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(refused_at > 10);
    assert!(matches!(log.prepare_ahead(), Err(LogError::NoSpace { .. })));
    log.sync().expect("what was taken can be synced");
    assert_eq!(entries(&log).expect("reads go on").len() as u64, refused_at - 1);
    disk.limit_space(None);
    append(&mut log, &run(1, refused_at..=refused_at + 10, 300));
    log.sync().expect("syncs");
    drop(log);
    assert_eq!(open(&disk).expect("opens").1.last_index, refused_at + 10);
}

/// Descriptors are missing for a while: the log goes on when there are some again, and says what is missing.
#[test]
fn a_segment_that_cannot_be_opened_for_want_of_something_is_tried_again() {
    for (errno, missing) in [(24, "no file descriptors"), (23, "no open files on this host"), (12, "no memory")] {
        let disk = SimDisk::new();
        // A spare that is found at the start is opened when it is needed.
        let (mut log, _) = open(&disk).expect("opens");
        append(&mut log, &run(1, 1..=400, 300));
        log.sync().expect("syncs");
        assert!(log.trim_before(400).expect("trims") > 0);
        drop(log);
        let (mut log, found) = open(&disk).expect("opens");
        let spares = || disk.list().expect("lists").iter().filter(|name| name.starts_with("spare-")).count();
        let before = spares();
        assert!(before > 0);
        disk.refuse_files(Some(errno));
        let mut next = found.last_index + 1;
        let error = loop {
            match log.append(&[OwnedEntry::made(1, next, 300).record()]) {
                Ok(()) => next += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, LogError::NoSpace { .. }), "{error}");
        assert!(error.to_string().starts_with(missing), "{error}");
        log.sync().expect("what was taken can be synced");
        disk.refuse_files(None);
        append(&mut log, &run(1, next..=next + 400, 300));
        log.sync().expect("syncs");
        assert_eq!(spares(), 0, "the spare was used");
        drop(log);
        assert_eq!(open(&disk).expect("opens").1.last_index, next + 400);
    }
    let disk = SimDisk::new();
    let (mut log, _) = open(&disk).expect("opens");
    disk.refuse_files(Some(5));
    assert!(matches!(log.prepare_ahead(), Err(LogError::Io { .. })), "an error of the disk is no shortage");
}

#[test]
fn a_reset_voids_what_was_there() {
    let disk = SimDisk::new();
    let (mut log, _) = open(&disk).expect("opens");
    append(&mut log, &run(1, 1..=80, 300));
    let state = hard_state(4, 1, 70);
    log.append(&[Record::HardState(state)]).expect("appends");
    log.reset_to(5000).expect("resets");
    assert_eq!((log.first_index(), log.last_index(), log.term(80)), (5000, 4999, None));
    append(&mut log, &run(4, 5000..=5003, 10));
    log.sync().expect("syncs");
    drop(log);
    let (log, recovered) = open(&disk).expect("opens");
    assert_eq!((recovered.first_index, recovered.last_index), (5000, 5003));
    assert_eq!(recovered.hard_state, Some(state));
    assert_eq!(entries(&log).expect("reads"), run(4, 5000..=5003, 10));
}

/// Regression: an open behind a snapshot kept entries that contradict it, with all behind them.
#[test]
fn behind_a_snapshot_goes_on_only_what_belongs_there() {
    for (snapshot, expect) in
        [((5, 4), (1, 9)), ((9, 4), (1, 9)), ((5, 6), (6, 5)), ((9, 6), (10, 9)), ((12, 6), (13, 12))]
    {
        let disk = SimDisk::new();
        let (mut log, _) = open(&disk).expect("opens");
        append(&mut log, &run(4, 1..=9, 10));
        log.sync().expect("syncs");
        drop(log);
        let (mut log, mut found) = open(&disk).expect("opens");
        log.go_on_behind(&mut found, snapshot).expect("resets");
        drop(log);
        let recovered = open(&disk).expect("opens").1;
        assert_eq!((found.first_index, found.last_index), expect, "{snapshot:?}");
        assert_eq!((recovered.first_index, recovered.last_index), expect, "{snapshot:?}");
    }
}

#[test]
fn another_segment_size_is_taken_up_at_the_next_segment() {
    let disk = SimDisk::new();
    let (mut log, _) = open(&disk).expect("opens");
    append(&mut log, &run(1, 1..=80, 300));
    log.prepare_ahead().expect("prepares");
    log.sync().expect("syncs");
    drop(log);
    for segment_bytes in [32 << 10, 16 << 10, 64 << 10] {
        let (mut log, recovered) =
            Log::open(disk.clone(), LogConfig { segment_bytes, ..config() }, &mut |_| {}).expect("opens");
        let from = recovered.last_index + 1;
        let bytes = log.payload_bytes_max();
        append(&mut log, &run(1, from..=from + 2, bytes));
        log.prepare_ahead().expect("prepares");
        log.sync().expect("syncs");
    }
    assert_eq!(open(&disk).expect("opens").1.last_index, 89);
}

#[test]
fn odd_configurations_and_files_are_refused() {
    for segment_bytes in [0, 4096, (16 << 10) + 1, 2 << 30] {
        let outcome = Log::open(SimDisk::new(), LogConfig { segment_bytes, ..config() }, &mut |_| {});
        assert!(matches!(outcome, Err(LogError::Config { .. })), "{segment_bytes}");
    }
    let disk = SimDisk::new();
    drop(open(&disk).expect("opens"));
    let check = |name: &str, content: Vec<u8>, expect: fn(&LogError) -> bool| {
        let disk = disk.fork();
        disk.place(name, content);
        let error = open(&disk).err().expect("refused");
        assert!(expect(&error), "{name}: {error}");
    };
    let segment = "log-0000000000000001.seg";
    let content = disk.content(segment).expect("is there");
    check("log-1.seg", Vec::new(), |error| matches!(error, LogError::StrayFile { .. }));
    check(segment, Vec::new(), |error| matches!(error, LogError::Damaged { .. }));
    check(segment, vec![0; 16 << 10], |error| matches!(error, LogError::NotASegment { .. }));
    check("log-0000000000000009.seg", content.clone(), |error| matches!(error, LogError::MissingSegment { .. }));
    check("log-0000000000000002.seg", content.clone(), |error| matches!(error, LogError::Damaged { .. }));
    let mut newer = content;
    newer[8] = 2;
    let crc = crc32c::crc32c(&newer[..40]).to_le_bytes();
    newer[40..44].copy_from_slice(&crc);
    check(segment, newer, |error| matches!(error, LogError::WrongVersion { found: 2, .. }));
    // Files of others are none of the log's business; unfinished ones of its own go.
    disk.place("image-0000000000000001.img", vec![1]);
    disk.place("spare-0000000000000001.seg.tmp", vec![1]);
    disk.place("spare-0000000000000002.seg", vec![1]);
    let (mut log, _) = open(&disk).expect("opens");
    append(&mut log, &run(1, 1..=100, 300));
    let names = disk.list().expect("lists");
    assert!(names.contains(&"image-0000000000000001.img".to_owned()));
    assert!(!names.iter().any(|name| name.ends_with(".tmp") || name.contains("02.seg") && name.contains("spare")));
}

#[test]
fn a_dump_tells_every_record() {
    let disk = SimDisk::new();
    let (mut log, _) = open(&disk).expect("opens");
    append(&mut log, &run(1, 1..=60, 300));
    log.append(&[Record::HardState(HardState::default())]).expect("appends");
    log.sync().expect("syncs");
    log.watermark_when_idle().expect("writes");
    let durable = log.durable().position;
    drop(log);
    let items: Vec<_> = Dump::new(disk).expect("lists").collect();
    let of_kind =
        |wanted| items.iter().filter(|item| matches!(item, DumpItem::Record(record) if record.kind == wanted)).count();
    assert_eq!((of_kind(RecordKind::Entry), of_kind(RecordKind::Membership)), (51, 9));
    assert_eq!(of_kind(RecordKind::HardState), 1);
    assert_eq!(of_kind(RecordKind::Start), of_kind(RecordKind::Seal) + 1);
    let marks = items.iter().filter_map(|item| match item {
        DumpItem::Segment { watermark, fault: None, .. } => *watermark,
        _ => None,
    });
    assert_eq!(marks.max(), Some(durable));
    assert!(items.iter().all(|item| !matches!(item, DumpItem::Gap { zero: false, .. })));
}

#[test]
fn a_dump_gives_the_payloads_of_its_records_as_long_as_the_file_holds_them() {
    let disk = SimDisk::new();
    let (mut log, _) = open(&disk).expect("opens");
    let entries = run(1, 1..=3, 300);
    append(&mut log, &entries);
    log.sync().expect("syncs");
    drop(log);
    let mut dump = Dump::new(disk.clone()).expect("lists");
    let mut found = Vec::new();
    while let Some(item) = dump.next() {
        if let DumpItem::Record(record) = item
            && matches!(record.kind, RecordKind::Entry | RecordKind::Membership)
        {
            let payload = dump.payload(&record).expect("it is there");
            found.push((record, payload));
        }
    }
    assert_eq!(found.len(), 3);
    for (record, payload) in found {
        let mut content = disk.content(&record.file).expect("it is there");
        let at = usize::try_from(record.offset).expect("it is small") + 64;
        assert_eq!(payload, content[at..at + payload.len()]);
        content[at] ^= 1;
        disk.place(&record.file, content.clone());
        let payload = || Dump::new(disk.clone()).expect("lists").payload(&record).map_err(|error| error.kind());
        let changed = payload();
        disk.place(&record.file, content[..at + 1].to_vec());
        let cut = payload();
        assert_eq!((changed, cut), (Err(io::ErrorKind::UnexpectedEof), Err(io::ErrorKind::UnexpectedEof)));
        content[at] ^= 1;
        disk.place(&record.file, content);
    }
}
