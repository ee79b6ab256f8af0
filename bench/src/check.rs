//! Judges every reply, so that a broken server cannot look fast.
//!
//! A reply must come in the order of the requests, carry the request's xid, no error but a tolerated one, a zxid that
//! does not go back, and exactly the record the request asked for: the whole value, the Stat's sizes, the created path.
//! Runs on the client thread that owns the connection. Knows no socket.

use corral_wire::limits::{LENGTH_BYTES, REPLY_HEADER_BYTES, STAT_BYTES};
use std::sync::atomic::Ordering;

use corral_wire::multi::{MultiResponse, MultiResult};
use corral_wire::records::{
    CreateResponse, ExistsResponse, GetChildren2Response, GetDataResponse, ReplyHeader, SetDataResponse, Stat,
};
use corral_wire::{DecodeError, ErrorCode, Reader};

use crate::mix::Kind;
use crate::workload::{Request, Workload};

/// Where dataLength stands in an encoded Stat: behind five longs and three ints.
const STAT_DATA_LENGTH_AT: usize = 5 * 8 + 3 * 4;

/// Why a reply is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadReply {
    /// The reply is not the record of its operation.
    #[error("the reply cannot be decoded: {0}")]
    Decode(DecodeError),
    /// The xid is not the one of the oldest request: the reply is out of order, doubled, or of no request.
    #[error("the reply has xid {found}, the request next in turn has {expected}")]
    Xid {
        /// The xid of the oldest request without a reply.
        expected: i32,
        /// The xid received.
        found: i32,
    },
    /// The server replied with an error.
    #[error("the server answered {} ({code})", error_name(*.code))]
    Refused {
        /// The error code of the reply.
        code: i32,
    },
    /// The server executed an operation that it had to refuse.
    #[error("the server answered {} ({found}) instead of {} ({expected})", error_name(*.found), error_name(*.expected))]
    NotRefused {
        /// The error code that was due.
        expected: i32,
        /// The error code of the reply, 0 for success.
        found: i32,
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

/// The name of an error code; 0 is success.
pub(crate) fn error_name(code: i32) -> &'static str {
    ErrorCode::from_i32(code).map_or(if code == 0 { "OK" } else { "an unknown error" }, ErrorCode::name)
}

impl From<DecodeError> for BadReply {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}

/// What became of a request whose reply is in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Done, and the record is right.
    Right,
    /// Refused with a tolerated error.
    Refused(i32),
}

pub(crate) fn expect<T: PartialEq + ToString>(what: &'static str, expected: T, found: T) -> Result<(), BadReply> {
    if expected == found {
        return Ok(());
    }
    Err(BadReply::Content { what, expected: expected.to_string(), found: found.to_string() })
}

/// Checks the header of a reply: its xid, the zxid against the session's (which it raises), and that there is no error.
/// Returns the reader behind the header.
///
/// # Errors
/// [`BadReply`], also when the server answers with an error code.
pub(crate) fn header<'a>(body: &'a [u8], xid: i32, zxid_seen: &mut i64) -> Result<Reader<'a>, BadReply> {
    match any_header(body, xid, zxid_seen, |_| false)? {
        (reader, 0) => Ok(reader),
        (_, code) => Err(BadReply::Refused { code }),
    }
}

/// As [`header`], but passes tolerated errors on: gives the error code, 0 for success.
///
/// # Errors
/// [`BadReply`]. An error reply that is not tolerated is [`BadReply::Refused`] whatever its zxid.
pub(crate) fn any_header<'a>(
    body: &'a [u8],
    xid: i32,
    zxid_seen: &mut i64,
    tolerated: impl FnOnce(i32) -> bool,
) -> Result<(Reader<'a>, i32), BadReply> {
    let mut reader = Reader::new(body);
    let header = ReplyHeader::decode(&mut reader)?;
    if header.xid != xid {
        return Err(BadReply::Xid { expected: xid, found: header.xid });
    }
    if header.err != 0 && !tolerated(header.err) {
        return Err(BadReply::Refused { code: header.err });
    }
    if header.zxid < *zxid_seen {
        return Err(BadReply::WentBack { before: *zxid_seen, found: header.zxid });
    }
    *zxid_seen = header.zxid;
    if header.err != 0 {
        finished(&reader)?;
    }
    Ok((reader, header.err))
}

