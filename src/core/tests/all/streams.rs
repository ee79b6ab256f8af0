//! Three servers' shards and members between links that break and leaders that change, and a log that is an oracle.
//!
//! No Raft: the oracle chooses the leader, and how much of a leader's tail its successor keeps. The tests prove three
//! things. Of each connection's writes a prefix is ordered, once each and in order. The answers of a connection agree
//! with the log. Connections of writes with an unknown outcome are ended, and no others.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use corral_core::apply::StateMachine;
use corral_core::forwarding::peer::PeerMessage;
use corral_core::forwarding::{EnsembleConfig, Leadership, Sender};
use corral_core::ids::{ConnId, Millis, ServerId, Zxid};
use corral_core::limits::ShardLimits;
use corral_core::sequencer::SequencerConfig;
use corral_core::sequencer::reaper::ReapPolicy;
use corral_core::session::SessionTable;
use corral_core::shard::conn::Close;
use corral_core::shard::{ClientEvent, Effects, NewClient, Shard, ShardConfig, ShardEvent, ShardMessage};
use corral_core::tree::view::View;
use corral_types::Micros;
use corral_types::SplitMix64;
use corral_types::{Machine as _, Term};
use corral_wire::Reader;
use corral_wire::frame::next_frame;
use corral_wire::records::{ConnectRequest, ReplyHeader};

use crate::member::Member;
use crate::one_shard::{self, framed};

const SERVERS: usize = 3;
const CLIENTS: usize = 4;
const SEEDS: u64 = 60;
const STEPS: u64 = 3000;

/// A client's place at a server: connects, writes numbered znodes one behind the other, counts what it is told.
#[derive(Default)]
struct Client {
    conn: Option<ConnId>,
    live: bool,
    /// Names every connection that there ever was.
    life: u64,
    sent: u32,
    told: u32,
}

fn receive(shard: &mut Shard, conn: ConnId, bytes: &[u8]) {
    shard.handle(Micros(0), ShardEvent::Client(conn, ClientEvent::Received { bytes, applied: Zxid(0) }));
}

struct Server {
    at: usize,
    member: Member,
    shard: Shard,
    clients: Vec<Client>,
    /// To the shard, late.
    to_shard: VecDeque<ShardMessage>,
    /// To the member, late.
    to_member: VecDeque<corral_core::command::Proposals>,
    applied: usize,
    /// Own proposals in the log of the term that it leads in its own mind.
    own: VecDeque<usize>,
    /// The term and the leader that it knows of.
    known: (u64, Option<usize>),
}

#[derive(Clone)]
struct Entry {
    term: u64,
    payload: Vec<u8>,
    by: usize,
}

#[derive(Default)]
struct Link {
    number: u64,
    up: bool,
    flying: VecDeque<PeerMessage>,
}

struct World {
    random: SplitMix64,
    now: u64,
    servers: Vec<Server>,
    links: BTreeMap<(usize, usize), Link>,
    term: u64,
    leader: usize,
    log: Vec<Entry>,
    committed: usize,
    /// Writes of each connection that are ordered: server, client, life.
    ordered: BTreeMap<(usize, usize, u64), u32>,
    uncertain: u64,
    acknowledged: u64,
}

fn server(at: usize) -> Server {
    let id = ServerId(u8::try_from(at + 1).expect("small"));
    let incarnation = 100 + at as u64;
    let reap = ReapPolicy { check_interval_ms: 60_000, deletes_per_minute_max: 100, never_used_max_ms: 0 };
    let config = SequencerConfig {
        server: id,
        incarnation,
        tick_ms: 100,
        batch_bytes_max: 300,
        entry_bytes_max: 1600,
        reap,
        ..SequencerConfig::default()
    };
    let view = View::empty(7);
    let ensemble = EnsembleConfig { shards: 1, hold_ms: 400, lost_after_ms: 300 };
    let shard_config = ShardConfig {
        server: id,
        incarnation,
        session_timeout_min_ms: 1_000_000,
        session_timeout_max_ms: 1_000_000,
        sessionless_timeout_ms: 1_000_000,
        limits: ShardLimits { proposals_bytes_max: 300, ..ShardLimits::default() },
        ..ShardConfig::default()
    };
    Server {
        at,
        member: Member::new(config, ensemble),
        shard: Shard::new(shard_config, view, 0, Millis(0)),
        clients: (0..CLIENTS).map(|_| Client::default()).collect(),
        to_shard: VecDeque::new(),
        to_member: VecDeque::new(),
        applied: 0,
        own: VecDeque::new(),
        known: (0, None),
    }
}

