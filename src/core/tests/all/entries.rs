//! However much is to be ordered at once, every log entry fits the log.

use corral_core::apply::StateMachine;
use corral_core::apply::outcome::{AppliedTxn, SessionChange};
use corral_core::command::{Batch, Command, CommandKind, Proposals};
use corral_core::cost;
use corral_core::forwarding::peer::{Forward, PeerMessage};
use corral_core::ids::{ConnId, Millis, Origin, ServerId, SessionId, ShardId, WallMillis};
use corral_core::limits::SESSIONS_PIECE;
use corral_core::ops;
use corral_core::ops::{CreateOp, WriteOp};
use corral_core::sequencer::{Sequencer, SequencerConfig};
use corral_core::session::{Ephemerals, Session, SessionTable};
use corral_core::shared::{Data, Text};
use corral_core::tree::acl::{AclSpec, Identity};
use corral_core::tree::view::View;
use corral_types::{Index, Machine as _, Term};
use std::collections::VecDeque;
use std::sync::Arc;

/// Of the smallest segment that a configuration may ask for.
const ENTRY_BYTES_MAX: usize = (4 << 20) - 10_000;
const BATCH_BYTES_MAX: usize = 1 << 20;

fn leader(sessions: SessionTable) -> Sequencer {
    leader_with(ENTRY_BYTES_MAX, BATCH_BYTES_MAX, sessions)
}

fn leader_with(entry_bytes_max: usize, batch_bytes_max: usize, sessions: SessionTable) -> Sequencer {
    let config = SequencerConfig { tick_ms: 100, batch_bytes_max, entry_bytes_max, ..SequencerConfig::default() };
    let mut sequencer = Sequencer::new(config, StateMachine::new(View::empty(7), sessions), 0, 0);
    sequencer.begin_leadership(Millis(0), 1);
    sequencer
}

fn write(slot: u32, bytes: usize) -> Command {
    let conn = ConnId { slot, generation: 1 };
    let origin = Origin { server: ServerId(2), shard: ShardId(0), conn, incarnation: u64::MAX >> 1 };
    let data = Some(Data::from(vec![0; bytes].as_slice()));
    let kind = CommandKind::Op(WriteOp::SetData(ops::SetData { path: Text::from("/a"), data, version: -1 }));
    Command { origin: Some(origin), session: SessionId(1), identities: slot, kind }
}

/// As another server's decoder makes them.
fn proposals(identity_bytes: usize, commands: Vec<Command>) -> Proposals {
    let identity = |_: &Command| {
        Arc::new(vec![Identity { scheme: Text::from("digest"), id: Text::from(&*"x".repeat(identity_bytes)) }])
    };
    let bytes = commands.len() * (200 + identity_bytes) + commands.iter().map(data_bytes).sum::<usize>();
    Proposals { identities: commands.iter().map(identity).collect(), commands, bytes, ..Proposals::default() }
}

fn data_bytes(command: &Command) -> usize {
    match &command.kind {
        CommandKind::Op(WriteOp::SetData(ops::SetData { data, .. })) => data.as_ref().map_or(0, |data| data.len()),
        _ => 0,
    }
}

/// All entries; each fits.
fn entries(sequencer: &mut Sequencer) -> Vec<Batch> {
    let mut entries: Vec<Batch> = Vec::new();
    while let Some(batch) = sequencer.take_batch(WallMillis(1)) {
        let bytes = batch.encode().len();
        assert!(bytes <= ENTRY_BYTES_MAX, "an entry of {bytes} bytes");
        let next = entries.last().map_or(batch.first_zxid, |last| last.first_zxid + last.commands.len() as u64);
        assert_eq!(batch.first_zxid, next, "zxids without a gap");
        entries.push(batch);
    }
    assert_eq!(sequencer.commands_waiting(), 0);
    entries
}

#[test]
fn what_comes_whole_from_another_server_is_cut() {
    let mut sequencer = leader(SessionTable::default());
    let commands = (0..68).map(|slot| write(slot, 1_000_000)).collect();
    sequencer.enqueue(Millis(0), proposals(9, commands));
    let entries = entries(&mut sequencer);
    let commands = entries.iter().flat_map(|batch| &batch.commands);
    let slots: Vec<u32> = commands.filter_map(|command| command.origin).map(|origin| origin.conn.slot).collect();
    assert_eq!(slots, (0..68).collect::<Vec<u32>>());
    assert_eq!(sequencer.take_oversized(), None);
}

#[test]
fn long_identities_have_no_entry_grow() {
    let mut sequencer = leader(SessionTable::default());
    let commands = (0..100).map(|slot| write(slot, 10)).collect();
    sequencer.enqueue(Millis(0), proposals(200_000, commands));
    for batch in entries(&mut sequencer) {
        assert!(batch.commands.iter().all(|command| (command.identities as usize) < batch.identities.len()));
    }
    assert_eq!(sequencer.take_oversized(), None);
}

