//! Transactions as the log keeps them: a header, a record by type, and since 3.6 the digest of the tree behind it.

use corral_core::tree::acl::AclEntry;
use std::borrow::Cow;

use corral_core::ids::Zxid;
use corral_core::path;
use corral_core::shared::Text;
use corral_core::tree::znode::Owner;
use corral_wire::error::DecodeError;
use corral_wire::jute::Reader;

use crate::java;

/// The beginning of every transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) session: i64,
    pub(crate) zxid: Zxid,
    /// Wall clock, milliseconds since 1970.
    pub(crate) time: i64,
}

/// A transaction of the log.
#[derive(Debug)]
pub(crate) struct Transaction<'a> {
    pub(crate) header: Header,
    pub(crate) body: Body<'a>,
    pub(crate) digest: Option<TxnDigest>,
}

/// The digest of the tree behind a transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TxnDigest {
    /// Of the definition.
    pub(crate) version: u32,
    pub(crate) digest: u64,
}

/// The change that a transaction makes.
#[derive(Debug)]
pub(crate) enum Body<'a> {
    CreateSession {
        timeout_ms: i32,
    },
    /// With the ephemerals to be deleted, unless a version before 3.6 wrote it.
    CloseSession(Vec<Cow<'a, str>>),
    Create(Create<'a>),
    Delete {
        path: Cow<'a, str>,
    },
    /// `version` is the new one.
    SetData {
        path: Cow<'a, str>,
        data: Option<&'a [u8]>,
        version: i32,
    },
    SetAcl {
        path: Cow<'a, str>,
        acl: Vec<AclEntry>,
        version: i32,
    },
    Multi(Vec<Body<'a>>),
    /// A check, which held, or a request that failed.
    Nothing {
        failed: bool,
    },
}

/// A znode is created.
#[derive(Debug)]
pub(crate) struct Create<'a> {
    pub(crate) path: Cow<'a, str>,
    pub(crate) data: Option<&'a [u8]>,
    pub(crate) acl: Vec<AclEntry>,
    pub(crate) owner: Owner,
    /// The parent's version of children after it. -1: one more than before.
    pub(crate) parent_cversion: i32,
    /// Whether the parent is updated even if the znode exists. ZooKeeper does so for one type only.
    pub(crate) updates_parent: bool,
}

mod kind {
    pub(super) const CREATE_SESSION: i32 = -10;
    pub(super) const CLOSE_SESSION: i32 = -11;
    pub(super) const ERROR: i32 = -1;
    pub(super) const CREATE: i32 = 1;
    pub(super) const DELETE: i32 = 2;
    pub(super) const SET_DATA: i32 = 5;
    pub(super) const SET_ACL: i32 = 7;
    pub(super) const CHECK: i32 = 13;
    pub(super) const MULTI: i32 = 14;
    pub(super) const CREATE2: i32 = 15;
    pub(super) const RECONFIG: i32 = 16;
    pub(super) const CREATE_CONTAINER: i32 = 19;
    pub(super) const DELETE_CONTAINER: i32 = 20;
    pub(super) const CREATE_TTL: i32 = 21;
}

/// Why bytes are no transaction.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TxnError {
    #[error("a transaction that cannot be decoded: {0}")]
    Encoding(#[from] DecodeError),
    #[error("a transaction of type {0}, which no version of ZooKeeper writes")]
    Type(i32),
    #[error("a transaction with the path {0:?}, which is not valid")]
    Path(String),
}

impl<'a> Transaction<'a> {
    /// Decodes a record of the log.
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Transaction<'a>, TxnError> {
        let mut reader = Reader::new(bytes);
        let session = reader.i64()?;
        let _cxid = reader.i32()?;
        let zxid = Zxid(reader.i64()?.cast_unsigned());
        let (time, kind) = (reader.i64()?, reader.i32()?);
        let header = Header { session, zxid, time };
        let body = body(&mut reader, kind, session)?;
        Ok(Transaction { header, body, digest: digest(reader) })
    }
}

/// Whether a transaction may begin here, by its type.
pub(crate) fn may_begin(bytes: &[u8]) -> bool {
    /// Session, cxid, zxid and time.
    const KIND_AT: usize = 28;
    let kind = bytes.get(KIND_AT..).and_then(|bytes| bytes.first_chunk()).map(|bytes| i32::from_be_bytes(*bytes));
    kind.is_some_and(|kind| {
        matches!(kind, kind::CREATE_SESSION | kind::CLOSE_SESSION | kind::ERROR)
            || (kind::CREATE..=kind::CREATE_TTL).contains(&kind)
    })
}

