//! An attack as a structure: calls with lengths, repetitions and nesting. Each is a row of the cost table.
//!
//! Knows the layouts of requests and nothing of the server.

use corral_wire::OpCode;

use crate::fuzz::records::layout;

/// The tree that a run begins with. It belongs to others and is open to every client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tree {
    /// `/a` and `/b`.
    Small,
    /// .. and `/wide` with 20,000 children.
    Wide,
    /// .. and 150,000 znodes below `/large`.
    Large,
}

/// An ACL: the same entry 255 times with different permissions, and at the end perhaps `world:anyone`.
#[derive(Clone, Debug)]
pub(super) struct Acl {
    pub(super) scheme: &'static str,
    pub(super) id: String,
    pub(super) open: bool,
}

/// One operation. Which fields count follows from the layout of its request.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) op: OpCode,
    path: String,
    data: u32,
    acl: Option<Acl>,
    /// Version, flags, mode or kind.
    number: i32,
    watch: bool,
    count: u32,
}

/// One thing that an attacker does. `u8` names the connection.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Call(u8, Call),
    /// A multi, or a multiRead, of these calls so many times.
    Many(OpCode, u32, Vec<Call>),
    Auth(usize),
    /// One after the other, each answered before the next.
    Repeat(u32, Vec<Step>),
    /// All of them sent at once, as one turn's input.
    Burst(u32, Vec<Step>),
    /// So many connections of their own, each doing this, all left open.
    Fleet(u32, Vec<Step>),
    /// A new connection asks for the session of another one; `true`: with a wrong password.
    Attach(u8, u8, bool),
    StopReading,
    /// So many milliseconds pass; inactive sessions expire.
    Pass(u64),
    /// A snapshot is written, and taken into use.
    Snapshot,
}

/// The bytes of a path, which may differ in each repetition: `#` stands for its number, `^` for so many levels.
fn path(text: &str, number: u64) -> Vec<u8> {
    let levels = if text.contains('^') { usize::try_from(number).expect("few levels") } else { 0 };
    text.replace('#', &number.to_string()).replace('^', &"/d".repeat(levels)).into_bytes()
}

/// A request for a path, see [`path`].
pub(super) fn call(op: OpCode, path: impl Into<String>) -> Call {
    Call { op, path: path.into(), data: 0, acl: None, number: -1, watch: false, count: 0 }
}

impl Acl {
    fn encode(&self, out: &mut Vec<u8>) {
        word(out, 255 + u32::from(self.open));
        for at in 0..255_u32 {
            word(out, at << 1 | 31);
            bytes(out, self.scheme.as_bytes());
            bytes(out, self.id.as_bytes());
        }
        if self.open {
            out.extend_from_slice(b"\0\0\0\x1f\0\0\0\x05world\0\0\0\x06anyone");
        }
    }
}

impl Call {
    pub(super) fn create(path: impl Into<String>) -> Call {
        call(OpCode::Create, path).number(0)
    }

    pub(super) fn number(self, number: i32) -> Call {
        Call { number, ..self }
    }

    pub(super) fn data(self, data: u32) -> Call {
        Call { data, ..self }
    }

    pub(super) fn acl(self, acl: Acl) -> Call {
        Call { acl: Some(acl), ..self }
    }

    pub(super) fn watch(self) -> Call {
        Call { watch: true, ..self }
    }

    pub(super) fn count(self, count: u32) -> Call {
        Call { count, ..self }
    }

    pub(super) fn encode(&self, number: u64, out: &mut Vec<u8>) {
        for letter in layout(self.op).chars() {
            self.field(letter, number, out);
        }
        if self.op == OpCode::CheckStat {
            // The rest of its Stat.
            out.extend_from_slice(&[0xff; 20]);
        }
    }

    fn field(&self, letter: char, number: u64, out: &mut Vec<u8>) {
        match letter {
            'p' => bytes(out, &path(&self.path, number)),
            'b' => {
                word(out, self.data);
                out.resize(out.len() + self.data as usize, b'd');
            }
            'A' => match &self.acl {
                Some(acl) => acl.encode(out),
                None => out.extend_from_slice(b"\0\0\0\x01\0\0\0\x1f\0\0\0\x05world\0\0\0\x06anyone"),
            },
            'z' => out.push(if self.number > 0 { self.number.to_be_bytes()[3] } else { u8::from(self.watch) }),
            'i' | 'f' | '3' | 'k' => out.extend_from_slice(&self.number.to_be_bytes()),
            't' => out.extend_from_slice(&100_000_i64.to_be_bytes()),
            'S' => out.extend_from_slice(&(-1_i64).to_be_bytes()),
            'l' => out.extend_from_slice(&0_i64.to_be_bytes()),
            'V' => {
                word(out, self.count);
                for at in 0..u64::from(self.count) {
                    bytes(out, &path(&self.path, number * u64::from(self.count) + at));
                }
            }
            _ => {}
        }
    }
}

pub(super) fn encode_multi(calls: &[Call], times: u32, number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    for at in 0..u64::from(times) {
        for call in calls {
            out.extend_from_slice(&call.op.number().to_be_bytes());
            out.extend_from_slice(&[0, 255, 255, 255, 255]);
            call.encode(number * u64::from(times) + at, &mut out);
        }
    }
    out.extend_from_slice(&[255, 255, 255, 255, 1, 255, 255, 255, 255]);
    out
}

fn word(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_be_bytes());
}

pub(super) fn bytes(out: &mut Vec<u8>, text: &[u8]) {
    word(out, u32::try_from(text.len()).unwrap_or(u32::MAX));
    out.extend_from_slice(text);
}
