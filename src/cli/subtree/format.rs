//! The three formats of a subtree's file: they are written as a stream, and read whole.
//!
//! A tar file holds `head.json`, below `subtree/` a directory for each znode with its data in `.data`, and `end.json`. The record of a
//! znode is an extended attribute of its directory, so that tar programs do not warn of it.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _, Write};
use std::path::Path;

use corral_core::path;
use serde::{Deserialize, Serialize};
use tar::EntryType;

use crate::cli::subtree::record::{End, Head, Record, Sum, Tree};
use crate::exit::{ExitCode, Fault};

/// Of a line, of the data of a znode in a tar file.
const RECORD_BYTES_MAX: u64 = 64 << 20;
const HEAD: &str = "head.json";
const TOP: &str = "subtree";
const DATA: &str = ".data";
const END: &str = "end.json";
const ATTRIBUTE: &str = "SCHILY.xattr.user.corral.znode";

/// How a file holds a subtree.
#[derive(Clone, Copy)]
pub(crate) enum Format {
    /// One document.
    Json,
    /// A record on each line.
    Jsonl,
    Tar,
}

/// A JSON document.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    head: Head,
    znodes: Vec<Record>,
    end: End,
}

/// A file that is written.
pub(super) struct Writer<W: Write> {
    sum: Sum,
    sink: Sink<W>,
}

enum Sink<W: Write> {
    Json { out: W, separator: &'static str },
    Jsonl(W),
    Tar(Box<tar::Builder<W>>),
}

impl<W: Write> Writer<W> {
    /// Writes the head.
    pub(super) fn begin(format: Format, mut out: W, root: &str) -> io::Result<Writer<W>> {
        let (head, mut sum) = (Head::new(root), Sum::default());
        sum.begin(&head);
        let sink = match format {
            Format::Json => {
                write!(out, "{{\"head\":{},\"znodes\":[", text(&head)?)?;
                Sink::Json { out, separator: "\n" }
            }
            Format::Jsonl => {
                writeln!(out, "{}", text(&head)?)?;
                Sink::Jsonl(out)
            }
            Format::Tar => {
                let mut tar = Box::new(tar::Builder::new(out));
                append(&mut tar, HEAD, text(&head)?.as_bytes())?;
                Sink::Tar(tar)
            }
        };
        Ok(Writer { sum, sink })
    }

    /// Writes a znode. Its parent was written before.
    pub(super) fn add(&mut self, record: Record, data: &[u8]) -> io::Result<()> {
        match &mut self.sink {
            Sink::Json { out, separator } => {
                write!(out, "{}{}", std::mem::replace(separator, ",\n"), text(&record)?)?;
                self.sum.add(&record, &[]).map_err(io::Error::other)
            }
            Sink::Jsonl(out) => {
                writeln!(out, "{}", text(&record)?)?;
                self.sum.add(&record, &[]).map_err(io::Error::other)
            }
            Sink::Tar(tar) => {
                if path::name(&record.path) == DATA {
                    let reason = format!("a tar file has no place for {}; export json or jsonl", record.path);
                    return Err(io::Error::other(reason));
                }
                let record = record.without_data();
                let directory = directory(&record.path);
                tar.append_pax_extensions([(ATTRIBUTE, text(&record)?.as_bytes())])?;
                let mut header = header(EntryType::Directory, 0o755, 0);
                tar.append_data(&mut header, &directory, io::empty())?;
                if !data.is_empty() {
                    append(tar, &format!("{directory}{DATA}"), data)?;
                }
                self.sum.add(&record, data).map_err(io::Error::other)
            }
        }
    }