#[test]
fn many_joined_fit_with_the_largest_behind_them() {
    let mut sequencer = leader(SessionTable::default());
    for round in 0..20 {
        (0..1000).for_each(|slot| sequencer.enqueue(Millis(0), proposals(9, vec![write(slot, round * 100)])));
        // As large as a frame may be with such segments, and the longest identities.
        sequencer.enqueue(Millis(0), proposals(256 << 10, vec![write(0, 1 << 20)]));
    }
    entries(&mut sequencer);
    assert_eq!(sequencer.take_oversized(), None);
}

#[test]
fn what_fits_no_entry_is_refused_in_its_place() {
    let mut sequencer = leader(SessionTable::default());
    let commands = vec![write(0, 10), write(1, 5 << 20), write(2, 10)];
    sequencer.enqueue(Millis(0), proposals(9, commands));
    let entries = entries(&mut sequencer);
    let kinds: Vec<bool> = entries
        .iter()
        .flat_map(|batch| &batch.commands)
        .map(|command| command.kind == CommandKind::Undecodable)
        .collect();
    assert_eq!(kinds, [false, true, false]);
    let oversized = sequencer.take_oversized().expect("one was");
    assert!(oversized.session == SessionId(1) && oversized.bytes > 5 << 20);
    assert_eq!(sequencer.take_oversized(), None);
}

#[test]
fn very_many_sessions_end_over_several_ticks() {
    const SESSIONS: i64 = 500_000;
    let session = Session { timeout_ms: 1000, password: [0; 16], owner: None, ephemerals: Ephemerals::default() };
    let sessions = (1..=SESSIONS).map(|id| (SessionId(id), session.clone()));
    let mut sequencer = leader(SessionTable::from_iter(sessions));
    let (mut ended, mut ticks) = (0, 0);
    while ended < SESSIONS {
        ticks += 1;
        let expired = sequencer.tick(Millis(100 * ticks), WallMillis(0)).expired.len();
        let closed: usize = entries(&mut sequencer).iter().map(|batch| batch.commands.len()).sum();
        assert!(closed == expired && closed <= SESSIONS_PIECE, "{closed} of {expired}");
        ended += closed as i64;
    }
    assert!(ended == SESSIONS && ticks < 100, "{ticks} ticks");
}

#[test]
fn sessions_with_ephemerals_that_end_together_go_in_several_entries() {
    const SESSIONS: i64 = 1000;
    const EPHEMERALS: i64 = 150;
    let session = |id: i64| {
        let ephemerals = (0..EPHEMERALS).map(|number| Text::from(&*format!("/{id}-{number}"))).collect::<Ephemerals>();
        (SessionId(id), Session { timeout_ms: 1000, password: [0; 16], owner: None, ephemerals })
    };
    let mut sequencer = leader(SessionTable::from_iter((1..=SESSIONS).map(session)));
    assert_eq!(sequencer.tick(Millis(5000), WallMillis(0)).expired.len() as i64, SESSIONS);
    let entries = entries(&mut sequencer);
    let closed: usize = entries.iter().map(|batch| batch.commands.len()).sum();
    assert_eq!(closed as i64, SESSIONS);
    for batch in &entries {
        let deleted = batch.commands.len() as u64 * EPHEMERALS as u64;
        assert!(deleted * cost::CHANGE <= cost::ENTRY_MAX, "{deleted} in one entry");
    }
    assert!(entries.len() < 20, "{} entries", entries.len());
}

/// They are weighed when they go into an entry: their ephemerals were created by commands ordered before them.
#[test]
fn sessions_that_end_right_behind_their_creates_go_in_several_entries() {
    const SESSIONS: i64 = 60;
    const EPHEMERALS: i64 = 2250;
    let session = Session { timeout_ms: 1000, password: [0; 16], owner: None, ephemerals: Ephemerals::default() };
    let mut sequencer = leader(SessionTable::from_iter((1..=SESSIONS).map(|id| (SessionId(id), session.clone()))));
    let of = |id, kind| Command { session: SessionId(id), identities: 0, ..Command::own(None, kind) };
    let ephemeral = |id: i64, number: i64| {
        WriteOp::Create(ops::Create {
            op: CreateOp::Create,
            path: Text::from(&*format!("/{id}-{number}")),
            data: None,
            acl: AclSpec::Open,
            flags: 1,
            ttl_ms: -1,
        })
    };
    for id in 1..=SESSIONS {
        let ops = (0..EPHEMERALS).map(|number| ephemeral(id, number)).collect();
        sequencer.enqueue(Millis(0), proposals(9, vec![of(id, CommandKind::Multi(ops))]));
    }
    let closings = (1..=SESSIONS).map(|id| of(id, CommandKind::CloseSession));
    sequencer.enqueue(Millis(0), proposals(9, closings.chain([write(0, 10)]).collect()));
    let (mut index, mut applied, mut deleted) = (0, 0, 0);
    // As a leader does: at most two entries are proposed and not applied.
    let mut proposed = VecDeque::new();
    loop {
        while proposed.len() < 2
            && let Some(batch) = sequencer.take_batch(WallMillis(1))
        {
            proposed.push_back(batch.encode());
            sequencer.proposed(batch);
        }
        let Some(payload) = proposed.pop_front() else { break };
        index += 1;
        let txns = sequencer.apply_entry(Millis(0), index, 1, &payload, true).expect("a batch").txns;
        let of_entry = |txn: &AppliedTxn| {
            if matches!(txn.session, Some(SessionChange::Closed(_))) { txn.changes.len() } else { 0 }
        };
        let together = txns.iter().map(of_entry).sum::<usize>();
        assert!(together as u64 * cost::CHANGE <= cost::ENTRY_MAX * 5 / 2, "{together} in one entry");
        (applied, deleted) = (applied + txns.len() as i64, deleted + together);
    }
    assert_eq!((applied, deleted as i64), (2 * SESSIONS + 1, SESSIONS * EPHEMERALS));
    assert_eq!(sequencer.commands_waiting(), 0);
}

