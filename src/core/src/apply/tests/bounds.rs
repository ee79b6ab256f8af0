//! Budgets of commands, and limits on created znodes.

use crate::limits::EPHEMERALS_BYTES_MAX;
use crate::limits::EPHEMERALS_PER_SESSION_MAX;
use crate::limits::NAME_BYTES_MAX;
use crate::limits::NAMES_BYTES_MAX;
use crate::limits::PATH_BYTES_MAX;
use crate::limits::PATH_LEVELS_MAX;
use crate::ops;
use crate::ops::caller::EPHEMERALS_FORMERLY_MAX;
use crate::ops::{CreateOp, OpResult, WriteOp};
use crate::quota::QUOTAS_MAX;
use crate::tree::znode::name_bytes;

use super::super::*;
use super::{World, create, delete, refused, set};
use crate::command::CommandKind;
use crate::cost;
use crate::shared::Text;
use crate::tree::acl::{AclEntry, AclSpec};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

const LIMITS: [u32; 2] = [features::BOUNDED, 0];

fn with_acl(path: &str, entries: Vec<AclEntry>) -> WriteOp {
    let acl = AclSpec::List(entries);
    WriteOp::Create(ops::Create { op: CreateOp::Create, path: Text::from(path), data: None, acl, flags: 0, ttl_ms: -1 })
}

fn ephemeral(path: &str) -> WriteOp {
    let path = Text::from(path);
    WriteOp::Create(ops::Create { op: CreateOp::Create, path, data: None, acl: AclSpec::Open, flags: 1, ttl_ms: -1 })
}

fn check(path: &str) -> WriteOp {
    WriteOp::Check(ops::Check { path: Text::from(path), version: -1 })
}

#[test]
fn a_multi_of_checks_against_a_long_acl_has_a_budget() {
    for features in LIMITS {
        let mut world = World::new(features);
        let entry = |number: i32| AclEntry {
            perms: if number == 0 { 31 } else { 1 },
            scheme: Text::from(if number == 0 { "world" } else { "ip" }),
            id: Text::from(&*if number == 0 { String::from("anyone") } else { format!("10.9.0.{number}") }),
        };
        let made = world.op(with_acl("/a", (0..256).rev().map(entry).collect()));
        assert_eq!(refused(&made), None);
        let results = world.multi((0..54_000).map(|_| check("/a")).collect());
        let throttled = results.iter().any(|result| refused(result) == Some(ErrorCode::ThrottledOp));
        assert_eq!(throttled, features & features::BOUNDED != 0);
        let few = world.multi((0..1000).map(|_| check("/a")).collect());
        assert!(few.iter().all(|result| *result == OpResult::CHECKED));
    }
}

#[test]
fn a_usual_multi_of_a_whole_frame_is_within_its_budget() {
    let mut world = World::new(features::BOUNDED);
    let results = world.multi((0..15_000).map(|number| create(&format!("/{number}"), "")).collect());
    assert!(results.iter().all(|result| refused(result).is_none()));
    let results = world.multi((0..15_000).map(|number| delete(&format!("/{number}"))).collect());
    assert!(results.iter().all(|result| refused(result).is_none()));
}

#[test]
fn paths_and_names_have_limits() {
    let deep = |levels: usize| "/a".repeat(levels);
    for features in LIMITS {
        let mut world = World::new(features);
        let bounded = features & features::BOUNDED != 0;
        let beyond = bounded.then_some(ErrorCode::BadArguments);
        assert_eq!(refused(&world.op(create(&format!("/{}", "n".repeat(NAME_BYTES_MAX)), ""))), None);
        assert_eq!(refused(&world.op(create(&format!("/{}", "n".repeat(NAME_BYTES_MAX + 1)), ""))), beyond);
        for level in 1..=PATH_LEVELS_MAX {
            assert_eq!(refused(&world.op(create(&deep(level), ""))), None);
        }
        assert_eq!(refused(&world.op(create(&deep(PATH_LEVELS_MAX + 1), ""))), beyond);
        let mut long = String::new();
        while long.len() + NAME_BYTES_MAX < PATH_BYTES_MAX {
            long.push('/');
            long.push_str(&"l".repeat(NAME_BYTES_MAX - 1));
            assert_eq!(refused(&world.op(create(&long, ""))), None);
        }
        long.push('/');
        long.push_str(&"l".repeat(PATH_BYTES_MAX - long.len()));
        assert_eq!(refused(&world.op(create(&long, ""))), None, "{}", long.len());
        assert_eq!(refused(&world.op(delete(&long))), None);
        long.push('l');
        assert_eq!(refused(&world.op(create(&long, ""))), beyond, "{}", long.len());
    }
}

