//! The dearest constructions known, by operation: the rows of the cost table.

use corral_wire::OpCode;

use super::attack::{Acl, Call, Step, Tree, call};

/// An operation and how to make it dear: the tree that the attack meets, the preparation, and the measured part.
pub struct Construction {
    /// As the table names it.
    pub op: &'static str,
    pub what: &'static str,
    pub(super) tree: Tree,
    pub(super) prepare: Vec<Step>,
    pub(super) steps: Vec<Step>,
}

type Steps = Vec<Step>;

/// Of a name, just below the limit.
const LONG: usize = 15_900;
const STATS: &str = "/zookeeper/quota/zookeeper_stats";

#[derive(Default)]
struct List(Vec<Construction>);

impl List {
    fn small(&mut self, op: &'static str, what: &'static str, prepare: Steps, steps: Steps) {
        self.0.push(Construction { op, what, tree: Tree::Small, prepare, steps });
    }

    fn wide(&mut self, op: &'static str, what: &'static str, prepare: Steps, steps: Steps) {
        self.0.push(Construction { op, what, tree: Tree::Wide, prepare, steps });
    }

    fn large(&mut self, op: &'static str, what: &'static str, steps: Steps) {
        self.0.push(Construction { op, what, tree: Tree::Large, prepare: vec![], steps });
    }
}

pub(super) fn all() -> Vec<Construction> {
    let mut list = List::default();
    let parts = [
        creates, changes, multis, reads, listings, watches, watched, long_names, quotas, large_data, sessions, keepers,
    ];
    parts.iter().for_each(|part| part(&mut list));
    list.0
}

fn one(call: Call) -> Steps {
    vec![Step::Call(0, call)]
}

fn repeat(times: u32, call: Call) -> Steps {
    vec![Step::Repeat(times, one(call))]
}

fn many(times: u32, calls: impl Into<Vec<Call>>) -> Steps {
    vec![Step::Many(OpCode::Multi, times, calls.into())]
}

fn many_reads(times: u32, call: Call) -> Steps {
    vec![Step::Many(OpCode::MultiRead, times, vec![call])]
}

fn fleet(clients: u32, call: Call) -> Steps {
    vec![Step::Fleet(clients, one(call))]
}

fn user(letters: usize) -> Steps {
    vec![Step::Auth(letters)]
}

fn long(name: &str) -> String {
    format!("{name}{}#", "x".repeat(LONG))
}

/// Addresses that match no client, then every client.
fn addresses(zeros: usize) -> Acl {
    Acl { scheme: "ip", id: format!("10.0.0.1/{}32", "0".repeat(zeros)), open: true }
}

/// Users with long names, then every client.
fn users(pad: usize) -> Acl {
    Acl { scheme: "digest", id: format!("u{}1:h", "x".repeat(pad)), open: true }
}

/// The identities that `auth` stands for.
fn myself() -> Acl {
    Acl { scheme: "auth", id: String::new(), open: false }
}

/// `/a/n` with an ACL of 255 addresses.
fn guarded() -> Steps {
    one(Call::create("/a/n").acl(addresses(0)))
}

/// Znodes so many levels down, one below the other.
fn deep(levels: u32) -> Steps {
    repeat(levels, Call::create("/d^"))
}

fn bottom(levels: usize) -> String {
    "/d".repeat(levels)
}

/// Creates of the usage of a quota, which counts the subtree, each followed by its delete.
fn pairs(stats: &str) -> [Call; 2] {
    [Call::create(stats), call(OpCode::Delete, stats)]
}

