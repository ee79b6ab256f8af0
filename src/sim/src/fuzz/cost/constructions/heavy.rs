//! Long names, long paths and large data: few znodes, and much to copy, to compare and to hash.

use corral_wire::OpCode;

use super::super::genome::{Call, Gene, Path, Tree};
use super::{List, call, create, made, many};

/// Just below the limit on a name.
const NAME: u32 = 15_900;
const LARGE: u32 = 500_000;
const LARGE_ZNODES: u32 = 200;
/// As many as there may be.
const QUOTAS: u32 = 5000;
/// As deep as one may be.
const QUOTA_LEVELS: usize = 32;

fn quota_root() -> impl Iterator<Item = Gene> {
    [made("/zookeeper/quota/a")].into_iter()
}

/// A znode with a quota.
fn with_quota(path: &str) -> [Gene; 4] {
    let quota = format!("/zookeeper/quota{path}");
    [path, &quota, &format!("{quota}/zookeeper_limits"), &format!("{quota}/zookeeper_stats")].map(made)
}

pub(super) fn add(list: &mut List) {
    let long = |name: &str| Path { pad: NAME, ..Path::numbered(name) };
    let named = |flags| Gene::Repeat(950, vec![Gene::Call(0, Call { number: flags, ..create(long("/a/")) })]);
    let mut small = |op, what, prepare, genes| list.add(op, what, Tree::Small, prepare, genes);

    let stats = "/zookeeper/quota/a/zookeeper_stats";
    let pairs = vec![create(Path::of(stats)), Call::of(OpCode::Delete, stats)];
    let quota = || vec![named(0), made("/zookeeper/quota/a")];
    small("multi", "80 pairs that count 950 names of 16 KB", quota(), vec![many(pairs, 80)]);
    let all = || vec![call(OpCode::GetAllChildrenNumber, "/a")];
    small("getAllChildrenNumber", "950 names of 16 KB", vec![named(0)], all());
    let ephemerals = Gene::Repeat(260, vec![Gene::Call(0, Call { number: 1, ..create(long("/a/")) })]);
    let close = || vec![call(OpCode::CloseSession, "")];
    small("closeSession", "260 ephemerals with names of 16 KB", vec![ephemerals], close());
    // A piece at a time: where there are quotas a multi of all of them is refused.
    let mine = |path: Path, times: u32| many(vec![Call { number: 1, ..create(path) }], times);
    let limits = || vec![made("/zookeeper/quota/a"), made("/zookeeper/quota/a/zookeeper_limits"), made(stats)];
    let below = Gene::Repeat(10, vec![mine(Path::numbered("/a/d"), 1000)]);
    small("closeSession", "10,000 ephemerals below a quota", [limits(), vec![below]].concat(), close());
    let each = |at: u32| mine(Path::numbered(&format!("/a/q{at}/")), 2);
    let owned = (0..QUOTAS).flat_map(|at| with_quota(&format!("/a/q{at}"))).chain((0..QUOTAS).map(each));
    small("closeSession", "10,000 ephemerals below 5,000 quotas", quota_root().chain(owned).collect(), close());
    let nested = (1..QUOTA_LEVELS).map(|levels| format!("/a{}", "/p".repeat(levels)));
    let deepest = Path::numbered(&format!("/a{}/", "/p".repeat(QUOTA_LEVELS - 1)));
    let below = Gene::Repeat(10, vec![mine(deepest, 1000)]);
    let owned = nested.flat_map(|path| with_quota(&path)).chain([below]);
    small(
        "closeSession",
        "10,000 ephemerals below 31 quotas below each other",
        quota_root().chain(owned).collect(),
        close(),
    );

    let large = Gene::Call(0, Call { data: LARGE, ..create(Path::numbered("/a/")) });
    let stored = || vec![Gene::Repeat(LARGE_ZNODES, vec![large.clone()]), Gene::Snapshot];
    let children = (0..LARGE_ZNODES).map(|at| create(Path::of(&format!("/a/{at}/c")))).collect();
    let each = |op| vec![many(vec![Call { path: Path::numbered("/a/"), ..Call::of(op, "") }], LARGE_ZNODES)];
    let below = vec![Gene::Many { client: 0, read: false, times: 1, calls: children }];
    small("multi", "creates below 200 znodes of 500 KB in a snapshot", stored(), below);
    small("multi", "setACL of 200 znodes of 500 KB in a snapshot", stored(), each(OpCode::SetAcl));
    small("multi", "setData of 200 znodes of 500 KB in a snapshot", stored(), each(OpCode::SetData));
    small("multi", "delete of 200 znodes of 500 KB in a snapshot", stored(), each(OpCode::Delete));
    let mine = Gene::Call(0, Call { number: 1, data: LARGE, ..create(Path::numbered("/a/")) });
    let owned = vec![Gene::Repeat(2 * LARGE_ZNODES, vec![mine]), Gene::Snapshot];
    small("closeSession", "400 ephemerals of 500 KB in a snapshot", owned, close());
}
