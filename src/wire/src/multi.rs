//! multi (14) and multiRead (22): lists of operations and of results, each entry behind a `MultiHeader`.
//!
//! `MultiRequest` and `MultiResponse` have been decoded once from end to end when they exist. So iterating cannot fail
//! and a bad entry refuses the whole list, as ZooKeeper does. `MultiResponseEncoder` streams results. Any core. It
//! knows which types are allowed where, not what they do.

use core::fmt;

use crate::consts::CreateMode;
use crate::error::{DecodeError, ErrorCode};
use crate::jute::{Reader, Writer};
use crate::limits::MULTI_OPS_MAX;
use crate::op::OpCode;
use crate::records::{
    CheckNotExistsRequest, CheckStatRequest, CheckVersionRequest, Create2Response, CreateRequest, CreateResponse,
    CreateTtlRequest, DeleteRequest, ErrorResponse, FilteredListRequest, FilteredListWithStatsAndDataRequest,
    FilteredListWithStatsAndDataResponse, GetChildren2Response, GetChildrenRequest, GetChildrenResponse,
    GetDataRequest, GetDataResponse, MultiHeader, RemoveRecursiveRequest, SetDataRequest, SetDataResponse, Stat,
    TryRemoveRequest,
};
use crate::vector::ChildrenEncoder;

/// Which list a multi is, and which operations it may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MultiKind {
    /// multi (14): creates, delete, setData, check.
    Write,
    /// multi (14) of a server that knows ClickHouse Keeper's operations: the writes and checks among them as well.
    KeeperWrite,
    /// multiRead (22): getData, getChildren.
    Read,
    /// multiRead (22) of a server that knows ClickHouse Keeper's operations: its lists as well.
    KeeperRead,
}

impl MultiKind {
    /// The kind an operation asks for; `None` unless it is multi or multiRead.
    #[must_use]
    pub const fn of(op: OpCode) -> Option<Self> {
        match op {
            OpCode::Multi => Some(Self::Write),
            OpCode::MultiRead => Some(Self::Read),
            _ => None,
        }
    }
}

