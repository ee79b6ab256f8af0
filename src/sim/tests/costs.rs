//! The search for costs: bugs that cost time are found from a cold start, and the server's own work stays within the
//! ceilings.

use corral_sim::fuzz::cost::plant::Plant;
use corral_sim::fuzz::cost::search::{Measure, REACH_QUICK, Search};
use corral_sim::fuzz::memory::Counting;
use corral_sim::fuzz::runner::is_counted;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Inputs within which each bug must be found, from nothing ...
const INPUTS_MAX: u64 = 10_000;
/// ... by one of so many searches: which attacks a search keeps depends on measured times, so none goes the same way
/// twice.
const SEARCHES: u64 = 80;
/// .. and that are tried against the limit on names.
const NAMES_INPUTS: u64 = 20_000;

#[test]
fn planted_cost_bugs_are_found_from_a_cold_start() {
    assert!(is_counted());
    for plant in Plant::ALL {
        let finds = |seed| {
            let mut search = Search::new(seed, Some(plant), plant.tree(), REACH_QUICK, &[]);
            (0..INPUTS_MAX).any(|_| search.step().iter().any(|finding| plant.shows_in(finding.measure, finding.op)))
        };
        assert!((1..=SEARCHES).any(finds), "{plant:?} is not found in {SEARCHES} times {INPUTS_MAX} inputs");
    }
}

/// Where the limit on names below one parent holds, the same search comes near it and not beyond.
#[test]
fn no_parent_has_more_names_than_the_limit() {
    let mut search = Search::new(1, None, Plant::NamesUnlimited.tree(), REACH_QUICK, &[]).only(Measure::Names);
    for _ in 0..NAMES_INPUTS {
        let beyond = search.step().into_iter().find(|finding| finding.measure == Measure::Names);
        assert!(beyond.is_none(), "{}", beyond.expect("it is"));
    }
    let most = search
        .best()
        .filter(|(measure, ..)| *measure == Measure::Names)
        .map(|(_, _, figure, _)| figure)
        .fold(0.0, f64::max);
    assert!(2.0 * most > f64::from(32 << 10), "the search came to {most} bytes of names only");
}