#[test]
fn expensive_commands_do_not_share_an_entry_beyond_its_budget() {
    let mut sequencer = leader(SessionTable::default());
    let check = || WriteOp::Check(ops::Check { path: Text::from("/a"), version: -1 });
    let multi = |slot| Command { kind: CommandKind::Multi((0..10_000).map(|_| check()).collect()), ..write(slot, 0) };
    for slot in 0..5 {
        sequencer.enqueue(Millis(0), proposals(9, vec![write(slot, 10)]));
        sequencer.enqueue(Millis(0), proposals(9, vec![multi(slot)]));
    }
    let multis =
        |batch: &Batch| batch.commands.iter().filter(|command| matches!(command.kind, CommandKind::Multi(_))).count();
    let entries = entries(&mut sequencer);
    assert!(entries.iter().all(|batch| multis(batch) <= 1), "one a budget");
    assert_eq!(entries.iter().map(|batch| batch.commands.len()).sum::<usize>(), 10);
}

/// Of connections, shards and turns that share an entry: a user's long name is in the log once, for any number of
/// connections.
#[test]
fn connections_with_the_same_long_identities_share_one_copy() {
    let mut sequencer = leader(SessionTable::default());
    let own = |slot: u32, name: &str| {
        let identity = Identity { scheme: Text::from("digest"), id: Text::from(&*name.repeat(4000)) };
        let identities = vec![Arc::new(vec![identity])];
        let commands = vec![Command { identities: 0, ..write(slot, 100) }];
        Proposals { identities, commands, bytes: 4500, ..Proposals::default() }
    };
    let whom = |slot: u32| if slot % 50 == 7 { "v" } else { "u" };
    (0..100).for_each(|slot| sequencer.enqueue(Millis(0), own(slot, whom(slot))));
    let entries = entries(&mut sequencer);
    assert_eq!(entries.iter().map(|batch| batch.commands.len()).sum::<usize>(), 100);
    for batch in &entries {
        let bytes = batch.encode().len();
        assert!(batch.identities.len() <= 2 && bytes < 2 * 4100 + 200 * batch.commands.len(), "{bytes} bytes");
        for command in &batch.commands {
            let slot = command.origin.expect("a connection's").conn.slot;
            assert!(batch.identities[command.identities as usize][0].id.starts_with(whom(slot)));
        }
        assert_eq!(Batch::decode(&batch.encode()).as_ref(), Ok(batch));
    }
}

#[test]
fn identities_of_nobody_do_not_fill_an_entry() {
    let entry_bytes_max = 1 << 20;
    let mut sequencer = leader_with(entry_bytes_max, entry_bytes_max / 16, SessionTable::default());
    let command = Command { identities: 0, ..write(1, 0) };
    let nobody = vec![Arc::default(); entry_bytes_max / 2 * 3];
    let proposals = Proposals { identities: nobody, commands: vec![command], ..Proposals::default() };
    let mut bytes = Vec::new();
    PeerMessage::Forward(Forward { term: 1, sequence: 0, proposals }).encode(&mut bytes);
    let Ok(PeerMessage::Forward(forward)) = PeerMessage::decode(&bytes) else { panic!("it is no forward") };
    sequencer.enqueue(Millis(0), forward.proposals);
    let batch = sequencer.take_batch(WallMillis(1)).expect("a command waits");
    assert!(batch.encode().len() <= entry_bytes_max && batch.commands.len() == 1);
}

#[test]
fn what_a_follower_could_not_decode_in_its_memory_is_not_ordered() {
    let op = WriteOp::Check(ops::Check { path: Text::from("/"), version: -1 });
    for (ops, refused) in [(100_000, false), (600_000, true)] {
        let mut sequencer = leader_with(64 << 20, BATCH_BYTES_MAX, SessionTable::default());
        let multi = Command { kind: CommandKind::Multi(vec![op.clone(); ops]), ..write(0, 0) };
        sequencer.enqueue(Millis(0), Proposals { bytes: 128 * ops, ..proposals(9, vec![multi]) });
        let batch = sequencer.take_batch(WallMillis(1)).expect("a command waits");
        assert_eq!(matches!(batch.commands[0].kind, CommandKind::Undecodable), refused, "{ops} operations");
        assert_eq!(leader(SessionTable::default()).prepare(Index(1), Term(1), &batch.encode()), Ok(()));
    }
}
