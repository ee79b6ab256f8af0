//! The dearest constructions known, by operation: the rows of the cost table, and seeds of the search.

mod heavy;
mod watchers;

use corral_wire::OpCode;

use super::genome::{Acl, Call, Gene, Genome, Path, Tree, Vary};

/// An operation and how to make it dear.
pub struct Construction {
    /// As the table names it.
    pub op: &'static str,
    pub what: &'static str,
    pub genome: Genome,
}

struct List(Vec<Construction>);

impl List {
    fn add(&mut self, op: &'static str, what: &'static str, tree: Tree, prepare: Vec<Gene>, genes: Vec<Gene>) {
        let keeper = genes.iter().chain(&prepare).any(is_keepers);
        self.0.push(Construction { op, what, genome: Genome { tree, keeper, prepare, genes } });
    }
}

fn is_keepers(gene: &Gene) -> bool {
    let of = |call: &Call| (500..600).contains(&call.op);
    match gene {
        Gene::Call(_, call) => of(call),
        Gene::Many { calls, .. } => calls.iter().any(of),
        Gene::Repeat(_, genes) | Gene::Burst(_, genes) | Gene::Fleet(_, genes) => genes.iter().any(is_keepers),
        _ => false,
    }
}

/// Every construction.
pub fn all() -> Vec<Construction> {
    let mut list = List(Vec::new());
    creates(&mut list);
    changes(&mut list);
    multis(&mut list);
    reads(&mut list);
    listings(&mut list);
    watches(&mut list);
    watchers::add(&mut list);
    heavy::add(&mut list);
    sessions(&mut list);
    keepers(&mut list);
    list.0
}

fn call(op: OpCode, path: &str) -> Gene {
    Gene::Call(0, Call::of(op, path))
}

fn create(path: Path) -> Call {
    Call { path, number: 0, ..Call::of(OpCode::Create, "") }
}

fn made(path: &str) -> Gene {
    Gene::Call(0, create(Path::of(path)))
}

fn many(calls: Vec<Call>, times: u32) -> Gene {
    Gene::Many { client: 0, read: false, times, calls }
}

fn many_reads(call: Call, times: u32) -> Gene {
    Gene::Many { client: 0, read: true, times, calls: vec![call] }
}

fn user(pad: u32) -> Gene {
    Gene::Auth { client: 0, scheme: "digest".into(), user: "u".into(), pad }
}

/// 255 addresses that nobody has, then everybody.
fn addresses(zeros: u32) -> Acl {
    Acl { count: 255, vary: Vary::Perms, run: zeros, run_at: 2, open: true, ..Acl::one(31, "ip", "10.0.0.1/32") }
}

/// 255 users with long names.
fn users(pad: u32) -> Acl {
    let id = "u1:h";
    Acl { count: 255, vary: Vary::Perms, run: pad, run_at: 3, run_of: 'x', open: true, ..Acl::one(31, "digest", id) }
}

/// What `auth` stands for, 255 times.
fn myself() -> Acl {
    Acl { count: 255, vary: Vary::Perms, ..Acl::one(31, "auth", "") }
}

fn with_acl(path: Path, acl: Acl) -> Gene {
    Gene::Call(0, Call { acl: Some(acl), ..create(path) })
}

/// A znode so many levels down, and all above it.
fn deep(levels: u32) -> Gene {
    let path = Path { deeper: true, ..Path::of("/d") };
    Gene::Repeat(levels, vec![Gene::Call(0, create(path))])
}

fn bottom(op: OpCode, levels: u32) -> Call {
    Call { path: Path { levels: levels - 1, ..Path::of("/d") }, ..Call::of(op, "") }
}

