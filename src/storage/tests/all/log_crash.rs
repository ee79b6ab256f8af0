//! Power cuts on the simulated disk: thousands of seeds, and every step between two system calls of one workload.
//!
//! After each crash the log must hold the result of some prefix of the calls, at least up to the last successful sync.
//! It must take new entries. A failing seed is printed and repeats itself.

use crate::common::{Done, Model, OwnedEntry, config, entries, hard_state, open};
use corral_storage::{Log, LogError, SimDisk};
use corral_types::{Record, SplitMix64};

/// A log under test with the history of its calls.
struct Run {
    disk: SimDisk,
    /// The certain content of the log at the beginning of `history`.
    base: Model,
    history: Vec<Done>,
    /// This many of `history` were synced.
    synced: usize,
    /// Entries before this index may be gone.
    trimmed: u64,
    term: u64,
}

impl Run {
    fn new(disk: SimDisk) -> Run {
        Run { disk, base: Model::new(), history: Vec::new(), synced: 0, trimmed: 1, term: 1 }
    }

    fn current(&self) -> Model {
        let mut model = self.base.clone();
        self.history.iter().for_each(|done| model.apply(done));
        model
    }

    fn append(&mut self, log: &mut Log<SimDisk>, batch: Vec<Done>) -> Result<(), LogError> {
        let records: Vec<_> = batch
            .iter()
            .map(|done| match done {
                Done::Entry(entry) => entry.record(),
                Done::HardState(state) => Record::HardState(*state),
                Done::Reset(_) => unreachable!("a reset is no record"),
            })
            .collect();
        // Some of the batch may be on disk after a crash, also if the call fails.
        self.history.extend(batch.iter().cloned());
        log.append(&records)
    }

    fn sync(&mut self, log: &mut Log<SimDisk>) -> Result<(), LogError> {
        log.sync()?;
        self.synced = self.history.len();
        Ok(())
    }

