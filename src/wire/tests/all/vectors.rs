//! The test vectors of the protocol's specification, computed independently of this code. Each must decode to the
//! values given there and encode to the same bytes. Frames are written with their length word, blanks ignored.

use corral_wire::consts::{CreateMode, EventType, KeeperState, XID_NOTIFICATION, XID_PING};
use corral_wire::frame::{FRAME_MAX_DEFAULT, append_frame, next_frame};
use corral_wire::multi::{MultiResponse, MultiResponseEncoder, MultiResult};
use corral_wire::records::*;
use corral_wire::{ErrorCode, OpCode, Reader, Writer};

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).expect("ASCII"), 16).expect("hex")).collect()
}

/// Encodes a frame with `encode`, expects `hex`, and gives its body to `decode`.
fn check(hex: &str, encode: impl FnOnce(&mut Writer<'_>), decode: impl FnOnce(&mut Reader<'_>)) {
    let expect = unhex(hex);
    let mut out = Vec::new();
    append_frame(&mut out, encode).expect("short");
    assert_eq!(out, expect);
    let (body, taken) = next_frame(&expect, FRAME_MAX_DEFAULT).expect("legal").expect("whole");
    assert_eq!(taken, expect.len());
    let mut reader = Reader::new(body);
    decode(&mut reader);
    assert_eq!(reader.remaining(), 0);
}

/// Checks a frame of a header and perhaps a record.
macro_rules! check {
    ($hex:expr, $($name:ident: $value:expr),+) => {
        check(
            $hex,
            |writer| { $($value.encode(writer);)+ },
            |reader| { $(assert_eq!($name::decode(reader), Ok($value));)+ },
        )
    };
}

#[test]
fn connect() {
    let passwd = [0; 16];
    check!("0000002d 00000000 0000000000000000 00007530 0000000000000000
            00000010 00000000000000000000000000000000 00",
        ConnectRequest: ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: 30_000,
            session_id: 0,
            passwd: Some(&passwd),
            read_only: Some(false),
        }
    );
    let passwd = unhex("e69498437b3b5b6234a1adffbca35425");
    check!("00000025 00000000 00007530 0100019a3b5c0000 00000010 e69498437b3b5b6234a1adffbca35425 00",
        ConnectResponse: ConnectResponse {
            protocol_version: 0,
            timeout_ms: 30_000,
            session_id: 0x0100_019a_3b5c_0000,
            passwd: Some(&passwd),
            read_only: Some(false),
        }
    );
}

#[test]
fn ping() {
    check!("00000008 fffffffe 0000000b", RequestHeader: RequestHeader { xid: XID_PING, op: OpCode::Ping.number() });
    check!("00000010 fffffffe 0000000000000005 00000000", ReplyHeader: ReplyHeader::ok(XID_PING, 5));
}

#[test]
fn exists_with_watch() {
    check!("0000000f 00000001 00000003 00000002 2f61 01",
        RequestHeader: RequestHeader { xid: 1, op: OpCode::Exists.number() },
        ExistsRequest: ExistsRequest { path: Some("/a"), watch: true }
    );
    check!("00000010 00000001 0000000000000005 ffffff9b", ReplyHeader: ReplyHeader::error(1, 5, ErrorCode::NoNode));
}

#[test]
fn create_ephemeral() {
    check!("00000032 00000002 00000001 00000002 2f61 00000001 78
            00000001 0000001f 00000005 776f726c64 00000006 616e796f6e65 00000001",
        RequestHeader: RequestHeader { xid: 2, op: OpCode::Create.number() },
        CreateRequest: CreateRequest {
            path: Some("/a"),
            data: Some(b"x"),
            acl: Some(Acl::OPEN_ACL_UNSAFE),
            flags: CreateMode::Ephemeral.flag(),
        }
    );
    check!("00000016 00000002 0000000000000006 00000000 00000002 2f61",
        ReplyHeader: ReplyHeader::ok(2, 6),
        CreateResponse: CreateResponse { path: Some("/a") }
    );
    assert_eq!(ReplyHeader::notification(6).xid, XID_NOTIFICATION);
    check!("0000001e ffffffff 0000000000000006 00000000 00000001 00000003 00000002 2f61",
        ReplyHeader: ReplyHeader::notification(6),
        WatcherEvent: WatcherEvent {
            event_type: EventType::NodeCreated.number(),
            state: KeeperState::SyncConnected.number(),
            path: Some("/a"),
        }
    );
}

#[test]
fn failed_multi() {
    let hex = "0000004d 00000005 0000000000000052 00000000
               ffffffff 00 00000000 00000000   ffffffff 00 ffffff9b ffffff9b
               ffffffff 00 fffffffe fffffffe   ffffffff 00 fffffffe fffffffe
               ffffffff 01 ffffffff";
    check(
        hex,
        |writer| {
            ReplyHeader::ok(5, 0x52).encode(writer);
            let mut results = MultiResponseEncoder::new(writer);
            let behind = [ErrorCode::RuntimeInconsistency; 2];
            [ErrorCode::Ok, ErrorCode::NoNode].into_iter().chain(behind).for_each(|code| results.error(code));
            results.finish();
        },
        |reader| {
            assert_eq!(ReplyHeader::decode(reader), Ok(ReplyHeader::ok(5, 0x52)));
            let response = MultiResponse::decode(reader).expect("valid");
            let errors = [0, -101, -2, -2].map(MultiResult::Error);
            assert!(response.iter().eq(errors));
        },
    );
}

#[test]
fn error_replies_are_headers() {
    for code in ErrorCode::ALL {
        let mut out = Vec::new();
        ReplyHeader::error(7, 1 << 32, *code).encode(&mut Writer::new(&mut out));
        assert_eq!(out.len(), 16);
        assert_eq!(out[12..], code.code().to_be_bytes());
    }
}
