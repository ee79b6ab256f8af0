//! Every byte and page of a small log damaged in turn: what was acknowledged is found, or the open is refused. Never a
//! silent loss, never a panic, never a wrong byte.
//!
//! By default every bit of the active segment and three damages a byte elsewhere; `CORRAL_LOG_DAMAGE=all` for all bits.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::common::{OwnedEntry, config, entries, hard_state, open};
use corral_storage::{Dump, DumpItem, LogError, SimDisk};
use corral_types::{Record, SplitMix64};

const PAGE_BYTES: usize = 4096;

/// A log at rest: acknowledged entries, and perhaps some that were appended but never synced.
struct Fixture {
    disk: SimDisk,
    acked: Vec<OwnedEntry>,
    unacked: Vec<OwnedEntry>,
    files: BTreeMap<String, Vec<u8>>,
    /// The same files at an earlier time.
    stale: BTreeMap<String, Vec<u8>>,
}

#[derive(Debug, Default)]
struct Counts {
    cases: u64,
    refused: u64,
    tail_cut: u64,
    intact: u64,
}

fn fixture(unacked_count: u64) -> Fixture {
    fixture_of(unacked_count, true)
}

/// Without `rested` the log never came to write its watermark down: its process was killed right behind an
/// acknowledgement.
fn fixture_of(unacked_count: u64, rested: bool) -> Fixture {
    let disk = SimDisk::new();
    let mut rng = SplitMix64::new(1);
    let (mut log, _) = open(&disk).expect("a new log opens");
    let (mut acked, mut unacked, mut stale) = (Vec::new(), Vec::new(), BTreeMap::new());
    for index in 1..=120 {
        let entry = OwnedEntry::made(1 + index / 50, index, 8 + rng.below(200) as usize);
        log.append(&[entry.record()]).expect("appends");
        acked.push(entry);
        if index % 3 == 0 {
            log.sync().expect("syncs");
        }
        if index == 20 {
            log.append(&[Record::HardState(hard_state(1, 2, 19))]).expect("appends");
        }
        if index == 100 {
            log.watermark_when_idle().expect("writes a watermark");
            stale = files_of(&disk);
        }
    }
    log.sync().expect("syncs");
    log.prepare_ahead().expect("prepares");
    if rested {
        log.watermark_when_idle().expect("writes a watermark");
    }
    for index in 121..121 + unacked_count {
        let entry = OwnedEntry::made(9, index, 8 + rng.below(200) as usize);
        log.append(&[entry.record()]).expect("appends");
        unacked.push(entry);
    }
    drop(log);
    let files = files_of(&disk);
    assert!(files.len() >= 4, "several segments and one ahead: {:?}", files.keys());
    Fixture { disk, acked, unacked, files, stale }
}

fn files_of(disk: &SimDisk) -> BTreeMap<String, Vec<u8>> {
    use corral_storage::Disk;
    let names = disk.list().expect("the simulated disk lists");
    names.into_iter().map(|name| (name.clone(), disk.content(&name).expect("listed files exist"))).collect()
}

impl Fixture {
    /// Opens a copy with one file replaced and classes the outcome.
    fn check(&self, counts: &mut Counts, name: &str, content: Option<Vec<u8>>, case: &dyn Fn() -> String) {
        use corral_storage::Disk;
        let disk = self.disk.fork();
        match content {
            Some(content) => disk.place(name, content),
            None => disk.remove(name).expect("the file is there"),
        }
        counts.cases += 1;
        let outcome = open(&disk).and_then(|(log, recovered)| Ok((entries(&log)?, recovered)));
        let (found, recovered) = match outcome {
            Ok(opened) => opened,
            Err(error) => {
                counts.refused += 1;
                assert!(error.to_string().contains("log-"), "{}: names no file: {error}", case());
                assert!(name != "DURABLE", "{}: a whole log is refused: {error}", case());
                return;
            }
        };
        assert!(found.len() >= self.acked.len(), "{}: SILENT LOSS: {} entries", case(), found.len());
        let expected = self.acked.iter().chain(&self.unacked);
        assert!(found.iter().zip(expected).all(|(found, made)| found == made), "{}: WRONG BYTES", case());
        assert!(found.len() <= self.acked.len() + self.unacked.len(), "{}: entries from nowhere", case());
        assert_eq!(recovered.hard_state, Some(hard_state(1, 2, 19)), "{}", case());
        if recovered.tail_cut.is_some() || found.len() < self.acked.len() + self.unacked.len() {
            counts.tail_cut += 1;
        } else {
            counts.intact += 1;
        }
    }

