//! The real disk: lock, format marker, mapped segments and snapshots in a real directory.

use std::collections::BTreeMap;
use std::fs;

use crate::common::{OwnedEntry, entries, open};
use corral_storage::{
    Disk, DiskError, Dump, DumpItem, Log, LogConfig, LogError, MmapDisk, Segment, SnapshotFile, SnapshotHead,
    SnapshotWriter, SyncRecipe, confirm_damage,
};

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory can be made")
}

#[test]
fn a_log_and_a_snapshot_survive_in_a_real_directory() {
    for recipe in [SyncRecipe::Msync, SyncRecipe::Fdatasync] {
        let place = directory();
        let path = place.path().join("new/data");
        let disk = MmapDisk::open(&path, recipe).expect("opens");
        let (mut log, _) = open(&disk).expect("a new log");
        let made: Vec<_> = (1..=200).map(|index| OwnedEntry::made(1, index, 250)).collect();
        for entry in &made {
            log.append(&[entry.record()]).expect("appends");
        }
        log.sync().expect("syncs");
        log.watermark_when_idle().expect("writes");
        log.trim_before(150).expect("trims");
        let head = SnapshotHead { zxid: 9, term: 1, index: 120, seed: 3 };
        let mut writer = SnapshotWriter::begin(&disk, head, None).expect("begins");
        writer.section(4, &[1, 2, 3]).expect("writes");
        let snapshot = writer.finish().expect("finishes");
        drop((log, disk));

        let disk = MmapDisk::open(&path, recipe).expect("opens again");
        let (log, recovered) = open(&disk).expect("opens");
        assert_eq!(recovered.last_index, 200);
        assert!((2..=150).contains(&recovered.first_index));
        assert_eq!(entries(&log).expect("reads"), made[recovered.first_index as usize - 1..]);
        let snapshot = SnapshotFile::open(&disk, &snapshot.file).expect("opens");
        snapshot.verify_section(0).expect("whole");
        assert_eq!((snapshot.section(0), snapshot.head()), (Some(&[1, 2, 3][..]), head));
    }
}

#[test]
fn two_servers_never_share_a_directory() {
    let place = directory();
    let first = MmapDisk::open(place.path(), SyncRecipe::default()).expect("opens");
    let kept = first.clone();
    drop(first);
    let error = MmapDisk::open(place.path(), SyncRecipe::default()).expect_err("is locked");
    let text = error.to_string();
    assert!(matches!(error, DiskError::InUse { .. }) && text.contains(&std::process::id().to_string()), "{text}");
    drop(kept);
    MmapDisk::open(place.path(), SyncRecipe::default()).expect("the last handle let go of it");
}

#[test]
fn a_foreign_directory_is_refused_and_left_alone() {
    let place = directory();
    fs::write(place.path().join("thesis.tex"), "precious").expect("writes");
    let error = MmapDisk::open(place.path(), SyncRecipe::default()).expect_err("foreign");
    assert!(matches!(error, DiskError::Foreign { .. }), "{error}");
    assert!(matches!(MmapDisk::open_read_only(place.path()), Err(DiskError::Foreign { .. })));
    let left: Vec<_> =
        fs::read_dir(place.path()).expect("lists").map(|entry| entry.expect("reads").file_name()).collect();
    assert_eq!(left, ["thesis.tex"]);
    assert!(MmapDisk::open_read_only(directory().path()).is_err(), "an empty directory has nothing to look at");

    for (text, name) in [("corral data directory, format 2\n", "newer"), ("", "empty"), ("\u{fffd}", "odd")] {
        let place = directory();
        fs::write(place.path().join("FORMAT"), text).expect("writes");
        let error = MmapDisk::open(place.path(), SyncRecipe::default()).expect_err(name);
        assert!(matches!(error, DiskError::WrongFormat { .. }), "{name}: {error}");
    }
    let file = place.path().join("thesis.tex");
    assert!(matches!(MmapDisk::open(&file, SyncRecipe::default()), Err(DiskError::Io { .. })));
}