/// A version that keeps no digests writes nothing here.
fn digest(mut rest: Reader<'_>) -> Option<TxnDigest> {
    let version = u32::try_from(rest.i32().ok()?).ok()?;
    Some(TxnDigest { version, digest: rest.i64().ok()?.cast_unsigned() })
}

fn body<'a>(reader: &mut Reader<'a>, kind: i32, session: i64) -> Result<Body<'a>, TxnError> {
    Ok(match kind {
        kind::CREATE_SESSION => Body::CreateSession { timeout_ms: reader.i32()? },
        kind::CLOSE_SESSION => Body::CloseSession(closed(reader)),
        // The first form of 3.4 has no version of the parent's children.
        kind::CREATE => {
            let creator = |reader: &mut Reader<'a>| Ok((owner(reader, session)?, reader.i32().unwrap_or(-1)));
            Body::Create(Create { updates_parent: true, ..create_of(reader, creator)? })
        }
        kind::CREATE2 => Body::Create(create_of(reader, |reader| Ok((owner(reader, session)?, reader.i32()?)))?),
        kind::CREATE_CONTAINER => Body::Create(create_of(reader, |reader| Ok((Owner::Container, reader.i32()?)))?),
        kind::CREATE_TTL => {
            let with_ttl = |reader: &mut Reader<'a>| {
                let parent_cversion = reader.i32()?;
                Ok((Owner::Ttl(reader.i64()?), parent_cversion))
            };
            Body::Create(create_of(reader, with_ttl)?)
        }
        kind::DELETE | kind::DELETE_CONTAINER => Body::Delete { path: path(reader)? },
        kind::SET_DATA | kind::RECONFIG => {
            Body::SetData { path: path(reader)?, data: reader.buffer()?, version: reader.i32()? }
        }
        kind::SET_ACL => Body::SetAcl { path: path(reader)?, acl: acl(reader)?, version: reader.i32()? },
        kind::CHECK => {
            path(reader)?;
            reader.i32()?;
            Body::Nothing { failed: false }
        }
        kind::ERROR => {
            reader.i32()?;
            Body::Nothing { failed: true }
        }
        kind::MULTI => Body::Multi(parts(reader, session)?),
        other => return Err(TxnError::Type(other)),
    })
}

fn owner(reader: &mut Reader<'_>, session: i64) -> Result<Owner, TxnError> {
    Ok(if reader.bool()? { Owner::from_bits(session) } else { Owner::Persistent })
}

fn create_of<'a>(
    reader: &mut Reader<'a>,
    rest: impl FnOnce(&mut Reader<'a>) -> Result<(Owner, i32), TxnError>,
) -> Result<Create<'a>, TxnError> {
    let (path, data, acl) = (path(reader)?, reader.buffer()?, acl(reader)?);
    let (owner, parent_cversion) = rest(reader)?;
    Ok(Create { path, data, acl, owner, parent_cversion, updates_parent: false })
}

/// The operations of a multi. If one of them failed, none of them changes anything.
fn parts<'a>(reader: &mut Reader<'a>, session: i64) -> Result<Vec<Body<'a>>, TxnError> {
    let parts: Vec<(i32, &[u8])> = list(reader, |reader| Ok((reader.i32()?, reader.buffer()?.unwrap_or_default())))?;
    if parts.iter().any(|(kind, _)| *kind == kind::ERROR) {
        return Ok(Vec::from([Body::Nothing { failed: true }]));
    }
    let part = |(kind, bytes): (i32, &'a [u8])| match kind {
        kind::CREATE
        | kind::CREATE2
        | kind::CREATE_TTL
        | kind::CREATE_CONTAINER
        | kind::DELETE
        | kind::DELETE_CONTAINER
        | kind::SET_DATA
        | kind::CHECK => body(&mut Reader::new(bytes), kind, session),
        other => Err(TxnError::Type(other)),
    };
    parts.into_iter().map(part).collect()
}