    /// Flips every bit (or one), zeroes and fills every byte of a part of a file.
    fn damage_bytes(&self, counts: &mut Counts, name: &str, range: Range<usize>, all_bits: bool) {
        let whole = &self.files[name];
        for at in range {
            let old = whole[at];
            let bits = (0..8).filter(|bit| all_bits || *bit == at % 8).map(|bit| old ^ (1 << bit));
            for value in bits.chain([0x00, 0xFF]) {
                if value != old {
                    let mut content = whole.clone();
                    content[at] = value;
                    self.check(counts, name, Some(content), &|| format!("{name} byte {at}: {old:#x} -> {value:#x}"));
                }
            }
        }
    }
}

/// Where a file's bytes mean anything: all but long runs of zeros at the end of a page.
fn interesting(content: &[u8]) -> Vec<Range<usize>> {
    let pages = content.chunks(PAGE_BYTES).enumerate();
    pages
        .map(|(nth, page)| {
            let used = page.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
            // A few bytes of the unused rest stand for all of it.
            nth * PAGE_BYTES..nth * PAGE_BYTES + (used + 80).min(page.len())
        })
        .collect()
}

fn run_bytes(fixture: &Fixture) -> Counts {
    let all = std::env::var("CORRAL_LOG_DAMAGE").is_ok_and(|value| value == "all");
    let active = fixture.files.keys().rev().nth(1).expect("the last but one segment is active");
    let mut total = Counts::default();
    std::thread::scope(|scope| {
        let mut parts: Vec<Vec<(&String, Range<usize>)>> = vec![Vec::new(), Vec::new()];
        for (nth, (name, range)) in fixture
            .files
            .iter()
            .flat_map(|(name, content)| interesting(content).into_iter().map(move |range| (name, range)))
            .enumerate()
        {
            parts[nth % 2].push((name, range));
        }
        let workers: Vec<_> = parts
            .into_iter()
            .map(|part| {
                scope.spawn(move || {
                    let mut counts = Counts::default();
                    for (name, range) in part {
                        fixture.damage_bytes(&mut counts, name, range, all || name == active);
                    }
                    counts
                })
            })
            .collect();
        for worker in workers {
            let counts = worker.join().expect("a case failed, see above");
            total.cases += counts.cases;
            total.refused += counts.refused;
            total.tail_cut += counts.tail_cut;
            total.intact += counts.intact;
        }
    });
    total
}

#[test]
fn every_byte_of_a_log_at_rest() {
    let counts = run_bytes(&fixture(0));
    println!("log at rest, bytes: {counts:?}, silent losses 0, panics 0");
    assert!(counts.refused > counts.cases / 2);
    assert!(counts.intact > 0);
}

#[test]
fn every_byte_of_a_log_whose_process_was_killed_behind_an_acknowledgement() {
    let counts = run_bytes(&fixture_of(0, false));
    println!("killed behind an acknowledgement, bytes: {counts:?}, silent losses 0, panics 0");
    assert!(counts.refused > counts.cases / 2);
    assert_eq!(counts.tail_cut, 0, "no acknowledged record is taken for a torn tail");
}

#[test]
fn every_byte_of_a_log_with_an_unsynced_tail() {
    let fixture = fixture(6);
    let mut counts = Counts::default();
    // Only the segment with the tail differs from the log at rest.
    let names: Vec<_> = fixture.files.keys().cloned().collect();
    let active = &names[names.len() - 2];
    for range in interesting(&fixture.files[active]).into_iter().skip(1) {
        fixture.damage_bytes(&mut counts, active, range, false);
    }
    println!("log with unsynced tail, bytes: {counts:?}, silent losses 0, panics 0");
    assert!(counts.tail_cut > 0);
}

