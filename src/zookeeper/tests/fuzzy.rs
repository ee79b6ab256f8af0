//! Snapshots taken while transactions went on, and missing parts of the log behind them.

use std::fs;
use std::path::Path;

use corral_core::ids::Zxid;
use corral_core::tree::acl::Acl;
use corral_wire::jute::Writer;
use corral_zookeeper::SourceError;
use corral_zookeeper::directory::{Loaded, Source};
use corral_zookeeper::servable;
use simd_adler32::adler32;

/// Zxid of the snapshot.
const BEGIN: u64 = 0x1_0000_0005;
const SESSION: i64 = 77;

/// A snapshot with the root and these znodes, each with the number of an ACL. The table of ACLs is empty.
fn snapshot(znodes: &[(&str, i64)], database: i64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes);
    writer.raw(b"ZKSN");
    writer.i32(2);
    writer.i64(database);
    writer.i32(0);
    writer.i32(0);
    for (path, acl) in [&[("", -1)], znodes].concat() {
        writer.str(path);
        writer.buffer(None);
        writer.i64(acl);
        writer.raw(&[0; 60]);
    }
    writer.str("/");
    let checksum = adler32(&bytes.as_slice());
    let mut writer = Writer::new(&mut bytes);
    writer.i64(checksum.into());
    writer.str("/");
    bytes
}

/// Creates a znode with an ACL of this user.
fn create(zxid: u64, path: &str, user: &[u8]) -> Vec<u8> {
    created(zxid, path, user, false)
}

fn created(zxid: u64, path: &str, user: &[u8], is_ephemeral: bool) -> Vec<u8> {
    record(zxid, 1, |writer| {
        writer.str(path);
        writer.buffer(Some(b"new"));
        writer.i32(1);
        writer.i32(31);
        writer.str("digest");
        writer.buffer(Some(user));
        writer.bool(is_ephemeral);
        writer.i32(1);
    })
}

fn delete(zxid: u64, path: &str) -> Vec<u8> {
    record(zxid, 2, |writer| writer.str(path))
}

fn record(zxid: u64, kind: i32, body: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes);
    writer.i64(SESSION);
    writer.i32(1);
    writer.i64(zxid.cast_signed());
    writer.i64(1000);
    writer.i32(kind);
    body(&mut writer);
    bytes
}

fn log(records: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = b"ZKLG\0\0\0\x02\0\0\0\0\0\0\0\0".to_vec();
    for record in records {
        bytes.extend(u64::from(adler32(&record.as_slice())).to_be_bytes());
        bytes.extend(u32::try_from(record.len()).expect("the record is short").to_be_bytes());
        bytes.extend(record);
        bytes.push(b'B');
    }
    bytes
}

fn load(snapshot: &[u8], log: Option<&[u8]>) -> Result<Loaded, SourceError> {
    let directory = tempfile::tempdir().expect("a directory");
    let put =
        |name: String, bytes: &[u8]| fs::write(directory.path().join(name), bytes).expect("the directory is writable");
    put(format!("snapshot.{BEGIN:x}"), snapshot);
    log.into_iter().for_each(|log| put(format!("log.{:x}", BEGIN - 1), log));
    load_from(directory.path())
}

fn load_from(directory: &Path) -> Result<Loaded, SourceError> {
    Source::open(directory, None)?.load(&mut |_| {})
}

fn acl_of(loaded: &Loaded, path: &str) -> String {
    let (_, node) = loaded.tree.nodes().find(|(other, _)| &***other == path).expect("the znode exists");
    let Acl::List(list) = &node.acl else { return "open".to_owned() };
    list.iter().map(|entry| (*entry.id).to_owned()).collect()
}

#[test]
fn an_acl_that_the_snapshot_lacks_comes_with_its_transaction() {
    let (next, znodes) = (BEGIN + 1, [("/a", 9), ("/b", 9)]);
    let log_of = |records: &[Vec<u8>]| log(&[&[delete(BEGIN, "/none")], records].concat());
    let whole = log_of(&[create(next, "/a", b"kim:x"), delete(next + 1, "/b")]);
    let loaded = load(&snapshot(&znodes, -1), Some(&whole)).expect("the files load");
    assert_eq!(
        (acl_of(&loaded, "/a"), loaded.tree.nodes().any(|(path, _)| &**path == "/b")),
        ("kim:x".to_owned(), false)
    );
    assert_eq!((loaded.tree.zxid(), loaded.report.doubts.len()), (Zxid(next + 1), 0), "{:?}", loaded.report);
    let short = log_of(&[delete(next, "/b")]);
    let error = load(&snapshot(&znodes, -1), Some(&short)).err().expect("an unknown ACL is refused");
    assert!(error.to_string().starts_with("the ACL of \"/a\" is neither"), "{error}");
}

#[test]
fn users_may_have_names_of_any_letters() {
    let smile = [0xed, 0xa0, 0xbd, 0xed, 0xb8, 0x80];
    let whole = log(&[delete(BEGIN, "/none"), create(BEGIN + 1, "/a", &smile)]);
    let loaded = load(&snapshot(&[], -1), Some(&whole)).expect("the files load");
    assert_eq!(acl_of(&loaded, "/a"), "😀");
}

#[test]
fn a_log_that_ends_before_the_snapshot_or_is_not_there_is_doubted() {
    let ours = i64::from_be_bytes(*b"corral\0\x01");
    let (old, new) = (log(&[delete(BEGIN - 1, "/none")]), log(&[delete(BEGIN - 1, "/none"), delete(BEGIN, "/none")]));
    for (database, log, doubt) in [
        (-1, None, Some("there is no transaction log")),
        (ours, None, None),
        (-1, Some(&old), Some("the log ends at zxid 0x100000004, and the snapshot is of 0x100000005")),
        (-1, Some(&new), None),
    ] {
        let loaded = load(&snapshot(&[], database), log.map(Vec::as_slice)).expect("the files load");
        let doubts = &loaded.report.doubts;
        assert_eq!(doubts.len(), usize::from(doubt.is_some()), "{doubts:?}");
        assert!(doubts.iter().all(|found| doubt.is_some_and(|begin| found.starts_with(begin))), "{doubts:?}");
    }
}

#[test]
fn an_ephemeral_with_children_is_not_served() {
    let session = record(BEGIN + 1, -10, |writer| writer.i32(10_000));
    for (is_ephemeral, servable) in [(false, true), (true, false)] {
        let parent = created(BEGIN + 2, "/e", b"kim:x", is_ephemeral);
        let whole = log(&[delete(BEGIN, "/none"), session.clone(), parent, create(BEGIN + 3, "/e/child", b"kim:x")]);
        let loaded = load(&snapshot(&[], -1), Some(&whole)).expect("the files load");
        assert_eq!(servable::check(&loaded.tree).is_ok(), servable);
    }
}
