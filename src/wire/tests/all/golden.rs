//! Golden transcripts: every frame that a real ZooKeeper 3.9.4 server and its client exchanged decodes with the record
//! that the operation table names. It leaves nothing over, and encodes to the very same bytes.
//!
//! `golden/record.py` says how the transcripts were taken and explains their lines.

use std::collections::BTreeSet;
use std::path::Path;

use corral_wire::frame::{FRAME_MAX_DEFAULT, append_frame, next_frame};
use corral_wire::limits::{REPLY_HEADER_BYTES, REQUEST_HEADER_BYTES};
use corral_wire::multi::{MultiKind, MultiRequest, MultiResponse};
use corral_wire::op::Kind;
use corral_wire::records::*;
use corral_wire::{DecodeError, OpCode, Reader, Writer};

/// Takes the body of a frame off a reader and appends what it decoded to the writer.
type Step = fn(&mut Reader<'_>, &mut Writer<'_>) -> Result<(), DecodeError>;

macro_rules! step {
    ($record:ident) => {
        |reader, writer| {
            $record::decode(reader)?.encode(writer);
            Ok(())
        }
    };
}

macro_rules! steps {
    ($name:expr; $($record:ident = $wire:literal,)*) => {
        match $name {
            "-" => |_, _| Ok(()),
            $($wire => step!($record),)*
            other => panic!("no record {other}"),
        }
    };
}

fn request_step(op: OpCode) -> Step {
    match op {
        OpCode::Multi => |reader, writer| {
            MultiRequest::decode(MultiKind::Write, reader)?.encode(writer);
            Ok(())
        },
        OpCode::MultiRead => |reader, writer| {
            MultiRequest::decode(MultiKind::Read, reader)?.encode(writer);
            Ok(())
        },
        _ => record_step(op.request()),
    }
}

/// The record of a name in the operation table.
fn record_step(name: &str) -> Step {
    steps! { name;
        CreateRequest = "CreateRequest",
        CreateTtlRequest = "CreateTTLRequest",
        DeleteRequest = "DeleteRequest",
        DeleteContainerRequest = "DeleteContainerRequest",
        ExistsRequest = "ExistsRequest",
        GetDataRequest = "GetDataRequest",
        SetDataRequest = "SetDataRequest",
        GetAclRequest = "GetACLRequest",
        SetAclRequest = "SetACLRequest",
        GetChildrenRequest = "GetChildrenRequest",
        SyncRequest = "SyncRequest",
        GetChildren2Request = "GetChildren2Request",
        CheckVersionRequest = "CheckVersionRequest",
        ReconfigRequest = "ReconfigRequest",
        CheckWatchesRequest = "CheckWatchesRequest",
        RemoveWatchesRequest = "RemoveWatchesRequest",
        AuthPacket = "AuthPacket",
        SetWatches = "SetWatches",
        GetSaslRequest = "GetSASLRequest",
        GetEphemeralsRequest = "GetEphemeralsRequest",
        GetAllChildrenNumberRequest = "GetAllChildrenNumberRequest",
        SetWatches2 = "SetWatches2",
        AddWatchRequest = "AddWatchRequest",
        CreateResponse = "CreateResponse",
        Create2Response = "Create2Response",
        ExistsResponse = "ExistsResponse",
        GetDataResponse = "GetDataResponse",
        SetDataResponse = "SetDataResponse",
        GetAclResponse = "GetACLResponse",
        SetAclResponse = "SetACLResponse",
        GetChildrenResponse = "GetChildrenResponse",
        GetChildren2Response = "GetChildren2Response",
        SyncResponse = "SyncResponse",
        MultiResponse = "MultiResponse",
        SetSaslResponse = "SetSASLResponse",
        GetEphemeralsResponse = "GetEphemeralsResponse",
        GetAllChildrenNumberResponse = "GetAllChildrenNumberResponse",
        ErrorResponse = "ErrorResponse",
        WhoAmIResponse = "WhoAmIResponse",
        FilteredListRequest = "FilteredListRequest",
        CheckNotExistsRequest = "CheckNotExistsRequest",
        RemoveRecursiveRequest = "RemoveRecursiveRequest",
        CheckStatRequest = "CheckStatRequest",
        TryRemoveRequest = "TryRemoveRequest",
        FilteredListWithStatsAndDataRequest = "FilteredListWithStatsAndDataRequest",
        FilteredListWithStatsAndDataResponse = "FilteredListWithStatsAndDataResponse",
        ListRecursiveRequest = "ListRecursiveRequest",
        ListRecursiveResponse = "ListRecursiveResponse",
    }
}

/// Decodes and re-encodes a body; the header decides whether a record follows.
fn reencode(mark: &str, name: &str, reader: &mut Reader<'_>, writer: &mut Writer<'_>) -> Result<(), DecodeError> {
    let op = OpCode::ALL.iter().copied().find(|op| op.name() == name);
    match (mark, name) {
        (">", "connect") => step!(ConnectRequest)(reader, writer),
        ("<", "connect") => step!(ConnectResponse)(reader, writer),
        (">" | "!", _) => {
            let header = RequestHeader::decode(reader)?;
            let op = op.expect("an operation");
            assert_eq!(OpCode::from_i32(header.op), Some(op));
            header.encode(writer);
            request_step(op)(reader, writer)
        }
        ("<", _) => {
            let header = ReplyHeader::decode(reader)?;
            header.encode(writer);
            match (header, op) {
                (ReplyHeader { xid: -1, .. }, _) => step!(WatcherEvent)(reader, writer),
                (ReplyHeader { err: 0, .. }, Some(op)) => record_step(op.response())(reader, writer),
                // An error reply is a header. ZooKeeper sends the results made so far behind the header of a multiRead
                // that turns out to hold a write. Clients do not look at them.
                (_, Some(OpCode::MultiRead)) if reader.remaining() > 0 => step!(MultiResponse)(reader, writer),
                _ => Ok(()),
            }
        }
        _ => panic!("mark {mark}"),
    }
}

