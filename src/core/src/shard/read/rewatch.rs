//! setWatches and setWatches2 in pieces: a frame may name a hundred thousand paths.
//!
//! Each path is looked at and watched in one step, so no change falls between the two. A change between two pieces is
//! found by the next one, or fires a watch that is set already. The events come before the reply.

use super::context::{Failed, PERSISTENT, RECURSIVE, ReadContext, undecodable};
use super::set_watches::rewatch;
use crate::limits::WATCHES_PIECE;
use crate::path;
use crate::shard::reply;
use alloc::boxed::Box;
use alloc::vec::Vec;
use corral_wire::records::{SetWatches, SetWatches2};
use corral_wire::{ErrorCode, OpCode, Reader};

/// A setWatches that is carried out in pieces.
#[derive(Debug)]
pub(crate) struct Rewatch {
    /// The request's record, known to be well formed.
    record: Box<[u8]>,
    relative_zxid: i64,
    /// Where the next path, or the next list, begins.
    at: usize,
    /// The list that is gone through, and how many of its paths are left.
    list: usize,
    left: i32,
    lists: usize,
}

impl Rewatch {
    /// # Errors
    /// MARSHALLINGERROR when the record is none, or has a null list.
    pub(crate) fn begin(op: OpCode, record: Box<[u8]>) -> Result<Self, Failed> {
        const ZXID_BYTES: usize = 8;
        let reader = &mut Reader::new(&record);
        let (relative_zxid, lists, whole) = if op == OpCode::SetWatches2 {
            let request = SetWatches2::decode(reader).map_err(undecodable)?;
            let more = request.persistent_watches.is_some() && request.persistent_recursive_watches.is_some();
            let lists = [request.data_watches, request.exist_watches, request.child_watches];
            (request.relative_zxid, 5, more && lists.iter().all(Option::is_some))
        } else {
            let request = SetWatches::decode(reader).map_err(undecodable)?;
            let lists = [request.data_watches, request.exist_watches, request.child_watches];
            (request.relative_zxid, 3, lists.iter().all(Option::is_some))
        };
        if !whole {
            return Err(ErrorCode::MarshallingError);
        }
        Ok(Self { record, relative_zxid, at: ZXID_BYTES, list: 0, left: -1, lists })
    }

    /// Bytes that it holds.
    pub(crate) fn bytes(&self) -> usize {
        self.record.len()
    }

    /// Bytes of it that were gone through.
    pub(crate) fn passed(&self) -> usize {
        self.at
    }

    /// Sets some more watches and appends the events of changes meanwhile. True when all are set: then the reply is
    /// appended too.
    pub(crate) fn step(&mut self, context: &mut ReadContext<'_>, out: &mut Vec<u8>, xid: i32) -> bool {
        match self.go_on(context, out) {
            Ok(false) => return false,
            Ok(true) => reply::done(out, xid, context.zxid()),
            Err(code) => reply::error(out, xid, context.zxid(), code),
        }
        true
    }

    fn go_on(&mut self, context: &mut ReadContext<'_>, out: &mut Vec<u8>) -> Result<bool, Failed> {
        let record = core::mem::take(&mut self.record);
        let mut reader = Reader::new(record.get(self.at..).unwrap_or_default());
        let mut result = Ok(false);
        for _ in 0..WATCHES_PIECE {
            result = self.next(context, &mut reader, out);
            if result != Ok(false) {
                break;
            }
        }
        self.at = record.len() - reader.remaining();
        self.record = record;
        result
    }

    /// One path, or the beginning of the next list.
    fn next(
        &mut self,
        context: &mut ReadContext<'_>,
        reader: &mut Reader<'_>,
        out: &mut Vec<u8>,
    ) -> Result<bool, Failed> {
        if self.left < 0 {
            self.left = reader.i32().map_err(undecodable)?;
        }
        if self.left == 0 {
            (self.list, self.left) = (self.list + 1, -1);
            return Ok(self.list == self.lists);
        }
        self.left -= 1;
        let path = reader.string().map_err(undecodable)?;
        match self.list {
            0..3 => rewatch(context, out, self.relative_zxid, self.list, path)?,
            3 => context.register(path.unwrap_or(path::NULL), PERSISTENT)?,
            _ => context.register(path.unwrap_or(path::NULL), RECURSIVE)?,
        }
        Ok(false)
    }
}
