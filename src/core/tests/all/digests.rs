//! Digests of the tree are equal to those of a ZooKeeper over the same history: same transactions, same zxids and
//! times. `golden/record_digests.py` recorded them from ZooKeeper's own transaction log.

use corral_core::features;
use corral_core::ops;
use corral_core::ops::{CreateOp, WriteOp};
use std::sync::Arc;

use corral_core::apply::StateMachine;
use corral_core::command::{Batch, Command, CommandKind};
use corral_core::ids::{ConnId, Origin, ServerId, SessionId, ShardId, WallMillis, Zxid};
use corral_core::session::{Ephemerals, Session, SessionTable};
use corral_core::shared::{Data, Text};
use corral_core::tree::acl::{AclEntry, AclSpec, identity};
use corral_core::tree::digest::of_znode;
use corral_core::tree::snapshot::{SnapshotFault, merge_in_memory};
use corral_core::tree::view::View;

/// Of every entry.
const TERM: u64 = 1;
const HISTORY: &str = include_str!("../golden/digests.txt");
const ORIGIN: Origin =
    Origin { server: ServerId(1), shard: ShardId(0), conn: ConnId { slot: 0, generation: 1 }, incarnation: 1 };

fn data(text: &str) -> Option<Data> {
    let hex = text.strip_prefix('x')?;
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
    Some(Data::from((0..hex.len()).step_by(2).map(byte).collect::<Vec<u8>>().as_slice()))
}

fn create(op: CreateOp, path: &str, content: &str, flags: i32, ttl_ms: i64) -> WriteOp {
    WriteOp::Create(ops::Create { op, path: Text::from(path), data: data(content), acl: AclSpec::Open, flags, ttl_ms })
}

fn operation(text: &str) -> WriteOp {
    let words: Vec<&str> = text.split(' ').collect();
    let path = Text::from(words[1]);
    match words[0] {
        "create" => create(CreateOp::Create, words[1], words[2], words[3].parse().expect("0 or 1"), -1),
        "container" => create(CreateOp::Container, words[1], words[2], 4, -1),
        "ttl" => create(CreateOp::Ttl, words[1], words[2], 5, words[3].parse().expect("milliseconds")),
        "delete" => WriteOp::Delete(ops::Delete { path, version: -1 }),
        "set" => WriteOp::SetData(ops::SetData { path, data: data(words[2]), version: -1 }),
        "check" => WriteOp::Check(ops::Check { path, version: -1 }),
        "acl" => {
            let perms = words[2].parse().expect("permissions");
            let entry = AclEntry { perms, scheme: Text::from("world"), id: Text::from("anyone") };
            let acl = if perms == 31 { AclSpec::Open } else { AclSpec::List(vec![entry]) };
            WriteOp::SetAcl(ops::SetAcl { path, acl, version: -1 })
        }
        other => panic!("{other}"),
    }
}

fn walked(view: &View) -> u64 {
    let mut sum = 0_u64;
    view.walk("/", |path, node| {
        sum = sum.wrapping_add(of_znode(path, node.data(), &node.stat()));
        true
    });
    sum
}

/// A state machine that has the sessions of the history, by ZooKeeper's ids.
fn machine() -> StateMachine {
    let mut sessions = SessionTable::new();
    for line in HISTORY.lines().filter(|line| line.ends_with(" session")) {
        let id = line.split(' ').nth(3).and_then(|id| id.parse().ok()).expect("a session id");
        let session =
            Session { timeout_ms: 10_000, password: [1; 16], owner: Some(ORIGIN), ephemerals: Ephemerals::default() };
        sessions.insert(SessionId(id), session);
    }
    StateMachine::new(View::empty(7), sessions)
}

