//! What clients say and hear, as plain values of the simulator's own, and their bytes through `corral-wire`.
//!
//! Knows no server type: the model and the checkers are written against these.

use corral_wire::frame::{begin_frame, end_frame};
use corral_wire::multi::{MultiResponse, MultiResult};
use corral_wire::records::{
    Acl, AddWatchRequest, AuthPacket, CheckNotExistsRequest, CheckStatRequest, CheckVersionRequest,
    CheckWatchesRequest, Create2Response, CreateRequest, CreateResponse, DeleteRequest, ErrorResponse, ExistsRequest,
    GetAclRequest, GetAclResponse, GetAllChildrenNumberRequest, GetAllChildrenNumberResponse, GetChildren2Response,
    GetChildrenRequest, GetChildrenResponse, GetDataRequest, GetDataResponse, GetEphemeralsRequest,
    GetEphemeralsResponse, RemoveRecursiveRequest, RemoveWatchesRequest, RequestHeader, SetAclRequest, SetDataRequest,
    SetWatches, SetWatches2, Stat, SyncRequest, SyncResponse, TryRemoveRequest,
};
use corral_wire::{DecodeError, OpCode, Reader, VectorBuf, Writer};

use crate::reconfig::Change;

/// One entry of an ACL.
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

/// One operation that may change the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    Create {
        with_stat: bool,
        path: String,
        data: Option<Vec<u8>>,
        acl: Vec<AclItem>,
        flags: i32,
    },
    Delete {
        path: String,
        version: i32,
    },
    SetData {
        path: String,
        data: Option<Vec<u8>>,
        version: i32,
    },
    SetAcl {
        path: String,
        acl: Vec<AclItem>,
        version: i32,
    },
    Check {
        path: String,
        version: i32,
    },
    /// A container, or with a time to live in milliseconds a TTL node.
    CreateExpiring {
        path: String,
        ttl: Option<i64>,
    },
    Ensure {
        path: String,
        data: Option<Vec<u8>>,
    },
    CheckNotExists {
        path: String,
        version: i32,
    },
    /// Version and number of children, either of them -1 for any.
    CheckStat {
        path: String,
        version: i32,
        children: i32,
    },
    TryRemove {
        path: String,
        version: i32,
    },
    RemoveRecursive {
        path: String,
        limit: u32,
    },
}

/// What checkWatches and removeWatches look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchKind {
    Children = 1,
    Data = 2,
    Any = 3,
    Persistent = 4,
    Recursive = 5,
}

/// One request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Ping,
    Auth {
        credentials: &'static str,
    },
    Close,
    Write(Write),
    Multi(Vec<Write>),
    Reconfig(Change),
    Exists {
        path: String,
        watch: bool,
    },
    GetData {
        path: String,
        watch: bool,
    },
    GetChildren {
        path: String,
        watch: bool,
        with_stat: bool,
    },
    GetAcl {
        path: String,
    },
    Sync {
        path: String,
    },
    SetWatches {
        seen: i64,
        data: Vec<String>,
        exist: Vec<String>,
        child: Vec<String>,
        persistent: Vec<String>,
        recursive: Vec<String>,
    },
    AddWatch {
        path: String,
        recursive: bool,
    },
    CheckWatches {
        path: String,
        kind: WatchKind,
    },
    RemoveWatches {
        path: String,
        kind: WatchKind,
    },
    /// The session's own.
    Ephemerals {
        prefix: String,
    },
    CountDescendants {
        path: String,
    },
    /// A known operation whose record is cut short.
    Truncated(OpCode),
    /// An operation nobody knows.
    Unknown(i32),
}

/// The record of a successful reply.
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
    Multi(Vec<Item>),
}

/// One result in a multi's reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    Path(String),
    PathStat(String, Stat),
    Stat(Stat),
    Deleted,
    Checked,
    /// Of Keeper's operations that answer with nothing but success.
    Done,
    Error(i32),
}

impl Write {
    /// Whether it makes a znode that counts what is below a quota.
    fn makes_usage(&self) -> bool {
        match self {
            Write::Create { path, .. } | Write::CreateExpiring { path, .. } | Write::Ensure { path, .. } => {
                path.ends_with("/zookeeper_stats")
            }
            _ => false,
        }
    }
}

impl Request {
    /// Whether it makes a znode that counts what is below a quota.
    pub(crate) fn makes_usage(&self) -> bool {
        match self {
            Request::Write(write) => write.makes_usage(),
            Request::Multi(writes) => writes.iter().any(Write::makes_usage),
            _ => false,
        }
    }

    pub(crate) fn is_write(&self) -> bool {
        match self {
            // A multi that makes no sense takes a zxid.
            Request::Truncated(op) => *op == OpCode::Multi,
            _ => matches!(self, Request::Write(_) | Request::Multi(_) | Request::Reconfig(_) | Request::Close),
        }
    }

    /// Appends the whole frame.
    pub(crate) fn encode(&self, xid: i32, out: &mut Vec<u8>) {
        let mark = begin_frame(out);
        let mut writer = Writer::new(out);
        RequestHeader { xid, op: self.op() }.encode(&mut writer);
        self.encode_record(&mut writer);
        end_frame(out, mark).expect("a request is small");
    }

