//! The parts of a write and of a read by themselves: lookups, evaluation, batches for the log, watches, the log without its sync.

use corral_core::apply::StateMachine;
use corral_core::command::{Batch, Command, CommandKind};
use corral_core::ids::{ConnId, Origin, ServerId, SessionId, ShardId, WallMillis};
use corral_core::ops;
use corral_core::ops::{CreateOp, WriteOp};
use corral_core::session::{Ephemerals, Session, SessionTable};
use corral_core::shard::watch::fire::fire;
use corral_core::shard::watch::{Kind, Mode, WatchLimits, WatchTable};
use corral_core::shared::{Data, Text};
use corral_core::tree::acl::{AclSpec, Identity};
use corral_core::tree::snapshot::merge_in_memory;
use corral_core::tree::view::View;
use corral_storage::{Log, LogConfig, SimDisk};
use corral_types::{EntryKind, Index, Record, StoredEntry, Term};
use std::hint::black_box;
use std::sync::Arc;

/// Operations of a run at most; what is prepared is prepared for as many.
pub(crate) const TIMES_MAX: u32 = 2048;
/// The znodes, below one parent, of the tree that the cases work on.
pub(crate) const ZNODES: u32 = 16_384;
pub(crate) const DATA: [u8; 100] = [7; 100];
/// Commands of one log entry.
const BATCH: u32 = 64;
const SESSION: SessionId = SessionId(0x0100_0001_0000_0001);
const ORIGIN: Origin =
    Origin { server: ServerId(1), shard: ShardId(0), conn: ConnId { slot: 1, generation: 1 }, incarnation: 1 };
const FIRST_ZXID: u64 = 0x1_0000_0001;

pub(crate) fn path(number: u32) -> String {
    format!("/micro/k/{number:08}")
}

/// The path of a znode that is not there yet.
pub(crate) fn new_path(number: u32) -> String {
    format!("/micro/n/{number:09}")
}

/// Paths of the tree in an order without a pattern, the same in every run: each is there once before any comes again.
pub(crate) fn key(number: u32) -> String {
    const _: () = assert!(ZNODES.is_power_of_two());
    path(number.wrapping_mul(0x9e37_79b1) % ZNODES)
}

/// A state machine with one session, a tree of `ZNODES` in its delta, and an empty parent for more.
pub(crate) fn machine() -> StateMachine {
    let session = Session { timeout_ms: 9, password: [0; 16], owner: Some(ORIGIN), ephemerals: Ephemerals::default() };
    let mut machine = StateMachine::new(View::empty(42), SessionTable::from_iter([(SESSION, session)]));
    let paths = ["/micro", "/micro/k", "/micro/n"].map(String::from).into_iter().chain((0..ZNODES).map(path));
    black_box(machine.apply(batch(FIRST_ZXID, paths.map(|path| create(&path)).map(CommandKind::Op)), 1));
    machine
}

fn batch(first_zxid: u64, kinds: impl Iterator<Item = CommandKind>) -> Batch {
    let identity = Identity { scheme: Text::from("ip"), id: Text::from("127.0.0.1") };
    let command = |kind| Command { origin: Some(ORIGIN), session: SESSION, identities: 0, kind };
    Batch {
        time: WallMillis(1_700_000_000_000),
        first_zxid,
        features: 0,
        identities: vec![Arc::new(vec![identity])],
        commands: kinds.map(command).collect(),
    }
}

fn create(path: &str) -> WriteOp {
    WriteOp::Create(ops::Create {
        op: CreateOp::Create,
        path: Text::from(path),
        data: Some(Data::from(&DATA[..])),
        acl: AclSpec::Open,
        flags: 0,
        ttl_ms: -1,
    })
}

fn set(path: &str) -> WriteOp {
    WriteOp::SetData(ops::SetData { path: Text::from(path), data: Some(Data::from(&DATA[..])), version: -1 })
}

/// Nothing is freed at the end of a case: what is left over differs with the number of times.
fn leave<A, B>(a: A, b: B) {
    std::mem::forget(a);
    std::mem::forget(b);
}

