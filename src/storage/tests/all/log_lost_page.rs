//! One page of a data directory's log files is lost between the end of a process and the next start. No acknowledged
//! write is lost, whatever page it is and at whatever point the process ended. The log opens with all of them, or is
//! refused as damaged.
//!
//! Logs have random histories (appends, rolls, trims, resets, rests, restarts). Each page of each file in turn is
//! zeroed, filled with ones, with noise, or with its earlier content, or has one bit flipped. The tests use a simulated
//! disk and a real one.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::common::{Done, Model, OwnedEntry, entries, hard_state, open};
use corral_storage::{Disk, Log, LogError, MmapDisk, Recovered, SimDisk, SyncRecipe};
use corral_types::{Record, SplitMix64};

const PAGE_BYTES: usize = 4096;

type Files = BTreeMap<String, Vec<u8>>;

/// Refused; or the missing entries; or else whether something was truncated, and was known not to be acknowledged.
type Opened = Result<Result<Option<bool>, String>, LogError>;

/// The acknowledged calls, and the calls appended after them.
struct History {
    acknowledged: Model,
    after: Vec<Done>,
    rested: bool,
    /// The files at an earlier time.
    earlier: Files,
}

/// Lives through a random history up to the end of the process, which may come at any time.
fn live<D: Disk>(disk: &D, seed: u64, look: &dyn Fn() -> Files) -> History {
    let mut rng = SplitMix64::new(seed);
    let (mut log, _) = open(disk).expect("a new log opens");
    let mut history =
        History { acknowledged: Model::new(), after: Vec::new(), rested: false, earlier: BTreeMap::new() };
    let steps = rng.below(40);
    for step in 0..steps {
        if step == steps / 2 {
            history.earlier = look();
        }
        history.rested = false;
        match rng.below(20) {
            0 => drop(log.prepare_ahead().expect("prepares")),
            1 if history.after.is_empty() => {
                let next = history.acknowledged.next();
                let first = history.acknowledged.first;
                log.trim_before(first + rng.below(next - first + 1)).expect("trims");
                history.acknowledged.trim(log.first_index());
            }
            2 if history.after.is_empty() => {
                let next = history.acknowledged.next() + rng.below(9);
                log.reset_to(next).expect("resets");
                history.acknowledged.apply(&Done::Reset(next));
            }
            3 | 4 => {
                acknowledge(&mut log, &mut history);
                history.rested = log.watermark_when_idle().is_ok();
            }
            5 if history.after.is_empty() => {
                drop(log);
                (log, _) = open(disk).expect("opens again");
            }
            6 => {
                let state = hard_state(step + 1, rng.below(4), history.acknowledged.first - 1);
                log.append(&[Record::HardState(state)]).expect("appends");
                history.after.push(Done::HardState(state));
            }
            other => {
                for _ in 0..=rng.below(4) {
                    append(&mut log, &mut history, &mut rng, step);
                }
                if other < 17 {
                    acknowledge(&mut log, &mut history);
                }
            }
        }
    }
    history
}

fn append<D: Disk>(log: &mut Log<D>, history: &mut History, rng: &mut SplitMix64, step: u64) {
    let mut now = history.acknowledged.clone();
    history.after.iter().for_each(|done| now.apply(done));
    // Now and then an entry supersedes the last one, as a follower's do; some fill the segment to its last byte.
    let over = u64::from(now.entries.len() > 2 && rng.below(12) == 0);
    let (room, _) = log.room();
    let bytes = if (64..3000).contains(&room) { room - 64 } else { rng.below(1500) as usize };
    let entry = OwnedEntry::made(step + 1, now.next() - over, bytes);
    log.append(&[entry.record()]).expect("appends");
    history.after.push(Done::Entry(entry));
}

fn acknowledge<D: Disk>(log: &mut Log<D>, history: &mut History) {
    log.sync().expect("syncs");
    for done in history.after.drain(..) {
        history.acknowledged.apply(&done);
    }
}