fn creates(list: &mut List) {
    use Tree::Small;
    let numbered = || Path::numbered("/a/n");
    list.add(
        "create",
        "1 MB of data",
        Small,
        vec![],
        vec![Gene::Call(0, Call { data: 1_000_000, ..create(numbered()) })],
    );
    list.add(
        "create",
        "255 addresses in the ACL",
        Small,
        vec![],
        vec![Gene::Repeat(20, vec![with_acl(numbered(), addresses(0))])],
    );
    list.add("create", "255 addresses with padded zeros", Small, vec![], vec![with_acl(numbered(), addresses(3900))]);
    list.add("create", "255 users of 3.9 KB in the ACL", Small, vec![], vec![with_acl(numbered(), users(3900))]);
    list.add(
        "create",
        "255 `auth` entries under a name of 250 KB",
        Small,
        vec![user(250_000)],
        vec![Gene::Repeat(5, vec![with_acl(numbered(), myself())])],
    );
    list.add(
        "create",
        ".. and a snapshot written",
        Small,
        vec![user(250_000)],
        vec![Gene::Repeat(5, vec![with_acl(numbered(), myself())]), Gene::Snapshot],
    );
    list.add(
        "create",
        "small sets of a user with a name of 250 KB",
        Small,
        vec![user(250_000)],
        vec![Gene::Repeat(300, vec![Gene::Call(0, Call { data: 10, ..create(numbered()) })])],
    );
    list.add(
        "create",
        "10,000 of one turn",
        Small,
        vec![],
        vec![Gene::Burst(10_000, vec![Gene::Call(0, create(numbered()))])],
    );
    list.add(
        "create",
        "a path of 1,000 levels",
        Small,
        vec![deep(999)],
        vec![Gene::Call(0, Call { path: Path { levels: 999, ..Path::of("/d") }, ..create(Path::default()) })],
    );
    counts(list);
}

fn counts(list: &mut List) {
    use Tree::{Large, Small};
    let numbered = || Path::numbered("/a/n");
    let stats = || made("/zookeeper/quota/zookeeper_stats");
    list.add("create", "a quota's usage: 150,000 znodes counted", Large, vec![], vec![stats()]);
    let drop = call(OpCode::Delete, "/zookeeper/quota/zookeeper_stats");
    list.add(
        "create",
        ".. counted and deleted 40 times in one turn",
        Large,
        vec![],
        vec![Gene::Burst(40, vec![stats(), drop])],
    );
    for (name, op, flags) in [
        ("create2", OpCode::Create2, 0),
        ("createTTL", OpCode::CreateTtl, 5),
        ("createContainer", OpCode::CreateContainer, 4),
        ("createIfNotExists", OpCode::CreateIfNotExists, 0),
    ] {
        let one = Call { op: op.number(), number: flags, acl: Some(addresses(0)), ..create(numbered()) };
        list.add(name, "255 addresses in the ACL", Small, vec![], vec![Gene::Repeat(20, vec![Gene::Call(0, one)])]);
    }
}

fn changes(list: &mut List) {
    use Tree::Small;
    let target = || Path::of("/a/n");
    let guarded = || vec![with_acl(target(), addresses(0))];
    for (name, op) in [("setData", OpCode::SetData), ("delete", OpCode::Delete), ("setACL", OpCode::SetAcl)] {
        list.add(
            name,
            "255 addresses in the ACL that is checked",
            Small,
            guarded(),
            vec![Gene::Repeat(1000, vec![Gene::Call(0, Call { number: 7, ..Call::of(op, "/a/n") })])],
        );
    }
    list.add(
        "setACL",
        "255 users of 3.9 KB",
        Small,
        vec![],
        vec![Gene::Call(0, Call { acl: Some(users(3900)), ..Call::of(OpCode::SetAcl, "/a") })],
    );
    list.add(
        "setACL",
        "255 `auth` entries under a name of 250 KB",
        Small,
        vec![user(250_000)],
        vec![Gene::Call(0, Call { acl: Some(myself()), ..Call::of(OpCode::SetAcl, "/a") })],
    );
    list.add(
        "setData",
        "1 MB",
        Small,
        vec![],
        vec![Gene::Call(0, Call { data: 1_000_000, ..Call::of(OpCode::SetData, "/a") })],
    );
    watched_changes(list);
}

fn watched_changes(list: &mut List) {
    use Tree::Small;
    let recursive = Gene::Call(1, Call { number: 1, ..Call::of(OpCode::AddWatch, "/b") });
    list.add(
        "setData",
        "1,000 levels deep, a recursive watch elsewhere",
        Small,
        vec![deep(1000), recursive],
        vec![many(vec![bottom(OpCode::SetData, 1000)], 100)],
    );
    list.add(
        "setData",
        "200 recursive watchers that read",
        Small,
        vec![Gene::Fleet(200, vec![Gene::Call(0, Call { number: 1, ..Call::of(OpCode::AddWatch, "/") })])],
        vec![Gene::Repeat(100, vec![call(OpCode::SetData, "/a")])],
    );
    list.add(
        "setData",
        "45 recursive watchers that do not read",
        Small,
        vec![Gene::Fleet(
            45,
            vec![Gene::Call(0, Call { number: 1, ..Call::of(OpCode::AddWatch, "/") }), Gene::StopReading(0)],
        )],
        vec![Gene::Repeat(1000, vec![call(OpCode::SetData, "/a")])],
    );
    list.add(
        "multi",
        "10,000 setData of one znode beside 45 recursive watchers",
        Small,
        vec![Gene::Fleet(45, vec![Gene::Call(0, Call { number: 1, ..Call::of(OpCode::AddWatch, "/") })])],
        vec![many(vec![Call::of(OpCode::SetData, "/a")], 10_000)],
    );
    list.add(
        "setData",
        "50,000 watchers of the znode, once each",
        Small,
        vec![Gene::Fleet(50_000, vec![Gene::Call(0, Call { flag: true, ..Call::of(OpCode::GetData, "/a") })])],
        vec![call(OpCode::SetData, "/a")],
    );
    list.add("deleteContainer", "refused", Small, vec![], vec![call(OpCode::DeleteContainer, "/a")]);
    list.add(
        "reconfig",
        "60 servers to join, of a server alone",
        Small,
        vec![],
        vec![call(OpCode::Reconfig, "server.9=h:1:2;3")],
    );
}