fn connect() -> Vec<u8> {
    framed(|writer| {
        ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: 1_000_000,
            session_id: 0,
            passwd: Some(&[0; 16]),
            read_only: Some(false),
        }
        .encode(writer);
    })
}

/// Creates `/server-client-life-number`.
fn create(name: &str, xid: u32) -> Vec<u8> {
    one_shard::create(i32::try_from(xid).expect("few"), &format!("/{name}-{xid}"), b"")
}

impl World {
    fn new(seed: u64) -> World {
        let mut world = World {
            random: SplitMix64::new(seed ^ 0xabcd_ef01),
            now: 0,
            servers: (0..SERVERS).map(server).collect(),
            links: BTreeMap::new(),
            term: 0,
            leader: 0,
            log: Vec::new(),
            committed: 0,
            ordered: BTreeMap::new(),
            uncertain: 0,
            acknowledged: 0,
        };
        for from in 0..SERVERS {
            for to in (0..SERVERS).filter(|to| *to != from) {
                world.links.insert((from, to), Link::default());
            }
        }
        world.elect();
        world
    }

    /// Another leadership: a part of the uncommitted entries of the last one stays.
    fn elect(&mut self) {
        self.term += 1 + self.random.below(2);
        self.leader = self.random.index(SERVERS);
        let tail = self.log.len() - self.committed;
        self.log.truncate(self.committed + self.random.index(tail + 1));
        self.log.push(Entry { term: self.term, payload: Vec::new(), by: usize::MAX });
        // A leader knows first.
        self.learn(self.leader);
    }

    fn learn(&mut self, at: usize) {
        let (term, leader) = (self.term, self.leader);
        let server = &mut self.servers[at];
        if server.known.0 != term {
            server.own.clear();
            server.member.sequencer.follow();
        }
        server.known = (term, Some(leader));
        let leadership = match leader == at {
            true => Leadership::Leader,
            false => Leadership::Follower { leader: Some(ServerId(u8::try_from(leader + 1).expect("small"))) },
        };
        server.member.set_leadership(leadership, term);
        self.settle(at);
    }

    fn forget_leader(&mut self, at: usize) {
        if at != self.leader {
            let server = &mut self.servers[at];
            server.own.clear();
            server.member.sequencer.follow();
            server.member.set_leadership(Leadership::Follower { leader: None }, server.known.0);
            server.known.1 = None;
            self.settle(at);
        }
    }

    /// The end of a turn.
    fn settle(&mut self, at: usize) {
        let server = &mut self.servers[at];
        server.member.settle();
        for batch in server.member.take_batches() {
            server.to_shard.push_back(ShardMessage::Batch(Arc::new(batch)));
        }
        let notes = server.member.take_flow();
        server.to_shard.extend(notes.into_iter().map(ShardMessage::Flow));
        for send in server.member.take_sends() {
            let link = self.links.get_mut(&(at, usize::from(send.peer.0) - 1)).expect("all are there");
            if link.up && link.number == send.connection {
                let mut bytes = Vec::new();
                send.message.clone().encode(&mut bytes);
                assert_eq!(PeerMessage::decode(&bytes).as_ref().map(kind), Ok(kind(&send.message)));
                link.flying.push_back(send.message);
            }
        }
    }

    fn step(&mut self) {
        self.now += 1;
        for at in 0..SERVERS {
            self.servers[at].member.set_time(Millis(self.now));
            if self.now.is_multiple_of(40) {
                self.servers[at].member.tick(Millis(self.now));
                self.settle(at);
            }
        }
        self.break_things();
        let at = self.random.index(SERVERS);
        match self.random.below(8) {
            0 | 1 => self.act(at),
            2 => self.member_turn(at),
            3 => self.shard_turn(at),
            4 => self.propose(),
            5 => self.committed += usize::from(self.random.chance(60) && self.committed < self.log.len()),
            6 => self.apply(at),
            _ => self.deliver(),
        }
    }

