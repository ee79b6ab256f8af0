//! From a request's bytes to the command that is proposed. The only place where a client's bytes are copied.

use crate::command::{CommandKind, CreateOp, STAT_FIELDS, WriteOp};
use crate::path;
use crate::servers::Reconfig;
use crate::shared::{Data, Text};
use crate::tree::acl::{AclEntry, AclSpec};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::slice;
use corral_wire::multi::{MultiKind, MultiOp, MultiRequest};
use corral_wire::records::{
    Acl, CheckNotExistsRequest, CheckStatRequest, CreateRequest, CreateTtlRequest, DeleteRequest, ReconfigRequest,
    RemoveRecursiveRequest, SetAclRequest, SetDataRequest, Stat, TryRemoveRequest,
};
use corral_wire::{DecodeError, OpCode, Reader, Vector};

/// Why a request never becomes a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The record cannot be decoded: MARSHALLINGERROR.
    Undecodable,
    /// More operations than any budget allows: THROTTLEDOP.
    TooManyOps,
    /// Known to the protocol, not served here: UNIMPLEMENTED, and the connection ends.
    NotServed,
}

impl From<DecodeError> for Refused {
    fn from(_: DecodeError) -> Self {
        Self::Undecodable
    }
}

/// Decodes the record of a write. `keeper` says that ClickHouse Keeper's operations are served.
pub(crate) fn command(op: OpCode, keeper: bool, reader: &mut Reader<'_>) -> Result<CommandKind, Refused> {
    Ok(CommandKind::Op(match op {
        OpCode::Create => create(CreateOp::Create, &CreateRequest::decode(reader)?, None)?,
        OpCode::Create2 => create(CreateOp::Create2, &CreateRequest::decode(reader)?, None)?,
        OpCode::CreateContainer => create(CreateOp::Container, &CreateRequest::decode(reader)?, None)?,
        OpCode::CreateTtl => {
            let CreateTtlRequest { path, data, acl, flags, ttl } = CreateTtlRequest::decode(reader)?;
            create(CreateOp::Ttl, &CreateRequest { path, data, acl, flags }, Some(ttl))?
        }
        OpCode::Delete => delete(DeleteRequest::decode(reader)?)?,
        OpCode::SetData => set_data(SetDataRequest::decode(reader)?)?,
        OpCode::SetAcl => {
            let request = SetAclRequest::decode(reader)?;
            WriteOp::SetAcl { path: text(request.path), acl: acl_spec(request.acl), version: request.version }
        }
        OpCode::CloseSession => return Ok(CommandKind::CloseSession),
        OpCode::Reconfig => {
            return Ok(CommandKind::Reconfig(Box::new(reconfig(&ReconfigRequest::decode(reader)?))));
        }
        OpCode::Multi => return multi(if keeper { MultiKind::KeeperWrite } else { MultiKind::Write }, reader),
        op if keeper && op.is_keeper_write() => keeper_write(op, reader)?,
        _ => return Err(Refused::NotServed),
    }))
}

fn reconfig(request: &ReconfigRequest<'_>) -> Reconfig {
    Reconfig {
        joining: request.joining_servers.map(Text::from),
        leaving: request.leaving_servers.map(Text::from),
        members: request.new_members.map(Text::from),
        from: request.cur_config_id,
    }
}

/// One of ClickHouse Keeper's operations outside a multi.
fn keeper_write(op: OpCode, reader: &mut Reader<'_>) -> Result<WriteOp, Refused> {
    match op {
        OpCode::CreateIfNotExists => match CreateRequest::decode(reader)? {
            CreateRequest { path: None, .. } => Err(Refused::Undecodable),
            request => create(CreateOp::IfNotExists, &request, None),
        },
        OpCode::CheckNotExists => check_not_exists(CheckNotExistsRequest::decode(reader)?),
        OpCode::CheckStat => check_stat(CheckStatRequest::decode(reader)?),
        OpCode::TryRemove => try_remove(TryRemoveRequest::decode(reader)?),
        OpCode::RemoveRecursive => remove_recursive(RemoveRecursiveRequest::decode(reader)?),
        _ => Err(Refused::NotServed),
    }
}

