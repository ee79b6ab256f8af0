//! Snapshot files: round trip, order, purge, and damage to every byte of header, table and sections.

use std::sync::{Arc, Mutex};

use corral_storage::{
    Disk, SimDisk, SnapshotError, SnapshotFile, SnapshotHead, SnapshotName, SnapshotReceiver, SnapshotWriter,
    list_snapshots, purge, remove_unfinished, scrub_snapshot, snapshot_index, snapshot_name,
};

const HEAD: SnapshotHead = SnapshotHead { zxid: 0x2_0000_0007, term: 2, index: 40, seed: 0xFEED };

fn sections() -> Vec<(u32, Vec<u8>)> {
    let section = |seed: u32, bytes: u32| (0..bytes).map(|n| (n.wrapping_mul(seed) >> 3).to_le_bytes()[0]).collect();
    vec![(1, section(3, 100)), (2, section(5, 999)), (2, Vec::new()), (2, section(7, 64)), (3, section(9, 1))]
}

fn write<D: Disk>(disk: &D, zxid: u64) -> String {
    let mut writer = SnapshotWriter::begin(disk, SnapshotHead { zxid, ..HEAD }, None).expect("begins");
    for (kind, content) in sections() {
        writer.section(kind, &content).expect("writes");
    }
    writer.finish().expect("finishes").file
}

fn read_all(disk: &SimDisk, name: &str) -> Result<Vec<(u32, Vec<u8>)>, SnapshotError> {
    let snapshot = SnapshotFile::open(disk, name)?;
    assert_eq!(snapshot.head(), SnapshotHead { zxid: snapshot.head().zxid, ..HEAD });
    let mut found = Vec::new();
    for section in 0..snapshot.section_count() {
        snapshot.verify_section(section)?;
        let content = snapshot.section(section).expect("counted");
        assert_eq!(content.as_ptr().align_offset(64), 0);
        let range = snapshot.section_range(section).expect("counted");
        assert_eq!(&snapshot.bytes().as_slice()[range], content);
        found.push((snapshot.section_kind(section).expect("counted"), content.to_vec()));
    }
    Ok(found)
}

#[test]
fn sections_come_back_aligned_and_in_order() {
    let disk = SimDisk::new();
    let name = write(&disk, HEAD.zxid);
    assert_eq!(name, snapshot_name(HEAD.zxid, HEAD.index));
    assert_eq!(read_all(&disk, &name).expect("reads"), sections());
    let snapshot = SnapshotFile::open(&disk, &name).expect("opens");
    assert!(snapshot.section(99).is_none() && snapshot.verify_section(99).is_err());
}

#[test]
fn every_damage_is_refused_or_meaningless() {
    let disk = SimDisk::new();
    let name = write(&disk, HEAD.zxid);
    let whole = disk.content(&name).expect("written");
    let (mut cases, mut refused) = (0, 0);
    let mut check = |content: Vec<u8>, what: &str| {
        cases += 1;
        disk.place(&name, content);
        let scrubbed = scrub_snapshot(&disk, &name, &mut |_| {});
        let read = read_all(&disk, &name);
        let texts = (scrubbed.err().map(|error| error.to_string()), read.as_ref().err().map(ToString::to_string));
        assert_eq!(texts.0, texts.1, "{what}: a scrub finds the same");
        match read {
            Ok(found) => assert_eq!(found, sections(), "{what}: WRONG READ"),
            Err(error) => {
                refused += 1;
                assert!(error.to_string().contains(&name), "{error}");
            }
        }
    };
    for at in 0..whole.len() {
        // Most of the header page is padding.
        if (200..4000).contains(&at) {
            continue;
        }
        let old = whole[at];
        for value in (0..8).map(|bit| old ^ (1 << bit)).chain([0, 0xFF]) {
            let mut content = whole.clone();
            content[at] = value;
            check(content, &format!("byte {at} {old:#x} -> {value:#x}"));
        }
    }
    for length in 0..whole.len() {
        check(whole[..length].to_vec(), &format!("cut to {length}"));
    }
    for page in 0..whole.len() / 4096 {
        for fill in [0, 0xFF] {
            let mut content = whole.clone();
            content[page * 4096..(page + 1) * 4096].fill(fill);
            check(content, &format!("page {page} filled with {fill}"));
        }
    }
    check([whole.clone(), vec![0]].concat(), "one byte more");
    println!("snapshot: {cases} damages, {refused} refused, 0 wrong reads, 0 panics");
    assert!(refused > cases / 2);
}

