//! Servers that get the same commands in different turns, and a server that only reads their log. Shared by the tests
//! of the limits on writes. Each entry is held against what an entry may cost, and all states must be equal in the end.

#![allow(dead_code, unreachable_pub, reason = "each module uses its part")]

use corral_core::apply::StateMachine;
use corral_core::apply::outcome::{AppliedTxn, Outcome};
use corral_core::command::{Command, CommandKind, Proposals};
use corral_core::cost::{COMMAND_MAX, ENTRY_MAX};
use corral_core::ids::{ConnId, Millis, Origin, ServerId, SessionId, ShardId, WallMillis};
use corral_core::ops;
use corral_core::ops::{CreateOp, OpResult, WriteOp};
use corral_core::sequencer::{Sequencer, SequencerConfig};
use corral_core::session::{Ephemerals, Session, SessionTable};
use corral_core::shared::{Data, Text};
use corral_core::tree::acl::{Acl, AclSpec, Identity};
use corral_core::tree::change::Change;
use corral_core::tree::view::View;
use corral_core::tree::znode::{Owner, Znode};
use corral_wire::ErrorCode;
use std::sync::Arc;

const ORIGIN: Origin =
    Origin { server: ServerId(1), shard: ShardId(0), conn: ConnId { slot: 1, generation: 1 }, incarnation: 1 };
/// The session that asks for everything.
pub const SESSION: SessionId = SessionId(0x0100_0000_0000_0001);

/// The state before the first command.
pub struct World {
    pub view: View,
    pub sessions: SessionTable,
    pub features: u32,
}

impl World {
    pub fn new(features: u32) -> Self {
        let mut world = Self { view: View::empty(7), sessions: SessionTable::default(), features };
        world.session(SESSION, Ephemerals::default());
        world
    }

    /// A session that owns these paths, whether they exist or not.
    pub fn session(&mut self, id: SessionId, ephemerals: Ephemerals) {
        let session = Session { timeout_ms: 10_000, password: [0; 16], owner: Some(ORIGIN), ephemerals };
        self.sessions.insert(id, session);
    }

    pub fn znode(&mut self, path: &str, owner: Owner) {
        let node = Znode { stat: corral_core::tree::znode::NodeStat::default(), acl: Acl::Open, data: None };
        let node =
            Arc::new(Znode { stat: corral_core::tree::znode::NodeStat { owner: owner.bits(), ..node.stat }, ..node });
        let (at, zxid) = (self.view.hashed(Text::from(path)), self.view.zxid());
        self.view.apply(zxid, &Change::Created { at, node });
    }

    /// Has the names of this znode's children be so many bytes.
    pub fn names_bytes(&mut self, path: &str, bytes: u64) {
        let mut node = Znode::clone(&self.view.get(path).expect("it exists").to_znode());
        node.stat.names_bytes = bytes;
        let (at, zxid) = (self.view.hashed(Text::from(path)), self.view.zxid());
        self.view.apply(zxid, &Change::Quiet { at, node: Arc::new(node) });
    }

    /// A session with so many ephemerals, all of them below one znode.
    pub fn with_ephemerals(&mut self, id: SessionId, parent: &str, count: usize) {
        self.znode(parent, Owner::Persistent);
        let paths: Vec<String> = (0..count).map(|number| format!("{parent}/{number:05}")).collect();
        paths.iter().for_each(|path| self.znode(path, Owner::Session(id)));
        self.session(id, paths.iter().map(|path| Text::from(&**path)).collect());
    }

    fn machine(&self) -> StateMachine {
        StateMachine::new(self.view.clone(), self.sessions.clone())
    }
}

/// The results of the commands.
pub struct Applied {
    pub txns: Vec<AppliedTxn>,
    pub machine: Sequencer,
    /// Units of each entry, and commands in it.
    pub entries: Vec<(u64, usize)>,
}

impl Applied {
    /// The results of each command, one for each operation of a multi.
    pub fn results(&self) -> Vec<Vec<OpResult>> {
        let of = |txn: &AppliedTxn| match &txn.outcome {
            Outcome::Op(result) => vec![result.clone()],
            Outcome::Multi(results) => results.clone(),
            _ => Vec::new(),
        };
        self.txns.iter().map(of).collect()
    }

    /// The codes of those answers.
    pub fn codes(&self) -> Vec<Vec<Option<ErrorCode>>> {
        self.results().iter().map(|results| results.iter().map(refused).collect()).collect()
    }

    pub fn view(&self) -> &View {
        self.machine.machine().view()
    }

    pub fn sessions(&self) -> &SessionTable {
        self.machine.machine().sessions()
    }
}

pub fn refused(result: &OpResult) -> Option<ErrorCode> {
    if let OpResult::Error(code) = result { Some(*code) } else { None }
}

