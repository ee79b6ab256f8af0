//! A power cut behind an append that replaces entries: what it leaves is not taken for committed.

use bytes::Bytes;
use corral_consensus::{Append, Entry, EntryKind, HardState, Index, Term};
use corral_core::command::Batch;
use corral_storage::SimDisk;
use corral_storage::log::{Log, LogConfig};

/// Power goes behind an append that replaces entries and says that they are committed.
#[test]
fn what_a_crash_leaves_of_replaced_entries_is_not_taken_for_committed() {
    let entry = |term, index, bytes| {
        let payload = Bytes::from(vec![0; bytes]);
        Entry { term: Term(term), index: Index(index), kind: EntryKind::Normal, payload }
    };
    let append = |number, term, entries, commit| {
        let hard_state = Some(HardState { term: Term(term), vote: None, commit: Index(commit) });
        Append { number, entries, hard_state, must_sync: true }
    };
    let (mut old, mut new) = (0, 0);
    for seed in 0..400 {
        let disk = SimDisk::new();
        let config = LogConfig { segment_bytes: 64 << 10, seed: 5, ..LogConfig::default() };
        let (mut log, _) = Log::open(disk.clone(), config.clone(), &mut |_| {}).expect("the disk is new");
        let bytes = 300 + (seed % 200) as usize;
        let first = append(1, 2, (1..=12).map(|index| entry(2, index, bytes)).collect(), 7);
        log.append(&first.records(Batch::zxid_of)).expect("there is space");
        log.sync().expect("the disk is good");
        let second = append(2, 3, (8..=10).map(|index| entry(3, index, 300)).collect(), 10);
        log.append(&second.records(Batch::zxid_of)).expect("there is space");
        drop(log);
        disk.crash(seed);
        let (log, found) = Log::open(disk, config, &mut |_| {}).expect("a torn tail is cut off");
        let commit = found.hard_state.map_or(0, |state| state.commit.0.min(found.last_index));
        let wrong = (8..=commit).find(|index| log.term(*index) != Some(3));
        assert_eq!(wrong, None, "seed {seed}: committed up to {commit}");
        *(if log.term(8) == Some(3) { &mut new } else { &mut old }) += 1;
    }
    assert!(old > 40 && new > 40, "{old} cuts left the old entries, {new} brought new ones");
}
