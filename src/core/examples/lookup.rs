//! Measures the view: the cost of a lookup in each layer, and the worst pause of a growing delta. It also measures the
//! size of a snapshot, and the speed of writing and checking one. Run with `cargo run --release -p corral-core
//! --example lookup [znodes]`.
#![allow(clippy::print_stdout, reason = "it prints its figures")]

use corral_core::shared::{Data, Text};
use corral_core::tree::acl::Acl;
use corral_core::tree::change::Change;
use corral_core::tree::delta::Delta;
use corral_core::tree::snapshot::{
    AlignedBytes, SECTION_ALIGN, Snapshot, SnapshotBytes, SnapshotLayout, SnapshotMerger, section_bits_for,
};
use corral_core::tree::view::View;
use corral_core::tree::znode::{NodeStat, Znode};
use corral_types::SplitMix64;
use rkyv::util::AlignedVec;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

const LOOKUPS: usize = 2_000_000;

fn main() {
    let znodes: u32 = std::env::args().nth(1).map_or(1_000_000, |text| text.parse().expect("a number of znodes"));
    let mut view = View::empty(42);
    grow(&mut view, 0..znodes, "filling");
    let present = paths(znodes, 0);
    let absent = paths(znodes, u32::MAX / 2);
    lookups(&view, &present, "live hit");

    let frozen = view.freeze();
    lookups(&view, &present, "live empty, frozen hit");
    let snapshot = Arc::new(merge(view.snapshot(), &frozen, &view, "whole tree"));
    view.swap_snapshot(snapshot);
    drop(frozen);
    lookups(&view, &present, "live empty, snapshot hit");
    lookups(&view, &absent, "live empty, snapshot miss");

    grow(&mut view, znodes..znodes + znodes / 10, "a tenth more");
    lookups(&view, &present, "live miss, snapshot hit");
    lookups(&view, &absent, "live miss, snapshot miss");
    set_data(&mut view, &present[..present.len() / 20]);
    let frozen = view.freeze();
    lookups(&view, &present, "live and frozen miss, snapshot hit (1 of 20: frozen hit)");
    let snapshot = Arc::new(merge(view.snapshot(), &frozen, &view, "a tenth new, a twentieth written"));
    view.swap_snapshot(snapshot);
    lookups(&view, &present, "live empty, snapshot hit, 1 of 20 written");
    list(&view);

    worst_insert();
}

/// Tables grow at the same entries in each run, but the machine's own pauses do not repeat. So the least of several
/// runs, entry by entry, leaves the tables' pauses.
fn worst_insert() {
    let mut least = vec![Duration::MAX; 2_000_000];
    for _ in 0..4 {
        let mut view = View::empty(42);
        let times = grow(&mut view, 0..2_000_000, "growing a delta to 2 million");
        for (least, time) in least.iter_mut().zip(times) {
            *least = time.min(*least);
        }
    }
    least.sort_unstable();
    println!(
        "least of 4 runs, entry by entry: p99.9 {:?}, p99.99 {:?}, worst {:?}",
        least[1_998_000], least[1_999_800], least[1_999_999]
    );
}

/// Bytes of the process in memory.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or_default() * 4096
}

fn path(i: u32) -> String {
    format!("/bench/n-{i:08}")
}

/// Paths in random order.
fn paths(znodes: u32, offset: u32) -> Vec<String> {
    let mut random = SplitMix64::new(1);
    let mut next = || u32::try_from(random.next_u64() % u64::from(znodes)).expect("below a u32");
    (0..LOOKUPS).map(|_| path(offset + next())).collect()
}

