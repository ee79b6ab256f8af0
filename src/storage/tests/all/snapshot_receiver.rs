//! Snapshots that come in pieces: whole ones become snapshots, others leave nothing, whatever breaks off or is wrong.

use corral_storage::{
    Disk, SimDisk, SnapshotError, SnapshotFile, SnapshotHead, SnapshotReceiver, SnapshotWriter, list_snapshots,
    remove_incoming,
};

const ZXID: u64 = 0x3_0000_0009;

/// The bytes of a snapshot of some sections.
fn snapshot() -> Vec<u8> {
    let disk = SimDisk::new();
    let head = SnapshotHead { zxid: ZXID, term: 3, index: 77, seed: 1 };
    let mut writer = SnapshotWriter::begin(&disk, head, None).expect("begins");
    for (kind, bytes) in [(1, 3_000_000), (1, 10_000), (2, 77)] {
        writer.section(kind, &vec![7; bytes]).expect("writes");
    }
    let name = writer.finish().expect("finishes");
    disk.content(&name.file).expect("written")
}

fn receive(disk: &SimDisk, bytes: &[u8], piece: usize) -> Result<String, SnapshotError> {
    let mut receiver = SnapshotReceiver::begin(disk, ZXID, bytes.len() as u64)?;
    for piece in bytes.chunks(piece) {
        receiver.take(piece)?;
    }
    receiver.finish().map(|name| name.file)
}

fn files(disk: &SimDisk) -> Vec<String> {
    disk.list().expect("lists")
}

#[test]
fn pieces_of_any_size_make_the_snapshot() {
    let whole = snapshot();
    for piece in [whole.len(), 1 << 16, 4099] {
        let disk = SimDisk::new();
        let name = receive(&disk, &whole, piece).expect("receives");
        assert_eq!(disk.content(&name).as_ref(), Some(&whole));
        assert_eq!(SnapshotFile::open(&disk, &name).expect("opens").head().index, 77);
        assert_eq!(files(&disk), [name]);
        disk.crash(5);
        assert_eq!(list_snapshots(&disk).expect("lists").len(), 1, "durable");
    }
}

/// An entry that changes no znode has no zxid of its own. So the server that takes the snapshot over may be about to
/// write a snapshot at the same zxid that ends one entry earlier. With that in its place, a log that begins behind the
/// other would have a hole.
#[test]
fn a_snapshot_taken_over_is_not_replaced_by_one_of_the_same_zxid() {
    let disk = SimDisk::new();
    let own = SnapshotHead { zxid: ZXID, term: 3, index: 76, seed: 2 };
    let mut writer = SnapshotWriter::begin(&disk, own, None).expect("begins");
    writer.section(1, &[7; 100]).expect("writes");
    receive(&disk, &snapshot(), 1 << 16).expect("receives");
    writer.finish().expect("finishes");
    let newest = list_snapshots(&disk).expect("lists").swap_remove(0);
    assert_eq!((newest.zxid, newest.index), (ZXID, 77));
    assert_eq!(SnapshotFile::open(&disk, &newest.file).expect("opens").head().index, 77);
}

#[test]
fn a_damaged_snapshot_never_gets_its_name() {
    let whole = snapshot();
    for at in (0..whole.len()).step_by(40_009).chain([0, 9, 60, 4096, whole.len() - 1]) {
        let disk = SimDisk::new();
        let mut bad = whole.clone();
        bad[at] ^= 0x10;
        match receive(&disk, &bad, 1 << 20) {
            Err(error) => {
                assert!(error.to_string().contains("incoming-"), "{error}");
                assert_eq!(files(&disk), Vec::<String>::new(), "byte {at}");
            }
            // Padding is of no meaning.
            Ok(_) => assert!(whole[at] == 0, "byte {at}"),
        }
    }
}

#[test]
fn what_breaks_off_leaves_nothing_and_announces_where_to_go_on() {
    let whole = snapshot();
    let disk = SimDisk::new();
    let mut receiver = SnapshotReceiver::begin(&disk, ZXID, whole.len() as u64).expect("begins");
    receiver.take(&whole[..100_000]).expect("takes");
    assert_eq!((receiver.received(), receiver.is_whole()), (100_000, false));
    assert!(matches!(receiver.finish(), Err(SnapshotError::Damaged { what: "bytes are missing", .. })));
    assert_eq!(files(&disk), Vec::<String>::new());
}

#[test]
fn announcements_are_held_to() {
    let whole = snapshot();
    let disk = SimDisk::new();
    for bytes in [0, 4095, u64::MAX] {
        assert!(matches!(SnapshotReceiver::begin(&disk, ZXID, bytes), Err(SnapshotError::Damaged { .. })), "{bytes}");
    }
    let mut receiver = SnapshotReceiver::begin(&disk, ZXID, 5000).expect("begins");
    receiver.take(&whole[..4096]).expect("takes");
    assert!(matches!(receiver.take(&whole[..905]), Err(SnapshotError::Damaged { .. })));
    drop(receiver);
    let mut other = SnapshotReceiver::begin(&disk, ZXID + 1, whole.len() as u64).expect("begins");
    other.take(&whole).expect("takes");
    assert!(matches!(other.finish(), Err(SnapshotError::Damaged { .. })), "another zxid than announced");
    assert_eq!(files(&disk), Vec::<String>::new());
}

#[test]
fn a_start_removes_what_was_not_checked() {
    let disk = SimDisk::new();
    let name = receive(&disk, &snapshot(), 1 << 20).expect("receives");
    disk.place("incoming-image-0000000000000001.img", vec![1, 2, 3]);
    assert_eq!(remove_incoming(&disk).expect("removes"), 1);
    assert_eq!(files(&disk), [name]);
}