#[test]
fn digests_are_those_of_zookeeper_after_each_transaction() {
    let mut machine = machine();
    let mut logged = Vec::new();
    for (number, line) in HISTORY.lines().enumerate() {
        let fields: Vec<&str> = line.splitn(5, ' ').collect();
        let zxid = u64::from_str_radix(fields[0], 16).expect("a zxid");
        let kind = match fields[4] {
            "session" | "error" => None,
            "close" => Some(CommandKind::CloseSession),
            ops if ops.contains(" ; ") => {
                let ops: Vec<&str> = ops.split(" ; ").collect();
                (!ops.contains(&"error")).then(|| CommandKind::Multi(ops.into_iter().map(operation).collect()))
            }
            op => Some(CommandKind::Op(operation(op))),
        };
        if let Some(kind) = kind {
            let session = SessionId(fields[3].parse().expect("a session"));
            let batch = Batch {
                time: WallMillis(fields[1].parse().expect("a time")),
                first_zxid: zxid,
                features: features::EXTENDED_TYPES,
                identities: vec![Arc::new(vec![identity("ip", "127.0.0.1")])],
                commands: vec![Command { origin: Some(ORIGIN), session, identities: 0, kind }],
            };
            machine.apply(batch, TERM);
        }
        let digest = machine.view().tree_digest();
        if fields[2] != "-" {
            assert_eq!(digest, fields[2].parse().ok(), "line {}: {line}", number + 1);
            if zxid.is_multiple_of(128) {
                logged.push((Zxid(zxid), fields[2].parse().expect("a digest")));
            }
        }
        assert_eq!(digest, Some(walked(machine.view())), "line {}: {line}", number + 1);
        if number % 40 == 39 {
            // A snapshot in between: its digest, from all of its znodes, is equal to the kept one. Otherwise it is not
            // made.
            let delta = machine.view_mut().freeze();
            let snapshot =
                merge_in_memory(machine.view().snapshot(), &delta, 1, Vec::new(), Vec::new()).expect("a snapshot");
            assert_eq!(Some(snapshot.digest()), digest);
            machine.view_mut().swap_snapshot(Arc::new(snapshot));
            assert_eq!(machine.view().tree_digest(), digest);
        }
    }
    assert!(!logged.is_empty(), "the history crosses a multiple of 128");
    assert_eq!(machine.view().digest_log().iter().copied().collect::<Vec<_>>(), logged);
}

/// A machine with one znode at the first zxid.
fn with_one(content: &str) -> StateMachine {
    let mut machine = machine();
    apply(&mut machine, 1, create(CreateOp::Create, "/one", content, 0, -1));
    machine
}

fn apply(machine: &mut StateMachine, first_zxid: u64, op: WriteOp) {
    let session = machine.sessions().iter().next().map_or(SessionId(0), |(id, _)| *id);
    let command = Command { origin: Some(ORIGIN), session, identities: 0, kind: CommandKind::Op(op) };
    let batch = Batch {
        time: WallMillis(1),
        first_zxid,
        features: features::EXTENDED_TYPES,
        identities: vec![Arc::new(vec![identity("ip", "127.0.0.1")])],
        commands: vec![command],
    };
    machine.apply(batch, TERM);
}

#[test]
fn a_snapshot_is_not_made_of_znodes_that_the_changes_did_not_lead_to() {
    let (mut right, mut wrong) = (with_one("x01"), with_one("x02"));
    let snapshot = |machine: &mut StateMachine| {
        let delta = machine.view_mut().freeze();
        merge_in_memory(machine.view().snapshot(), &delta, 1, Vec::new(), Vec::new()).expect("a snapshot")
    };
    let (below, other) = (snapshot(&mut right), snapshot(&mut wrong));
    right.view_mut().swap_snapshot(Arc::new(below));
    apply(&mut right, 2, create(CreateOp::Create, "/two", "x", 0, -1));
    let delta = right.view_mut().freeze();
    let merge = |below| merge_in_memory(below, &delta, 1, Vec::new(), Vec::new());
    let digest = right.view().tree_digest();
    assert_eq!(merge(right.view().snapshot()).map(|snapshot| snapshot.digest()).ok(), digest);
    let refused = merge(&other).expect_err("its digest differs");
    assert!(matches!(refused, SnapshotFault::Diverged { kept, .. } if Some(kept) == digest), "{refused}");
}

#[test]
fn large_data_of_a_snapshot_count_by_the_crc_that_was_taken_when_it_was_opened() {
    let mut machine = machine();
    let large = format!("x{}", "5a".repeat(5000));
    let mut zxid = 0;
    let mut next = |machine: &mut StateMachine, op| {
        zxid += 1;
        apply(machine, zxid, op);
        assert_eq!(machine.view().tree_digest(), Some(walked(machine.view())), "zxid {zxid}");
    };
    let paths: Vec<String> = (0..12).map(|at| format!("/n{at}")).chain([String::from("/zookeeper/large")]).collect();
    for (at, path) in paths.iter().enumerate() {
        let content = if at % 3 == 1 { "x01" } else { large.as_str() };
        next(&mut machine, create(CreateOp::Create, path, content, 0, -1));
    }
    let delta = machine.view_mut().freeze();
    let snapshot = merge_in_memory(machine.view().snapshot(), &delta, 2, Vec::new(), Vec::new()).expect("a snapshot");
    machine.view_mut().swap_snapshot(Arc::new(snapshot));
    for (at, path) in paths.iter().enumerate() {
        match at % 4 {
            0 => next(&mut machine, WriteOp::Delete(ops::Delete { path: Text::from(path.as_str()), version: -1 })),
            1 => next(
                &mut machine,
                WriteOp::SetData(ops::SetData { path: Text::from(path.as_str()), data: None, version: -1 }),
            ),
            2 => next(&mut machine, create(CreateOp::Create, &format!("{path}/c"), "x", 0, -1)),
            _ => {}
        }
    }
}
