//! Entries of logs, as each version wrote them, with their outcomes. No later version comes to another outcome. `golden/entries.txt` has
//! a line for each entry. It names the rules of evaluation, the entry, the outcome, and the digest of the tree. The bytes follow.
//!
//! `CORRAL_RECORD=1` adds the entries of a version that the file lacks. Lines in the file are never changed.

use corral_core::apply::StateMachine;
use corral_core::apply::outcome::{AppliedTxn, Outcome};
use corral_core::command::{Batch, Command, CommandKind};
use corral_core::features;
use corral_core::ids::{ConnId, Origin, ServerId, SessionId, ShardId, WallMillis};
use corral_core::ops;
use corral_core::ops::{CreateOp, OpResult, WriteOp};
use corral_core::session::SessionTable;
use corral_core::shared::{Data, Text};
use corral_core::tree::acl::{AclEntry, AclSpec, identity};
use corral_core::tree::view::View;
use corral_wire::ErrorCode;
use std::fmt::Write as _;
use std::sync::Arc;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/entries.txt");
const ORIGIN: Origin =
    Origin { server: ServerId(1), shard: ShardId(0), conn: ConnId { slot: 1, generation: 1 }, incarnation: 1 };
/// Before there were bounds, with the bounds of a budget, and with commands that a leader has judged.
const RULES: [(&str, u32); 3] =
    [("unbounded", 0), ("bounded", features::BOUNDS), ("admitted", features::BOUNDS | features::ADMITTED)];

fn outcome(txn: &AppliedTxn) -> String {
    let of = |result: &OpResult| match result {
        OpResult::Error(code) => code.code().to_string(),
        _ => "ok".to_owned(),
    };
    match &txn.outcome {
        Outcome::Op(result) => of(result),
        Outcome::Multi(results) => {
            let failed = results.iter().map(of).find(|result| result != "ok" && result != "0");
            failed.map_or_else(|| format!("all-{}", results.len()), |code| format!("none-{code}"))
        }
        Outcome::SessionCreated { session, .. } => format!("session-{:x}", session.0),
        Outcome::SessionClosed => "closed".to_owned(),
        other => panic!("no entry comes to {other:?}"),
    }
}

/// The entries of a log: a client creates a znode with a long ACL, and checks it in multis. The second multi costs more than the limit on
/// a command.
fn entries(rules: u32) -> Vec<(&'static str, CommandKind)> {
    let data = |text: &[u8]| Some(Data::from(text));
    let entry = |number: usize| match number {
        0 => AclEntry { perms: 31, scheme: Text::from("world"), id: Text::from("anyone") },
        _ => AclEntry { perms: 1, scheme: Text::from("digest"), id: Text::from(&*format!("{number}:h")) },
    };
    let list = AclSpec::List((0..256).rev().map(entry).collect());
    let path = || Text::from("/a");
    let checks = |count: usize| {
        let mut ops = vec![WriteOp::Check(ops::Check { path: path(), version: -1 }); count];
        ops.push(WriteOp::SetData(ops::SetData { path: path(), data: data(b"checked"), version: -1 }));
        CommandKind::Multi(ops)
    };
    let create = |path: &str, acl| {
        WriteOp::Create(ops::Create {
            op: CreateOp::Create,
            path: Text::from(path),
            data: data(b"data"),
            acl,
            flags: 0,
            ttl_ms: -1,
        })
    };
    let mut all = vec![
        ("session", CommandKind::CreateSession { timeout_ms: 10_000, password: [7; 16] }),
        ("create", CommandKind::Op(create("/a", list))),
        ("few-checks", checks(10)),
        ("many-checks", checks(500)),
        ("undecodable", CommandKind::Undecodable),
        ("delete-of-none", CommandKind::Op(WriteOp::Delete(ops::Delete { path: Text::from("/none"), version: -1 }))),
        ("create-open", CommandKind::Op(create("/b", AclSpec::Open))),
    ];
    if rules & features::ADMITTED != 0 {
        all.push(("refused", CommandKind::Refused(ErrorCode::ThrottledOp)));
    }
    all.push(("close", CommandKind::CloseSession));
    all
}

fn record(name: &str, rules: u32) -> String {
    let identity = |number: usize| identity("ip", &format!("10.0.0.{number}"));
    let (mut machine, mut lines, mut session) = (machine(), String::new(), SessionId(0));
    for (zxid, (entry, kind)) in (1 << 32 | 1..).zip(entries(rules)) {
        let commands = vec![Command { origin: Some(ORIGIN), session, identities: 0, kind }];
        // An ACL is held against each identity: with so many a check costs 50,000 units.
        let many = if entry == "many-checks" { 200 } else { 1 };
        let identities = vec![Arc::new((0..many).map(identity).collect())];
        let batch = Batch { time: WallMillis(5), first_zxid: zxid, features: rules, identities, commands };
        let bytes = batch.encode();
        let applied = machine.apply(batch, 1);
        if let Outcome::SessionCreated { session: created, .. } = applied.txns[0].outcome {
            session = created;
        }
        let (outcome, digest) = (outcome(&applied.txns[0]), machine.view().digest());
        let _ = write!(lines, "{name} {entry} {outcome} {digest:016x} ");
        for byte in bytes {
            let _ = write!(lines, "{byte:02x}");
        }
        lines.push('\n');
    }
    lines
}

fn machine() -> StateMachine {
    StateMachine::new(View::empty(7), SessionTable::default())
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
    (0..hex.len()).step_by(2).map(digit).collect()
}

#[test]
fn entries_of_each_version_come_to_what_they_came_to() {
    let mut file = std::fs::read_to_string(FILE).unwrap_or_default();
    if std::env::var_os("CORRAL_RECORD").is_some() {
        for (name, rules) in RULES {
            if !file.lines().any(|line| line.starts_with(name)) {
                file += &record(name, rules);
            }
        }
        std::fs::write(FILE, &file).expect("the file can be written");
    }
    for (name, rules) in RULES {
        let (mut machine, mut throttled) = (machine(), 0);
        let of_version = file.lines().filter(|line| line.split(' ').next() == Some(name));
        let mut count = 0;
        for line in of_version {
            let [_, entry, expected, digest, hex] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            let batch = Batch::decode(&bytes_of(hex)).expect("this version reads it");
            assert_eq!(batch.features, rules, "{name} {entry}");
            let applied = machine.apply(batch, 1);
            assert_eq!(outcome(&applied.txns[0]), expected, "{name} {entry}");
            assert_eq!(format!("{:016x}", machine.view().digest()), digest, "{name} {entry}");
            throttled += usize::from(expected.contains(&ErrorCode::ThrottledOp.code().to_string()));
            count += 1;
        }
        assert!(count >= 8, "{name}: {count} entries");
        assert_eq!(throttled, usize::from(name != "unbounded"), "{name}: by its budget, or by its leader");
    }
}