#[test]
fn the_names_below_one_parent_have_a_limit_that_deletions_give_back() {
    let mut world = World::new(features::BOUNDED);
    let name = |number: u64| format!("/p/{number:0width$}", width = NAME_BYTES_MAX);
    let fit = NAMES_BYTES_MAX / name_bytes(&name(0)[3..]);
    assert_eq!(refused(&world.op(create("/p", ""))), None);
    world.count_names("/p", (fit - 2) * name_bytes(&name(0)[3..]));
    for number in 0..2 {
        assert_eq!(refused(&world.op(create(&name(number), ""))), None);
    }
    assert_eq!(refused(&world.op(create(&name(2), ""))), Some(ErrorCode::QuotaExceeded));
    assert_eq!(refused(&world.op(delete(&name(0)))), None);
    assert_eq!(refused(&world.op(create(&name(2), ""))), None);
}

#[test]
fn children_of_wide_parents_weigh_more() {
    let weight = |children: u32, ops: u64| {
        let mut world = World::new(features::BOUNDS);
        assert_eq!(refused(&world.op(create("/p", ""))), None);
        world.restate("/p", |stat| stat.num_children = children);
        let before = world.machine.units_spent();
        let creates = (0..ops).map(|number| create(&format!("/p/{number}"), ""));
        assert!(world.multi(creates.collect()).iter().all(|result| refused(result).is_none()));
        world.machine.units_spent() - before
    };
    for (children, each) in [(1 << 16, 0), (2 << 17, 3000), (5 << 17, 6000), (17 << 17, 9000), (70 << 17, 12_000)] {
        assert_eq!(weight(children, 20) - weight(0, 20), 20 * each, "{children}");
    }
}

#[test]
fn one_transaction_makes_no_more_quotas_than_there_may_be() {
    let mut world = World::new(features::BOUNDS);
    let quotas = (0..=QUOTAS_MAX).flat_map(|at| {
        let root = format!("/zookeeper/quota/{at}");
        [create(&format!("{root}/zookeeper_limits"), "count=9"), create(&root, "")]
    });
    let all: Vec<WriteOp> = quotas.collect::<Vec<_>>().into_iter().rev().collect();
    let results = world.multi(all);
    assert!(results.iter().any(|result| refused(result) == Some(ErrorCode::QuotaExceeded)));
}

#[test]
fn there_are_so_many_quotas_at_most() {
    for features in [features::BOUNDED, features::BOUNDED | features::QUOTAS_BOUNDED] {
        let mut world = World::new(features);
        let limits = |at: usize| format!("/zookeeper/quota/{at}/zookeeper_limits");
        for at in 0..=QUOTAS_MAX {
            assert_eq!(refused(&world.op(create(&format!("/zookeeper/quota/{at}"), ""))), None);
        }
        for at in 0..QUOTAS_MAX {
            assert_eq!(refused(&world.op(create(&limits(at), "count=9"))), None);
        }
        let beyond = refused(&world.op(create(&limits(QUOTAS_MAX), "")));
        let bounded = features & features::QUOTAS_BOUNDED != 0;
        assert_eq!(beyond, bounded.then_some(ErrorCode::QuotaExceeded));
        assert_eq!(refused(&world.op(delete(&limits(3)))), None);
        let again = refused(&world.op(create(&limits(3), "")));
        assert_eq!(again, None, "a deletion gives it back");
    }
}

#[test]
fn deletions_cost_more_where_there_are_quotas() {
    const DELETED: usize = 9000;
    for (features, quotas, fits) in [
        (features::BOUNDED, true, true),
        (features::BOUNDED | features::QUOTAS_BOUNDED, false, true),
        (features::BOUNDED | features::QUOTAS_BOUNDED, true, false),
    ] {
        let mut world = World::new(features);
        let path = |at: usize| format!("/{at}");
        for first in (0..DELETED).step_by(DELETED / 2) {
            world.multi((first..first + DELETED / 2).map(|at| create(&path(at), "")).collect());
        }
        for path in ["/zookeeper/quota/0", "/zookeeper/quota/0/zookeeper_limits"].iter().filter(|_| quotas) {
            assert_eq!(refused(&world.op(create(path, ""))), None);
        }
        let results = world.multi((0..DELETED).map(|at| delete(&path(at))).collect());
        assert_eq!(results.iter().all(|result| refused(result).is_none()), fits);
    }
}

