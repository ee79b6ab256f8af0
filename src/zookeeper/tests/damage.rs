//! Damaged files: each is refused, or the report says what is missing, or the state is that of the whole files.

use std::fs;
use std::path::{Path, PathBuf};

use corral_core::ids::Zxid;
use corral_zookeeper::SourceError;
use corral_zookeeper::directory::{Loaded, Source};
use corral_zookeeper::tree::Counts;

/// Two loads of the same state have the same.
#[derive(Debug, PartialEq, Eq)]
struct State {
    zxid: Zxid,
    digest: u64,
    counts: Counts,
}

fn recording(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/imports/recordings").join(name).join("version-2")
}

fn load(directory: &Path) -> Result<(State, Loaded), SourceError> {
    let loaded = Source::open(directory, None)?.load(&mut |_| {})?;
    let tree = &loaded.tree;
    Ok((State { zxid: tree.zxid(), digest: tree.digest(), counts: tree.counts() }, loaded))
}

/// Puts `bytes` in place of a file of the copy, and judges the result of loading it. A log that ends between two records is a
/// log that ends there.
fn judge(whole: &State, file: &Path, bytes: &[u8], what: &str) {
    fs::write(file, bytes).expect("the copy is writable");
    match load(file.parent().expect("a directory")) {
        Ok((state, Loaded { report, .. })) => {
            let is_reported =
                !(report.torn.is_empty() && report.doubts.is_empty() && report.damaged_snapshots.is_empty());
            let ends = what.starts_with("cut") && state.zxid < whole.zxid;
            assert!(
                state == *whole || (is_reported || ends) && state.zxid <= whole.zxid,
                "{}, {what}: {state:?}, {report:?}",
                file.display()
            );
        }
        Err(error) => {
            let name = file.file_name().expect("a name").to_string_lossy();
            assert!(error.to_string().contains(&*name), "{name}, {what}: {error}");
        }
    }
}

fn each_file_of(name: &str, damage: impl Fn(&State, &Path, &[u8])) {
    let copy = tempfile::tempdir().expect("a directory");
    let mut files: Vec<PathBuf> =
        fs::read_dir(recording(name)).expect("a recording").map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    let target = |file: &Path| copy.path().join(file.file_name().expect("a name"));
    for file in &files {
        fs::copy(file, target(file)).expect("the copy is writable");
    }
    let (whole, loaded) = load(copy.path()).expect("the recording is whole");
    assert!(loaded.report.doubts.is_empty() && loaded.report.torn.is_empty(), "{:?}", loaded.report);
    for file in &files {
        let bytes = fs::read(file).expect("a file");
        damage(&whole, &target(file), &bytes);
        fs::write(target(file), bytes).expect("the copy is writable");
    }
}

#[test]
fn every_byte_that_is_changed_is_noticed_or_means_nothing() {
    for name in ["3.9.4", "3.9.4-gz", "3.9.4-snappy"] {
        each_file_of(name, |whole, file, bytes| {
            for at in 0..bytes.len() {
                let mut changed = bytes.to_vec();
                changed[at] ^= if at % 2 == 0 { 1 } else { 0xff };
                judge(whole, file, &changed, &format!("byte {at}"));
            }
        });
    }
}

/// As a lost page reads. Zeros up to the end are a log that ends there.
#[test]
fn every_run_of_zeros_is_noticed_or_means_nothing() {
    for name in ["3.9.4", "3.9.4-snapshots"] {
        each_file_of(name, |whole, file, bytes| {
            for begin in (0..bytes.len().saturating_sub(300)).step_by(5) {
                let mut changed = bytes.to_vec();
                changed[begin..begin + 120].fill(0);
                judge(whole, file, &changed, &format!("zeros at {begin}"));
            }
        });
    }
}

#[test]
fn every_cut_is_noticed_or_means_nothing() {
    for name in ["3.9.4", "3.9.4-gz", "3.9.4-last-zxid"] {
        each_file_of(name, |whole, file, bytes| {
            for end in 0..bytes.len() {
                judge(whole, file, &bytes[..end], &format!("cut at {end}"));
            }
        });
    }
}

#[test]
fn a_missing_log_is_noticed() {
    each_file_of("3.8.0", |whole, file, _| {
        let name = file.file_name().expect("a name").to_string_lossy().into_owned();
        fs::remove_file(file).expect("the copy is writable");
        let (state, Loaded { report, .. }) = load(file.parent().expect("a directory")).expect("the other files load");
        // A missing newest log leaves no trace.
        let zxid = |name: &str| name.strip_prefix("log.").and_then(|zxid| u64::from_str_radix(zxid, 16).ok());
        let others = fs::read_dir(file.parent().expect("a directory")).expect("the copy");
        let mut others = others.filter_map(|entry| zxid(&entry.ok()?.file_name().to_string_lossy()));
        let is_newest = zxid(&name).is_some_and(|zxid| others.all(|other| other < zxid));
        assert!(state == *whole || is_newest || !report.doubts.is_empty(), "{name}: {report:?}");
    });
}
