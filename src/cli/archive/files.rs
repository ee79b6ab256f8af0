//! The files of an archive. Each chain is a directory, named by the time and zxid of its base. It has the base, which is a backup,
//! and files of the log entries behind that.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use corral_backup::entries::Place;
use corral_backup::envelope::Head;
use corral_storage::MmapDisk;

use crate::cli::backup_file::{STANDARD, object};
use crate::cli::object_store;
use crate::cli::time::{self, in_name_exactly};
use crate::exit::{ExitCode, Fault};

/// A directory, or the URL of a prefix in an object store.
pub(in crate::cli) struct Archive {
    root: PathBuf,
    /// In the order of their times.
    pub(in crate::cli) chains: Vec<Chain>,
    /// Directories with entries and without a base.
    pub(in crate::cli) baseless: Vec<String>,
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
    /// Of the log behind the base. 0 if it is unknown.
    salt: u32,
    base_file: String,
    /// Files that lead from the base on without a gap, each behind the one before or overlapping it.
    line: Vec<Entries>,
    /// Other files: entries that `line` has too, or entries behind a gap.
    pub(in crate::cli) others: Vec<Entries>,
}

/// A file of entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct Entries {
    name: String,
    pub(in crate::cli) first: u64,
    pub(in crate::cli) last: Place,
    /// The last one in it, or 0.
    zxid: u64,
}

impl Archive {
    /// Lists the chains.
    ///
    /// # Errors
    /// If it cannot be listed, or a chain has two bases.
    pub(in crate::cli) fn list(root: &Path) -> Result<Archive, Fault> {
        let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for name in names_in(root)? {
            let (directory, file) = name.rsplit_once('/').unwrap_or(("", &name));
            names.entry(directory.to_owned()).or_default().push(file.to_owned());
        }
        let own = fs::canonicalize(root).unwrap_or_else(|_| root.to_owned());
        let own = own.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let (mut chains, mut baseless) = (Vec::new(), Vec::new());
        for (directory, files) in names {
            let name = if directory.is_empty() { own } else { &directory };
            let Some((time_ms, zxid)) = parse_chain(name) else { continue };
            let bases: Vec<_> = files.iter().filter_map(|file| Some((file, parse_base(file)?))).collect();
            let entries: Vec<Entries> = files.iter().filter_map(|file| parse_entries(file)).collect();
            match bases[..] {
                [] if entries.is_empty() => {}
                [] => baseless.push(name.to_owned()),
                [(base_file, (base, salt))] => {
                    let (line, others) = line(base.index, entries);
                    let (name, base_file) = (name.to_owned(), base_file.clone());
                    chains.push(Chain { directory, name, time_ms, zxid, base, salt, base_file, line, others });
                }
                _ => {
                    let sentence = format!("{}: {name} has two bases: move one away", root.display());
                    return Err(Fault::new(ExitCode::DataDamaged, sentence));
                }
            }
        }
        Ok(Archive { root: root.to_owned(), chains, baseless })
    }

    /// The archive at this path, if it is one.
    ///
    /// # Errors
    /// If it cannot be listed, or is a directory with neither data nor a base.
    pub(in crate::cli) fn find(path: &Path) -> Result<Option<Archive>, Fault> {
        let is_directory = object(path).is_none();
        if path == Path::new(STANDARD) || (is_directory && !path.is_dir()) || holds_data(path) {
            return Ok(None);
        }
        let archive = Archive::list(path)?;
        match (archive.chains.is_empty(), archive.baseless.first()) {
            (false, _) => Ok(Some(archive)),
            (true, Some(name)) => Err(no_base(name)),
            // The error names the content.
            (true, None) if is_directory => Ok(MmapDisk::open_read_only(path).map(|_| None)?),
            (true, None) => Ok(None),
        }
    }

    /// Where the base of a chain is.
    pub(in crate::cli) fn base(&self, chain: &Chain) -> PathBuf {
        self.path(chain, &chain.base_file)
    }

    /// Whether the base of a chain is where it was. Objects are not looked for.
    pub(in crate::cli) fn has_base(&self, chain: &Chain) -> bool {
        object(&self.root).is_some() || self.base(chain).exists()
    }

    /// Where a file of entries is.
    pub(in crate::cli) fn path_of(&self, chain: &Chain, entries: &Entries) -> PathBuf {
        self.path(chain, &entries.name)
    }

    fn path(&self, chain: &Chain, file: &str) -> PathBuf {
        let directory = if chain.directory.is_empty() { self.root.clone() } else { self.root.join(&chain.directory) };
        directory.join(file)
    }