/// Checks the reply to the deletion of a znode that cannot be there.
///
/// # Errors
/// [`BadReply::NotRefused`] if it was deleted all the same, and as [`any_header`].
pub(crate) fn no_node(body: &[u8], xid: i32, zxid_seen: &mut i64) -> Result<Verdict, BadReply> {
    let expected = ErrorCode::NoNode.code();
    let (_, found) = any_header(body, xid, zxid_seen, |_| true)?;
    if found == expected { Ok(Verdict::Refused(found)) } else { Err(BadReply::NotRefused { expected, found }) }
}

/// That nothing follows.
pub(crate) fn finished(reader: &Reader<'_>) -> Result<(), BadReply> {
    if reader.remaining() > 0 { Err(BadReply::Trailing(reader.remaining())) } else { Ok(()) }
}

impl Workload {
    /// Checks a whole reply frame (without its length word) against the request that is next in turn.
    pub(crate) fn check(
        &self,
        body: &[u8],
        xid: i32,
        request: Request,
        zxid_seen: &mut i64,
    ) -> Result<Verdict, BadReply> {
        if request.kind == Kind::Get
            && let Some(czxid) = self.right_get(body, xid, zxid_seen)
        {
            return self.check_identity(request, czxid).map(|()| Verdict::Right);
        }
        let (mut reader, error) = any_header(body, xid, zxid_seen, |code| self.tolerated.contains(&code))?;
        if error != 0 {
            return Ok(Verdict::Refused(error));
        }
        match request.kind {
            Kind::Get => {
                let reply = GetDataResponse::decode(&mut reader)?;
                self.check_data(&reply)?;
                self.check_identity(request, reply.stat.czxid)?;
            }
            Kind::Exists => {
                let stat = ExistsResponse::decode(&mut reader)?.stat;
                self.check_size("Stat.dataLength", stat.data_length)?;
                self.check_identity(request, stat.czxid)?;
            }
            Kind::Set => {
                let stat = SetDataResponse::decode(&mut reader)?.stat;
                check_written(request, &stat)?;
                self.check_identity(request, stat.czxid)?;
            }
            Kind::Create => {
                let path = CreateResponse::decode(&mut reader)?.path.unwrap_or_default();
                if !self.is_created_path(path, request) {
                    let expected = self.created_path(request.connection, request.key);
                    return Err(BadReply::Content { what: "path", expected, found: path.to_owned() });
                }
            }
            Kind::Children => {
                let reply = GetChildren2Response::decode(&mut reader)?;
                let found = reply.children.map_or(0, |children| children.len());
                expect("number of children", self.children as usize, found)?;
                expect("Stat.numChildren", i64::from(self.children), i64::from(reply.stat.num_children))?;
            }
            Kind::Multi => {
                let verdict = self.check_multi(request, MultiResponse::decode(&mut reader)?)?;
                return finished(&reader).map(|()| verdict);
            }
            Kind::Delete | Kind::Ping | Kind::Close => {}
        }
        finished(&reader).map(|()| Verdict::Right)
    }

    /// The whole check of a getData reply for the usual case that all is right: with the value's length every field's
    /// place is known. Returns the czxid. Anything else is left to the decoder, which reports what is wrong.
    fn right_get(&self, body: &[u8], xid: i32, zxid_seen: &mut i64) -> Option<i64> {
        let (header, rest) = body.split_first_chunk::<{ REPLY_HEADER_BYTES + LENGTH_BYTES }>()?;
        let (data, stat) = rest.split_last_chunk::<STAT_BYTES>()?;
        let zxid = i64::from_be_bytes(header[4..12].try_into().expect("eight bytes"));
        let word = |from: usize| i32::from_be_bytes(header[from..from + 4].try_into().expect("four bytes"));
        let data_length = &stat[STAT_DATA_LENGTH_AT..STAT_DATA_LENGTH_AT + 4];
        let right = word(0) == xid
            && zxid >= *zxid_seen
            && word(12) == 0
            && usize::try_from(word(16)) == Ok(data.len())
            && (self.value_bytes_min..=self.value.len()).contains(&data.len())
            && data_length == &header[16..20]
            && *data == self.value[..data.len()];
        if !right {
            return None;
        }
        *zxid_seen = zxid;
        stat.first_chunk().map(|czxid| i64::from_be_bytes(*czxid))
    }

