//! From outcomes and events to bytes: everything a shard sends but the results of reads.

use crate::apply::outcome::Outcome;
use crate::ids::Zxid;
use crate::ops::OpResult;
use alloc::vec::Vec;
use corral_wire::consts::{EventType, KeeperState};
use corral_wire::frame::append_frame;
use corral_wire::multi::{MultiResponseEncoder, MultiResult};
use corral_wire::records::{ConnectResponse, CreateResponse, ReplyHeader, WatcherEvent};
use corral_wire::{ErrorCode, Writer};

/// Appends one frame with the body that `encode` writes.
pub(crate) fn frame(out: &mut Vec<u8>, encode: impl FnOnce(&mut Writer<'_>)) {
    append_frame(out, encode).expect("a reply is bounded by the tree's size, far below 2 GiB");
}

/// Appends a header-only reply with an error.
pub(crate) fn error(out: &mut Vec<u8>, xid: i32, zxid: Zxid, code: ErrorCode) {
    frame(out, |writer| ReplyHeader::error(xid, zxid.wire(), code).encode(writer));
}

/// Appends a header-only reply of success.
pub(crate) fn done(out: &mut Vec<u8>, xid: i32, zxid: Zxid) {
    frame(out, |writer| ReplyHeader::ok(xid, zxid.wire()).encode(writer));
}

/// Appends a watch event; `zxid` is -1 on the wire for events made up on reconnecting.
pub(crate) fn event(out: &mut Vec<u8>, zxid: i64, kind: EventType, path: &str) {
    frame(out, |writer| {
        ReplyHeader::notification(zxid).encode(writer);
        let state = KeeperState::SyncConnected.number();
        WatcherEvent { event_type: kind.number(), state, path: Some(path) }.encode(writer);
    });
}

/// Appends the reply to a write. `SessionMoved` must not come here: it has no reply.
pub(crate) fn outcome(out: &mut Vec<u8>, xid: i32, zxid: Zxid, outcome: &Outcome) {
    match outcome {
        Outcome::Op(OpResult::Error(code)) => error(out, xid, zxid, *code),
        Outcome::Op(result) => frame(out, |writer| {
            ReplyHeader::ok(xid, zxid.wire()).encode(writer);
            match result {
                OpResult::Created { path } | OpResult::Ensured { path } => writer.str(path),
                OpResult::CreatedStat { path, stat } => {
                    writer.str(path);
                    stat.encode(writer);
                }
                OpResult::Stat(stat) => stat.encode(writer),
                OpResult::Done(_) | OpResult::Error(_) => {}
            }
        }),
        Outcome::Multi(results) => frame(out, |writer| {
            ReplyHeader::ok(xid, zxid.wire()).encode(writer);
            multi_body(writer, results);
        }),
        Outcome::Configured(list) => frame(out, |writer| {
            ReplyHeader::ok(xid, zxid.wire()).encode(writer);
            writer.buffer(Some(&list.0));
            list.1.encode(writer);
        }),
        _ => done(out, xid, zxid),
    }
}

fn multi_body(writer: &mut Writer<'_>, results: &[OpResult]) {
    let mut list = MultiResponseEncoder::new(writer);
    for result in results {
        match result {
            OpResult::Created { path } => list.create(path),
            OpResult::CreatedStat { path, stat } => list.create2(path, stat),
            OpResult::Stat(stat) => list.set_data(stat),
            OpResult::Ensured { path } => {
                list.push(&MultiResult::CreateIfNotExists(CreateResponse { path: Some(path) }));
            }
            OpResult::Done(op) => list.with(*op, |_| {}),
            OpResult::Error(code) => list.error(*code),
        }
    }
    list.finish();
}

/// Appends the answer to a connect request; a `timeout_ms` of 0 tells the client that its session is expired.
/// `read_only` is left out for clients that do not know it.
pub(crate) fn connected(
    out: &mut Vec<u8>,
    session: i64,
    timeout_ms: i32,
    password: &[u8; 16],
    read_only: Option<bool>,
) {
    frame(out, |writer| {
        ConnectResponse { protocol_version: 0, timeout_ms, session_id: session, passwd: Some(password), read_only }
            .encode(writer);
    });
}
