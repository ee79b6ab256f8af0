//! check: a condition inside a multi.

use super::caller::{Caller, expect_version};
use super::decode::{Refused, text};
use super::draft::Draft;
use super::operation::{Affected, Operation};
use super::result::OpResult;
use crate::encoding::{Take, put_signed};
use crate::shared::Text;
use crate::tree::acl;
use alloc::vec::Vec;
use corral_wire::records::CheckVersionRequest;
use corral_wire::{ErrorCode, OpCode, Reader};

/// Affected nothing. Fails unless the znode exists and has this version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Path of the znode.
    pub path: Text,
    /// Expected version of the data; -1 matches any.
    pub version: i32,
}

impl Check {
    pub(super) fn of(request: CheckVersionRequest<'_>) -> Self {
        Self { path: text(request.path), version: request.version }
    }
}

impl Operation for Check {
    const AFFECTED: Affected = Affected::None;

    fn decode(_: OpCode, reader: &mut Reader<'_>) -> Result<Self, Refused> {
        Ok(Self::of(CheckVersionRequest::decode(reader)?))
    }

    fn evaluate(self, caller: &Caller<'_>, draft: &mut Draft<'_>) -> Result<OpResult, ErrorCode> {
        caller.check_session()?;
        let (_, node) = caller.existing(draft, self.path)?;
        caller.allow(&node, acl::READ)?;
        expect_version(node.stat().version, self.version)?;
        Ok(OpResult::CHECKED)
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_signed(out, i64::from(self.version));
    }

    fn take(path: Text, take: &mut Take<'_>) -> Option<Self> {
        Some(Self { path, version: take.signed()? })
    }
}
