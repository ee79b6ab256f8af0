//! Events that no driver of the simulator reports.

use bytes::Bytes;
use corral_consensus::{Config, Entry, EntryKind, HardState, Membership, Restored, ServerId};
use corral_core::apply::StateMachine;
use corral_core::features;
use corral_core::forwarding::{EnsembleConfig, Forwarding};
use corral_core::ids::WallMillis;
use corral_core::sequencer::SequencerConfig;
use corral_core::session::SessionTable;
use corral_core::tree::view::View;
use corral_peer::snapshot::{Ask, Knows};
use corral_peer::{Frame, Generation, Kind};

use super::*;
use crate::event::Finding;
use crate::settings::EnsembleSettings;
use crate::snapshot::{Offered, SnapshotContent};

struct Content;

impl SnapshotContent for Content {
    fn size(&self) -> u64 {
        1 << 30
    }

    fn copy(&self, _: u64, bytes: usize) -> Bytes {
        Bytes::from(vec![7; bytes])
    }
}

const NOW: Now = Now { micros: Micros(1_000_000), wall: WallMillis(1) };

/// Server 1 of three, with a log of three entries, of which none is known to be committed, and a snapshot for others.
fn engine() -> Engine {
    let config = SequencerConfig { tick_ms: 100, ..SequencerConfig::default() };
    let machine = StateMachine::new(View::empty(7), SessionTable::default());
    let mut machine = Sequencer::new(config, machine, 0, 0);
    let config = EnsembleConfig { shards: 1, hold_ms: 1000, lost_after_ms: 1000 };
    let forwarding = Some(Forwarding::new(config, &mut machine));
    let voters = Membership::simple(&[1, 2, 3].map(ServerId), &[]);
    let config = Config {
        id: ServerId(1),
        voters: Vec::new(),
        learners: Vec::new(),
        election_ticks: 10,
        heartbeat_ticks: 2,
        max_inflight_entries: 100,
        log_cache_bytes: 1 << 20,
        max_entry_bytes: 1 << 20,
        seed: 1,
    };
    let entry = |at| Entry { index: Index(at), term: Term(1), kind: EntryKind::Normal, payload: Bytes::new() };
    let hard_state = HardState { term: Term(1), vote: None, commit: Index(0) };
    let restored = Restored { hard_state, entries: (1..=3).map(entry).collect(), ..Restored::default() };
    let raft = RaftNode::with_membership(config, voters.clone(), restored).expect("it is consistent");
    let ensemble = EnsembleSettings {
        own: ServerId(1),
        configured: Vec::new(),
        client_addr: "127.0.0.1:2181".parse().expect("an address"),
        wanted: voters,
        stored: None,
        read_only: false,
        election: Micros(1_000_000),
        generation: Generation::FIRST,
        piece_bytes: 1 << 10,
    };
    let newest = Some(Offered { index: 9, zxid: 9, bytes: Arc::new(Content) });
    let settings = Settings { shards: 1, snapshots_retained: 2, newest, ensemble: Some(ensemble) };
    let mut engine = Engine::new(Member { replica: Replica::new(raft, Index(0)), machine, forwarding }, settings);
    engine.begin(NOW);
    engine.handle(NOW, Event::Peer(ServerId(2), PeerEvent::Accepted { stream: 1, incarnation: 5 }));
    turn(&mut engine);
    engine
}

fn turn(engine: &mut Engine) -> Vec<Effect> {
    while engine.turn(NOW, u64::MAX) == Turned::Again {}
    let mut effects = Vec::new();
    engine.take_effects(&mut effects);
    effects
}

fn ask(offset: Option<u64>) -> Event {
    let payload = Ask { index: 9, offset }.encode();
    Event::Peer(ServerId(2), PeerEvent::Frame { stream: 1, frame: Frame { kind: Kind::SnapshotAsk, payload } })
}

fn failed(found: Option<CorruptState>) -> Event {
    Event::SnapshotFailed { index: 0, was_tried: true, found }
}

fn found() -> CorruptState {
    CorruptState { finding: Finding::DamagedSnapshot, what: "a fault".to_owned() }
}

#[test]
fn many_small_frames_wait_for_a_turn() {
    let mut engine = engine();
    for _ in 0..2 {
        let mut taken = 0;
        while !engine.needs_turn() {
            engine.handle(NOW, ask(None));
            taken += 1;
            assert!(taken < 10_000, "there is no end of it");
        }
        assert!(taken > 1000, "{taken}");
        turn(&mut engine);
    }
}