    /// Writes the end, and gives back what was written to.
    pub(super) fn finish(self) -> io::Result<W> {
        let end = text(&self.sum.end())?;
        let mut out = match self.sink {
            Sink::Json { mut out, .. } => {
                writeln!(out, "\n],\"end\":{end}}}")?;
                out
            }
            Sink::Jsonl(mut out) => {
                writeln!(out, "{end}")?;
                out
            }
            Sink::Tar(mut tar) => {
                append(&mut tar, END, end.as_bytes())?;
                tar.into_inner()?
            }
        };
        out.flush()?;
        Ok(out)
    }
}

fn text(record: &impl Serialize) -> io::Result<String> {
    serde_json::to_string(record).map_err(io::Error::other)
}

/// The directory of a znode in a tar file.
fn directory(path: &str) -> String {
    if path == path::ROOT { format!("{TOP}/") } else { format!("{TOP}{path}/") }
}

fn header(kind: EntryType, mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header
}

fn append<W: Write>(tar: &mut tar::Builder<W>, name: &str, data: &[u8]) -> io::Result<()> {
    tar.append_data(&mut header(EntryType::Regular, 0o644, data.len() as u64), name, data)
}

/// Reads a file, and checks it whole.
///
/// # Errors
/// With the place and the reason, if it cannot be read, is damaged, or is not whole.
pub(super) fn read(format: Format, file: &Path) -> Result<Tree, Fault> {
    let refused = |code, reason: &str| Fault::new(code, format!("nothing was written: {}: {reason}", file.display()));
    let opened = File::open(file).map_err(|error| refused(ExitCode::StorageUnavailable, &error.to_string()))?;
    parse(format, BufReader::new(opened)).map_err(|reason| refused(ExitCode::DataDamaged, &reason))
}

fn parse(format: Format, input: impl BufRead) -> Result<Tree, String> {
    let mut tree = Tree::default();
    match format {
        Format::Json => read_json(input, &mut tree),
        Format::Jsonl => read_lines(input, &mut tree),
        Format::Tar => read_tar(input, &mut tree),
    }?;
    if tree.znodes.is_empty() { Err("it holds no znode".to_owned()) } else { Ok(tree) }
}

fn read_json(input: impl BufRead, tree: &mut Tree) -> Result<(), String> {
    let document: Document = serde_json::from_reader(input).map_err(|error| error.to_string())?;
    let mut sum = Sum::default();
    sum.begin(&document.head);
    tree.begin(document.head)?;
    for record in document.znodes {
        take(record, tree, &mut sum)?;
    }
    sum.check(&document.end)
}

fn read_lines(mut input: impl BufRead, tree: &mut Tree) -> Result<(), String> {
    let (mut line, mut sum, mut ended) = (Vec::new(), Sum::default(), false);
    for number in 1u64.. {
        let at = |reason: String| format!("line {number}: {reason}");
        line.clear();
        let limited = &mut input.by_ref().take(RECORD_BYTES_MAX);
        let count = limited.read_until(b'\n', &mut line).map_err(|error| at(error.to_string()))?;
        if count == 0 {
            return if ended { Ok(()) } else { Err(at("the file is not whole: its end is missing".to_owned())) };
        }
        if ended {
            return Err(at("more follows the end".to_owned()));
        }
        if count as u64 == RECORD_BYTES_MAX {
            return Err(at(format!("it is longer than {RECORD_BYTES_MAX} bytes")));
        }
        if number == 1 {
            let head: Head = serde_json::from_slice(&line).map_err(|error| at(error.to_string()))?;
            sum.begin(&head);
            tree.begin(head).map_err(at)?;
            continue;
        }
        match (serde_json::from_slice::<Record>(&line), serde_json::from_slice::<End>(&line)) {
            (Ok(record), _) => take(record, tree, &mut sum).map_err(at)?,
            (_, Ok(end)) => {
                sum.check(&end).map_err(at)?;
                ended = true;
            }
            (Err(error), _) => return Err(at(error.to_string())),
        }
    }
    Ok(())
}

fn take(record: Record, tree: &mut Tree, sum: &mut Sum) -> Result<(), String> {
    sum.add(&record, &[])?;
    let data = record.data().map_err(|reason| format!("{:?}: {reason}", record.path))?;
    tree.add(record, data)
}

/// The entries of a tar file that were read so far.
struct TarReader<'a> {
    tree: &'a mut Tree,
    sum: Sum,
    /// A znode. Its data may follow.
    pending: Option<Record>,
    began: bool,
    ended: bool,
}