/// Two setData and two creates each, all or nothing, 64 to a batch.
pub(crate) fn evaluate_multi(times: u32) {
    let multi = |number: u32| {
        let (a, b) = (2 * number, 2 * number + 1);
        CommandKind::Multi(vec![set(&path(a)), create(&new_path(a)), set(&path(b)), create(&new_path(b))])
    };
    let first = FIRST_ZXID + u64::from(ZNODES) + 100;
    let numbers = (0..TIMES_MAX).step_by(BATCH as usize);
    let batches: Vec<_> = numbers.map(|at| batch(first + u64::from(at), (at..at + BATCH).map(multi))).collect();
    let (mut machine, mut rest) = (machine(), batches.into_iter());
    rest.by_ref().take(times.div_ceil(BATCH) as usize).for_each(|batch| drop(black_box(machine.apply(batch, 1))));
    leave(rest, machine);
}

pub(crate) fn look_up(view: View, times: u32, name: impl Fn(u32) -> String) {
    let paths: Vec<String> = (0..TIMES_MAX).map(name).collect();
    for path in &paths[..times as usize] {
        black_box(view.get(path).map(|node| node.wire_stat().mzxid));
    }
    leave(view, paths);
}

pub(crate) fn in_delta() -> View {
    machine().view().clone()
}

/// The same tree, all of it in the snapshot.
pub(crate) fn in_snapshot() -> View {
    let mut machine = machine();
    let view = machine.view_mut();
    let frozen = view.freeze();
    let snapshot = merge_in_memory(view.snapshot(), &frozen, 4, Vec::new(), Vec::new()).expect("merges");
    view.swap_snapshot(Arc::new(snapshot));
    view.clone()
}

fn watched(times: u32) -> (WatchTable, Vec<(String, u64)>) {
    let mut table =
        WatchTable::new(WatchLimits { per_conn_max: 1 << 20, bytes_per_conn_max: usize::MAX, bytes_max: usize::MAX });
    let hasher = View::empty(42).hasher();
    let paths = (0..TIMES_MAX).map(path).map(|path| (path.clone(), hasher.hash(&path))).collect::<Vec<_>>();
    for ((path, hash), number) in paths[..times as usize].iter().zip(0..) {
        let conn = ConnId { slot: number % BATCH, generation: 1 };
        assert!(table.add(Kind::Data, conn, path, *hash, Mode::Standard).is_ok(), "within the limit");
    }
    (table, paths)
}

pub(crate) fn watch_add(times: u32) {
    let (table, paths) = watched(times);
    leave(table, paths);
}

pub(crate) fn watch_fire(times: u32) {
    let (mut table, paths) = watched(TIMES_MAX);
    let hasher = View::empty(42).hasher();
    let mut told = Vec::new();
    for (path, hash) in &paths[..times as usize] {
        told.clear();
        fire(&mut table, Kind::Data, path, *hash, hasher, &mut told);
        assert_eq!(told.len(), 1, "one connection watches");
    }
    leave(table, paths);
}

/// Records stored into a segment in memory, as the log thread stores them into a mapping.
pub(crate) fn append(times: u32, payload_bytes: usize) {
    // It holds whatever a case appends, so that none rolls to the next.
    let segment_bytes = 64 << 20;
    assert!(TIMES_MAX as usize * (payload_bytes + 4096) < segment_bytes);
    let config = LogConfig { segment_bytes, spares_max: 1, seed: 7, ..LogConfig::default() };
    let (mut log, _) = Log::open(SimDisk::new(), config, &mut |_| {}).expect("a new log");
    let payload = vec![7; payload_bytes];
    for index in 1..=u64::from(times) {
        let entry = StoredEntry {
            term: Term(1),
            index: Index(index),
            kind: EntryKind::Normal,
            first_zxid: index,
            payload: &payload,
        };
        log.append(&[Record::Entry(entry)]).expect("there is room");
    }
    std::mem::forget(log);
}
