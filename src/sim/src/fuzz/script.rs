//! A script for the whole server in memory, as bytes: any bytes are one, read to their end.
//!
//! The first byte sets the server up, see [`Setup`]. Then steps: a byte that names the step with its low nibble and the
//! connection with its high bits, followed by the step's operands. `server` carries them out. A frame of a step gets
//! its length word there, so that a change inside of it leaves the rest in step. Raw bytes have wrong ones.

use corral_wire::OpCode;

use super::records;
use crate::rng::Stream;

pub(super) const CLIENTS: usize = 4;

#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) shards: usize,
    /// Limits so small that a script reaches them.
    pub(super) tight: bool,
    /// Committed entries are decoded from their bytes, as on another server.
    pub(super) decoded: bool,
    pub(super) skip_acl: bool,
    pub(super) extended_types: bool,
    pub(super) keeper_extensions: bool,
    /// The features that are off by default: enforced quotas, more kinds of ACLs, reconfig.
    pub(super) all_features: bool,
}

pub(super) struct Script<'a> {
    rest: &'a [u8],
}

impl<'a> Script<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> (Setup, Script<'a>) {
        let mut script = Script { rest: bytes };
        let bits = script.byte();
        let set = |bit: u8| bits & (1 << bit) != 0;
        let setup = Setup {
            shards: if set(0) { 2 } else { 1 },
            tight: set(1),
            decoded: set(2),
            skip_acl: set(3) && set(4),
            extended_types: !set(5),
            keeper_extensions: set(6),
            all_features: set(7),
        };
        (setup, script)
    }

    /// The next step and its connection.
    pub(super) fn step(&mut self) -> Option<(u8, usize)> {
        let more = !self.rest.is_empty();
        let byte = self.byte();
        more.then_some((byte & 15, usize::from(byte >> 4) % CLIENTS))
    }

    pub(super) fn byte(&mut self) -> u8 {
        let (first, rest) = self.rest.split_first().unwrap_or((&0, &[]));
        self.rest = rest;
        *first
    }

    pub(super) fn two(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    pub(super) fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(count.min(self.rest.len()));
        self.rest = rest;
        taken
    }
}

/// Operations by how often a script should have them.
const OFTEN: [OpCode; 24] = ops! {
    Create Create Create2 Delete SetData SetData SetAcl GetAcl GetData GetData Exists GetChildren GetChildren2 Multi
    MultiRead SetWatches SetWatches2 AddWatch RemoveWatches CreateTtl Sync Auth Ping CloseSession
};

/// Appends a script that makes sense for the most part.
pub(super) fn generate(stream: &mut Stream, out: &mut Vec<u8>) {
    let [setup, ..] = stream.bytes::<8>();
    out.push(setup);
    let clients = 1 + stream.below(CLIENTS as u64);
    for client in 0..clients {
        step(out, 2, client, &[0]);
    }
    out.push(11);
    let steps = stream.pick(&[2, 5, 10, 25]);
    for _ in 0..steps {
        let client = stream.below(clients);
        match stream.below(100) {
            0..45 => request(stream, out, 12, client),
            45..70 => request(stream, out, 1, client),
            70..74 => step(out, 3, client, &[stream.bytes::<1>()[0] % 60]),
            74..77 => step(out, 4, client, &[stream.bytes::<1>()[0] % 60]),
            77..81 => step(out, 5, client, &[]),
            81..84 => step(out, 6, client, &[]),
            84..87 => step(out, 7, client, &[]),
            87..89 => step(out, 8, client, &[stream.bytes::<1>()[0] % 40, 0]),
            89..91 => step(out, 9, client, &[]),
            91..94 => step(out, 2, client, &stream.bytes::<1>()),
            94..96 => step(out, 10, client, &[]),
            96..98 => step(out, 11, client, &[]),
            _ => raw(stream, out, client),
        }
    }
}

fn step(out: &mut Vec<u8>, number: u8, client: u64, operands: &[u8]) {
    out.push(number | (u8::try_from(client).unwrap_or(0) << 4));
    out.extend_from_slice(operands);
}

fn request(stream: &mut Stream, out: &mut Vec<u8>, number: u8, client: u64) {
    let any = stream.per_mille(100);
    let op = stream.pick(if any { OpCode::ALL } else { &OFTEN });
    let place = OpCode::ALL.iter().position(|known| *known == op).unwrap_or(0);
    let mut body = Vec::new();
    records::body(stream, op, &mut body);
    if stream.per_mille(20) && !body.is_empty() {
        body.truncate(stream.index(body.len()));
    }
    let length = u16::try_from(body.len()).unwrap_or(u16::MAX);
    let [high, low] = length.to_be_bytes();
    step(out, number, client, &[u8::try_from(place).unwrap_or(0), high, low]);
    out.extend_from_slice(&body);
}

fn raw(stream: &mut Stream, out: &mut Vec<u8>, client: u64) {
    const TEXTS: [&[u8]; 10] = [
        b"ruok",
        b"mntr",
        b"srvr",
        b"stat",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02",
        b"\xff\xf4\xff\xfd",
        b"\0\0\0\x08\0\0\0\x01\0\0\x03\xe7",
        b"\0\0\0\0",
        b"\x7f\xff\xff\xff",
    ];
    if stream.per_mille(300) {
        let noise = stream.bytes::<24>();
        let length = stream.index(noise.len());
        step(out, 0, client, &[u8::try_from(length).unwrap_or(0)]);
        out.extend_from_slice(&noise[..length]);
        return;
    }
    // Words and foreign protocols come first on a connection.
    if stream.per_mille(700) {
        step(out, 9, client, &[]);
    }
    let text = stream.pick(&TEXTS);
    step(out, 0, client, &[u8::try_from(text.len()).unwrap_or(0)]);
    out.extend_from_slice(text);
    step(out, 3, client, &[0]);
}
