//! Requests, replies and events of clients, as plain values of the simulator's own, and their bytes through
//! `corral-wire`.
//!
//! Knows no server type: the model and the checkers are written against these.

use std::collections::BTreeSet;

use corral_wire::frame::append_frame;
use corral_wire::multi::{MultiResponse, MultiResult};
use corral_wire::records::{
    Acl, AuthPacket, ConnectRequest, Create2Response, CreateRequest, CreateResponse, ErrorResponse, GetAclResponse,
    GetAllChildrenNumberResponse, GetChildren2Response, GetChildrenResponse, GetDataResponse, GetEphemeralsResponse,
    ReconfigRequest, RequestHeader, SetAclRequest, SetDataRequest, SetWatches, SetWatches2, Stat, SyncResponse,
};
use corral_wire::{DecodeError, OpCode, Reader, VectorBuf, Wire, Writer};

use crate::reconfig::Change;

pub(crate) const NO_NODE: i32 = -101;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AclItem {
    pub(crate) perms: i32,
    pub(crate) scheme: String,
    pub(crate) id: String,
}

impl AclItem {
    pub(crate) fn new(perms: i32, scheme: &str, id: &str) -> AclItem {
        AclItem { perms, scheme: scheme.to_owned(), id: id.to_owned() }
    }

    /// `world:anyone` with all permissions.
    pub(crate) fn open() -> AclItem {
        AclItem::new(31, "world", "anyone")
    }
}

/// One operation that may change the tree. Something that expires is a container, or with a time to live in milliseconds
/// a TTL node. A Stat is checked for its version and its number of children, either of them -1 for any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    Create { with_stat: bool, path: String, data: Option<Vec<u8>>, acl: Vec<AclItem>, flags: i32 },
    Delete { path: String, version: i32 },
    SetData { path: String, data: Option<Vec<u8>>, version: i32 },
    SetAcl { path: String, acl: Vec<AclItem>, version: i32 },
    Check { path: String, version: i32 },
    CreateExpiring { path: String, ttl: Option<i64> },
    Ensure { path: String, data: Option<Vec<u8>> },
    CheckNotExists { path: String, version: i32 },
    CheckStat { path: String, version: i32, children: i32 },
    TryRemove { path: String, version: i32 },
    RemoveRecursive { path: String, limit: u32 },
}

/// The kinds that checkWatches and removeWatches look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchKind {
    Children = 1,
    Data = 2,
    Any = 3,
    Persistent = 4,
    Recursive = 5,
}

/// Paths that are watched, in each way.
#[derive(Clone, Debug, Default)]
pub(crate) struct WatchLists {
    pub(crate) data: BTreeSet<String>,
    pub(crate) child: BTreeSet<String>,
    pub(crate) persistent: BTreeSet<String>,
    pub(crate) recursive: BTreeSet<String>,
}

impl WatchLists {
    pub(crate) fn of_kind(&mut self, kind: WatchKind) -> Vec<&mut BTreeSet<String>> {
        match kind {
            WatchKind::Children => vec![&mut self.child],
            WatchKind::Data => vec![&mut self.data],
            WatchKind::Persistent => vec![&mut self.persistent],
            WatchKind::Recursive => vec![&mut self.recursive],
            WatchKind::Any => vec![&mut self.child, &mut self.data, &mut self.persistent, &mut self.recursive],
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        [&self.data, &self.child, &self.persistent, &self.recursive].iter().all(|list| list.is_empty())
    }
}

type Paths = Vec<String>;

/// One request of a client. Ephemerals are the session's own. A truncated one is of a known operation, and its record is
/// cut short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Ping,
    Auth { credentials: &'static str },
    Close,
    Write(Write),
    Multi(Vec<Write>),
    Reconfig(Change),
    Exists { path: String, watch: bool },
    GetData { path: String, watch: bool },
    GetChildren { path: String, watch: bool, with_stat: bool },
    GetAcl { path: String },
    Sync { path: String },
    SetWatches { seen: i64, data: Paths, exist: Paths, child: Paths, persistent: Paths, recursive: Paths },
    AddWatch { path: String, recursive: bool },
    CheckWatches { path: String, kind: WatchKind },
    RemoveWatches { path: String, kind: WatchKind },
    Ephemerals { prefix: String },
    CountDescendants { path: String },
    Truncated(OpCode),
    Unknown(i32),
}

/// The record of a successful reply, or one result in a multi's; `Done` is of Keeper's operations that answer with nothing
/// but success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    Nothing,
    Path(String),
    PathStat(String, Stat),
    Stat(Stat),
    Data(Option<Vec<u8>>, Stat),
    Names(Vec<String>),
    Count(i32),
    NamesStat(Vec<String>, Stat),
    Acl(Vec<AclItem>, Stat),
    Multi(Vec<Body>),
    Deleted,
    Checked,
    Done,
    Error(i32),
}

