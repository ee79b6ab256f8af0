//! One shard and one state machine, without log or sockets, and a client's frames: shared by the tests of the shard.

#![allow(dead_code, unreachable_pub, reason = "each module uses its part")]

use corral_core::apply::StateMachine;
use corral_core::apply::outcome::AppliedBatch;
use corral_core::command::{Batch, Command, CommandKind, Proposals};
use corral_core::ids::{ConnId, Millis, Origin, ServerId, ShardId, WallMillis, Zxid};
use corral_core::limits::ShardLimits;
use corral_core::session::SessionTable;
use corral_core::shard::Flow;
use corral_core::shard::conn::Close;
use corral_core::shard::{ClientEvent, Effects, NewClient, Shard, ShardConfig, ShardEvent, ShardMessage};
use corral_core::shared::{Data, Text};
use corral_core::tree::acl::Acl;
use corral_core::tree::change::Change;
use corral_core::tree::view::View;
use corral_core::tree::znode::{NodeStat, Znode};
use corral_types::Micros;
use corral_wire::frame::{append_frame, next_frame};
use corral_wire::records::{ConnectRequest, GetChildrenRequest, ReplyHeader, RequestHeader};
use corral_wire::{OpCode, Reader, Writer};
use std::collections::VecDeque;
use std::sync::Arc;

pub struct Server {
    pub shard: Shard,
    pub machine: StateMachine,
    /// Effects so far, but for the next two.
    pub out: Effects,
    pub proposals: VecDeque<Proposals>,
    syncs: Vec<ConnId>,
    pub now: Millis,
    /// The last zxid that another shard of the server has applied.
    pub applied: Zxid,
    /// Of every batch.
    pub features: u32,
    next_zxid: u64,
}

impl Server {
    pub fn new(limits: ShardLimits) -> Self {
        Self::with_view(limits, View::empty(7))
    }

    pub fn with_view(limits: ShardLimits, view: View) -> Self {
        Self::with_config(config(limits), view)
    }

    /// A server with reads that wait for the leader.
    pub fn linearizable() -> Self {
        let config = ShardConfig { linearizable: true, ..config(ShardLimits::default()) };
        Self::with_config(config, View::empty(7))
    }

    pub fn with_config(config: ShardConfig, view: View) -> Self {
        let machine = StateMachine::new(view.clone(), SessionTable::default());
        let shard = Shard::new(config, view, 0, Millis(0));
        let (out, proposals, syncs) = Default::default();
        let (now, applied) = (Millis(0), Zxid(0));
        Self { shard, machine, out, proposals, syncs, now, applied, features: 1, next_zxid: 0x1_0000_0001 }
    }

    /// A connection with a session.
    pub fn client(&mut self) -> ConnId {
        let id = self.accept();
        let bytes = framed(|writer| {
            ConnectRequest {
                protocol_version: 0,
                last_zxid_seen: 0,
                timeout_ms: 30_000,
                session_id: 0,
                passwd: Some(&[0; 16]),
                read_only: Some(false),
            }
            .encode(writer);
        });
        self.send(id, &bytes);
        self.commit();
        assert_eq!(self.take_frames(id).len(), 1, "connected");
        id
    }

    /// A connection that has sent nothing.
    pub fn accept(&mut self) -> ConnId {
        let client = NewClient::new("127.0.0.1:9".parse().expect("an address"), [7; 16]);
        self.shard.accept(self.clock(), client).expect("it does not drain")
    }

    fn clock(&self) -> Micros {
        self.now.micros()
    }

    pub fn send(&mut self, id: ConnId, bytes: &[u8]) {
        self.client_event(id, ClientEvent::Received { bytes, applied: self.applied });
    }

    fn client_event(&mut self, id: ConnId, event: ClientEvent<'_>) {
        self.handle(ShardEvent::Client(id, event));
    }

    pub fn sent(&mut self, id: ConnId, count: usize) {
        self.client_event(id, ClientEvent::Sent(count));
    }

