//! The view against a plain map: random changes, with freezes, merges and swaps at random points. They are made on the
//! state machine's view, and on two shards' views that lag behind it by different amounts.

use corral_core::ids::Zxid;
use corral_core::path;
use corral_core::shared::{Data, Text};
use corral_core::tree::acl::{Acl, AclEntry, AclList};
use corral_core::tree::change::Change;
use corral_core::tree::delta::Delta;
use corral_core::tree::snapshot::{Snapshot, merge_in_memory};
use corral_core::tree::view::{AclRef, NodeRef, View};
use corral_core::tree::znode::{NodeStat, Znode};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

type Model = BTreeMap<String, Znode>;

const NAMES: [&str; 4] = ["a", "b", "c-longer-name", "\u{e4}"];

#[derive(Clone, Debug)]
enum Step {
    Create { path: usize, data: u8, acl: u8, ephemeral: bool },
    Delete { path: usize },
    SetData { path: usize, data: u8 },
    SetAcl { path: usize, acl: u8 },
    Freeze,
    Merge { grow: bool },
    Swap,
    Deliver { shard: usize, messages: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let path = 0..84_usize;
    let step = prop_oneof![
        12 => (path.clone(), any::<u8>(), any::<u8>(), any::<bool>())
            .prop_map(|(path, data, acl, ephemeral)| Step::Create { path, data, acl, ephemeral }),
        10 => path.clone().prop_map(|path| Step::Delete { path }),
        4 => (path.clone(), any::<u8>()).prop_map(|(path, data)| Step::SetData { path, data }),
        3 => (path, any::<u8>()).prop_map(|(path, acl)| Step::SetAcl { path, acl }),
        2 => Just(Step::Freeze),
        3 => any::<bool>().prop_map(|grow| Step::Merge { grow }),
        3 => Just(Step::Swap),
        5 => (0..2_usize, 1..9_usize).prop_map(|(shard, messages)| Step::Deliver { shard, messages }),
    ];
    vec(step, 1..250)
}

/// 4 + 16 + 64 paths of depth one to three.
fn path_of(index: usize) -> String {
    let name = |i: usize| NAMES[i % 4];
    match index {
        0..4 => format!("/{}", name(index)),
        4..20 => format!("/{}/{}", name((index - 4) / 4), name(index)),
        _ => format!("/{}/{}/{}", name((index - 20) / 16), name((index - 20) / 4), name(index)),
    }
}

fn data_of(choice: u8) -> Option<Data> {
    match choice % 4 {
        0 => None,
        1 => Some(Data::from(&[][..])),
        2 => Some(Data::from(&[choice][..])),
        _ => Some(Data::from(&vec![choice; usize::from(choice) * 3][..])),
    }
}

fn acl_of(choice: u8) -> Acl {
    let entry = |perms, id: &str| AclEntry { perms, scheme: Text::from("digest"), id: Text::from(id) };
    match choice % 5 {
        0 | 1 => Acl::Open,
        2 => Acl::List(Arc::new(AclList::from(vec![entry(1, "ann")]))),
        3 => Acl::List(Arc::new(AclList::from(vec![entry(31, "bob"), entry(1, "ann")]))),
        _ => Acl::List(Arc::new(AclList::from(vec![entry(i32::from(choice), "eve")]))),
    }
}

fn is_child(parent: &str, path: &str) -> bool {
    path != "/" && path::parent(path) == parent
}

#[derive(Clone)]
enum Message {
    Apply(Zxid, Change),
    Adopt(Arc<Delta>),
    Swap(Arc<Snapshot>),
}

struct World {
    state: View,
    /// Never frozen: the reference for the digest.
    flat: View,
    shards: [(View, VecDeque<Message>); 2],
    /// The tree after each zxid.
    history: Vec<Model>,
    frozen: Option<Arc<Delta>>,
    merged: Option<Arc<Snapshot>>,
}

impl World {
    fn new() -> Self {
        let state = View::empty(7);
        let mut model = Model::new();
        state.walk("/", |path, node| {
            model.insert(path.to_owned(), (*node.to_znode()).clone());
            true
        });
        assert_eq!(model.len(), 4);
        let shards = [(state.clone(), VecDeque::new()), (state.clone(), VecDeque::new())];
        Self { flat: state.clone(), shards, state, history: vec![model], frozen: None, merged: None }
    }

    fn send(&mut self, message: &Message) {
        for (_, queue) in &mut self.shards {
            queue.push_back(message.clone());
        }
    }

