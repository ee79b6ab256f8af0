//! Judges every reply of a load, so that a broken server cannot look fast.
//!
//! A reply must carry no error but a tolerated one. It must hold exactly the record the request asked for: the whole
//! value, the Stat's sizes, the created path. Order and zxid are checked by the swarm. Runs on the client thread that
//! owns the session. Knows no socket.

use std::fmt::Display;
use std::sync::atomic::Ordering;

use anyhow::{Result, ensure};
use corral_wire::multi::{MultiResponse, MultiResult};
use corral_wire::records::{
    CreateResponse, ExistsResponse, GetChildren2Response, GetDataResponse, SetDataResponse, Stat,
};
use corral_wire::{ErrorCode, Reader};

use crate::mix::Kind;
use crate::swarm::{error_name, granted_or};
use crate::workload::{OwnZnodes, Request, Workload};

/// Fails with both values if they differ.
pub(crate) fn expect<T: PartialEq + Display>(what: &str, expected: T, found: T) -> Result<()> {
    ensure!(expected == found, "the reply's {what} is wrong: expected {expected}, found {found}");
    Ok(())
}

fn finished(reader: &Reader<'_>) -> Result<()> {
    ensure!(reader.remaining() == 0, "{} bytes follow the reply's record", reader.remaining());
    Ok(())
}

/// Checks a reply of a session with the znodes `own`, in which it notes what was refused. Returns the tolerated error, 0 for
/// none.
pub(crate) fn judge(
    workload: &Workload,
    request: Request,
    error: i32,
    record: &[u8],
    own: &mut OwnZnodes,
) -> Result<i32> {
    let Request { kind, key, .. } = request;
    if kind == Kind::Delete && own.absent.remove(&key) {
        // The znode was never created.
        let (expected, found) = (ErrorCode::NoNode, error_name(error));
        let due = expected.code();
        ensure!(error == due, "the server answered {found} ({error}) instead of {} ({due})", expected.name());
        return Ok(error);
    }
    let error = check(workload, request, error, record)?;
    if error != 0 {
        match kind {
            Kind::Create => drop(own.absent.insert(key)),
            Kind::Delete => drop(own.left.insert(key)),
            _ => {}
        }
    }
    Ok(error)
}

/// Checks the error code and the whole record of a reply. Returns the tolerated error, 0 for none.
fn check(workload: &Workload, request: Request, error: i32, record: &[u8]) -> Result<i32> {
    if error != 0 {
        let tolerated = workload.tolerated.contains(&error);
        return if tolerated { Ok(error) } else { granted_or(request.kind.name(), error).map(|()| 0) };
    }
    let mut reader = Reader::new(record);
    let refused = check_record(workload, request, &mut reader);
    let refused = refused.map_err(|error| match error.downcast::<corral_wire::DecodeError>() {
        Ok(decode) => anyhow::anyhow!("the reply cannot be decoded: {decode}"),
        Err(other) => other,
    })?;
    finished(&reader).map(|()| refused)
}

fn check_record(workload: &Workload, request: Request, reader: &mut Reader<'_>) -> Result<i32> {
    match request.kind {
        Kind::Get => {
            let reply = GetDataResponse::decode(reader)?;
            check_data(workload, &reply)?;
            check_identity(workload, request, reply.stat.czxid)?;
        }
        Kind::Exists => {
            let stat = ExistsResponse::decode(reader)?.stat;
            check_size(workload, "Stat.dataLength", stat.data_length)?;
            check_identity(workload, request, stat.czxid)?;
        }
        Kind::Set => {
            let stat = SetDataResponse::decode(reader)?.stat;
            check_written(request, &stat)?;
            check_identity(workload, request, stat.czxid)?;
        }
        Kind::Create => {
            let path = CreateResponse::decode(reader)?.path.unwrap_or_default();
            expect("path", workload.created_path(request.connection, request.key).as_str(), path)?;
        }
        Kind::Children => {
            let reply = GetChildren2Response::decode(reader)?;
            let found = reply.children.map_or(0, |children| children.len());
            expect("number of children", workload.children as usize, found)?;
            expect("Stat.numChildren", i64::from(workload.children), i64::from(reply.stat.num_children))?;
        }
        Kind::Multi => return check_multi(workload, request, MultiResponse::decode(reader)?),
        Kind::Delete => {}
    }
    Ok(0)
}

/// All values are alike, but a znode's czxid is its own and stays: a reply of another znode shows by that. A server
/// that answers from nowhere has none.
fn check_identity(workload: &Workload, request: Request, czxid: i64) -> Result<()> {
    let known = &workload.czxids[request.key as usize];
    let first = match known.load(Ordering::Relaxed) {
        0 => known.compare_exchange(0, czxid, Ordering::Relaxed, Ordering::Relaxed).err().unwrap_or(czxid),
        first => first,
    };
    if first == czxid { Ok(()) } else { expect("Stat.czxid", format!("{first:#x}"), format!("{czxid:#x}")) }
}

