//! A snapshot of ZooKeeper (`FileSnap`): sessions, ACLs, znodes, seals.

use corral_core::tree::acl::Acl;
use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

use corral_core::ids::Zxid;
use corral_core::path;
use corral_core::shared::{Data, Text};
use corral_core::tree::digest::DIGEST_VERSION;
use corral_core::tree::znode::{NodeStat, Znode};
use corral_wire::error::DecodeError;
use corral_wire::jute::Reader;
use simd_adler32::Adler32;

use crate::codec;
use crate::input::{Fault, Input};
use crate::tree::Tree;
use crate::{PROGRESS_EVERY, SourceError};

/// `ZKSN`.
pub(crate) const MAGIC: i32 = 0x5A4B_534E;
/// The id of the database in corral's snapshots. ZooKeeper does not look at it.
pub(crate) const DATABASE: i64 = i64::from_be_bytes(*b"corral\0\x01");
/// The ACL of a znode that is open to all.
pub(crate) const OPEN: i64 = -1;
/// Digest and last zxid take 54 bytes, more if the digest is a text.
const TRAILER_BYTES_MAX: u64 = 4096;

/// The digest of a tree, and the transaction behind which the tree has it.
pub(crate) type DigestAt = (Zxid, u64);

/// A snapshot.
pub(crate) struct Found {
    pub(crate) tree: Tree,
    pub(crate) digest: Option<DigestAt>,
    /// Whether corral wrote it: then no log belongs to it.
    pub(crate) is_ours: bool,
    /// The last zxid, if it is stored in the file too.
    pub(crate) last: Option<Zxid>,
}

/// Reads a snapshot into an empty tree. `progress` is given the number of bytes so far, decompressed.
///
/// # Errors
/// Damage, with its offset.
pub(crate) fn read(file: &Path, progress: &mut dyn FnMut(u64)) -> Result<Found, SourceError> {
    let io = |error| SourceError::Io { file: file.to_owned(), error };
    let mut reader = SnapshotReader {
        input: Input::new(file, codec::open(file).map_err(io)?),
        tree: Tree::default(),
        acls: HashMap::new(),
    };
    let is_ours = reader.head()?;
    reader.sessions()?;
    reader.acls()?;
    reader.znodes(progress)?;
    reader.seal()?;
    let (digest, last) = reader.trailer()?;
    Ok(Found { tree: reader.tree, digest, is_ours, last })
}

struct SnapshotReader<R> {
    input: Input<R>,
    tree: Tree,
    acls: HashMap<i64, Acl>,
}

impl<R: Read> SnapshotReader<R> {
    /// Reads a part; a fault is that of its beginning.
    fn part<T>(&mut self, read: impl FnOnce(&mut Input<R>) -> Result<T, Fault>) -> Result<T, SourceError> {
        let offset = self.input.offset();
        read(&mut self.input).map_err(|fault| self.input.fault(offset, fault))
    }

    /// Whether corral wrote it.
    fn head(&mut self) -> Result<bool, SourceError> {
        let (magic, _version, database) = self.part(|input| Ok((input.int()?, input.int()?, input.long()?)))?;
        if magic == MAGIC {
            return Ok(database == DATABASE);
        }
        Err(self.input.damaged(0, "this is no snapshot: the magic number ZKSN is not"))
    }

    fn sessions(&mut self) -> Result<(), SourceError> {
        for _ in 0..self.part(Input::count_of)? {
            let (id, timeout_ms) = self.part(|input| Ok((input.long()?, input.int()?)))?;
            self.tree.put_session(id, timeout_ms);
        }
        Ok(())
    }

    fn acls(&mut self) -> Result<(), SourceError> {
        for _ in 0..self.part(Input::count_of)? {
            let (id, list) = self.part(|input| Ok((input.long()?, input.acl()?)))?;
            let acl = self.tree.acl(list);
            self.acls.insert(id, acl);
        }
        Ok(())
    }

