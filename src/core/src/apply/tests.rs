//! The state machine by data: commands in, answers and the tree out.

mod bounds;
mod keeper;

use super::*;
use crate::ids::{ConnId, ServerId, ShardId, WallMillis};
use crate::ops;
use crate::ops::{CreateOp, WriteOp};
use crate::quota::usage::Measure;
use crate::shared::{Data, Text};
use crate::tree::acl::AclSpec;
use crate::tree::change::Change;
use crate::tree::znode::{NodeStat, Znode};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use corral_types::SplitMix64;
use corral_wire::error::ErrorCode;

const ORIGIN: Origin =
    Origin { server: ServerId(1), shard: ShardId(0), conn: ConnId { slot: 0, generation: 1 }, incarnation: 1 };

/// A state machine with one session, and the view of a shard that is told its changes.
pub(crate) struct World {
    pub(crate) machine: StateMachine,
    shard: View,
    session: SessionId,
    pub(crate) features: u32,
    pub(crate) time: i64,
    next: u64,
}

impl World {
    pub(crate) fn new(features: u32) -> Self {
        let view = View::empty(7);
        let mut world = Self {
            machine: StateMachine::new(view.clone(), SessionTable::new()),
            shard: view,
            session: SessionId(0),
            features,
            time: 1000,
            next: Zxid::of(1, 1).0,
        };
        let begun = world.command(CommandKind::CreateSession { timeout_ms: 1000, password: [1; 16] }, Some(ORIGIN));
        let Outcome::SessionCreated { session, .. } = begun.outcome else { panic!("no session") };
        world.session = session;
        world
    }

    pub(crate) fn command(&mut self, kind: CommandKind, origin: Option<Origin>) -> AppliedTxn {
        let command = Command { origin, session: self.session, identities: 0, kind };
        let batch = Batch {
            time: WallMillis(self.time),
            first_zxid: self.next,
            features: self.features,
            identities: vec![Arc::new(vec![crate::tree::acl::identity("ip", "10.0.0.1")])],
            commands: vec![command],
        };
        self.next += 1;
        let mut applied = self.machine.apply(batch, 1);
        let txn = applied.txns.remove(0);
        for change in &txn.changes {
            self.shard.apply(txn.zxid, change);
        }
        self.shard.set_zxid(txn.zxid);
        assert_eq!(self.shard.digest(), self.machine.view().digest(), "shards see what the state machine has");
        assert_eq!(self.shard.data_bytes(), self.machine.view().data_bytes());
        txn
    }

