//! What the requests of a run look like: the znodes' names, the encoded requests, the choice of the next operation.
//!
//! Everything a request needs apart from its xid is encoded once before the run, so that a client thread spends its
//! time on sockets. Shared read-only by all client threads. Knows no socket and no clock.

use corral_wire::consts::VERSION_ANY;
use corral_wire::frame::{begin_frame, end_frame};
use corral_wire::records::{Acl, RequestHeader};
use corral_wire::{OpCode, Vector, Wire, Writer};

use crate::args::{Operation, Plan};

/// One request as its reply will be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) op: OpCode,
    /// The key's number; for creates the number of the znode among those of its connection.
    pub(crate) key: u32,
    /// The connection, which is part of the name of what it creates.
    pub(crate) connection: u32,
}

/// The encoded parts of every request of a run and what its replies must hold.
#[derive(Debug)]
pub(crate) struct Workload {
    chroot: String,
    op: Operation,
    read_percent: u32,
    keys: u32,
    pub(crate) children: u32,
    pub(crate) value: Vec<u8>,
    no_watch: Vec<u8>,
    set_tail: Vec<u8>,
    create_tail: Vec<u8>,
    /// Encoded paths of the keys, `path_bytes` each.
    paths: Vec<u8>,
    path_bytes: usize,
    parent: Vec<u8>,
}

impl Workload {
    pub(crate) fn of(plan: &Plan) -> Self {
        let value = value(plan.value_bytes);
        let uses_keys = matches!(plan.op, Operation::Get | Operation::Exists | Operation::Set | Operation::Mix);
        let keys = if uses_keys { plan.keys } else { 0 };
        let mut workload = Self {
            op: plan.op,
            read_percent: plan.read_percent,
            keys,
            children: if plan.op == Operation::Children { plan.children } else { 0 },
            no_watch: encoded(|writer| writer.bool(false)),
            set_tail: encoded(|writer| {
                writer.buffer(Some(&value));
                writer.i32(VERSION_ANY);
            }),
            create_tail: create_tail(&value),
            paths: Vec::new(),
            path_bytes: 0,
            parent: encoded(|writer| writer.str(&format!("{}/p", plan.chroot))),
            chroot: plan.chroot.clone(),
            value,
        };
        for key in 0..keys {
            let path = workload.key_path(key);
            Writer::new(&mut workload.paths).str(&path);
        }
        workload.path_bytes = workload.paths.len().checked_div(keys as usize).unwrap_or(0);
        workload
    }

    /// The path of a key; all have the same length.
    pub(crate) fn key_path(&self, key: u32) -> String {
        format!("{}/k/{key:08}", self.chroot)
    }

    /// The path of the nth znode a connection creates.
    pub(crate) fn created_path(&self, connection: u32, nth: u32) -> String {
        format!("{}/n/{connection:05}/{nth:09}", self.chroot)
    }

    /// The znodes that must exist before the load starts, parents first.
    pub(crate) fn prepared(&self, connections: u32) -> impl Iterator<Item = String> {
        let top = self.chroot.match_indices('/').skip(1).map(|(at, _)| self.chroot[..at].to_owned());
        let top = top.chain([self.chroot.clone()]);
        let keys = (0..self.keys).map(|key| self.key_path(key));
        let children = (0..self.children).map(|child| format!("{}/p/{child:08}", self.chroot));
        let creates = self.op == Operation::Create;
        let homes = (0..if creates { connections } else { 0 }).map(|at| format!("{}/n/{at:05}", self.chroot));
        let parent = |wanted: bool, name: &str| wanted.then(|| format!("{}/{name}", self.chroot));
        top.chain(parent(self.keys > 0, "k"))
            .chain(keys)
            .chain(parent(self.children > 0, "p"))
            .chain(children)
            .chain(parent(creates, "n"))
            .chain(homes)
    }

    /// The operation and key of a connection's next request. `created` counts what it created so far.
    pub(crate) fn next(&self, random: &mut Random, connection: u32, created: &mut u32) -> Request {
        let op = match self.op {
            Operation::Get => OpCode::GetData,
            Operation::Exists => OpCode::Exists,
            Operation::Children => OpCode::GetChildren2,
            Operation::Set => OpCode::SetData,
            Operation::Create => OpCode::Create,
            Operation::Mix if random.below(100) < self.read_percent => OpCode::GetData,
            Operation::Mix => OpCode::SetData,
        };
        let key = match op {
            OpCode::Create => {
                *created += 1;
                *created - 1
            }
            OpCode::GetChildren2 => 0,
            _ => random.below(self.keys),
        };
        Request { op, key, connection }
    }

    /// Appends the request's frame.
    pub(crate) fn encode(&self, out: &mut Vec<u8>, xid: i32, request: Request) {
        let tail = match request.op {
            OpCode::SetData => &self.set_tail,
            OpCode::Create => &self.create_tail,
            _ => &self.no_watch,
        };
        match request.op {
            OpCode::Create => {
                let path = encoded(|writer| writer.str(&self.created_path(request.connection, request.key)));
                push_frame(out, xid, request.op, &path, tail);
            }
            OpCode::GetChildren2 => push_frame(out, xid, request.op, &self.parent, tail),
            _ => {
                let start = request.key as usize * self.path_bytes;
                push_frame(out, xid, request.op, &self.paths[start..start + self.path_bytes], tail);
            }
        }
    }
}

