//! The records of the protocol by the names of the operation table: checks of the bytes of a reply, and bytes for a
//! request.
//!
//! Knows layouts only. Making is deliberately half wrong: every length, count and number is now and then a lie.

use corral_wire::multi::MultiResponse;
use corral_wire::records::*;
use corral_wire::{DecodeError, OpCode, Reader, Writer};

use crate::rng::Stream;

/// Takes a record off a reader, and appends it to a vector again.
pub(super) type Step = fn(&mut Reader<'_>, &mut Vec<u8>) -> Result<(), DecodeError>;

macro_rules! step {
    ($record:ident) => {
        |reader, out| {
            $record::decode(reader)?.encode(&mut Writer::new(out));
            Ok(())
        }
    };
}

macro_rules! steps {
    ($name:expr; $($same:ident)*; $($record:ident = $wire:literal),*) => {
        match $name {
            "-" => |_, _| Ok(()),
            $(stringify!($same) => step!($same),)*
            $($wire => step!($record),)*
            other => unreachable!("the operation table names the record {other}, the fuzzer does not know it"),
        }
    };
}

/// Behind the header of a notification.
pub(super) const EVENT: Step = step!(WatcherEvent);

/// The step of the record an operation's successful reply consists of.
pub(super) fn response_step(op: OpCode) -> Step {
    steps! { op.response();
        CreateResponse Create2Response ExistsResponse GetDataResponse SetDataResponse GetChildrenResponse
        GetChildren2Response SyncResponse MultiResponse GetEphemeralsResponse GetAllChildrenNumberResponse ErrorResponse
        WhoAmIResponse FilteredListWithStatsAndDataResponse ListRecursiveResponse;
        GetAclResponse = "GetACLResponse", SetAclResponse = "SetACLResponse", SetSaslResponse = "SetSASLResponse"
    }
}

/// The fields of an operation's request, a letter each, see [`field`].
pub(super) const fn layout(op: OpCode) -> &'static str {
    match op {
        OpCode::Create | OpCode::Create2 | OpCode::CreateContainer | OpCode::CreateIfNotExists => "pbAf",
        OpCode::CreateTtl => "pbAft",
        OpCode::Delete | OpCode::Check | OpCode::CheckNotExists | OpCode::TryRemove => "pi",
        OpCode::SetData => "pbi",
        OpCode::SetAcl => "pAi",
        OpCode::Exists | OpCode::GetData | OpCode::GetChildren | OpCode::GetChildren2 => "pz",
        OpCode::GetAcl | OpCode::Sync | OpCode::DeleteContainer => "p",
        OpCode::GetEphemerals | OpCode::GetAllChildrenNumber => "p",
        OpCode::CheckWatches | OpCode::RemoveWatches => "pk",
        OpCode::AddWatch => "p3",
        OpCode::Reconfig => "pppl",
        OpCode::Auth => "is",
        OpCode::SetWatches => "lVVV",
        OpCode::SetWatches2 => "lVVVVV",
        OpCode::Sasl => "b",
        OpCode::FilteredList => "pzz",
        OpCode::RemoveRecursive | OpCode::ListRecursive => "pi",
        OpCode::CheckStat => "piSSSSSS",
        OpCode::FilteredListWithStatsAndData => "pzzzz",
        OpCode::Multi => "M",
        OpCode::MultiRead => "R",
        _ => "",
    }
}

/// Appends the body of a request for `op`, for the most part well formed.
pub(super) fn body(stream: &mut Stream, op: OpCode, out: &mut Vec<u8>) {
    for letter in layout(op).chars() {
        field(stream, letter, out);
    }
}

fn field(stream: &mut Stream, letter: char, out: &mut Vec<u8>) {
    match letter {
        'p' => string(stream, out, some_path),
        's' => credentials(stream, out),
        'b' => string(stream, out, some_data),
        'z' => out.push(u8::try_from(stream.below(3)).unwrap_or(0)),
        '3' => word(stream, out, &[0, 1, 2, -1]),
        'k' => word(stream, out, &[1, 2, 3, 4, 5, 0]),
        'i' => word(stream, out, &[-1, -1, -1, -1, 0, 1, 2]),
        'f' => word(stream, out, &[0, 0, 0, 0, 1, 1, 1, 2, 3, 4, 5, 6, 7, -1]),
        't' | 'l' | 'S' => long(stream, out),
        'A' if stream.per_mille(700) => out.extend_from_slice(b"\0\0\0\x01\0\0\0\x1f\0\0\0\x05world\0\0\0\x06anyone"),
        'A' => vector(stream, out, |stream, out| {
            word(stream, out, &[31, 1, 2, 16, 0]);
            let (scheme, id) = stream.pick(&ACLS);
            string(stream, out, |_| scheme.into());
            string(stream, out, |_| id.into());
        }),
        'V' => vector(stream, out, |stream, out| string(stream, out, some_path)),
        'M' => multi_body(stream, out, &WRITES),
        'R' => multi_body(stream, out, &[OpCode::GetData, OpCode::GetChildren]),
        other => unreachable!("no field is written {other}"),
    }
}