fn creates(l: &mut List) {
    let n = || Call::create("/a/n#");
    let named = || user(250_000);
    let of_myself = || repeat(5, n().acl(myself()));
    l.small("create", "1 MB of data", vec![], one(n().data(1_000_000)));
    l.small("create", "255 addresses in the ACL", vec![], repeat(20, n().acl(addresses(0))));
    l.small("create", "255 addresses with padded zeros", vec![], one(n().acl(addresses(3900))));
    l.small("create", "255 users of 3.9 KB in the ACL", vec![], one(n().acl(users(3900))));
    l.small("create", "255 `auth` entries under a name of 250 KB", named(), of_myself());
    l.small("create", ".. and a snapshot written", named(), [of_myself(), vec![Step::Snapshot]].concat());
    l.small("create", "small sets of a user with a name of 250 KB", named(), repeat(300, n().data(10)));
    l.small("create", "10,000 of one turn", vec![], vec![Step::Burst(10_000, one(n()))]);
    l.small("create", "a path of 1,000 levels", deep(999), one(Call::create(bottom(1000))));
    l.large("create", "a quota's usage: 150,000 znodes counted", one(Call::create(STATS)));
    let [count, drop] = pairs(STATS);
    let both = [one(count), one(drop)].concat();
    l.large("create", ".. counted and deleted 40 times in one turn", vec![Step::Burst(40, both)]);
    for (name, op, flags) in [
        ("create2", OpCode::Create2, 0),
        ("createTTL", OpCode::CreateTtl, 5),
        ("createContainer", OpCode::CreateContainer, 4),
        ("createIfNotExists", OpCode::CreateIfNotExists, 0),
    ] {
        let create = call(op, "/a/n#").number(flags).acl(addresses(0));
        l.small(name, "255 addresses in the ACL", vec![], repeat(20, create));
    }
}

fn changes(l: &mut List) {
    for (name, op) in [("setData", OpCode::SetData), ("delete", OpCode::Delete), ("setACL", OpCode::SetAcl)] {
        let calls = repeat(1000, call(op, "/a/n").number(7));
        l.small(name, "255 addresses in the ACL that is checked", guarded(), calls);
    }
    let set_acl = |acl| one(call(OpCode::SetAcl, "/a").acl(acl));
    let set = || call(OpCode::SetData, "/a");
    l.small("setACL", "255 users of 3.9 KB", vec![], set_acl(users(3900)));
    l.small("setACL", "255 `auth` entries under a name of 250 KB", user(250_000), set_acl(myself()));
    l.small("setData", "1 MB", vec![], one(set().data(1_000_000)));
    let recursive = |path| call(OpCode::AddWatch, path).number(1);
    let elsewhere = vec![Step::Call(1, recursive("/b"))];
    let low = many(100, [call(OpCode::SetData, bottom(1000))]);
    l.small("setData", "1,000 levels deep, a recursive watch elsewhere", [deep(1000), elsewhere].concat(), low);
    l.small("setData", "200 recursive watchers that read", fleet(200, recursive("/")), repeat(100, set()));
    let silent = vec![Step::Fleet(45, [one(recursive("/")), vec![Step::StopReading]].concat())];
    l.small("setData", "45 recursive watchers that do not read", silent, repeat(1000, set()));
    let sets = many(10_000, [set()]);
    l.small("multi", "10,000 setData of one znode beside 45 recursive watchers", fleet(45, recursive("/")), sets);
    let once = fleet(50_000, call(OpCode::GetData, "/a").watch());
    l.small("setData", "50,000 watchers of the znode, once each", once, one(set()));
    l.small("deleteContainer", "refused", vec![], one(call(OpCode::DeleteContainer, "/a")));
    let reconfig = one(call(OpCode::Reconfig, "server.9=h:1:2;3"));
    l.small("reconfig", "60 servers to join, of a server alone", vec![], reconfig);
}

fn multis(l: &mut List) {
    let check = |path| call(OpCode::Check, path);
    let by_users = [user(100), one(Call::create("/a/n").acl(users(100)))].concat();
    l.small("multi", "49,000 checks of 255 addresses", guarded(), many(49_000, [check("/a/n")]));
    l.small("multi", "49,000 checks of 255 users of 100 bytes", by_users, many(49_000, [check("/a/n")]));
    l.small("multi", "30,000 checks of an open znode", vec![], many(30_000, [check("/a")]));
    l.small("multi", "15,000 creates", vec![], many(15_000, [Call::create("/a/#")]));
    let pair = [Call::create("/a/n"), call(OpCode::Delete, "/a/n")];
    l.small("multi", "10,000 creates and deletes of one znode", vec![], many(10_000, pair));
    let mut failing: Vec<Call> = (0..15_000).map(|at| Call::create(format!("/a/{at}"))).collect();
    failing.push(Call::create("/a"));
    l.small("multi", "15,000 creates, the last fails", vec![], many(1, failing));
    l.small("multi", "20,000 setData of one znode", vec![], many(20_000, [call(OpCode::SetData, "/a")]));
    l.large("multi", "200 pairs that count 150,000 znodes", many(200, pairs(STATS)));
}