    /// Begins a chain with this base, and gives the path of the base.
    ///
    /// # Errors
    /// If its directory cannot be made, or the time of the base has no name.
    pub(in crate::cli) fn begin(&mut self, head: &Head, extension: &str) -> io::Result<PathBuf> {
        let name = format!("{}-{:016x}", in_name_exactly(head.time_ms), head.zxid);
        if parse_chain(&name).is_none() {
            return Err(io::Error::other(format!("set the clock of the server: it says {}", time::utc(head.time_ms))));
        }
        if object(&self.root).is_none() {
            DirBuilder::new().recursive(true).mode(0o700).create(self.root.join(&name))?;
        }
        let (base, salt) = (head.place(), head.salt);
        let Place { index, term, crc } = base;
        let base_file = format!("base-{index:016x}-{term:016x}-{crc:08x}-{salt:08x}.{extension}");
        let chain = Chain {
            directory: name.clone(),
            name,
            time_ms: head.time_ms,
            zxid: head.zxid,
            base,
            salt,
            base_file,
            line: Vec::new(),
            others: Vec::new(),
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
        self.chains[chain].line.push(Entries { name, first, last, zxid });
        path
    }
}

impl Chain {
    /// Index of the last entry that it has without a gap.
    pub(in crate::cli) fn end(&self) -> u64 {
        self.line.last().map_or(self.base.index, |file| file.last.index)
    }

    /// The file that has the entry with this index, if there is one.
    pub(in crate::cli) fn entries(&self, index: u64) -> Option<&Entries> {
        let at = self.line.partition_point(|file| file.last.index < index);
        self.line.get(at).filter(|file| file.first <= index)
    }

    /// Whether a log goes on from the chain, given the entry at its end and the salt there. The last entry of a base may be empty, and
    /// other histories have the same: it must be the same log.
    pub(in crate::cli) fn goes_on_behind(&self, entry: Place, salt: u32) -> bool {
        match self.line.last() {
            Some(file) => file.last == entry,
            None => {
                let term = if entry.term == 0 { self.base.term } else { entry.term };
                (Place { term, ..entry }) == self.base && salt == self.salt
            }
        }
    }

    /// Whether this is the head of the base, by the names of the chain.
    pub(in crate::cli) fn is_of(&self, head: &Head) -> bool {
        let Head { salt, zxid, time_ms, .. } = *head;
        (head.place(), salt, zxid, time_ms) == (self.base, self.salt, self.zxid, self.time_ms)
    }

    pub(in crate::cli) fn is_encrypted(&self) -> bool {
        self.base_file.ends_with(".age")
    }

    /// The last zxid.
    pub(in crate::cli) fn end_zxid(&self) -> u64 {
        self.line.iter().map(|file| file.zxid).fold(self.zxid, u64::max)
    }

    /// The first entry behind a gap.
    pub(in crate::cli) fn behind_gap(&self) -> Option<u64> {
        self.others.iter().filter(|file| file.last.index > self.end()).map(|file| file.first).min()
    }

    /// The files of the entries behind the base, without a gap.
    pub(in crate::cli) fn files(&self) -> &[Entries] {
        &self.line
    }

    /// Whether there are entries behind the base.
    pub(in crate::cli) fn has_entries(&self) -> bool {
        !self.line.is_empty()
    }