fn read_tar(input: impl BufRead, tree: &mut Tree) -> Result<(), String> {
    let mut archive = tar::Archive::new(input);
    let mut reader = TarReader { tree, sum: Sum::default(), pending: None, began: false, ended: false };
    for (number, entry) in archive.entries().map_err(|error| error.to_string())?.enumerate() {
        let at = |reason: String| format!("entry {}: {reason}", number + 1);
        let entry = entry.map_err(|error| at(error.to_string()))?;
        reader.entry(entry).map_err(at)?;
    }
    if reader.ended { Ok(()) } else { Err("the file is not whole: its end.json is missing".to_owned()) }
}

impl TarReader<'_> {
    fn entry(&mut self, mut entry: tar::Entry<'_, impl io::Read>) -> Result<(), String> {
        let failed = |error: io::Error| error.to_string();
        let name = String::from_utf8(entry.path_bytes().into_owned()).map_err(|_| "a name that is not UTF-8")?;
        let unexpected = || format!("{name:?} is not expected here");
        if self.ended || (self.began == (name == HEAD)) {
            return Err(unexpected());
        }
        if entry.header().entry_type() == EntryType::Directory {
            self.place(Vec::new())?;
            let extensions = entry.pax_extensions().map_err(failed)?.ok_or_else(unexpected)?;
            let own =
                extensions.flatten().find(|one| one.key_bytes() == ATTRIBUTE.as_bytes()).ok_or_else(unexpected)?;
            let record: Record = serde_json::from_slice(own.value_bytes()).map_err(|error| error.to_string())?;
            if directory(&record.path) != name || record.data() != Ok(Vec::new()) {
                return Err(unexpected());
            }
            self.pending = Some(record);
            return Ok(());
        }
        if entry.header().entry_type() != EntryType::Regular || entry.size() > RECORD_BYTES_MAX {
            return Err(unexpected());
        }
        let (mut data, size) = (Vec::new(), entry.size());
        entry.read_to_end(&mut data).map_err(failed)?;
        if data.len() as u64 != size {
            return Err("the file is not whole".to_owned());
        }
        match name.as_str() {
            HEAD => {
                let head: Head = serde_json::from_slice(&data).map_err(|error| error.to_string())?;
                self.sum.begin(&head);
                self.began = true;
                self.tree.begin(head)
            }
            END => {
                self.place(Vec::new())?;
                self.ended = true;
                self.sum.check(&serde_json::from_slice(&data).map_err(|error| error.to_string())?)
            }
            _ => {
                let expected = self.pending.as_ref().map(|record| format!("{}{DATA}", directory(&record.path)));
                if expected.as_ref() == Some(&name) { self.place(data) } else { Err(unexpected()) }
            }
        }
    }

    /// Adds the pending znode with its data.
    fn place(&mut self, data: Vec<u8>) -> Result<(), String> {
        let Some(record) = self.pending.take() else { return Ok(()) };
        self.sum.add(&record, &data)?;
        self.tree.add(record, data)
    }
}

#[cfg(test)]
mod tests {
    use corral_client::{Acl, Stat};
    use corral_wire::consts::perms;

    use super::*;

    const FORMATS: [Format; 3] = [Format::Json, Format::Jsonl, Format::Tar];

    fn stat(owner: i64) -> Stat {
        Stat {
            czxid: 5,
            mzxid: 6,
            pzxid: 7,
            ctime: 8,
            mtime: 9,
            version: 1,
            cversion: 2,
            aversion: 3,
            ephemeral_owner: owner,
            data_length: 0,
            num_children: 0,
        }
    }

