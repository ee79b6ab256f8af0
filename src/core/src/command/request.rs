//! From a request's bytes to the command that is proposed.

use super::kinds::CommandKind;
use crate::ops::WriteOp;
use crate::ops::decode::Refused;
use crate::servers::reconfig::Reconfig;
use crate::shared::Text;
use crate::tree::acl::AclSpec;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::slice;
use corral_wire::multi::{MultiKind, MultiRequest};
use corral_wire::op::Kind;
use corral_wire::records::ReconfigRequest;
use corral_wire::{DecodeError, OpCode, Reader};

/// Decodes the record of a write. `keeper` says that ClickHouse Keeper's operations are served.
pub(crate) fn command(op: OpCode, keeper: bool, reader: &mut Reader<'_>) -> Result<CommandKind, Refused> {
    match op {
        OpCode::CloseSession => Ok(CommandKind::CloseSession),
        OpCode::Reconfig => Ok(CommandKind::Reconfig(Box::new(reconfig(&ReconfigRequest::decode(reader)?)))),
        OpCode::Multi => multi(if keeper { MultiKind::KeeperWrite } else { MultiKind::Write }, reader),
        op if op.kind() == Kind::Write || (keeper && op.is_keeper_write()) => {
            Ok(CommandKind::Op(WriteOp::decode(op, reader)?))
        }
        _ => Err(Refused::NotServed),
    }
}

fn reconfig(request: &ReconfigRequest<'_>) -> Reconfig {
    Reconfig {
        joining: request.joining_servers.map(Text::from),
        leaving: request.leaving_servers.map(Text::from),
        members: request.new_members.map(Text::from),
        from: request.cur_config_id,
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
    if request.iter().any(|op| op.path().is_none()) {
        return Ok(CommandKind::Undecodable);
    }
    let mut ops = Vec::with_capacity(request.len());
    for op in request.iter() {
        ops.push(WriteOp::of_multi(op)?);
    }
    Ok(CommandKind::Multi(ops))
}

/// The ACLs of a command, as they were sent.
pub(crate) fn acls(kind: &mut CommandKind) -> impl Iterator<Item = &mut AclSpec> {
    let ops = match kind {
        CommandKind::Op(op) => slice::from_mut(op),
        CommandKind::Multi(ops) => ops,
        _ => &mut [],
    };
    ops.iter_mut().filter_map(WriteOp::acl_mut)
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
    op.bytes() + op.acl().map_or(0, acl_weight)
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
