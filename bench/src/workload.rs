//! The requests of a load: the znodes' names, the encoded requests, the choice of the next operation, and the znodes
//! that a session has created.
//!
//! Everything a request needs apart from its xid is encoded once before the run, so that a client thread spends its
//! time on sockets. Shared by all client threads, read-only but for the czxids seen. Knows no socket and no clock.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicI64;

use corral_wire::consts::VERSION_ANY;
use corral_wire::frame::append_frame;
use corral_wire::records::{MultiHeader, RequestHeader};
use corral_wire::{OpCode, Writer};

use crate::frames::{create_tail, encoded_path, set_tail, value};
use crate::mix::{Keys, Kind, Mix, Random};
use crate::plan::Plan;

/// One request as its reply will be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) kind: Kind,
    /// The key's number; for create and delete the number of the znode among those of its connection.
    pub(crate) key: u32,
    /// Bytes of the value it writes.
    pub(crate) length: u32,
    /// The connection, which is part of the names of its znodes.
    pub(crate) connection: u32,
}

/// The znodes that one session has created and not deleted: those numbered from `deleted` to `created`, but for the exceptions.
///
/// A session's requests are carried out in order, so this is exact for the next request although replies are still missing.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnZnodes {
    pub(crate) created: u32,
    deleted: u32,
    /// Their create was refused with a tolerated error.
    pub(crate) absent: BTreeSet<u32>,
    /// Their delete was refused with a tolerated error.
    pub(crate) left: BTreeSet<u32>,
}

impl OwnZnodes {
    /// The znodes numbered below `created`, all there.
    pub(crate) fn prepared(created: u32) -> Self {
        Self { created, ..Self::default() }
    }

    /// The numbers of the znodes that are there.
    pub(crate) fn there(&self) -> impl Iterator<Item = u32> {
        let range = (self.deleted..self.created).filter(|nth| !self.absent.contains(nth));
        self.left.iter().copied().chain(range)
    }
}

/// The encoded parts of every request of a run, and the expected contents of their replies.
#[derive(Debug)]
pub(crate) struct Workload {
    chroot: String,
    mix: Mix,
    draws: Keys,
    keys: u32,
    /// Connections that create znodes, each below a parent of its own.
    homes: u32,
    pub(crate) seed: u64,
    pub(crate) children: u32,
    pub(crate) multi_ops: u32,
    /// Znodes every connection finds as its own when it starts.
    pub(crate) stock: u32,
    pub(crate) value_bytes_min: usize,
    /// The largest value; every other one is a part of it from its start.
    pub(crate) value: Vec<u8>,
    pub(crate) tolerated: Vec<i32>,
    /// The encoded paths of all keys, `path_bytes` each.
    paths: Vec<u8>,
    path_bytes: usize,
    parent: Vec<u8>,
    /// The czxid every key was first seen with; 0 until then.
    pub(crate) czxids: Vec<AtomicI64>,
}

impl Workload {
    pub(crate) fn of(plan: &Plan, chroot: &str) -> Self {
        let (args, mix) = (&plan.args, &plan.mix);
        let keys = if mix.kinds().any(Kind::uses_keys) { args.keys } else { 0 };
        let creates = mix.has(Kind::Create) || mix.has(Kind::Delete);
        let only_deletes = mix.kinds().all(|kind| kind == Kind::Delete);
        let mut workload = Self {
            mix: mix.clone(),
            draws: Keys::new(keys, plan.theta),
            keys,
            homes: if creates { plan.connections_all() } else { 0 },
            seed: args.seed,
            children: if mix.has(Kind::Children) { args.children } else { 0 },
            multi_ops: args.multi_ops,
            stock: if only_deletes { args.keys.div_ceil(args.connections) } else { 0 },
            value_bytes_min: args.value_bytes.min,
            value: value(args.value_bytes.max),
            tolerated: args.tolerate.clone(),
            paths: Vec::new(),
            path_bytes: 0,
            czxids: (0..keys).map(|_| AtomicI64::new(0)).collect(),
            parent: encoded_path(&format!("{chroot}/p")),
            chroot: chroot.to_owned(),
        };
        workload.paths = (0..keys).flat_map(|key| encoded_path(&workload.key_path(key))).collect();
        workload.path_bytes = workload.paths.len().checked_div(keys as usize).unwrap_or(0);
        workload
    }

    fn key_path(&self, key: u32) -> String {
        format!("{}/k/{key:08}", self.chroot)
    }

    /// The path of the nth znode a connection creates; all have the same length.
    pub(crate) fn created_path(&self, connection: u32, nth: u32) -> String {
        format!("{}/n/{connection:05}/{nth:09}", self.chroot)
    }

