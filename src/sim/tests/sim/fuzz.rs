//! The fuzz targets for a moment, over fixed inputs and the corpus. Then the canaries: bugs that a short run must find.
//! Last the lab that makes the table of costs.
//!
//! `corral-sim fuzz` does the same for longer, from another seed each time.

use corral_sim::fuzz::cost::table::measure;
use corral_sim::fuzz::memory::is_counted;
use corral_sim::fuzz::runner::{campaign, parse_corpus};
use corral_sim::fuzz::{CANARIES, TARGETS};

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fuzz/corpus.txt");

#[test]
fn memory_is_counted() {
    assert!(is_counted());
}

#[test]
fn targets_hold() {
    let text = std::fs::read_to_string(CORPUS).expect("the corpus");
    let corpus = parse_corpus(&text).expect("a corpus");
    for name in corpus.keys() {
        assert!(TARGETS.iter().any(|target| target.name == name), "the corpus names {name}, which is no target");
    }
    for target in TARGETS {
        let known = corpus.get(target.name).map_or(&[][..], Vec::as_slice);
        let inputs = known.len() as u64 + target.inputs_quick / 100;
        let done = campaign(&target, known, inputs, 1);
        let done = done.unwrap_or_else(|failure| panic!("{}: {failure:?}", target.name));
        assert!(done.tally.accepted > 0 && done.tally.refused > 0, "{}: {done:?}", target.name);
    }
}

#[test]
fn canaries_are_found_and_shrunk() {
    for (canary, reason) in CANARIES.iter().zip(["a panic", "memory: ", "progress: "]) {
        let done = campaign(canary, &[], canary.inputs_quick, 1);
        let failure = done.expect_err(canary.name);
        assert!(failure.reason.starts_with(reason), "{}: {failure:?}", canary.name);
        let short = if canary.name == "lost answer" { 2000 } else { 40 };
        assert!(failure.input.len() < short, "{}: {failure:?}", canary.name);
    }
}

#[test]
fn the_lab_of_costs_counts_what_an_attack_costs() {
    let rows = measure("15,000 creates", |_| ());
    let [all, failing] = &rows[..] else { panic!("{} rows", rows.len()) };
    assert_eq!((all.bill.messages, all.bill.failed, failing.bill.failed), (2, 0, 1));
    assert!(failing.bill.logged > all.bill.logged && all.bill.others >= 2 * all.bill.logged, "{:?}", all.bill);
    assert!(all.bill.most_units > 15_000 && all.bill.largest_reply > 15_000 && all.longest_ns() > 0, "{:?}", all.bill);
    let rows = measure("200 recursive watchers", |_| ());
    let [watched] = &rows[..] else { panic!("{} rows", rows.len()) };
    assert!(watched.bill.others > 50 * watched.bill.logged, "{:?}", watched.bill);
}