/// Appends a frame: header, encoded path, the rest of the record. Both may be empty.
pub(crate) fn push_frame(out: &mut Vec<u8>, xid: i32, op: OpCode, path: &[u8], tail: &[u8]) {
    let mark = begin_frame(out);
    let mut writer = Writer::new(out);
    RequestHeader { xid, op: op.number() }.encode(&mut writer);
    writer.raw(path);
    writer.raw(tail);
    end_frame(out, mark).expect("a request is far smaller than 2 GiB");
}

/// What follows the path in a create of a persistent znode open to everyone.
pub(crate) fn create_tail(value: &[u8]) -> Vec<u8> {
    encoded(|writer| {
        writer.buffer(Some(value));
        Some(Vector::<Acl<'_>>::OPEN_ACL_UNSAFE).encode(writer);
        writer.i32(0);
    })
}

/// Encodes into a vector of its own.
pub(crate) fn encoded(fill: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    fill(&mut Writer::new(&mut out));
    out
}

/// The value every znode holds, so that any server's reply can be compared byte by byte; the echo knows it too.
#[must_use]
pub fn value(bytes: usize) -> Vec<u8> {
    b"abcdefghijklmnopqrstuvw".iter().copied().cycle().take(bytes).collect()
}

/// A small deterministic generator (xorshift64*); each connection has its own.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `bound`; 0 for a bound of 0.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        u32::try_from((high * u64::from(bound)) >> 32).expect("a product of two 32-bit numbers, shifted by 32")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use corral_wire::Reader;
    use corral_wire::frame::{FRAME_MAX_DEFAULT, next_frame};
    use corral_wire::records::{CreateRequest, GetDataRequest, SetDataRequest};

    pub(crate) fn plan(op: Operation) -> Plan {
        use clap::Parser;
        #[derive(Parser)]
        struct Cli {
            #[command(flatten)]
            args: crate::Args,
        }
        let words = ["bench", "--chroot", "/x/y", "--keys", "20", "--children", "3", "-c", "2", "-o", op.name()];
        Plan::of(&Cli::parse_from(words).args).unwrap()
    }

    fn decoded(workload: &Workload, request: Request, check: impl FnOnce(RequestHeader, Reader<'_>)) {
        let mut out = vec![7];
        workload.encode(&mut out, 5, request);
        let (body, used) = next_frame(&out[1..], FRAME_MAX_DEFAULT).unwrap().unwrap();
        assert_eq!(used, out.len() - 1);
        let mut reader = Reader::new(body);
        let header = RequestHeader::decode(&mut reader).unwrap();
        check(header, reader);
    }

    #[test]
    fn requests_decode_to_what_was_asked() {
        let workload = Workload::of(&plan(Operation::Mix));
        decoded(&workload, Request { op: OpCode::GetData, key: 19, connection: 0 }, |header, mut reader| {
            assert_eq!(header, RequestHeader { xid: 5, op: 4 });
            let request = GetDataRequest::decode(&mut reader).unwrap();
            assert_eq!((request.path, request.watch), (Some("/x/y/k/00000019"), false));
            assert_eq!(reader.remaining(), 0);
        });
        decoded(&workload, Request { op: OpCode::SetData, key: 0, connection: 0 }, |header, mut reader| {
            assert_eq!(header.op, 5);
            let request = SetDataRequest::decode(&mut reader).unwrap();
            assert_eq!(request.path, Some("/x/y/k/00000000"));
            assert_eq!((request.data, request.version), (Some(value(100).as_slice()), -1));
        });
        decoded(&workload, Request { op: OpCode::Create, key: 7, connection: 1 }, |_, mut reader| {
            let request = CreateRequest::decode(&mut reader).unwrap();
            assert_eq!(request.path, Some("/x/y/n/00001/000000007"));
            assert_eq!((request.acl, request.flags), (Some(Vector::OPEN_ACL_UNSAFE), 0));
            assert_eq!(reader.remaining(), 0);
        });
    }

    #[test]
    fn parents_are_prepared_before_children() {
        fn check(op: Operation, count: usize) {
            let workload = Workload::of(&plan(op));
            let paths: Vec<String> = workload.prepared(2).collect();
            assert_eq!(paths.len(), count, "{paths:?}");
            for (at, path) in paths.iter().enumerate() {
                let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
                assert!(parent.is_empty() || paths[..at].iter().any(|before| before == parent), "{path}");
            }
        }
        check(Operation::Get, 2 + 1 + 20);
        check(Operation::Children, 2 + 1 + 3);
        check(Operation::Create, 2 + 1 + 2);
    }

    #[test]
    fn a_mix_keeps_its_share_and_reaches_every_key() {
        let workload = Workload::of(&plan(Operation::Mix));
        let (mut random, mut created) = (Random::new(1), 0);
        let (mut reads, mut seen) = (0, [false; 20]);
        for _ in 0..10_000 {
            let request = workload.next(&mut random, 0, &mut created);
            reads += u32::from(request.op == OpCode::GetData);
            seen[request.key as usize] = true;
        }
        assert!((8_800..9_200).contains(&reads), "{reads} of 10,000 are reads");
        assert_eq!(seen, [true; 20]);
        assert_eq!(created, 0);
    }
}
