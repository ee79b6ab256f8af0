//! Frames of requests, and a shard and a sequencer without sockets and log: a client's frames in, the bytes of its
//! replies out.
//!
//! Requests come 16 at a time, as from a client that pipelines. The count has a write's whole way but for Raft and the
//! log. A write is decoded, proposed, batched, encoded for the log, evaluated, applied to the shard's view, and
//! answered.

use super::parts::{self, DATA, TIMES_MAX, new_path};
use corral_core::ids::{ConnId, Millis, WallMillis, Zxid};
use corral_core::sequencer::{Sequencer, SequencerConfig};
use corral_core::shard::{ClientEvent, Effects, NewClient, Requests, Shard, ShardConfig, ShardEvent, ShardMessage};
use corral_types::Micros;
use corral_wire::OpCode;
use corral_wire::consts::VERSION_ANY;
use corral_wire::frame::append_frame;
use corral_wire::records::{
    Acl, ConnectRequest, CreateRequest, DeleteRequest, GetDataRequest, RequestHeader, SetDataRequest,
};
use std::hint::black_box;
use std::mem;
use std::sync::Arc;

/// Requests that arrive together.
pub(crate) const DEPTH: u32 = 16;
const NOW: Micros = Micros(1000);

/// A request of a path.
pub(crate) enum Request {
    /// getData, exists or getChildren2, with or without a watch.
    Read(OpCode, String, bool),
    Set(String),
    Create(String),
    Delete(String),
}

impl Request {
    fn frame(&self, out: &mut Vec<u8>, xid: u32) {
        let op = match self {
            Self::Read(op, ..) => *op,
            Self::Set(_) => OpCode::SetData,
            Self::Create(_) => OpCode::Create,
            Self::Delete(_) => OpCode::Delete,
        };
        let encoded = append_frame(out, |writer| {
            RequestHeader { xid: xid.cast_signed(), op: op.number() }.encode(writer);
            match self {
                Self::Read(_, path, watch) => GetDataRequest { path: Some(path), watch: *watch }.encode(writer),
                Self::Set(path) => {
                    SetDataRequest { path: Some(path), data: Some(&DATA), version: VERSION_ANY }.encode(writer);
                }
                Self::Create(path) => {
                    let acl = Some(Acl::OPEN_ACL_UNSAFE);
                    CreateRequest { path: Some(path), data: Some(&DATA), acl, flags: 0 }.encode(writer);
                }
                Self::Delete(path) => DeleteRequest { path: Some(path), version: VERSION_ANY }.encode(writer),
            }
        });
        encoded.expect("small");
    }
}

struct Rig {
    shard: Shard,
    sequencer: Sequencer,
    effects: Effects,
    conn: ConnId,
    index: u64,
    replies: u64,
}

impl Rig {
    /// A client with a session, before the tree of the cases.
    fn new() -> Self {
        let machine = parts::machine();
        let view = machine.view().clone();
        let mut sequencer = Sequencer::new(SequencerConfig::default(), machine, 0, 0);
        sequencer.begin_leadership(Millis::of(NOW), 2);
        let mut shard = Shard::new(ShardConfig::default(), view, 1, Millis::of(NOW));
        let client = NewClient::new("127.0.0.1:9".parse().expect("an address"), [7; 16]);
        let conn = shard.accept(NOW, client).expect("it does not drain");
        let mut rig = Self { shard, sequencer, effects: Effects::default(), conn, index: 0, replies: 0 };
        let mut bytes = Vec::new();
        let (passwd, timeout_ms, read_only) = (Some(&[0; 16][..]), 30_000, Some(false));
        let greeting =
            ConnectRequest { protocol_version: 0, last_zxid_seen: 0, timeout_ms, session_id: 0, passwd, read_only };
        append_frame(&mut bytes, |writer| greeting.encode(writer)).expect("small");
        rig.turn(&bytes);
        assert_eq!(rig.replies, 1, "connected");
        rig
    }

    /// Bytes in, and all that follows from them.
    fn turn(&mut self, bytes: &[u8]) {
        self.shard.handle(NOW, ShardEvent::Client(self.conn, ClientEvent::Received { bytes, applied: Zxid(0) }));
        self.carry_out();
        while self.shard.needs_turn() {
            self.shard.turn(NOW);
            self.carry_out();
        }
    }

    fn carry_out(&mut self) {
        let mut effects = mem::take(&mut self.effects);
        loop {
            self.shard.take_effects(&mut effects);
            if effects.is_empty() {
                break;
            }
            for conn in effects.dirty.drain(..) {
                let unsent = black_box(self.shard.unsent(conn));
                self.replies += u64::from(!unsent.is_empty());
                let count = unsent.len();
                self.shard.handle(NOW, ShardEvent::Client(conn, ClientEvent::Sent(count)));
            }
            effects.requests.drain(..).for_each(|requests| self.commit(requests));
            effects.answered.clear();
            effects.applied = 0;
        }
        self.effects = effects;
    }

    fn commit(&mut self, requests: Requests) {
        self.sequencer.enqueue(Millis::of(NOW), requests.proposals);
        let batch = self.sequencer.take_batch(WallMillis(1_700_000_000_000)).expect("something was proposed");
        let payload = batch.encode();
        self.sequencer.proposed(batch);
        self.index += 1;
        let applied = self.sequencer.apply_entry(Millis::of(NOW), self.index, 1, &payload, true).expect("a batch");
        self.shard.handle(NOW, ShardEvent::Message(ShardMessage::Batch(Arc::new(applied))));
    }
}

/// Sends `times` requests, `DEPTH` at a time.
pub(crate) fn shard(times: u32, request: impl Fn(u32) -> Request) {
    let mut rig = Rig::new();
    let mut requests: Vec<Vec<u8>> = vec![Vec::new(); (TIMES_MAX / DEPTH) as usize];
    (0..TIMES_MAX).for_each(|xid| request(xid).frame(&mut requests[(xid / DEPTH) as usize], xid));
    let before = rig.replies;
    for bytes in &requests[..times.div_ceil(DEPTH) as usize] {
        rig.turn(bytes);
    }
    assert!(rig.replies > before, "it was answered");
    std::mem::forget((rig, requests));
}

/// Lists so many children, `together` lists at a time.
pub(crate) fn shard_children(count: u32, together: u32, turns: u32) {
    let mut rig = Rig::new();
    for number in 0..count {
        let mut bytes = Vec::new();
        Request::Create(new_path(number)).frame(&mut bytes, number);
        rig.turn(&bytes);
    }
    let mut bytes = Vec::new();
    let list = Request::Read(OpCode::GetChildren2, "/micro/n".to_owned(), false);
    (0..together).for_each(|xid| list.frame(&mut bytes, xid));
    (0..turns).for_each(|_| rig.turn(&bytes));
    std::mem::forget(rig);
}