fn reads(l: &mut List) {
    for (name, op) in [("getData", OpCode::GetData), ("exists", OpCode::Exists), ("getACL", OpCode::GetAcl)] {
        l.small(name, "255 addresses in the ACL", guarded(), repeat(1000, call(op, "/a/n")));
    }
    let by_users = || one(Call::create("/a/n").acl(users(100)));
    let get = |path| call(OpCode::GetData, path);
    l.small("getACL", "255 users of 100 bytes", by_users(), repeat(20, call(OpCode::GetAcl, "/a/n")));
    l.small("multiRead", "20,000 getData of 255 addresses", guarded(), many_reads(20_000, get("/a/n")));
    let named = [user(100), by_users()].concat();
    l.small("multiRead", "20,000 getData of 255 users of 100 bytes", named, many_reads(20_000, get("/a/n")));
    l.small("multiRead", "30,000 getData", vec![], many_reads(30_000, get("/a")));
    let stored = one(call(OpCode::SetData, "/a").data(1_000_000));
    l.small("multiRead", "15 getData of 1 MB", stored, many_reads(15, get("/a")));
    for (name, op) in [("sync", OpCode::Sync), ("ping", OpCode::Ping), ("sasl", OpCode::Sasl)] {
        l.small(name, "1,000 of them", vec![], repeat(1000, call(op, "/a")));
    }
    l.small("whoAmI", "a name of 250 KB", user(250_000), repeat(20, call(OpCode::WhoAmI, "")));
    l.small("auth", "a name of 250 KB, again and again", vec![], vec![Step::Repeat(10, user(250_000))]);
}

fn listings(l: &mut List) {
    for (name, op) in [("getChildren", OpCode::GetChildren), ("getChildren2", OpCode::GetChildren2)] {
        l.wide(name, "20,000 children", vec![], repeat(10, call(op, "/wide")));
    }
    let long_names = repeat(950, Call::create(long("/a/n")));
    l.small("getChildren", "950 names of 16 KB", long_names, one(call(OpCode::GetChildren, "/a")));
    let listing = || call(OpCode::GetChildren, "/wide");
    l.wide("multiRead", "80 listings of 20,000 children", vec![], many_reads(80, listing()));
    l.wide("multiRead", "2,000 listings of 20,000 children", vec![], many_reads(2000, listing()));
    let ephemerals = many(10_000, [Call::create("/a/e#").number(1)]);
    l.small("getEphemerals", "10,000 ephemerals", ephemerals, repeat(10, call(OpCode::GetEphemerals, "/")));
    l.large("getAllChildrenNumber", "150,000 znodes", one(call(OpCode::GetAllChildrenNumber, "/large")));
}

fn watches(l: &mut List) {
    let set = |op, name: &str| one(call(op, format!("{name}#")).count(10_000));
    l.small("setWatches", "30,000 paths, none exists", vec![], set(OpCode::SetWatches, "/none"));
    l.wide("setWatches", "30,000 paths, all fire", vec![], set(OpCode::SetWatches, "/wide/n"));
    l.wide("setWatches2", "50,000 paths", vec![], set(OpCode::SetWatches2, "/wide/n"));
    let add = |mode, path: &str| call(OpCode::AddWatch, path).number(mode);
    let adds = |count| repeat(count, add(1, "/n#"));
    l.small("addWatch", "10,000 paths", vec![], adds(10_000));
    l.small("addWatch", "100 paths of 900 KB", vec![], repeat(100, add(0, &long("/n"))));
    let each = |op| repeat(5000, call(op, "/n#").number(5));
    l.small("removeWatches", "5,000 recursive watches, one by one", adds(5000), each(OpCode::RemoveWatches));
    l.small("checkWatches", "5,000 recursive watches, one by one", adds(5000), each(OpCode::CheckWatches));
    let sets = many(10_000, [call(OpCode::SetData, "/a")]);
    l.small("multi", "10,000 changes under 20,000 recursive watches", adds(20_000), sets);
}

