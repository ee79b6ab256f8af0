//! ClickHouse Keeper's operations and system nodes by data.

use super::super::*;
use super::{World, create, delete, refused, set};
use crate::command::CommandKind;
use crate::ops;
use crate::ops::remove_recursive::REMOVED_MAX;
use crate::ops::{CreateOp, STAT_FIELDS};
use crate::shared::Data;
use crate::tree::acl::{AclEntry, AclSpec};
use crate::tree::view::marks_at_most;
use alloc::boxed::Box;
use alloc::format;
use corral_wire::OpCode;

fn world() -> World {
    let mut world = World::new(features::KEEPER | features::EXTENDED_TYPES);
    let nodes = system_nodes(world.machine.view()).expect("a new tree lacks them");
    world.command(CommandKind::SystemNodes(nodes), None);
    for path in ["/a", "/a/b", "/a/b/c", "/a/d"] {
        world.op(create(path, "x"));
    }
    world
}

fn ensure(path: &str, flags: i32) -> WriteOp {
    let (path, data) = (Text::from(path), Some(Data::from(&b"new"[..])));
    WriteOp::Create(ops::Create { op: CreateOp::IfNotExists, path, data, acl: AclSpec::Open, flags, ttl_ms: -1 })
}

fn remove(path: &str, limit: u32) -> WriteOp {
    WriteOp::RemoveRecursive(ops::RemoveRecursive { path: Text::from(path), limit })
}

fn try_remove(path: &str, version: i32) -> WriteOp {
    WriteOp::TryRemove(ops::TryRemove { path: Text::from(path), version })
}

fn absent(path: &str, version: i32) -> WriteOp {
    WriteOp::CheckNotExists(ops::CheckNotExists { path: Text::from(path), version })
}

fn guarded(path: &str, perms: i32) -> WriteOp {
    let entry = AclEntry { perms, scheme: Text::from("world"), id: Text::from("anyone") };
    WriteOp::SetAcl(ops::SetAcl { path: Text::from(path), acl: AclSpec::List(vec![entry]), version: -1 })
}

#[test]
fn system_nodes_are_there_once_and_for_reading() {
    let mut world = world();
    assert_eq!(system_nodes(world.machine.view()), None);
    assert_eq!(
        world.machine.view().get("/keeper/feature_flags").and_then(|node| node.data()),
        Some(&[0b1011_1011, 0b1110_0000][..])
    );
    let below = "/keeper/feature_flags/x";
    let ops = [
        set("/keeper", "", -1),
        delete("/keeper/api_version"),
        create(below, ""),
        create("/keeper/x", ""),
        guarded("/keeper", 31),
        ensure("/keeper", 0),
        try_remove("/keeper", -1),
        remove("/keeper", 9),
        absent("/keeper", -1),
        WriteOp::Check(ops::Check { path: Text::from("/keeper/api_version"), version: -1 }),
    ];
    for op in ops {
        assert_eq!(refused(&world.op(op.clone())), Some(ErrorCode::BadArguments), "{op:?}");
    }
    assert_eq!(refused(&world.op(create("/keeper2", ""))), None);
    world.features = 0;
    assert_eq!(refused(&world.op(set("/keeper/api_version", "9", -1))), None, "without the feature they are plain");
    let nodes = system_nodes(world.machine.view()).expect("changed since");
    world.command(CommandKind::SystemNodes(nodes), None);
    assert_eq!(world.text("/keeper/api_version"), "1");
}