    pub(crate) fn op(&mut self, op: WriteOp) -> OpResult {
        match self.command(CommandKind::Op(op), Some(ORIGIN)).outcome {
            Outcome::Op(result) => result,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn multi(&mut self, ops: Vec<WriteOp>) -> Vec<OpResult> {
        match self.command(CommandKind::Multi(ops), Some(ORIGIN)).outcome {
            Outcome::Multi(results) => results,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn text(&self, path: &str) -> String {
        let node = self.machine.view().get(path);
        let data = node.and_then(|node| node.data()).unwrap_or_else(|| panic!("{path} has no data"));
        String::from_utf8_lossy(data).into_owned()
    }

    /// The connection that the session belongs to.
    #[expect(clippy::unused_self, reason = "every world has one and the same")]
    pub(crate) const fn origin(&self) -> Option<Origin> {
        Some(ORIGIN)
    }

    /// Has the children of this znode have names of so many bytes in all.
    pub(crate) fn count_names(&mut self, path: &str, bytes: u64) {
        self.restate(path, |stat| stat.names_bytes = bytes);
    }

    /// Changes the Stat of a znode, whatever is there.
    pub(crate) fn restate(&mut self, path: &str, change: impl Fn(&mut NodeStat)) {
        let at = self.shard.hashed(Text::from(path));
        let mut node = Znode::clone(&self.shard.get(path).expect("it exists").to_znode());
        change(&mut node.stat);
        let change = Change::Quiet { at, node: Arc::new(node) };
        for view in [&mut self.shard, self.machine.view_mut()] {
            let zxid = view.zxid();
            view.apply(zxid, &change);
        }
    }

    fn create(&mut self, path: &str, data: &str) -> OpResult {
        self.op(create(path, data))
    }
}

pub(crate) fn create(path: &str, data: &str) -> WriteOp {
    let (path, data) = (Text::from(path), Some(Data::from(data.as_bytes())));
    WriteOp::Create(ops::Create { op: CreateOp::Create, path, data, acl: AclSpec::Open, flags: 0, ttl_ms: -1 })
}

pub(crate) fn set(path: &str, data: &str, version: i32) -> WriteOp {
    WriteOp::SetData(ops::SetData { path: Text::from(path), data: Some(Data::from(data.as_bytes())), version })
}

pub(crate) fn delete(path: &str) -> WriteOp {
    WriteOp::Delete(ops::Delete { path: Text::from(path), version: -1 })
}

pub(crate) fn refused(result: &OpResult) -> Option<ErrorCode> {
    if let OpResult::Error(code) = result { Some(*code) } else { None }
}

const STATS: &str = "/zookeeper/quota/a/zookeeper_stats";
const LIMITS: &str = "/zookeeper/quota/a/zookeeper_limits";

/// `/a` with one child, eight bytes in all, and these limits.
fn with_quota(limits: &str) -> World {
    let mut world = World::new(features::ENFORCE_QUOTA);
    for (path, data) in
        [("/a", "xyz"), ("/a/b", "12345"), ("/zookeeper/quota/a", ""), (LIMITS, limits), (STATS, "anything")]
    {
        assert_eq!(refused(&world.create(path, data)), None, "{path}");
    }
    world
}

#[test]
fn usage_follows_the_tree() {
    let mut world = with_quota("count=-1,bytes=-1");
    assert_eq!(world.text(STATS), "count=2,bytes=8");
    let before = world.machine.view().get(STATS).map(|node| node.stat());
    world.create("/a/c", "1");
    assert_eq!(world.text(STATS), "count=3,bytes=9");
    world.op(set("/a/c", "", -1));
    assert_eq!(world.text(STATS), "count=3,bytes=8");
    world.op(delete("/a/b"));
    assert_eq!(world.text(STATS), "count=2,bytes=3");
    world.create("/ab", "not below /a");
    assert_eq!(world.text(STATS), "count=2,bytes=3");
    assert_eq!(world.machine.view().get(STATS).map(|node| node.stat()), before, "nothing of the Stat changes");
}

#[test]
fn hard_limits_refuse_in_their_place() {
    let mut world = with_quota("count=1,bytes=1=;byteHardLimit=20;countHardLimit=3");
    let quota = Some(ErrorCode::QuotaExceeded);
    assert_eq!(refused(&world.create("/a/c", "1")), None);
    assert_eq!(refused(&world.create("/a/d", "1")), quota);
    assert_eq!(refused(&world.create("/a/c", "1")), Some(ErrorCode::NodeExists), "last of the checks");
    assert_eq!(refused(&world.op(set("/a/c", "0123456789abc", 9))), quota, "before the version");
    assert_eq!(refused(&world.op(set("/a/c", "0123456789ab", 9))), Some(ErrorCode::BadVersion));
    assert_eq!(refused(&world.op(set("/a/c", "0123456789ab", -1))), None);
    assert_eq!(world.text(STATS), "count=3,bytes=20");
    let report = world.machine.take_quota_report().expect("writes were refused");
    assert_eq!((&*report.last.path, report.last.of, report.last.hard), ("/a", Measure::Bytes, true));
    assert!(report.last.refused);
    assert!(world.machine.take_quota_report().is_none());
    world.features = 0;
    assert_eq!(refused(&world.create("/a/d", "1")), None, "not enforced");
    let report = world.machine.take_quota_report().expect("exceeded all the same");
    assert_eq!((report.last.of, report.last.usage, report.last.limit), (Measure::Znodes, 4, 3));
    assert!(report.last.hard && !report.last.refused);
}

#[test]
fn a_multi_is_judged_by_what_was_used_before_it() {
    let mut world = with_quota("countHardLimit=3");
    let three: Vec<WriteOp> = (0..3).map(|at| create(&format!("/a/{at}"), "")).collect();
    assert!(world.multi(three).iter().all(|result| refused(result).is_none()));
    assert_eq!(world.text(STATS), "count=5,bytes=8");
    let results = world.multi(vec![create("/b", ""), create("/a/x", "")]);
    let codes: Vec<_> = results.iter().map(refused).collect();
    assert_eq!(codes, [Some(ErrorCode::Ok), Some(ErrorCode::QuotaExceeded)]);
    assert_eq!(world.text(STATS), "count=5,bytes=8", "the draft left no trace");
}

#[test]
fn a_multi_that_touches_the_usage_itself() {
    let mut world = with_quota("");
    let acl = WriteOp::SetAcl(ops::SetAcl { path: Text::from(STATS), acl: AclSpec::Open, version: -1 });
    let below = format!("{STATS}/child");
    world.multi(vec![create("/a/c", "1"), acl, create("/a/d", "1"), create(&below, ""), delete(&below)]);
    assert_eq!(world.text(STATS), "count=4,bytes=10");
    world.multi(vec![create("/a/e", "1"), set(STATS, "count=7,bytes=7", -1), delete("/a/d")]);
    assert_eq!(world.text(STATS), "count=6,bytes=6", "what a client writes there is where counting goes on");
    world.multi(vec![delete("/a/e"), delete(STATS), create(STATS, "")]);
    assert_eq!(world.text(STATS), "count=3,bytes=9");
    world.multi(vec![create("/a/f", ""), delete(STATS), delete(LIMITS), create("/a/g", "")]);
    assert!(world.machine.view().get(STATS).is_none() && world.machine.quotas.is_empty());
}

#[test]
fn the_deepest_quota_counts() {
    let mut world = with_quota("");
    world.multi(vec![
        create("/zookeeper/quota/a/b", ""),
        create("/zookeeper/quota/a/b/zookeeper_limits", ""),
        create("/zookeeper/quota/a/b/zookeeper_stats", ""),
        create("/a/b/c", "ccc"),
    ]);
    assert_eq!(world.text("/zookeeper/quota/a/b/zookeeper_stats"), "count=2,bytes=8");
    assert_eq!(world.text(STATS), "count=2,bytes=8");
    world.op(delete("/zookeeper/quota/a/b/zookeeper_stats"));
    world.create("/a/b/d", "");
    assert_eq!(world.text(STATS), "count=2,bytes=8", "limits without usage hide those above");
    world.op(delete("/zookeeper/quota/a/b/zookeeper_limits"));
    world.create("/a/b/e", "");
    assert_eq!(world.text(STATS), "count=3,bytes=8");
}

#[test]
fn quotas_of_nothing_and_of_everything() {
    let mut world = World::new(0);
    world.create("/zookeeper/quota/none", "");
    world.create("/zookeeper/quota/none/zookeeper_stats", "x");
    assert_eq!(world.text("/zookeeper/quota/none/zookeeper_stats"), "count=0,bytes=0");
    world.create("/zookeeper/quota/zookeeper_limits", "count=1");
    assert!(world.machine.quotas.is_empty(), "the root has no quota");
    world.create("/zookeeper/quota/zookeeper_stats", "12345");
    assert_eq!(world.text("/zookeeper/quota/zookeeper_stats"), "count=8,bytes=27");
}

#[test]
fn any_bytes_in_the_texts() {
    let many = "k=1;".repeat(300);
    for (text, want) in [
        ("count==5,bytes=+1;zz=3;yy=4", "count=0,bytes=2=;yy=4;zz=3"),
        ("count=5=9,bytes=7=;byteHardLimit=1", "count=6,bytes=8=;byteHardLimit=1"),
        ("", "count=0,bytes=0"),
        ("garbage", "count=0,bytes=0"),
        ("count=,bytes", "count=0,bytes=0"),
        (",;,=;==;===", "count=0,bytes=0=;=-1"),
        ("count=9223372036854775807,bytes=99999999999999999999", "count=9223372036854775807,bytes=0"),
        ("\u{0}=\u{ff}", "count=0,bytes=0=;\u{0}=-1"),
        (&many, "count=0,bytes=0"),
    ] {
        let mut world = with_quota(text);
        world.features = 0;
        world.op(set(STATS, text, -1));
        world.create("/a/c", "1");
        assert_eq!(world.text(STATS), want, "{text:?}");
    }
    let mut world = with_quota("count=0");
    world.op(WriteOp::SetData(ops::SetData {
        path: Text::from(STATS),
        data: Some(Data::from(&[0xff, 0xfe][..])),
        version: -1,
    }));
    world.op(WriteOp::SetData(ops::SetData { path: Text::from(LIMITS), data: None, version: -1 }));
    world.create("/a/c", "1");
    assert_eq!(world.text(STATS), "count=0,bytes=0");
}

#[test]
fn quotas_are_found_again() {
    let mut world = with_quota("count=1");
    world.create("/zookeeper/quota/a/zookeeper_limits/zookeeper_limits", "");
    let again = StateMachine::new(world.machine.view().clone(), SessionTable::new());
    assert_eq!(format!("{:?}", again.quotas), format!("{:?}", world.machine.quotas));
    assert!(!again.quotas.is_empty());
}

/// After any changes below a quota, counting along gives the result of counting afresh.
#[test]
fn counting_along_is_counting() {
    let mut world = with_quota("");
    let mut random = SplitMix64::new(12345);
    let mut draw = |below: u64| random.below(below);
    for _ in 0..300 {
        let mut ops = Vec::new();
        for _ in 0..=draw(3) {
            let path =
                format!("/a/n{}{}", draw(3), if draw(2) == 0 { format!("/c{}", draw(3)) } else { String::new() });
            let data = &"dddddddddddddddddddd"[..usize::try_from(draw(20)).unwrap_or(0)];
            ops.push(match draw(5) {
                0 | 1 => create(&path, data),
                2 => delete(&path),
                3 => set(&path, data, -1),
                _ => WriteOp::SetAcl(ops::SetAcl { path: Text::from(STATS), acl: AclSpec::Open, version: -1 }),
            });
        }
        world.multi(ops);
        let (mut count, mut bytes) = (0, 0);
        world.machine.view().walk("/a", |_, node| {
            count += 1;
            bytes += node.data().map_or(0, <[u8]>::len);
            true
        });
        assert_eq!(world.text(STATS), format!("count={count},bytes={bytes}"));
    }
}

fn container(path: &str) -> WriteOp {
    let (path, data) = (Text::from(path), None);
    WriteOp::Create(ops::Create { op: CreateOp::Container, path, data, acl: AclSpec::Open, flags: 4, ttl_ms: -1 })
}

fn reap(world: &mut World, path: &str, mzxid: Zxid) -> Option<ErrorCode> {
    let kind = CommandKind::Reap { path: Text::from(path), mzxid: mzxid.0 };
    let Outcome::Op(result) = world.command(kind, None).outcome else { panic!("an operation's outcome") };
    refused(&result)
}

#[test]
fn only_what_was_chosen_is_reaped() {
    let mut world = World::new(features::EXTENDED_TYPES);
    let ttl = WriteOp::Create(ops::Create {
        op: CreateOp::Ttl,
        path: Text::from("/t"),
        data: None,
        acl: AclSpec::Open,
        flags: 5,
        ttl_ms: 10,
    });
    let ephemeral = WriteOp::Create(ops::Create {
        op: CreateOp::Create,
        path: Text::from("/e"),
        data: None,
        acl: AclSpec::Open,
        flags: 1,
        ttl_ms: -1,
    });
    world.multi(vec![container("/c"), create("/c/x", ""), create("/p", ""), ttl, ephemeral]);
    let reapable: Vec<_> = world.machine.reapable().iter().map(|path| String::from(&**path)).collect();
    assert_eq!(reapable, ["/c", "/t"]);
    let zxid = world.machine.view().zxid();
    assert_eq!(reap(&mut world, "/c", zxid), Some(ErrorCode::NotEmpty));
    assert_eq!(reap(&mut world, "/p", zxid), Some(ErrorCode::BadVersion), "a plain node");
    assert_eq!(reap(&mut world, "/e", zxid), Some(ErrorCode::BadVersion), "an ephemeral");
    assert_eq!(reap(&mut world, "/none", zxid), Some(ErrorCode::NoNode));
    assert_eq!(reap(&mut world, "/", Zxid(0)), Some(ErrorCode::BadVersion));
    world.op(set("/t", "touched", -1));
    assert_eq!(reap(&mut world, "/t", zxid), Some(ErrorCode::BadVersion), "changed since");
    let touched = world.machine.view().zxid();
    world.op(delete("/c/x"));
    assert_eq!(reap(&mut world, "/c", zxid), None);
    assert_eq!(reap(&mut world, "/t", Zxid(touched.0 - 1)), None);
    assert!(world.machine.reapable().is_empty());
    assert_eq!(world.machine.view().get("/").map(|node| node.stat().num_children), Some(3));
}

#[test]
fn containers_and_ttl_nodes_are_known_from_a_snapshot() {
    let mut world = World::new(0);
    world.multi(vec![container("/c"), container("/c/d"), create("/p", ""), container("/gone")]);
    let mut view = world.machine.view().clone();
    let merge = |view: &mut View| {
        let delta = view.freeze();
        let snapshot = crate::tree::snapshot::merge_in_memory(view.snapshot(), &delta, 2, Vec::new(), Vec::new())
            .expect("a small tree");
        View::new(Arc::new(snapshot))
    };
    view = merge(&mut view);
    let machine = StateMachine::new(view, SessionTable::new());
    assert_eq!(machine.reapable(), world.machine.reapable());
    // Kept from the snapshot below or deleted since, and merged again.
    let zxid = machine.view().zxid();
    world.machine = machine;
    assert_eq!(reap(&mut world, "/gone", zxid), None);
    let again = StateMachine::new(merge(&mut world.machine.view().clone()), SessionTable::new());
    let left: Vec<_> = again.reapable().iter().map(|path| String::from(&**path)).collect();
    assert_eq!(left, ["/c", "/c/d"]);
}

#[test]
fn one_batch_does_not_count_a_large_tree_again_and_again() {
    let mut world = World::new(0);
    let mut tree = vec![create("/x", ""), create("/zookeeper/quota/x", "")];
    tree.extend((0..60_000).map(|number| create(&format!("/x/{number}"), "")));
    world.multi(tree);
    let stats = "/zookeeper/quota/x/zookeeper_stats";
    let again = || vec![create(stats, ""), delete(stats)];
    let twice = world.multi([again(), again()].concat());
    assert!(!twice.iter().any(|result| matches!(result, OpResult::Error(_))), "the first is free, and one more fits");
    let often = world.multi([again(), again(), again()].concat());
    assert_eq!(often[4], OpResult::Error(ErrorCode::ThrottledOp));
    world.op(create(stats, ""));
    let counted = world.machine.view().get(stats).and_then(|node| node.data().map(<[u8]>::to_vec));
    assert_eq!(counted.as_deref(), Some(&b"count=60001,bytes=0"[..]), "the next batch counts again");
}

#[test]
fn zxids_that_no_leader_gives_take_effect_as_nothing() {
    let mut world = World::new(0);
    world.command(CommandKind::Op(create("/a", "")), Some(ORIGIN));
    let before = world.machine.view().digest();
    let last = world.machine.view().zxid();
    let mut apply = |first_zxid: u64, term: u64| {
        let kind = CommandKind::Op(create("/b", ""));
        let command = Command { origin: Some(ORIGIN), session: world.session, identities: 0, kind };
        let batch = Batch {
            time: WallMillis(1),
            first_zxid,
            features: 0,
            identities: vec![Arc::new(Vec::new())],
            commands: vec![command],
        };
        let applied = world.machine.apply(batch, term);
        assert_eq!(applied.txns.is_empty(), world.machine.view().zxid() == last);
        applied.txns.len()
    };
    for (zxid, term) in [
        (0, 1),
        (last.0, 1),
        (Zxid::of(3, 1).0, 1),
        (Zxid::of(6, 1).0, 5),
        (Zxid::of(1 << 31, 1).0, u64::MAX),
        (u64::MAX, u64::MAX),
    ] {
        assert_eq!(apply(zxid, term), 0, "{zxid:#x} in term {term}");
    }
    // A leader of that term gives this zxid, or the next of the last epoch, and later ones.
    assert_eq!(apply(Zxid::of(5, 1).0, 5), 1);
    assert_ne!(world.machine.view().digest(), before);
}
