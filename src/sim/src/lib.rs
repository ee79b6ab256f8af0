//! corral-sim: a server or an ensemble in a simulated world, one seed deciding everything, checkers that look on.
//!
//! The second driver of the actors (the first is the server's executors): the real `Shard`, `Sequencer`, `Replica` and
//! `Log`, on a disk that tears and lies, between clients that speak real bytes. A failure is a seed and a commit.
//!
//! Start with [`run_seed`]; the properties stand one a file in `check`, the independent model in `model`.

pub mod canaries;
mod check;
mod client;
mod faults;
pub mod fuzz;
pub mod limits;
mod link;
mod model;
mod options;
mod queue;
mod reconfig;
mod request;
mod rng;
mod server;
mod trace;
mod violation;
mod workload;
mod world;

pub use options::{Bug, EnsembleOptions, ListOptions, Options};
pub use trace::Tracing;
pub use violation::{Checked, Violation};
pub use world::{Counts, World};

/// What became of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub counts: Counts,
    /// Over everything that happened: the same for the same seed; 0 if it was not wanted.
    pub trace_hash: u64,
    pub events: u64,
    pub violation: Option<Violation>,
    /// What happened, if lines were wanted.
    pub lines: Vec<String>,
}

/// Runs one seed of a server that is alone from beginning to end.
pub fn run_seed(seed: u64, bug: Option<Bug>, tracing: Tracing) -> Outcome {
    run(Options::draw(seed, bug), tracing)
}

/// Runs one seed of an ensemble.
pub fn run_ensemble_seed(seed: u64, bug: Option<Bug>, tracing: Tracing) -> Outcome {
    run(Options::draw_ensemble(seed, bug), tracing)
}

/// As [`run_seed`], with pages of the log that are lost between a kill and the next start.
pub fn run_lost_pages_seed(seed: u64, bug: Option<Bug>, tracing: Tracing) -> Outcome {
    run(Options::draw(seed, bug).with_lost_pages(), tracing)
}

/// As [`run_ensemble_seed`], with such losses.
pub fn run_lost_pages_ensemble_seed(seed: u64, bug: Option<Bug>, tracing: Tracing) -> Outcome {
    run(Options::draw_ensemble(seed, bug).with_lost_pages(), tracing)
}

/// Runs one seed of an ensemble whose servers now and then find their state damaged.
pub fn run_damaged_seed(seed: u64, tracing: Tracing) -> Outcome {
    let mut options = Options::draw_ensemble(seed, None);
    if let Some(ensemble) = &mut options.ensemble {
        ensemble.weight_damage = 2 + seed % 10;
    }
    run(options, tracing)
}

fn run(options: Options, tracing: Tracing) -> Outcome {
    let mut world = World::new(options, tracing);
    let violation = world.run().err();
    let trace = world.trace();
    Outcome {
        counts: world.counts(),
        trace_hash: trace.digest(),
        events: trace.events(),
        violation,
        lines: trace.lines().to_vec(),
    }
}
