//! ClickHouse Keeper's checkNotExists: a condition, mostly inside a multi (protocol chapter 38).

use super::caller::Caller;
use super::decode::{Refused, required};
use super::draft::Draft;
use super::operation::{Affected, Operation};
use super::result::OpResult;
use crate::encoding::{Take, put_signed};
use crate::shared::Text;
use crate::tree::acl;
use alloc::vec::Vec;
use corral_wire::records::CheckNotExistsRequest;
use corral_wire::{ErrorCode, OpCode, Reader};

/// Fails if the znode exists, with this version unless that is -1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckNotExists {
    /// Path of the znode.
    pub path: Text,
    /// Version that makes the check fail; -1 is any.
    pub version: i32,
}

impl CheckNotExists {
    pub(super) fn of(request: CheckNotExistsRequest<'_>) -> Result<Self, Refused> {
        Ok(Self { path: required(request.path)?, version: request.version })
    }
}

impl Operation for CheckNotExists {
    const AFFECTED: Affected = Affected::None;

    fn decode(_: OpCode, reader: &mut Reader<'_>) -> Result<Self, Refused> {
        Self::of(CheckNotExistsRequest::decode(reader)?)
    }

    fn evaluate(self, caller: &Caller<'_>, draft: &mut Draft<'_>) -> Result<OpResult, ErrorCode> {
        caller.check_session()?;
        match caller.existing(draft, self.path) {
            Err(ErrorCode::NoNode) => {}
            Err(code) => return Err(code),
            Ok((_, node)) => {
                caller.allow(&node, acl::READ)?;
                if self.version == -1 || self.version == node.stat().version {
                    return Err(ErrorCode::NodeExists);
                }
            }
        }
        Ok(OpResult::Done(OpCode::CheckNotExists))
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_signed(out, i64::from(self.version));
    }

    fn take(path: Text, take: &mut Take<'_>) -> Option<Self> {
        Some(Self { path, version: take.signed()? })
    }
}
