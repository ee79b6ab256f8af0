//! The files of an archive. Each chain is a directory, named by the time and zxid of its base. It has the base, which is a backup,
//! and files of the log entries behind that.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use corral_backup::entries::Place;
use corral_backup::envelope::Head;

use crate::cli::backup_file::{STANDARD, object};
use crate::cli::object_store;
use crate::cli::time::{self, in_name};
use crate::exit::{ExitCode, Fault};

/// A directory, or the URL of a prefix in an object store.
pub(in crate::cli) struct Archive {
    root: PathBuf,
    /// In the order of their times.
    pub(in crate::cli) chains: Vec<Chain>,
}

/// A base, and the files of the entries behind it.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Chain {
    /// Path below the archive. Empty if the archive is one chain.
    directory: String,
    pub(in crate::cli) name: String,
    /// When the base was made, in milliseconds since 1970.
    pub(in crate::cli) time_ms: i64,
    /// Of the base.
    pub(in crate::cli) zxid: u64,
    /// The last entry in the base.
    pub(in crate::cli) base: Place,
    /// Of the log behind the base.
    salt: u32,
    base_file: String,
    files: Vec<Entries>,
}

/// A file of entries.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entries {
    name: String,
    first: u64,
    last: Place,
    /// The last one in it, or 0.
    zxid: u64,
}

impl Archive {
    /// Lists the chains. A chain without a base is none.
    ///
    /// # Errors
    /// If it cannot be listed.
    pub(in crate::cli) fn list(root: &Path) -> Result<Archive, Fault> {
        let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for name in names_in(root)? {
            let (directory, file) = name.rsplit_once('/').unwrap_or(("", &name));
            names.entry(directory.to_owned()).or_default().push(file.to_owned());
        }
        let own = root.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let chains = names.into_iter().filter_map(|(directory, files)| {
            let name = if directory.is_empty() { own.to_owned() } else { directory.clone() };
            chain(directory, name, files)
        });
        Ok(Archive { root: root.to_owned(), chains: chains.collect() })
    }

    /// The archive at this path, if it is one.
    ///
    /// # Errors
    /// If it cannot be listed.
    pub(in crate::cli) fn find(path: &Path) -> Result<Option<Archive>, Fault> {
        if path == Path::new(STANDARD) || (object(path).is_none() && !path.is_dir()) {
            return Ok(None);
        }
        Ok(Some(Archive::list(path)?).filter(|archive| !archive.chains.is_empty()))
    }

    /// Where the base of a chain is.
    pub(in crate::cli) fn base(&self, chain: &Chain) -> PathBuf {
        self.path(chain, &chain.base_file)
    }

    /// Where the file is that has the entry with this index, if there is one.
    pub(in crate::cli) fn entries(&self, chain: &Chain, index: u64) -> Option<PathBuf> {
        let having = chain.files.iter().filter(|file| (file.first..=file.last.index).contains(&index));
        Some(self.path(chain, &having.max_by_key(|file| file.last.index)?.name))
    }

    fn path(&self, chain: &Chain, file: &str) -> PathBuf {
        let directory = if chain.directory.is_empty() { self.root.clone() } else { self.root.join(&chain.directory) };
        directory.join(file)
    }

    /// Begins a chain with this base, and gives the path of the base.
    ///
    /// # Errors
    /// If its directory cannot be made.
    pub(in crate::cli) fn begin(&mut self, head: &Head, extension: &str) -> io::Result<PathBuf> {
        let name = format!("{}-{:016x}", in_name(head.time_ms), head.zxid);
        if object(&self.root).is_none() {
            DirBuilder::new().recursive(true).mode(0o700).create(self.root.join(&name))?;
        }
        let Head { index, term, crc, salt, .. } = *head;
        let base_file = format!("base-{index:016x}-{term:016x}-{crc:08x}-{salt:08x}.{extension}");
        let chain = Chain {
            directory: name.clone(),
            name,
            time_ms: head.time_ms,
            zxid: head.zxid,
            base: Place { index, term, crc },
            salt,
            base_file,
            files: Vec::new(),
        };
        let path = self.base(&chain);
        self.chains.push(chain);
        Ok(path)
    }

    /// Names a file of entries for the chain with this number, given index of the first one, the last one, and its zxid.
    pub(in crate::cli) fn add(
        &mut self,
        chain: usize,
        (first, last, zxid): (u64, Place, u64),
        extension: &str,
    ) -> PathBuf {
        let Place { index, term, crc } = last;
        let name = format!("log-{first:016x}-{index:016x}-{term:016x}-{crc:08x}-{zxid:016x}.{extension}");
        let path = self.path(&self.chains[chain], &name);
        self.chains[chain].files.push(Entries { name, first, last, zxid });
        path
    }
}

impl Chain {
    /// Index of the last entry that it has without a gap.
    pub(in crate::cli) fn end(&self) -> u64 {
        self.last().map_or(self.base.index, |last| last.index)
    }

    /// The last entry that it has behind its base without a gap.
    fn last(&self) -> Option<Place> {
        let mut end = None;
        loop {
            let index = end.map_or(self.base.index, |end: Place| end.index);
            let joining = self.files.iter().filter(|file| file.first <= index + 1).map(|file| file.last);
            match joining.max_by_key(|last| last.index).filter(|last| last.index > index) {
                Some(last) => end = Some(last),
                None => return end,
            }
        }
    }

