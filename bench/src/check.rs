//! Judges every reply, so that a broken server cannot look fast.
//!
//! A reply must come in the order of the requests, carry the request's xid, no error, a zxid that does not go back, and
//! exactly the record the request asked for: the whole value, the Stat's sizes, the created path. Runs on the client
//! thread that owns the connection. Knows no socket.

use corral_wire::records::{
    CreateResponse, ExistsResponse, GetChildren2Response, GetDataResponse, ReplyHeader, SetDataResponse, Stat,
};
use corral_wire::{DecodeError, ErrorCode, OpCode, Reader};

use crate::workload::{Request, Workload};

/// What is wrong with a reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadReply {
    /// Not a reply record.
    #[error("the reply cannot be decoded: {0}")]
    Decode(DecodeError),
    /// Out of order, doubled or made up.
    #[error("the reply has xid {found}, the request next in turn has {expected}")]
    Xid {
        /// The xid of the oldest request without a reply.
        expected: i32,
        /// The xid received.
        found: i32,
    },
    /// The server refused.
    #[error("the server answered {} ({code})", error_name(*.code))]
    Refused {
        /// The error code of the reply.
        code: i32,
    },
    /// A later reply shows an earlier state.
    #[error("the reply's zxid 0x{found:x} is before 0x{before:x}, which this session saw already")]
    WentBack {
        /// The highest zxid this session saw.
        before: i64,
        /// The zxid received.
        found: i64,
    },
    /// A field is not what the znode holds.
    #[error("the reply's {what} is wrong: expected {expected}, found {found}")]
    Content {
        /// The field.
        what: &'static str,
        /// What the generator wrote.
        expected: String,
        /// What came back.
        found: String,
    },
    /// Bytes behind the record.
    #[error("{0} bytes follow the reply's record")]
    Trailing(usize),
}

fn error_name(code: i32) -> &'static str {
    ErrorCode::from_i32(code).map_or("an unknown error", ErrorCode::name)
}

impl From<DecodeError> for BadReply {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}

fn expect<T: PartialEq + ToString>(what: &'static str, expected: T, found: T) -> Result<(), BadReply> {
    if expected == found {
        return Ok(());
    }
    Err(BadReply::Content { what, expected: expected.to_string(), found: found.to_string() })
}

/// Checks the header of a reply: its xid, the zxid against the session's (which it raises), and that there is no error.
///
/// # Errors
/// [`BadReply`], also when the server answers with an error code.
pub(crate) fn header<'a>(body: &'a [u8], xid: i32, zxid_seen: &mut i64) -> Result<Reader<'a>, BadReply> {
    let mut reader = Reader::new(body);
    let header = ReplyHeader::decode(&mut reader)?;
    if header.xid != xid {
        return Err(BadReply::Xid { expected: xid, found: header.xid });
    }
    if header.err != 0 {
        return Err(BadReply::Refused { code: header.err });
    }
    if header.zxid < *zxid_seen {
        return Err(BadReply::WentBack { before: *zxid_seen, found: header.zxid });
    }
    *zxid_seen = header.zxid;
    Ok(reader)
}

impl Workload {
    /// Checks a whole reply frame (without its length word) against the request that is next in turn.
    pub(crate) fn check(&self, body: &[u8], xid: i32, request: Request, zxid_seen: &mut i64) -> Result<(), BadReply> {
        let mut reader = header(body, xid, zxid_seen)?;
        match request.op {
            OpCode::GetData => {
                let reply = GetDataResponse::decode(&mut reader)?;
                let data = reply.data.unwrap_or_default();
                expect("value length", self.value.len(), data.len())?;
                if data != self.value {
                    return Err(BadReply::Content { what: "value", expected: text(&self.value), found: text(data) });
                }
                self.check_stat(&reply.stat)?;
            }
            OpCode::Exists => self.check_stat(&ExistsResponse::decode(&mut reader)?.stat)?,
            OpCode::SetData => self.check_stat(&SetDataResponse::decode(&mut reader)?.stat)?,
            OpCode::Create => {
                let path = CreateResponse::decode(&mut reader)?.path.unwrap_or_default();
                expect("path", self.created_path(request.connection, request.key).as_str(), path)?;
            }
            _ => {
                let reply = GetChildren2Response::decode(&mut reader)?;
                let count = reply.children.map_or(0, |children| children.len());
                expect("number of children", self.children as usize, count)?;
                expect("Stat.numChildren", i64::from(self.children), i64::from(reply.stat.num_children))?;
            }
        }
        match reader.remaining() {
            0 => Ok(()),
            bytes => Err(BadReply::Trailing(bytes)),
        }
    }