    /// All values are alike, but a znode's czxid is its own and stays: a reply of another znode shows by that. A server
    /// that answers from nowhere has none.
    fn check_identity(&self, request: Request, czxid: i64) -> Result<(), BadReply> {
        let known = &self.czxids[request.key as usize];
        let expected = match known.load(Ordering::Relaxed) {
            0 => match known.compare_exchange(0, czxid, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => czxid,
                Err(first) => first,
            },
            first => first,
        };
        if expected == czxid {
            return Ok(());
        }
        let (expected, found) = (format!("{expected:#x}"), format!("{czxid:#x}"));
        Err(BadReply::Content { what: "Stat.czxid", expected, found })
    }

    fn check_data(&self, reply: &GetDataResponse<'_>) -> Result<(), BadReply> {
        let data = reply.data.unwrap_or_default();
        let length = i32::try_from(data.len()).unwrap_or(i32::MAX);
        self.check_size("value length", length)?;
        let value = &self.value[..data.len()];
        if data != value {
            return Err(BadReply::Content { what: "value", expected: text(value), found: text(data) });
        }
        expect("Stat.dataLength", length, reply.stat.data_length)
    }

    /// A value of unknown size, because any connection may have written it.
    fn check_size(&self, what: &'static str, found: i32) -> Result<(), BadReply> {
        let (min, max) = (self.value_bytes_min, self.value.len());
        if usize::try_from(found).is_ok_and(|found| (min..=max).contains(&found)) {
            return Ok(());
        }
        let expected = if min == max { max.to_string() } else { format!("{min} to {max}") };
        Err(BadReply::Content { what, expected, found: found.to_string() })
    }

    fn check_multi(&self, request: Request, reply: MultiResponse<'_>) -> Result<Verdict, BadReply> {
        expect("number of results", self.multi_ops as usize, reply.len())?;
        let inconsistent = ErrorCode::RuntimeInconsistency.code();
        for result in reply.iter() {
            match result {
                MultiResult::SetData(done) => check_written(request, &done.stat)?,
                // All fail if one does: those before it have code 0, those behind it RUNTIMEINCONSISTENCY.
                MultiResult::Error(code) if code == 0 || code == inconsistent => {}
                MultiResult::Error(code) if self.tolerated.contains(&code) => return Ok(Verdict::Refused(code)),
                MultiResult::Error(code) => return Err(BadReply::Refused { code }),
                other => {
                    let (expected, found) = ("setData".to_owned(), format!("{other:?}"));
                    return Err(BadReply::Content { what: "result of a multi", expected, found });
                }
            }
        }
        // A list of nothing but zeros has no reason to have failed.
        let failed = reply.iter().any(|result| matches!(result, MultiResult::Error(_)));
        if failed { Err(BadReply::Refused { code: inconsistent }) } else { Ok(Verdict::Right) }
    }
}

fn check_written(request: Request, stat: &Stat) -> Result<(), BadReply> {
    expect("Stat.dataLength", i64::from(request.length), i64::from(stat.data_length))
}

