//! The search for costs: bugs that cost time are found from a cold start, and the server's own work stays within the ceilings.

use corral_sim::fuzz::cost::plant::Plant;
use corral_sim::fuzz::cost::search::{Lane, REACH_QUICK, Search};
use corral_sim::fuzz::memory::Counting;
use corral_sim::fuzz::runner::is_counted;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Inputs within which each bug must be found, from nothing.
const INPUTS_MAX: u64 = 60_000;

#[test]
fn planted_cost_bugs_are_found_from_a_cold_start() {
    assert!(is_counted());
    for plant in Plant::ALL {
        let mut search = Search::new(1, Some(plant), plant.tree(), REACH_QUICK, &[]);
        let found = (0..INPUTS_MAX).find_map(|_| {
            let dear = |lane| matches!(lane, Lane::Turn | Lane::Request);
            search.step().into_iter().find(|finding| dear(finding.lane) && plant.shows_in(finding.op))
        });
        assert!(found.is_some(), "{plant:?} is not found in {INPUTS_MAX} inputs");
    }
}
