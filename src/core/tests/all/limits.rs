//! Each limit on writes, with any commands in any turns. The state never goes beyond it, the refusal is the documented
//! one, and every server comes to the same.

use crate::twins::{SESSION, World, apply, check, create, create_as, delete, set};
use corral_core::command::CommandKind;
use corral_core::cost::{ACL_ENTRY_FETCHED, COMMAND_MAX, ENTRY_MAX};
use corral_core::ids::SessionId;
use corral_core::limits::{
    EPHEMERALS_PER_SESSION_MAX, NAME_BYTES_MAX, NAMES_BYTES_MAX, PATH_BYTES_MAX, PATH_LEVELS_MAX,
};
use corral_core::ops;
use corral_core::ops::WriteOp;
use corral_core::shared::Text;
use corral_core::tree::acl::{
    AUTH_BYTES_MAX, AclEntry, AclSpec, BYTES_MAX, ENTRIES_MAX, IP_BYTES_MAX, Identity, digest_id, identity, sha1,
};
use corral_core::tree::znode::Owner;
use corral_wire::ErrorCode;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

fn cuts() -> impl Strategy<Value = (usize, usize)> {
    (1_usize..9, 1_usize..40)
}

fn entry(perms: i32, scheme: &str, id: &str) -> AclEntry {
    AclEntry { perms, scheme: Text::from(scheme), id: Text::from(id) }
}

/// Lists about as long as a limit allows, in entries or in bytes.
fn acl_list() -> impl Strategy<Value = Vec<AclEntry>> {
    let count = prop_oneof![1_usize..6, ENTRIES_MAX - 4..ENTRIES_MAX + 4];
    let bytes = prop_oneof![6_usize..20, 118_usize..132, 500_usize..4000];
    let kind = prop_oneof![4 => Just("digest"), 2 => Just("ip"), 1 => Just("auth"), 1 => Just("twice")];
    (count, bytes, kind, 1_usize..40).prop_map(|(count, bytes, kind, auths)| {
        let one = |number: usize| match kind {
            "ip" => {
                let head = format!("10.{}.{}.1/", number / 250, number % 250);
                // The prefix length with zeros in front: legal, and as long as the sender likes.
                let zeros = "0".repeat(bytes.min(70).saturating_sub(head.len() + 2));
                entry(1, "ip", &format!("{head}{zeros}32"))
            }
            "auth" if number < auths => entry(1 + i32::try_from(number).expect("few") % 31, "auth", ""),
            "twice" => entry(1, "digest", &format!("u{}:h", number / 2)),
            _ => entry(1, "digest", &format!("u{number:0>width$}:h", width = bytes.saturating_sub(3))),
        };
        (0..count).map(one).collect()
    })
}

/// The stored part of a list, as the documentation has it; `None` if it is refused.
fn stored(sent: &[AclEntry], identities: &[Identity]) -> Option<Vec<AclEntry>> {
    let mut seen = BTreeSet::new();
    let (mut list, mut by_auth) = (Vec::new(), 0);
    for one in sent.iter().filter(|one| seen.insert((*one).clone())) {
        if &*one.scheme == "auth" {
            let proven = identities.iter().filter(|who| &*who.scheme == "digest");
            proven.clone().next()?;
            by_auth += proven.clone().map(|who| "digest".len() + who.id.len()).sum::<usize>();
            list.extend(proven.map(|who| entry(one.perms, "digest", &who.id)));
        } else {
            list.push(one.clone());
        }
    }
    let long_ip = sent.iter().any(|one| &*one.scheme == "ip" && one.id.len() > IP_BYTES_MAX);
    let bytes: usize = list.iter().map(|one| one.scheme.len() + one.id.len()).sum();
    let fits = sent.len() <= ENTRIES_MAX
        && (1..=ENTRIES_MAX).contains(&list.len())
        && bytes <= BYTES_MAX
        && by_auth <= AUTH_BYTES_MAX
        && !long_ip;
    fits.then_some(list)
}

