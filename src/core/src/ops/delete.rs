//! delete: takes away a znode without children.

use super::caller::{Caller, expect_version, has_parent};
use super::decode::{Refused, text};
use super::draft::Draft;
use super::operation::{Affected, Operation};
use super::result::OpResult;
use crate::cost;
use crate::encoding::{Take, put_signed};
use crate::path;
use crate::shared::Text;
use crate::tree::acl;
use alloc::vec::Vec;
use corral_wire::records::DeleteRequest;
use corral_wire::{ErrorCode, OpCode, Reader};

/// Deletes a znode without children.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete {
    /// Path of the znode.
    pub path: Text,
    /// Expected version of the data; -1 matches any.
    pub version: i32,
}

impl Delete {
    pub(super) fn of(request: DeleteRequest<'_>) -> Self {
        Self { path: text(request.path), version: request.version }
    }
}

impl Operation for Delete {
    const AFFECTED: Affected = Affected::Both;

    fn decode(_: OpCode, reader: &mut Reader<'_>) -> Result<Self, Refused> {
        Ok(Self::of(DeleteRequest::decode(reader)?))
    }

    fn evaluate(self, caller: &Caller<'_>, draft: &mut Draft<'_>) -> Result<OpResult, ErrorCode> {
        caller.check_session()?;
        let Self { path, version } = self;
        has_parent(&path)?;
        if path::UNDELETABLE.contains(&&*path) {
            return Err(ErrorCode::BadArguments);
        }
        caller.guard(&path)?;
        let at = draft.hashed(path);
        let parent = draft.node(at.parent(), at.parent_hash).ok_or(ErrorCode::NoNode)?;
        caller.allow(&parent, acl::DELETE)?;
        let node = draft.node(&at.path, at.hash).ok_or(ErrorCode::NoNode)?;
        let stat = node.stat();
        expect_version(stat.version, version)?;
        if stat.num_children > 0 {
            return Err(ErrorCode::NotEmpty);
        }
        caller.spend_on_parent(draft, at.parent(), &parent)?;
        caller.spend(cost::CHANGE + cost::bytes(node.data_len()) + caller.deletion_cost())?;
        draft.delete(at);
        Ok(OpResult::Done(OpCode::Delete))
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_signed(out, i64::from(self.version));
    }

    fn take(path: Text, take: &mut Take<'_>) -> Option<Self> {
        Some(Self { path, version: take.signed()? })
    }
}
