//! Reads a data directory, also beside its server. It takes no lock and changes nothing.
//!
//! It blocks. The log and the newest snapshot are read piece by piece.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use corral_storage::{
    DATA_PREFIXES, Dump, DumpItem, MmapDisk, SnapshotError, confirm_damage, list_snapshots, scrub_snapshot,
};

use super::directory::{Directory, Files, Log};
use super::sync;
use crate::control::space::Space;
use crate::data::damage::Damage;
use crate::data::{owner, quarantine};
use crate::exit::{ExitCode, Fault};

/// Bytes that are read of a small file.
const TEXT_BYTES_MAX: u64 = 256;
/// Mode bits of a file.
const MODE_BITS: u32 = 0o7777;
/// File systems by their numbers in `statfs`, and why data are not safe there.
const FILE_SYSTEMS: [(i64, &str, Option<&str>); 12] = [
    (0xef53, "ext4", None),
    (0x5846_5342, "xfs", None),
    (0x9123_683e, "btrfs", None),
    (0x2fc1_2fc1, "zfs", None),
    (0xf2f5_2010, "f2fs", None),
    (0x794c_7630, "overlay", None),
    (0x0102_1994, "tmpfs", Some(IN_MEMORY)),
    (0x8584_58f6, "ramfs", Some(IN_MEMORY)),
    (0x6969, "nfs", Some(OVER_NETWORK)),
    (0xff53_4d42, "cifs", Some(OVER_NETWORK)),
    (0xfe53_4d42, "smb2", Some(OVER_NETWORK)),
    (0x00c3_6400, "ceph", Some(OVER_NETWORK)),
];
const IN_MEMORY: &str = "it is in memory, and acknowledged writes are lost when this host stops; use a disk";
const OVER_NETWORK: &str = "a sync goes over the network, and a server stops when it fails; use a local disk";

