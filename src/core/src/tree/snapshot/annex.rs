//! Lists that are too long for one archive of the meta section: ACL lists, paths of ephemerals and of reapable znodes.
//!
//! Archives address themselves with 32 bits. When a meta section would come near that, these lists are in annexes.
//! These are archives of their own, in front of the meta section's and within its bytes. So a snapshot can be written
//! of every state. Ordinary snapshots have none.

use super::fault::SnapshotFault;
use super::format::{Annex, ArchivedAnnex, Ephemerals, FORMAT_WITH_ANNEXES, Meta, SnapshotSession};
use super::layout::{SECTION_ALIGN, SECTION_BYTES_MAX};
use crate::shared::Text;
use crate::tree::acl::{AclEntry, AclList, ArchivedAclEntry};
use crate::tree::digest;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;
use core::ops::Range;
use rkyv::rancor;
use rkyv::string::ArchivedString;
use rkyv::util::AlignedVec;
use rkyv::vec::ArchivedVec;

/// Bytes of the lists of one archive, but for its last element.
pub(super) const ARCHIVE_BYTES: usize = 256 << 20;
/// Bytes of an archived ACL entry besides its texts, at most.
const ACL_ENTRY_BYTES: usize = 48;
/// Of a path.
const PATH_BYTES: usize = 16;
/// Between the digest and the first annex: how many there are, and the length of each.
const NUMBER_BYTES: usize = 8;
const OUTSIDE: SnapshotFault = SnapshotFault::Layout("an annex lies outside the meta section");

/// The bytes of a meta section, with annexes if its lists take more than that together.
pub(super) fn meta_bytes(mut meta: Meta, digest: u64, archive_bytes: usize) -> Result<AlignedVec, SnapshotFault> {
    let mut bytes = AlignedVec::<SECTION_ALIGN>::new();
    bytes.extend_from_slice(&digest::stored(digest));
    if list_bytes(&meta) > archive_bytes {
        meta.format = FORMAT_WITH_ANNEXES;
        let archives: Vec<AlignedVec> = cut(&mut meta, archive_bytes).iter().map(archive).collect::<Result<_, _>>()?;
        let numbers = core::iter::once(archives.len()).chain(archives.iter().map(AlignedVec::len));
        for number in numbers {
            bytes.extend_from_slice(&(number as u64).to_le_bytes());
        }
        for archive in archives {
            pad(&mut bytes);
            bytes.extend_from_slice(&archive);
        }
        pad(&mut bytes);
    }
    let own = meta.sessions.len() * size_of::<SnapshotSession>() + meta.extra.len();
    if own > SECTION_BYTES_MAX {
        return Err(SnapshotFault::SectionTooLarge { index: 1 << meta.section_bits, bytes: own });
    }
    rkyv::api::high::to_bytes_in::<_, rancor::Error>(&meta, bytes).map_err(|reason| SnapshotFault::encode(&reason))
}

/// Where the annexes of a meta section lie within it.
pub(super) fn places(part: &[u8]) -> Result<Vec<Range<usize>>, SnapshotFault> {
    let mut at = digest::STORED_BYTES;
    let mut number = || {
        let bytes = part.get(at..at.saturating_add(NUMBER_BYTES)).ok_or(OUTSIDE)?;
        at += NUMBER_BYTES;
        let number = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        usize::try_from(number).map_err(|_| SnapshotFault::Layout("an annex is longer than memory"))
    };
    let count = number()?;
    if count > part.len() / NUMBER_BYTES {
        return Err(SnapshotFault::Layout("there are more annexes than bytes"));
    }
    let lengths = (0..count).map(|_| number()).collect::<Result<Vec<usize>, _>>()?;
    let mut places = Vec::with_capacity(count);
    for length in lengths {
        let start = at.next_multiple_of(SECTION_ALIGN);
        at = start.saturating_add(length);
        part.get(start..at).ok_or(OUTSIDE)?;
        places.push(start..at);
    }
    Ok(places)
}