#[test]
fn a_mount_point_counts_as_empty_and_unfinished_files_go() {
    let place = directory();
    fs::create_dir(place.path().join("lost+found")).expect("makes");
    // Files that an administrator of ZooKeeper puts there before the first start.
    fs::write(place.path().join("myid"), "1\n").expect("writes");
    fs::write(place.path().join("initialize"), "").expect("writes");
    let disk = MmapDisk::open(place.path(), SyncRecipe::default()).expect("opens");
    drop(disk);
    fs::write(place.path().join("image-0000000000000001.img.tmp"), "half").expect("writes");
    let disk = MmapDisk::open(place.path(), SyncRecipe::default()).expect("opens");
    assert!(disk.list().expect("lists").iter().all(|name| !name.ends_with(".tmp")));
}

#[test]
fn a_segment_is_allocated_whole_and_zero() {
    use std::os::unix::fs::MetadataExt;
    let place = directory();
    let disk = MmapDisk::open(place.path(), SyncRecipe::default()).expect("opens");
    let mut segment = disk.create_segment("spare-x", 1 << 20).expect("makes");
    assert!(segment.bytes().len() == 1 << 20 && segment.bytes().iter().all(|&byte| byte == 0));
    let blocks = fs::metadata(place.path().join("spare-x")).expect("is there").blocks();
    assert!(blocks * 512 >= 1 << 20, "{blocks} blocks");
    segment.bytes_mut()[5000] = 7;
    segment.sync(5000, 5001).expect("syncs");
    assert_eq!(fs::read(place.path().join("spare-x")).expect("reads")[5000], 7);
    assert!(disk.create_segment("spare-x", 1 << 20).is_err(), "never replaces a file");
}

/// A server may have thousands of segments and spares, and few descriptors.
#[test]
fn segments_and_spares_hold_no_descriptor() {
    let place = directory();
    let held = || {
        let names =
            fs::read_dir("/proc/self/fd").expect("lists").filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        names
            .filter(|name| name.starts_with(place.path()) && name.extension().is_some_and(|kind| kind == "seg"))
            .count()
    };
    let config = LogConfig { segment_bytes: 16 << 10, spares_max: 9, ..LogConfig::default() };
    let opened = || {
        let disk = MmapDisk::open(place.path(), SyncRecipe::default()).expect("opens");
        Log::open(disk, config.clone(), &mut |_| {}).expect("opens").0
    };
    let mut log = opened();
    for index in 1..=200 {
        log.append(&[OwnedEntry::made(1, index, 2000).record()]).expect("appends");
    }
    assert_eq!(held(), 0);
    assert!(log.trim_before(100).expect("trims") > 9);
    assert_eq!(held(), 0);
    drop(log);
    let mut log = opened();
    log.append(&[OwnedEntry::made(1, 201, 2000).record()]).expect("appends");
    log.sync().expect("syncs");
    assert_eq!(held(), 0);
}

#[test]
fn looking_on_needs_no_lock_and_changes_nothing() {
    let place = directory();
    let disk = MmapDisk::open(place.path(), SyncRecipe::default()).expect("opens");
    let (mut log, _) = open(&disk).expect("a new log");
    log.append(&[OwnedEntry::made(1, 1, 10).record()]).expect("appends");
    let look = MmapDisk::open_read_only(place.path()).expect("opens beside the server");
    let records = Dump::new(look.clone()).expect("lists").filter(|item| matches!(item, DumpItem::Record(_))).count();
    assert_eq!(records, 2);
    assert!(look.open_segment("log-0000000000000001.seg").is_err());
    assert!(look.create_segment("spare-9", 1 << 14).is_err());
    assert!(
        look.write_file("x", b"x").is_err() && look.remove("FORMAT").is_err() && look.rename("FORMAT", "y").is_err()
    );
    assert!(Log::open(look, LogConfig::default(), &mut |_| {}).is_err());
}

#[test]
fn shortened_and_empty_files_are_typed_errors() {
    let place = directory();
    drop(open(&MmapDisk::open(place.path(), SyncRecipe::default()).expect("opens")).expect("a new log"));
    let segment = place.path().join("log-0000000000000001.seg");
    for bytes in [12_288, 4097, 1, 0] {
        fs::File::options().write(true).open(&segment).expect("opens").set_len(bytes).expect("shortens");
        let disk = MmapDisk::open(place.path(), SyncRecipe::default()).expect("opens");
        let error = open(&disk).err().expect("refused");
        assert!(matches!(error, LogError::Damaged { .. }), "{bytes} bytes: {error}");
    }
}