fn multi(kind: MultiKind, reader: &mut Reader<'_>) -> Result<CommandKind, Refused> {
    let request = match MultiRequest::decode(kind, reader) {
        Ok(request) => request,
        // This alone stops ZooKeeper before the zxid is taken.
        Err(DecodeError::NullAcl) => return Err(Refused::Undecodable),
        Err(DecodeError::TooManyOps) => return Err(Refused::TooManyOps),
        Err(_) => return Ok(CommandKind::Undecodable),
    };
    if request.iter().any(|op| path_of(&op).is_none()) {
        return Ok(CommandKind::Undecodable);
    }
    let mut ops = Vec::with_capacity(request.len());
    for op in request.iter() {
        ops.push(match op {
            MultiOp::Create { request, ttl, .. } => create(create_op(op.effective_op())?, &request, ttl)?,
            MultiOp::Delete(request) => delete(request)?,
            MultiOp::SetData(request) => set_data(request)?,
            MultiOp::Check(request) => WriteOp::Check { path: text(request.path), version: request.version },
            MultiOp::CheckNotExists(request) => check_not_exists(request)?,
            MultiOp::CheckStat(request) => check_stat(request)?,
            MultiOp::TryRemove(request) => try_remove(request)?,
            MultiOp::RemoveRecursive(request) => remove_recursive(request)?,
            MultiOp::GetData(_)
            | MultiOp::GetChildren(_)
            | MultiOp::FilteredList(_)
            | MultiOp::FilteredListWithStatsAndData(_) => return Ok(CommandKind::Undecodable),
        });
    }
    Ok(CommandKind::Multi(ops))
}

const fn path_of<'a>(op: &MultiOp<'a>) -> Option<&'a str> {
    match op {
        MultiOp::Create { request, .. } => request.path,
        MultiOp::Delete(request) => request.path,
        MultiOp::SetData(request) => request.path,
        MultiOp::Check(request) => request.path,
        MultiOp::CheckNotExists(request) => request.path,
        MultiOp::CheckStat(request) => request.path,
        MultiOp::TryRemove(request) => request.path,
        MultiOp::RemoveRecursive(request) => request.path,
        MultiOp::GetData(request) => request.path,
        MultiOp::GetChildren(request) => request.path,
        MultiOp::FilteredList(request) => request.path,
        MultiOp::FilteredListWithStatsAndData(request) => request.path,
    }
}

fn create_op(op: OpCode) -> Result<CreateOp, Refused> {
    match op {
        OpCode::Create => Ok(CreateOp::Create),
        OpCode::Create2 => Ok(CreateOp::Create2),
        OpCode::CreateContainer => Ok(CreateOp::Container),
        OpCode::CreateTtl => Ok(CreateOp::Ttl),
        OpCode::CreateIfNotExists => Ok(CreateOp::IfNotExists),
        _ => Err(Refused::Undecodable),
    }
}

fn create(op: CreateOp, request: &CreateRequest<'_>, ttl: Option<i64>) -> Result<WriteOp, Refused> {
    Ok(WriteOp::Create {
        op,
        path: text(request.path),
        data: request.data.map(Data::from),
        acl: acl_spec(request.acl),
        flags: request.flags,
        ttl_ms: ttl.unwrap_or(-1),
    })
}

fn delete(request: DeleteRequest<'_>) -> Result<WriteOp, Refused> {
    Ok(WriteOp::Delete { path: text(request.path), version: request.version })
}

fn set_data(request: SetDataRequest<'_>) -> Result<WriteOp, Refused> {
    Ok(WriteOp::SetData { path: text(request.path), data: request.data.map(Data::from), version: request.version })
}

fn check_not_exists(request: CheckNotExistsRequest<'_>) -> Result<WriteOp, Refused> {
    Ok(WriteOp::CheckNotExists { path: required(request.path)?, version: request.version })
}

fn check_stat(request: CheckStatRequest<'_>) -> Result<WriteOp, Refused> {
    let CheckStatRequest { path, version, stat } = request;
    Ok(WriteOp::CheckStat { path: required(path)?, version, stat: Box::new(stat_fields(&stat)) })
}

fn try_remove(request: TryRemoveRequest<'_>) -> Result<WriteOp, Refused> {
    Ok(WriteOp::TryRemove { path: required(request.path)?, version: request.version })
}

fn remove_recursive(request: RemoveRecursiveRequest<'_>) -> Result<WriteOp, Refused> {
    Ok(WriteOp::RemoveRecursive { path: required(request.path)?, limit: request.remove_nodes_limit })
}

/// A Stat's fields in the order of the wire.
pub(crate) fn stat_fields(stat: &Stat) -> [i64; STAT_FIELDS] {
    let wide = i64::from;
    [
        stat.czxid,
        stat.mzxid,
        stat.ctime,
        stat.mtime,
        wide(stat.version),
        wide(stat.cversion),
        wide(stat.aversion),
        stat.ephemeral_owner,
        wide(stat.data_length),
        wide(stat.num_children),
        stat.pzxid,
    ]
}