    /// Random calls until one fails or `calls` were made.
    fn work(&mut self, log: &mut Log<SimDisk>, rng: &mut SplitMix64, calls: u64) -> Result<(), LogError> {
        for _ in 0..calls {
            match rng.below(20) {
                0..=8 => {
                    let (next, count) = (self.current().next(), 1 + rng.below(6));
                    let made =
                        (next..next + count).map(|index| OwnedEntry::made(self.term, index, rng.below(700) as usize));
                    let batch = made.map(Done::Entry).collect();
                    self.append(log, batch)?;
                }
                9 => {
                    let state = hard_state(self.term, rng.below(3), rng.below(100));
                    self.append(log, vec![Done::HardState(state)])?;
                }
                10 => {
                    // A new leader's entries replace the tail.
                    let model = self.current();
                    let back = rng.below(8).min(model.next() - log.first_index());
                    self.term += 1;
                    let entry = OwnedEntry::made(self.term, model.next() - back, rng.below(300) as usize);
                    self.append(log, vec![Done::Entry(entry)])?;
                }
                11..=14 => self.sync(log)?,
                15 => {
                    log.watermark_when_idle()?;
                }
                16 => {
                    log.prepare_ahead()?;
                }
                17 | 18 => {
                    let model = self.current();
                    let index = log.first_index() + rng.below(model.next() - log.first_index() + 1);
                    self.trimmed = self.trimmed.max(index);
                    log.trim_before(index)?;
                    self.synced = self.history.len();
                }
                _ if rng.below(6) == 0 => {
                    let index = self.current().next() + rng.below(50);
                    self.history.push(Done::Reset(index));
                    self.trimmed = self.trimmed.max(index);
                    log.reset_to(index)?;
                    self.synced = self.history.len();
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Opens after a crash, compares with every state the log may be in, and goes on from the one found.
    fn recover(&mut self, what: &dyn Fn() -> String) -> Log<SimDisk> {
        let (log, recovered) = open(&self.disk).unwrap_or_else(|error| panic!("{}: refused: {error}", what()));
        let found = entries(&log).unwrap_or_else(|error| panic!("{}: {error}", what()));
        let matches = |model: &Model| {
            let mut model = model.clone();
            if recovered.first_index > self.trimmed.max(model.first) {
                return false;
            }
            model.trim(recovered.first_index);
            model.entries == found && model.hard_state == recovered.hard_state && model.next() == log.last_index() + 1
        };
        let mut model = self.base.clone();
        self.history[..self.synced].iter().for_each(|done| model.apply(done));
        let mut rest = self.history[self.synced..].iter();
        while !matches(&model) {
            let done = rest.next().unwrap_or_else(|| {
                panic!(
                    "{}: no state matches: found {}..={} hard state {:?}, synced {} of {}, trimmed {}",
                    what(),
                    recovered.first_index,
                    recovered.last_index,
                    recovered.hard_state,
                    self.synced,
                    self.history.len(),
                    self.trimmed,
                )
            });
            model.apply(done);
        }
        model.trim(recovered.first_index);
        model.first = recovered.first_index;
        self.base = model;
        self.history.clear();
        self.synced = 0;
        log
    }
}

#[test]
fn no_seed_loses_what_was_synced() {
    let (mut crashes, mut synced_entries) = (0, 0);
    for seed in 0..1500 {
        let mut rng = SplitMix64::new(seed);
        let mut run = Run::new(SimDisk::new());
        for life in 0..4 {
            let what = || format!("seed {seed} life {life}");
            let mut log = run.recover(&what);
            if rng.below(2) == 0 {
                run.disk.stop_at_step(rng.below(40));
            }
            let calls = rng.below(60);
            // An error means that the process stopped there.
            let _ = run.work(&mut log, &mut rng, calls);
            synced_entries += run.synced;
            drop(log);
            run.disk.crash(rng.next_u64());
            crashes += 1;
            // Power may go during recovery as well.
            if rng.below(3) == 0 {
                run.disk.stop_at_step(rng.below(12));
                let _ = open(&run.disk);
                run.disk.crash(rng.next_u64());
                crashes += 1;
            }
        }
        run.recover(&|| format!("seed {seed} at the end"));
    }
    println!("{crashes} power cuts, {synced_entries} synced records, 0 lost");
}

#[test]
fn every_step_of_a_workload_survives_a_power_cut() {
    let workload = |run: &mut Run| -> Result<(), LogError> {
        let (mut log, _) = open(&run.disk)?;
        let mut next = 1;
        for round in 0..24 {
            let batch = (next..next + 4).map(|index| Done::Entry(OwnedEntry::made(1, index, 300))).collect();
            next += 4;
            run.append(&mut log, batch)?;
            run.append(&mut log, vec![Done::HardState(hard_state(1, 1, next - 1))])?;
            run.sync(&mut log)?;
            if round % 4 == 0 {
                log.watermark_when_idle()?;
                log.prepare_ahead()?;
            }
            if round % 10 == 9 {
                run.trimmed = next - 10;
                log.trim_before(next - 10)?;
            }
        }
        run.history.push(Done::Reset(500));
        run.trimmed = 500;
        log.reset_to(500)?;
        run.synced = run.history.len();
        run.append(&mut log, vec![Done::Entry(OwnedEntry::made(2, 500, 100))])?;
        run.sync(&mut log)
    };
    let mut steps = 0;
    loop {
        let mut stopped = false;
        for seed in 0..40 {
            let mut run = Run::new(SimDisk::new());
            run.disk.stop_at_step(steps);
            stopped = workload(&mut run).is_err();
            run.disk.crash(seed);
            let mut log = run.recover(&|| format!("step {steps} seed {seed}"));
            // And it goes on without a hand.
            let next = log.last_index() + 1;
            run.append(&mut log, vec![Done::Entry(OwnedEntry::made(9, next, 10))]).expect("appends after a crash");
            run.sync(&mut log).expect("syncs after a crash");
        }
        if !stopped {
            break;
        }
        steps += 1;
    }
    println!("{steps} boundaries x 40 seeds, 0 lost, 0 manual steps");
    assert!(steps > 50, "{steps}");
}

#[test]
fn a_killed_process_loses_nothing_even_unsynced() {
    let mut run = Run::new(SimDisk::new());
    for life in 0..30 {
        let mut log = run.recover(&|| format!("life {life}"));
        let mut rng = SplitMix64::new(life);
        run.work(&mut log, &mut rng, 40).expect("no faults ordered");
        // Only the process dies: everything stored is still in the cache.
        run.synced = run.history.len();
    }
}

#[test]
fn after_a_failed_sync_nothing_is_acknowledged_and_nothing_acknowledged_is_lost() {
    for seed in 0..500 {
        let mut rng = SplitMix64::new(seed);
        let mut run = Run::new(SimDisk::new());
        let mut log = run.recover(&|| "new".to_owned());
        run.disk.fail_sync(rng.below(12));
        let outcome = run.work(&mut log, &mut rng, 200);
        let error = outcome.expect_err("one of the syncs fails");
        assert!(matches!(error, LogError::SyncFailed { .. } | LogError::Io { .. }), "seed {seed}: {error}");
        if matches!(error, LogError::SyncFailed { .. }) {
            assert!(matches!(log.sync(), Err(LogError::Poisoned)));
            assert!(matches!(log.append(&[]), Err(LogError::Poisoned)));
            assert!(matches!(log.read(1, 1, &mut |_| {}), Err(LogError::Poisoned)));
            assert!(matches!(log.trim_before(1), Err(LogError::Poisoned)));
            assert!(matches!(log.watermark_when_idle(), Err(LogError::Poisoned)));
            assert!(matches!(log.prepare_ahead(), Err(LogError::Poisoned)));
            assert!(matches!(log.reset_to(1), Err(LogError::Poisoned)));
        }
        drop(log);
        run.disk.crash(seed);
        run.recover(&|| format!("seed {seed}"));
    }
}

#[test]
fn an_unsynced_tail_is_cut_and_reported() {
    let mut cuts = 0;
    for seed in 0..200 {
        let disk = SimDisk::new();
        let (mut log, _) = open(&disk).expect("opens");
        let group: Vec<_> = (1..=20).map(|index| OwnedEntry::made(1, index, 200)).collect();
        for entry in &group {
            log.append(&[entry.record()]).expect("appends");
            if entry.index == 5 {
                log.sync().expect("syncs");
            }
        }
        drop(log);
        disk.crash(seed);
        let (log, recovered) = Log::open(disk, config(), &mut |_| {}).expect("a torn tail is no damage");
        assert!((5..=20).contains(&recovered.last_index));
        assert_eq!(entries(&log).expect("reads"), group[..recovered.last_index as usize]);
        cuts += u32::from(recovered.tail_cut.is_some());
    }
    println!("{cuts} of 200 tails cut");
    assert!(cuts > 50, "{cuts}");
}

#[test]
fn what_recovery_found_is_durable_when_it_returns() {
    for seed in 0..200 {
        let disk = SimDisk::new();
        let (mut log, _) = open(&disk).expect("opens");
        let made: Vec<_> = (1..=30).map(|index| OwnedEntry::made(1, index, 500)).collect();
        for entry in &made {
            log.append(&[entry.record()]).expect("appends");
        }
        // The process dies without a sync, the machine does not; then the next process is cut off from power.
        drop(log);
        let (log, recovered) = open(&disk).expect("opens");
        assert_eq!(recovered.last_index, 30);
        drop(log);
        disk.crash(seed);
        let (log, _) = open(&disk).expect("opens after the power cut");
        assert_eq!(entries(&log).expect("reads"), made, "seed {seed}");
    }
}