fn check_data(workload: &Workload, reply: &GetDataResponse<'_>) -> Result<()> {
    let data = reply.data.unwrap_or_default();
    let length = i32::try_from(data.len()).unwrap_or(i32::MAX);
    check_size(workload, "value length", length)?;
    let value = &workload.value[..data.len()];
    let differs = || data.iter().zip(value).position(|(found, expected)| found != expected).unwrap_or(0);
    ensure!(data == value, "the reply's value is wrong from byte {} on", differs());
    expect("Stat.dataLength", length, reply.stat.data_length)
}

/// A value of unknown size, because any connection may have written it.
fn check_size(workload: &Workload, what: &'static str, found: i32) -> Result<()> {
    let (min, max) = (workload.value_bytes_min, workload.value.len());
    let expected = || if min == max { max.to_string() } else { format!("{min} to {max}") };
    let right = usize::try_from(found).is_ok_and(|found| (min..=max).contains(&found));
    if right { Ok(()) } else { expect(what, expected(), found.to_string()) }
}

fn check_multi(workload: &Workload, request: Request, reply: MultiResponse<'_>) -> Result<i32> {
    expect("number of results", workload.multi_ops as usize, reply.len())?;
    let inconsistent = ErrorCode::RuntimeInconsistency.code();
    for result in reply.iter() {
        match result {
            MultiResult::SetData(done) => check_written(request, &done.stat)?,
            // All fail if one does: those before it have code 0, those behind it RUNTIMEINCONSISTENCY.
            MultiResult::Error(code) if code == 0 || code == inconsistent => {}
            MultiResult::Error(code) if workload.tolerated.contains(&code) => return Ok(code),
            MultiResult::Error(code) => granted_or("multi", code)?,
            other => expect("result of a multi", "setData".to_owned(), format!("{other:?}"))?,
        }
    }
    // A list of nothing but zeros has no reason to have failed.
    let failed = reply.iter().any(|result| matches!(result, MultiResult::Error(_)));
    granted_or("multi", if failed { inconsistent } else { 0 }).map(|()| 0)
}