/// One operation of a multi.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MultiOp<'a> {
    /// A create, create2, createContainer, createTTL or createIfNotExists.
    ///
    /// The flag of `request` is a create mode without TTL, but any number in a createTTL. ZooKeeper refuses the whole
    /// list for a bad flag in the others only.
    Create {
        /// Which of them.
        op: OpCode,
        /// The record they share.
        request: CreateRequest<'a>,
        /// Time to live in ms, of createTTL only.
        ttl: Option<i64>,
    },
    /// A delete.
    Delete(DeleteRequest<'a>),
    /// A setData.
    SetData(SetDataRequest<'a>),
    /// A check.
    Check(CheckVersionRequest<'a>),
    /// A checkNotExists.
    CheckNotExists(CheckNotExistsRequest<'a>),
    /// A removeRecursive.
    RemoveRecursive(RemoveRecursiveRequest<'a>),
    /// A checkStat.
    CheckStat(CheckStatRequest<'a>),
    /// A tryRemove.
    TryRemove(TryRemoveRequest<'a>),
    /// A getData; its watch flag is ignored.
    GetData(GetDataRequest<'a>),
    /// A getChildren; its watch flag is ignored.
    GetChildren(GetChildrenRequest<'a>),
    /// A filteredList; its watch flag is ignored.
    FilteredList(FilteredListRequest<'a>),
    /// A filteredListWithStatsAndData; its watch flag is ignored.
    FilteredListWithStatsAndData(FilteredListWithStatsAndDataRequest<'a>),
}

impl<'a> MultiOp<'a> {
    /// The type in the operation's header.
    #[must_use]
    pub const fn op(&self) -> OpCode {
        match self {
            Self::Create { op, .. } => *op,
            Self::Delete(_) => OpCode::Delete,
            Self::SetData(_) => OpCode::SetData,
            Self::Check(_) => OpCode::Check,
            Self::CheckNotExists(_) => OpCode::CheckNotExists,
            Self::RemoveRecursive(_) => OpCode::RemoveRecursive,
            Self::CheckStat(_) => OpCode::CheckStat,
            Self::TryRemove(_) => OpCode::TryRemove,
            Self::GetData(_) => OpCode::GetData,
            Self::GetChildren(_) => OpCode::GetChildren,
            Self::FilteredList(_) => OpCode::FilteredList,
            Self::FilteredListWithStatsAndData(_) => OpCode::FilteredListWithStatsAndData,
        }
    }

    /// The path that it is for. `None` is a null path.
    #[must_use]
    pub const fn path(&self) -> Option<&'a str> {
        match self {
            Self::Create { request, .. } => request.path,
            Self::Delete(request) => request.path,
            Self::SetData(request) => request.path,
            Self::Check(request) => request.path,
            Self::CheckNotExists(request) => request.path,
            Self::CheckStat(request) => request.path,
            Self::TryRemove(request) => request.path,
            Self::RemoveRecursive(request) => request.path,
            Self::GetData(request) => request.path,
            Self::GetChildren(request) => request.path,
            Self::FilteredList(request) => request.path,
            Self::FilteredListWithStatsAndData(request) => request.path,
        }
    }

    /// The operation ZooKeeper carries out. Inside a multi, unlike outside, a create or create2 with the flag of a
    /// container is a createContainer, and its result has type 15.
    #[must_use]
    pub const fn effective_op(&self) -> OpCode {
        match self {
            Self::Create { op: OpCode::Create | OpCode::Create2, request, .. }
                if matches!(CreateMode::from_flag(request.flags), Some(CreateMode::Container)) =>
            {
                OpCode::CreateContainer
            }
            _ => self.op(),
        }
    }

    /// Header and record of the next operation, `None` at the end of the list.
    fn decode(kind: MultiKind, reader: &mut Reader<'a>) -> Result<Option<Self>, DecodeError> {
        let header = MultiHeader::decode(reader)?;
        if header.done {
            return Ok(None);
        }
        let op = OpCode::from_i32(header.op).ok_or(DecodeError::BadOp(header.op))?;
        let operation = match (kind, op) {
            (MultiKind::KeeperWrite, OpCode::CreateIfNotExists) => {
                Self::Create { op, request: CreateRequest::decode(reader)?, ttl: None }
            }
            (MultiKind::KeeperWrite, OpCode::CheckNotExists) => {
                Self::CheckNotExists(CheckNotExistsRequest::decode(reader)?)
            }
            (MultiKind::KeeperWrite, OpCode::RemoveRecursive) => {
                Self::RemoveRecursive(RemoveRecursiveRequest::decode(reader)?)
            }
            (MultiKind::KeeperWrite, OpCode::CheckStat) => Self::CheckStat(CheckStatRequest::decode(reader)?),
            (MultiKind::KeeperWrite, OpCode::TryRemove) => Self::TryRemove(TryRemoveRequest::decode(reader)?),
            (MultiKind::Write | MultiKind::KeeperWrite, OpCode::Create | OpCode::Create2 | OpCode::CreateContainer) => {
                Self::Create { op, request: CreateRequest::decode(reader)?, ttl: None }
            }
            (MultiKind::Write | MultiKind::KeeperWrite, OpCode::CreateTtl) => {
                let CreateTtlRequest { path, data, acl, flags, ttl } = CreateTtlRequest::decode(reader)?;
                Self::Create { op, request: CreateRequest { path, data, acl, flags }, ttl: Some(ttl) }
            }
            (MultiKind::Write | MultiKind::KeeperWrite, OpCode::Delete) => Self::Delete(DeleteRequest::decode(reader)?),
            (MultiKind::Write | MultiKind::KeeperWrite, OpCode::SetData) => {
                Self::SetData(SetDataRequest::decode(reader)?)
            }
            (MultiKind::Write | MultiKind::KeeperWrite, OpCode::Check) => {
                Self::Check(CheckVersionRequest::decode(reader)?)
            }
            (MultiKind::Read | MultiKind::KeeperRead, OpCode::GetData) => {
                Self::GetData(GetDataRequest::decode(reader)?)
            }
            (MultiKind::Read | MultiKind::KeeperRead, OpCode::GetChildren) => {
                Self::GetChildren(GetChildrenRequest::decode(reader)?)
            }
            (MultiKind::KeeperRead, OpCode::FilteredList) => Self::FilteredList(FilteredListRequest::decode(reader)?),
            (MultiKind::KeeperRead, OpCode::FilteredListWithStatsAndData) => {
                Self::FilteredListWithStatsAndData(FilteredListWithStatsAndDataRequest::decode(reader)?)
            }
            _ => return Err(DecodeError::BadOp(header.op)),
        };
        match operation {
            Self::Create { request, ttl: None, .. } => match CreateMode::from_flag(request.flags) {
                Some(_) if request.acl.is_none() => Err(DecodeError::NullAcl),
                Some(mode) if !mode.is_ttl() => Ok(Some(operation)),
                _ => Err(DecodeError::BadFlag(request.flags)),
            },
            _ => Ok(Some(operation)),
        }
    }

    /// Appends header and record.
    pub fn encode(&self, writer: &mut Writer<'_>) {
        MultiHeader { op: self.op().number(), done: false, err: -1 }.encode(writer);
        match self {
            Self::Create { request, ttl, .. } => {
                request.encode(writer);
                if let Some(ttl) = ttl {
                    writer.i64(*ttl);
                }
            }
            Self::Delete(request) => request.encode(writer),
            Self::SetData(request) => request.encode(writer),
            Self::Check(request) => request.encode(writer),
            Self::CheckNotExists(request) => request.encode(writer),
            Self::RemoveRecursive(request) => request.encode(writer),
            Self::CheckStat(request) => request.encode(writer),
            Self::TryRemove(request) => request.encode(writer),
            Self::GetData(request) => request.encode(writer),
            Self::GetChildren(request) => request.encode(writer),
            Self::FilteredList(request) => request.encode(writer),
            Self::FilteredListWithStatsAndData(request) => request.encode(writer),
        }
    }
}

/// The operations of a multi or multiRead, all of them well formed and of the right kind.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MultiRequest<'a> {
    kind: MultiKind,
    count: usize,
    bytes: &'a [u8],
}

impl<'a> MultiRequest<'a> {
    /// Decodes the whole list from the front of `reader`.
    ///
    /// # Errors
    /// [`DecodeError::BadOp`] for a type that `kind` does not allow: ZooKeeper too answers MARSHALLINGERROR for the
    /// whole request. [`DecodeError::BadFlag`] as at [`MultiOp::Create`], [`DecodeError::TooManyOps`] for more than
    /// [`MULTI_OPS_MAX`], else as the records.
    pub fn decode(kind: MultiKind, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let bytes = reader.rest();
        let mut count = 0_usize;
        while MultiOp::decode(kind, reader)?.is_some() {
            count = count.saturating_add(1);
            if count > MULTI_OPS_MAX {
                return Err(DecodeError::TooManyOps);
            }
        }
        let length = bytes.len().saturating_sub(reader.remaining());
        Ok(Self { kind, count, bytes: bytes.get(..length).ok_or(DecodeError::Truncated)? })
    }

    /// multi or multiRead.
    #[must_use]
    pub const fn kind(&self) -> MultiKind {
        self.kind
    }

    /// Number of operations; 0 is legal.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether there is no operation.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The operations in order.
    #[must_use]
    pub const fn iter(&self) -> MultiOps<'a> {
        MultiOps { kind: self.kind, left: self.count, reader: Reader::new(self.bytes) }
    }

    /// Appends the list, its end included.
    pub fn encode(&self, writer: &mut Writer<'_>) {
        encode_request(writer, self.iter());
    }
}

impl fmt::Debug for MultiRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> IntoIterator for MultiRequest<'a> {
    type Item = MultiOp<'a>;
    type IntoIter = MultiOps<'a>;

    fn into_iter(self) -> MultiOps<'a> {
        self.iter()
    }
}

/// Decodes the operations of a [`MultiRequest`] one by one.
#[derive(Clone, Debug)]
pub struct MultiOps<'a> {
    kind: MultiKind,
    left: usize,
    reader: Reader<'a>,
}

impl<'a> Iterator for MultiOps<'a> {
    type Item = MultiOp<'a>;

    fn next(&mut self) -> Option<MultiOp<'a>> {
        self.left = self.left.checked_sub(1)?;
        MultiOp::decode(self.kind, &mut self.reader).expect("every operation was decoded when the list was")
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for MultiOps<'_> {}

/// Appends the body of a multi or multiRead request: the operations and the end.
pub fn encode_request<'a>(writer: &mut Writer<'_>, operations: impl IntoIterator<Item = MultiOp<'a>>) {
    for operation in operations {
        operation.encode(writer);
    }
    MultiHeader::END.encode(writer);
}

/// One result of a multi or multiRead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MultiResult<'a> {
    /// Of create.
    Create(CreateResponse<'a>),
    /// Of create2, createContainer and createTTL, all with type 15.
    Create2(Create2Response<'a>),
    /// Of delete.
    Delete,
    /// Of setData.
    SetData(SetDataResponse),
    /// Of check.
    Check,
    /// Of createIfNotExists.
    CreateIfNotExists(CreateResponse<'a>),
    /// Of checkNotExists.
    CheckNotExists,
    /// Of removeRecursive.
    RemoveRecursive,
    /// Of checkStat.
    CheckStat,
    /// Of tryRemove.
    TryRemove,
    /// Of getData.
    GetData(GetDataResponse<'a>),
    /// Of getChildren.
    GetChildren(GetChildrenResponse<'a>),
    /// Of filteredList.
    FilteredList(GetChildren2Response<'a>),
    /// Of filteredListWithStatsAndData.
    FilteredListWithStatsAndData(FilteredListWithStatsAndDataResponse<'a>),
    /// Of an operation that failed, or that is part of a failed multi: code 0 before the failing one,
    /// [`ErrorCode::RuntimeInconsistency`] behind it.
    Error(i32),
}

impl<'a> MultiResult<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Option<Self>, DecodeError> {
        let header = MultiHeader::decode(reader)?;
        if header.done {
            return Ok(None);
        }
        Ok(Some(match OpCode::from_i32(header.op) {
            Some(OpCode::Create) => Self::Create(CreateResponse::decode(reader)?),
            Some(OpCode::Create2) => Self::Create2(Create2Response::decode(reader)?),
            Some(OpCode::Delete) => Self::Delete,
            Some(OpCode::SetData) => Self::SetData(SetDataResponse::decode(reader)?),
            Some(OpCode::Check) => Self::Check,
            Some(OpCode::CreateIfNotExists) => Self::CreateIfNotExists(CreateResponse::decode(reader)?),
            Some(OpCode::CheckNotExists) => Self::CheckNotExists,
            Some(OpCode::RemoveRecursive) => Self::RemoveRecursive,
            Some(OpCode::CheckStat) => Self::CheckStat,
            Some(OpCode::TryRemove) => Self::TryRemove,
            Some(OpCode::GetData) => Self::GetData(GetDataResponse::decode(reader)?),
            Some(OpCode::GetChildren) => Self::GetChildren(GetChildrenResponse::decode(reader)?),
            Some(OpCode::FilteredList) => Self::FilteredList(GetChildren2Response::decode(reader)?),
            Some(OpCode::FilteredListWithStatsAndData) => {
                Self::FilteredListWithStatsAndData(FilteredListWithStatsAndDataResponse::decode(reader)?)
            }
            Some(OpCode::Error) => Self::Error(ErrorResponse::decode(reader)?.err),
            _ => return Err(DecodeError::BadOp(header.op)),
        }))
    }

    /// Appends header and record.
    pub fn encode(&self, writer: &mut Writer<'_>) {
        let (op, err) = match *self {
            Self::Create(_) => (OpCode::Create, 0),
            Self::Create2(_) => (OpCode::Create2, 0),
            Self::Delete => (OpCode::Delete, 0),
            Self::SetData(_) => (OpCode::SetData, 0),
            Self::Check => (OpCode::Check, 0),
            Self::CreateIfNotExists(_) => (OpCode::CreateIfNotExists, 0),
            Self::CheckNotExists => (OpCode::CheckNotExists, 0),
            Self::RemoveRecursive => (OpCode::RemoveRecursive, 0),
            Self::CheckStat => (OpCode::CheckStat, 0),
            Self::TryRemove => (OpCode::TryRemove, 0),
            Self::GetData(_) => (OpCode::GetData, 0),
            Self::GetChildren(_) => (OpCode::GetChildren, 0),
            Self::FilteredList(_) => (OpCode::FilteredList, 0),
            Self::FilteredListWithStatsAndData(_) => (OpCode::FilteredListWithStatsAndData, 0),
            Self::Error(err) => (OpCode::Error, err),
        };
        MultiHeader { op: op.number(), done: false, err }.encode(writer);
        match self {
            Self::Create(response) | Self::CreateIfNotExists(response) => response.encode(writer),
            Self::Create2(response) => response.encode(writer),
            Self::SetData(response) => response.encode(writer),
            Self::GetData(response) => response.encode(writer),
            Self::GetChildren(response) => response.encode(writer),
            Self::FilteredList(response) => response.encode(writer),
            Self::FilteredListWithStatsAndData(response) => response.encode(writer),
            Self::Error(err) => writer.i32(*err),
            Self::Delete
            | Self::Check
            | Self::CheckNotExists
            | Self::RemoveRecursive
            | Self::CheckStat
            | Self::TryRemove => {}
        }
    }
}

/// The results of a multi or multiRead, all of them well formed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MultiResponse<'a> {
    count: usize,
    bytes: &'a [u8],
}

impl<'a> MultiResponse<'a> {
    /// Decodes the whole list from the front of `reader`.
    ///
    /// # Errors
    /// [`DecodeError::BadOp`] for a type that has no result, else as the records.
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let bytes = reader.rest();
        let mut count = 0_usize;
        while MultiResult::decode(reader)?.is_some() {
            count = count.saturating_add(1);
        }
        let length = bytes.len().saturating_sub(reader.remaining());
        Ok(Self { count, bytes: bytes.get(..length).ok_or(DecodeError::Truncated)? })
    }

    /// Number of results.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether there is no result.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The results in order.
    #[must_use]
    pub const fn iter(&self) -> MultiResults<'a> {
        MultiResults { left: self.count, reader: Reader::new(self.bytes) }
    }

    /// Appends the list, its end included.
    pub fn encode(&self, writer: &mut Writer<'_>) {
        let mut encoder = MultiResponseEncoder::new(writer);
        for result in self.iter() {
            encoder.push(&result);
        }
        encoder.finish();
    }
}

impl fmt::Debug for MultiResponse<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> IntoIterator for MultiResponse<'a> {
    type Item = MultiResult<'a>;
    type IntoIter = MultiResults<'a>;

    fn into_iter(self) -> MultiResults<'a> {
        self.iter()
    }
}

/// Decodes the results of a [`MultiResponse`] one by one.
#[derive(Clone, Debug)]
pub struct MultiResults<'a> {
    left: usize,
    reader: Reader<'a>,
}

impl<'a> Iterator for MultiResults<'a> {
    type Item = MultiResult<'a>;

    fn next(&mut self) -> Option<MultiResult<'a>> {
        self.left = self.left.checked_sub(1)?;
        MultiResult::decode(&mut self.reader).expect("every result was decoded when the list was")
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for MultiResults<'_> {}

/// Encodes a multi's results one after the other, straight from where they are.
#[derive(Debug)]
#[must_use = "the end of the list is written by finish()"]
pub struct MultiResponseEncoder<'w, 'v> {
    writer: &'w mut Writer<'v>,
}

impl<'w, 'v> MultiResponseEncoder<'w, 'v> {
    /// Starts a list at the end of `writer`.
    pub const fn new(writer: &'w mut Writer<'v>) -> Self {
        Self { writer }
    }

    /// Bytes in the buffer so far, what was there before included.
    #[must_use]
    pub fn position(&self) -> usize {
        self.writer.position()
    }

    /// Appends any result.
    pub fn push(&mut self, result: &MultiResult<'_>) {
        result.encode(self.writer);
    }

    /// Appends the result of create.
    pub fn create(&mut self, path: &str) {
        self.push(&MultiResult::Create(CreateResponse { path: Some(path) }));
    }

    /// Appends the result of create2, createContainer or createTTL.
    pub fn create2(&mut self, path: &str, stat: &Stat) {
        self.push(&MultiResult::Create2(Create2Response { path: Some(path), stat: *stat }));
    }

    /// Appends the result of delete.
    pub fn delete(&mut self) {
        self.push(&MultiResult::Delete);
    }

    /// Appends the result of setData.
    pub fn set_data(&mut self, stat: &Stat) {
        self.push(&MultiResult::SetData(SetDataResponse { stat: *stat }));
    }

    /// Appends the result of check.
    pub fn check(&mut self) {
        self.push(&MultiResult::Check);
    }

    /// Appends the result of getData.
    pub fn get_data(&mut self, data: Option<&[u8]>, stat: &Stat) {
        self.push(&MultiResult::GetData(GetDataResponse { data, stat: *stat }));
    }

    /// Appends the result of getChildren; the names are streamed.
    pub fn get_children<'n>(&mut self, names: impl IntoIterator<Item = &'n str>) {
        MultiHeader { op: OpCode::GetChildren.number(), done: false, err: 0 }.encode(self.writer);
        let mut children = ChildrenEncoder::new(self.writer);
        for name in names {
            children.push(name);
        }
        children.finish();
    }

    /// Appends the result of an operation with the record that `encode` writes.
    pub fn with(&mut self, op: OpCode, encode: impl FnOnce(&mut Writer<'_>)) {
        MultiHeader { op: op.number(), done: false, err: 0 }.encode(self.writer);
        encode(self.writer);
    }

    /// Appends an error.
    pub fn error(&mut self, code: ErrorCode) {
        self.push(&MultiResult::Error(code.code()));
    }

    /// Appends the end of the list.
    pub fn finish(self) {
        MultiHeader::END.encode(self.writer);
    }
}

#[cfg(test)]
mod tests;