#[test]
fn removals_count_marks_of_deleted_children() {
    const REMOVALS: u64 = 100;
    let spent = [features::BOUNDED, features::BOUNDS].map(|features| {
        let mut world = world();
        world.features |= features;
        let pairs = (0..4000).flat_map(|_| [create("/a/0", ""), delete("/a/0")]);
        assert!(world.multi(pairs.collect()).iter().all(|one| refused(one).is_none()));
        let before = world.machine.units_spent();
        // Deletions of an operation in the same transaction are still passed over by the next one.
        let again = (0..REMOVALS).flat_map(|_| [remove("/a", 9), create("/a", ""), create("/a/b", "")]);
        assert!(world.multi(again.collect()).iter().all(|one| refused(one).is_none()));
        world.machine.units_spent() - before
    });
    let stat = world().machine.view().get("/a").expect("made").stat();
    assert!(spent[1] - spent[0] > REMOVALS * 15 * marks_at_most(&stat).0, "{spent:?}");
}

#[test]
fn removals_count_what_the_same_transaction_deleted() {
    for (features, fits) in [(features::BOUNDED, true), (features::BOUNDS, false)] {
        let mut world = world();
        world.features |= features;
        let child = |at: u32| format!("/a/{at:0>2000}");
        for at in 0..400 {
            assert_eq!(refused(&world.op(create(&child(at), ""))), None);
        }
        let deleted = (0..400).map(|at| delete(&child(at)));
        let again = (0..60).flat_map(|_| [remove("/a", 900), create("/a", "")]);
        let results = world.multi(deleted.chain(again).collect());
        assert_eq!(results.iter().all(|one| refused(one).is_none()), fits, "{features}");
    }
}

#[test]
fn ensuring() {
    let mut world = world();
    let path = |path: &str| OpResult::Ensured { path: Text::from(path) };
    assert_eq!(world.op(ensure("/a", 0)), path("/a"));
    assert_eq!(world.text("/a"), "x", "left alone");
    assert_eq!(world.op(ensure("/n", 0)), path("/n"));
    assert_eq!(world.text("/n"), "new");
    assert_eq!(world.op(ensure("/e", 1)), path("/e"));
    assert_eq!(refused(&world.op(ensure("/s", 2))), Some(ErrorCode::BadArguments), "what would exist is not known");
    assert_eq!(refused(&world.op(ensure("/none/n", 0))), Some(ErrorCode::NoNode));
    assert_eq!(world.multi(vec![ensure("/m", 0), ensure("/m", 0)]), [path("/m"), path("/m")]);
}

#[test]
fn checks() {
    let mut world = world();
    let done = |op| Ok(OpResult::Done(op));
    let outcome = |result: OpResult| refused(&result).map_or(Ok(result), Err);
    assert_eq!(outcome(world.op(absent("/none", -1))), done(OpCode::CheckNotExists));
    assert_eq!(outcome(world.op(absent("/none/n", 7))), done(OpCode::CheckNotExists));
    assert_eq!(outcome(world.op(absent("/a", -1))), Err(ErrorCode::NodeExists));
    assert_eq!(outcome(world.op(absent("/a", 0))), Err(ErrorCode::NodeExists));
    assert_eq!(outcome(world.op(absent("/a", 1))), done(OpCode::CheckNotExists));
    let stat = ops::check_stat::fields(&world.machine.view().get("/a").expect("made").wire_stat());
    let check = |version, stat: [i64; STAT_FIELDS]| {
        WriteOp::CheckStat(ops::CheckStat { path: Text::from("/a"), version, stat: Box::new(stat) })
    };
    assert_eq!(outcome(world.op(check(0, stat))), done(OpCode::CheckStat));
    assert_eq!(outcome(world.op(check(-1, [-1; STAT_FIELDS]))), done(OpCode::CheckStat));
    assert_eq!(outcome(world.op(check(1, [-1; STAT_FIELDS]))), Err(ErrorCode::BadVersion));
    for field in 0..STAT_FIELDS {
        let mut other = [-1; STAT_FIELDS];
        other[field] = stat[field] + 1;
        assert_eq!(outcome(world.op(check(-1, other))), Err(ErrorCode::BadVersion), "field {field}");
        other[field] = stat[field];
        assert_eq!(outcome(world.op(check(-1, other))), done(OpCode::CheckStat), "field {field}");
    }
    world.op(guarded("/a", 30));
    assert_eq!(outcome(world.op(check(-1, [-1; STAT_FIELDS]))), Err(ErrorCode::NoAuth));
    assert_eq!(outcome(world.op(absent("/a", 5))), Err(ErrorCode::NoAuth));
}