    pub fn hang_up(&mut self, id: ConnId) {
        self.client_event(id, ClientEvent::Failed);
    }

    pub fn end_input(&mut self, id: ConnId) {
        self.client_event(id, ClientEvent::InputEnded);
    }

    pub fn event(&mut self, message: ShardMessage) {
        self.handle(ShardEvent::Message(message));
    }

    pub fn tick(&mut self) {
        self.handle(ShardEvent::Tick);
    }

    fn handle(&mut self, event: ShardEvent<'_>) {
        self.shard.handle(self.clock(), event);
        self.collect();
    }

    pub fn turn(&mut self) {
        self.shard.turn(self.clock());
        self.collect();
    }

    fn collect(&mut self) {
        let mut new = Effects::default();
        self.shard.take_effects(&mut new);
        for mut requests in new.requests {
            self.syncs.append(&mut requests.syncs);
            self.proposals.extend(Some(requests.proposals).filter(|some| !some.commands.is_empty()));
        }
        self.out.dirty.append(&mut new.dirty);
        self.out.resumed.append(&mut new.resumed);
        self.out.closed.append(&mut new.closed);
        self.out.garbage.append(&mut new.garbage);
        self.out.audited.append(&mut new.audited);
        self.out.activity = new.activity.or(self.out.activity.take());
    }

    /// Connections with a sync, or barrier, to be sent to the leader.
    pub fn take_syncs(&mut self) -> Vec<ConnId> {
        self.end_turn();
        std::mem::take(&mut self.syncs)
    }

    fn end_turn(&mut self) {
        if self.shard.needs_turn() {
            self.turn();
        }
    }

    pub fn flow(&mut self, flow: Flow) {
        self.event(ShardMessage::Flow(flow));
    }

    pub fn release(&mut self) {
        self.flow(Flow::Resume);
    }

    pub fn take(&mut self) -> Option<Proposals> {
        if self.proposals.is_empty() {
            self.end_turn();
        }
        self.proposals.pop_front()
    }

    pub fn commit(&mut self) {
        while let Some(proposals) = self.take() {
            self.commit_these(proposals);
        }
    }

    pub fn commit_these(&mut self, proposals: Proposals) {
        let applied = self.evaluate(proposals);
        self.apply(applied);
    }

    pub fn apply(&mut self, batch: AppliedBatch) {
        self.apply_in_turns(batch, |_| {});
    }

    /// Applies a batch, and calls `ended` at the end of each turn that this takes.
    pub fn apply_in_turns(&mut self, batch: AppliedBatch, mut ended: impl FnMut(&mut Server)) {
        self.event(ShardMessage::Batch(Arc::new(batch)));
        ended(self);
        while self.shard.is_applying() {
            self.turn();
            ended(self);
        }
    }

    /// The result of proposals in the state machine; the shard does not have it yet.
    pub fn evaluate(&mut self, proposals: Proposals) -> AppliedBatch {
        let Proposals { identities, commands, .. } = proposals;
        let first_zxid = self.next_zxid;
        self.next_zxid += commands.len() as u64;
        let batch = Batch { time: WallMillis(1), first_zxid, features: self.features, identities, commands };
        self.machine.apply(batch, 1)
    }

    /// Orders a command of the leader's own, for a connection or for none.
    pub fn own(&mut self, conn: Option<ConnId>, kind: CommandKind) {
        let origin = conn.map(|conn| Origin { server: ServerId(1), shard: ShardId(0), conn, incarnation: 1 });
        let commands = vec![Command::own(origin, kind)];
        self.commit_these(Proposals { commands, ..Proposals::default() });
    }

    /// The bodies of all frames that wait, as a client that reads everything takes them.
    pub fn take_frames(&mut self, id: ConnId) -> Vec<Vec<u8>> {
        let mut bytes = Vec::new();
        loop {
            let unsent = self.shard.unsent(id).to_vec();
            if unsent.is_empty() {
                break;
            }
            self.sent(id, unsent.len());
            bytes.extend(unsent);
        }
        let mut frames = Vec::new();
        let mut rest = &bytes[..];
        while let Some((frame, length)) = next_frame(rest, usize::MAX >> 1).expect("whole frames") {
            frames.push(frame.to_vec());
            rest = &rest[length..];
        }
        assert!(rest.is_empty(), "half a frame");
        frames
    }