#[test]
fn the_pages_name_the_limits_on_an_acl() {
    let kib = |bytes: usize| format!("{} KiB", bytes >> 10);
    for (page, row) in [("operate/reference.md", "| an ACL |"), ("compatibility.md", "| ACLs of more than")] {
        let file = format!("{}/../../docs/{page}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(file).expect("the page is in the repository");
        let row = text.lines().find(|line| line.starts_with(row)).expect("the row is on the page");
        let (entries, address) = (format!("{ENTRIES_MAX} entries"), format!("{IP_BYTES_MAX} bytes"));
        for limit in [entries, kib(BYTES_MAX), kib(AUTH_BYTES_MAX), address] {
            assert!(row.contains(&limit), "{page} does not name {limit}: {row}");
        }
    }
}

proptest! {
    #![proptest_config(cases(48))]

    #[test]
    fn acls_are_bounded_in_entries_and_bytes(
        lists in vec((acl_list(), any::<bool>()), 1..12),
        users in vec(1_usize..900, 0..4),
        cuts in cuts(),
    ) {
        let mut identities = vec![identity("ip", "10.0.0.1")];
        let user = |(number, bytes): (usize, &usize)| format!("{number}{}:secret", "u".repeat(*bytes));
        identities.extend(users.iter().enumerate().map(user).map(|user| identity("digest", &digest_id(user.as_bytes(), sha1))));
        let mut world = World::new(0);
        world.znode("/set", Owner::Persistent);
        let op = |(number, (list, creates)): (usize, &(Vec<AclEntry>, bool))| {
            let acl = AclSpec::List(list.clone());
            if *creates {
                return CommandKind::Op(create_as(&format!("/{number}"), acl, 0));
            }
            // A client may have locked itself out with its list: each time another znode.
            CommandKind::Multi(vec![
                create(&format!("/{number}")),
                WriteOp::SetAcl(ops::SetAcl { path: Text::from(&*format!("/{number}")), acl, version: -1 }),
            ])
        };
        let commands: Vec<CommandKind> = lists.iter().enumerate().map(op).collect();
        let applied = apply(&world, &identities, &commands, cuts);
        for ((number, (list, _)), codes) in lists.iter().enumerate().zip(applied.codes()) {
            let path = format!("/{number}");
            let node = applied.view().get(&path);
            if let Some(expected) = stored(list, &identities) {
                prop_assert!(codes.iter().all(Option::is_none), "{:?}", codes);
                let node = node.expect("it was created");
                prop_assert_eq!(&node.acl_list().expect("a list")[..], &expected[..]);
            } else {
                prop_assert_eq!(codes.last(), Some(&Some(ErrorCode::InvalidAcl)));
                prop_assert!(node.is_none());
            }
        }
    }

    #[test]
    fn paths_are_bounded_in_bytes_and_levels_and_names_in_bytes(
        creates in vec((0_usize..4, 0_usize..4, -12_i64..3, any::<bool>()), 1..12),
        cuts in cuts(),
    ) {
        // A root of each kind, below which one more name reaches a limit: of levels, of the path's bytes, and none.
        let mut world = World::new(0);
        let mut grow = |levels: usize, bytes: usize| {
            let mut path = String::new();
            for level in 0..levels {
                let left = levels - level - 1;
                let name = (bytes - path.len() - 2 * left - 1).min(NAME_BYTES_MAX);
                path.push('/');
                path.push_str(&"l".repeat(name.max(1)));
                if world.view.get(&path).is_none() {
                    world.znode(&path, Owner::Persistent);
                }
            }
            path
        };
        let roots = [String::new(), grow(PATH_LEVELS_MAX - 1, 2 * PATH_LEVELS_MAX), grow(PATH_LEVELS_MAX, 2 * PATH_LEVELS_MAX + 2), grow(4, PATH_BYTES_MAX - 100)];
        let name = |number: usize, (root, to, delta, sequential): (usize, usize, i64, bool)| {
            let limit = match to {
                0 => 12,
                1 => NAME_BYTES_MAX,
                _ => PATH_BYTES_MAX.saturating_sub(roots[root].len() + 1).max(20),
            };
            let bytes = usize::try_from(i64::try_from(limit).expect("small") + delta).expect("positive").max(4);
            let name = format!("{number}{}", "n".repeat(bytes - number.to_string().len()));
            (format!("{}/{name}", roots[root]), sequential)
        };
        let wanted: Vec<(String, bool)> = creates.iter().enumerate().map(|(number, create)| name(number, *create)).collect();
        let commands: Vec<CommandKind> = wanted
            .iter()
            .map(|(path, sequential)| CommandKind::Op(create_as(path, AclSpec::Open, if *sequential { 2 } else { 0 })))
            .collect();
        let applied = apply(&world, &[], &commands, cuts);
        for ((path, sequential), codes) in wanted.iter().zip(applied.codes()) {
            let more = if *sequential { 10 } else { 0 };
            let name = path.rsplit('/').next().expect("a name").len() + more;
            let fits = path.len() + more <= PATH_BYTES_MAX && name <= NAME_BYTES_MAX
                && path.matches('/').count() <= PATH_LEVELS_MAX;
            prop_assert_eq!(&codes[..], &[(!fits).then_some(ErrorCode::BadArguments)], "{} bytes", path.len() + more);
        }
        applied.view().walk("/", |path, _| {
            assert!(path.len() <= PATH_BYTES_MAX && path.matches('/').count() <= PATH_LEVELS_MAX);
            assert!(path.rsplit('/').next().is_none_or(|name| name.len() <= NAME_BYTES_MAX));
            true
        });
    }

    #[test]
    fn the_names_below_a_znode_are_bounded_in_bytes(
        room in 0_u64..5000,
        multis in vec(vec((0_u8..12, 200_usize..900, any::<bool>()), 1..4), 1..30),
        cuts in cuts(),
    ) {
        let mut world = World::new(0);
        world.znode("/p", Owner::Persistent);
        world.names_bytes("/p", NAMES_BYTES_MAX - room);
        let path = |(number, bytes): (u8, usize)| format!("/p/{number:x}{}", "n".repeat(bytes));
        let op = |(number, bytes, deletes): &(u8, usize, bool)| {
            if *deletes { delete(&path((*number, *bytes))) } else { create(&path((*number, *bytes))) }
        };
        let command = |ops: &Vec<(u8, usize, bool)>| CommandKind::Multi(ops.iter().map(op).collect());
        let commands: Vec<CommandKind> = multis.iter().map(command).collect();
        let applied = apply(&world, &[], &commands, cuts);
        // A name counts for its bytes and its length, which takes two.
        let mut names: BTreeSet<String> = BTreeSet::new();
        let sum = |names: &BTreeSet<String>| -> u64 { names.iter().map(|path| path.len() as u64 - 3 + 2).sum() };
        for (ops, codes) in multis.iter().zip(applied.codes()) {
            let mut next = names.clone();
            let failed = ops.iter().position(|(number, bytes, deletes)| {
                let path = path((*number, *bytes));
                if *deletes {
                    return !next.remove(&path);
                }
                let beyond = sum(&next) + path.len() as u64 - 3 + 2 > room;
                beyond || !next.insert(path)
            });
            let Some(at) = failed else {
                prop_assert!(codes.iter().all(Option::is_none));
                names = next;
                continue;
            };
            let code = codes[at].expect("the first that fails");
            let (number, bytes, deletes) = ops[at];
            let exists = next.contains(&path((number, bytes)));
            let expected = match deletes {
                true => ErrorCode::NoNode,
                false if sum(&next) + path((number, bytes)).len() as u64 - 1 > room => ErrorCode::QuotaExceeded,
                false => ErrorCode::NodeExists,
            };
            prop_assert_eq!(code, expected, "exists: {}", exists);
        }
        let stat = applied.view().get("/p").expect("it exists").stat();
        prop_assert_eq!(stat.names_bytes, NAMES_BYTES_MAX - room + sum(&names));
        prop_assert!(stat.names_bytes <= NAMES_BYTES_MAX);
    }
}

proptest! {
    // Each has a state of some thousand znodes made, three times.
    #![proptest_config(cases(16))]

    #[test]
    fn a_session_has_a_bounded_number_of_ephemerals(
        room in 0_usize..12,
        multis in vec(vec((0_u8..16, 0_u8..3), 1..6), 1..30),
        cuts in cuts(),
    ) {
        let mut world = World::new(0);
        let before = EPHEMERALS_PER_SESSION_MAX - room;
        world.session(SESSION, (0..before).map(|number| Text::from(&*format!("/unseen/{number}"))).collect());
        let op = |(number, what): &(u8, u8)| match what {
            0 => delete(&format!("/e{number}")),
            1 => set("/", 1),
            _ => create_as(&format!("/e{number}"), AclSpec::Open, 1),
        };
        let command = |ops: &Vec<(u8, u8)>| CommandKind::Multi(ops.iter().map(op).collect());
        let commands: Vec<CommandKind> = multis.iter().map(command).collect();
        let applied = apply(&world, &[], &commands, cuts);
        let mut owned: BTreeSet<u8> = BTreeSet::new();
        for (ops, codes) in multis.iter().zip(applied.codes()) {
            let started = owned.len();
            let mut next = owned.clone();
            let failed = codes.iter().position(|code| code.is_some_and(|code| code != ErrorCode::Ok));
            for (at, (number, what)) in ops.iter().enumerate() {
                let full = failed == Some(at) && codes[at] == Some(ErrorCode::QuotaExceeded);
                if full {
                    // Before the multi and each of its changes so far: never refused with more room than that.
                    prop_assert!(*what == 2 && started + at >= room, "refused with {} of {} taken", next.len(), room);
                    break;
                }
                let goes = match what {
                    0 => next.remove(number),
                    1 => true,
                    _ => next.insert(*number),
                };
                prop_assert_eq!(failed == Some(at), !goes);
                if !goes {
                    break;
                }
            }
            if failed.is_none() {
                owned = next;
            }
            prop_assert!(owned.len() <= room);
        }
        let session = applied.sessions().get(&SESSION).expect("it lives");
        prop_assert_eq!(session.ephemerals.len(), before + owned.len());
    }

    #[test]
    fn a_command_spends_no_more_than_its_budget_and_is_undone_beyond_it(
        entries in prop_oneof![1_usize..4, ENTRIES_MAX - 1..ENTRIES_MAX + 1],
        users in 1_usize..15,
        multis in vec((0_u8..4, prop_oneof![1_usize..50, 4000_usize..20_000]), 1..6),
        cuts in cuts(),
    ) {
        let mut world = World::new(0);
        for path in ["/a", "/b"] {
            world.znode(path, Owner::Persistent);
        }
        let mut identities = vec![identity("ip", "10.0.0.1")];
        identities.extend((0..users).map(|user| identity("digest", &digest_id(format!("{user}:{user}").as_bytes(), sha1))));
        let mut list: Vec<AclEntry> = (1..entries).map(|at| entry(31, "digest", &format!("other{at}:h"))).collect();
        list.push(entry(31, "world", "anyone"));
        // An entry that grants nothing more keeps the list from being the open one.
        list.push(entry(1, "ip", "10.9.9.9"));
        list.truncate(ENTRIES_MAX);
        let grants = list.iter().any(|one| &*one.scheme == "world");
        let acl = AclSpec::List(list.clone());
        let mut commands = vec![CommandKind::Op(WriteOp::SetAcl(ops::SetAcl { path: Text::from("/a"), acl, version: -1 }))];
        let op = |kind: u8, number: usize| match kind {
            0 => check("/a"),
            1 => set("/a", number % 64),
            2 => set("/b", 98),
            _ => create(&format!("/b/{number}")),
        };
        commands.extend(multis.iter().enumerate().map(|(at, (kind, count))| {
            CommandKind::Multi((0..*count).map(|number| op(*kind, at * 20_000 + number)).collect())
        }));
        let applied = apply(&world, &identities, &commands, cuts);
        let who: usize = identities.iter().map(|who| who.scheme.len() + who.id.len()).sum();
        let held = (list.len() * identities.len()) as u64 + who as u64 / 8;
        let per_check = held.max(ACL_ENTRY_FETCHED * list.len() as u64);
        let mut version = 0;
        for ((kind, count), codes) in multis.iter().zip(&applied.codes()[1..]) {
            let per_op = match kind {
                0 => 300 + per_check,
                1 => 1300 + per_check,
                2 => 1300 + 100 / 8,
                _ => 1300,
            };
            let sure = per_op.saturating_sub(per_op / 50) * *count as u64 > COMMAND_MAX;
            let fits = (per_op + per_op / 50 + 20) * (*count as u64) < COMMAND_MAX;
            let throttled = codes.iter().filter(|code| **code == Some(ErrorCode::ThrottledOp)).count();
            prop_assert!(throttled <= 1 && (!sure || throttled == 1) && (!fits || throttled == 0), "{kind} {count}");
            if *kind > 1 || grants {
                prop_assert!(throttled == 1 || codes.iter().all(Option::is_none), "{kind} {count}");
            }
            if *kind == 2 && throttled == 0 {
                version += i32::try_from(*count).expect("few");
            }
        }
        prop_assert_eq!(applied.view().get("/b").expect("it exists").stat().version, version, "whole or not at all");
        for (units, commands) in &applied.entries {
            prop_assert!(*commands > 1 || *units <= COMMAND_MAX);
        }
    }

    #[test]
    fn an_entry_of_many_commands_spends_no_more_than_its_budget(
        kinds in vec((0_u8..5, 1_usize..400), 1..120),
        cuts in (1_usize..60, 1_usize..60),
        quotas in any::<bool>(),
    ) {
        let mut world = World::new(0);
        world.znode("/p", Owner::Persistent);
        for number in 0..3 {
            world.with_ephemerals(SessionId(100 + number), &format!("/of{number}"), 3000);
        }
        let mut commands = Vec::new();
        if quotas {
            for path in ["/zookeeper", "/zookeeper/quota"] {
                if world.view.get(path).is_none() {
                    world.znode(path, Owner::Persistent);
                }
            }
            for path in ["/zookeeper/quota/p", "/zookeeper/quota/p/zookeeper_limits", "/zookeeper/quota/p/zookeeper_stats"] {
                commands.push(CommandKind::Op(create(path)));
            }
        }
        let first = commands.len();
        commands.extend(kinds.iter().enumerate().map(|(at, (kind, count))| match kind {
            0 => CommandKind::Multi((0..*count).map(|number| create(&format!("/p/{at}-{number}"))).collect()),
            1 => CommandKind::Multi((0..*count).map(|_| check("/p")).collect()),
            2 => CommandKind::Op(set("/p", count * 1000)),
            3 => CommandKind::Op(WriteOp::RemoveRecursive(ops::RemoveRecursive { path: Text::from(&*format!("/p/{}-0", at / 2)), limit: 1000 })),
            _ => CommandKind::Op(create_as(&format!("/p/s{at}"), AclSpec::Open, 1)),
        }));
        let applied = apply(&world, &[identity("ip", "10.0.0.1")], &commands, cuts);
        for (units, commands) in &applied.entries {
            prop_assert!(*commands == 1 || *units <= ENTRY_MAX + (1 << 20), "{commands} commands: {units} units");
        }
        let results = applied.codes();
        prop_assert!(results.iter().flatten().all(|code| *code != Some(ErrorCode::ThrottledOp)), "no command pays for others");
        prop_assert_eq!(results.len(), first + kinds.len());
    }
}

/// The cost of a first quota for the writes behind it is known before it is there.
#[test]
fn a_quota_on_its_way_counts_for_what_is_ordered_behind_it() {
    let mut world = World::new(0);
    for path in ["/p", "/zookeeper", "/zookeeper/quota", "/zookeeper/quota/p"] {
        if world.view.get(path).is_none() {
            world.znode(path, Owner::Persistent);
        }
    }
    let limits = CommandKind::Op(create("/zookeeper/quota/p/zookeeper_limits"));
    let writes = (0..6000).map(|number| CommandKind::Op(create(&format!("/p/{number}"))));
    let commands: Vec<CommandKind> = std::iter::once(limits).chain(writes).collect();
    let applied = apply(&world, &[], &commands, (10_000, 1));
    assert!(applied.entries.iter().all(|(units, commands)| *commands == 1 || *units <= ENTRY_MAX));
    assert!(applied.codes().iter().flatten().all(Option::is_none));
}