#[test]
fn truncation_at_every_length() {
    let fixture = fixture(3);
    let mut counts = Counts::default();
    for (name, content) in &fixture.files {
        for length in 0..content.len() {
            fixture.check(&mut counts, name, Some(content[..length].to_vec()), &|| format!("{name} cut to {length}"));
        }
    }
    println!("truncations: {counts:?}");
    assert_eq!(counts.refused + fixture.files["DURABLE"].len() as u64, counts.cases, "that file is made anew");
}

#[test]
fn every_page_zeroed_filled_swapped_or_stale() {
    for unacked in [0, 40] {
        let fixture = fixture(unacked);
        let mut counts = Counts::default();
        let pages: Vec<(&String, usize)> = fixture
            .files
            .iter()
            .flat_map(|(name, content)| (0..content.len() / PAGE_BYTES).map(move |page| (name, page * PAGE_BYTES)))
            .collect();
        for &(name, at) in &pages {
            let whole = &fixture.files[name];
            let mut put = |what: &str, page: &[u8]| {
                let mut content = whole.clone();
                content[at..at + PAGE_BYTES].copy_from_slice(page);
                if content != *whole {
                    fixture.check(&mut counts, name, Some(content), &|| format!("{name} page at {at}: {what}"));
                }
            };
            put("zeros", &[0; PAGE_BYTES]);
            put("ones", &[0xFF; PAGE_BYTES]);
            for &(other, other_at) in &pages {
                put("another page", &fixture.files[other][other_at..other_at + PAGE_BYTES]);
            }
            if let Some(stale) = fixture.stale.get(name) {
                put("stale", &stale[at..at + PAGE_BYTES]);
            }
        }
        for &(name, at) in &pages {
            let other_at = (at + PAGE_BYTES) % fixture.files[name].len();
            let mut content = fixture.files[name].clone();
            let (low, high) = (at.min(other_at), at.max(other_at));
            let (front, back) = content.split_at_mut(high);
            front[low..low + PAGE_BYTES].swap_with_slice(&mut back[..PAGE_BYTES]);
            if content != fixture.files[name] {
                fixture.check(&mut counts, name, Some(content), &|| format!("{name}: pages {low} and {high} swapped"));
            }
        }
        println!("pages, {unacked} unsynced entries: {counts:?}, silent losses 0, panics 0");
        assert!(counts.refused > 0);
    }
}

#[test]
fn each_file_missing_or_replaced() {
    let fixture = fixture(0);
    let mut counts = Counts::default();
    for name in fixture.files.keys() {
        fixture.check(&mut counts, name, None, &|| format!("{name} removed"));
        fixture.check(&mut counts, name, Some(Vec::new()), &|| format!("{name} emptied"));
        for (other, content) in &fixture.files {
            if other != name {
                fixture.check(&mut counts, name, Some(content.clone()), &|| format!("{name} replaced by {other}"));
            }
        }
    }
    println!("files: {counts:?}");
    // Only the empty segment prepared ahead may go without a word, and the file that is not part of the log.
    assert_eq!((counts.intact, counts.tail_cut), (1 + 1 + fixture.files.len() as u64, 0));
}

/// The last record of the log and the mark behind it: name of the file, offsets.
fn end_of(disk: &SimDisk) -> (String, usize, usize) {
    let (mut last, mut mark) = ((String::new(), 0), None);
    for item in Dump::new(disk.clone()).expect("lists") {
        match item {
            DumpItem::Record(record) => last = (record.file, record.offset as usize),
            DumpItem::Mark { offset, watermark, .. } => mark = Some((offset as usize, watermark)),
            _ => {}
        }
    }
    let (mark, watermark) = mark.expect("a sync leaves a mark");
    assert_eq!(watermark as usize % config().segment_bytes, mark, "it tells its own place");
    assert!(mark > last.1);
    (last.0, last.1, mark)
}