/// The path of one of Keeper's operations, which has no use for a null one.
fn required(path: Option<&str>) -> Result<Text, Refused> {
    path.map(Text::from).ok_or(Refused::Undecodable)
}

fn text(path: Option<&str>) -> Text {
    Text::from(path.unwrap_or(path::NULL))
}

fn acl_spec(sent: Option<Vector<'_, Acl<'_>>>) -> AclSpec {
    let Some(sent) = sent.filter(|list| !list.is_empty()) else { return AclSpec::Missing };
    if sent == Vector::OPEN_ACL_UNSAFE {
        return AclSpec::Open;
    }
    let mut list = Vec::with_capacity(sent.len());
    for acl in sent.iter() {
        // The id of `auth` is not looked at; kazoo sends null there.
        let id = if acl.scheme == Some("auth") { Some(acl.id.unwrap_or_default()) } else { acl.id };
        let Some(scheme) = acl.scheme else { return AclSpec::Malformed };
        let Some(id) = id else { return AclSpec::BrokenOff(list) };
        list.push(AclEntry { perms: acl.perms, scheme: Text::from(scheme), id: Text::from(id) });
    }
    AclSpec::List(list)
}

/// The ACLs of a command, as they were sent.
pub(crate) fn acls(kind: &mut CommandKind) -> impl Iterator<Item = &mut AclSpec> {
    let ops = match kind {
        CommandKind::Op(op) => slice::from_mut(op),
        CommandKind::Multi(ops) => ops,
        _ => &mut [],
    };
    ops.iter_mut().filter_map(|op| match op {
        WriteOp::Create { acl, .. } | WriteOp::SetAcl { acl, .. } => Some(acl),
        _ => None,
    })
}

/// Makes an ACL that names a digest invalid: the server has no such scheme.
pub(crate) fn refuse_digests(acl: &mut AclSpec) {
    if let AclSpec::List(list) | AclSpec::BrokenOff(list) = acl
        && list.iter().any(|entry| &*entry.scheme == "digest")
    {
        *acl = AclSpec::Malformed;
    }
}

/// Bytes of client text and data a command holds, for the limits on commands in flight.
pub(crate) fn weight(kind: &CommandKind) -> usize {
    const FIXED: usize = 128;
    match kind {
        CommandKind::Op(op) => FIXED + op_weight(op),
        CommandKind::Multi(ops) => FIXED + ops.iter().map(|op| FIXED + op_weight(op)).sum::<usize>(),
        CommandKind::Reap { path, .. } => FIXED + path.len(),
        CommandKind::QuotaCounted(counted) => FIXED + counted.path.len(),
        CommandKind::Reconfig(request) => FIXED + request.bytes(),
        CommandKind::Configured(lines) | CommandKind::ReconfigBegins(lines) => FIXED + lines.len(),
        CommandKind::SystemNodes(nodes) => nodes.iter().map(|(path, data)| FIXED + path.len() + data.len()).sum(),
        CommandKind::CreateSession { .. }
        | CommandKind::AttachSession { .. }
        | CommandKind::CloseSession
        | CommandKind::ReconfigEnds
        | CommandKind::ReconfigFails(_)
        | CommandKind::Undecodable
        | CommandKind::Refused(_) => FIXED,
    }
}

fn op_weight(op: &WriteOp) -> usize {
    let bytes = |data: &Option<Data>| data.as_ref().map_or(0, |data| data.len());
    match op {
        WriteOp::Create { path, data, acl, .. } => path.len() + bytes(data) + acl_weight(acl),
        WriteOp::SetData { path, data, .. } => path.len() + bytes(data),
        WriteOp::SetAcl { path, acl, .. } => path.len() + acl_weight(acl),
        WriteOp::Delete { path, .. }
        | WriteOp::Check { path, .. }
        | WriteOp::CheckNotExists { path, .. }
        | WriteOp::CheckStat { path, .. }
        | WriteOp::TryRemove { path, .. }
        | WriteOp::RemoveRecursive { path, .. } => path.len(),
    }
}

fn acl_weight(acl: &AclSpec) -> usize {
    const FIXED: usize = 32;
    match acl {
        AclSpec::List(list) | AclSpec::BrokenOff(list) => {
            list.iter().map(|entry| FIXED + entry.scheme.len() + entry.id.len()).sum()
        }
        AclSpec::Open | AclSpec::Missing | AclSpec::Malformed => 0,
    }
}