    /// Forgets the file that was named last, because it could not be written.
    pub(in crate::cli) fn forget_last(&mut self) {
        self.line.pop();
    }
}

/// The files that lead on from this entry, and all others.
fn line(base: u64, mut files: Vec<Entries>) -> (Vec<Entries>, Vec<Entries>) {
    files.sort_by_key(|file| (file.first, file.last.index));
    let (mut line, mut others) = (Vec::<Entries>::new(), Vec::new());
    // Ends of the line, and of the line before its last file.
    let (mut end, mut before) = (base, base);
    for file in files {
        let leads_on = |end: u64| file.first <= end.saturating_add(1) && file.last.index > end;
        if !leads_on(end) {
            others.push(file);
        } else if line.last().is_some_and(|_| leads_on(before)) {
            // It does all that the last file does, and more.
            end = file.last.index;
            others.extend(line.pop());
            line.push(file);
        } else {
            (before, end) = (end, file.last.index);
            line.push(file);
        }
    }
    (line, others)
}

/// The fault of a directory with entries alone.
pub(super) fn no_base(name: &str) -> Fault {
    Fault::new(ExitCode::DataDamaged, format!("{name} has no base: its entries cannot be restored"))
}

/// Whether it is a data directory.
pub(super) fn holds_data(directory: &Path) -> bool {
    directory.join("FORMAT").exists()
}

/// Paths below a directory or a prefix, of at most two names.
fn names_in(root: &Path) -> Result<Vec<String>, Fault> {
    let failed = |error: String| {
        Fault::new(ExitCode::StorageUnavailable, format!("{}: cannot be listed: {error}", root.display()))
    };
    if let Some(url) = object(root) {
        return object_store::list(url).map_err(failed);
    }
    let list = |directory: &Path, wanted: fn(&Path) -> bool| -> Result<Vec<String>, Fault> {
        let entries = fs::read_dir(directory).map_err(|error| failed(error.to_string()))?;
        let found = entries.flatten().filter(|entry| wanted(&entry.path()));
        Ok(found.filter_map(|entry| entry.file_name().into_string().ok()).collect())
    };
    let mut names = list(root, Path::is_file)?;
    for name in list(root, Path::is_dir)?.into_iter().filter(|name| parse_chain(name).is_some()) {
        names.extend(list(&root.join(&name), Path::is_file)?.into_iter().map(|file| format!("{name}/{file}")));
    }
    Ok(names)
}

/// Time and zxid.
fn parse_chain(name: &str) -> Option<(i64, u64)> {
    let (time, zxid) = name.split_once('-')?;
    let part = |from: usize, to: usize| time.get(from..to);
    let day = format!("{}-{}-{}", part(0, 4)?, part(4, 6)?, part(6, 8)?);
    let text = format!("{day}T{}:{}:{}", part(9, 11)?, part(11, 13)?, part(13, 19)?);
    let time_ms = time::parse(&text).ok()?;
    (in_name_exactly(time_ms) == time).then_some((time_ms, hex(zxid)?))
}

/// The last entry, and the salt of the log.
fn parse_base(file: &str) -> Option<(Place, u32)> {
    let [index, term, crc, salt] = numbers(file, "base-")?;
    Some((Place { index, term, crc: u32::try_from(crc).ok()? }, u32::try_from(salt).ok()?))
}

fn parse_entries(name: &str) -> Option<Entries> {
    let [first, index, term, crc, zxid] = numbers(name, "log-")?;
    let last = Place { index, term, crc: u32::try_from(crc).ok()? };
    (first <= index).then_some(Entries { name: name.to_owned(), first, last, zxid })
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

    fn file(first: u64, index: u64) -> Entries {
        Entries {
            name: format!("log-{first:016x}-{index:016x}-0000000000000002-0000000a-0000000000000003.zst"),
            first,
            last: Place { index, term: 2, crc: 10 },
            zxid: 3,
        }
    }

    #[test]
    fn names_as_they_are_written() {
        assert_eq!(parse_chain("20261124T024948.877Z-0000000100000bba"), Some((1_795_488_588_877, 0x1_0000_0bba)));
        for other in [
            "",
            "data",
            "20261324T024948.877Z-1",
            "20261124T024948Z-1",
            "20261124T024948.877Z-x",
            "é0261124T024948.877Z-1",
        ] {
            assert_eq!(parse_chain(other), None, "{other}");
        }
        for file in [file(3, 9), file(3, 3)] {
            assert_eq!(parse_entries(&file.name), Some(file));
        }
        for other in [
            "log-1-2-3-4.zst",
            "log-1-2-3-4-5.zst.unfinished",
            "log-1-2-3-4-5",
            "log-2-1-3-4-5.zst",
            "base-1-2-3-4.zst",
        ] {
            assert_eq!(parse_entries(other), None, "{other}");
        }
        assert_eq!(parse_base("base-a-2-3-4.zst.age"), Some((Place { index: 10, term: 2, crc: 3 }, 4)));
    }

    #[test]
    fn a_line_has_no_gap() {
        for (files, expect) in [
            (vec![file(6, 9), file(10, 12), file(14, 15)], vec![file(6, 9), file(10, 12)]),
            (vec![file(6, 9), file(6, 12), file(8, 11), file(13, 13)], vec![file(6, 12), file(13, 13)]),
            (vec![file(7, 9)], vec![]),
            (vec![file(2, 5), file(1, u64::MAX)], vec![file(1, u64::MAX)]),
            (vec![file(u64::MAX, u64::MAX)], vec![]),
        ] {
            let count = files.len();
            let (line, others) = line(5, files);
            assert_eq!((line.len() + others.len(), line), (count, expect));
        }
    }
}
