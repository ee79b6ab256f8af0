//! The snapshot's bytes: what they keep, how small they are, and that damaged ones never do harm.

use corral_core::ids::{ConnId, Origin, ServerId, SessionId, ShardId, Zxid};
use corral_core::shared::{Data, Text};
use corral_core::tree::acl::{Acl, AclEntry, AclList, identity};
use corral_core::tree::change::Change;
use corral_core::tree::delta::Delta;
use corral_core::tree::snapshot::{
    AlignedBytes, CheckedMeta, CheckedSection, SECTION_ALIGN, SectionChecksums, Snapshot, SnapshotBytes, SnapshotFault,
    SnapshotLayout, SnapshotMerger, SnapshotSession, merge_in_memory,
};
use corral_core::tree::view::View;
use corral_core::tree::znode::{NodeStat, Znode};
use corral_types::SplitMix64;
use rkyv::util::AlignedVec;
use std::sync::Arc;

const SEED: u64 = 99;

const OWNER: Origin =
    Origin { server: ServerId(1), shard: ShardId(2), conn: ConnId { slot: 3, generation: 4 }, incarnation: 1 << 40 };

fn below(random: &mut SplitMix64, limit: usize) -> usize {
    usize::try_from(random.next_u64() % limit as u64).expect("below a usize")
}

fn grown_view() -> View {
    let mut view = View::empty(SEED);
    for i in 0..120_i32 {
        let path = if i < 60 { format!("/n{i}") } else { format!("/n{}/leaf-{i}", i - 60) };
        let zxid = Zxid(u64::try_from(i).expect("positive") + 1);
        let entry = AclEntry { perms: i % 32, scheme: Text::from("digest"), id: Text::from("someone:else") };
        let acl = if i % 5 == 0 { Acl::List(Arc::new(AclList::from(vec![entry]))) } else { Acl::Open };
        let stat = NodeStat {
            czxid: zxid,
            mzxid: Zxid(zxid.0 + u64::from(i % 3 == 0)),
            pzxid: zxid,
            version: i % 3,
            aversion: i % 7,
            // Some ephemerals, some containers.
            owner: if i % 13 == 1 { i64::MIN } else { i64::from(i % 11 == 0) * 5 },
            ..NodeStat::default()
        };
        let data = (i % 4 != 0).then(|| Data::from(&vec![7; usize::try_from(i).expect("positive")][..]));
        let node = Arc::new(Znode { stat, acl, data });
        view.apply(zxid, &Change::Created { at: view.hashed(Text::from(path)), node });
        view.set_zxid(zxid);
    }
    view
}

fn sessions() -> Vec<SnapshotSession> {
    let session = |id, paths: &[&str]| SnapshotSession {
        id: SessionId(id),
        timeout_ms: 4000,
        password: [9; 16],
        owner: (id > 0).then_some(OWNER),
        ephemerals: paths.iter().map(|path| Text::from(*path)).collect(),
    };
    vec![session(5, &["/n0", "/n11"]), session(-6, &[])]
}

/// The bytes of a snapshot and where its parts lie.
fn encode(view: &mut View, bits: u32) -> (AlignedVec, SnapshotLayout) {
    encode_in(view, bits, usize::MAX)
}

/// Likewise, with archives of the meta section that hold so many bytes of lists.
fn encode_in(view: &mut View, bits: u32, archive_bytes: usize) -> (AlignedVec, SnapshotLayout) {
    let frozen = view.freeze();
    let mut merger = SnapshotMerger::new(view.snapshot(), &frozen, bits).with_archive_bytes(archive_bytes);
    let (mut bytes, mut parts) = (AlignedVec::new(), Vec::new());
    let mut place = |part: &AlignedVec| {
        bytes.resize(bytes.len().next_multiple_of(SECTION_ALIGN), 0);
        let start = bytes.len();
        bytes.extend_from_slice(part);
        start..bytes.len()
    };
    while let Some(section) = merger.next_section().expect("merges") {
        parts.push(place(&section));
    }
    assert_eq!(merger.stats().nodes, view.node_count());
    let meta = place(&merger.finish(view.zxid(), sessions(), b"more".to_vec()).expect("merges"));
    (bytes, SnapshotLayout { seed: SEED, zxid: view.zxid().0, sections: parts, meta })
}

