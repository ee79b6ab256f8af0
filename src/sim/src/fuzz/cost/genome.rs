//! What an attacker sends, as a structure that can be grown: calls with lengths, repetitions and nesting.
//!
//! A [`Genome`] is the unit of the cost search and of the cost table. It is stored as one line of JSON. Knows the
//! layouts of requests and nothing of the server.

use corral_wire::OpCode;
use serde::{Deserialize, Serialize};

use crate::fuzz::records::layout;

/// The tree that a run begins with. It belongs to others and is open to everybody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Tree {
    /// `/a` and `/b`.
    #[default]
    Small,
    /// .. and `/wide` with 20,000 children.
    Wide,
    /// .. and 150,000 znodes below `/large`.
    Large,
}

/// A path that can be made long, deep or numbered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Path {
    pub name: String,
    /// This many letters behind the name.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pad: u32,
    /// This many levels behind that, of a letter each.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub levels: u32,
    /// Ends with the number of the repetition.
    #[serde(default, skip_serializing_if = "is_false")]
    pub numbered: bool,
    /// Has as many levels more as the number of the repetition.
    #[serde(default, skip_serializing_if = "is_false")]
    pub deeper: bool,
}

/// What entries of one ACL differ in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Vary {
    #[default]
    Nothing,
    Perms,
    /// The last byte before the padding; for addresses another address, for users another user.
    Id,
}

/// An ACL: the same entry many times, with differences, and at the end perhaps `world:anyone`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acl {
    pub perms: i32,
    pub scheme: String,
    pub id: String,
    /// A character of the id, counted from its end, repeated this often more.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub run_at: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub run: u32,
    pub run_of: char,
    pub count: u32,
    #[serde(default)]
    pub vary: Vary,
    #[serde(default, skip_serializing_if = "is_false")]
    pub open: bool,
}

/// One operation. Which fields count follows from the layout of its request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    pub op: i32,
    #[serde(default)]
    pub path: Path,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub data: u32,
    /// Data with a meaning, instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acl: Option<Acl>,
    /// Version, flags, mode or kind.
    pub number: i32,
    #[serde(default, skip_serializing_if = "is_false")]
    pub flag: bool,
    /// Elements of a vector.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub count: u32,
}

/// One thing that an attacker does. `u8` names the connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Gene {
    Call(u8, Call),
    /// A multi, or a multiRead, of these calls so many times.
    Many {
        client: u8,
        read: bool,
        times: u32,
        calls: Vec<Call>,
    },
    /// An auth packet; the user has so many letters more.
    Auth {
        client: u8,
        scheme: String,
        user: String,
        pad: u32,
    },
    /// One after the other, each answered before the next.
    Repeat(u32, Vec<Gene>),
    /// All of them sent at once, as one turn's input.
    Burst(u32, Vec<Gene>),
    /// So many connections of their own, each doing this, all left open.
    Fleet(u32, Vec<Gene>),
    /// A new connection asks for the session of another one; `true`: with a wrong password.
    Attach(u8, u8, bool),
    /// The client reads no more.
    StopReading(u8),
    HangUp(u8),
    /// So many milliseconds pass; sessions that are silent run out.
    Pass(u32),
    /// A snapshot is written, and taken into use.
    Snapshot,
}

/// A whole attack: the tree that it meets, what goes before, and what is measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Genome {
    pub tree: Tree,
    /// ClickHouse Keeper's operations are served.
    #[serde(default, skip_serializing_if = "is_false")]
    pub keeper: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prepare: Vec<Gene>,
    pub genes: Vec<Gene>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

impl Path {
    pub fn of(name: &str) -> Path {
        Path { name: name.to_owned(), ..Path::default() }
    }

    pub fn numbered(name: &str) -> Path {
        Path { numbered: true, ..Path::of(name) }
    }

    pub(super) fn text(&self, number: u64) -> Vec<u8> {
        let mut text = self.name.clone().into_bytes();
        text.resize(text.len() + (self.pad as usize).min(BODY_BYTES_MAX), b'x');
        let deeper = if self.deeper { number.min(1 << 20) } else { 0 };
        for _ in 0..(u64::from(self.levels) + deeper).min(BODY_BYTES_MAX as u64) {
            text.extend_from_slice(b"/d");
        }
        if self.numbered {
            text.extend_from_slice(number.to_string().as_bytes());
        }
        text
    }
}