    fn model(&self) -> &Model {
        self.history.last().expect("starts with one")
    }

    fn commit(&mut self, model: Model, change: &Change) {
        let zxid = Zxid(self.history.len() as u64);
        self.history.push(model);
        for view in [&mut self.state, &mut self.flat] {
            view.apply(zxid, change);
            view.set_zxid(zxid);
        }
        self.send(&Message::Apply(zxid, change.clone()));
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Create { path, data, acl, ephemeral } => self.create(&path_of(path), data, acl, ephemeral),
            Step::Delete { path } => self.delete(&path_of(path)),
            Step::SetData { path, data } => self.update(&path_of(path), |zxid, node| {
                node.data = data_of(data);
                node.stat.mzxid = zxid;
                node.stat.mtime = i64::from(data);
                node.stat.version += 1;
                true
            }),
            Step::SetAcl { path, acl } => self.update(&path_of(path), |_, node| {
                node.acl = acl_of(acl);
                node.stat.aversion += 1;
                false
            }),
            Step::Freeze => {
                if self.frozen.is_none() && self.merged.is_none() {
                    let frozen = self.state.freeze();
                    self.frozen = Some(Arc::clone(&frozen));
                    self.send(&Message::Adopt(frozen));
                }
            }
            Step::Merge { grow } => {
                if let Some(frozen) = self.frozen.take() {
                    let below = self.state.snapshot();
                    let bits = (below.section_bits() + u32::from(grow)).min(10);
                    let snapshot = merge_in_memory(below, &frozen, bits, Vec::new(), Vec::new()).expect("merges");
                    self.merged = Some(Arc::new(snapshot));
                }
            }
            Step::Swap => {
                if let Some(snapshot) = self.merged.take() {
                    let (_, frozen) = self.state.swap_snapshot(Arc::clone(&snapshot));
                    assert!(frozen.is_some());
                    self.send(&Message::Swap(snapshot));
                }
            }
            Step::Deliver { shard, messages } => self.deliver(shard, messages),
        }
    }

    fn create(&mut self, path: &str, data: u8, acl: u8, ephemeral: bool) {
        let mut model = self.model().clone();
        let up = path::parent(path);
        if model.contains_key(path) || model.get(up).is_none_or(|parent| parent.stat.owner != 0) {
            return;
        }
        let zxid = Zxid(self.history.len() as u64);
        let time = i64::from(data);
        let owner = if ephemeral { 77 } else { 0 };
        let stat =
            NodeStat { czxid: zxid, mzxid: zxid, pzxid: zxid, ctime: time, mtime: time, owner, ..NodeStat::default() };
        let node = Znode { stat, acl: acl_of(acl), data: data_of(data) };
        model.insert(path.to_owned(), node.clone());
        let parent = model.get_mut(up).expect("just seen");
        parent.stat.cversion += 1;
        parent.stat.num_children += 1;
        parent.stat.names_bytes += name_bytes(path);
        parent.stat.pzxid = zxid;
        let change = Change::Created { at: self.state.hashed(Text::from(path)), node: Arc::new(node) };
        self.commit(model, &change);
    }

    fn delete(&mut self, path: &str) {
        let mut model = self.model().clone();
        if model.get(path).is_none_or(|node| node.stat.num_children > 0) {
            return;
        }
        model.remove(path);
        let parent = model.get_mut(path::parent(path)).expect("parents stay");
        parent.stat.num_children -= 1;
        parent.stat.names_bytes -= name_bytes(path);
        parent.stat.pzxid = Zxid(self.history.len() as u64);
        let change = Change::Deleted { at: self.state.hashed(Text::from(path)) };
        self.commit(model, &change);
    }

    fn update(&mut self, path: &str, new: impl FnOnce(Zxid, &mut Znode) -> bool) {
        let mut model = self.model().clone();
        let Some(node) = model.get_mut(path) else { return };
        let is_data = new(Zxid(self.history.len() as u64), node);
        let node = Arc::new(node.clone());
        let mut at = self.state.hashed(Text::from(path));
        if let Some(key) = self.state.key(path, at.hash) {
            at.path = key;
        }
        let change = if is_data { Change::DataSet { at, node } } else { Change::Quiet { at, node } };
        self.commit(model, &change);
    }

