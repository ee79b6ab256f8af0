//! ClickHouse Keeper's operations and its system nodes, for servers that are told to have them (protocol chapter 38).
//!
//! Part of the state machine. Keeper's behaviour decides here, not ZooKeeper's: the order of checks is Keeper's.

use super::ops::{Caller, expect_version, fresh_stat};
use crate::apply::draft::Draft;
use crate::apply::outcome::{KeeperOp, OpResult};
use crate::command::request::stat_fields;
use crate::command::{WriteOp, features};
use crate::cost;
use crate::ids::Zxid;
use crate::path;
use crate::shared::{Data, Text};
use crate::tree::acl::{self, Acl};
use crate::tree::change::Changes;
use crate::tree::view::{NodeRef, View};
use crate::tree::znode::{Owner, Znode};
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use corral_wire::error::ErrorCode;

/// Path where Keeper lists its features for clients. No client may write there.
const SYSTEM: &str = "/keeper";
/// Version of the additions of later Keepers to the plain protocol: 1 filtered lists, 2 multiRead, 3 checkNotExists.
const API_VERSION: &[u8] = b"1";
/// Served features, by Keeper's numbers: filtered lists, checkNotExists, createIfNotExists, removeRecursive, checkStat,
/// persistent watches, create with Stat, tryRemove, filtered lists with Stat and data. Not so multiRead (1), which
/// Keeper's clients send more than ZooKeeper allows there, nor watches in it (5).
const FEATURES: [usize; 9] = [0, 2, 3, 4, 6, 7, 8, 9, 10];
/// Znodes that the removals of one transaction may take at most: all of them are looked at before the first goes.
pub(crate) const REMOVED_MAX: usize = 1000;

/// The system nodes that this version wants, for a view that lacks them; `None` when it has them.
pub fn system_nodes(view: &View) -> Option<Vec<(Text, Data)>> {
    let mut flags = vec![0_u8; FEATURES.iter().max().map_or(0, |highest| highest / 8 + 1)];
    for feature in FEATURES {
        flags[feature / 8] |= 0x80 >> (feature % 8);
    }
    let nodes = [(SYSTEM, &[][..]), ("/keeper/api_version", API_VERSION), ("/keeper/feature_flags", &flags)];
    let missing = |(path, data): &(&str, &[u8])| {
        // The node itself may hold anything, its children tell something.
        view.get(path).is_none_or(|node| *path != SYSTEM && node.data() != Some(*data))
    };
    nodes.iter().any(missing).then(|| nodes.iter().map(|(path, data)| (Text::from(*path), Data::from(*data))).collect())
}

/// Creates missing system nodes, and sets the data of nodes with other data.
pub(super) fn system_changes(view: &View, zxid: Zxid, time: i64, nodes: Vec<(Text, Data)>) -> Changes {
    let mut draft = Draft::chained(view, zxid);
    for (path, data) in nodes {
        let at = draft.hashed(path);
        let data = Some(data);
        if let Some(node) = draft.node(&at.path, at.hash).map(|node| node.to_znode()) {
            if &*at.path != SYSTEM && node.data != data {
                let mut next = Znode { data, ..Znode::clone(&node) };
                next.stat.version = next.stat.version.wrapping_add(1);
                (next.stat.mzxid, next.stat.mtime) = (zxid, time);
                draft.set_data(at, Arc::new(next));
            }
            continue;
        }
        if draft.node(at.parent(), at.parent_hash).is_some() {
            let node = Znode { stat: fresh_stat(zxid, time, Owner::Persistent), acl: Acl::Open, data };
            draft.create(at, Arc::new(node));
        }
    }
    draft.into_changes()
}