impl Request {
    /// The one operation, or those of a multi.
    pub(crate) fn writes(&self) -> &[Write] {
        match self {
            Request::Write(write) => std::slice::from_ref(write),
            Request::Multi(writes) => writes,
            _ => &[],
        }
    }

    /// Whether it may add data to the tree.
    pub(crate) fn adds_data(&self) -> bool {
        let adds = |write: &Write| {
            matches!(
                write,
                Write::Create { .. }
                    | Write::CreateExpiring { .. }
                    | Write::Ensure { .. }
                    | Write::SetData { .. }
                    | Write::SetAcl { .. }
            )
        };
        self.writes().iter().any(adds)
    }

    /// Whether it makes a znode that counts what is below a quota.
    pub(crate) fn makes_usage(&self) -> bool {
        self.writes().iter().any(|write| match write {
            Write::Create { path, .. } | Write::CreateExpiring { path, .. } | Write::Ensure { path, .. } => {
                path.ends_with("/zookeeper_stats")
            }
            _ => false,
        })
    }

    pub(crate) fn is_write(&self) -> bool {
        match self {
            // A multi that makes no sense takes a zxid.
            Request::Truncated(op) => *op == OpCode::Multi,
            _ => matches!(self, Request::Write(_) | Request::Multi(_) | Request::Reconfig(_) | Request::Close),
        }
    }

    /// The watch that a reply with this code sets.
    pub(crate) fn watch_set(&self, err: i32) -> Option<(WatchKind, &str)> {
        let (kind, path) = match self {
            Request::Exists { path, watch: true } if err == NO_NODE => return Some((WatchKind::Data, path)),
            Request::Exists { path, watch: true } | Request::GetData { path, watch: true } => (WatchKind::Data, path),
            Request::GetChildren { path, watch: true, .. } => (WatchKind::Children, path),
            Request::AddWatch { path, recursive: false } => (WatchKind::Persistent, path),
            Request::AddWatch { path, recursive: true } => (WatchKind::Recursive, path),
            _ => return None,
        };
        (err == 0).then_some((kind, path))
    }

    pub(crate) fn encode(&self, xid: i32) -> Vec<u8> {
        let (op, record) = self.record();
        request(xid, op, &record)
    }

    /// The number of the operation, and the record behind the header.
    fn record(&self) -> (i32, Vec<u8>) {
        let (op, record) = match self {
            Request::Ping => (OpCode::Ping, Vec::new()),
            Request::Close => (OpCode::CloseSession, Vec::new()),
            Request::Unknown(number) => return (*number, Vec::new()),
            Request::Truncated(op) => (*op, vec![0, 0, 0]),
            Request::Auth { credentials } => {
                let auth = Some(credentials.as_bytes());
                (OpCode::Auth, bytes(&AuthPacket { auth_type: 0, scheme: Some("digest"), auth }))
            }
            Request::Write(write) => write.record(),
            Request::Multi(writes) => (OpCode::Multi, multi(writes)),
            Request::Reconfig(change) => {
                let (texts, cur_config_id) = (change.texts(), change.from);
                let [joining_servers, leaving_servers, new_members] = texts.each_ref().map(Option::as_deref);
                let record = ReconfigRequest { joining_servers, leaving_servers, new_members, cur_config_id };
                (OpCode::Reconfig, bytes(&record))
            }
            Request::Exists { path, watch } => (OpCode::Exists, on_path(path, &[u8::from(*watch)])),
            Request::GetData { path, watch } => (OpCode::GetData, on_path(path, &[u8::from(*watch)])),
            Request::GetChildren { path, watch, with_stat } => {
                let op = if *with_stat { OpCode::GetChildren2 } else { OpCode::GetChildren };
                (op, on_path(path, &[u8::from(*watch)]))
            }
            Request::GetAcl { path } => (OpCode::GetAcl, on_path(path, &[])),
            Request::Sync { path } => (OpCode::Sync, on_path(path, &[])),
            Request::SetWatches { seen, data, exist, child, persistent, recursive } => {
                let all = [data, exist, child, persistent, recursive];
                let is_old = persistent.is_empty() && recursive.is_empty();
                let lists = all.map(|list| VectorBuf::of(list.iter().map(|path| Some(path.as_str()))));
                let [data_watches, exist_watches, child_watches, persistent_watches, persistent_recursive_watches] =
                    lists.each_ref().map(|list| Some(list.view().expect("text is text")));
                let relative_zxid = *seen;
                let old = SetWatches { relative_zxid, data_watches, exist_watches, child_watches };
                let new = SetWatches2 {
                    relative_zxid,
                    data_watches,
                    exist_watches,
                    child_watches,
                    persistent_watches,
                    persistent_recursive_watches,
                };
                if is_old { (OpCode::SetWatches, bytes(&old)) } else { (OpCode::SetWatches2, bytes(&new)) }
            }
            Request::AddWatch { path, recursive } => (OpCode::AddWatch, on_path(path, &number(i32::from(*recursive)))),
            Request::CheckWatches { path, kind } => (OpCode::CheckWatches, on_path(path, &number(*kind as i32))),
            Request::RemoveWatches { path, kind } => (OpCode::RemoveWatches, on_path(path, &number(*kind as i32))),
            Request::Ephemerals { prefix } => (OpCode::GetEphemerals, on_path(prefix, &[])),
            Request::CountDescendants { path } => (OpCode::GetAllChildrenNumber, on_path(path, &[])),
        };
        (op.number(), record)
    }

