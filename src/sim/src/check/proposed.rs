//! The commands of the clients, and how each must stand in the log.

use corral_core::command::CommandKind;
use corral_core::ops::{self, CreateOp, STAT_FIELDS, WriteOp};
use corral_core::shared::{Data, Text};
use corral_core::tree::acl::{AclEntry, AclSpec, ENTRIES_MAX};

use crate::request::{AclItem, Request, Write};

/// A command that a client put into the world; the server may propose it or not, but nothing else.
#[derive(Clone, Debug)]
pub(super) enum Proposed {
    Connect { session: i64, timeout_ms: i32, password: [u8; 16] },
    Request(Request),
}

impl Proposed {
    pub(super) fn adds_data(&self) -> bool {
        matches!(self, Proposed::Request(request) if request.adds_data())
    }
}

/// Whether a command says what the client said.
pub(super) fn is_same(proposed: &Proposed, kind: &CommandKind) -> bool {
    match (proposed, kind) {
        (Proposed::Connect { session: 0, timeout_ms, .. }, CommandKind::CreateSession { timeout_ms: logged, .. }) => {
            timeout_ms == logged
        }
        (
            Proposed::Connect { session, timeout_ms, password },
            CommandKind::AttachSession { session: id, timeout_ms: logged, password: given },
        ) => *session == id.0 && timeout_ms == logged && password == given,
        (Proposed::Request(Request::Write(write)), CommandKind::Op(op)) => logged(write) == *op,
        (Proposed::Request(Request::Multi(writes)), CommandKind::Multi(ops)) => {
            writes.len() == ops.len() && writes.iter().zip(ops).all(|(write, op)| logged(write) == *op)
        }
        (Proposed::Request(Request::Close), CommandKind::CloseSession)
        | (Proposed::Request(Request::Truncated(_)), CommandKind::Undecodable) => true,
        (Proposed::Request(request), CommandKind::Undecodable) => may_fit_no_entry(request.writes()),
        (Proposed::Request(Request::Reconfig(change)), CommandKind::Reconfig(logged)) => {
            let texts = [&logged.joining, &logged.leaving, &logged.members].map(Option::as_deref);
            change.texts().each_ref().map(Option::as_deref) == texts && change.from == logged.from
        }
        _ => false,
    }
}

/// Whether the leader of a world with small log segments may put a refused command in the place of these writes. Together
/// their ACLs have more entries than one may have.
fn may_fit_no_entry(writes: &[Write]) -> bool {
    let entries = |write: &Write| match write {
        Write::Create { acl, .. } | Write::SetAcl { acl, .. } => acl.len(),
        _ => 0,
    };
    writes.iter().map(entries).sum::<usize>() > ENTRIES_MAX
}

/// A write as it must stand in the log.
fn logged(write: &Write) -> WriteOp {
    let text = |path: &str| Text::from(path);
    let data = |data: &Option<Vec<u8>>| data.as_deref().map(Data::from);
    let create = |op, path: &str, data, acl, flags, ttl_ms| {
        let path = text(path);
        WriteOp::Create(ops::Create { op, path, data, acl, flags, ttl_ms })
    };
    match write {
        Write::Create { with_stat, path, data: bytes, acl, flags } => {
            let op = if *with_stat { CreateOp::Create2 } else { CreateOp::Create };
            create(op, path, data(bytes), spec(acl), *flags, -1)
        }
        Write::CreateExpiring { path, ttl: None } => create(CreateOp::Container, path, None, AclSpec::Open, 4, -1),
        Write::CreateExpiring { path, ttl: Some(ttl) } => create(CreateOp::Ttl, path, None, AclSpec::Open, 5, *ttl),
        Write::Ensure { path, data: bytes } => create(CreateOp::IfNotExists, path, data(bytes), AclSpec::Open, 0, -1),
        Write::Delete { path, version } => WriteOp::Delete(ops::Delete { path: text(path), version: *version }),
        Write::Check { path, version } => WriteOp::Check(ops::Check { path: text(path), version: *version }),
        Write::CheckNotExists { path, version } => {
            WriteOp::CheckNotExists(ops::CheckNotExists { path: text(path), version: *version })
        }
        Write::TryRemove { path, version } => {
            WriteOp::TryRemove(ops::TryRemove { path: text(path), version: *version })
        }
        Write::CheckStat { path, version, children } => {
            let mut stat = Box::new([-1; STAT_FIELDS]);
            stat[9] = i64::from(*children);
            WriteOp::CheckStat(ops::CheckStat { path: text(path), version: *version, stat })
        }
        Write::RemoveRecursive { path, limit } => {
            WriteOp::RemoveRecursive(ops::RemoveRecursive { path: text(path), limit: *limit })
        }
        Write::SetData { path, data: bytes, version } => {
            WriteOp::SetData(ops::SetData { path: text(path), data: data(bytes), version: *version })
        }
        Write::SetAcl { path, acl, version } => {
            WriteOp::SetAcl(ops::SetAcl { path: text(path), acl: spec(acl), version: *version })
        }
    }
}

fn spec(acl: &[AclItem]) -> AclSpec {
    let entry = |item: &AclItem| AclEntry {
        perms: item.perms,
        scheme: Text::from(item.scheme.as_str()),
        id: Text::from(item.id.as_str()),
    };
    match acl {
        [] => AclSpec::Missing,
        [one] if *one == AclItem::open() => AclSpec::Open,
        _ => AclSpec::List(acl.iter().map(entry).collect()),
    }
}