    fn op(&self) -> i32 {
        let op = match self {
            Request::Ping => OpCode::Ping,
            Request::Auth { .. } => OpCode::Auth,
            Request::Close => OpCode::CloseSession,
            Request::Write(write) => write.op(),
            Request::Multi(_) => OpCode::Multi,
            Request::Reconfig(_) => OpCode::Reconfig,
            Request::Exists { .. } => OpCode::Exists,
            Request::GetData { .. } => OpCode::GetData,
            Request::GetChildren { with_stat: false, .. } => OpCode::GetChildren,
            Request::GetChildren { with_stat: true, .. } => OpCode::GetChildren2,
            Request::GetAcl { .. } => OpCode::GetAcl,
            Request::Sync { .. } => OpCode::Sync,
            Request::SetWatches { persistent, recursive, .. } if persistent.is_empty() && recursive.is_empty() => {
                OpCode::SetWatches
            }
            Request::SetWatches { .. } => OpCode::SetWatches2,
            Request::AddWatch { .. } => OpCode::AddWatch,
            Request::CheckWatches { .. } => OpCode::CheckWatches,
            Request::RemoveWatches { .. } => OpCode::RemoveWatches,
            Request::Ephemerals { .. } => OpCode::GetEphemerals,
            Request::CountDescendants { .. } => OpCode::GetAllChildrenNumber,
            Request::Truncated(op) => *op,
            Request::Unknown(number) => return *number,
        };
        op.number()
    }