    fn written(format: Format) -> Vec<u8> {
        let acl = [Acl::new(perms::READ, "world", "anyone"), Acl::new(perms::ALL, "digest", "us\"er:x")];
        let mut writer = Writer::begin(format, Vec::new(), "/app").expect("memory takes it");
        for (path, data, owner) in
            [("/", &b"text"[..], 0), ("/a", b"", i64::MIN), ("/a/\u{e4} b", b"\0\xff", 77), ("/c", b"1\n", 0)]
        {
            let record = Record::new(path.to_owned(), data, &acl, &stat(owner));
            writer.add(record, data).expect("memory takes it");
        }
        writer.finish().expect("memory takes it")
    }

    #[test]
    fn all_formats_hold_the_same() {
        let trees = FORMATS.map(|format| parse(format, &written(format)[..]).expect("a whole file"));
        assert_eq!((&trees[0], &trees[0]), (&trees[1], &trees[2]));
        let paths: Vec<&str> = trees[0].znodes.keys().map(String::as_str).collect();
        assert_eq!(paths, ["/", "/a", "/a/\u{e4} b", "/c"]);
        assert_eq!((trees[0].root.as_str(), &trees[0].znodes["/c"].data[..]), ("/app", &b"1\n"[..]));
    }

    #[test]
    fn damage_and_truncation_are_refused_or_change_nothing() {
        for format in FORMATS {
            let whole = written(format);
            let expected = parse(format, &whole[..]).expect("a whole file");
            let check = |bytes: &[u8], what: String| {
                if let Ok(tree) = parse(format, bytes) {
                    assert_eq!(tree, expected, "{what}");
                }
            };
            for at in 0..whole.len() {
                check(&whole[..at], format!("cut at {at}"));
                for flip in [1, 4, 0x80, 0xff] {
                    let mut damaged = whole.clone();
                    damaged[at] ^= flip;
                    check(&damaged, format!("byte {at} xor {flip:#x}"));
                }
            }
        }
    }

    #[test]
    fn wrong_files_are_refused_with_the_place() {
        let head = "{\"corral_subtree\":1,\"root\":\"/\"}\n";
        let znode = |path: &str, more: &str| {
            let acl = "[{\"perms\":\"cdrwa\",\"scheme\":\"world\",\"id\":\"anyone\"}]";
            format!("{{\"path\":{path:?},\"acl\":{acl},\"mode\":\"persistent\"{more}}}\n")
        };
        let check = |text: String, reason: &str| {
            let refused = parse(Format::Jsonl, text.as_bytes()).expect_err(reason);
            assert!(refused.contains(reason), "{refused} and not {reason}");
        };
        let root = znode("/", "");
        check(String::new(), "line 1: the file is not whole");
        check(head.replace(":1", ":2"), "line 1: version 2");
        check(format!("{head}{root}{{\"znodes\":2}}"), "line 3: it holds 1 znodes, and its end counts 2");
        check(format!("{head}{root}{root}"), "line 3: \"/\": it is there twice");
        check(format!("{head}{}", znode("/a", "")), "line 2: \"/a\": its parent does not precede it");
        check(format!("{head}{root}{}", znode("/../a", "")), "no valid path");
        check(format!("{head}{}", znode("/", ",\"base64\":\"?\"")), "base64");
        check(format!("{head}{}", znode("/", ",\"base64\":\"\",\"text\":\"\"")), "both text and base64");
        check(format!("{head}{}", znode("/", ",\"other\":1")), "unknown field `other`");
        check(format!("{head}{}", root.replace("cdrwa", "rr")), "give letters of cdrwa");
        check(format!("{head}{root}{{\"znodes\":1}}\n\n"), "more follows the end");
        let edited = format!("{head}{root}{{\"znodes\":1}}\n");
        assert_eq!(parse(Format::Jsonl, edited.as_bytes()).map(|tree| tree.znodes.len()), Ok(1));
    }
}