    /// Xid and error of every reply that waits.
    pub fn replies(&mut self, id: ConnId) -> Vec<(i32, i32)> {
        let header = |frame: Vec<u8>| ReplyHeader::decode(&mut Reader::new(&frame)).expect("a header");
        self.take_frames(id).into_iter().map(header).map(|header| (header.xid, header.err)).collect()
    }

    pub fn closed(&mut self) -> Vec<Close> {
        self.out.closed.drain(..).map(|(_, why)| why).collect()
    }

    /// Path and result of each record for the audit log.
    pub fn audited(&mut self) -> Vec<String> {
        let records = self.out.audited.drain(..);
        records
            .map(|record| format!("{} {}", record.path.as_deref().unwrap_or_default(), record.result.name()))
            .collect()
    }
}

/// A shard of server 1 that serves everything.
pub fn config(limits: ShardLimits) -> ShardConfig {
    ShardConfig {
        sessionless_timeout_ms: 1000,
        keeper_extensions: true,
        audit: true,
        read_only: true,
        limits,
        ..ShardConfig::default()
    }
}

pub fn framed(encode: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    append_frame(&mut bytes, encode).expect("small");
    bytes
}

pub fn request(xid: i32, op: OpCode, encode: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    framed(|writer| {
        RequestHeader { xid, op: op.number() }.encode(writer);
        encode(writer);
    })
}

pub fn create(xid: i32, path: &str, data: &[u8]) -> Vec<u8> {
    request(xid, OpCode::Create, |writer| {
        writer.str(path);
        open_znode(writer, data);
    })
}

/// The rest of a create request behind the path: data, an ACL that grants everything, and a persistent znode.
pub fn open_znode(writer: &mut Writer<'_>, data: &[u8]) {
    writer.buffer(Some(data));
    writer.i32(1);
    writer.i32(31);
    writer.str("world");
    writer.str("anyone");
    writer.i32(0);
}

pub fn get(xid: i32, path: &str) -> Vec<u8> {
    request(xid, OpCode::GetData, |writer| {
        writer.str(path);
        writer.bool(false);
    })
}

pub fn reconfig(xid: i32, joining: &str) -> Vec<u8> {
    request(xid, OpCode::Reconfig, |writer| {
        writer.str(joining);
        writer.i32(-1);
        writer.i32(-1);
        writer.i64(-1);
    })
}

pub fn node(data: usize) -> Arc<Znode> {
    let data = Some(Data::from(&vec![7; data][..]));
    Arc::new(Znode { stat: NodeStat::default(), acl: Acl::Open, data })
}

/// A tree with so many children of `/p`, named `{name}{number:07}`.
pub fn wide(count: usize, name: &str) -> View {
    let mut view = View::empty(7);
    let zxid = view.zxid();
    let at = view.hashed(Text::from("/p"));
    view.apply(zxid, &Change::Created { at, node: node(0) });
    for number in 0..count {
        let at = view.hashed(Text::from(format!("/p/{name}{number:07}")));
        view.apply(zxid, &Change::Created { at, node: node(0) });
    }
    view
}

pub fn children(xid: i32, path: &str, watch: bool) -> Vec<u8> {
    request(xid, OpCode::GetChildren, |writer| GetChildrenRequest { path: Some(path), watch }.encode(writer))
}

pub fn delete(xid: i32, path: &str) -> Vec<u8> {
    request(xid, OpCode::Delete, |writer| {
        writer.str(path);
        writer.i32(-1);
    })
}

/// Goes on until nothing is left; gives the number of turns.
pub fn walk(server: &mut Server) -> usize {
    let mut turns = 0;
    while server.shard.needs_turn() {
        server.turn();
        turns += 1;
    }
    turns
}