const WRITES: [OpCode; 7] = ops! { Create Create2 CreateContainer CreateTtl Delete SetData Check };

const ACLS: [(&str, &str); 8] = [
    ("world", "anyone"),
    ("world", "anyone"),
    ("auth", ""),
    ("digest", "a:4M1wVgB5Q6Fh4tLaXIuA8e2Zl5E="),
    ("digest", "user:"),
    ("ip", "127.0.0.1"),
    ("ip", "10.0.0.0/8"),
    ("ip", "::1/129"),
];

fn multi_body(stream: &mut Stream, out: &mut Vec<u8>, ops: &[OpCode]) {
    for _ in 0..stream.below(5) {
        let op = stream.pick(ops);
        let number = if stream.per_mille(10) { 14 } else { op.number() };
        out.extend_from_slice(&number.to_be_bytes());
        out.extend_from_slice(&[0, 255, 255, 255, 255]);
        body(stream, op, out);
    }
    if !stream.per_mille(30) {
        out.extend_from_slice(&[255, 255, 255, 255, 1, 255, 255, 255, 255]);
    }
}

/// Appends a number: mostly a meaningful one, seldom one from the edge of the type.
fn word(stream: &mut Stream, out: &mut Vec<u8>, usual: &[i32]) {
    let edge = stream.per_mille(12);
    let value = stream.pick(if edge { &[i32::MIN, i32::MAX, -2, 1 << 24, 0x7fff] } else { usual });
    out.extend_from_slice(&value.to_be_bytes());
}

fn long(stream: &mut Stream, out: &mut Vec<u8>) {
    let value = stream.pick(&[0, 1, -1, 5, 1 << 32, (1 << 32) + 3, i64::MIN, i64::MAX, 1 << 40]);
    out.extend_from_slice(&value.to_be_bytes());
}

fn vector(stream: &mut Stream, out: &mut Vec<u8>, mut item: impl FnMut(&mut Stream, &mut Vec<u8>)) {
    let count = stream.pick(&[0, 1, 1, 1, 2, 5, 20]);
    let told = if stream.per_mille(8) { stream.pick(&[-1, -2, i32::MAX, count + 1]) } else { count };
    out.extend_from_slice(&told.to_be_bytes());
    for _ in 0..count {
        item(stream, out);
    }
}

fn string(stream: &mut Stream, out: &mut Vec<u8>, text: impl FnOnce(&mut Stream) -> Vec<u8>) {
    let bytes = text(stream);
    let length = i32::try_from(bytes.len()).expect("short");
    let told = if stream.per_mille(4) { stream.pick(&[-1, -2, i32::MAX, length + 1]) } else { length };
    out.extend_from_slice(&told.to_be_bytes());
    if told != -1 {
        out.extend_from_slice(&bytes);
    }
}

fn credentials(stream: &mut Stream, out: &mut Vec<u8>) {
    let scheme = stream.pick(&["digest", "digest", "digest", "ip", "sasl", "x509", "world", "super", ""]);
    string(stream, out, |_| scheme.into());
    let who = stream.pick(&["a:a", "super:x", "b:", "c", "", "d:e:f"]);
    string(stream, out, |_| who.into());
}

/// A path of a small tree, at times an invalid one.
pub(super) fn some_path(stream: &mut Stream) -> Vec<u8> {
    const QUOTA: [&str; 4] = [
        "/zookeeper/quota/a",
        "/zookeeper/quota/a/zookeeper_limits",
        "/zookeeper/quota/a/zookeeper_stats",
        "/zookeeper/quota/a/b/zookeeper_limits",
    ];
    const ODD: [&str; 14] = [
        "",
        "/",
        "//",
        "a",
        "/a/",
        "/a//b",
        "/.",
        "/a/..",
        "/\0",
        "/\u{ffff}",
        "/\u{10000}",
        "/\u{e4}/\u{20ac}",
        "/zookeeper",
        "/zookeeper/config",
    ];
    if stream.per_mille(40) {
        return stream.pick(&ODD).into();
    }
    if stream.per_mille(50) {
        return stream.pick(&QUOTA).into();
    }
    let mut path = Vec::new();
    for _ in 0..stream.pick(&[1, 1, 1, 1, 2, 2, 2, 3]) {
        path.push(b'/');
        path.push(stream.pick(b"abc"));
    }
    if stream.per_mille(5) {
        path.extend(std::iter::repeat_n(b'x', 300));
    }
    path
}

fn some_data(stream: &mut Stream) -> Vec<u8> {
    if stream.per_mille(100) {
        let limits = ["count=1,bytes=5", "count=-1,bytes=-1=;byteHardLimit=3", "countHardLimit=2", "count=x", "=,;"];
        return stream.pick(&limits).into();
    }
    let length = stream.pick(&[0, 1, 5, 5, 100, 700]);
    vec![b'd'; length]
}