#[derive(Debug, Default)]
struct Counts {
    logs: u64,
    pages: u64,
    refused: u64,
    opened: u64,
    cut: u64,
    several_segments: u64,
}

impl History {
    /// Whether the opened log is in one of its possible states: all acknowledged calls, and any beginning of the calls
    /// after them.
    fn judge(&self, log: &Log<impl Disk>, recovered: &Recovered) -> Result<(), String> {
        let found = entries(log).map_err(|error| error.to_string())?;
        let mut model = self.acknowledged.clone();
        let mut steps = self.after.iter();
        loop {
            if (recovered.first_index, &found, recovered.hard_state) == (model.first, &model.entries, model.hard_state)
            {
                return Ok(());
            }
            let Some(done) = steps.next() else {
                let held = (self.acknowledged.first, self.acknowledged.next());
                return Err(format!("acknowledged {held:?}, found {recovered:?}"));
            };
            model.apply(done);
        }
    }
}

/// The possible contents of a damaged page.
fn damages(page: &[u8], earlier: Option<&[u8]>, rng: &mut SplitMix64) -> Vec<Vec<u8>> {
    let noise: Vec<u8> = (0..PAGE_BYTES / 8).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
    let used = page.iter().rposition(|byte| *byte != 0).map_or(PAGE_BYTES, |last| last + 1);
    let mut flipped = page.to_vec();
    flipped[rng.below(used as u64) as usize] ^= 1 << rng.below(8);
    let mut all = vec![vec![0; PAGE_BYTES], vec![0xFF; PAGE_BYTES], noise, flipped];
    all.extend(earlier.map(<[u8]>::to_vec));
    all.retain(|made| made != page);
    all
}

fn files_of(disk: &SimDisk) -> Files {
    let names = disk.list().expect("the simulated disk lists");
    names.into_iter().map(|name| (name.clone(), disk.content(&name).expect("listed files exist"))).collect()
}

/// Damages each page of each file in turn; `try_with` opens the log with one file replaced.
fn every_page(
    history: &History,
    files: &Files,
    seed: u64,
    counts: &mut Counts,
    try_with: &mut dyn FnMut(&str, &[u8]) -> Opened,
) {
    let mut rng = SplitMix64::new(seed ^ 0xDA_3A6E);
    counts.logs += 1;
    counts.several_segments += u64::from(files.keys().filter(|name| name.starts_with("log-")).count() > 2);
    for (name, whole) in files.iter().filter(|(name, _)| name.starts_with("log-") || *name == "DURABLE") {
        for (nth, page) in whole.chunks(PAGE_BYTES).enumerate() {
            let range = nth * PAGE_BYTES..nth * PAGE_BYTES + page.len();
            let earlier = history.earlier.get(name).and_then(|content| content.get(range.clone()));
            for damaged in damages(page, earlier, &mut rng) {
                let mut content = whole.clone();
                content[range.clone()].copy_from_slice(&damaged);
                counts.pages += 1;
                let what = || format!("seed {seed}, {name} page {nth} becomes {:?}..", &damaged[..16]);
                match try_with(name, &content) {
                    Ok(judged) => {
                        counts.opened += 1;
                        let cut = judged.unwrap_or_else(|reason| panic!("{}: LOST: {reason}", what()));
                        counts.cut += u64::from(cut.is_some());
                        // A copy of the durable point is left, so the truncated part is known not to be acknowledged.
                        assert_ne!(cut, Some(false), "{}", what());
                    }
                    Err(error) => {
                        counts.refused += 1;
                        assert!(name != "DURABLE", "{}: a log that is whole is refused: {error}", what());
                        let text = error.to_string();
                        assert!(text.contains("log-") && text.contains("backup"), "{}: {text}", what());
                    }
                }
            }
        }
    }
}