#[test]
fn a_scrub_reads_in_pieces_and_the_index_is_in_the_name() {
    const PIECE: usize = 1 << 20;
    let disk = SimDisk::new();
    let mut writer = SnapshotWriter::begin(&disk, HEAD, None).expect("begins");
    writer.section(1, &vec![7; 3 * PIECE + 5]).expect("writes");
    let name = writer.finish().expect("finishes");
    let (mut pieces, mut bytes) = (0, 0);
    let head = scrub_snapshot(&disk, &name.file, &mut |piece| {
        assert!(piece <= PIECE, "{piece}");
        (pieces, bytes) = (pieces + 1, bytes + piece);
    });
    assert_eq!((head.expect("it is whole"), pieces), (HEAD, 6), "header, table and four pieces of the section");
    assert!((3 * PIECE..=3 * PIECE + 8192).contains(&bytes), "{bytes}");
    // Of an earlier version's name, of which the header is read; the other one is not even opened.
    let old = SnapshotName { file: "image-0000000200000007.img".to_owned(), zxid: HEAD.zxid, index: 0 };
    disk.place(&old.file, disk.content(&name.file).expect("written"));
    assert_eq!(snapshot_index(&disk, &old).expect("reads"), HEAD.index);
    disk.forget(&name.file);
    assert_eq!(snapshot_index(&disk, &name).expect("the name tells"), HEAD.index);
    assert!(!scrub_snapshot(&disk, &name.file, &mut |_| {}).expect_err("it is gone").is_damage());
}

#[test]
fn only_what_the_disk_lost_or_changed_is_damage() {
    let io = |code| SnapshotError::Io {
        file: "x".to_owned(),
        what: "cannot read",
        source: std::io::Error::from_raw_os_error(code),
    };
    // EIO, and EFAULT and EHWPOISON of mappings.
    assert!([5, 14, 133].into_iter().all(|code| io(code).is_damage()));
    // ENOENT, ENOMEM, EACCES, ENFILE, EMFILE, ELOOP, ESTALE.
    assert!([2, 12, 13, 23, 24, 40, 116].into_iter().all(|code| !io(code).is_damage()));
    let file = "x".to_owned();
    assert!(!SnapshotError::WrongVersion { file: file.clone(), found: 2, expected: 1 }.is_damage());
    assert!(SnapshotError::NotASnapshot { file }.is_damage());
}

#[test]
fn a_damaged_section_is_named_and_the_others_stay_good() {
    let disk = SimDisk::new();
    let name = write(&disk, HEAD.zxid);
    let mut content = disk.content(&name).expect("written");
    let range = SnapshotFile::open(&disk, &name).expect("opens").section_range(1).expect("is there");
    content[range.start + 5] ^= 4;
    disk.place(&name, content);
    let snapshot = SnapshotFile::open(&disk, &name).expect("header and table are good");
    let outcomes: Vec<_> =
        (0..snapshot.section_count()).map(|section| snapshot.verify_section(section).is_ok()).collect();
    assert_eq!(outcomes, [true, false, true, true, true]);
    let error = snapshot.verify_section(1).expect_err("damaged");
    assert!(matches!(error, SnapshotError::ChangedSection { section: 1, .. }), "{error}");
}

#[test]
fn a_snapshot_under_another_name_or_of_another_kind_is_refused() {
    let disk = SimDisk::new();
    let name = write(&disk, 5);
    disk.place(&snapshot_name(5, 41), disk.content(&name).expect("written"));
    assert!(matches!(SnapshotFile::open(&disk, &snapshot_name(5, 41)), Err(SnapshotError::Damaged { .. })));
    disk.place("image-0000000000000005.img", disk.content(&name).expect("written"));
    SnapshotFile::open(&disk, "image-0000000000000005.img").expect("a name as earlier versions gave it");
    disk.place(&snapshot_name(6, HEAD.index), disk.content(&name).expect("written"));
    assert!(matches!(SnapshotFile::open(&disk, &snapshot_name(6, HEAD.index)), Err(SnapshotError::Damaged { .. })));
    disk.place(&snapshot_name(7, HEAD.index), vec![b'x'; 8192]);
    assert!(matches!(
        SnapshotFile::open(&disk, &snapshot_name(7, HEAD.index)),
        Err(SnapshotError::NotASnapshot { .. })
    ));
    disk.place(&snapshot_name(8, HEAD.index), Vec::new());
    assert!(matches!(SnapshotFile::open(&disk, &snapshot_name(8, HEAD.index)), Err(SnapshotError::Damaged { .. })));
    assert!(matches!(SnapshotFile::open(&disk, &snapshot_name(9, HEAD.index)), Err(SnapshotError::Io { .. })));
}

