//! Lists of operations and results: what may stand where, and that streamed results are what their records encode.

use alloc::vec::Vec;

use super::*;
use crate::records::Acl;

#[test]
fn results_stream_as_their_records_encode() {
    let stat = Stat { czxid: 1, pzxid: 2, ..Stat::default() };
    let mut streamed = Vec::new();
    let mut writer = Writer::new(&mut streamed);
    let mut encoder = MultiResponseEncoder::new(&mut writer);
    encoder.create("/a");
    encoder.create2("/b", &stat);
    encoder.delete();
    encoder.set_data(&stat);
    encoder.check();
    encoder.get_data(None, &stat);
    encoder.get_children(["x", "yz"]);
    encoder.error(ErrorCode::NoNode);
    encoder.finish();
    let response = MultiResponse::decode(&mut Reader::new(&streamed)).expect("valid");
    let types: Vec<i32> = response
        .iter()
        .map(|result| {
            let mut out = Vec::new();
            result.encode(&mut Writer::new(&mut out));
            Reader::new(&out).i32().expect("a header")
        })
        .collect();
    assert_eq!(types, [1, 15, 2, 5, 13, 4, 8, -1]);
    let Some(MultiResult::GetChildren(names)) = response.iter().nth(6) else { panic!("{response:?}") };
    assert!(names.children.expect("a list").iter().eq([Some("x"), Some("yz")]));
    let mut again = Vec::new();
    response.encode(&mut Writer::new(&mut again));
    assert_eq!(streamed, again);
}

#[test]
fn types_stand_only_where_they_may() {
    fn check(kind: MultiKind, op: i32, allowed: bool) {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        MultiHeader { op, done: false, err: -1 }.encode(&mut writer);
        // Null strings and buffers, empty lists, version, flag and TTL 0: enough for any of the records, and the end.
        let padding: &[u8] = match op {
            1 | 15 | 19 | 502 => &[255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0],
            21 => &[255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            504 => &[0; 76],
            4 | 8 => &[255, 255, 255, 255, 1],
            500 => &[255, 255, 255, 255, 1, 0],
            506 => &[255, 255, 255, 255, 1, 0, 1, 1],
            5 => &[255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0],
            _ => &[255, 255, 255, 255, 0, 0, 0, 0],
        };
        writer.raw(padding);
        MultiHeader::END.encode(&mut writer);
        let decoded = MultiRequest::decode(kind, &mut Reader::new(&bytes)).map(|multi| multi.len());
        assert_eq!(decoded, if allowed { Ok(1) } else { Err(DecodeError::BadOp(op)) }, "{kind:?} {op}");
    }
    for op in OpCode::ALL.iter().map(|op| op.number()).chain([10, 23, 999, i32::MIN]) {
        check(MultiKind::Write, op, matches!(op, 1 | 2 | 5 | 13 | 15 | 19 | 21));
        check(MultiKind::KeeperWrite, op, matches!(op, 1 | 2 | 5 | 13 | 15 | 19 | 21 | 501..=505));
        check(MultiKind::Read, op, matches!(op, 4 | 8));
        check(MultiKind::KeeperRead, op, matches!(op, 4 | 8 | 500 | 506));
    }
}

#[test]
fn flags_stand_only_where_they_may_and_null_acls_in_ttl_creates() {
    fn check(op: OpCode, flags: i32, expect: Result<OpCode, DecodeError>) {
        decode(op, flags, true, expect);
        let trips = op != OpCode::CreateTtl && (0..7).contains(&flags);
        decode(op, flags, false, if trips { Err(DecodeError::NullAcl) } else { expect });
    }
    fn decode(op: OpCode, flags: i32, acl: bool, expect: Result<OpCode, DecodeError>) {
        let acl = acl.then_some(Acl::OPEN_ACL_UNSAFE);
        let request = CreateRequest { path: Some("/a"), data: None, acl, flags };
        let ttl = (op == OpCode::CreateTtl).then_some(1);
        let mut bytes = Vec::new();
        encode_request(&mut Writer::new(&mut bytes), [MultiOp::Create { op, request, ttl }]);
        let decoded = MultiRequest::decode(MultiKind::Write, &mut Reader::new(&bytes));
        let op = decoded.map(|multi| multi.iter().next().expect("one operation").effective_op());
        assert_eq!(op, expect, "{op:?} {flags}");
    }
    for op in [OpCode::Create, OpCode::Create2, OpCode::CreateContainer] {
        for flags in 0..4 {
            check(op, flags, Ok(op));
        }
        check(op, 4, Ok(OpCode::CreateContainer));
        for flags in [-1, 5, 6, 7, i32::MIN] {
            check(op, flags, Err(DecodeError::BadFlag(flags)));
        }
    }
    for flags in -1..8 {
        check(OpCode::CreateTtl, flags, Ok(OpCode::CreateTtl));
    }
}

#[test]
fn the_end_ends_whatever_type_it_has() {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes);
    MultiHeader { op: 1, done: true, err: 7 }.encode(&mut writer);
    writer.str("trailing bytes are left to the caller");
    let mut reader = Reader::new(&bytes);
    assert!(MultiRequest::decode(MultiKind::Write, &mut reader).expect("empty").is_empty());
    assert_eq!(reader.remaining(), 41);
}

#[test]
fn more_operations_than_any_budget_allows_are_refused() {
    let decoded = |kind, op: MultiOp<'_>, count| {
        let mut bytes = Vec::new();
        encode_request(&mut Writer::new(&mut bytes), core::iter::repeat_n(op, count));
        MultiRequest::decode(kind, &mut Reader::new(&bytes)).map(|multi| multi.len())
    };
    let delete = MultiOp::Delete(DeleteRequest { path: Some("/a"), version: -1 });
    let read = MultiOp::GetChildren(GetChildrenRequest { path: Some("/a"), watch: false });
    for (kind, op) in [(MultiKind::Write, delete), (MultiKind::Read, read)] {
        assert_eq!(decoded(kind, op, MULTI_OPS_MAX), Ok(MULTI_OPS_MAX));
        assert_eq!(decoded(kind, op, MULTI_OPS_MAX + 1), Err(DecodeError::TooManyOps));
    }
}
