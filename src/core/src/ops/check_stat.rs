//! ClickHouse Keeper's checkStat: a condition on each field of a Stat (protocol chapter 38).

use super::caller::{Caller, expect_version};
use super::decode::{Refused, required};
use super::draft::Draft;
use super::operation::{Affected, Operation};
use super::result::OpResult;
use crate::encoding::{Take, put_signed};
use crate::shared::Text;
use crate::tree::acl;
use alloc::boxed::Box;
use alloc::vec::Vec;
use corral_wire::records::{CheckStatRequest, Stat};
use corral_wire::{ErrorCode, OpCode, Reader};

/// Fields of a Stat.
pub const STAT_FIELDS: usize = 11;

/// Each field of `stat`, in the order of the wire, must be the znode's unless it is -1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckStat {
    /// Path of the znode.
    pub path: Text,
    /// Expected version of the data; -1 matches any.
    pub version: i32,
    /// Boxed, so that the rare operation does not make all others larger.
    pub stat: Box<[i64; STAT_FIELDS]>,
}

impl CheckStat {
    pub(super) fn of(request: CheckStatRequest<'_>) -> Result<Self, Refused> {
        let CheckStatRequest { path, version, stat } = request;
        Ok(Self { path: required(path)?, version, stat: Box::new(fields(&stat)) })
    }
}

/// A Stat's fields in the order of the wire.
pub(crate) fn fields(stat: &Stat) -> [i64; STAT_FIELDS] {
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

impl Operation for CheckStat {
    const AFFECTED: Affected = Affected::None;

    fn decode(_: OpCode, reader: &mut Reader<'_>) -> Result<Self, Refused> {
        Self::of(CheckStatRequest::decode(reader)?)
    }

    fn evaluate(self, caller: &Caller<'_>, draft: &mut Draft<'_>) -> Result<OpResult, ErrorCode> {
        caller.check_session()?;
        let (_, node) = caller.existing(draft, self.path)?;
        caller.allow(&node, acl::READ)?;
        expect_version(node.stat().version, self.version)?;
        let fits = |(actual, wanted): (i64, i64)| wanted == -1 || wanted == actual;
        if !fields(&node.wire_stat()).into_iter().zip(*self.stat).all(fits) {
            return Err(ErrorCode::BadVersion);
        }
        Ok(OpResult::Done(OpCode::CheckStat))
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_signed(out, i64::from(self.version));
        self.stat.iter().for_each(|field| put_signed(out, *field));
    }

    fn take(path: Text, take: &mut Take<'_>) -> Option<Self> {
        let version = take.signed()?;
        let mut stat = Box::new([0; STAT_FIELDS]);
        for field in &mut *stat {
            *field = take.signed()?;
        }
        Some(Self { path, version, stat })
    }
}