    fn check_stat(&self, stat: &Stat) -> Result<(), BadReply> {
        let length = i64::from(stat.data_length);
        expect("Stat.dataLength", i64::try_from(self.value.len()).unwrap_or(i64::MAX), length)
    }
}

fn text(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(32)];
    format!("{:?}...", String::from_utf8_lossy(shown))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Operation;
    use crate::workload::{encoded, tests::plan, value};
    use corral_wire::VectorBuf;

    const STAT: Stat = Stat {
        czxid: 1,
        mzxid: 1,
        ctime: 0,
        mtime: 0,
        version: 0,
        cversion: 0,
        aversion: 0,
        ephemeral_owner: 0,
        data_length: 100,
        num_children: 3,
        pzxid: 1,
    };

    fn reply(header: ReplyHeader, fill: impl FnOnce(&mut corral_wire::Writer<'_>)) -> Vec<u8> {
        encoded(|writer| {
            header.encode(writer);
            fill(writer);
        })
    }

    fn data(bytes: &[u8], stat: Stat) -> Vec<u8> {
        reply(ReplyHeader::ok(7, 9), |writer| GetDataResponse { data: Some(bytes), stat }.encode(writer))
    }

    #[track_caller]
    fn check(op: OpCode, body: &[u8], expect: Result<(), &str>) {
        let kind = if op == OpCode::GetChildren2 { Operation::Children } else { Operation::Get };
        let workload = Workload::of(&plan(kind));
        let found = workload.check(body, 7, Request { op, key: 3, connection: 1 }, &mut 8);
        match (found, expect) {
            (Ok(()), Ok(())) => {}
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
            (found, expect) => panic!("{found:?} instead of {expect:?}"),
        }
    }

    #[test]
    fn get_data_replies_are_judged() {
        let good = data(&value(100), STAT);
        check(OpCode::GetData, &good, Ok(()));
        check(OpCode::GetData, &good[..good.len() - 1], Err("cut short"));
        check(OpCode::GetData, &[good.clone(), vec![0]].concat(), Err("1 bytes follow"));
        check(OpCode::GetData, &data(&value(99), STAT), Err("value length is wrong: expected 100, found 99"));
        check(OpCode::GetData, &data(&[b'a'; 100], STAT), Err("value is wrong"));
        check(OpCode::GetData, &data(&value(100), Stat { data_length: 5, ..STAT }), Err("Stat.dataLength"));
    }

    #[test]
    fn headers_are_judged() {
        check(OpCode::GetData, b"", Err("cut short"));
        let wrong = |header| reply(header, |_| {});
        check(OpCode::GetData, &wrong(ReplyHeader::ok(8, 9)), Err("xid 8, the request next in turn has 7"));
        check(OpCode::GetData, &wrong(ReplyHeader::error(7, 9, ErrorCode::NoNode)), Err("NONODE (-101)"));
        check(OpCode::GetData, &wrong(ReplyHeader { xid: 7, zxid: 9, err: 5 }), Err("an unknown error (5)"));
        check(OpCode::GetData, &wrong(ReplyHeader::ok(7, 7)), Err("zxid 0x7 is before 0x8"));
    }

    #[test]
    fn other_replies_are_judged() {
        let stat = reply(ReplyHeader::ok(7, 9), |writer| ExistsResponse { stat: STAT }.encode(writer));
        check(OpCode::Exists, &stat, Ok(()));
        check(OpCode::SetData, &stat, Ok(()));
        let path = |path| reply(ReplyHeader::ok(7, 9), |writer| CreateResponse { path: Some(path) }.encode(writer));
        check(OpCode::Create, &path("/x/y/n/00001/000000003"), Ok(()));
        check(OpCode::Create, &path("/x/y/n/00001/000000004"), Err("path is wrong"));
        let list = |count: usize| {
            let names = VectorBuf::of((0..count).map(|_| Some("n")));
            let children = Some(names.view().unwrap());
            reply(ReplyHeader::ok(7, 9), |writer| GetChildren2Response { children, stat: STAT }.encode(writer))
        };
        check(OpCode::GetChildren2, &list(3), Ok(()));
        check(OpCode::GetChildren2, &list(2), Err("number of children is wrong: expected 3, found 2"));
    }
}