fn text(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(32)];
    format!("{:?}...", String::from_utf8_lossy(shown))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{encoded, tests::plan, value};
    use corral_wire::VectorBuf;
    use corral_wire::multi::MultiResponseEncoder;

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
    fn check_with(flags: &str, kind: Kind, body: &[u8], expect: Result<Verdict, &str>) {
        let workload = Workload::of(&plan(&format!("{flags} --mix {}=1", kind.name())));
        let found = workload.check(body, 7, Request { kind, key: 3, length: 100, connection: 1 }, &mut 8);
        match (found, expect) {
            (Ok(found), Ok(expect)) => assert_eq!(found, expect),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
            (found, expect) => panic!("{found:?} instead of {expect:?}"),
        }
    }

    #[track_caller]
    fn check(kind: Kind, body: &[u8], expect: Result<(), &str>) {
        check_with("", kind, body, expect.map(|()| Verdict::Right));
    }

    #[test]
    fn get_data_replies_are_judged() {
        let good = data(&value(100), STAT);
        check(Kind::Get, &good, Ok(()));
        check(Kind::Get, &good[..good.len() - 1], Err("cut short"));
        check(Kind::Get, &[good.clone(), vec![0]].concat(), Err("1 bytes follow"));
        check(Kind::Get, &data(&value(99), STAT), Err("value length is wrong: expected 100, found 99"));
        check(Kind::Get, &data(&[b'a'; 100], STAT), Err("value is wrong"));
        check(Kind::Get, &data(&value(100), Stat { data_length: 5, ..STAT }), Err("Stat.dataLength"));
        let every_field =
            Stat { czxid: -1, mtime: -1, version: -1, ephemeral_owner: -1, num_children: -1, pzxid: -1, ..STAT };
        check(Kind::Get, &data(&value(100), every_field), Ok(()));
    }

    #[test]
    fn the_short_way_and_the_decoder_agree_on_every_damaged_reply() {
        let workload = Workload::of(&plan("-o get --value-bytes 90..100"));
        let good = data(&value(100), STAT);
        let decoder = |body: &[u8]| -> Result<(), BadReply> {
            let (mut reader, error) = any_header(body, 7, &mut 8, |_| false)?;
            expect("error", 0, error)?;
            workload.check_data(&GetDataResponse::decode(&mut reader)?)?;
            finished(&reader)
        };
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut body = good.clone();
                body[at] ^= 1 << bit;
                assert_eq!(
                    workload.right_get(&body, 7, &mut 8).is_some(),
                    decoder(&body).is_ok(),
                    "byte {at}, bit {bit}"
                );
            }
            assert_eq!(workload.right_get(&good[..at], 7, &mut 8), None, "cut to {at} bytes");
        }
        let mut seen = 8;
        assert_eq!(workload.right_get(&good, 7, &mut seen), Some(STAT.czxid));
        assert_eq!(seen, 9, "the zxid is noted");
    }

    #[test]
    fn values_of_any_size_in_the_range_are_right() {
        let of = |bytes: usize| data(&value(bytes), Stat { data_length: i32::try_from(bytes).unwrap(), ..STAT });
        let sized = |bytes, expect| check_with("--value-bytes 10..50", Kind::Get, &of(bytes), expect);
        sized(10, Ok(Verdict::Right));
        sized(50, Ok(Verdict::Right));
        sized(9, Err("value length is wrong: expected 10 to 50, found 9"));
        sized(51, Err("value length is wrong: expected 10 to 50, found 51"));
    }

    #[test]
    fn a_reply_of_another_znode_is_noticed() {
        let workload = Workload::of(&plan("--mix get=1,exists=1,set=1"));
        let judge = |kind, key, czxid| {
            let stat = Stat { czxid, ..STAT };
            let body = match kind {
                Kind::Get => data(&value(100), stat),
                _ => reply(ReplyHeader::ok(7, 9), |writer| ExistsResponse { stat }.encode(writer)),
            };
            workload.check(&body, 7, Request { kind, key, length: 100, connection: 1 }, &mut 8).map(|_| ())
        };
        let wrong = |expected: i64, found: i64| {
            Err(BadReply::Content {
                what: "Stat.czxid",
                expected: format!("{expected:#x}"),
                found: format!("{found:#x}"),
            })
        };
        assert_eq!(judge(Kind::Get, 3, 50), Ok(()));
        assert_eq!(judge(Kind::Set, 4, 51), Ok(()));
        assert_eq!(judge(Kind::Exists, 3, 50), Ok(()));
        assert_eq!(judge(Kind::Get, 3, 51), wrong(50, 51));
        assert_eq!(judge(Kind::Exists, 4, 50), wrong(51, 50));
        assert_eq!(judge(Kind::Set, 3, 0), wrong(50, 0));
        // An echo has no znodes.
        assert_eq!((judge(Kind::Get, 5, 0), judge(Kind::Get, 5, 0)), (Ok(()), Ok(())));
    }

    #[test]
    fn headers_are_judged() {
        check(Kind::Get, b"", Err("cut short"));
        let wrong = |header| reply(header, |_| {});
        check(Kind::Get, &wrong(ReplyHeader::ok(8, 9)), Err("xid 8, the request next in turn has 7"));
        check(Kind::Get, &wrong(ReplyHeader::error(7, 9, ErrorCode::NoNode)), Err("NONODE (-101)"));
        check(Kind::Get, &wrong(ReplyHeader { xid: 7, zxid: 9, err: 5 }), Err("an unknown error (5)"));
        check(Kind::Get, &wrong(ReplyHeader::ok(7, 7)), Err("zxid 0x7 is before 0x8"));
    }

    #[test]
    fn tolerated_errors_are_told_but_must_be_in_order_too() {
        let refused = |zxid, code| reply(ReplyHeader::error(7, zxid, code), |_| {});
        let throttled = ErrorCode::ThrottledOp;
        check_with("", Kind::Set, &refused(9, throttled), Ok(Verdict::Refused(-127)));
        check_with("", Kind::Set, &refused(7, throttled), Err("zxid 0x7 is before 0x8"));
        check_with("", Kind::Set, &[refused(9, throttled), vec![1]].concat(), Err("1 bytes follow"));
        check_with("--tolerate NONODE", Kind::Set, &refused(9, throttled), Err("THROTTLEDOP"));
    }

    #[test]
    fn deleting_what_is_not_there_must_fail() {
        let answer = |err| no_node(&reply(ReplyHeader { xid: 7, zxid: 9, err }, |_| {}), 7, &mut 8);
        assert_eq!(answer(-101), Ok(Verdict::Refused(-101)));
        assert_eq!(answer(0), Err(BadReply::NotRefused { expected: -101, found: 0 }));
    }

    #[test]
    fn other_replies_are_judged() {
        let stat = reply(ReplyHeader::ok(7, 9), |writer| ExistsResponse { stat: STAT }.encode(writer));
        check(Kind::Exists, &stat, Ok(()));
        check(Kind::Set, &stat, Ok(()));
        let short = Stat { data_length: 99, ..STAT };
        let short = reply(ReplyHeader::ok(7, 9), |writer| ExistsResponse { stat: short }.encode(writer));
        check(Kind::Set, &short, Err("Stat.dataLength is wrong: expected 100, found 99"));
        check(Kind::Delete, &reply(ReplyHeader::ok(7, 9), |_| {}), Ok(()));
        check(Kind::Delete, &reply(ReplyHeader::ok(7, 9), |writer| writer.i32(0)), Err("4 bytes follow"));
        let path = |path| reply(ReplyHeader::ok(7, 9), |writer| CreateResponse { path: Some(path) }.encode(writer));
        check(Kind::Create, &path("/x/y/n/00001/000000003"), Ok(()));
        check(Kind::Create, &path("/x/y/n/00001/000000004"), Err("path is wrong"));
        check(Kind::Create, &path("/x/y/n/00002/000000003"), Err("path is wrong"));
        check(Kind::Create, &path("/x/z/n/00001/000000003"), Err("path is wrong"));
        check(Kind::Create, &path("/x/y/n/00001/0000000033"), Err("path is wrong"));
        check(Kind::Create, &path(""), Err("path is wrong"));
        let list = |count: usize| {
            let names = VectorBuf::of((0..count).map(|_| Some("n")));
            let children = Some(names.view().unwrap());
            reply(ReplyHeader::ok(7, 9), |writer| GetChildren2Response { children, stat: STAT }.encode(writer))
        };
        check(Kind::Children, &list(3), Ok(()));
        check(Kind::Children, &list(2), Err("number of children is wrong: expected 3, found 2"));
    }

    #[test]
    fn every_result_of_a_multi_is_judged() {
        let multi = |fill: &dyn Fn(&mut MultiResponseEncoder<'_, '_>)| {
            reply(ReplyHeader::ok(7, 9), |writer| {
                let mut results = MultiResponseEncoder::new(writer);
                fill(&mut results);
                results.finish();
            })
        };
        let all = |results: &mut MultiResponseEncoder<'_, '_>, stats: [Stat; 4]| {
            stats.iter().for_each(|stat| results.set_data(stat));
        };
        let short = Stat { data_length: 99, ..STAT };
        check(Kind::Multi, &multi(&|results| all(results, [STAT; 4])), Ok(()));
        check(Kind::Multi, &multi(&|results| all(results, [STAT, STAT, STAT, short])), Err("Stat.dataLength"));
        check(Kind::Multi, &multi(&|results| results.set_data(&STAT)), Err("number of results is wrong: expected 4"));
        let failed = |code: ErrorCode| {
            reply(ReplyHeader::ok(7, 9), |writer| corral_wire::multi::encode_failed(writer, 4, 1, code))
        };
        check(Kind::Multi, &failed(ErrorCode::NoNode), Err("NONODE"));
        check_with("", Kind::Multi, &failed(ErrorCode::ThrottledOp), Ok(Verdict::Refused(-127)));
        let three = multi(&|results| {
            all(results, [STAT; 4]);
            results.delete();
        });
        check(Kind::Multi, &three, Err("number of results"));
    }
}