/// Writes that many clients watch, and requests beyond their budget.
fn watched(l: &mut List) {
    let recursive = |count| fleet(count, call(OpCode::AddWatch, "/").number(1));
    let set = || call(OpCode::SetData, "/a");
    // Below the limit on sessions, with room for the writer.
    let once = fleet(999_990, call(OpCode::GetData, "/a").watch());
    l.small("setData", "999,990 watchers of the znode, once each", once, one(set()));
    l.small("setData", "1,000 recursive watchers", recursive(1000), one(set()));
    l.small("setData", "10,000 recursive watchers", recursive(10_000), one(set()));
    let sets = many(10_000, [set()]);
    l.small("multi", "10,000 setData of one znode beside 1,000 recursive watchers", recursive(1000), sets);
    l.small("multi", "40,000 setData of one znode, beyond the budget", vec![], many(40_000, [set()]));
    let longer = || many(8000, [Call::create(format!("/a/{}#", "x".repeat(60)))]);
    l.small("multi", "8,000 creates, then 8,000 again that exist", vec![], [longer(), longer()].concat());
    l.small("multiRead", "50,000 getData", vec![], many_reads(50_000, call(OpCode::GetData, "/a")));
    let lists = vec![Step::Repeat(126, many_reads(26, call(OpCode::GetChildren, "/wide")))];
    let between = vec![Step::Burst(1, [one(set()), lists, one(set())].concat())];
    l.wide("multiRead", "126 of 26 lists of 20,000 children, between two setData", vec![], between);
}

fn long_names(l: &mut List) {
    let named = || repeat(950, Call::create(long("/a/")));
    let quota = [named(), one(Call::create("/zookeeper/quota/a"))].concat();
    let counts = many(80, pairs("/zookeeper/quota/a/zookeeper_stats"));
    l.small("multi", "80 pairs that count 950 names of 16 KB", quota, counts);
    l.small("getAllChildrenNumber", "950 names of 16 KB", named(), one(call(OpCode::GetAllChildrenNumber, "/a")));
    let ephemerals = repeat(260, Call::create(long("/a/")).number(1));
    l.small("closeSession", "260 ephemerals with names of 16 KB", ephemerals, close());
}

fn close() -> Steps {
    one(call(OpCode::CloseSession, ""))
}

/// A znode with a quota.
fn with_quota(path: &str) -> Steps {
    let quota = format!("/zookeeper/quota{path}");
    let paths = [path, &quota, &format!("{quota}/zookeeper_limits"), &format!("{quota}/zookeeper_stats")];
    paths.map(|path| Step::Call(0, Call::create(path))).into()
}

/// Sessions with ephemerals below as many quotas as there may be. A piece at a time: a multi of all of them is refused.
fn quotas(l: &mut List) {
    let mine = |name: &str, times| many(times, [Call::create(format!("{name}#")).number(1)]);
    let root = || one(Call::create("/zookeeper/quota/a"));
    let below = |name: &str| vec![Step::Repeat(10, mine(name, 1000))];
    let limits = ["/zookeeper/quota/a/zookeeper_limits", "/zookeeper/quota/a/zookeeper_stats"];
    let limits: Steps = limits.into_iter().flat_map(|path| one(Call::create(path))).collect();
    l.small("closeSession", "10,000 ephemerals below a quota", [root(), limits, below("/a/d")].concat(), close());
    let each = (0..5000).flat_map(|at| with_quota(&format!("/a/q{at}")));
    let owned: Steps = each.chain((0..5000).flat_map(|at| mine(&format!("/a/q{at}/"), 2))).collect();
    l.small("closeSession", "10,000 ephemerals below 5,000 quotas", [root(), owned].concat(), close());
    let nested: Steps = (1..32).flat_map(|levels| with_quota(&format!("/a{}", "/p".repeat(levels)))).collect();
    let owned = [root(), nested, below(&format!("/a{}/", "/p".repeat(31)))].concat();
    l.small("closeSession", "10,000 ephemerals below 31 quotas below each other", owned, close());
}

