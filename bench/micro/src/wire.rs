//! The protocol's part: frames to records and records to frames. Knows nothing of a tree.

use super::tree::{DATA, TIMES_MAX, new_path, path};
use corral_wire::consts::VERSION_ANY;
use corral_wire::frame::{begin_frame, end_frame, next_frame};
use corral_wire::limits::FRAME_MAX_DEFAULT;
use corral_wire::records::{
    Acl, CreateRequest, CreateResponse, GetDataRequest, GetDataResponse, ReplyHeader, RequestHeader, SetDataRequest,
    Stat,
};
use corral_wire::{OpCode, Reader, Vector, Writer};
use std::hint::black_box;

/// One frame whose body `encode` writes.
pub(crate) fn frame(out: &mut Vec<u8>, encode: impl FnOnce(&mut Writer<'_>)) {
    let mark = begin_frame(out);
    encode(&mut Writer::new(out));
    end_frame(out, mark).expect("small");
}

fn header(writer: &mut Writer<'_>, xid: u32, op: OpCode) {
    RequestHeader { xid: xid.cast_signed(), op: op.number() }.encode(writer);
}

pub(crate) fn get_frame(out: &mut Vec<u8>, xid: u32, op: OpCode, path: &str, watch: bool) {
    frame(out, |writer| {
        header(writer, xid, op);
        GetDataRequest { path: Some(path), watch }.encode(writer);
    });
}

pub(crate) fn set_frame(out: &mut Vec<u8>, xid: u32, path: &str) {
    frame(out, |writer| {
        header(writer, xid, OpCode::SetData);
        SetDataRequest { path: Some(path), data: Some(&DATA), version: VERSION_ANY }.encode(writer);
    });
}

pub(crate) fn create_frame(out: &mut Vec<u8>, xid: u32, path: &str) {
    frame(out, |writer| {
        header(writer, xid, OpCode::Create);
        let acl = Some(Vector::<Acl<'_>>::OPEN_ACL_UNSAFE);
        CreateRequest { path: Some(path), data: Some(&DATA), acl, flags: 0 }.encode(writer);
    });
}

/// Decodes every request of a buffer that holds `times` of them.
fn decode(encode: impl Fn(&mut Vec<u8>, u32), times: u32, record: impl Fn(&mut Reader<'_>)) {
    let mut bytes = Vec::new();
    (0..TIMES_MAX).for_each(|xid| encode(&mut bytes, xid));
    let mut rest = bytes.as_slice();
    for _ in 0..times {
        let (body, length) = next_frame(rest, FRAME_MAX_DEFAULT).expect("a frame").expect("a whole one");
        rest = &rest[length..];
        let mut reader = Reader::new(body);
        black_box(RequestHeader::decode(&mut reader).expect("a header"));
        record(&mut reader);
    }
}

pub(crate) fn decode_get(times: u32) {
    let encode = |out: &mut Vec<u8>, xid| get_frame(out, xid, OpCode::GetData, &path(xid), false);
    decode(encode, times, |reader| {
        black_box(GetDataRequest::decode(reader).expect("a record"));
    });
}

pub(crate) fn decode_set(times: u32) {
    decode(
        |out, xid| set_frame(out, xid, &path(xid)),
        times,
        |reader| {
            black_box(SetDataRequest::decode(reader).expect("a record"));
        },
    );
}

pub(crate) fn decode_create(times: u32) {
    decode(
        |out, xid| create_frame(out, xid, &new_path(xid)),
        times,
        |reader| {
            let request = CreateRequest::decode(reader).expect("a record");
            for acl in request.acl.into_iter().flatten() {
                black_box(acl);
            }
            black_box(request);
        },
    );
}

/// Encodes `times` replies, each batch of 64 into an empty buffer.
fn encode(times: u32, record: impl Fn(&mut Writer<'_>)) {
    let mut out = Vec::with_capacity(64 * 256);
    for xid in 0..times {
        if xid % 64 == 0 {
            out.clear();
        }
        frame(&mut out, |writer| {
            ReplyHeader::ok(xid.cast_signed(), 77).encode(writer);
            record(writer);
        });
        black_box(&out);
    }
}

pub(crate) fn encode_get_reply(times: u32) {
    let stat = black_box(Stat { mzxid: 9, data_length: 100, ..Stat::default() });
    encode(times, |writer| GetDataResponse { data: Some(&DATA), stat }.encode(writer));
}

pub(crate) fn encode_create_reply(times: u32) {
    let path = black_box(new_path(1));
    encode(times, |writer| CreateResponse { path: Some(&path) }.encode(writer));
}
