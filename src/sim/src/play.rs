//! The worlds there are: each has a kind and a seed, and is played from beginning to end by [`WorldId::play`].

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use clap::ValueEnum;

use crate::options::{Bug, Options};
use crate::trace::Tracing;
use crate::violation::{Checked, Violation};
use crate::world::World;
use crate::world::counts::Counts;
use crate::{log_lines, run};

/// The kind of world that is drawn from a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Kind {
    /// One server.
    Alone,
    /// Several servers. In a third of the worlds the membership changes.
    Ensemble,
    /// An ensemble with servers that now and then find their state corrupt.
    Damaged,
    /// An ensemble of servers of several builds: they differ in the limit on the cost of a command.
    Builds,
    /// An ensemble. Disk space or memory of its servers is scarce now and then.
    Scarce,
    /// One server, with pages of the log that are lost between a kill and the next start.
    LostPages,
    /// An ensemble with such losses.
    LostPagesEnsemble,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_possible_value().expect("every kind has a name").get_name())
    }
}

/// Names a world; with the commit, it names everything that happens in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorldId {
    pub kind: Kind,
    pub seed: u64,
}

impl fmt::Display for WorldId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.seed)
    }
}

/// The result of a world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub counts: Counts,
    /// A hash over all events, if they are traced: equal for equal kinds and seeds.
    pub trace_hash: u64,
    /// The property that did not hold; `assertion` where the world panicked.
    pub violation: Option<Violation>,
    /// All events as text, if lines were wanted.
    pub lines: Vec<String>,
}

thread_local! {
    static PLAYED: Cell<Option<WorldId>> = const { Cell::new(None) };
}

/// The world that this thread plays, for a panic hook.
pub fn played() -> Option<WorldId> {
    PLAYED.get()
}

impl WorldId {
    /// Plays the world, with a bug put in on purpose if there is one. A panic becomes a violation where panics unwind.
    pub fn play(self, bug: Option<Bug>, tracing: Tracing) -> Outcome {
        PLAYED.set(Some(self));
        let mut world = World::new(self.options(bug), tracing);
        let violation =
            log_lines::kept(|| catch_unwind(AssertUnwindSafe(|| run::run(&mut world))).unwrap_or_else(panicked).err());
        PLAYED.set(None);
        let World { counts, check, trace, .. } = world;
        let counts = Counts { too_costly: check.too_costly, growth_refused: check.growth_refused, ..counts };
        Outcome { counts, trace_hash: trace.hash.digest(), violation, lines: trace.lines }
    }

    fn options(self, bug: Option<Bug>) -> Options {
        let WorldId { kind, seed } = self;
        match kind {
            Kind::Alone => Options::draw(seed, bug),
            Kind::Ensemble => Options::draw_ensemble(seed, bug),
            Kind::Damaged => Options::draw_ensemble(seed, bug).with_damage(),
            Kind::Builds => Options::draw_ensemble(seed, bug).with_builds(),
            Kind::Scarce => Options::draw_ensemble(seed, bug).with_scarcity(),
            Kind::LostPages => Options::draw(seed, bug).with_lost_pages(),
            Kind::LostPagesEnsemble => Options::draw_ensemble(seed, bug).with_lost_pages(),
        }
    }
}

fn panicked(payload: Box<dyn Any + Send>) -> Checked {
    let text = payload.downcast_ref::<String>().map(String::as_str).or_else(|| payload.downcast_ref().copied());
    Err(Violation::of("assertion", format!("panicked: {}", text.unwrap_or("without a text"))))
}