#[test]
fn no_lost_page_takes_an_acknowledged_write_along() {
    let mut counts = Counts::default();
    for seed in 0..400 {
        let disk = SimDisk::new();
        let history = live(&disk, seed, &|| files_of(&disk));
        let files = files_of(&disk);
        every_page(&history, &files, seed, &mut counts, &mut |name, content| {
            let disk = disk.fork();
            disk.place(name, content.to_vec());
            let opened = open(&disk);
            if opened.is_err() {
                assert_eq!(disk.content(name).as_deref(), Some(content), "what is refused is left as it is");
            }
            let (log, recovered) = opened?;
            let cut = recovered.tail_cut.as_ref().map(|cut| cut.never_acknowledged);
            Ok(history.judge(&log, &recovered).map(|()| cut))
        });
    }
    println!("simulated disk: {counts:?}");
    assert!(counts.refused > 1000 && counts.opened > 1000 && counts.cut > 0 && counts.several_segments > 50);
}

#[test]
fn no_lost_page_takes_an_acknowledged_write_along_on_a_real_disk() {
    let mut counts = Counts::default();
    for seed in 1000..1016 {
        let place = tempfile::tempdir().expect("a temporary directory can be made");
        let (data, copy) = (place.path().join("data"), place.path().join("copy"));
        let disk = MmapDisk::open(&data, SyncRecipe::default()).expect("opens");
        let history = live(&disk, seed, &|| files_in(&data));
        drop(disk);
        let files = files_in(&data);
        every_page(&history, &files, seed, &mut counts, &mut |name, content| {
            let _ = fs::remove_dir_all(&copy);
            fs::create_dir(&copy).expect("makes a directory");
            for (other, whole) in &files {
                fs::write(copy.join(other), if other == name { content } else { whole }).expect("writes");
            }
            let disk = MmapDisk::open(&copy, SyncRecipe::default()).expect("opens");
            let (log, recovered) = open(&disk)?;
            let cut = recovered.tail_cut.as_ref().map(|cut| cut.never_acknowledged);
            Ok(history.judge(&log, &recovered).map(|()| cut))
        });
    }
    println!("real disk: {counts:?}");
    assert!(counts.refused > 50 && counts.opened > 50);
}

fn files_in(path: &Path) -> Files {
    let entries = fs::read_dir(path).expect("lists").map(|entry| entry.expect("reads").path());
    let named = entries.map(|path| (path.file_name().expect("it has a name").to_string_lossy().into_owned(), path));
    named.map(|(name, path)| (name, fs::read(path).expect("reads"))).collect()
}

/// A power cut alone loses nothing. With a lost page on top of it nothing is known of the truncated part, and nothing
/// is promised.
#[test]
fn after_a_power_cut_nothing_is_promised_of_what_is_cut() {
    let (mut cuts, mut lost) = (0_u64, 0_u64);
    for seed in 0..300 {
        let disk = SimDisk::new();
        let history = live(&disk, seed, &BTreeMap::new);
        disk.crash(seed);
        let files = files_of(&disk);
        let (log, recovered) = open(&disk.fork()).expect("a power cut is no damage");
        history.judge(&log, &recovered).unwrap_or_else(|reason| panic!("seed {seed}: LOST: {reason}"));
        if let Some(cut) = recovered.tail_cut {
            assert!(!cut.never_acknowledged, "seed {seed}: {cut:?}");
        }
        let Some((name, whole)) = files.iter().rfind(|(name, _)| name.starts_with("log-")) else { continue };
        for at in (2 * PAGE_BYTES..whole.len()).step_by(PAGE_BYTES) {
            let disk = disk.fork();
            let mut content = whole.clone();
            content[at..at + PAGE_BYTES].fill(0);
            disk.place(name, content);
            let Ok((log, recovered)) = open(&disk) else { continue };
            let known = recovered.tail_cut.as_ref().is_some_and(|cut| cut.never_acknowledged);
            cuts += u64::from(recovered.tail_cut.is_some());
            if history.judge(&log, &recovered).is_err() {
                lost += 1;
                assert!(!known, "seed {seed}: lost, and said not to be");
            }
        }
    }
    println!("power cut and a lost page: {cuts} cuts, {lost} losses that two faults at once make");
    assert!(cuts > 0);
}