/// A process killed right behind an acknowledgement, at every state of its log: a flipped bit of the last record is
/// damage.
#[test]
fn every_bit_of_the_last_record_of_a_killed_process() {
    let (mut cases, mut rolls, mut at_the_brim) = (0_u64, 0_u64, 0_u64);
    for seed in 0..60 {
        let (disk, mut rng) = (SimDisk::new(), SplitMix64::new(seed));
        let (mut log, _) = open(&disk).expect("a new log opens");
        let mut next = 1;
        for _ in 0..rng.below(20) {
            for _ in 0..1 + rng.below(5) {
                // Some fill the segment to the last byte behind which a seal fits.
                let (room, _) = log.room();
                let bytes = if (64..3000).contains(&room) { room - 64 } else { rng.below(700) as usize };
                log.append(&[OwnedEntry::made(1, next, bytes).record()]).expect("appends");
                next += 1;
            }
            if rng.below(8) == 0 {
                next += 50;
                log.reset_to(next).expect("resets");
            }
            log.sync().expect("syncs");
        }
        at_the_brim += u64::from(log.room().0 == 0);
        drop(log);
        if rng.below(4) == 0 {
            // Clients see the entries that a recovery found as well.
            drop(open(&disk).expect("opens"));
        }
        let files = files_of(&disk);
        let (name, from, to) = end_of(&disk);
        rolls += u64::from(name != *files.keys().find(|name| name.starts_with("log-")).expect("there are segments"));
        for bit in from * 8..to * 8 {
            let mut content = files[&name].clone();
            content[bit / 8] ^= 1 << (bit % 8);
            let disk = disk.fork();
            disk.place(&name, content.clone());
            let Err(error) = open(&disk) else {
                padding(&content, from, to, bit, seed);
                continue;
            };
            assert!(matches!(error, LogError::Damaged { .. }), "seed {seed} bit {bit}: {error}");
            assert!(disk.content(&name) == Some(content), "seed {seed} bit {bit}: changed on disk");
            cases += 1;
        }
    }
    println!("{cases} bits of last records, each refused; {rolls} logs with several segments, {at_the_brim} full ones");
    assert!(rolls > 5 && at_the_brim > 0);
}

/// The up to seven bytes behind a payload mean nothing.
fn padding(segment: &[u8], header: usize, end: usize, bit: usize, seed: u64) {
    let payload = u32::from_le_bytes(segment[header..header + 4].try_into().expect("four bytes")) as usize;
    assert!(
        bit / 8 >= header + 64 + payload && bit / 8 < end,
        "seed {seed}: bit {bit} of {header}..{end} is not missed"
    );
}

#[test]
fn a_dump_of_a_damaged_log_shows_what_is_left() {
    let fixture = fixture(2);
    let records = |disk: &SimDisk| {
        let items = Dump::new(disk.clone()).expect("lists");
        items.filter(|item| matches!(item, DumpItem::Record(record) if record.payload_checks)).count()
    };
    let whole = records(&fixture.disk);
    assert!(whole > 120, "{whole} records");
    let name = fixture.files.keys().find(|name| name.starts_with("log-")).expect("there are segments");
    let mut rng = SplitMix64::new(7);
    for case in 0..500 {
        let mut content = fixture.files[name].clone();
        match case % 3 {
            0 => content.truncate(rng.below(content.len() as u64) as usize),
            1 => content[..PAGE_BYTES].fill(0xFF),
            _ => {}
        }
        for _ in 0..rng.below(4) {
            if !content.is_empty() {
                let at = rng.below(content.len() as u64) as usize;
                content[at] ^= 0x10;
            }
        }
        let disk = fixture.disk.fork();
        disk.place(name, content);
        assert!(records(&disk) <= whole);
    }
    // A damaged header alone hides no record.
    let disk = fixture.disk.fork();
    let mut content = fixture.files[name].clone();
    content[..PAGE_BYTES].fill(0);
    disk.place(name, content);
    assert_eq!(records(&disk), whole);
    assert!(open(&disk).is_err());
}