/// Checks an annex.
pub(super) fn annex_root(bytes: &[u8]) -> Result<&ArchivedAnnex, SnapshotFault> {
    rkyv::access::<ArchivedAnnex, rancor::Error>(bytes).map_err(|reason| SnapshotFault::meta(&reason))
}

/// The lists of a snapshot, with one copy of each text: many lists name the same few users.
pub(super) fn shared_lists<'a>(lists: impl Iterator<Item = &'a ArchivedVec<ArchivedAclEntry>>) -> Vec<Arc<AclList>> {
    let mut texts: BTreeMap<&str, Text> = BTreeMap::new();
    let mut shared = |text: &'a ArchivedString| texts.entry(text).or_insert_with(|| Text::from(text.as_str())).clone();
    let mut entry = |entry: &'a ArchivedAclEntry| AclEntry {
        perms: entry.perms.to_native(),
        scheme: shared(&entry.scheme),
        id: shared(&entry.id),
    };
    lists.map(|list| Arc::new(AclList::from(list.iter().map(&mut entry).collect::<Vec<AclEntry>>()))).collect()
}

/// Copies of archived texts.
pub(super) fn texts(list: &ArchivedVec<ArchivedString>) -> impl Iterator<Item = Text> {
    list.iter().map(|text| Text::from(text.as_str()))
}

fn archive(annex: &Annex) -> Result<AlignedVec, SnapshotFault> {
    rkyv::to_bytes::<rancor::Error>(annex).map_err(|reason| SnapshotFault::encode(&reason))
}

fn pad(bytes: &mut AlignedVec<SECTION_ALIGN>) {
    bytes.resize(bytes.len().next_multiple_of(SECTION_ALIGN), 0);
}

fn list_bytes(meta: &Meta) -> usize {
    let paths = meta.sessions.iter().flat_map(|session| &session.ephemerals).chain(&meta.reapable);
    paths.map(path_bytes).sum::<usize>() + meta.acls.iter().map(acl_bytes).sum::<usize>()
}

fn path_bytes(path: &Text) -> usize {
    path.len() + PATH_BYTES
}

fn acl_bytes(list: &Arc<Vec<AclEntry>>) -> usize {
    let entry = |entry: &AclEntry| entry.scheme.len() + entry.id.len() + ACL_ENTRY_BYTES;
    list.iter().map(entry).sum()
}

/// Takes the lists out, in their order.
fn cut(meta: &mut Meta, archive_bytes: usize) -> Vec<Annex> {
    let mut cutter = Cutter { done: Vec::new(), open: Annex::default(), left: archive_bytes, archive_bytes };
    for list in mem::take(&mut meta.acls) {
        cutter.room_for(acl_bytes(&list)).acls.push(list);
    }
    for (session, at) in meta.sessions.iter_mut().zip(0..) {
        for path in mem::take(&mut session.ephemerals) {
            let ephemerals = &mut cutter.room_for(path_bytes(&path)).ephemerals;
            match ephemerals.last_mut() {
                Some(last) if last.session == at => last.paths.push(path),
                _ => ephemerals.push(Ephemerals { session: at, paths: alloc::vec![path] }),
            }
        }
    }
    for path in mem::take(&mut meta.reapable) {
        cutter.room_for(path_bytes(&path)).reapable.push(path);
    }
    cutter.done.push(cutter.open);
    cutter.done
}

struct Cutter {
    done: Vec<Annex>,
    open: Annex,
    left: usize,
    archive_bytes: usize,
}

impl Cutter {
    fn room_for(&mut self, bytes: usize) -> &mut Annex {
        if self.left == 0 {
            self.done.push(mem::take(&mut self.open));
            self.left = self.archive_bytes;
        }
        self.left = self.left.saturating_sub(bytes);
        &mut self.open
    }
}
