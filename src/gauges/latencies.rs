//! Times of requests by operation, and of the stages of writes: histograms of one thread each, summed up by the control thread.
//!
//! A thread locks its own once a turn. The control thread holds it for as long as it takes to copy it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use corral_core::report::{self, BOUNDS_US, LatencyFacts, Quantiles};
use corral_core::shard::Answer;
use corral_types::Micros;
use corral_wire::OpCode;
use corral_wire::op::Kind;
use hdrhistogram::Histogram;

/// Longer times count as this long.
const MAX_US: u64 = 60_000_000;
/// Significant decimal digits.
const DIGITS: u8 = 2;

/// A stage of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// From the shard to the consensus actor.
    Queue,
    /// From the log thread's mailbox to a synced log.
    Sync,
    /// From the same beginning until a majority has it and this server has evaluated it.
    Commit,
    /// From there until a shard has applied it.
    Apply,
}

const STAGES: [(Stage, &str); 4] =
    [(Stage::Queue, "queue"), (Stage::Sync, "sync"), (Stage::Commit, "commit"), (Stage::Apply, "apply")];

/// Times of one thread.
#[derive(Debug, Default)]
pub(crate) struct Latencies(Mutex<Kept>);

#[derive(Clone, Debug, Default)]
struct Kept {
    /// By place in [`OpCode::ALL`].
    operations: Vec<Times>,
    stages: [Times; STAGES.len()],
}

/// A histogram, from the first time on.
type Times = Option<Box<Histogram<u64>>>;

impl Latencies {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These requests are answered now.
    pub(crate) fn answered(&self, now: Micros, answers: impl Iterator<Item = Answer>) {
        let mut answers = answers.peekable();
        if answers.peek().is_none() {
            return;
        }
        let mut kept = self.lock();
        for Answer { op, at } in answers {
            let place = place(op);
            if kept.operations.len() <= place {
                kept.operations.resize(place + 1, None);
            }
            note(&mut kept.operations[place], now.since(at).0);
        }
    }

    pub(crate) fn stage(&self, stage: Stage, us: u64) {
        note(&mut self.lock().stages[stage as usize], us);
    }

    pub(crate) fn reset(&self) {
        *self.lock() = Kept::default();
    }
}

/// The sums of all threads.
pub(crate) fn sum(threads: &[impl AsRef<Latencies>]) -> LatencyFacts {
    let kept: Vec<Kept> = threads.iter().map(|thread| thread.as_ref().lock().clone()).collect();
    let operation = |op: OpCode| added(kept.iter().filter_map(|kept| kept.operations.get(place(op))));
    let operations: Vec<(OpCode, Times)> = OpCode::ALL.iter().map(|op| (*op, operation(*op))).collect();
    let stages = STAGES.map(|(stage, name)| (name, added(kept.iter().map(|kept| &kept.stages[stage as usize]))));
    let is_update = |op: OpCode| op.kind() == Kind::Write || matches!(op, OpCode::CreateSession);
    let quantiles_of = |updates: bool| {
        let those = operations.iter().filter(|(op, _)| is_update(*op) == updates);
        added(those.map(|(_, times)| times)).map(|times| quantiles(&times)).unwrap_or_default()
    };
    let shown = |times: &Times| times.as_ref().map(|times| shown(times));
    LatencyFacts {
        reads: quantiles_of(false),
        updates: quantiles_of(true),
        operations: operations.iter().filter_map(|(op, times)| Some((op.name(), shown(times)?))).collect(),
        stages: stages.iter().filter_map(|(name, times)| Some((*name, shown(times)?))).collect(),
    }
}

fn place(op: OpCode) -> usize {
    // Operations are few, and those of most requests are the first.
    OpCode::ALL.iter().position(|one| *one == op).unwrap_or_default()
}

fn note(times: &mut Times, us: u64) {
    let new = || Box::new(Histogram::new_with_bounds(1, MAX_US, DIGITS).expect("the bounds are legal"));
    times.get_or_insert_with(new).saturating_record(us);
}

fn added<'t>(list: impl Iterator<Item = &'t Times>) -> Times {
    let mut sum: Times = None;
    for times in list.flatten() {
        match &mut sum {
            Some(sum) => sum.add(&**times).expect("all have the same bounds"),
            None => sum = Some(times.clone()),
        }
    }
    sum
}

fn quantiles(times: &Histogram<u64>) -> Quantiles {
    let at = |quantile| times.value_at_quantile(quantile);
    Quantiles { p50: at(0.5), p90: at(0.9), p95: at(0.95), p99: at(0.99), p999: at(0.999) }
}

fn shown(times: &Histogram<u64>) -> report::Histogram {
    let (mut upto, mut sum) = ([0; BOUNDS_US.len()], 0_u64);
    for recorded in times.iter_recorded() {
        let (value, count) = (recorded.value_iterated_to(), recorded.count_at_value());
        sum = sum.saturating_add(value.saturating_mul(count));
        let buckets = upto.iter_mut().zip(BOUNDS_US).filter(|(_, bound)| value <= *bound);
        buckets.for_each(|(bucket, _)| *bucket += count);
    }
    report::Histogram { count: times.len(), us_sum: sum, upto, quantiles: quantiles(times) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn threads_are_summed() {
        let threads = [Arc::new(Latencies::default()), Arc::new(Latencies::default())];
        let answer = |op, us: u64| Answer { op, at: Micros(1_000_000 - us) };
        let now = Micros(1_000_000);
        threads[0].answered(now, [answer(OpCode::GetData, 30), answer(OpCode::SetData, 4000)].into_iter());
        threads[1].answered(now, [answer(OpCode::GetData, 300), answer(OpCode::GetData, 40)].into_iter());
        threads[1].stage(Stage::Sync, 2000);
        threads[1].stage(Stage::Sync, u64::MAX);
        let facts = sum(&threads);
        let names: Vec<&str> = facts.operations.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["getData", "setData"]);
        let gets = facts.operations[0].1;
        assert_eq!((gets.count, gets.upto[0], gets.upto[1], gets.upto[4]), (3, 0, 2, 3));
        assert!((368..=372).contains(&gets.us_sum), "{}", gets.us_sum);
        assert_eq!(facts.reads.p50, 40);
        assert!((3960..=4040).contains(&facts.updates.p99), "{:?}", facts.updates);
        let (stage, syncs) = facts.stages[0];
        assert_eq!((stage, syncs.count, syncs.upto[16]), ("sync", 2, 1));
        threads.iter().for_each(|thread| thread.reset());
        assert!(sum(&threads).operations.is_empty());
    }
}