#[test]
fn a_log_with_one_bad_byte_in_the_tail_names_file_and_offset() {
    let fixture = fixture(0);
    let names: Vec<_> = fixture.files.keys().cloned().collect();
    let active = &names[names.len() - 2];
    let disk = fixture.disk.fork();
    let (name, last, _) = end_of(&disk);
    assert_eq!(name, *active);
    let mut content = fixture.files[active].clone();
    content[last + 64] ^= 1;
    disk.place(active, content);
    let error = corral_storage::Log::open(disk, config(), &mut |_| {}).err().expect("damage is refused");
    let text = error.to_string();
    assert!(text.contains(active) && text.contains("offset") && text.contains("backup"), "{text}");
}

#[test]
fn damage_to_entries_that_a_snapshot_holds_is_stepped_over() {
    let fixture = fixture(0);
    let (mut stepped, mut refused) = (0, 0);
    for held in [0, 30, 90, 119, 120] {
        for (name, content) in &fixture.files {
            for at in interesting(content).into_iter().flatten().step_by(23) {
                let mut content = content.clone();
                content[at] ^= 0x10;
                let disk = fixture.disk.fork();
                disk.place(name, content);
                let config = corral_storage::LogConfig { held, ..config() };
                let Ok((log, recovered)) = corral_storage::Log::open(disk, config, &mut |_| {}) else {
                    refused += u64::from(held == 0);
                    continue;
                };
                let first = usize::try_from(recovered.first_index).expect("it is small");
                let found = entries(&log).expect("what was opened is readable");
                assert_eq!(found, fixture.acked[first - 1..], "{name} byte {at}, held to {held}");
                assert!(first as u64 <= held + 1, "{name} byte {at}: an entry that no snapshot holds is gone");
                assert!(first == 1 || recovered.stepped_over.is_some(), "{name} byte {at}");
                if let Some(over) = recovered.stepped_over {
                    assert!(&over.file == name && over.offset <= at as u64 && over.places == 1, "{over:?}");
                    stepped += 1;
                }
            }
        }
    }
    assert!(stepped > 100 && refused > 100, "{stepped} {refused}");
}

#[test]
fn a_segment_whose_entries_a_snapshot_holds_may_be_missing_or_no_segment() {
    use corral_storage::Disk;
    let fixture = fixture(0);
    let segments: Vec<_> = fixture.files.keys().filter(|name| name.starts_with("log-")).collect();
    let mut begun = Vec::new();
    for held in [0, 60, 120] {
        for (nth, name) in segments.iter().enumerate() {
            for content in [None, Some(vec![0; fixture.files[*name].len()])] {
                let disk = fixture.disk.fork();
                let is_there = content.is_some();
                match content {
                    Some(content) => disk.place(name, content),
                    None => disk.remove(name).expect("the file is there"),
                }
                let config = corral_storage::LogConfig { held, ..config() };
                let Ok((log, recovered)) = corral_storage::Log::open(disk.clone(), config.clone(), &mut |_| {}) else {
                    continue;
                };
                let first = usize::try_from(recovered.first_index).expect("it is small");
                let found = entries(&log).expect("what was opened is readable");
                assert_eq!(found, fixture.acked[first - 1..], "{name}, held to {held}");
                assert!(first as u64 <= held + 1, "{name}: an entry that no snapshot holds is gone");
                let Some(over) = recovered.stepped_over else { continue };
                assert_eq!(over.file, **name);
                assert_eq!(recovered.put_aside.len(), nth + usize::from(is_there));
                begun.push((held, first));
                // Put aside in part, as a crash leaves it, it opens again.
                drop(log);
                for name in &recovered.put_aside {
                    disk.remove(name).expect("the file is there");
                    let (_, again) =
                        corral_storage::Log::open(disk.clone(), config.clone(), &mut |_| {}).expect("opens");
                    assert_eq!(again.first_index, recovered.first_index);
                }
            }
        }
    }
    assert!(begun.iter().any(|(held, _)| *held == 60) && begun.iter().any(|(_, first)| *first > 61), "{begun:?}");
    assert!(begun.iter().all(|(held, _)| *held > 0));
}
