//! The trees that attacks meet: made once by ordinary clients, kept as snapshots, shared by all runs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use corral_core::limits::NAMES_BYTES_MAX;
use corral_core::snapshot::{Snapshot, initial_snapshot};
use corral_wire::OpCode;

use super::genome::{Call, Gene, Path, Tree};
use super::lab::{Lab, Reach};

static MADE: Mutex<BTreeMap<Tree, Arc<Snapshot>>> = Mutex::new(BTreeMap::new());

const WIDE: u32 = 20_000;
const LARGE: (u32, u32) = (150, 1000);

/// The snapshot of a tree.
pub(super) fn snapshot(tree: Tree) -> Arc<Snapshot> {
    let mut made = MADE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    Arc::clone(made.entry(tree).or_insert_with(|| make(tree)))
}

fn make(tree: Tree) -> Arc<Snapshot> {
    let reach =
        Reach { bytes_max: u64::MAX, requests_max: u64::MAX, ns_max: u64::MAX, names_bytes_max: NAMES_BYTES_MAX };
    let mut lab = Lab::new(&Arc::new(initial_snapshot(1)), false, None, reach);
    let create = |path: Path| Gene::Call(0, Call { path, number: 0, ..Call::of(OpCode::Create, "") });
    let mut genes = vec![create(Path::of("/a")), create(Path::of("/b"))];
    match tree {
        Tree::Small => {}
        Tree::Wide => {
            genes.push(create(Path::of("/wide")));
            genes.push(Gene::Repeat(WIDE / 1000, vec![many(1000, "/wide/n")]));
        }
        Tree::Large => {
            genes.push(create(Path::of("/large")));
            for at in 0..LARGE.0 {
                genes.push(create(Path::of(&format!("/large/{at}"))));
                genes.push(many(LARGE.1, &format!("/large/{at}/n")));
            }
        }
    }
    lab.play(&genes, 1, 0);
    lab.into_snapshot()
}

fn many(times: u32, name: &str) -> Gene {
    let call = Call { path: Path::numbered(name), number: 0, ..Call::of(OpCode::Create, "") };
    Gene::Many { client: 0, read: false, times, calls: vec![call] }
}
