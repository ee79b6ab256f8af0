//! A shard and a sequencer without sockets and log: a client's frames in, the bytes of its replies out.
//!
//! Requests come 16 at a time, as from a client that pipelines. A write's whole way is in the count but for Raft and the
//! log: decoded, proposed, batched, encoded for the log, evaluated, applied to the shard's view, answered.

use super::parts;
use super::tree::{TIMES_MAX, new_path, path, scattered};
use super::wire::{create_frame, frame, get_frame, set_frame};
use corral_core::ids::{ConnId, Millis, ShardId, WallMillis};
use corral_core::limits::ShardLimits;
use corral_core::reaper::ReapPolicy;
use corral_core::sequencer::{Sequencer, SequencerConfig, SnapshotPolicy};
use corral_core::shard::{Outputs, Shard, ShardConfig};
use corral_wire::OpCode;
use corral_wire::records::{ConnectRequest, DeleteRequest, RequestHeader};
use std::hint::black_box;

/// Requests that arrive together.
const DEPTH: usize = 16;
const NOW: Millis = Millis(1);

struct Rig {
    shard: Shard,
    sequencer: Sequencer,
    out: Outputs,
    conn: ConnId,
    index: u64,
    replies: u64,
}

impl Rig {
    /// A client with a session, before the tree of the cases.
    fn new() -> Self {
        let machine = parts::Machine::new().machine;
        let view = machine.view().clone();
        let mut sequencer = Sequencer::new(sequencer_config(), machine, 0, 0);
        sequencer.lead(NOW, 2);
        let mut shard = Shard::new(shard_config(), view, 1, NOW);
        let conn = shard.accepted(NOW, "127.0.0.1:9".parse().expect("an address"), [7; 16]);
        let mut rig = Self { shard, sequencer, out: Outputs::default(), conn, index: 0, replies: 0 };
        let mut bytes = Vec::new();
        frame(&mut bytes, |writer| {
            let passwd = Some(&[0; 16][..]);
            let (timeout_ms, read_only) = (30_000, Some(false));
            ConnectRequest { protocol_version: 0, last_zxid_seen: 0, timeout_ms, session_id: 0, passwd, read_only }
                .encode(writer);
        });
        rig.turn(&bytes);
        assert_eq!(rig.replies, 1, "connected");
        rig
    }

    /// Bytes in, and all that follows from them.
    fn turn(&mut self, bytes: &[u8]) {
        self.shard.received(NOW, self.conn, bytes, &mut self.out);
        while let Some(proposals) = self.shard.take_proposals() {
            self.sequencer.enqueue(NOW, proposals);
            let batch = self.sequencer.next_batch(WallMillis(1_700_000_000_000)).expect("something was proposed");
            let payload = batch.encode();
            self.sequencer.proposed(batch);
            self.index += 1;
            let applied = self.sequencer.commit(NOW, self.index, 1, &payload, true).expect("a batch");
            self.shard.apply(NOW, &applied, &mut self.out);
        }
        self.take_replies();
    }

    /// What is left over for later turns.
    fn go_on(&mut self) {
        while self.shard.is_walking() {
            self.shard.walk_on(NOW, &mut self.out);
        }
        self.take_replies();
    }

    fn take_replies(&mut self) {
        while let Some(conn) = self.out.dirty.pop() {
            let unsent = black_box(self.shard.unsent(conn));
            self.replies += u64::from(!unsent.is_empty());
            let count = unsent.len();
            self.shard.sent(NOW, conn, count, &mut self.out);
        }
    }
}

fn sequencer_config() -> SequencerConfig {
    let snapshot = SnapshotPolicy::NEVER;
    let reap = ReapPolicy { check_interval_ms: 60_000, deletes_per_minute_max: 1, never_used_max_ms: 0 };
    SequencerConfig {
        server: 1,
        incarnation: 1,
        tick_ms: 1000,
        features: 0,
        batch_bytes_max: 1 << 20,
        entry_bytes_max: 64 << 20,
        snapshot,
        reap,
    }
}

fn shard_config() -> ShardConfig {
    ShardConfig {
        shard: ShardId(0),
        server: 1,
        incarnation: 1,
        session_timeout_min_ms: 1000,
        session_timeout_max_ms: 60_000,
        sessionless_timeout_ms: 10_000,
        whitelist: Vec::new(),
        super_digest: None,
        skip_acl: false,
        enforce_digest: false,
        keeper_extensions: false,
        read_only: false,
        linearizable: false,
        limits: ShardLimits::default(),
    }
}

/// Sends `times` requests, `DEPTH` at a time.
fn run(times: u32, encode: impl Fn(&mut Vec<u8>, u32)) {
    let mut rig = Rig::new();
    let requests: Vec<Vec<u8>> = (0..TIMES_MAX)
        .step_by(DEPTH)
        .map(|first| {
            let mut bytes = Vec::new();
            (first..).take(DEPTH).for_each(|number| encode(&mut bytes, number));
            bytes
        })
        .collect();
    let before = rig.replies;
    for bytes in &requests[..(times as usize).div_ceil(DEPTH)] {
        rig.turn(bytes);
    }
    assert!(rig.replies > before, "it was answered");
    std::mem::forget((rig, requests));
}

fn key(number: u32) -> String {
    path(scattered(number))
}

pub(crate) fn get(times: u32) {
    run(times, |out, xid| get_frame(out, xid, OpCode::GetData, &key(xid), false));
}

pub(crate) fn get_with_watch(times: u32) {
    run(times, |out, xid| get_frame(out, xid, OpCode::GetData, &path(xid), true));
}

pub(crate) fn exists(times: u32) {
    run(times, |out, xid| get_frame(out, xid, OpCode::Exists, &key(xid), false));
}

pub(crate) fn children(times: u32) {
    children_of(100, 16, (times as usize).div_ceil(DEPTH));
}

/// A list that is written in pieces; one for each 64 times.
pub(crate) fn children_in_pieces(times: u32) {
    children_of(20_000, 1, times as usize / 64);
}

fn children_of(count: u32, together: u32, turns: usize) {
    let mut rig = Rig::new();
    for number in 0..count {
        let mut bytes = Vec::new();
        create_frame(&mut bytes, number, &new_path(number));
        rig.turn(&bytes);
    }
    let mut bytes = Vec::new();
    (0..together).for_each(|xid| get_frame(&mut bytes, xid, OpCode::GetChildren2, "/micro/n", false));
    for _ in 0..turns {
        rig.turn(&bytes);
        rig.go_on();
    }
    std::mem::forget(rig);
}

pub(crate) fn set(times: u32) {
    run(times, |out, xid| set_frame(out, xid, &key(xid)));
}

pub(crate) fn create(times: u32) {
    run(times, |out, xid| create_frame(out, xid, &new_path(xid)));
}

/// Every second request deletes what the one before it created.
pub(crate) fn create_and_delete(times: u32) {
    run(times, |out, xid| {
        if xid % 2 == 0 {
            return create_frame(out, xid, &new_path(xid));
        }
        frame(out, |writer| {
            RequestHeader { xid: xid.cast_signed(), op: OpCode::Delete.number() }.encode(writer);
            DeleteRequest { path: Some(&new_path(xid - 1)), version: -1 }.encode(writer);
        });
    });
}