fn shared(bytes: &AlignedVec) -> Arc<dyn SnapshotBytes> {
    Arc::new(AlignedBytes::new(bytes.clone()))
}

#[test]
fn a_snapshot_keeps_everything() {
    let mut view = grown_view();
    let digest = view.digest();
    let (bytes, layout) = encode(&mut view, 2);
    let snapshot = Snapshot::open(shared(&bytes), &layout).expect("opens");
    assert_eq!((snapshot.seed(), snapshot.zxid(), snapshot.section_bits()), (SEED, Zxid(120), 2));
    assert_eq!(snapshot.sessions().collect::<Vec<_>>(), sessions());
    assert_eq!(snapshot.extra(), b"more");
    let opened = View::new(Arc::new(snapshot));
    assert_eq!(opened.digest(), digest);
    assert_eq!(
        (opened.node_count(), opened.data_bytes(), opened.ephemerals_count()),
        (view.node_count(), view.data_bytes(), view.ephemerals_count())
    );
}

#[test]
fn large_data_of_a_snapshot_are_lent_and_outlive_it() {
    let mut view = grown_view();
    let large = Data::from(&vec![9; 100_000][..]);
    let node = |data: &Data| Arc::new(Znode { stat: NodeStat::default(), acl: Acl::Open, data: Some(data.clone()) });
    for (path, data) in [("/large", &large), ("/small", &Data::from(&b"few"[..]))] {
        view.apply(Zxid(500), &Change::Created { at: view.hashed(Text::from(path)), node: node(data) });
    }
    view.set_zxid(Zxid(500));
    let snapshot = |view: &mut View| {
        let (bytes, layout) = encode(view, 2);
        Arc::new(Snapshot::open(shared(&bytes), &layout).expect("whole"))
    };
    let first = snapshot(&mut view);
    view.swap_snapshot(Arc::clone(&first));
    for parent in ["/large", "/small"] {
        let at = view.hashed(Text::from(format!("{parent}/c")));
        view.apply(Zxid(501), &Change::Created { at, node: node(&Data::from(&b""[..])) });
    }
    view.set_zxid(Zxid(501));
    let place = |path: &str, view: &View| view.get(path).and_then(|node| node.data()).expect("data").as_ptr();
    let in_snapshot = View::new(Arc::clone(&first));
    assert_eq!(place("/large", &view), place("/large", &in_snapshot), "not copied with another Stat");
    assert_ne!(place("/small", &view), place("/small", &in_snapshot), "copied");
    drop(in_snapshot);
    let before = view.digest();
    let second = snapshot(&mut view);
    view.swap_snapshot(second);
    drop(first);
    assert_eq!(view.digest(), before);
    assert_eq!(view.get("/large").expect("there").data(), Some(&large[..]));
}

#[test]
fn lists_too_long_for_one_archive_lie_in_annexes() {
    let open = |(bytes, layout): (AlignedVec, SnapshotLayout)| {
        Arc::new(Snapshot::open(shared(&bytes), &layout).expect("opens"))
    };
    let acls = |snapshot: &Arc<Snapshot>| {
        let view = View::new(Arc::clone(snapshot));
        let path = |at: usize| if at < 60 { format!("/n{at}") } else { format!("/n{}/leaf-{at}", at - 60) };
        let list = |at| view.get(&path(at)).expect("it is there").acl_list().map(|list| list.to_vec());
        (0..120).map(list).collect::<Vec<_>>()
    };
    let plain = open(encode(&mut grown_view(), 1));
    assert!(plain.reapable().count() > 5 && acls(&plain).iter().flatten().count() > 5, "there is something to be cut");
    for archive_bytes in [1, 60, 200, 1000] {
        let mut view = grown_view();
        let cut = open(encode_in(&mut view, 1, archive_bytes));
        assert_eq!(cut.sessions().collect::<Vec<_>>(), sessions());
        assert!(cut.reapable().eq(plain.reapable()) && acls(&cut) == acls(&plain) && cut.extra() == b"more");
        view.swap_snapshot(cut);
        let next = open(encode(&mut view, 1));
        assert!(next.reapable().eq(plain.reapable()) && acls(&next) == acls(&plain), "the next snapshot is made of it");
    }
}

