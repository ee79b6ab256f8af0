//! ClickHouse Keeper's tryRemove: a delete that seldom fails (protocol chapter 38).

use super::caller::Caller;
use super::decode::{Refused, required};
use super::delete::Delete;
use super::draft::Draft;
use super::operation::{Affected, Operation};
use super::result::OpResult;
use crate::encoding::{Take, put_signed};
use crate::shared::Text;
use alloc::vec::Vec;
use corral_wire::records::TryRemoveRequest;
use corral_wire::{ErrorCode, OpCode, Reader};

/// As delete, but nothing happens where that would fail for the znode's own sake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TryRemove {
    /// Path of the znode.
    pub path: Text,
    /// Expected version of the data; -1 matches any.
    pub version: i32,
}

impl TryRemove {
    pub(super) fn of(request: TryRemoveRequest<'_>) -> Result<Self, Refused> {
        Ok(Self { path: required(request.path)?, version: request.version })
    }
}

impl Operation for TryRemove {
    const AFFECTED: Affected = Affected::Both;

    fn decode(_: OpCode, reader: &mut Reader<'_>) -> Result<Self, Refused> {
        Self::of(TryRemoveRequest::decode(reader)?)
    }

    fn evaluate(self, caller: &Caller<'_>, draft: &mut Draft<'_>) -> Result<OpResult, ErrorCode> {
        let Self { path, version } = self;
        match (Delete { path, version }).evaluate(caller, draft) {
            Ok(_) | Err(ErrorCode::NoNode | ErrorCode::BadVersion | ErrorCode::NotEmpty) => {
                Ok(OpResult::Done(OpCode::TryRemove))
            }
            Err(code) => Err(code),
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_signed(out, i64::from(self.version));
    }

    fn take(path: Text, take: &mut Take<'_>) -> Option<Self> {
        Some(Self { path, version: take.signed()? })
    }
}