/// Reads the directory. `None` if it is not there, or has no data yet.
///
/// # Errors
/// If it is not a data directory of this version, or cannot be read.
pub(super) fn read(path: &Path) -> Result<Option<Directory>, Fault> {
    // A pipe would be waited for.
    let is_odd = |entry: &fs::DirEntry| {
        entry.file_type().is_ok_and(|kind| !kind.is_file() && !kind.is_dir() && !kind.is_symlink())
    };
    if let Some(odd) = fs::read_dir(path).ok().and_then(|entries| entries.flatten().find(is_odd)) {
        let name = odd.file_name().display().to_string();
        return Err(Fault::new(ExitCode::DataDirForeign, format!("{name} is no regular file; remove it")));
    }
    let disk = match MmapDisk::open_read_only(path) {
        Ok(disk) => disk,
        Err(_) if !path.exists() || fs::read_dir(path).is_ok() && owner::check_empty(path).is_ok() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let (log, segment_bytes, mut unread) = log(&disk);
    let (mut snapshots, mut snapshot_fault) = (Vec::new(), None);
    match list_snapshots(&disk) {
        Ok(names) => {
            let bytes = |file: &str| fs::metadata(path.join(file)).map_or(0, |meta| meta.len());
            snapshots.extend(names.into_iter().map(|name| (name.clone(), bytes(&name.file))));
        }
        Err(error) => unread.push(error.to_string()),
    }
    if let Some((newest, _)) = snapshots.first() {
        match scrub_snapshot(&disk, &newest.file, &mut |_| {}) {
            // A server that runs has removed it since.
            Err(SnapshotError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.is_damage() => snapshot_fault = Some(error.to_string()),
            Err(error) => unread.push(error.to_string()),
            Ok(_) => {}
        }
    }
    let owner = known(owner::read(path), &mut unread);
    let is_unfinished = owner.as_deref().is_some_and(owner::is_unfinished);
    Ok(Some(Directory {
        path: path.display().to_string(),
        format: text(&path.join("FORMAT")).unwrap_or_default(),
        owner: owner.filter(|_| !is_unfinished).map(|text| text.trim_end().replace('\n', ", ")),
        running: running(path),
        is_unfinished,
        is_healing: known(quarantine::waits(&disk, false), &mut unread),
        distrusted: known(quarantine::distrusted(path), &mut unread),
        has_damaged: path.join(quarantine::ASIDE).is_dir(),
        snapshots,
        snapshot_fault,
        log,
        files: files(path).unwrap_or_default(),
        space: Space::new(path, path, segment_bytes).look().into_iter().next(),
        sync: Some(sync::measure(path).map_err(|error| error.to_string())),
        unread,
    }))
}

/// The default, if it could not be read.
fn known<T: Default>(read: Result<T, Fault>, unread: &mut Vec<String>) -> T {
    read.unwrap_or_else(|fault| {
        unread.push(fault.sentence);
        T::default()
    })
}

/// The text of a small file.
fn text(path: &Path) -> Option<String> {
    // To open a pipe would wait for its writer.
    fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let file = fs::File::open(path).ok()?;
    Some(io::read_to_string(file.take(TEXT_BYTES_MAX)).ok()?.trim().to_owned())
}

/// The log, the bytes of its last segment, and reasons why parts could not be read.
fn log(disk: &MmapDisk) -> (Log, u64, Vec<String>) {
    let (mut log, mut damage, mut segment_bytes) = (Log::default(), Damage::default(), 0);
    let items = match Dump::new(disk.clone()) {
        Ok(items) => items,
        Err(error) => return (log, 0, vec![error.to_string()]),
    };
    for item in items {
        damage.add(&item);
        match item {
            DumpItem::Segment { bytes, .. } => {
                segment_bytes = bytes;
                log.segments = log.segments.saturating_add(1);
                log.bytes = log.bytes.saturating_add(bytes);
            }
            DumpItem::Record(record) if record.payload_checks => {
                log.records = log.records.saturating_add(1);
                log.end = Some((record.index, record.term));
            }
            _ => {}
        }
    }
    let mut unread: Vec<String> = damage.unread().map(str::to_owned).into_iter().collect();
    match damage.sentence(|file, offset, durable| confirm_damage(disk, file, offset, durable, &mut |_| {})) {
        Ok(sentence) => log.damage = sentence,
        Err(error) => unread.push(error.to_string()),
    }
    (log, segment_bytes, unread)
}

/// The process that holds the lock, by the list of the kernel: to try the lock could keep a server from starting.
fn running(path: &Path) -> Option<u32> {
    let lock = path.join("LOCK");
    let end = format!(":{}", fs::metadata(&lock).ok()?.ino());
    let pid = text(&lock)?;
    let locks = fs::read_to_string("/proc/locks").ok()?;
    // Such as `1: FLOCK ADVISORY WRITE 4711 fe:00:1234 0 EOF`.
    let is_held = locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).any(|words| {
        words.get(1) == Some(&"FLOCK")
            && words.get(4) == Some(&&*pid)
            && words.get(5).is_some_and(|file| file.ends_with(&end))
    });
    pid.parse().ok().filter(|_| is_held)
}

fn files(path: &Path) -> io::Result<Files> {
    let number = rustix::fs::statfs(path)?.f_type;
    let known = FILE_SYSTEMS.iter().find(|(known, ..)| *known == number);
    let (system, risk) =
        known.map_or_else(|| (format!("number 0x{number:x}"), None), |(_, name, risk)| ((*name).to_owned(), *risk));
    let meta = fs::metadata(path)?;
    let mut foreign = None;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_data = name == "LOCK" || DATA_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        // A server that runs may have removed it.
        let Ok(user) = entry.metadata().map(|meta| meta.uid()) else { continue };
        if is_data && user != meta.uid() {
            foreign.get_or_insert((name, user));
        }
    }
    Ok(Files { system, risk, mode: meta.mode() & MODE_BITS, owner: meta.uid(), foreign })
}

#[cfg(test)]
mod tests {
    use corral_storage::SyncRecipe;

    use super::*;

    #[test]
    fn a_directory_and_its_lock() {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let path = directory.path();
        assert!(matches!(read(path), Ok(None)));
        fs::write(path.join("other"), "").expect("it is writable");
        assert!(read(path).is_err(), "it is of another program");
        fs::remove_file(path.join("other")).expect("it is there");
        let disk = MmapDisk::open(path, SyncRecipe::default()).expect("the directory is free");
        assert_eq!(running(path), Some(std::process::id()));
        let found = read(path).expect("it is read").expect("it has a format");
        assert_eq!(
            (found.format.as_str(), found.owner, found.log.segments),
            ("corral data directory, format 1", None, 0)
        );
        drop(disk);
        assert_eq!(running(path), None);
        fs::write(path.join("HEALING"), "").expect("it is writable");
        fs::create_dir(path.join(quarantine::ASIDE)).expect("it is writable");
        quarantine::mark_distrusted(path, "another digest").expect("it is writable");
        let found = read(path).expect("it is read").expect("it has a format");
        assert!(found.is_healing && found.has_damaged && path.join("HEALING").exists());
        assert_eq!(found.distrusted.as_deref(), Some("another digest"));
    }
}
