//! create, create2, createContainer, createTTL, and ClickHouse Keeper's createIfNotExists.

use super::caller::{Caller, fresh_stat, has_parent};
use super::decode::{Refused, acl_spec, text};
use super::draft::Draft;
use super::operation::{Affected, Costs, Operation};
use super::result::OpResult;
use crate::cost;
use crate::encoding::{Take, put_acl, put_data, put_signed};
use crate::features;
use crate::path;
use crate::quota::{self, COUNT_COST, COUNT_COST_FORMERLY};
use crate::shared::{Data, Text};
use crate::tree::acl::{self, AclSpec};
use crate::tree::znode::{Owner, Znode};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use corral_wire::consts::CreateMode;
use corral_wire::records::{CreateRequest, CreateTtlRequest};
use corral_wire::{ErrorCode, OpCode, Reader};

/// The longest time to live, 2^40 - 1 ms.
const TTL_MS_MAX: i64 = 0xff_ffff_ffff;

/// Which create operation asked: it decides the kind of node and the shape of the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateOp {
    /// create: the reply is the path.
    Create,
    /// create2: the reply is the path and the Stat.
    Create2,
    /// createContainer: a container, deleted some time after its last child.
    Container,
    /// createTTL: a TTL node.
    Ttl,
    /// ClickHouse Keeper's createIfNotExists.
    IfNotExists,
}

impl CreateOp {
    fn of(op: OpCode) -> Result<Self, Refused> {
        match op {
            OpCode::Create => Ok(Self::Create),
            OpCode::Create2 => Ok(Self::Create2),
            OpCode::CreateContainer => Ok(Self::Container),
            OpCode::CreateTtl => Ok(Self::Ttl),
            OpCode::CreateIfNotExists => Ok(Self::IfNotExists),
            _ => Err(Refused::Undecodable),
        }
    }
}

/// Creates a znode. `flags` as sent, checked by evaluation; `ttl_ms` is -1 unless `op` is [`CreateOp::Ttl`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Create {
    /// The operation of the protocol.
    pub op: CreateOp,
    /// Path as sent: that of a sequential znode lacks its number.
    pub path: Text,
    /// Data of the znode. `None` is null data, which is not the same as empty data.
    pub data: Option<Data>,
    /// ACL as sent.
    pub acl: AclSpec,
    /// ZooKeeper's create mode.
    pub flags: i32,
    /// Time to live, milliseconds.
    pub ttl_ms: i64,
}

impl Create {
    pub(super) fn of(op: OpCode, request: &CreateRequest<'_>, ttl: Option<i64>) -> Result<Self, Refused> {
        Ok(Self {
            op: CreateOp::of(op)?,
            path: text(request.path),
            data: request.data.map(Data::from),
            acl: acl_spec(request.acl),
            flags: request.flags,
            ttl_ms: ttl.unwrap_or(-1),
        })
    }

    /// Returns the owner of the new node by the flags and the operation. The operation decides where both give one.
    fn owner(&self, caller: &Caller<'_>) -> Result<Owner, ErrorCode> {
        let &Self { op, flags, ttl_ms, .. } = self;
        let mode = CreateMode::from_flag(flags).ok_or(ErrorCode::BadArguments)?;
        if mode.is_ttl() && !caller.has(features::EXTENDED_TYPES) {
            return Err(ErrorCode::Unimplemented);
        }
        if mode.is_sequential() && op == CreateOp::IfNotExists {
            return Err(ErrorCode::BadArguments);
        }
        if mode.is_ttl() != (op == CreateOp::Ttl) || (mode.is_ttl() && !(1..=TTL_MS_MAX).contains(&ttl_ms)) {
            return Err(ErrorCode::BadArguments);
        }
        Ok(match op {
            CreateOp::Ttl => Owner::Ttl(ttl_ms),
            CreateOp::Container => Owner::Container,
            CreateOp::Create | CreateOp::Create2 | CreateOp::IfNotExists if mode.is_ephemeral() => {
                Owner::Session(caller.session)
            }
            CreateOp::Create | CreateOp::Create2 | CreateOp::IfNotExists => Owner::Persistent,
        })
    }
}

impl Operation for Create {
    const AFFECTED: Affected = Affected::Parent;