/// Session passwords and digests are in there. A directory that was made by hand keeps its mode, and the owner is told
/// of it.
#[test]
fn files_and_directories_are_for_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = |path: &std::path::Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o7777;
    let place = directory();
    let path = place.path().join("new/data");
    let write_all = |path: &std::path::Path| {
        let disk = MmapDisk::open(path, SyncRecipe::default()).expect("opens");
        let (mut log, _) = open(&disk).expect("a log");
        log.prepare_ahead().expect("prepares");
        let head = SnapshotHead { zxid: 9, term: 1, index: 120, seed: 3 };
        SnapshotWriter::begin(&disk, head, None).expect("begins").finish().expect("finishes");
        disk.write_file("OWNER", b"server 1").expect("writes");
        disk.access().clone()
    };
    let access = write_all(&path);
    assert_eq!((access.directory_mode, access.files_restricted, access.files_left), (None, 0, None));
    assert_eq!((mode(&path), mode(path.parent().expect("it has one"))), (0o700, 0o700));
    let files = || fs::read_dir(&path).expect("lists").map(|entry| entry.expect("reads").path());
    let names: Vec<_> = files().map(|file| file.file_name().expect("a name").to_owned()).collect();
    assert!(names.len() >= 7 && names.iter().any(|name| name == "DURABLE"), "{names:?}");
    assert!(files().all(|file| mode(&file) == 0o600), "{names:?}");

    // Files of an earlier version, in a directory that a group was given on purpose.
    files().for_each(|file| fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("changes the mode"));
    fs::write(path.join("myid"), "1").expect("writes");
    fs::set_permissions(path.join("myid"), fs::Permissions::from_mode(0o644)).expect("changes the mode");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).expect("changes the mode");
    let access = write_all(&path);
    assert_eq!((access.directory_mode, access.files_restricted, access.files_left), (Some(0o750), names.len(), None));
    assert_eq!(mode(&path), 0o750);
    assert!(files().all(|file| mode(&file) == if file.ends_with("myid") { 0o644 } else { 0o600 }));
}

/// A server writes, rolls, trims and recycles meanwhile. Entries that seem to be missing are there when they are read
/// once more.
#[test]
fn a_log_that_is_being_written_is_never_damaged() {
    use std::sync::atomic::{AtomicBool, Ordering};
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let place = directory();
    let disk = MmapDisk::open(place.path(), SyncRecipe::default()).expect("opens");
    let config = LogConfig { segment_bytes: 1 << 20, spares_max: 1, ..LogConfig::default() };
    let (mut log, _) = Log::open(disk, config, &mut |_| {}).expect("opens");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for index in 1.. {
                log.append(&[OwnedEntry::made(1, index, 20_000).record()]).expect("appends");
                log.sync().expect("syncs");
                if index % 60 == 0 {
                    log.trim_before(index - 60).expect("trims");
                }
                if over.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let _stop = Stop(&over);
        let look = MmapDisk::open_read_only(place.path()).expect("opens beside the server");
        let (mut places, mut evidence) = (0, 0);
        for _ in 0..300 {
            let (mut durable, mut base, mut suspects) = (0, 0, BTreeMap::new());
            for item in Dump::new(look.clone()).expect("lists") {
                let (file, offset) = match item {
                    DumpItem::Durable { watermark, is_held, .. } => {
                        assert!(is_held);
                        durable = watermark;
                        continue;
                    }
                    DumpItem::Segment { base: at, watermark, .. } => {
                        base = at.expect("a header that checks");
                        durable = durable.max(watermark.unwrap_or(0));
                        continue;
                    }
                    DumpItem::Record(record) => {
                        durable = durable.max(record.watermark);
                        if record.payload_checks {
                            continue;
                        }
                        (record.file, record.offset)
                    }
                    DumpItem::Mark { file, offset, watermark } => {
                        durable = durable.max(watermark);
                        (file, offset)
                    }
                    DumpItem::Gap { file, offset, .. } => (file, offset),
                    other => panic!("{other:?}"),
                };
                suspects.entry(file).or_insert((offset, base + offset));
            }
            places += suspects.len();
            for (file, (offset, position)) in suspects.into_iter().filter(|(_, (_, position))| *position < durable) {
                evidence += 1;
                let confirmed = confirm_damage(&look, &file, Some(offset), durable, &mut |_| {}).expect("reads");
                assert_eq!(confirmed, None, "{file} at {offset}, position {position}, durable {durable}");
            }
        }
        println!("{places} places without a record, {evidence} below what was durable when they had been read");
    });
}