    /// The body of a successful reply to this request.
    ///
    /// # Errors
    /// When the bytes are no such record, or more.
    pub(crate) fn decode(&self, reader: &mut Reader<'_>) -> Result<Body, DecodeError> {
        let body = match self {
            Request::Write(write) => write.decode(reader)?,
            Request::Multi(_) => {
                Body::Multi(MultiResponse::decode(reader)?.iter().map(item).collect::<Result<_, _>>()?)
            }
            Request::Exists { .. } => Body::Stat(Stat::decode(reader)?),
            Request::GetData { .. } | Request::Reconfig(_) => {
                let GetDataResponse { data, stat } = GetDataResponse::decode(reader)?;
                Body::Data(data.map(<[u8]>::to_vec), stat)
            }
            Request::GetChildren { with_stat: false, .. } => {
                Body::Names(names(GetChildrenResponse::decode(reader)?.children)?)
            }
            Request::GetChildren { with_stat: true, .. } => {
                let GetChildren2Response { children, stat } = GetChildren2Response::decode(reader)?;
                Body::NamesStat(names(children)?, stat)
            }
            Request::GetAcl { .. } => {
                let GetAclResponse { acl, stat } = GetAclResponse::decode(reader)?;
                let list = acl.ok_or(DecodeError::Truncated)?;
                let item =
                    |acl: Acl<'_>| AclItem::new(acl.perms, acl.scheme.unwrap_or_default(), acl.id.unwrap_or_default());
                Body::Acl(list.iter().map(item).collect(), stat)
            }
            Request::AddWatch { .. } => Body::Count(ErrorResponse::decode(reader)?.err),
            Request::Ephemerals { .. } => Body::Names(names(GetEphemeralsResponse::decode(reader)?.ephemerals)?),
            Request::CountDescendants { .. } => Body::Count(GetAllChildrenNumberResponse::decode(reader)?.total_number),
            Request::Sync { .. } => Body::Path(SyncResponse::decode(reader)?.path.unwrap_or_default().to_owned()),
            _ => Body::Nothing,
        };
        if reader.remaining() == 0 { Ok(body) } else { Err(DecodeError::Truncated) }
    }
}

impl Write {
    /// The operation and the record of its request.
    fn record(&self) -> (OpCode, Vec<u8>) {
        let create = |path: &str, data: &Option<Vec<u8>>, acl: &[AclItem], flags: i32| {
            let acl = acl_buf(acl);
            bytes(&CreateRequest { path: Some(path), data: data.as_deref(), acl: acl.view().ok(), flags })
        };
        let open = [AclItem::open()];
        match self {
            Write::Create { with_stat, path, data, acl, flags } => {
                let op = if *with_stat { OpCode::Create2 } else { OpCode::Create };
                (op, create(path, data, acl, *flags))
            }
            Write::Delete { path, version } => (OpCode::Delete, on_path(path, &number(*version))),
            Write::SetData { path, data, version } => {
                let (data, version) = (data.as_deref(), *version);
                (OpCode::SetData, bytes(&SetDataRequest { path: Some(path), data, version }))
            }
            Write::SetAcl { path, acl, version } => {
                let acl = acl_buf(acl);
                let (acl, version) = (acl.view().ok(), *version);
                (OpCode::SetAcl, bytes(&SetAclRequest { path: Some(path), acl, version }))
            }
            Write::Check { path, version } => (OpCode::Check, on_path(path, &number(*version))),
            Write::CreateExpiring { path, ttl: None } => (OpCode::CreateContainer, create(path, &None, &open, 4)),
            Write::CreateExpiring { path, ttl: Some(ttl) } => {
                (OpCode::CreateTtl, [create(path, &None, &open, 5), ttl.to_be_bytes().to_vec()].concat())
            }
            Write::Ensure { path, data } => (OpCode::CreateIfNotExists, create(path, data, &open, 0)),
            Write::CheckNotExists { path, version } => (OpCode::CheckNotExists, on_path(path, &number(*version))),
            Write::CheckStat { path, version, children } => {
                let (any, children, last) = ([0xff; 56], number(*children), [0xff; 8]);
                (OpCode::CheckStat, on_path(path, &[&number(*version), &any[..], &children, &last].concat()))
            }
            Write::TryRemove { path, version } => (OpCode::TryRemove, on_path(path, &number(*version))),
            Write::RemoveRecursive { path, limit } => (OpCode::RemoveRecursive, on_path(path, &limit.to_be_bytes())),
        }
    }