fn multis(list: &mut List) {
    use Tree::{Large, Small};
    let check = || Call::of(OpCode::Check, "/a/n");
    list.add(
        "multi",
        "49,000 checks of 255 addresses",
        Small,
        vec![with_acl(Path::of("/a/n"), addresses(0))],
        vec![many(vec![check()], 49_000)],
    );
    list.add(
        "multi",
        "49,000 checks of 255 users of 100 bytes",
        Small,
        vec![user(100), with_acl(Path::of("/a/n"), users(100))],
        vec![many(vec![check()], 49_000)],
    );
    list.add(
        "multi",
        "30,000 checks of an open znode",
        Small,
        vec![],
        vec![many(vec![Call::of(OpCode::Check, "/a")], 30_000)],
    );
    list.add("multi", "15,000 creates", Small, vec![], vec![many(vec![create(Path::numbered("/a/"))], 15_000)]);
    let pair = || vec![create(Path::of("/a/n")), Call::of(OpCode::Delete, "/a/n")];
    list.add("multi", "10,000 creates and deletes of one znode", Small, vec![], vec![many(pair(), 10_000)]);
    list.add(
        "multi",
        "15,000 creates, the last fails",
        Small,
        vec![],
        vec![Gene::Many { client: 0, read: false, times: 1, calls: failing(15_000) }],
    );
    list.add(
        "multi",
        "20,000 setData of one znode",
        Small,
        vec![],
        vec![many(vec![Call::of(OpCode::SetData, "/a")], 20_000)],
    );
    let stats = "/zookeeper/quota/zookeeper_stats";
    list.add(
        "multi",
        "200 pairs that count 150,000 znodes",
        Large,
        vec![],
        vec![many(vec![create(Path::of(stats)), Call::of(OpCode::Delete, stats)], 200)],
    );
}

fn failing(count: u32) -> Vec<Call> {
    let mut calls: Vec<Call> = (0..count).map(|at| create(Path::of(&format!("/a/{at}")))).collect();
    calls.push(create(Path::of("/a")));
    calls
}

fn reads(list: &mut List) {
    use Tree::Small;
    for (name, op) in [("getData", OpCode::GetData), ("exists", OpCode::Exists), ("getACL", OpCode::GetAcl)] {
        list.add(
            name,
            "255 addresses in the ACL",
            Small,
            vec![with_acl(Path::of("/a/n"), addresses(0))],
            vec![Gene::Repeat(1000, vec![call(op, "/a/n")])],
        );
    }
    list.add(
        "getACL",
        "255 users of 100 bytes",
        Small,
        vec![with_acl(Path::of("/a/n"), users(100))],
        vec![Gene::Repeat(20, vec![call(OpCode::GetAcl, "/a/n")])],
    );
    list.add(
        "multiRead",
        "20,000 getData of 255 addresses",
        Small,
        vec![with_acl(Path::of("/a/n"), addresses(0))],
        vec![many_reads(Call::of(OpCode::GetData, "/a/n"), 20_000)],
    );
    list.add(
        "multiRead",
        "20,000 getData of 255 users of 100 bytes",
        Small,
        vec![user(100), with_acl(Path::of("/a/n"), users(100))],
        vec![many_reads(Call::of(OpCode::GetData, "/a/n"), 20_000)],
    );
    list.add("multiRead", "30,000 getData", Small, vec![], vec![many_reads(Call::of(OpCode::GetData, "/a"), 30_000)]);
    list.add(
        "multiRead",
        "15 getData of 1 MB",
        Small,
        vec![Gene::Call(0, Call { data: 1_000_000, ..Call::of(OpCode::SetData, "/a") })],
        vec![many_reads(Call::of(OpCode::GetData, "/a"), 15)],
    );
    for (name, op) in [("sync", OpCode::Sync), ("ping", OpCode::Ping), ("sasl", OpCode::Sasl)] {
        list.add(name, "1,000 of them", Small, vec![], vec![Gene::Repeat(1000, vec![call(op, "/a")])]);
    }
    list.add(
        "whoAmI",
        "a name of 250 KB",
        Small,
        vec![user(250_000)],
        vec![Gene::Repeat(20, vec![call(OpCode::WhoAmI, "")])],
    );
    list.add("auth", "a name of 250 KB, again and again", Small, vec![], vec![Gene::Repeat(10, vec![user(250_000)])]);
}

