//! A znode as a file holds it, and the checks of a whole file.
//!
//! It knows no file and no server.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use corral_client::{Acl, Stat};
use corral_core::path;
use corral_core::tree::znode::Owner;
use serde::{Deserialize, Serialize};

/// Version of the files.
const VERSION: u32 = 1;
/// The largest TTL that a server stores, in milliseconds.
const TTL_MS_MAX: i64 = 0xff_ffff_ffff;
/// The first record of a file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Head {
    /// Version of the file.
    corral_subtree: u32,
    /// The path that was exported.
    pub(super) root: String,
}

impl Head {
    pub(super) fn new(root: &str) -> Head {
        Head { corral_subtree: VERSION, root: root.to_owned() }
    }
}

/// The last record of a file.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct End {
    /// How many znodes precede.
    znodes: u64,
    /// CRC-32C of all records. A file that was edited has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    crc32c: Option<u32>,
}

/// A znode.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    /// Below the path that was exported, which itself is `/`.
    pub(super) path: String,
    /// The data, if they are text without control characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// Other data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
    acl: Vec<Entry>,
    pub(super) mode: Mode,
    /// For people only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stat: Option<Information>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    perms: String,
    scheme: String,
    id: String,
}

/// How a znode ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Mode {
    Persistent,
    Container,
    TtlMs(i64),
    /// With this session.
    Ephemeral(String),
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Information {
    czxid: String,
    mzxid: String,
    ctime: i64,
    mtime: i64,
    version: i32,
    cversion: i32,
    aversion: i32,
}

impl Mode {
    /// As the stat shows it. A server shows containers and TTL nodes as persistent, in ZooKeeper too.
    pub(super) fn of(stat: &Stat) -> Mode {
        match Owner::from_bits(stat.ephemeral_owner) {
            Owner::Persistent => Mode::Persistent,
            Owner::Container => Mode::Container,
            Owner::Ttl(ms) => Mode::TtlMs(ms),
            Owner::Session(id) => Mode::Ephemeral(format!("{:#x}", id.0)),
        }
    }
}

impl Record {
    pub(super) fn new(path: String, data: &[u8], acl: &[Acl], stat: &Stat) -> Record {
        let text = std::str::from_utf8(data).ok().filter(|text| !text.chars().any(char::is_control));
        let entry = |one: &Acl| Entry { perms: one.letters(), scheme: one.scheme.clone(), id: one.id.clone() };
        Record {
            path,
            text: text.filter(|text| !text.is_empty()).map(str::to_owned),
            base64: text.is_none().then(|| STANDARD.encode(data)),
            acl: acl.iter().map(entry).collect(),
            mode: Mode::of(stat),
            stat: Some(Information {
                czxid: format!("{:#x}", stat.czxid),
                mzxid: format!("{:#x}", stat.mzxid),
                ctime: stat.ctime,
                mtime: stat.mtime,
                version: stat.version,
                cversion: stat.cversion,
                aversion: stat.aversion,
            }),
        }
    }

    /// Without its data, which a tar file holds beside it.
    pub(super) fn without_data(mut self) -> Record {
        (self.text, self.base64) = (None, None);
        self
    }

    /// The data.
    pub(super) fn data(&self) -> Result<Vec<u8>, String> {
        match (&self.text, &self.base64) {
            (Some(_), Some(_)) => Err("both text and base64".to_owned()),
            (Some(text), None) => Ok(text.as_bytes().to_vec()),
            (None, Some(encoded)) => STANDARD.decode(encoded).map_err(|error| format!("base64: {error}")),
            (None, None) => Ok(Vec::new()),
        }
    }

    fn acl(&self) -> Result<Vec<Acl>, String> {
        if self.acl.is_empty() {
            return Err("an ACL without entries".to_owned());
        }
        let entry = |entry: &Entry| {
            let perms = Acl::perms_of(&entry.perms);
            let perms = perms.ok_or_else(|| format!("perms {:?}: give letters of cdrwa", entry.perms))?;
            Ok(Acl::new(perms, &entry.scheme, &entry.id))
        };
        self.acl.iter().map(entry).collect()
    }
}

/// Counts and sums the records of a file.
#[derive(Default)]
pub(super) struct Sum {
    znodes: u64,
    crc32c: u32,
}

impl Sum {
    /// Adds the head.
    pub(super) fn begin(&mut self, head: &Head) {
        self.crc32c = crc32c::crc32c_append(self.crc32c, head.root.as_bytes());
    }

    /// Adds a record in its canonical form, with data that lie beside it.
    pub(super) fn add(&mut self, record: &Record, data: &[u8]) -> Result<(), String> {
        let canonical = serde_json::to_vec(record).map_err(|error| error.to_string())?;
        self.crc32c = crc32c::crc32c_append(crc32c::crc32c_append(self.crc32c, &canonical), data);
        self.znodes += 1;
        Ok(())
    }

    pub(super) fn end(&self) -> End {
        End { znodes: self.znodes, crc32c: Some(self.crc32c) }
    }

    pub(super) fn check(&self, end: &End) -> Result<(), String> {
        if end.znodes != self.znodes {
            return Err(format!("it holds {} znodes, and its end counts {}", self.znodes, end.znodes));
        }
        if end.crc32c.is_some_and(|sum| sum != self.crc32c) {
            return Err("damaged or edited: the CRC-32C differs; after an edit remove crc32c from its end".to_owned());
        }
        Ok(())
    }
}

/// A znode of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Znode {
    pub(super) data: Vec<u8>,
    pub(super) acl: Vec<Acl>,
    pub(super) mode: Mode,
}

/// The znodes of a file by path. Parents come first in this order.
#[derive(Default, Debug, PartialEq, Eq)]
pub(super) struct Tree {
    pub(super) root: String,
    pub(super) znodes: BTreeMap<String, Znode>,
}

impl Tree {
    /// Takes the head.
    pub(super) fn begin(&mut self, head: Head) -> Result<(), String> {
        if head.corral_subtree != VERSION {
            return Err(format!("version {} of the format is not known; use a newer corral", head.corral_subtree));
        }
        if !path::is_valid(&head.root) {
            return Err(format!("{:?} is no path", head.root));
        }
        self.root = head.root;
        Ok(())
    }

    /// Takes a record with its data.
    pub(super) fn add(&mut self, record: Record, data: Vec<u8>) -> Result<(), String> {
        let at = |reason: String| format!("{:?}: {reason}", record.path);
        if !path::is_valid(&record.path) {
            return Err(at("no valid path".to_owned()));
        }
        if self.znodes.contains_key(&record.path) {
            return Err(at("it is there twice".to_owned()));
        }
        if record.path != path::ROOT {
            match self.znodes.get(path::parent(&record.path)) {
                None => return Err(at("its parent does not precede it".to_owned())),
                Some(Znode { mode: Mode::Ephemeral(_), .. }) => {
                    return Err(at("its parent is an ephemeral".to_owned()));
                }
                Some(_) => {}
            }
        }
        if matches!(record.mode, Mode::TtlMs(ms) if !(1..=TTL_MS_MAX).contains(&ms)) {
            return Err(at(format!("a TTL is 1 to {TTL_MS_MAX} ms")));
        }
        let acl = record.acl().map_err(at)?;
        self.znodes.insert(record.path, Znode { data, acl, mode: record.mode });
        Ok(())
    }
}