/// Few znodes, and much to copy, to compare and to hash.
fn large_data(l: &mut List) {
    let large = |flags| Call::create("/a/#").number(flags).data(500_000);
    let stored = |times, flags| [repeat(times, large(flags)), vec![Step::Snapshot]].concat();
    let children: Vec<Call> = (0..200).map(|at| Call::create(format!("/a/{at}/c"))).collect();
    let each = |op| many(200, [call(op, "/a/#")]);
    l.small("multi", "creates below 200 znodes of 500 KB in a snapshot", stored(200, 0), many(1, children));
    l.small("multi", "setACL of 200 znodes of 500 KB in a snapshot", stored(200, 0), each(OpCode::SetAcl));
    l.small("multi", "setData of 200 znodes of 500 KB in a snapshot", stored(200, 0), each(OpCode::SetData));
    l.small("multi", "delete of 200 znodes of 500 KB in a snapshot", stored(200, 0), each(OpCode::Delete));
    l.small("closeSession", "400 ephemerals of 500 KB in a snapshot", stored(400, 1), close());
}

fn sessions(l: &mut List) {
    let handshake = || call(OpCode::Ping, "");
    let mine = |count| many(count, [Call::create("/a/e#").number(1)]);
    l.small("connect", "2,000 new sessions", vec![], fleet(2000, handshake()));
    let attach = |pairs: &[(u8, u8)], wrong| pairs.iter().map(|(by, of)| Step::Attach(*by, *of, wrong)).collect();
    let all = vec![Step::Repeat(500, attach(&[(1, 0), (0, 1)], false))];
    l.small("connect", "1,000 attachments to one session with 10,000 ephemerals", mine(10_000), all);
    let wrong = vec![Step::Repeat(1000, attach(&[(1, 0)], true))];
    l.small("connect", "1,000 attachments with a wrong password", one(handshake()), wrong);
    l.small("closeSession", "one with 10,000 ephemerals", mine(10_000), close());
    let expire = vec![Step::Fleet(1000, mine(150)), Step::Pass(300_000), Step::Pass(300_000)];
    l.small("closeSession", "1,000 sessions of 150 ephemerals expire together", vec![], expire);
}

fn keepers(l: &mut List) {
    let filtered = |op, number| call(op, "/wide").number(number);
    let ephemerals = || filtered(OpCode::FilteredList, 2);
    let with_data = filtered(OpCode::FilteredListWithStatsAndData, 0);
    l.wide("filteredList", "the ephemerals among 20,000 children", vec![], repeat(10, ephemerals()));
    l.wide("multiRead", "100 filtered lists of 20,000 children", vec![], many_reads(100, ephemerals()));
    l.wide("filteredListWithStatsAndData", "20,000 children", vec![], one(with_data));
    let walk = |op, limit| call(op, "/large").number(limit);
    let remove = |limit| walk(OpCode::RemoveRecursive, limit);
    l.large("listRecursive", "150,000 znodes", one(walk(OpCode::ListRecursive, 1_000_000)));
    l.large("removeRecursive", "150,000 znodes", one(remove(1_000_000)));
    l.large("removeRecursive", "150,000 znodes, one too many", one(remove(149_000)));
    let refused = many(200, [remove(149_000)]);
    l.large("removeRecursive", "200 in a multi, all of 150,000 znodes, each one too many", refused);
    // All of 20,000 children in a snapshot are deleted, and one is there that sorts behind them.
    let gone = || {
        let each = many(1000, [call(OpCode::Delete, "/wide/n#")]);
        let behind = [Call::create("/wide/z"), Call::create("/zookeeper/quota/wide")].map(one).concat();
        [vec![Step::Repeat(20, each)], behind].concat()
    };
    let again = [call(OpCode::RemoveRecursive, "/wide").number(9), Call::create("/wide"), Call::create("/wide/z")];
    l.wide("removeRecursive", "400 in a multi behind 20,000 deleted children", gone(), many(400, again));
    let counts = many(80, pairs("/zookeeper/quota/wide/zookeeper_stats"));
    l.wide("multi", "80 pairs that count behind 20,000 deleted children", gone(), counts);
    for (name, op) in
        [("checkNotExists", OpCode::CheckNotExists), ("checkStat", OpCode::CheckStat), ("tryRemove", OpCode::TryRemove)]
    {
        let calls = many(10_000, [call(op, "/a/n").number(7)]);
        l.small(name, "10,000 in a multi, 255 addresses in the ACL", guarded(), calls);
    }
}
