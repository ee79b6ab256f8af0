//! setData: replaces the data of a znode.

use super::caller::{Caller, expect_version};
use super::decode::{Refused, text};
use super::draft::Draft;
use super::operation::{Affected, Operation};
use super::result::OpResult;
use crate::cost;
use crate::encoding::{Take, put_data, put_signed};
use crate::features;
use crate::servers::CONFIG_PATH;
use crate::shared::{Data, Text};
use crate::tree::acl;
use crate::tree::znode::Znode;
use alloc::sync::Arc;
use alloc::vec::Vec;
use corral_wire::records::SetDataRequest;
use corral_wire::{ErrorCode, OpCode, Reader};

/// Replaces the data of a znode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetData {
    /// Path of the znode.
    pub path: Text,
    /// The new data. `None` is null data.
    pub data: Option<Data>,
    /// Expected version of the data; -1 matches any.
    pub version: i32,
}

impl SetData {
    pub(super) fn of(request: SetDataRequest<'_>) -> Self {
        Self { path: text(request.path), data: request.data.map(Data::from), version: request.version }
    }
}

impl Operation for SetData {
    const AFFECTED: Affected = Affected::Own;

    fn decode(_: OpCode, reader: &mut Reader<'_>) -> Result<Self, Refused> {
        Ok(Self::of(SetDataRequest::decode(reader)?))
    }

    fn data(&self) -> Option<&Data> {
        self.data.as_ref()
    }

    fn evaluate(self, caller: &Caller<'_>, draft: &mut Draft<'_>) -> Result<OpResult, ErrorCode> {
        caller.check_session()?;
        let Self { path, data, version } = self;
        let (at, node) = caller.existing(draft, path)?;
        caller.allow(&node, acl::WRITE)?;
        if caller.has(features::ENSEMBLE) && &*at.path == CONFIG_PATH {
            return Err(ErrorCode::BadArguments);
        }
        let bytes = (data.as_ref().map_or(0, |data| data.len()), node.data_len());
        caller.check_quota(draft, &at.path, 0, bytes.0, bytes.1)?;
        expect_version(node.stat().version, version)?;
        let mut next = Znode { stat: node.stat(), acl: node.to_acl(), data };
        next.stat.version = next.stat.version.wrapping_add(1);
        next.stat.mzxid = caller.zxid;
        next.stat.mtime = caller.context.time;
        let stat = next.wire_stat();
        caller.spend(cost::CHANGE + cost::bytes(bytes.1))?;
        draft.set_data(at, Arc::new(next));
        Ok(OpResult::Stat(stat))
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_signed(out, i64::from(self.version));
        put_data(out, self.data.as_ref());
    }

    fn take(path: Text, take: &mut Take<'_>) -> Option<Self> {
        Some(Self { path, version: take.signed()?, data: take.data()? })
    }
}