/// The paths of a closed session's ephemerals. A version before 3.6 writes none, and the digest may be in their place.
fn closed<'a>(reader: &mut Reader<'a>) -> Vec<Cow<'a, str>> {
    let mut paths = *reader;
    match list(&mut paths, path) {
        Ok(list) => {
            *reader = paths;
            list
        }
        Err(_) => {
            *reader = Reader::new(&[]);
            Vec::new()
        }
    }
}

/// A valid path.
fn path<'a>(reader: &mut Reader<'a>) -> Result<Cow<'a, str>, TxnError> {
    let path = text(reader)?;
    if path::is_valid(&path) { Ok(path) } else { Err(TxnError::Path(path.chars().take(100).collect())) }
}

fn text<'a>(reader: &mut Reader<'a>) -> Result<Cow<'a, str>, TxnError> {
    Ok(java::text(reader.buffer()?.unwrap_or_default()))
}

fn acl(reader: &mut Reader<'_>) -> Result<Vec<AclEntry>, TxnError> {
    let shared = |reader: &mut Reader<'_>| Ok::<Text, TxnError>(Text::from(&*text(reader)?));
    list(reader, |reader| Ok(AclEntry { perms: reader.i32()?, scheme: shared(reader)?, id: shared(reader)? }))
}

/// A list of records; null is the empty one.
fn list<'a, T>(
    reader: &mut Reader<'a>,
    mut element: impl FnMut(&mut Reader<'a>) -> Result<T, TxnError>,
) -> Result<Vec<T>, TxnError> {
    let count = match reader.i32()? {
        -1 => 0,
        count if count < 0 => return Err(DecodeError::NegativeLength(count).into()),
        count => count,
    };
    // Each element takes four bytes at least, so the bytes that are there bound the list.
    (0..count).map(|_| element(reader)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use corral_wire::jute::Writer;

    /// A record of the log: its header, then what `body` writes.
    fn record(kind: i32, body: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        writer.i64(77);
        writer.i32(1);
        writer.i64(9);
        writer.i64(1000);
        writer.i32(kind);
        body(&mut writer);
        bytes
    }

    fn create(writer: &mut Writer<'_>) {
        writer.str("/a");
        writer.buffer(Some(b"data"));
        writer.i32(1);
        writer.i32(31);
        writer.str("world");
        writer.str("anyone");
        writer.bool(true);
    }

    #[test]
    fn the_first_form_of_create_has_no_version_of_the_parent() {
        for parent_cversion in [None, Some(7)] {
            let bytes = record(kind::CREATE, |writer| {
                create(writer);
                parent_cversion.into_iter().for_each(|version| writer.i32(version));
            });
            let decoded = Transaction::decode(&bytes).expect("a transaction");
            let Body::Create(found) = decoded.body else { panic!("{decoded:?}") };
            assert_eq!((found.parent_cversion, found.updates_parent), (parent_cversion.unwrap_or(-1), true));
            assert_eq!((&*found.path, found.data, found.acl.len()), ("/a", Some(&b"data"[..]), 1));
            assert_eq!(found.owner, Owner::from_bits(77));
            assert!(decoded.digest.is_none());
        }
    }

    #[test]
    fn a_closed_session_may_have_no_paths() {
        let digest = |writer: &mut Writer<'_>| {
            writer.i32(2);
            writer.i64(-5);
        };
        let paths = |writer: &mut Writer<'_>| {
            writer.i32(1);
            writer.str("/e");
        };
        let old = record(kind::CLOSE_SESSION, |_| {});
        let whole = record(kind::CLOSE_SESSION, |writer| {
            paths(writer);
            digest(writer);
        });
        for (bytes, expect, has_digest) in [(&old, vec![], false), (&whole, vec![Cow::from("/e")], true)] {
            let decoded = Transaction::decode(bytes).expect("a transaction");
            let Body::CloseSession(found) = &decoded.body else { panic!("{decoded:?}") };
            assert_eq!((found.len(), decoded.digest.is_some()), (expect.len(), has_digest));
            assert!(found.iter().eq(&expect), "{found:?}");
        }
    }

    #[test]
    fn lists_are_not_believed() {
        let bytes = record(kind::MULTI, |writer| writer.i32(i32::MAX));
        assert!(matches!(Transaction::decode(&bytes), Err(TxnError::Encoding(DecodeError::Truncated))));
        let bytes = record(99, |_| {});
        assert!(matches!(Transaction::decode(&bytes), Err(TxnError::Type(99))));
    }
}