impl Acl {
    /// One entry.
    pub fn one(perms: i32, scheme: &str, id: &str) -> Acl {
        Acl { perms, scheme: scheme.into(), id: id.into(), run_of: '0', count: 1, ..Acl::default() }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        word(out, self.count.saturating_add(u32::from(self.open)));
        for at in 0..self.count {
            if out.len() > BODY_BYTES_MAX {
                return;
            }
            let perms = if self.vary == Vary::Perms { (at << 1).cast_signed() | self.perms } else { self.perms };
            out.extend_from_slice(&perms.to_be_bytes());
            bytes(out, self.scheme.as_bytes());
            bytes(out, &self.id_text(at));
        }
        if self.open {
            out.extend_from_slice(b"\0\0\0\x1f\0\0\0\x05world\0\0\0\x06anyone");
        }
    }

    fn id_text(&self, number: u32) -> Vec<u8> {
        let mut id = self.id.clone();
        if self.vary == Vary::Id {
            let digit = id.rfind('1').unwrap_or(id.len());
            let end = (digit + 1).min(id.len());
            id.replace_range(digit..end, &(number % 250).to_string());
        }
        let at = id.chars().count().saturating_sub(self.run_at as usize);
        let at = id.char_indices().nth(at).map_or(id.len(), |(at, _)| at);
        let run: String = std::iter::repeat_n(self.run_of, self.run as usize).collect();
        id.insert_str(at, &run);
        id.into_bytes()
    }
}

impl Call {
    pub fn of(op: OpCode, path: &str) -> Call {
        Call { op: op.number(), path: Path::of(path), number: -1, ..Call::default() }
    }

    pub fn op(&self) -> Option<OpCode> {
        OpCode::from_i32(self.op)
    }

    /// Appends the request record.
    pub fn encode(&self, number: u64, out: &mut Vec<u8>) {
        let Some(op) = self.op() else { return };
        for letter in layout(op).chars() {
            self.field(letter, number, out);
        }
        if op == OpCode::CheckStat {
            // The rest of its Stat.
            out.extend_from_slice(&[0xff; 20]);
        }
    }

    fn field(&self, letter: char, number: u64, out: &mut Vec<u8>) {
        match letter {
            'p' => bytes(out, &self.path.text(number)),
            'b' => match &self.text {
                Some(text) => bytes(out, text.as_bytes()),
                None => {
                    word(out, self.data);
                    out.resize(out.len() + self.data as usize, b'd');
                }
            },
            'A' => match &self.acl {
                Some(acl) => acl.encode(out),
                None => out.extend_from_slice(b"\0\0\0\x01\0\0\0\x1f\0\0\0\x05world\0\0\0\x06anyone"),
            },
            'z' => out.push(if self.number > 0 { self.number.to_be_bytes()[3] } else { u8::from(self.flag) }),
            'i' | 'f' | '3' | 'k' => out.extend_from_slice(&self.number.to_be_bytes()),
            't' => out.extend_from_slice(&100_000_i64.to_be_bytes()),
            'S' => out.extend_from_slice(&(-1_i64).to_be_bytes()),
            'l' => out.extend_from_slice(&0_i64.to_be_bytes()),
            'V' => {
                word(out, self.count);
                for at in 0..u64::from(self.count) {
                    if out.len() > BODY_BYTES_MAX {
                        return;
                    }
                    bytes(out, &self.path.text(number * u64::from(self.count) + at));
                }
            }
            _ => {}
        }
    }
}

/// Bodies are not made longer than a little more than this: a frame that is too long is refused whatever its length.
const BODY_BYTES_MAX: usize = 1 << 20;

/// The body of a multi of these calls so many times.
pub fn encode_multi(calls: &[Call], times: u32, number: u64, out: &mut Vec<u8>) {
    for at in 0..u64::from(times) {
        for call in calls {
            if out.len() > BODY_BYTES_MAX {
                return;
            }
            out.extend_from_slice(&call.op.to_be_bytes());
            out.extend_from_slice(&[0, 255, 255, 255, 255]);
            call.encode(number * u64::from(times) + at, out);
        }
    }
    out.extend_from_slice(&[255, 255, 255, 255, 1, 255, 255, 255, 255]);
}

fn word(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_be_bytes());
}

pub(super) fn bytes(out: &mut Vec<u8>, text: &[u8]) {
    word(out, u32::try_from(text.len()).unwrap_or(u32::MAX));
    out.extend_from_slice(text);
}