#[test]
fn a_directory_of_annexes_leads_nowhere_else() {
    let (bytes, layout) = encode_in(&mut grown_view(), 1, 60);
    for at in layout.meta.start..layout.meta.start + 400 {
        for byte in [0, 1, 0x7f, 0xff] {
            let mut changed = bytes.clone();
            changed[at] = byte;
            if let Ok(snapshot) = Snapshot::open(shared(&changed), &layout) {
                assert!(snapshot.sessions().count() == 2 && snapshot.reapable().count() < 120);
            }
        }
    }
}

#[test]
fn the_same_tree_gives_the_same_bytes() {
    // By one delta, and by two with a snapshot between them.
    let (whole, _) = encode(&mut grown_view(), 1);
    let mut view = grown_view();
    let (bytes, layout) = encode(&mut view, 1);
    assert_eq!(whole.as_slice(), bytes.as_slice());
    view.swap_snapshot(Arc::new(Snapshot::open(shared(&bytes), &layout).expect("opens")));
    let (again, _) = encode(&mut view, 1);
    assert_eq!(whole.as_slice(), again.as_slice());
}

#[test]
fn parts_must_belong_together() {
    let mut view = grown_view();
    let (bytes, layout) = encode(&mut view, 1);
    let check = |change: &dyn Fn(&mut SnapshotLayout), name: &str| {
        let mut layout = layout.clone();
        change(&mut layout);
        assert!(Snapshot::open(shared(&bytes), &layout).is_err(), "{name}");
    };
    check(&|layout| layout.seed += 1, "seed");
    check(&|layout| layout.zxid += 1, "zxid");
    check(&|layout| layout.sections.swap(0, 1), "swapped sections");
    check(&|layout| layout.sections.truncate(1), "missing section");
    check(&|layout| layout.sections.clear(), "no section");
    check(&|layout| layout.sections.extend(layout.sections.clone()), "twice as many");
    check(&|layout| layout.sections[0] = 0..usize::MAX, "outside");
    check(&|layout| layout.sections[1].start += 16, "begun late");
    check(&|layout| layout.sections[0].end += 4, "elsewhere");
    check(&|layout| layout.sections[1].end -= 4, "cut short");
    check(&|layout| layout.sections[0] = 0..0, "empty");
    check(&|layout| layout.meta.start += 1, "skewed meta");
    check(&|layout| layout.meta = layout.sections[0].clone(), "no meta");

    let (one, other) = (shared(&bytes), shared(&bytes));
    let section = |bytes, index| CheckedSection::check(bytes, &layout, index).expect("checks");
    let meta = || CheckedMeta::check(&one, &layout).expect("checks");
    assert!(Snapshot::assemble(meta(), vec![section(&one, 0), section(&one, 1)]).is_ok());
    assert!(Snapshot::assemble(meta(), vec![section(&one, 0), section(&other, 1)]).is_err());
    assert!(Snapshot::assemble(meta(), vec![section(&one, 1), section(&one, 0)]).is_err());
    assert!(Snapshot::assemble(meta(), vec![section(&one, 0)]).is_err());
    assert!(matches!(CheckedSection::check(&one, &layout, 2), Err(SnapshotFault::Layout(_))));
}

#[test]
fn a_snapshot_whose_zxid_leaves_no_room_for_an_epoch_is_refused() {
    let snapshot = |epoch| {
        let mut view = grown_view();
        view.set_zxid(Zxid::of(epoch, 1));
        let delta = view.freeze();
        merge_in_memory(view.snapshot(), &delta, 0, Vec::new(), Vec::new())
    };
    assert!(snapshot(Zxid::EPOCH_MAX - 1).is_ok());
    for epoch in [Zxid::EPOCH_MAX, u32::MAX] {
        assert!(matches!(snapshot(epoch), Err(SnapshotFault::Layout(_))));
    }
}