/// The log opens without the file, with a file of another length, and with an older file. A copy of it from a newer log
/// is refused with the remedy.
#[test]
fn a_durable_file_that_is_missing_old_or_of_another_log() {
    let disk = SimDisk::new();
    let (mut log, _) = open(&disk).expect("a new log opens");
    let older = |disk: &SimDisk| disk.content("DURABLE").expect("it is there");
    let first = older(&disk);
    for index in 1..=200 {
        log.append(&[OwnedEntry::made(1, index, 300).record()]).expect("appends");
        log.sync().expect("syncs");
    }
    drop(log);
    let opens = |disk: &SimDisk| open(disk).map(|(_, recovered)| recovered.last_index);
    for content in [first.clone(), Vec::new(), vec![1; 100], vec![0; 2 * PAGE_BYTES], vec![7; 9 * PAGE_BYTES]] {
        let disk = disk.fork();
        disk.place("DURABLE", content);
        assert_eq!(opens(&disk).expect("the log is whole"), 200);
        assert_eq!(older(&disk).len(), 2 * PAGE_BYTES, "it is made anew");
        assert_eq!(opens(&disk).expect("opens again"), 200);
    }
    let without = disk.fork();
    without.remove("DURABLE").expect("it is there");
    assert_eq!(opens(&without).expect("the log is whole"), 200);

    // An older copy of the log beside the newer file, in fewer segments and in the same ones; another log; none.
    let older_log = SimDisk::new();
    let (mut log, _) = open(&older_log).expect("a new log opens");
    for index in 1..=20 {
        log.append(&[OwnedEntry::made(1, index, 300).record()]).expect("appends");
        log.sync().expect("syncs");
    }
    drop(log);
    older_log.place("DURABLE", older(&disk));
    let nothing = SimDisk::new();
    nothing.place("DURABLE", first);
    for (disk, last) in [(older_log, 20), (nothing, 0)] {
        let before = files_of(&disk);
        let text = opens(&disk).expect_err("the end of the log is missing").to_string();
        assert!(text.contains("older copy of the log") && text.contains("DURABLE") && text.contains("log-"), "{text}");
        assert_eq!(files_of(&disk), before, "nothing is changed");
        disk.remove("DURABLE").expect("it is there");
        assert_eq!(opens(&disk).expect("as the operator wants it"), last);
    }
}

/// A log of a program before the file opens, and a program that does not know the file loses nothing by going on.
#[test]
fn an_older_program_in_between_is_noticed() {
    let disk = SimDisk::new();
    let (mut log, _) = open(&disk).expect("a new log opens");
    log.append(&[OwnedEntry::made(1, 1, 300).record()]).expect("appends");
    log.sync().expect("syncs");
    let stale = disk.content("DURABLE");
    drop(log);
    let stale = stale.unwrap_or_else(|| disk.content("DURABLE").expect("it is there"));
    let (mut log, _) = open(&disk).expect("opens");
    for index in 2..=9 {
        log.append(&[OwnedEntry::made(1, index, 300).record()]).expect("appends");
        log.sync().expect("syncs");
    }
    log.append(&[OwnedEntry::made(1, 10, 300).record()]).expect("appends");
    drop(log);
    disk.place("DURABLE", stale);
    let name = disk.list().expect("lists").into_iter().find(|name| name.starts_with("log-")).expect("a segment");
    let mut content = disk.content(&name).expect("it is there");
    let last = content.iter().rposition(|byte| *byte != 0).expect("it holds records");
    content[last - 64] ^= 1;
    disk.place(&name, content);
    let (_, recovered) = open(&disk).expect("a torn tail");
    assert_eq!(recovered.last_index, 9);
    assert!(!recovered.tail_cut.expect("it was cut").never_acknowledged, "the file is older than the log");
}