/// Has two leaders order the commands, which come to them in turns of these sizes, and a third server replay what the first
/// logged. All come to the same state and give the same answers; what the first came to is returned.
pub fn apply(world: &World, identities: &[Identity], commands: &[CommandKind], cuts: (usize, usize)) -> Applied {
    let mut replica = sequencer(world);
    let mut first = lead(world, identities, commands, cuts.0, Some(&mut replica));
    let second = lead(world, identities, commands, cuts.1, None);
    assert_eq!(first.txns.len(), commands.len());
    for (one, other) in first.txns.iter().zip(&second.txns) {
        assert_eq!((one.zxid, &one.outcome), (other.zxid, &other.outcome), "an answer depends on the turn");
    }
    first.machine.end_leadership();
    for other in [&second.machine, &replica] {
        assert_equal(first.machine.machine(), other.machine());
    }
    first
}

fn assert_equal(one: &StateMachine, other: &StateMachine) {
    let walk = |machine: &StateMachine| {
        let mut nodes = Vec::new();
        machine.view().walk("/", |path, node| {
            nodes.push((path.to_owned(), node.to_znode()));
            true
        });
        nodes
    };
    assert_eq!(one.view().digest(), other.view().digest(), "the states differ");
    assert!(walk(one) == walk(other) && one.sessions().iter().eq(other.sessions().iter()), "the states differ");
}

fn sequencer(world: &World) -> Sequencer {
    let config = SequencerConfig {
        tick_ms: 100,
        features: world.features,
        entry_bytes_max: 16 << 20,
        ..SequencerConfig::default()
    };
    Sequencer::new(config, world.machine(), 0, 0)
}

fn lead(
    world: &World,
    identities: &[Identity],
    commands: &[CommandKind],
    cut: usize,
    mut replica: Option<&mut Sequencer>,
) -> Applied {
    let mut machine = sequencer(world);
    machine.begin_leadership(Millis(0), 1);
    let mut applied = Applied { txns: Vec::new(), machine, entries: Vec::new() };
    let identities = vec![Arc::new(identities.to_vec())];
    // Every other turn finds the entry of the one before it under way, so that two share an entry.
    for (turn, piece) in commands.chunks(cut.max(1)).enumerate() {
        let command =
            |kind: &CommandKind| Command { origin: Some(ORIGIN), session: SESSION, identities: 0, kind: kind.clone() };
        let commands: Vec<Command> = piece.iter().map(command).collect();
        let bytes = commands.iter().map(|command| bytes_of(&command.kind)).sum();
        let identities = identities.clone();
        applied.machine.enqueue(Millis(0), Proposals { identities, commands, bytes, ..Proposals::default() });
        if turn % 2 == 1 {
            order(&mut applied, replica.as_deref_mut());
        }
    }
    order(&mut applied, replica);
    applied
}

/// Everything that waits goes through the log.
fn order(applied: &mut Applied, mut replica: Option<&mut Sequencer>) {
    let Applied { txns, machine, entries } = applied;
    while let Some(batch) = machine.take_batch(WallMillis(1)) {
        let (payload, commands, index) = (batch.encode(), batch.commands.len(), machine.index() + 1);
        machine.proposed(batch);
        let before = machine.machine().units_spent();
        txns.extend(machine.apply_entry(Millis(0), index, 1, &payload, true).expect("our own").txns);
        let units = machine.machine().units_spent() - before;
        assert!(units <= ENTRY_MAX + COMMAND_MAX, "an entry of {commands} commands cost {units} units");
        entries.push((units, commands));
        if let Some(replica) = &mut replica {
            replica.apply_entry(Millis(0), index, 1, &payload, false).expect("a batch");
        }
    }
}

fn bytes_of(kind: &CommandKind) -> usize {
    let of_op = |op: &WriteOp| match op {
        WriteOp::Create(ops::Create { path, acl, .. }) | WriteOp::SetAcl(ops::SetAcl { path, acl, .. }) => {
            let list = if let AclSpec::List(list) = acl { &list[..] } else { &[] };
            path.len() + list.iter().map(|entry| 20 + entry.scheme.len() + entry.id.len()).sum::<usize>()
        }
        WriteOp::SetData(ops::SetData { path, data, .. }) => path.len() + data.as_ref().map_or(0, |data| data.len()),
        WriteOp::Delete(ops::Delete { path, .. }) | WriteOp::Check(ops::Check { path, .. }) => path.len(),
        _ => 0,
    };
    let bytes = match kind {
        CommandKind::Op(op) => of_op(op),
        CommandKind::Multi(ops) => ops.iter().map(|op| 24 + of_op(op)).sum(),
        _ => 0,
    };
    bytes + 120
}

pub fn create(path: &str) -> WriteOp {
    create_as(path, AclSpec::Open, 0)
}

/// `flags`: 1 for an ephemeral, 2 for a sequential name.
pub fn create_as(path: &str, acl: AclSpec, flags: i32) -> WriteOp {
    WriteOp::Create(ops::Create { op: CreateOp::Create, path: Text::from(path), data: None, acl, flags, ttl_ms: -1 })
}

pub fn delete(path: &str) -> WriteOp {
    WriteOp::Delete(ops::Delete { path: Text::from(path), version: -1 })
}

pub fn set(path: &str, bytes: usize) -> WriteOp {
    let data = Some(Data::from(vec![b'x'; bytes].as_slice()));
    WriteOp::SetData(ops::SetData { path: Text::from(path), data, version: -1 })
}

pub fn check(path: &str) -> WriteOp {
    WriteOp::Check(ops::Check { path: Text::from(path), version: -1 })
}