/// Reads all there is, by every way there is, and merges it; the results do not matter.
fn read_all(snapshot: Snapshot, paths: &[String]) -> u64 {
    let mut view = View::new(Arc::new(snapshot));
    let mut sum = view.digest() ^ view.snapshot().sessions().count() as u64 ^ view.snapshot().extra().len() as u64;
    for path in paths {
        if let Some(node) = view.get(path) {
            sum ^= node.wire_stat().czxid.cast_unsigned() ^ node.data().map_or(0, <[u8]>::len) as u64;
            sum ^=
                node.acl().iter().map(|(perms, _, id)| i64::from(perms).cast_unsigned() ^ id.len() as u64).sum::<u64>();
            sum ^= u64::from(node.to_znode().stat.num_children);
        }
        sum ^= view.children(path).map_or(0, |children| children.map(str::len).sum::<usize>() as u64);
    }
    if let Some(node) = view.get("/n3/leaf-63").map(|node| node.to_znode()) {
        let at = view.hashed(Text::from("/n3/leaf-63"));
        view.apply(view.zxid(), &Change::DataSet { at, node });
    }
    let frozen = view.freeze();
    let mut merger = SnapshotMerger::new(view.snapshot(), &frozen, view.snapshot().section_bits() + 1);
    while let Ok(Some(section)) = merger.next_section() {
        sum ^= section.len() as u64;
    }
    sum
}

#[test]
fn damaged_bytes_do_no_harm() {
    let mut view = grown_view();
    let mut paths = Vec::new();
    view.walk("/", |path, _| {
        paths.push(path.to_owned());
        true
    });
    let (bytes, layout) = encode(&mut view, 1);
    let mut random = SplitMix64::new(1);
    let (mut refused, mut opened) = (0, 0);
    for round in 0..6000 {
        let mut damaged = bytes.clone();
        for _ in 0..=below(&mut random, 3) {
            let at = below(&mut random, damaged.len());
            damaged[at] = match round % 3 {
                0 => damaged[at] ^ (1 << below(&mut random, 8)),
                1 => 0xff,
                _ => u8::try_from(below(&mut random, 256)).expect("a byte"),
            };
        }
        match Snapshot::open(shared(&damaged), &layout) {
            Err(fault) => {
                assert!(!fault.to_string().is_empty());
                refused += 1;
            }
            Ok(snapshot) => {
                std::hint::black_box(read_all(snapshot, &paths));
                opened += 1;
            }
        }
    }
    assert!(refused > 300 && opened > 300, "both ways are exercised: {refused} refused, {opened} opened");
}

#[test]
fn a_section_whose_searches_take_too_many_probes_is_refused() {
    let (bytes, layout) = encode(&mut grown_view(), 1);
    // The number is one of the last in the section's archive.
    let end = layout.sections[0].end;
    let refusals = (end - 40..end).step_by(4).filter_map(|at| {
        let mut other = bytes.clone();
        other[at..at + 4].copy_from_slice(&1025_u32.to_le_bytes());
        Snapshot::open(shared(&other), &layout).err()
    });
    let texts: Vec<String> = refusals.map(|fault| fault.to_string()).filter(|text| text.contains("probes")).collect();
    assert_eq!(texts, ["snapshot section 0: a search for a path takes 1025 probes, and may take 1024"]);
}

#[test]
fn an_unknown_acl_lets_nobody_in() {
    // The only list of the initial tree is dropped from a copy with znodes that still refer to it.
    let mut view = View::empty(SEED);
    let (bytes, layout) = encode(&mut view, 0);
    let config = View::new(Arc::new(Snapshot::open(shared(&bytes), &layout).expect("opens")));
    assert!(!config.get("/zookeeper/config").expect("is there").is_open_acl());
    let mut seen = 0;
    for at in layout.sections[0].clone() {
        let mut damaged = bytes.clone();
        if damaged[at] != 1 {
            continue;
        }
        damaged[at] = 200;
        let Ok(snapshot) = Snapshot::open(shared(&damaged), &layout) else { continue };
        let view = View::new(Arc::new(snapshot));
        let Some(node) = view.get("/zookeeper/config") else { continue };
        let list = node.acl_list().expect("it is not open");
        if list.iter().all(|entry| entry.perms == 0) {
            assert!(!list.grants(i32::MAX, &[identity("world", "anyone"), identity("ip", "127.0.0.1")]));
            seen += 1;
        }
    }
    assert_eq!(seen, 1);
}