#[test]
fn a_session_has_so_many_ephemerals_at_most_in_multis_too() {
    let mut former = World::new(features::BOUNDED);
    let mut world = World::new(features::BOUNDS);
    let path = |number: usize| format!("/e{number}");
    for first in (0..EPHEMERALS_FORMERLY_MAX).step_by(5000) {
        let results = former.multi((first..first + 5000).map(|number| ephemeral(&path(number))).collect());
        assert!(results.iter().all(|result| refused(result).is_none()));
    }
    assert_eq!(refused(&former.op(ephemeral("/more"))), Some(ErrorCode::QuotaExceeded));
    for first in (0..EPHEMERALS_PER_SESSION_MAX).step_by(5000) {
        let results = world.multi((first..first + 5000).map(|number| ephemeral(&path(number))).collect());
        assert!(results.iter().all(|result| refused(result).is_none()));
    }
    let more = world.op(ephemeral("/more"));
    assert_eq!(refused(&more), Some(ErrorCode::QuotaExceeded));
    assert_eq!(refused(&world.op(delete(&path(7)))), None);
    let two = world.multi(alloc::vec![ephemeral("/more"), ephemeral("/most")]);
    assert_eq!(refused(&two[1]), Some(ErrorCode::QuotaExceeded));
    assert_eq!(refused(&world.op(create("/persistent", ""))), None);
    let ended = world.command(CommandKind::CloseSession, None);
    assert_eq!(ended.changes.len(), EPHEMERALS_PER_SESSION_MAX - 1);
    let most = (EPHEMERALS_PER_SESSION_MAX as u64) * cost::CHANGE;
    assert!(most <= cost::COMMAND_MAX, "a close costs no more than a command may");
}

#[test]
fn the_paths_of_a_sessions_ephemerals_have_a_limit_in_bytes() {
    let mut world = World::new(features::BOUNDED);
    let path = |number: usize| format!("/{number:0width$}", width = NAME_BYTES_MAX - 1);
    let fit = EPHEMERALS_BYTES_MAX / NAME_BYTES_MAX;
    for number in 0..fit {
        assert_eq!(refused(&world.op(ephemeral(&path(number)))), None);
    }
    assert_eq!(refused(&world.op(ephemeral("/more"))), Some(ErrorCode::QuotaExceeded));
    assert_eq!(refused(&world.op(delete(&path(7)))), None);
    assert_eq!(refused(&world.op(ephemeral("/more"))), None);
    let before = world.machine.units_spent();
    assert_eq!(world.command(CommandKind::CloseSession, None).changes.len(), fit);
    let spent = world.machine.units_spent() - before;
    assert!(spent > EPHEMERALS_BYTES_MAX as u64 && spent < cost::COMMAND_MAX, "{spent} units");
}

#[test]
fn the_end_of_a_session_counts_with_quotas() {
    let spent = |quotas: bool| {
        let mut world = World::new(features::BOUNDED | features::QUOTAS_BOUNDED);
        for path in ["/zookeeper/quota/a", "/zookeeper/quota/a/zookeeper_limits"].iter().filter(|_| quotas) {
            assert_eq!(refused(&world.op(create(path, ""))), None);
        }
        for number in 0..100 {
            assert_eq!(refused(&world.op(ephemeral(&format!("/{number}")))), None);
        }
        let before = world.machine.units_spent();
        world.command(CommandKind::CloseSession, None);
        world.machine.units_spent() - before
    };
    assert_eq!(spent(true) - spent(false), 100 * QUOTA_DELETE_COST);
}

#[test]
fn large_data_beside_a_change_spend_the_budget() {
    let mut world = World::new(features::BOUNDED);
    let large = "d".repeat(1 << 20);
    for number in 0..200 {
        assert_eq!(refused(&world.op(create(&format!("/{number}"), &large))), None);
    }
    let throttled =
        |results: Vec<OpResult>| results.iter().any(|result| refused(result) == Some(ErrorCode::ThrottledOp));
    let children = |of: core::ops::Range<usize>| of.map(|number| create(&format!("/{number}/c"), "")).collect();
    assert!(throttled(world.multi(children(0..200))), "each parent is hashed");
    assert!(!throttled(world.multi(children(0..100))));
    let below_one = (0..1000).map(|number| create(&format!("/100/{number}"), "")).collect();
    assert!(!throttled(world.multi(below_one)), "one parent is hashed once");
    assert!(throttled(world.multi((100..300).map(|number| set(&format!("/{}", number % 200), "", -1)).collect())));
}