    fn deliver(&mut self, shard: usize, messages: usize) {
        let (view, queue) = &mut self.shards[shard];
        for message in queue.drain(..messages.min(queue.len())) {
            match message {
                Message::Apply(zxid, change) => {
                    view.apply(zxid, &change);
                    view.set_zxid(zxid);
                }
                Message::Adopt(frozen) => {
                    view.adopt_frozen(frozen);
                }
                Message::Swap(snapshot) => {
                    view.swap_snapshot(snapshot);
                }
            }
        }
    }

    fn check(&self) {
        check_view(&self.state, self.model());
        for (view, _) in &self.shards {
            check_view(view, &self.history[usize::try_from(view.zxid().0).expect("small")]);
        }
    }

    fn check_digests(&mut self) {
        for shard in 0..2 {
            self.deliver(shard, usize::MAX);
        }
        self.check();
        check_view(&self.flat, self.model());
        let digest = self.flat.digest();
        assert_eq!(self.state.digest(), digest);
        for (view, _) in &self.shards {
            assert_eq!(view.digest(), digest);
        }
    }
}

/// The name with its length, as the short names here have it.
fn name_bytes(path: &str) -> u64 {
    path.len() as u64 - path.rfind('/').expect("a path") as u64
}

fn check_node(path: &str, node: NodeRef<'_>, expect: &Znode) {
    assert_eq!(node.stat(), expect.stat, "{path}");
    assert_eq!(node.data(), expect.data.as_deref(), "{path}");
    let acl = match &expect.acl {
        Acl::Open => AclRef::Open,
        Acl::List(list) => AclRef::List(list),
    };
    assert_eq!(node.acl(), acl, "{path}");
    assert_eq!(node.is_open_acl(), expect.acl == Acl::Open);
    assert_eq!(*node.to_znode(), *expect, "{path}");
    assert_eq!(node.wire_stat(), expect.wire_stat(), "{path}");
}

fn check_view(view: &View, model: &Model) {
    let paths =
        (0..84).map(path_of).chain(["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"].map(String::from));
    for path in paths {
        let expect = model.get(&path);
        assert_eq!(view.get(&path).is_some(), expect.is_some(), "{path}");
        let Some(expect) = expect else {
            assert!(view.children(&path).is_none(), "{path}");
            continue;
        };
        check_node(&path, view.get(&path).expect("just seen"), expect);
        let children: Vec<&str> = view.children(&path).expect("exists").collect();
        let mut expected: Vec<&str> =
            model.keys().filter(|child| is_child(&path, child)).map(|child| path::name(child)).collect();
        expected.sort_unstable();
        assert_eq!(children, expected, "{path}");
        assert_eq!(children.len(), expect.stat.num_children as usize, "{path}");
    }
    assert_eq!(view.node_count(), model.len() as u64);
    let bytes: usize = model.iter().map(|(path, node)| path.len() + node.data_len()).sum();
    assert_eq!(view.data_bytes(), bytes as u64);
    assert_eq!(view.ephemerals_count(), model.values().filter(|node| node.stat.owner != 0).count() as u64);
    assert!(view.get("/nowhere").is_none() && view.children("/nowhere").is_none());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn layers_look_like_a_plain_tree(steps in steps()) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
            world.check();
        }
        world.check_digests();
        // The snapshot alone is the same tree, and a new view of it counts the same.
        for last in [Step::Merge { grow: true }, Step::Swap, Step::Freeze, Step::Merge { grow: false }, Step::Swap] {
            world.step(&last);
            world.check_digests();
        }
        prop_assert_eq!(world.state.delta_len(), 0);
        let fresh = View::new(Arc::clone(world.state.snapshot()));
        check_view(&fresh, world.model());
        prop_assert_eq!(fresh.digest(), world.flat.digest());
    }
}

/// Steps on one path and one child: `c`reate, `d`elete, create `C`hild, delete chil`D`, `f`reeze, `m`erge and swap.
fn check_script(script: &str) {
    let mut world = World::new();
    for letter in script.chars() {
        match letter {
            'c' => world.create("/a", 3, 2, false),
            'd' => world.delete("/a"),
            'C' => world.create("/a/b", 2, 0, false),
            'D' => world.delete("/a/b"),
            'f' => world.step(&Step::Freeze),
            'm' => {
                world.step(&Step::Merge { grow: false });
                world.step(&Step::Swap);
            }
            _ => unreachable!(),
        }
        world.check();
    }
    world.check_digests();
    for last in [Step::Freeze, Step::Merge { grow: true }, Step::Swap] {
        world.step(&last);
        world.check_digests();
    }
}