    /// Whether a log goes on from the chain, given the entry at its end and the salt there. The last entry of a base may be empty, and
    /// other histories have the same: it must be the same log.
    pub(in crate::cli) fn goes_on_behind(&self, entry: Place, salt: u32) -> bool {
        match self.last() {
            Some(last) => last == entry,
            None => {
                let term = if entry.term == 0 { self.base.term } else { entry.term };
                (Place { term, ..entry }) == self.base && salt == self.salt
            }
        }
    }

    /// The last zxid.
    pub(in crate::cli) fn end_zxid(&self) -> u64 {
        self.files.iter().map(|file| file.zxid).fold(self.zxid, u64::max)
    }

    /// Whether there are entries behind the base.
    pub(in crate::cli) fn has_entries(&self) -> bool {
        !self.files.is_empty()
    }

    /// Forgets the file that was named last, because it could not be written.
    pub(in crate::cli) fn forget_last(&mut self) {
        self.files.pop();
    }
}

/// Paths below a directory or a prefix, of at most two names.
fn names_in(root: &Path) -> Result<Vec<String>, Fault> {
    let failed = |error: String| {
        Fault::new(ExitCode::StorageUnavailable, format!("{}: cannot be listed: {error}", root.display()))
    };
    if let Some(url) = object(root) {
        return object_store::list(url).map_err(failed);
    }
    let list = |directory: &Path| -> io::Result<Vec<String>> {
        let entries = fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name().into_string().unwrap_or_default()));
        entries.collect()
    };
    let mut names = Vec::new();
    for name in list(root).map_err(|error| failed(error.to_string()))? {
        if parse_chain(&name).is_none() {
            names.push(name);
            continue;
        }
        let files = list(&root.join(&name)).map_err(|error| failed(error.to_string()))?;
        names.extend(files.into_iter().map(|file| format!("{name}/{file}")));
    }
    Ok(names)
}

fn chain(directory: String, name: String, files: Vec<String>) -> Option<Chain> {
    let (time_ms, zxid) = parse_chain(&name)?;
    let (base_file, (base, salt)) = files.iter().find_map(|file| Some((file.clone(), parse_base(file)?)))?;
    let files = files.into_iter().filter_map(parse_entries).collect();
    Some(Chain { directory, name, time_ms, zxid, base, salt, base_file, files })
}

/// Time and zxid.
fn parse_chain(name: &str) -> Option<(i64, u64)> {
    let (time, zxid) = name.split_once('-')?;
    let digits = |from: usize, to: usize| time.get(from..to);
    let (date, clock) = (digits(0, 4)?, digits(9, 11)?);
    let text = format!("{date}-{}-{}T{clock}:{}:{}", digits(4, 6)?, digits(6, 8)?, digits(11, 13)?, digits(13, 15)?);
    let time_ms = time::parse(&text).ok()?;
    (in_name(time_ms) == time).then_some((time_ms, hex(zxid)?))
}

/// The last entry, and the salt of the log.
fn parse_base(file: &str) -> Option<(Place, u32)> {
    let [index, term, crc, salt] = numbers(file, "base-")?;
    Some((Place { index, term, crc: u32::try_from(crc).ok()? }, u32::try_from(salt).ok()?))
}

fn parse_entries(name: String) -> Option<Entries> {
    let [first, index, term, crc, zxid] = numbers(&name, "log-")?;
    let last = Place { index, term, crc: u32::try_from(crc).ok()? };
    (first <= index).then_some(Entries { name, first, last, zxid })
}

/// The numbers in the name of a whole file.
fn numbers<const N: usize>(file: &str, prefix: &str) -> Option<[u64; N]> {
    let stem = file.strip_prefix(prefix)?;
    let stem = stem.strip_suffix(".age").unwrap_or(stem).strip_suffix(".zst")?;
    let numbers: Option<Vec<u64>> = stem.split('-').map(hex).collect();
    numbers?.try_into().ok()
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_they_are_written() {
        assert_eq!(parse_chain("20261124T024948Z-0000000100000bba"), Some((1_795_488_588_000, 0x1_0000_0bba)));
        for other in ["", "data", "20261324T024948Z-1", "20261124T024948-1", "20261124T024948Z-x", "é0261124T024948Z-1"]
        {
            assert_eq!(parse_chain(other), None, "{other}");
        }
        let file = |first, index| Entries {
            name: format!("log-{first:016x}-{index:016x}-0000000000000002-0000000a-0000000000000003.zst"),
            first,
            last: Place { index, term: 2, crc: 10 },
            zxid: 3,
        };
        for file in [file(3, 9), file(3, 3)] {
            assert_eq!(parse_entries(file.name.clone()), Some(file));
        }
        for other in [
            "log-1-2-3-4.zst",
            "log-1-2-3-4-5.zst.unfinished",
            "log-1-2-3-4-5",
            "log-2-1-3-4-5.zst",
            "base-1-2-3-4.zst",
        ] {
            assert_eq!(parse_entries(other.to_owned()), None, "{other}");
        }
        assert_eq!(parse_base("base-a-2-3-4.zst.age"), Some((Place { index: 10, term: 2, crc: 3 }, 4)));
    }

    #[test]
    fn a_chain_ends_at_its_first_gap() {
        let names = ["base-5-1-0-1.zst", "log-6-9-1-a-1.zst", "log-8-c-2-b-2.zst", "log-e-f-2-c-3.zst"];
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let chain = chain(String::new(), "20261124T024948Z-1".to_owned(), names).expect("it is a chain");
        assert_eq!((chain.last(), chain.end()), (Some(Place { index: 12, term: 2, crc: 11 }), 12));
    }
}