fn check_written(request: Request, stat: &Stat) -> Result<()> {
    expect("Stat.dataLength", i64::from(request.length), i64::from(stat.data_length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::{encoded, value};
    use crate::workload::tests::workload;
    use corral_wire::VectorBuf;
    use corral_wire::multi::MultiResponseEncoder;

    fn stat(data_length: i32) -> Stat {
        Stat { czxid: 1, data_length, num_children: 3, ..Stat::default() }
    }

    fn data(bytes: &[u8], stat: Stat) -> Vec<u8> {
        encoded(|writer| GetDataResponse { data: Some(bytes), stat }.encode(writer))
    }

    fn judged(workload: &Workload, kind: Kind, key: u32, error: i32, record: &[u8]) -> Result<i32, String> {
        let request = Request { kind, key, length: 100, connection: 1 };
        let found = judge(workload, request, error, record, &mut OwnZnodes::default());
        found.map_err(|error| format!("{error:#}"))
    }

    /// Judges a reply of a load with these flags. `expect` is a part of the error, empty for none.
    #[track_caller]
    fn check(flags: &str, kind: Kind, record: &[u8], expect: &str) {
        let workload = workload(&format!("{flags} --mix {}=1", kind.name()));
        match judged(&workload, kind, 3, 0, record) {
            Err(error) if !expect.is_empty() => assert!(error.contains(expect), "{error}"),
            found => assert_eq!((found, expect), (Ok(0), "")),
        }
    }

    #[test]
    fn a_reply_of_another_znode_is_noticed() {
        let workload = workload("--mix get=1,exists=1,set=1");
        let judge = |kind, key, czxid| {
            let stat = Stat { czxid, ..stat(100) };
            let other = encoded(|writer| ExistsResponse { stat }.encode(writer));
            let record = if kind == Kind::Get { data(&value(100), stat) } else { other };
            judged(&workload, kind, key, 0, &record)
        };
        let wrong = |expected: i64, found: i64| {
            Err(format!("the reply's Stat.czxid is wrong: expected {expected:#x}, found {found:#x}"))
        };
        assert_eq!(judge(Kind::Get, 3, 50), Ok(0));
        assert_eq!(judge(Kind::Set, 4, 51), Ok(0));
        assert_eq!(judge(Kind::Exists, 3, 50), Ok(0));
        assert_eq!(judge(Kind::Get, 3, 51), wrong(50, 51));
        assert_eq!(judge(Kind::Exists, 4, 50), wrong(51, 50));
        assert_eq!(judge(Kind::Set, 3, 0), wrong(50, 0));
        // An echo has no znodes.
        assert_eq!((judge(Kind::Get, 5, 0), judge(Kind::Get, 5, 0)), (Ok(0), Ok(0)));
    }

    #[test]
    fn errors_are_tolerated_only_if_asked_for_and_their_consequences_checked() {
        let unknown = judged(&workload("-o get"), Kind::Get, 3, 5, &[]).unwrap_err();
        assert!(unknown.contains("an unknown error (5)"), "{unknown}");
        let refused = judged(&workload("-o set --tolerate NONODE"), Kind::Set, 3, -127, &[]).unwrap_err();
        assert!(refused.contains("THROTTLEDOP (-127)"), "{refused}");
        let (workload, mut own) = (workload("-o delete"), OwnZnodes::prepared(9));
        let mut judge = |kind, error| {
            let request = Request { kind, key: 3, length: 100, connection: 1 };
            judge(&workload, request, error, &[], &mut own).map_err(|error| error.to_string())
        };
        assert_eq!(judge(Kind::Create, -127), Ok(-127));
        assert_eq!(judge(Kind::Delete, -101), Ok(-101), "it was never created");
        assert_eq!(judge(Kind::Create, -127), Ok(-127));
        assert_eq!(judge(Kind::Delete, 0), Err("the server answered OK (0) instead of NONODE (-101)".to_owned()));
        assert_eq!(judge(Kind::Delete, -127), Ok(-127));
        assert!(own.left.contains(&3), "what could not be deleted is removed at the end");
    }

    #[test]
    fn records_are_judged() {
        let of = |bytes: usize| data(&value(bytes), stat(i32::try_from(bytes).unwrap()));
        let good = of(100);
        check("", Kind::Get, &good, "");
        check("", Kind::Get, &good[..good.len() - 1], "cut short");
        check("", Kind::Get, &[good.clone(), vec![0]].concat(), "1 bytes follow");
        check("", Kind::Get, &data(&[b'a'; 100], stat(100)), "value is wrong");
        check("", Kind::Get, &data(&value(100), stat(5)), "Stat.dataLength");
        check("--value-bytes 10..50", Kind::Get, &of(10), "");
        check("--value-bytes 10..50", Kind::Get, &of(51), "value length is wrong: expected 10 to 50, found 51");
        let written = |length| encoded(|writer| ExistsResponse { stat: stat(length) }.encode(writer));
        check("", Kind::Exists, &written(100), "");
        check("", Kind::Set, &written(100), "");
        check("", Kind::Set, &written(99), "Stat.dataLength is wrong: expected 100, found 99");
        check("", Kind::Delete, &[], "");
        check("", Kind::Delete, &[0; 4], "4 bytes follow");
        let path = |path| encoded(|writer| CreateResponse { path: Some(path) }.encode(writer));
        check("", Kind::Create, &path("/x/y/n/00001/000000003"), "");
        for wrong in ["/x/y/n/00001/000000004", "/x/y/n/00002/000000003", "/x/z/n/00001/000000003", ""] {
            check("", Kind::Create, &path(wrong), "path is wrong");
        }
        let list = |count: usize| {
            let names = VectorBuf::of((0..count).map(|_| Some("n")));
            let children = Some(names.view().unwrap());
            encoded(|writer| GetChildren2Response { children, stat: stat(0) }.encode(writer))
        };
        check("", Kind::Children, &list(3), "");
        check("", Kind::Children, &list(2), "number of children is wrong: expected 3, found 2");
        let multi = |lengths: &[i32]| {
            encoded(|writer| {
                let mut results = MultiResponseEncoder::new(writer);
                lengths.iter().for_each(|length| results.set_data(&stat(*length)));
                results.finish();
            })
        };
        check("", Kind::Multi, &multi(&[100; 4]), "");
        check("", Kind::Multi, &multi(&[100, 100, 100, 99]), "Stat.dataLength");
        check("", Kind::Multi, &multi(&[100; 5]), "number of results is wrong: expected 4");
        let failed = |code| {
            encoded(|writer| {
                let mut results = MultiResponseEncoder::new(writer);
                let behind = [ErrorCode::RuntimeInconsistency; 2];
                [ErrorCode::Ok, code].into_iter().chain(behind).for_each(|code| results.error(code));
                results.finish();
            })
        };
        check("", Kind::Multi, &failed(ErrorCode::NoNode), "NONODE");
        assert_eq!(judged(&workload("-o multi"), Kind::Multi, 3, 0, &failed(ErrorCode::ThrottledOp)), Ok(-127));
    }
}