    fn decode(op: OpCode, reader: &mut Reader<'_>) -> Result<Self, Refused> {
        if op == OpCode::CreateTtl {
            let CreateTtlRequest { path, data, acl, flags, ttl } = CreateTtlRequest::decode(reader)?;
            return Self::of(op, &CreateRequest { path, data, acl, flags }, Some(ttl));
        }
        let request = CreateRequest::decode(reader)?;
        if op == OpCode::CreateIfNotExists && request.path.is_none() {
            return Err(Refused::Undecodable);
        }
        Self::of(op, &request, None)
    }

    fn data(&self) -> Option<&Data> {
        self.data.as_ref()
    }

    fn acl(&self) -> Option<&AclSpec> {
        Some(&self.acl)
    }

    fn acl_mut(&mut self) -> Option<&mut AclSpec> {
        Some(&mut self.acl)
    }

    fn cost_at_most(&self, costs: &Costs) -> u64 {
        if quota::counts(&self.path) {
            costs.one + COUNT_COST + acl::STORED_COST
        } else {
            costs.one + acl::stored_cost(&self.acl)
        }
    }

    fn evaluate(self, caller: &Caller<'_>, draft: &mut Draft<'_>) -> Result<OpResult, ErrorCode> {
        let owner = self.owner(caller)?;
        caller.check_session()?;
        let Self { op, path, data, acl, flags, .. } = self;
        has_parent(&path)?;
        let acl = caller.stored_acl(&acl)?;
        let sequential = CreateMode::from_flag(flags).is_some_and(CreateMode::is_sequential);
        let mut at = draft.hashed(path);
        let parent = draft.node(at.parent(), at.parent_hash).ok_or(ErrorCode::NoNode)?;
        caller.allow(&parent, acl::CREATE)?;
        if sequential {
            at = draft.hashed(Text::from(format!("{}{:010}", &*at.path, parent.stat().cversion)));
        }
        if !path::is_valid_child(&at.path, at.name()) {
            return Err(ErrorCode::BadArguments);
        }
        caller.fits(draft, &at, &parent, owner)?;
        caller.guard(&at.path)?;
        if draft.node(&at.path, at.hash).is_some() {
            if op == CreateOp::IfNotExists {
                return Ok(OpResult::Ensured { path: at.path });
            }
            return Err(ErrorCode::NodeExists);
        }
        if Owner::from_bits(parent.stat().owner).is_ephemeral() {
            return Err(ErrorCode::NoChildrenForEphemerals);
        }
        caller.spend_on_parent(draft, at.parent(), &parent)?;
        let bytes = data.as_ref().map_or(0, |data| data.len());
        caller.check_quota(draft, &at.path, 1, bytes, 0)?;
        if !caller.bounded() {
            quota::allow_count(draft.view(), &at.path, &caller.context.countable)?;
        } else if quota::counts(&at.path) {
            caller.spend(if caller.bounds_deletions() { COUNT_COST } else { COUNT_COST_FORMERLY })?;
        }
        let node = Arc::new(Znode { stat: fresh_stat(caller.zxid, caller.context.time, owner), acl, data });
        caller.spend(cost::CHANGE)?;
        let path = at.path.clone();
        if quota::is_limits(&path) {
            draft.note_quota();
        }
        let result = match op {
            CreateOp::Create => OpResult::Created { path },
            CreateOp::IfNotExists => OpResult::Ensured { path },
            CreateOp::Create2 | CreateOp::Container | CreateOp::Ttl => {
                OpResult::CreatedStat { path, stat: node.wire_stat() }
            }
        };
        draft.create(at, node);
        Ok(result)
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.push(match self.op {
            CreateOp::Create => 0,
            CreateOp::Create2 => 1,
            CreateOp::Container => 2,
            CreateOp::Ttl => 3,
            CreateOp::IfNotExists => 4,
        });
        put_data(out, self.data.as_ref());
        put_acl(out, &self.acl);
        put_signed(out, i64::from(self.flags));
        put_signed(out, self.ttl_ms);
    }

    fn take(path: Text, take: &mut Take<'_>) -> Option<Self> {
        let op = match take.left.u8()? {
            0 => CreateOp::Create,
            1 => CreateOp::Create2,
            2 => CreateOp::Container,
            3 => CreateOp::Ttl,
            4 => CreateOp::IfNotExists,
            _ => return None,
        };
        Some(Self { op, path, data: take.data()?, acl: take.acl()?, flags: take.signed()?, ttl_ms: take.signed()? })
    }
}