    /// Parents come before their children. The root's path is the empty text, and a single slash ends the list.
    fn znodes(&mut self, progress: &mut dyn FnMut(u64)) -> Result<(), SourceError> {
        let mut count = 0_u64;
        loop {
            let offset = self.input.offset();
            let path = match self.part(Input::text)? {
                end if &*end == "/" => return Ok(()),
                root if root.is_empty() => Text::from("/"),
                path if path::is_valid(&path) => path,
                path => {
                    let what = format!("the path {:?}, which is not valid,", shortened(&path));
                    return Err(self.input.damaged(offset, what));
                }
            };
            if self.tree.has(&path) || &*path != "/" && !self.tree.has(path::parent(&path)) {
                let what = format!("the znode {:?} without its parent, or for the second time,", shortened(&path));
                return Err(self.input.damaged(offset, what));
            }
            let (node, has_acl) = self.znode()?;
            if !has_acl {
                self.tree.await_acl(path.clone());
            }
            self.tree.put(path, node);
            count += 1;
            if count.is_multiple_of(PROGRESS_EVERY) {
                progress(self.input.offset());
            }
        }
    }

    /// A znode, and whether its ACL is known. The list of ACLs was written before the znodes, so it may lack those of later
    /// transactions.
    fn znode(&mut self) -> Result<(Znode, bool), SourceError> {
        let data = self.part(|input| Ok(input.buffer()?.map(Data::from)))?;
        let id = self.part(Input::long)?;
        let stat = self.part(|input| {
            let (czxid, mzxid) = (input.zxid()?, input.zxid()?);
            let (ctime, mtime) = (input.long()?, input.long()?);
            let (version, cversion, aversion) = (input.int()?, input.int()?, input.int()?);
            let (owner, pzxid) = (input.long()?, input.zxid()?);
            Ok(NodeStat {
                czxid,
                mzxid,
                pzxid,
                ctime,
                mtime,
                version,
                cversion,
                aversion,
                owner,
                ..NodeStat::default()
            })
        })?;
        let acl = if id == OPEN { Some(&Acl::Open) } else { self.acls.get(&id) };
        Ok((Znode { stat, acl: acl.cloned().unwrap_or(Acl::Open), data }, acl.is_some()))
    }

    /// The checksum of all bytes before it, and a slash.
    fn seal(&mut self) -> Result<(), SourceError> {
        let (offset, expect) = (self.input.offset(), i64::from(self.input.checksum()));
        let found = self.part(|input| {
            let found = input.long()?;
            input.text().map(|_| found)
        })?;
        if found == expect {
            return Ok(());
        }
        Err(self.input.damaged(offset, "the checksum of all before it, which does not match,"))
    }

    /// Digest and last zxid, which versions since 3.6 add. Each has a property of its own, and a seal.
    fn trailer(&mut self) -> Result<(Option<DigestAt>, Option<Zxid>), SourceError> {
        let offset = self.input.offset();
        let (tail, mut checksum) = self.part(|input| input.rest(TRAILER_BYTES_MAX))?;
        let mut rest = &tail[..];
        let digest = sealed(&mut rest, &mut checksum, |reader| {
            let (zxid, version) = (Zxid(reader.i64()?.cast_unsigned()), reader.i32()?);
            // Version 1 was a text.
            let digest = if version < 2 { reader.string().map(|_| 0)? } else { reader.i64()?.cast_unsigned() };
            Ok((zxid, version, digest))
        });
        let last = sealed(&mut rest, &mut checksum, Reader::i64).map(|zxid| Zxid(zxid.cast_unsigned()));
        if !rest.is_empty() {
            return Err(self.input.damaged(offset, "the end, which does not match its checksum,"));
        }
        let is_known = |version: i32| u32::try_from(version) == Ok(DIGEST_VERSION);
        let digest = digest.filter(|(zxid, version, _)| zxid.0 > 0 && is_known(*version));
        Ok((digest.map(|(zxid, _, digest)| (zxid, digest)), last))
    }
}

/// Takes a record with its seal off the front. Nothing is taken if it does not match the seal.
fn sealed<'a, T>(
    rest: &mut &'a [u8],
    checksum: &mut Adler32,
    record: impl FnOnce(&mut Reader<'a>) -> Result<T, DecodeError>,
) -> Option<T> {
    let mut reader = Reader::new(rest);
    let value = record(&mut reader).ok()?;
    let mut sum = checksum.clone();
    sum.write(&rest[..rest.len() - reader.remaining()]);
    let seal = reader.i64().ok()?;
    reader.string().ok()?;
    if seal != i64::from(sum.finish()) {
        return None;
    }
    checksum.write(&rest[..rest.len() - reader.remaining()]);
    *rest = reader.rest();
    Some(value)
}

/// The beginning of a text.
fn shortened(text: &str) -> String {
    text.chars().take(100).collect()
}