/// Checking reaches every record: whichever path or reference is broken, the snapshot is refused.
#[test]
fn every_broken_path_is_refused() {
    let mut view = grown_view();
    let (bytes, layout) = encode(&mut view, 3);
    let places: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(b"/leaf-")).collect();
    // Those of five containers stand in the meta section, too.
    assert_eq!(places.len(), 65);
    for at in places {
        let mut damaged = bytes.clone();
        damaged[at] = 0xff;
        let fault = Snapshot::open(shared(&damaged), &layout).err();
        assert!(matches!(fault, Some(SnapshotFault::Section { .. } | SnapshotFault::Meta { .. })), "{fault:?}");
    }
}

#[test]
fn nonsense_is_refused() {
    let mut random = SplitMix64::new(5);
    for length in [0, 1, 15, 16, 64, 4096] {
        let mut bytes = AlignedVec::new();
        for _ in 0..length {
            bytes.push(u8::try_from(below(&mut random, 256)).expect("a byte"));
        }
        let layout =
            SnapshotLayout { seed: 0, zxid: 0, sections: std::iter::once(0..length).collect(), meta: 0..length };
        assert!(Snapshot::open(shared(&bytes), &layout).is_err());
    }
}

#[test]
fn a_snapshot_is_small() {
    let mut view = View::empty(SEED);
    let mut add = |path: &str| {
        let zxid = Zxid(view.zxid().0 + 1);
        let stat = NodeStat { czxid: zxid, mzxid: zxid, pzxid: zxid, ctime: 1, mtime: 1, ..NodeStat::default() };
        let node = Znode { stat, acl: Acl::Open, data: Some(Data::from(&[1; 100][..])) };
        let at = view.hashed(Text::from(path));
        view.apply(zxid, &Change::Created { at, node: Arc::new(node) });
        view.set_zxid(zxid);
    };
    add("/bench");
    for i in 0..20_000 {
        add(&format!("/bench/n-{i:08}"));
    }
    let payload = usize::try_from(view.data_bytes()).expect("small");
    let (bytes, _) = encode(&mut view, 0);
    assert!(bytes.len() * 10 <= payload * 16, "{} for {payload} bytes of paths and data", bytes.len());
}

#[test]
fn a_delta_is_shared_between_threads() {
    fn check<T: Send + Sync>() {}
    check::<Delta>();
    check::<Snapshot>();
    check::<CheckedSection>();
    check::<View>();
}

/// The bytes of the sections when they were written.
struct Written(Vec<Vec<u8>>);

impl SectionChecksums for Written {
    fn verify(&self, section: usize, bytes: &[u8]) -> Result<(), String> {
        if self.0[section] == bytes { Ok(()) } else { Err(format!("section {section} was changed")) }
    }
}

#[test]
fn a_section_that_was_changed_since_it_was_loaded_is_never_merged() {
    let (bytes, layout) = encode(&mut grown_view(), 2);
    let written = Arc::new(Written(layout.sections.iter().map(|part| bytes[part.clone()].to_vec()).collect()));
    let (mut seen, mut whole) = (0, 0);
    for at in (0..bytes.len()).step_by(7) {
        let mut changed = bytes.clone();
        changed[at] ^= 0x11;
        let judged: Arc<dyn SnapshotBytes> = Arc::new(AlignedBytes::judged_by(changed, Arc::clone(&written) as _));
        // A change that the structure shows ends the start.
        let Ok(snapshot) = Snapshot::open(judged, &layout) else { continue };
        let Some(section) = layout.sections.iter().position(|part| part.contains(&at)) else { continue };
        let delta = Delta::default();
        for bits in [2, 3] {
            let mut merger = SnapshotMerger::new(&snapshot, &delta, bits);
            let place = section << (bits - 2);
            for _ in 0..place {
                assert!(merger.next_section().expect("sections before it are whole").is_some());
                whole += 1;
            }
            let damaged = SnapshotFault::Damaged(format!("section {section} was changed"));
            assert_eq!(merger.next_section().err(), Some(damaged.clone()), "byte {at}");
            assert_eq!(snapshot.verify(), Err(damaged), "byte {at}");
        }
        seen += 1;
    }
    assert!(seen > 100 && whole > 100, "{seen} changes were looked at, {whole} sections merged before them");
}