fn grow(view: &mut View, range: std::ops::Range<u32>, what: &str) -> Vec<Duration> {
    let data = [7_u8; 100];
    let node = |i: u32| {
        let zxid = corral_core::ids::Zxid(u64::from(i) + 1);
        let stat = NodeStat { czxid: zxid, mzxid: zxid, pzxid: zxid, ctime: 9, mtime: 9, ..NodeStat::default() };
        Znode { stat, acl: Acl::Open, data: Some(Data::from(&data[..])) }
    };
    if view.get("/bench").is_none() {
        let at = view.hashed(Text::from("/bench"));
        view.apply(corral_core::ids::Zxid(1), &Change::Created { at, node: Arc::new(node(0)) });
    }
    let mut times = vec![Duration::ZERO; range.len()];
    times.clear();
    let resident_before = resident();
    for i in range {
        let at = view.hashed(Text::from(path(i)));
        let change = Change::Created { at, node: Arc::new(node(i)) };
        let start = Instant::now();
        view.apply(corral_core::ids::Zxid(u64::from(i) + 1), &change);
        times.push(start.elapsed());
    }
    view.set_zxid(corral_core::ids::Zxid(view.zxid().0 + times.len() as u64));
    let grown = resident().saturating_sub(resident_before) / times.len();
    let total: Duration = times.iter().sum();
    let in_order = times.clone();
    times.sort_unstable();
    println!(
        "{what}: {} creates, {} ns each, p99.9 {:?}, p99.999 {:?}, worst {:?}, {} delta bytes each by estimate, {grown} by resident memory",
        times.len(),
        total.as_nanos() / times.len() as u128,
        times[times.len() / 1000 * 999],
        times[times.len() / 100_000 * 99_999],
        times[times.len() - 1],
        view.delta_bytes() / view.delta_len(),
    );
    in_order
}

fn set_data(view: &mut View, paths: &[String]) {
    let start = Instant::now();
    for path in paths {
        let mut node = (*view.get(path).expect("is there").to_znode()).clone();
        node.stat.version += 1;
        let at = view.hashed(Text::from(path.as_str()));
        view.apply(node.stat.mzxid, &Change::DataSet { at, node: Arc::new(node) });
    }
    println!("setData on snapshot znodes: {} ns each, copy included", start.elapsed().as_nanos() / paths.len() as u128);
}

fn lookups(view: &View, paths: &[String], what: &str) {
    let mut best = u128::MAX;
    for _ in 0..3 {
        let start = Instant::now();
        for path in paths {
            if let Some(node) = view.get(path) {
                black_box(node.data().map_or(0, |data| data[data.len() / 2]));
                black_box(node.wire_stat().mzxid);
            }
        }
        best = best.min(start.elapsed().as_nanos() / paths.len() as u128);
    }
    println!("get, {what}: {best} ns (best of 3, stat and data touched)");
}

fn list(view: &View) {
    let start = Instant::now();
    let count = view.children("/bench").expect("is there").map(black_box).count();
    println!("listing {count} children: {:?}", start.elapsed());
}

fn merge(below: &Snapshot, frozen: &Delta, view: &View, what: &str) -> Snapshot {
    let bits = section_bits_for(below, frozen);
    let start = Instant::now();
    let mut merger = SnapshotMerger::new(below, frozen, bits);
    let (mut parts, mut worst) = (Vec::new(), Duration::ZERO);
    loop {
        let start = Instant::now();
        let Some(section) = merger.next_section().expect("merges") else { break };
        worst = worst.max(start.elapsed());
        parts.push(section);
    }
    let meta = merger.finish(view.zxid(), Vec::new(), Vec::new()).expect("merges");
    let merging = start.elapsed();
    let mut bytes = AlignedVec::new();
    let mut place = |part: &AlignedVec| {
        bytes.resize(bytes.len().next_multiple_of(SECTION_ALIGN), 0);
        bytes.extend_from_slice(part);
        bytes.len() - part.len()..bytes.len()
    };
    let sections = parts.iter().map(&mut place).collect();
    let meta = place(&meta);
    let layout = SnapshotLayout { seed: view.hasher().seed(), zxid: view.zxid().0, sections, meta };
    let (length, nodes) = (bytes.len(), view.node_count());
    let bytes: Arc<dyn SnapshotBytes> = Arc::new(AlignedBytes::new(bytes));
    let start = Instant::now();
    let snapshot = Snapshot::open(bytes, &layout).expect("opens");
    println!(
        "merge, {what}: {merging:?} for {nodes} znodes in {} sections (worst {worst:?}), {:.1} bytes each, {:.3} x payload; checked in {:?}",
        1 << bits,
        length as f64 / nodes as f64,
        length as f64 / view.data_bytes() as f64,
        start.elapsed(),
    );
    snapshot
}