#[test]
fn trying_to_remove() {
    let mut world = world();
    let removed = OpResult::Done(OpCode::TryRemove);
    for (path, version) in [("/none", -1), ("/none/n", -1), ("/a", -1), ("/a/d", 5)] {
        assert_eq!(world.op(try_remove(path, version)), removed, "{path}");
    }
    assert!(world.machine.view().get("/a/d").is_some());
    assert_eq!(world.op(try_remove("/a/d", 0)), removed);
    assert!(world.machine.view().get("/a/d").is_none());
    world.op(guarded("/a", 1));
    assert_eq!(refused(&world.op(try_remove("/a/b", -1))), Some(ErrorCode::NoAuth));
    assert_eq!(refused(&world.op(try_remove("/", -1))), Some(ErrorCode::BadArguments));
}

#[test]
fn removing_subtrees() {
    let mut world = world();
    let removed = OpResult::Done(OpCode::RemoveRecursive);
    for (path, limit, code) in [
        ("/", 9, ErrorCode::BadArguments),
        ("/zookeeper", 9, ErrorCode::BadArguments),
        ("a", 9, ErrorCode::BadArguments),
        ("/a", 3, ErrorCode::NotEmpty),
        ("/a", 0, ErrorCode::NotEmpty),
    ] {
        assert_eq!(refused(&world.op(remove(path, limit))), Some(code), "{path} {limit}");
    }
    assert_eq!(world.op(remove("/none", 9)), removed);
    assert_eq!(world.op(remove("/none/n", 9)), removed);
    world.op(guarded("/a/b/c", 16));
    assert_eq!(refused(&world.op(remove("/a", 9))), Some(ErrorCode::NoAuth));
    world.op(guarded("/a/b/c", 8 + 16));
    world.op(create("/ab", "a neighbour"));
    let changes = world.command(CommandKind::Op(remove("/a", 4)), world.origin()).changes;
    let paths: Vec<_> = changes.iter().map(|change| &*change.at().path).collect();
    assert_eq!(paths, ["/a/d", "/a/b/c", "/a/b", "/a"]);
    assert_eq!(world.machine.view().get("/").map(|node| node.stat().num_children), Some(3));
}

#[test]
fn removing_what_the_same_multi_made() {
    let mut world = world();
    let mut ops = vec![create("/a/new", ""), delete("/a/d"), create("/a/new/x", ""), set("/a/b", "y", -1)];
    ops.extend([remove("/a", 5), create("/a", "again"), create("/a/b", ""), remove("/a/b", 1)]);
    assert!(world.multi(ops).iter().all(|result| refused(result).is_none()));
    let left: Vec<_> = world.machine.view().children("/a").expect("made again").collect();
    assert!(left.is_empty(), "{left:?}");
    let failed = world.multi(vec![create("/a/x", ""), remove("/a", 1)]);
    assert_eq!(refused(&failed[1]), Some(ErrorCode::NotEmpty));
}

#[test]
fn one_transaction_removes_no_more_than_its_share() {
    let mut world = world();
    let many: Vec<WriteOp> = (0..REMOVED_MAX).map(|at| create(&format!("/a/d/{at}"), "")).collect();
    world.multi(many);
    assert_eq!(refused(&world.op(remove("/a/d", u32::MAX))), Some(ErrorCode::NotEmpty));
    world.op(delete("/a/d/0"));
    let failed = world.multi(vec![remove("/a/d", u32::MAX), remove("/a", u32::MAX)]);
    assert_eq!(refused(&failed[1]), Some(ErrorCode::NotEmpty));
    assert_eq!(refused(&world.op(remove("/a/d", u32::MAX))), None);
}