#[test]
fn one_turn_gives_a_server_few_pieces_of_a_snapshot() {
    let mut engine = engine();
    for _ in 0..2 {
        (0..200).for_each(|at| engine.handle(NOW, ask(Some(at << 10))));
        let is_piece =
            |effect: &&Effect| matches!(effect, Effect::Peers(ToPeers::Send { kind: Kind::SnapshotPart, .. }));
        assert_eq!(turn(&mut engine).iter().filter(is_piece).count(), 8);
    }
}

#[test]
fn a_snapshot_that_fails_while_connections_drain_ends_nothing() {
    let mut engine = engine();
    engine.handle(NOW, Event::Stop);
    engine.handle(NOW, failed(None));
    let ended = |effects: Vec<Effect>| effects.iter().any(|effect| matches!(effect, Effect::End(_)));
    assert!(!ended(turn(&mut engine)), "clients wait for answers");
    engine.handle(NOW, Event::Drained);
    assert!(ended(turn(&mut engine)), "none is written then");
}

#[test]
fn a_state_that_is_not_to_be_trusted_is_not_written_again() {
    let mut engine = engine();
    engine.handle(NOW, failed(None));
    assert!(engine.snapshots.is_to_retry());
    engine.handle(NOW, Event::StateCorrupt(found()));
    assert!(engine.replica.is_state_corrupt());
    let later = Now { micros: Micros(1 << 40), ..NOW };
    engine.handle(later, Event::Tick);
    assert!(engine.snapshots.is_to_retry());
}

#[test]
fn damage_of_a_state_that_is_no_more_is_no_damage_of_the_present_one() {
    let mut engine = engine();
    engine.snapshots = Snapshots::replaced_during_write();
    engine.handle(NOW, failed(Some(found())));
    engine.handle(NOW, Event::CopiedDamage { found: found(), installs: 0 });
    assert!(!engine.replica.is_state_corrupt());
    engine.handle(NOW, failed(Some(found())));
    assert!(engine.replica.is_state_corrupt());
}

#[test]
fn commands_are_judged_before_the_log_once_all_members_know_it() {
    let mut engine = engine();
    let admits = |engine: &mut Engine| {
        turn(engine);
        engine.sequencer().admits()
    };
    let accepted = |peer, stream| Event::Peer(ServerId(peer), PeerEvent::Accepted { stream, incarnation: 5 });
    let knows = |peer, stream, features| {
        let payload = Knows { features }.encode();
        Event::Peer(ServerId(peer), PeerEvent::Frame { stream, frame: Frame { kind: Kind::SnapshotAsk, payload } })
    };
    assert!(!admits(&mut engine), "server 2 is connected, and has reported nothing");
    engine.handle(NOW, knows(2, 1, features::KNOWN));
    assert!(!admits(&mut engine), "server 3 is not connected");
    engine.handle(NOW, accepted(3, 2));
    engine.handle(NOW, knows(3, 2, features::BOUNDS));
    assert!(!admits(&mut engine), "server 3 is of a build before");
    engine.handle(NOW, accepted(3, 3));
    engine.handle(NOW, knows(3, 3, features::KNOWN));
    assert!(admits(&mut engine));
    engine.handle(NOW, accepted(3, 4));
    assert!(!admits(&mut engine), "server 3 has started again, perhaps as another build");
    engine.handle(NOW, knows(3, 4, features::KNOWN));
    assert!(admits(&mut engine));
    engine.handle(NOW, Event::Peer(ServerId(2), PeerEvent::Lost { stream: 1, gone: false }));
    assert!(!admits(&mut engine));
}

#[test]
fn a_new_connection_is_told_first_which_features_are_known() {
    let mut engine = engine();
    engine.handle(NOW, Event::Peer(ServerId(3), PeerEvent::ConnectedTo { stream: 9 }));
    let told = |effect: &Effect| match effect {
        Effect::Peers(ToPeers::Send { peer: ServerId(3), kind: Kind::SnapshotAsk, payload, .. }) => {
            Knows::of(&Ask::decode(payload).ok()?)
        }
        _ => None,
    };
    let told: Vec<Knows> = turn(&mut engine).iter().filter_map(told).collect();
    assert_eq!(told, [Knows { features: features::KNOWN }]);
}