    fn break_things(&mut self) {
        if self.random.below(300) == 0 {
            self.elect();
        }
        let at = self.random.index(SERVERS);
        if self.random.below(10) == 0 && self.servers[at].known != (self.term, Some(self.leader)) {
            self.learn(at);
        }
        if self.random.below(400) == 0 {
            self.forget_leader(at);
        }
        if self.random.below(600) == 0 {
            // It may go soon, or stay after all.
            self.servers[self.leader].member.pause();
            self.settle(self.leader);
        }
        let to = self.random.index(SERVERS);
        let now = self.random.below(150);
        let Some(link) = self.links.get_mut(&(at, to)) else { return };
        let id = ServerId(u8::try_from(to + 1).expect("small"));
        if link.up && now == 0 {
            link.up = false;
            link.flying.clear();
            self.servers[at].member.forwarding.peer_disconnected(id, link.number);
            self.settle(at);
        } else if !link.up && now < 10 {
            (link.up, link.number) = (true, link.number + 1);
            self.servers[at].member.peer_connected(id, link.number);
            self.settle(at);
        }
    }

    /// A client connects, or writes.
    fn act(&mut self, at: usize) {
        let which = self.random.index(CLIENTS);
        let server = &mut self.servers[at];
        let client = &mut server.clients[which];
        let name = format!("{at}-{which}-{}", client.life);
        match client.conn {
            None => {
                let client_of = NewClient::new("127.0.0.1:9".parse().expect("an address"), [7; 16]);
                let conn = server.shard.accept(Micros(0), client_of).expect("it does not drain");
                *client = Client { conn: Some(conn), life: client.life + 1, ..Client::default() };
                receive(&mut server.shard, conn, &connect());
            }
            Some(conn) if client.live => {
                client.sent += 1;
                receive(&mut server.shard, conn, &create(&name, client.sent));
            }
            Some(_) => {}
        }
        self.look_at(at);
    }

    fn member_turn(&mut self, at: usize) {
        let server = &mut self.servers[at];
        if self.random.chance(70) && server.shard.needs_turn() {
            server.shard.turn(Micros(0));
            let mut effects = Effects::default();
            server.shard.take_effects(&mut effects);
            server.to_member.extend(effects.requests.into_iter().map(|requests| requests.proposals));
        }
        while self.random.chance(70)
            && let Some(proposals) = server.to_member.pop_front()
        {
            server.member.proposed(Millis(self.now), proposals);
        }
        self.settle(at);
    }

    fn shard_turn(&mut self, at: usize) {
        let server = &mut self.servers[at];
        let Some(message) = server.to_shard.pop_front() else { return };
        server.shard.handle(Micros(0), ShardEvent::Message(message));
        assert!(!server.shard.is_applying(), "a small batch");
        self.look_at(at);
    }

    /// The leader, if it knows that it is one, and has applied everything before.
    fn propose(&mut self) {
        let server = &mut self.servers[self.leader];
        if server.known.0 != self.term || !server.member.sequencer.is_leading() {
            return;
        }
        if let Some(payload) = server.member.sequencer.next_batch() {
            server.own.push_back(self.log.len());
            self.log.push(Entry { term: self.term, payload, by: self.leader });
        }
    }

    fn apply(&mut self, at: usize) {
        let server = &mut self.servers[at];
        let Some(entry) = self.log[..self.committed].get(server.applied).cloned() else { return };
        // A server that receives an entry of a later term follows its leader first.
        if server.known.0 < entry.term {
            return self.learn(at);
        }
        let own = server.own.front() == Some(&server.applied);
        if own {
            server.own.pop_front();
        }
        assert!(!own || entry.by == at, "an entry of our own is ours");
        server.applied += 1;
        server.member.commit(server.applied as u64, entry.term, &entry.payload, own);
        if entry.by == usize::MAX && at == self.leader && entry.term == self.term {
            server.member.sequencer.lead(Term(entry.term));
        }
        self.settle(at);
    }

