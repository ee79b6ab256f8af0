//! Writes a snapshot that ZooKeeper starts from (`FileSnap`).

use std::collections::BTreeMap;
use std::io::{self, Write};

use corral_core::ids::Zxid;
use corral_core::session::SessionTable;
use corral_core::tree::digest::{self, DIGEST_VERSION};
use corral_core::tree::view::{NodeRef, View};
use corral_wire::jute::Writer;
use simd_adler32::Adler32;

use crate::directory::SNAPSHOTS;
use crate::snapshot::{DATABASE, MAGIC, OPEN};
use crate::{BUFFER_BYTES, PROGRESS_EVERY};

/// Of the format, which ZooKeeper writes since 3.0.
const VERSION: i32 = 2;

/// The name of a snapshot.
#[must_use]
pub fn file_name(zxid: Zxid) -> String {
    format!("{SNAPSHOTS}.{:x}", zxid.0)
}

/// Writes tree and sessions. `progress` is given the number of znodes so far.
///
/// The bytes are those of ZooKeeper 3.9, with digest and last zxid. Earlier versions stop after the last seal of their own format.
///
/// # Errors
/// Those of `to`, and a tree without the digest that was kept with it.
pub fn write<W: Write>(view: &View, sessions: &SessionTable, to: W, progress: &mut dyn FnMut(u64)) -> io::Result<W> {
    let mut out = Sealed { to, bytes: Vec::new(), checksum: Adler32::new() };
    out.put(|writer| {
        writer.i32(MAGIC);
        writer.i32(VERSION);
        writer.i64(DATABASE);
        writer.i32(count(sessions.len()));
    })?;
    for (id, session) in sessions.iter() {
        out.put(|writer| {
            writer.i64(id.0);
            writer.i32(session.timeout_ms);
        })?;
    }
    let acls = acls(view);
    out.put(|writer| writer.i32(count(acls.len())))?;
    for (list, id) in &acls {
        out.put(|writer| {
            writer.i64(*id);
            writer.i32(count(list.len()));
            for (perms, scheme, name) in list {
                writer.i32(*perms);
                writer.str(scheme);
                writer.str(name);
            }
        })?;
    }
    let digest = out.nodes(view, &acls, progress)?;
    if view.tree_digest().is_some_and(|kept| kept != digest) {
        return Err(io::Error::other("the tree does not have the digest that was kept with it"));
    }
    out.seal()?;
    out.put(|writer| {
        writer.i64(view.zxid().0.cast_signed());
        writer.u32(DIGEST_VERSION);
        writer.i64(digest.cast_signed());
    })?;
    out.seal()?;
    out.put(|writer| writer.i64(view.zxid().0.cast_signed()))?;
    out.seal()?;
    out.finish()
}

/// An ACL list as a key.
type List<'v> = Vec<(i32, &'v str, &'v str)>;

fn list_of(node: NodeRef<'_>) -> Option<List<'_>> {
    (!node.is_open_acl()).then(|| node.acl().iter().collect())
}

/// Different ACL lists with their numbers, the open one without.
fn acls(view: &View) -> BTreeMap<List<'_>, i64> {
    let mut acls = BTreeMap::new();
    view.walk("/", |_, node| {
        if let Some(list) = list_of(node) {
            let next = acls.len() as i64 + 1;
            acls.entry(list).or_insert(next);
        }
        true
    });
    acls
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Buffers bytes, and updates the checksum of all bytes written.
struct Sealed<W> {
    to: W,
    bytes: Vec<u8>,
    checksum: Adler32,
}

impl<W: Write> Sealed<W> {
    fn put(&mut self, write: impl FnOnce(&mut Writer<'_>)) -> io::Result<()> {
        write(&mut Writer::new(&mut self.bytes));
        if self.bytes.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.checksum.write(&self.bytes);
        self.to.write_all(&self.bytes)?;
        self.bytes.clear();
        Ok(())
    }

    /// Parents come before their children. The root's path is the empty text, and a single slash ends the list. Returns the
    /// digest of the tree.
    fn nodes(&mut self, view: &View, acls: &BTreeMap<List<'_>, i64>, progress: &mut dyn FnMut(u64)) -> io::Result<u64> {
        let (mut done, mut digest, mut result) = (0_u64, 0_u64, Ok(()));
        view.walk("/", |path, node| {
            let acl = list_of(node).map_or(OPEN, |list| acls[&list]);
            digest = digest.wrapping_add(digest::of_znode(path, node.data(), &node.stat()));
            result = self.put(|writer| node_record(writer, path, node, acl));
            done += 1;
            if done.is_multiple_of(PROGRESS_EVERY) {
                progress(done);
            }
            result.is_ok()
        });
        result?;
        self.put(|writer| writer.str("/")).map(|()| digest)
    }

    /// The checksum of all before it, and a slash.
    fn seal(&mut self) -> io::Result<()> {
        self.flush()?;
        let checksum = i64::from(self.checksum.finish());
        self.put(|writer| {
            writer.i64(checksum);
            writer.str("/");
        })
    }

    fn finish(mut self) -> io::Result<W> {
        self.flush()?;
        self.to.flush()?;
        Ok(self.to)
    }
}

fn node_record(writer: &mut Writer<'_>, path: &str, node: NodeRef<'_>, acl: i64) {
    let stat = node.stat();
    writer.str(if path == "/" { "" } else { path });
    writer.buffer(node.data());
    writer.i64(acl);
    writer.i64(stat.czxid.0.cast_signed());
    writer.i64(stat.mzxid.0.cast_signed());
    writer.i64(stat.ctime);
    writer.i64(stat.mtime);
    writer.i32(stat.version);
    writer.i32(stat.cversion);
    writer.i32(stat.aversion);
    writer.i64(stat.owner);
    writer.i64(stat.pzxid.0.cast_signed());
}