    fn encode_record(&self, writer: &mut Writer<'_>) {
        match self {
            Request::Ping | Request::Close | Request::Unknown(_) => {}
            Request::Auth { credentials } => {
                let auth = Some(credentials.as_bytes());
                AuthPacket { auth_type: 0, scheme: Some("digest"), auth }.encode(writer);
            }
            Request::Write(write) => write.encode(writer),
            Request::Multi(writes) => encode_multi(writes, writer),
            Request::Reconfig(change) => change.encode(writer),
            Request::Exists { path, watch } => ExistsRequest { path: Some(path), watch: *watch }.encode(writer),
            Request::GetData { path, watch } => GetDataRequest { path: Some(path), watch: *watch }.encode(writer),
            Request::GetChildren { path, watch, .. } => {
                GetChildrenRequest { path: Some(path), watch: *watch }.encode(writer);
            }
            Request::GetAcl { path } => GetAclRequest { path: Some(path) }.encode(writer),
            Request::Sync { path } => SyncRequest { path: Some(path) }.encode(writer),
            Request::SetWatches { seen, data, exist, child, persistent, recursive } => {
                let lists = [data, exist, child, persistent, recursive].map(|list| strings(list));
                let [data_watches, exist_watches, child_watches, persistent_watches, persistent_recursive_watches] =
                    lists.each_ref().map(|list| Some(list.view().expect("text is text")));
                let relative_zxid = *seen;
                if self.op() == OpCode::SetWatches.number() {
                    SetWatches { relative_zxid, data_watches, exist_watches, child_watches }.encode(writer);
                } else {
                    SetWatches2 {
                        relative_zxid,
                        data_watches,
                        exist_watches,
                        child_watches,
                        persistent_watches,
                        persistent_recursive_watches,
                    }
                    .encode(writer);
                }
            }
            Request::AddWatch { path, recursive } => {
                AddWatchRequest { path: Some(path), mode: i32::from(*recursive) }.encode(writer);
            }
            Request::CheckWatches { path, kind } => {
                CheckWatchesRequest { path: Some(path), watcher_type: *kind as i32 }.encode(writer);
            }
            Request::RemoveWatches { path, kind } => {
                RemoveWatchesRequest { path: Some(path), watcher_type: *kind as i32 }.encode(writer);
            }
            Request::Ephemerals { prefix } => GetEphemeralsRequest { prefix_path: Some(prefix) }.encode(writer),
            Request::CountDescendants { path } => GetAllChildrenNumberRequest { path: Some(path) }.encode(writer),
            Request::Truncated(_) => writer.raw(&[0, 0, 0]),
        }
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
    fn op(&self) -> OpCode {
        match self {
            Write::Create { with_stat: false, .. } => OpCode::Create,
            Write::Create { with_stat: true, .. } => OpCode::Create2,
            Write::Delete { .. } => OpCode::Delete,
            Write::SetData { .. } => OpCode::SetData,
            Write::SetAcl { .. } => OpCode::SetAcl,
            Write::Check { .. } => OpCode::Check,
            Write::CreateExpiring { ttl: None, .. } => OpCode::CreateContainer,
            Write::CreateExpiring { ttl: Some(_), .. } => OpCode::CreateTtl,
            Write::Ensure { .. } => OpCode::CreateIfNotExists,
            Write::CheckNotExists { .. } => OpCode::CheckNotExists,
            Write::CheckStat { .. } => OpCode::CheckStat,
            Write::TryRemove { .. } => OpCode::TryRemove,
            Write::RemoveRecursive { .. } => OpCode::RemoveRecursive,
        }
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        match self {
            Write::Create { path, data, acl, flags, .. } => {
                let acl = acl_buf(acl);
                let (data, acl) = (data.as_deref(), acl.view().ok());
                CreateRequest { path: Some(path), data, acl, flags: *flags }.encode(writer);
            }
            Write::Delete { path, version } => DeleteRequest { path: Some(path), version: *version }.encode(writer),
            Write::SetData { path, data, version } => {
                SetDataRequest { path: Some(path), data: data.as_deref(), version: *version }.encode(writer);
            }
            Write::SetAcl { path, acl, version } => {
                let acl = acl_buf(acl);
                SetAclRequest { path: Some(path), acl: acl.view().ok(), version: *version }.encode(writer);
            }
            Write::Check { path, version } => {
                CheckVersionRequest { path: Some(path), version: *version }.encode(writer);
            }
            Write::CreateExpiring { path, ttl } => {
                let (acl, flags) = (acl_buf(&[AclItem::open()]), if ttl.is_some() { 5 } else { 4 });
                CreateRequest { path: Some(path), data: None, acl: acl.view().ok(), flags }.encode(writer);
                ttl.iter().for_each(|ttl| writer.i64(*ttl));
            }
            Write::Ensure { path, data } => {
                let acl = acl_buf(&[AclItem::open()]);
                let (data, acl) = (data.as_deref(), acl.view().ok());
                CreateRequest { path: Some(path), data, acl, flags: 0 }.encode(writer);
            }
            Write::CheckNotExists { path, version } => {
                CheckNotExistsRequest { path: Some(path), version: *version }.encode(writer);
            }
            Write::CheckStat { path, version, children } => check_stat(path, *version, *children).encode(writer),
            Write::TryRemove { path, version } => {
                TryRemoveRequest { path: Some(path), version: *version }.encode(writer);
            }
            Write::RemoveRecursive { path, limit } => {
                RemoveRecursiveRequest { path: Some(path), remove_nodes_limit: *limit }.encode(writer);
            }
        }
    }

    fn decode(&self, reader: &mut Reader<'_>) -> Result<Body, DecodeError> {
        Ok(match self {
            Write::Create { with_stat: false, .. } => {
                Body::Path(CreateResponse::decode(reader)?.path.unwrap_or_default().to_owned())
            }
            Write::Ensure { .. } => Body::Path(CreateResponse::decode(reader)?.path.unwrap_or_default().to_owned()),
            Write::Create { with_stat: true, .. } | Write::CreateExpiring { .. } => {
                let Create2Response { path, stat } = Create2Response::decode(reader)?;
                Body::PathStat(path.unwrap_or_default().to_owned(), stat)
            }
            Write::SetData { .. } | Write::SetAcl { .. } => Body::Stat(Stat::decode(reader)?),
            _ => Body::Nothing,
        })
    }
}

fn acl_buf(acl: &[AclItem]) -> VectorBuf {
    VectorBuf::of(acl.iter().map(|item| Acl { perms: item.perms, scheme: Some(&item.scheme), id: Some(&item.id) }))
}

fn strings(list: &[String]) -> VectorBuf {
    VectorBuf::of(list.iter().map(|path| Some(path.as_str())))
}

/// A setACL becomes a check: no multi may hold one.
fn encode_multi(writes: &[Write], writer: &mut Writer<'_>) {
    for write in writes {
        let check = match write {
            Write::SetAcl { path, version, .. } => Some(Write::Check { path: path.clone(), version: *version }),
            _ => None,
        };
        let write = check.as_ref().unwrap_or(write);
        writer.i32(write.op().number());
        writer.raw(&[0, 255, 255, 255, 255]);
        write.encode(writer);
    }
    writer.raw(&[255, 255, 255, 255, 1, 255, 255, 255, 255]);
}

fn check_stat(path: &str, version: i32, children: i32) -> CheckStatRequest<'_> {
    let stat = Stat {
        czxid: -1,
        mzxid: -1,
        ctime: -1,
        mtime: -1,
        version: -1,
        cversion: -1,
        aversion: -1,
        ephemeral_owner: -1,
        data_length: -1,
        num_children: children,
        pzxid: -1,
    };
    CheckStatRequest { path: Some(path), version, stat }
}

fn item(result: MultiResult<'_>) -> Result<Item, DecodeError> {
    Ok(match result {
        MultiResult::Create(made) | MultiResult::CreateIfNotExists(made) => {
            Item::Path(made.path.unwrap_or_default().to_owned())
        }
        MultiResult::Create2(made) => Item::PathStat(made.path.unwrap_or_default().to_owned(), made.stat),
        MultiResult::Delete => Item::Deleted,
        MultiResult::SetData(set) => Item::Stat(set.stat),
        MultiResult::Check => Item::Checked,
        MultiResult::CheckNotExists
        | MultiResult::CheckStat
        | MultiResult::TryRemove
        | MultiResult::RemoveRecursive => Item::Done,
        MultiResult::Error(code) => Item::Error(code),
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