impl Caller<'_> {
    /// Where Keeper's system nodes are there, clients must not write or check them.
    pub(super) fn guard(&self, path: &str) -> Result<(), ErrorCode> {
        let guards = self.context.features & features::KEEPER != 0;
        let is_system = || path.strip_prefix(SYSTEM).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        if guards && is_system() { Err(ErrorCode::BadArguments) } else { Ok(()) }
    }

    pub(super) fn keeper(&self, draft: &mut Draft<'_>, op: WriteOp) -> Result<OpResult, ErrorCode> {
        let done = match op {
            WriteOp::CheckNotExists { path, version } => {
                self.check_not_exists(draft, path, version)?;
                KeeperOp::CheckNotExists
            }
            WriteOp::CheckStat { path, version, stat } => {
                let (_, node) = self.existing(draft, path)?;
                self.allow(&node, acl::READ)?;
                expect_version(node.stat().version, version)?;
                let fits = |(actual, wanted): (i64, i64)| wanted == -1 || wanted == actual;
                if !stat_fields(&node.wire_stat()).into_iter().zip(*stat).all(fits) {
                    return Err(ErrorCode::BadVersion);
                }
                KeeperOp::CheckStat
            }
            WriteOp::TryRemove { path, version } => {
                match self.delete(draft, path, version) {
                    Ok(_) | Err(ErrorCode::NoNode | ErrorCode::BadVersion | ErrorCode::NotEmpty) => {}
                    Err(code) => return Err(code),
                }
                KeeperOp::TryRemove
            }
            WriteOp::RemoveRecursive { path, limit } => {
                self.remove_recursive(draft, path, limit)?;
                KeeperOp::RemoveRecursive
            }
            WriteOp::Create { .. }
            | WriteOp::Delete { .. }
            | WriteOp::SetData { .. }
            | WriteOp::SetAcl { .. }
            | WriteOp::Check { .. } => unreachable!("an operation of ZooKeeper's own"),
        };
        Ok(OpResult::Done(done))
    }

    fn check_not_exists(&self, draft: &Draft<'_>, path: Text, version: i32) -> Result<(), ErrorCode> {
        match self.existing(draft, path) {
            Err(ErrorCode::NoNode) => Ok(()),
            Err(code) => Err(code),
            Ok((_, node)) => {
                self.allow(&node, acl::READ)?;
                let counts = version == -1 || version == node.stat().version;
                if counts { Err(ErrorCode::NodeExists) } else { Ok(()) }
            }
        }
    }

    /// All or nothing; DELETE is needed on the parent and on each znode that goes.
    fn remove_recursive(&self, draft: &mut Draft<'_>, path: Text, limit: u32) -> Result<(), ErrorCode> {
        if !path::has_parent(&path) || path::UNDELETABLE.contains(&&*path) {
            return Err(ErrorCode::BadArguments);
        }
        self.guard(&path)?;
        let at = draft.hashed(path);
        let Some(parent) = draft.node(at.parent(), at.parent_hash) else { return Ok(()) };
        self.allow(&parent, acl::DELETE)?;
        if draft.node(&at.path, at.hash).is_none() {
            return Ok(());
        }
        let limit = usize::try_from(limit).unwrap_or(usize::MAX).min(REMOVED_MAX.saturating_sub(draft.removed()));
        let subtree = self.removable(draft, &at.path, limit)?;
        // Backwards, because a parent's path sorts before those of its children.
        for path in subtree.into_iter().rev() {
            let at = draft.hashed(path);
            draft.delete(at);
        }
        Ok(())
    }

    /// The paths of a subtree as the transaction sees it, if they are few enough and all may be deleted.
    fn removable(&self, draft: &Draft<'_>, root: &Text, limit: usize) -> Result<BTreeSet<Text>, ErrorCode> {
        let (mut found, mut denied, mut exhausted) = (BTreeSet::new(), false, false);
        let mut take = |path: Text, node: &NodeRef<'_>| {
            match self.allow(node, acl::DELETE).and_then(|()| {
                let own = cost::ZNODE + cost::CHANGE + path_cost(&path) + cost::bytes(node.data_len());
                self.spend(own + self.deletion_cost())
            }) {
                Ok(()) => {}
                Err(ErrorCode::ThrottledOp) => exhausted = true,
                Err(_) => denied = true,
            }
            found.insert(path);
            !exhausted && found.len() <= limit
        };
        // Each change of the transaction may be one below the root, and is looked at.
        let look = cost::NAME + cost::bytes(root.len());
        self.spend(self.uncommitted(draft) as u64 * look)?;
        for (path, node) in draft.changed_below(root) {
            if !take(path, &NodeRef::Live(node)) {
                break;
            }
        }
        // A znode with more children than may go, and than this transaction can have taken away, is not walked into at
        // all.
        let (enough, mut too_wide, mut passed) = (limit + draft.change_count(), false, Ok(()));
        draft.view().walk(root, |path, node| {
            too_wide |= node.stat().num_children as usize > enough;
            let changed = if self.bounds_deletions() && draft.has_changed(path) {
                cost::ZNODE + 4 * path.len() as u64
            } else {
                0
            };
            passed = self.spend(if too_wide { 0 } else { changed + self.passing_cost(&node.stat()) });
            !too_wide && passed.is_ok() && (draft.has_changed(path) || take(Text::from(path), &node))
        });
        passed?;
        if exhausted {
            return Err(ErrorCode::ThrottledOp);
        }
        match (too_wide || found.len() > limit, denied) {
            (true, _) => Err(ErrorCode::NotEmpty),
            (false, true) => Err(ErrorCode::NoAuth),
            (false, false) => Ok(found),
        }
    }
}