#[test]
fn recreated_znodes_do_not_bring_old_children_back() {
    for script in [
        "cCDdc",
        "cCfDdc",
        "cCfmDdc",
        "cCfmDfdc",
        "cCfmDfdcm",
        "cCfmDdfc",
        "cCfmDdfcm",
        "cCfmDdcfm",
        "cCfmDdcCfm",
        "cCfmDdcCDfm",
        "cCfmDdfcCm",
        "cCfmDdfcCDdm",
        "cfCmDfdm",
        "cCfDdcCmfDdmfcm",
        "cfdcmfm",
        "cCfmDCfm",
        "cCfmDfCm",
        "cCfmDfCDm",
    ] {
        check_script(script);
    }
}

#[test]
fn coming_and_going_leaves_no_trace() {
    let mut world = World::new();
    world.create("/a", 1, 0, false);
    let (entries, bytes) = (world.state.delta_len(), world.state.delta_bytes());
    for _ in 0..100 {
        world.create("/a/b", 200, 2, true);
        assert!(world.state.delta_bytes() > bytes);
        world.delete("/a/b");
    }
    assert_eq!((world.state.delta_len(), world.state.delta_bytes()), (entries, bytes));
    world.check_digests();
}

#[test]
fn the_first_tree() {
    let view = View::empty(1);
    let cases = [
        ("/", -1, 1, 0, true),
        ("/zookeeper", -2, 2, 0, true),
        ("/zookeeper/quota", 0, 0, 0, true),
        ("/zookeeper/config", 0, 0, -1, false),
    ];
    for (path, cversion, children, aversion, open) in cases {
        let node = view.get(path).expect("is there");
        let stat = node.wire_stat();
        assert_eq!((stat.cversion, stat.num_children, stat.aversion), (cversion, children, aversion), "{path}");
        assert_eq!((stat.czxid, stat.mzxid, stat.pzxid, stat.ctime, stat.mtime, stat.version), (0, 0, 0, 0, 0, 0));
        assert_eq!(node.data(), Some(&[][..]));
        assert_eq!(node.is_open_acl(), open);
    }
    let acl: Vec<_> = view.get("/zookeeper/config").expect("is there").acl().iter().collect();
    assert_eq!(acl, [(1, "world", "anyone")]);
    assert_eq!(view.get("/").expect("is there").acl().iter().collect::<Vec<_>>(), [(31, "world", "anyone")]);
    assert_eq!((view.node_count(), view.data_bytes(), view.zxid()), (4, 1 + 10 + 16 + 17, Zxid(0)));
}

#[test]
fn many_children() {
    const CHILDREN: u32 = 50_000;
    let mut view = View::empty(3);
    let node = Arc::new(Znode { stat: NodeStat::default(), acl: Acl::Open, data: None });
    let name = |i: u32| format!("child-{:07}", i.wrapping_mul(2_654_435_761) % 9_999_991);
    let mut expected = std::collections::BTreeSet::from([String::from("zookeeper")]);
    for round in 0..4 {
        for i in (0..CHILDREN).filter(|i| i % 4 == round) {
            expected.insert(name(i));
            let at = view.hashed(Text::from(format!("/{}", name(i))));
            view.apply(Zxid(1), &Change::Created { at, node: Arc::clone(&node) });
        }
        for i in (0..CHILDREN).filter(|i| round > 0 && i % 4 == round - 1 && i % 3 == 0) {
            expected.remove(&name(i));
            let at = view.hashed(Text::from(format!("/{}", name(i))));
            view.apply(Zxid(1), &Change::Deleted { at });
        }
        assert!(view.children("/").expect("root").eq(expected.iter().map(String::as_str)));
        let frozen = view.freeze();
        assert!(view.children("/").expect("root").eq(expected.iter().map(String::as_str)));
        let snapshot = merge_in_memory(view.snapshot(), &frozen, round, Vec::new(), Vec::new()).expect("merges");
        view.swap_snapshot(Arc::new(snapshot));
        assert!(view.children("/").expect("root").eq(expected.iter().map(String::as_str)));
        assert_eq!(view.node_count(), expected.len() as u64 + 3);
    }
}

#[test]
#[should_panic(expected = "one delta is frozen at a time")]
fn freezing_twice_is_refused() {
    let mut view = View::empty(1);
    view.freeze();
    view.freeze();
}