fn unhex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2));
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex")).collect()
}

/// Calls `check` with mark, operation name and frame of every line of every transcript.
fn for_each_line(mut check: impl FnMut(&str, &str, &[u8], &str)) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut files = 0;
    for file in std::fs::read_dir(directory).expect("the transcripts") {
        let path = file.expect("a file").path();
        if path.extension().is_none_or(|extension| extension != "txt") {
            continue;
        }
        files += 1;
        let text = std::fs::read_to_string(&path).expect("text");
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
            let place = format!("{}:{}: {line}", path.display(), at + 1);
            let [mark, name, hex] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{place}") };
            check(mark, name, &unhex(hex), &place);
        }
    }
    assert_eq!(files, 8);
}

#[test]
fn every_frame_round_trips() {
    let mut lines = 0;
    for_each_line(|mark, name, frame, place| {
        if mark == "!" {
            return;
        }
        lines += 1;
        let (body, taken) = next_frame(frame, FRAME_MAX_DEFAULT).expect(place).expect(place);
        assert_eq!(taken, frame.len(), "{place}");
        let mut reader = Reader::new(body);
        let mut out = Vec::new();
        append_frame(&mut out, |writer| reencode(mark, name, &mut reader, writer).expect(place)).expect(place);
        assert_eq!(reader.remaining(), 0, "{place}");
        assert_eq!(out, frame, "{place}");
    });
    assert!(lines > 200, "{lines}");
}

#[test]
fn what_zookeeper_cannot_decode_neither_can_we() {
    let mut refused = BTreeSet::new();
    for_each_line(|mark, name, frame, place| {
        if mark == "!" {
            let mut out = Vec::new();
            let result = reencode(mark, name, &mut Reader::new(&frame[4..]), &mut Writer::new(&mut out));
            let error = result.expect_err(place);
            refused.insert(format!("{error}").split(' ').next().map(str::to_owned));
        }
    });
    // Truncated, NegativeLength, TooLong, BadFlag, BadOp.
    assert_eq!(refused.len(), 5, "{refused:?}");
}

#[test]
fn every_cut_of_a_recorded_record_is_refused() {
    for_each_line(|mark, name, frame, place| {
        if mark == "!" {
            return;
        }
        let body = &frame[4..];
        for length in 0..body.len() {
            // A connect record without its last byte is an old client's; an error reply ends with its header.
            let old = name == "connect" && length == body.len() - 1;
            let error = mark == "<" && name == "multiRead" && length == REPLY_HEADER_BYTES && body[12..16] != [0; 4];
            let mut out = Vec::new();
            let result = reencode(mark, name, &mut Reader::new(&body[..length]), &mut Writer::new(&mut out));
            assert!(result.is_err() || old || error, "{place} cut to {length}");
        }
    });
}

/// One byte of a recorded frame is changed: it is refused, or it is another record that encodes to the changed bytes.
/// No change makes a decoder panic.
#[test]
fn changed_bytes_are_refused_or_other_records() {
    let (mut refused, mut other) = (0_u32, 0_u32);
    for_each_line(|mark, name, frame, place| {
        // The header stays: it says which record to expect.
        let header = match (mark, name) {
            (_, "connect") => 0,
            ("<", _) => REPLY_HEADER_BYTES,
            _ => REQUEST_HEADER_BYTES,
        };
        let mut body = frame[4..].to_vec();
        for at in header..body.len() {
            let was = body[at];
            for change in [0x01, 0x80, 0xff, was] {
                body[at] = was ^ change;
                let mut reader = Reader::new(&body);
                let mut out = Vec::new();
                if reencode(mark, name, &mut reader, &mut Writer::new(&mut out)).is_err() {
                    refused += 1;
                    continue;
                }
                other += 1;
                let mut again = Vec::new();
                reencode(mark, name, &mut Reader::new(&out), &mut Writer::new(&mut again)).expect(place);
                assert_eq!(out, again, "{place}");
            }
            body[at] = was;
        }
    });
    assert!(refused > 1000 && other > 1000, "{refused} {other}");
}

#[test]
fn every_operation_was_recorded() {
    let (mut sent, mut answered) = (BTreeSet::new(), BTreeSet::new());
    for_each_line(|mark, name, frame, _| {
        let err = frame.get(16..20);
        match mark {
            ">" => drop(sent.insert(name.to_owned())),
            "<" if name == "connect" || err == Some(&[0; 4]) => drop(answered.insert(name.to_owned())),
            _ => {}
        }
    });
    for op in OpCode::ALL.iter().filter(|op| !matches!(op.kind(), Kind::Internal | Kind::Extension)) {
        assert!(sent.contains(op.name()), "{} never sent", op.name());
        assert!(answered.contains(op.name()) || *op == OpCode::Reconfig, "{} never succeeded", op.name());
    }
    assert!(sent.contains("connect") && answered.contains("connect") && answered.contains("notification"));
}

#[test]
fn the_table_names_records_that_exist() {
    for op in OpCode::ALL {
        let _: Step = request_step(*op);
        let _: Step = record_step(op.response());
    }
}