fn listings(list: &mut List) {
    use Tree::{Large, Small, Wide};
    for (name, op) in [("getChildren", OpCode::GetChildren), ("getChildren2", OpCode::GetChildren2)] {
        list.add(name, "20,000 children", Wide, vec![], vec![Gene::Repeat(10, vec![call(op, "/wide")])]);
    }
    let long = Call { path: Path { pad: 15_900, numbered: true, ..Path::of("/a/n") }, ..create(Path::default()) };
    list.add(
        "getChildren",
        "950 names of 16 KB",
        Small,
        vec![Gene::Repeat(950, vec![Gene::Call(0, long)])],
        vec![call(OpCode::GetChildren, "/a")],
    );
    list.add(
        "multiRead",
        "80 listings of 20,000 children",
        Wide,
        vec![],
        vec![many_reads(Call::of(OpCode::GetChildren, "/wide"), 80)],
    );
    list.add(
        "multiRead",
        "2,000 listings of 20,000 children",
        Wide,
        vec![],
        vec![many_reads(Call::of(OpCode::GetChildren, "/wide"), 2000)],
    );
    let ephemerals = |name| many(vec![Call { number: 1, ..create(Path::numbered(name)) }], 10_000);
    list.add(
        "getEphemerals",
        "10,000 ephemerals",
        Small,
        vec![ephemerals("/a/e")],
        vec![Gene::Repeat(10, vec![call(OpCode::GetEphemerals, "/")])],
    );
    list.add(
        "getAllChildrenNumber",
        "150,000 znodes",
        Large,
        vec![],
        vec![call(OpCode::GetAllChildrenNumber, "/large")],
    );
}

fn watches(list: &mut List) {
    use Tree::{Small, Wide};
    let set = |op, count, path: Path| Gene::Call(0, Call { count, path, ..Call::of(op, "") });
    list.add(
        "setWatches",
        "30,000 paths, none exists",
        Small,
        vec![],
        vec![set(OpCode::SetWatches, 10_000, Path::numbered("/none"))],
    );
    list.add(
        "setWatches",
        "30,000 paths, all fire",
        Wide,
        vec![],
        vec![set(OpCode::SetWatches, 10_000, Path::numbered("/wide/n"))],
    );
    list.add(
        "setWatches2",
        "50,000 paths",
        Wide,
        vec![],
        vec![set(OpCode::SetWatches2, 10_000, Path::numbered("/wide/n"))],
    );
    let add = |mode, path: Path| Gene::Call(0, Call { number: mode, path, ..Call::of(OpCode::AddWatch, "") });
    list.add("addWatch", "10,000 paths", Small, vec![], vec![Gene::Repeat(10_000, vec![add(1, Path::numbered("/n"))])]);
    list.add(
        "addWatch",
        "100 paths of 900 KB",
        Small,
        vec![],
        vec![Gene::Repeat(100, vec![add(0, Path { pad: 15_900, numbered: true, ..Path::of("/n") })])],
    );
    let remove = |op| Gene::Call(0, Call { number: 5, path: Path::numbered("/n"), ..Call::of(op, "") });
    let watched = || vec![Gene::Repeat(5000, vec![add(1, Path::numbered("/n"))])];
    list.add(
        "removeWatches",
        "5,000 recursive watches, one by one",
        Small,
        watched(),
        vec![Gene::Repeat(5000, vec![remove(OpCode::RemoveWatches)])],
    );
    list.add(
        "checkWatches",
        "5,000 recursive watches, one by one",
        Small,
        watched(),
        vec![Gene::Repeat(5000, vec![remove(OpCode::CheckWatches)])],
    );
    list.add(
        "multi",
        "10,000 changes under 20,000 recursive watches",
        Small,
        vec![Gene::Repeat(20_000, vec![add(1, Path::numbered("/n"))])],
        vec![many(vec![Call::of(OpCode::SetData, "/a")], 10_000)],
    );
}

