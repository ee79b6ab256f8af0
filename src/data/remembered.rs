//! The newest membership that this one has known: the small file `SERVERS` beside `OWNER`.
//!
//! Written by the thread of the ports, read at start. Entries of the log behind the last one known to be committed
//! count only when there is a leader. No leader is found by a list from before all servers have moved, so the list is
//! kept here, too. It gives the addresses to dial and the servers to let in; snapshot and log have the valid
//! membership. A file that is damaged is therefore nothing but a warning.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};

use corral_core::servers::Servers;
use corral_engine::StoredServers;
use corral_storage::{Disk as _, MmapDisk};

/// The file's name.
const NAME: &str = "SERVERS";
/// Bytes of the longest file; 64 servers with the longest names take half of it.
const BYTES_MAX: usize = 80 << 10;
/// In front of the checksum of all lines before.
const CHECKSUM: &str = "\ncrc32c=";

/// The list that the directory holds, if one can be read.
pub(crate) fn read(disk: &MmapDisk) -> Option<StoredServers> {
    let mut bytes = Vec::new();
    let limit = BYTES_MAX as u64 + 1;
    let read = File::open(disk.path().join(NAME)).and_then(|file| file.take(limit).read_to_end(&mut bytes));
    let reason = match read {
        Ok(_) => match decode(&bytes) {
            Some(list) => return Some(list),
            None => "it is damaged".to_owned(),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => error.to_string(),
    };
    tracing::warn!(
        "{}/{NAME}, the membership as it was known last, is not used: {reason}; the other servers are looked for as snapshot \
         and configuration say",
        disk.path().display()
    );
    None
}

/// Keeps the list in place of the one before.
///
/// # Errors
/// When it cannot be written; then the one before is kept.
pub(crate) fn write(disk: &MmapDisk, list: &StoredServers) -> io::Result<()> {
    disk.write_file(NAME, encode(list).as_bytes())
}

/// No list is remembered any more.
///
/// # Errors
/// When the file cannot be removed.
pub(crate) fn forget(disk: &MmapDisk) -> io::Result<()> {
    match disk.remove(NAME) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => disk.sync_dir(),
    }
}

fn encode(list: &StoredServers) -> String {
    let text = list.servers.text(list.version);
    let checksum = crc32c::crc32c(text.as_bytes());
    format!("{text}{CHECKSUM}{checksum:08x}\n")
}

fn decode(bytes: &[u8]) -> Option<StoredServers> {
    if bytes.len() > BYTES_MAX {
        return None;
    }
    let (text, checksum) = str::from_utf8(bytes).ok()?.strip_suffix('\n')?.rsplit_once(CHECKSUM)?;
    if u32::from_str_radix(checksum, 16) != Ok(crc32c::crc32c(text.as_bytes())) {
        return None;
    }
    let (servers, version) = Servers::parse(text)?;
    Some(StoredServers { servers, version })
}

#[cfg(test)]
mod tests {
    use super::*;
    use corral_core::limits::ENSEMBLE_SERVERS_MAX;
    use corral_storage::SyncRecipe;

    fn list(text: &str) -> StoredServers {
        let (servers, version) = Servers::parse(text).expect("the list is good");
        StoredServers { servers, version }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let directory = tempfile::tempdir().expect("there is room");
        let disk = MmapDisk::open(directory.path(), SyncRecipe::default()).expect("it is a directory");
        assert_eq!(read(&disk), None);
        for text in
            ["server.1=a:1:2\nversion=100000002", "server.7=[::1]:1:2:observer;[::]:3\nserver.9=b:3:4\nversion=ff"]
        {
            write(&disk, &list(text)).expect("there is room");
            assert_eq!(read(&disk), Some(list(text)));
        }
        forget(&disk).expect("it can be removed");
        assert_eq!(read(&disk), None);
        forget(&disk).expect("there is nothing to remove");
    }

    #[test]
    fn what_is_damaged_or_too_long_is_not_there() {
        let directory = tempfile::tempdir().expect("there is room");
        let disk = MmapDisk::open(directory.path(), SyncRecipe::default()).expect("it is a directory");
        let good = encode(&list("server.1=a:1:2\nversion=5")).into_bytes();
        assert!(decode(&good).is_some());
        for at in 0..good.len() {
            assert_eq!(decode(&good[..at]), None, "cut at {at}");
            let mut other = good.clone();
            other[at] ^= 4;
            assert_eq!(decode(&other), None, "another byte at {at}");
        }
        for bytes in [vec![0; 10], vec![b'x'; 2 * BYTES_MAX], vec![0xff; 3]] {
            disk.write_file(NAME, &bytes).expect("there is room");
            assert_eq!(read(&disk), None);
        }
        std::fs::remove_file(directory.path().join(NAME)).expect("it is there");
        std::fs::create_dir(directory.path().join(NAME)).expect("there is room");
        assert_eq!(read(&disk), None);
    }

    #[test]
    fn the_longest_list_has_room() {
        let host = "h".repeat(253);
        let line = format!("{host}:65535:65534:participant;{host}:65535");
        let lines: String = (100..100 + ENSEMBLE_SERVERS_MAX).map(|id| format!("server.{id}={line}\n")).collect();
        let longest = list(&format!("{lines}version=ffffffffffffffff"));
        let text = encode(&longest);
        assert!(text.len() <= BYTES_MAX, "{} bytes", text.len());
        assert_eq!(decode(text.as_bytes()), Some(longest));
    }
}