    fn decode(&self, reader: &mut Reader<'_>) -> Result<Body, DecodeError> {
        Ok(match self {
            Write::Create { with_stat: false, .. } | Write::Ensure { .. } => {
                Body::Path(CreateResponse::decode(reader)?.path.unwrap_or_default().to_owned())
            }
            Write::Create { with_stat: true, .. } | Write::CreateExpiring { .. } => {
                let Create2Response { path, stat } = Create2Response::decode(reader)?;
                Body::PathStat(path.unwrap_or_default().to_owned(), stat)
            }
            Write::SetData { .. } | Write::SetAcl { .. } => Body::Stat(Stat::decode(reader)?),
            _ => Body::Nothing,
        })
    }
}

/// A frame of a header and the record behind it.
pub(crate) fn request(xid: i32, op: i32, record: &[u8]) -> Vec<u8> {
    frame(|writer| {
        RequestHeader { xid, op }.encode(writer);
        writer.raw(record);
    })
}

/// A frame that asks for a session; id 0 for a new one.
pub(crate) fn connect(
    (session_id, password): (i64, [u8; 16]),
    last_zxid_seen: i64,
    timeout_ms: i32,
    read_only: Option<bool>,
) -> Vec<u8> {
    let passwd = Some(&password[..]);
    let request = ConnectRequest { protocol_version: 0, last_zxid_seen, timeout_ms, session_id, passwd, read_only };
    frame(|writer| request.encode(writer))
}

fn frame(encode: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut frame = Vec::new();
    append_frame(&mut frame, encode).expect("requests are small");
    frame
}

fn acl_buf(acl: &[AclItem]) -> VectorBuf {
    VectorBuf::of(acl.iter().map(|item| Acl { perms: item.perms, scheme: Some(&item.scheme), id: Some(&item.id) }))
}

fn bytes<'a>(record: &impl Wire<'a>) -> Vec<u8> {
    let mut bytes = Vec::new();
    record.encode(&mut Writer::new(&mut bytes));
    bytes
}

fn number(number: i32) -> [u8; 4] {
    number.to_be_bytes()
}

/// A record of a path and the bytes behind it.
fn on_path(path: &str, rest: &[u8]) -> Vec<u8> {
    [&bytes(&Some(path)), rest].concat()
}

/// A setACL becomes a check: no multi may hold one.
fn multi(writes: &[Write]) -> Vec<u8> {
    let mut record = Vec::new();
    for write in writes {
        let (op, request) = match write {
            Write::SetAcl { path, version, .. } => (OpCode::Check, on_path(path, &number(*version))),
            _ => write.record(),
        };
        record.extend([&number(op.number()), &[0, 255, 255, 255, 255][..], &request].concat());
    }
    record.extend([255, 255, 255, 255, 1, 255, 255, 255, 255]);
    record
}

fn item(result: MultiResult<'_>) -> Result<Body, DecodeError> {
    Ok(match result {
        MultiResult::Create(made) | MultiResult::CreateIfNotExists(made) => {
            Body::Path(made.path.unwrap_or_default().to_owned())
        }
        MultiResult::Create2(made) => Body::PathStat(made.path.unwrap_or_default().to_owned(), made.stat),
        MultiResult::Delete => Body::Deleted,
        MultiResult::SetData(set) => Body::Stat(set.stat),
        MultiResult::Check => Body::Checked,
        MultiResult::CheckNotExists
        | MultiResult::CheckStat
        | MultiResult::TryRemove
        | MultiResult::RemoveRecursive => Body::Done,
        MultiResult::Error(code) => Body::Error(code),
        MultiResult::GetData(_)
        | MultiResult::GetChildren(_)
        | MultiResult::FilteredList(_)
        | MultiResult::FilteredListWithStatsAndData(_) => return Err(DecodeError::BadOp(4)),
    })
}

fn names(list: Option<corral_wire::records::Strings<'_>>) -> Result<Vec<String>, DecodeError> {
    let list = list.ok_or(DecodeError::Truncated)?;
    let mut names: Vec<String> = list.iter().map(|name| name.unwrap_or_default().to_owned()).collect();
    names.sort_unstable();
    Ok(names)
}