fn sessions(list: &mut List) {
    use Tree::Small;
    let handshake = || call(OpCode::Ping, "");
    let mine = |count| many(vec![Call { number: 1, ..create(Path::numbered("/a/e")) }], count);
    list.add("connect", "2,000 new sessions", Small, vec![], vec![Gene::Fleet(2000, vec![handshake()])]);
    list.add(
        "connect",
        "1,000 attachments to one session with 10,000 ephemerals",
        Small,
        vec![mine(10_000)],
        vec![Gene::Repeat(500, vec![Gene::Attach(1, 0, false), Gene::Attach(0, 1, false)])],
    );
    list.add(
        "connect",
        "1,000 attachments with a wrong password",
        Small,
        vec![handshake()],
        vec![Gene::Repeat(1000, vec![Gene::Attach(1, 0, true)])],
    );
    list.add(
        "closeSession",
        "one with 10,000 ephemerals",
        Small,
        vec![mine(10_000)],
        vec![call(OpCode::CloseSession, "")],
    );
    list.add(
        "closeSession",
        "1,000 sessions of 150 ephemerals expire together",
        Small,
        vec![],
        vec![Gene::Fleet(1000, vec![mine(150)]), Gene::Pass(300_000), Gene::Pass(300_000)],
    );
}

fn keepers(list: &mut List) {
    use Tree::{Large, Small, Wide};
    let filtered = |op, number| Gene::Call(0, Call { number, ..Call::of(op, "/wide") });
    list.add(
        "filteredList",
        "the ephemerals among 20,000 children",
        Wide,
        vec![],
        vec![Gene::Repeat(10, vec![filtered(OpCode::FilteredList, 2)])],
    );
    list.add(
        "multiRead",
        "100 filtered lists of 20,000 children",
        Wide,
        vec![],
        vec![many_reads(Call { number: 2, ..Call::of(OpCode::FilteredList, "/wide") }, 100)],
    );
    list.add(
        "filteredListWithStatsAndData",
        "20,000 children",
        Wide,
        vec![],
        vec![filtered(OpCode::FilteredListWithStatsAndData, 0)],
    );
    let walk = |op, limit| Gene::Call(0, Call { number: limit, ..Call::of(op, "/large") });
    list.add("listRecursive", "150,000 znodes", Large, vec![], vec![walk(OpCode::ListRecursive, 1_000_000)]);
    list.add("removeRecursive", "150,000 znodes", Large, vec![], vec![walk(OpCode::RemoveRecursive, 1_000_000)]);
    list.add(
        "removeRecursive",
        "150,000 znodes, one too many",
        Large,
        vec![],
        vec![walk(OpCode::RemoveRecursive, 149_000)],
    );
    list.add(
        "removeRecursive",
        "200 in a multi, all of 150,000 znodes, each one too many",
        Large,
        vec![],
        vec![many(vec![Call { number: 149_000, ..Call::of(OpCode::RemoveRecursive, "/large") }], 200)],
    );
    // All of 20,000 children in a snapshot are deleted, and one is there that sorts behind them.
    let gone = || {
        let each = many(vec![Call { path: Path::numbered("/wide/n"), ..Call::of(OpCode::Delete, "") }], 1000);
        vec![Gene::Repeat(20, vec![each]), made("/wide/z"), made("/zookeeper/quota/wide")]
    };
    let again = vec![
        Call { number: 9, ..Call::of(OpCode::RemoveRecursive, "/wide") },
        create(Path::of("/wide")),
        create(Path::of("/wide/z")),
    ];
    list.add("removeRecursive", "400 in a multi behind 20,000 deleted children", Wide, gone(), vec![many(again, 400)]);
    let stats = "/zookeeper/quota/wide/zookeeper_stats";
    let pairs = vec![create(Path::of(stats)), Call::of(OpCode::Delete, stats)];
    list.add("multi", "80 pairs that count behind 20,000 deleted children", Wide, gone(), vec![many(pairs, 80)]);
    for (name, op) in
        [("checkNotExists", OpCode::CheckNotExists), ("checkStat", OpCode::CheckStat), ("tryRemove", OpCode::TryRemove)]
    {
        list.add(
            name,
            "10,000 in a multi, 255 addresses in the ACL",
            Small,
            vec![with_acl(Path::of("/a/n"), addresses(0))],
            vec![many(vec![Call { number: 7, ..Call::of(op, "/a/n") }], 10_000)],
        );
    }
}