#[test]
fn snapshots_are_listed_newest_first_and_purged_oldest_first() {
    let disk = SimDisk::new();
    for zxid in [3, 0x1_0000_0000, 7] {
        write(&disk, zxid);
    }
    disk.place("image-1.img", vec![]);
    disk.place("image-0000000000000009.img.tmp", vec![1]);
    let zxids =
        |disk: &SimDisk| list_snapshots(disk).expect("lists").iter().map(|snapshot| snapshot.zxid).collect::<Vec<_>>();
    assert_eq!(zxids(&disk), [0x1_0000_0000, 7, 3]);
    let kept = |newest, keep| {
        let kept = purge(&disk, (newest, HEAD.index), keep).expect("purges");
        kept.iter().map(|snapshot| snapshot.zxid).collect::<Vec<_>>()
    };
    assert_eq!(kept(7, 2), [7, 3]);
    assert_eq!(zxids(&disk), [0x1_0000_0000, 7, 3], "what is newer does not count");
    assert_eq!(kept(7, 1), [7]);
    assert_eq!(zxids(&disk), [0x1_0000_0000, 7]);
    assert_eq!(kept(0x1_0000_0000, 0), [0x1_0000_0000], "one stays");
    assert_eq!(kept(1, 1), []);
    assert_eq!(zxids(&disk), [0x1_0000_0000]);
    remove_unfinished(&disk).expect("removes");
    assert!(disk.content("image-0000000000000009.img.tmp").is_none());
}

#[test]
fn a_dropped_writer_leaves_nothing() {
    let disk = SimDisk::new();
    let mut writer = SnapshotWriter::begin(&disk, HEAD, None).expect("begins");
    writer.section(1, &[1; 5000]).expect("writes");
    drop(writer);
    assert_eq!(disk.list().expect("lists"), Vec::<String>::new());
}

#[test]
fn the_writer_works_in_blocks_with_the_pace_hook_between() {
    let disk = SimDisk::new();
    let blocks = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&blocks);
    let pace = Box::new(move |bytes| seen.lock().expect("not poisoned").push(bytes));
    let mut writer = SnapshotWriter::begin(&disk, HEAD, Some(pace)).expect("begins");
    writer.section(1, &vec![7; 5 << 20]).expect("writes");
    let bytes = writer.bytes();
    let name = writer.finish().expect("finishes").file;
    let blocks = blocks.lock().expect("not poisoned");
    assert_eq!(blocks[..2], [2 << 20, 2 << 20]);
    assert_eq!(blocks.len(), 3);
    assert!(blocks[2] as u64 > bytes - (4 << 20), "the rest and the table");
    SnapshotFile::open(&disk, &name).expect("opens").verify_section(0).expect("is whole");
}

#[test]
fn a_full_disk_leaves_the_old_snapshot() {
    let disk = SimDisk::new();
    let old = write(&disk, 1);
    disk.limit_space(Some(9000));
    let mut writer = SnapshotWriter::begin(&disk, HEAD, None).expect("begins");
    assert!(matches!(writer.section(1, &vec![1; 3 << 20]), Err(SnapshotError::NoSpace { .. })));
    drop(writer);
    let mut writer = SnapshotWriter::begin(&disk, HEAD, None).expect("begins");
    writer.section(1, &[1; 9000]).expect("is kept until the block is full");
    assert!(matches!(writer.finish(), Err(SnapshotError::NoSpace { .. })));
    assert_eq!(disk.list().expect("lists"), std::slice::from_ref(&old));
    read_all(&disk, &old).expect("reads");
}

/// As with a full disk: the snapshot is written when descriptors are there again.
#[test]
fn a_snapshot_without_a_descriptor_is_a_shortage() {
    let disk = SimDisk::new();
    for errno in [24, 23] {
        disk.refuse_files(Some(errno));
        let error = SnapshotWriter::begin(&disk, HEAD, None).err().expect("refused");
        assert!(
            matches!(error, SnapshotError::NoSpace { .. })
                && error.to_string().contains("fs.file-max") == (errno == 23),
            "{error}"
        );
        let error = SnapshotReceiver::begin(&disk, 5, 8192).err().expect("refused");
        assert!(matches!(error, SnapshotError::NoSpace { .. }), "{error}");
        disk.refuse_files(None);
        write(&disk, 1);
    }
}

#[test]
fn a_power_cut_at_any_step_leaves_a_whole_snapshot_or_none() {
    for step in 0.. {
        let mut stopped = false;
        for seed in 0..20 {
            let disk = SimDisk::new();
            let old = write(&disk, 1);
            disk.stop_at_step(step);
            let outcome = (|| -> Result<(), SnapshotError> {
                let mut writer = SnapshotWriter::begin(&disk, HEAD, None)?;
                for (kind, content) in sections() {
                    writer.section(kind, &content)?;
                }
                writer.finish()?;
                purge(&disk, (HEAD.zxid, HEAD.index), 1).map_err(|source| SnapshotError::Io {
                    file: String::new(),
                    what: "purge",
                    source,
                })?;
                Ok(())
            })();
            stopped = outcome.is_err();
            disk.crash(seed);
            let snapshots = list_snapshots(&disk).expect("lists");
            assert!(!snapshots.is_empty(), "step {step} seed {seed}");
            for snapshot in &snapshots {
                assert_eq!(read_all(&disk, &snapshot.file).expect("whole"), sections(), "step {step} seed {seed}");
            }
            let finished = snapshots[0].zxid == HEAD.zxid;
            assert!(finished || (snapshots[0].file == old && stopped), "step {step} seed {seed}");
        }
        if !stopped {
            assert!(step > 5);
            break;
        }
    }
}