    fn deliver(&mut self) {
        let (from, to) = (self.random.index(SERVERS), self.random.index(SERVERS));
        let Some(link) = self.links.get_mut(&(from, to)) else { return };
        let Some(message) = link.flying.pop_front() else { return };
        let sender = Sender {
            peer: ServerId(u8::try_from(from + 1).expect("small")),
            incarnation: 100 + from as u64,
            connection: link.number,
        };
        let taken = self.servers[to].member.received(Millis(self.now), sender, message);
        assert_eq!(taken, Ok(()), "a link without loss has no gap");
        self.settle(to);
    }

    /// Replies and ends.
    fn look_at(&mut self, at: usize) {
        let server = &mut self.servers[at];
        for which in 0..CLIENTS {
            let Some(conn) = server.clients[which].conn else { continue };
            let bytes = server.shard.unsent(conn).to_vec();
            server.shard.handle(Micros(0), ShardEvent::Client(conn, ClientEvent::Sent(bytes.len())));
            let mut rest = &bytes[..];
            while let Some((frame, length)) = next_frame(rest, 1 << 20).expect("whole frames") {
                let client = &mut server.clients[which];
                if client.live {
                    let header = ReplyHeader::decode(&mut Reader::new(frame)).expect("a header");
                    client.told += 1;
                    self.acknowledged += 1;
                    assert_eq!((header.xid, header.err), (i32::try_from(client.told).expect("few"), 0), "in order");
                }
                client.live = true;
                rest = &rest[length..];
            }
        }
        let mut effects = Effects::default();
        server.shard.take_effects(&mut effects);
        server.to_member.extend(effects.requests.into_iter().map(|requests| requests.proposals));
        for (conn, why) in effects.closed {
            assert!(matches!(why, Close::Uncertain | Close::NoLeader), "{why}");
            let place = server.clients.iter_mut().find(|client| client.conn == Some(conn));
            let client = place.expect("it was open");
            let waits = client.told < client.sent || !client.live;
            assert!(waits || why == Close::NoLeader, "nobody is sent away who waits for nothing");
            (client.conn, client.live) = (None, false);
            self.uncertain += 1;
        }
    }

    /// Checks the whole log, as an observer applies it.
    fn check(&mut self) {
        let mut machine = StateMachine::new(View::empty(7), SessionTable::default());
        for entry in self.log[..self.committed].iter().filter(|entry| !entry.payload.is_empty()) {
            let batch = corral_core::command::Batch::decode(&entry.payload).expect("a batch");
            for txn in machine.apply(batch, entry.term).txns {
                for change in txn.changes {
                    let path = change.at().path.to_string();
                    let numbers: Vec<u64> = path[1..].split('-').filter_map(|part| part.parse().ok()).collect();
                    let [server, client, life, number] = numbers[..] else { continue };
                    let index = |number| usize::try_from(number).expect("small");
                    let ordered = self.ordered.entry((index(server), index(client), life)).or_default();
                    assert_eq!(u64::from(*ordered) + 1, number, "a write without the one before it: {path}");
                    *ordered += 1;
                }
            }
        }
        for (at, server) in self.servers.iter().enumerate() {
            assert_eq!(at, server.at);
            for (which, client) in server.clients.iter().enumerate().filter(|(_, client)| client.live) {
                let ordered = self.ordered.get(&(at, which, client.life)).copied().unwrap_or_default();
                assert!(client.told <= ordered, "told of {} writes, {ordered} are in the log", client.told);
            }
        }
    }
}

fn kind(message: &PeerMessage) -> u8 {
    match message {
        PeerMessage::Forward(_) => 1,
        PeerMessage::SessionReport(_) => 2,
        PeerMessage::Heartbeat(_) => 3,
        PeerMessage::Pause(_) => 4,
        PeerMessage::Paused(_) => 5,
        PeerMessage::Digest(_) => 6,
        PeerMessage::Uninitialised(_) => unreachable!("all of them remember everything"),
    }
}

#[test]
fn of_a_connections_writes_a_prefix_is_ordered() {
    let (mut uncertain, mut acknowledged) = (0, 0);
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step();
        }
        world.check();
        uncertain += world.uncertain;
        acknowledged += world.acknowledged;
    }
    assert!(uncertain > 200, "only {uncertain} connections were sent away");
    assert!(acknowledged > 5000, "only {acknowledged} writes were answered");
}