/// The path of a znode that goes is compared, copied and hashed several times.
fn path_cost(path: &Text) -> u64 {
    4 * path.len() as u64
}

#[cfg(test)]
mod tests {
    use super::super::tests::{World, create, delete, refused, set};
    use super::*;
    use crate::command::{CommandKind, CreateOp, STAT_FIELDS};
    use crate::tree::acl::{AclEntry, AclSpec};
    use crate::tree::view::marks_at_most;
    use alloc::boxed::Box;
    use alloc::format;

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
        WriteOp::Create { op: CreateOp::IfNotExists, path, data, acl: AclSpec::Open, flags, ttl_ms: -1 }
    }

    fn remove(path: &str, limit: u32) -> WriteOp {
        WriteOp::RemoveRecursive { path: Text::from(path), limit }
    }

    fn try_remove(path: &str, version: i32) -> WriteOp {
        WriteOp::TryRemove { path: Text::from(path), version }
    }

    fn absent(path: &str, version: i32) -> WriteOp {
        WriteOp::CheckNotExists { path: Text::from(path), version }
    }

    fn guarded(path: &str, perms: i32) -> WriteOp {
        let entry = AclEntry { perms, scheme: Text::from("world"), id: Text::from("anyone") };
        WriteOp::SetAcl { path: Text::from(path), acl: AclSpec::List(vec![entry]), version: -1 }
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
            WriteOp::Check { path: Text::from("/keeper/api_version"), version: -1 },
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
        assert_eq!(outcome(world.op(absent("/none", -1))), done(KeeperOp::CheckNotExists));
        assert_eq!(outcome(world.op(absent("/none/n", 7))), done(KeeperOp::CheckNotExists));
        assert_eq!(outcome(world.op(absent("/a", -1))), Err(ErrorCode::NodeExists));
        assert_eq!(outcome(world.op(absent("/a", 0))), Err(ErrorCode::NodeExists));
        assert_eq!(outcome(world.op(absent("/a", 1))), done(KeeperOp::CheckNotExists));
        let stat = stat_fields(&world.machine.view().get("/a").expect("made").wire_stat());
        let check = |version, stat: [i64; STAT_FIELDS]| WriteOp::CheckStat {
            path: Text::from("/a"),
            version,
            stat: Box::new(stat),
        };
        assert_eq!(outcome(world.op(check(0, stat))), done(KeeperOp::CheckStat));
        assert_eq!(outcome(world.op(check(-1, [-1; STAT_FIELDS]))), done(KeeperOp::CheckStat));
        assert_eq!(outcome(world.op(check(1, [-1; STAT_FIELDS]))), Err(ErrorCode::BadVersion));
        for field in 0..STAT_FIELDS {
            let mut other = [-1; STAT_FIELDS];
            other[field] = stat[field] + 1;
            assert_eq!(outcome(world.op(check(-1, other))), Err(ErrorCode::BadVersion), "field {field}");
            other[field] = stat[field];
            assert_eq!(outcome(world.op(check(-1, other))), done(KeeperOp::CheckStat), "field {field}");
        }
        world.op(guarded("/a", 30));
        assert_eq!(outcome(world.op(check(-1, [-1; STAT_FIELDS]))), Err(ErrorCode::NoAuth));
        assert_eq!(outcome(world.op(absent("/a", 5))), Err(ErrorCode::NoAuth));
    }

    #[test]
    fn trying_to_remove() {
        let mut world = world();
        let removed = OpResult::Done(KeeperOp::TryRemove);
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
        let removed = OpResult::Done(KeeperOp::RemoveRecursive);
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
}
