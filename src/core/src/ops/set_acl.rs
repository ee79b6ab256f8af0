//! setACL: replaces the ACL of a znode.

use super::caller::{Caller, expect_version};
use super::decode::{Refused, acl_spec, text};
use super::draft::Draft;
use super::operation::{Affected, Costs, Operation};
use super::result::OpResult;
use crate::cost;
use crate::encoding::{Take, put_acl, put_signed};
use crate::path;
use crate::shared::Text;
use crate::tree::acl::{self, AclSpec};
use crate::tree::znode::Znode;
use alloc::sync::Arc;
use alloc::vec::Vec;
use corral_wire::records::SetAclRequest;
use corral_wire::{ErrorCode, OpCode, Reader};

/// Replaces the ACL of a znode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAcl {
    /// Path of the znode.
    pub path: Text,
    /// The new ACL as sent.
    pub acl: AclSpec,
    /// Expected version of the ACL; -1 matches any.
    pub version: i32,
}

impl Operation for SetAcl {
    const AFFECTED: Affected = Affected::Own;

    fn decode(_: OpCode, reader: &mut Reader<'_>) -> Result<Self, Refused> {
        let request = SetAclRequest::decode(reader)?;
        Ok(Self { path: text(request.path), acl: acl_spec(request.acl), version: request.version })
    }

    fn acl(&self) -> Option<&AclSpec> {
        Some(&self.acl)
    }

    fn acl_mut(&mut self) -> Option<&mut AclSpec> {
        Some(&mut self.acl)
    }

    fn cost_at_most(&self, costs: &Costs) -> u64 {
        costs.one + acl::stored_cost(&self.acl)
    }

    fn evaluate(self, caller: &Caller<'_>, draft: &mut Draft<'_>) -> Result<OpResult, ErrorCode> {
        caller.check_session()?;
        let Self { path, acl, version } = self;
        if !path::is_valid(&path) {
            return Err(ErrorCode::BadArguments);
        }
        let acl = caller.stored_acl(&acl)?;
        let (at, node) = caller.existing(draft, path)?;
        caller.allow(&node, acl::ADMIN)?;
        expect_version(node.stat().aversion, version)?;
        caller.spend(cost::CHANGE + cost::bytes(node.data_len()))?;
        let mut next = Znode { acl, ..Znode::clone(&*node.to_znode()) };
        next.stat.aversion = next.stat.aversion.wrapping_add(1);
        let stat = next.wire_stat();
        draft.set_acl(at, Arc::new(next));
        Ok(OpResult::Stat(stat))
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_signed(out, i64::from(self.version));
        put_acl(out, &self.acl);
    }

    fn take(path: Text, take: &mut Take<'_>) -> Option<Self> {
        Some(Self { path, version: take.signed()?, acl: take.acl()? })
    }
}