    /// The znodes below the chroot that must exist before the load starts, parents first.
    pub(crate) fn prepared(&self) -> Vec<String> {
        let parent = |wanted: bool, name: &str| wanted.then(|| format!("{}/{name}", self.chroot));
        let mut paths = Vec::new();
        paths.extend(parent(self.keys > 0, "k"));
        paths.extend((0..self.keys).map(|key| self.key_path(key)));
        paths.extend(parent(self.children > 0, "p"));
        paths.extend((0..self.children).map(|child| format!("{}/p/{child:08}", self.chroot)));
        paths.extend(parent(self.homes > 0, "n"));
        paths.extend((0..self.homes).map(|at| format!("{}/n/{at:05}", self.chroot)));
        paths.extend((0..self.homes).flat_map(|at| (0..self.stock).map(move |nth| self.created_path(at, nth))));
        paths
    }

    /// A size for the nth prepared value: they fill the range evenly.
    pub(crate) fn prepared_value(&self, nth: u64) -> &[u8] {
        let range = (self.value.len() - self.value_bytes_min) as u64 + 1;
        let extra = nth.wrapping_mul(7919) % range;
        &self.value[..self.value_bytes_min + usize::try_from(extra).unwrap_or(0)]
    }

    /// The operation and key of a connection's next request; notes what it creates or deletes.
    pub(crate) fn next(&self, random: &mut Random, connection: u32, own: &mut OwnZnodes) -> Request {
        let drawn = self.mix.draw(random);
        let none_left = drawn == Kind::Delete && own.deleted == own.created;
        let kind = if none_left { Kind::Create } else { drawn };
        let counted = match kind {
            Kind::Create => Some(&mut own.created),
            Kind::Delete => Some(&mut own.deleted),
            _ => None,
        };
        let key = match (counted, kind) {
            (Some(count), _) => std::mem::replace(count, *count + 1),
            (None, Kind::Get | Kind::Exists | Kind::Set) => self.draws.draw(random),
            (None, _) => 0,
        };
        let length = if kind.writes() { self.draw_length(random) } else { 0 };
        Request { kind, key, length, connection }
    }

    fn draw_length(&self, random: &mut Random) -> u32 {
        let (min, max) = (self.value_bytes_min, self.value.len());
        let (min, max) = (u32::try_from(min).unwrap_or(u32::MAX), u32::try_from(max).unwrap_or(u32::MAX));
        if min == max { max } else { min + random.below(max - min + 1) }
    }

    /// Appends the request's frame. Only a multi draws its keys here.
    pub(crate) fn encode(&self, out: &mut Vec<u8>, xid: i32, request: Request, random: &mut Random) {
        let encoded = append_frame(out, |writer| {
            RequestHeader { xid, op: op_code(request.kind).number() }.encode(writer);
            self.encode_record(writer, request, random);
        });
        encoded.expect("a request is far smaller than 2 GiB");
    }

    fn encode_record(&self, writer: &mut Writer<'_>, request: Request, random: &mut Random) {
        let value = &self.value[..request.length as usize];
        match request.kind {
            Kind::Get | Kind::Exists | Kind::Children => {
                writer.raw(if request.kind == Kind::Children { &self.parent } else { self.path(request.key) });
                writer.bool(false);
            }
            Kind::Set => set_data(writer, self.path(request.key), value),
            Kind::Create => {
                writer.str(&self.created_path(request.connection, request.key));
                create_tail(writer, value, 0);
            }
            Kind::Delete => {
                writer.str(&self.created_path(request.connection, request.key));
                writer.i32(VERSION_ANY);
            }
            Kind::Multi => {
                for _ in 0..self.multi_ops {
                    MultiHeader { op: OpCode::SetData.number(), done: false, err: -1 }.encode(writer);
                    set_data(writer, self.path(self.draws.draw(random)), value);
                }
                MultiHeader::END.encode(writer);
            }
        }
    }

    /// The encoded path of a key.
    fn path(&self, key: u32) -> &[u8] {
        let start = key as usize * self.path_bytes;
        &self.paths[start..start + self.path_bytes]
    }
}

fn op_code(kind: Kind) -> OpCode {
    match kind {
        Kind::Get => OpCode::GetData,
        Kind::Exists => OpCode::Exists,
        Kind::Children => OpCode::GetChildren2,
        Kind::Set => OpCode::SetData,
        Kind::Create => OpCode::Create,
        Kind::Delete => OpCode::Delete,
        Kind::Multi => OpCode::Multi,
    }
}

fn set_data(writer: &mut Writer<'_>, path: &[u8], value: &[u8]) {
    writer.raw(path);
    set_tail(writer, value, VERSION_ANY);
}

#[cfg(test)]
pub(crate) mod tests {
    use crate::plan::Plan;
    use crate::workload::Workload;

    pub(crate) fn workload(flags: &str) -> Workload {
        let args = crate::plan::Args::parse(&format!("--keys 20 --children 3 -n 2 {flags}")).unwrap();
        Workload::of(&Plan::of(&args, None).unwrap(), "/x/y")
    }
}
