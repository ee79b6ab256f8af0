//! The search: attacks that cost the most for their bytes are kept, changed and mixed, in every way of costing on its
//! own.
//!
//! Nothing is known in advance but the grammar of requests and the ceilings. A finding is an attack beyond a ceiling,
//! in the best of three runs. One thread; CPU time is the thread's own, so that the machine's other work hardly counts.

use std::collections::BTreeMap;

use corral_core::limits::NAMES_BYTES_MAX;
use corral_wire::OpCode;

use super::bill::{Bill, Core, ratio};
use super::genome::{Genome, Tree};
use super::lab::{Lab, Reach};
use super::mutate;
use super::plant::Plant;
use super::trees;
use crate::rng::Stream;

/// What no attack may go beyond.
#[derive(Clone, Copy, Debug)]
pub struct Ceilings {
    /// A core does nothing else for so long, ns.
    pub turn_ns: u64,
    /// CPU time of a request for each byte of it and of its reply, ns. Requests below `request_ns` pass.
    pub request_ns_per_byte: f64,
    pub request_ns: u64,
    /// Bytes for each byte that the attacker sent, once they are more than `bytes_min`.
    pub held_per_byte: f64,
    pub snapshot_per_byte: f64,
    pub logged_per_byte: f64,
    pub others_per_byte: f64,
    pub bytes_min: u64,
    /// One reply, bytes.
    pub reply_bytes: u64,
}

/// The server's.
pub const CEILINGS: Ceilings = Ceilings {
    turn_ns: 50_000_000,
    request_ns_per_byte: 1000.0,
    request_ns: 200_000,
    held_per_byte: 100.0,
    snapshot_per_byte: 100.0,
    logged_per_byte: 10.0,
    others_per_byte: 100.0,
    bytes_min: 4 << 20,
    reply_bytes: 8 << 20,
};

/// How far one attack of the search is carried out.
pub const REACH: Reach =
    Reach { bytes_max: 12 << 20, requests_max: 2000, ns_max: 60_000_000, names_bytes_max: NAMES_BYTES_MAX };

/// .. and of a short search: many small attacks a second, against a limit on names that they can reach.
pub const REACH_QUICK: Reach =
    Reach { bytes_max: 256 << 10, requests_max: 300, ns_max: 15_000_000, names_bytes_max: 32 << 10 };

/// Requests below are measured badly.
const NOISE_NS: u64 = 20_000;
/// A figure that is enough where there is no ceiling.
const UNBOUNDED: f64 = 1e6;

/// A way of costing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    Turn,
    Request,
    Cpu,
    Held,
    Peak,
    Logged,
    Others,
    Snapshot,
    Reply,
    Allocated,
    Units,
    Names,
}

/// An attack beyond a ceiling.
#[derive(Clone, Debug)]
pub struct Finding {
    pub measure: Measure,
    /// What the dearest request asked for.
    pub op: Option<OpCode>,
    pub figure: f64,
    pub ceiling: f64,
    /// Inputs tried until then.
    pub input: u64,
    pub genome: Genome,
    pub bill: Bill,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let op = self.op.map_or("-", OpCode::name);
        let unit = match self.measure {
            Measure::Turn => "ns of one turn",
            Measure::Request => "ns a byte moved",
            Measure::Reply => "bytes of one reply",
            Measure::Names => "bytes of names below one parent",
            _ => "for each byte sent",
        };
        write!(
            f,
            "{:?} {op}: {:.0} {unit} (ceiling {:.0}), input {}; {} bytes in {} requests",
            self.measure, self.figure, self.ceiling, self.input, self.bill.bytes, self.bill.requests
        )
    }
}

/// Runs an attack. Gives what the measured part cost.
pub fn run(genome: &Genome, plant: Option<Plant>, reach: Reach) -> Bill {
    let mut lab = Lab::new(&trees::snapshot(genome.tree), genome.keeper, plant, reach);
    let all = Reach { bytes_max: u64::MAX, requests_max: u64::MAX, ns_max: u64::MAX, ..reach };
    lab.begin(if genome.prepare.is_empty() { reach } else { all });
    lab.play(&genome.prepare, 1, 0);
    lab.begin(reach);
    lab.play(&genome.genes, 1, 0);
    lab.bill()
}

/// Each way of costing, with what it is about and its ceiling if there is one.
fn figures(bill: &Bill) -> [(Measure, Option<OpCode>, f64, f64); 12] {
    let c = CEILINGS;
    let many = |amount: u64, ceiling: f64| if amount >= c.bytes_min { ceiling } else { f64::INFINITY };
    let dear = if bill.dearest.ns >= c.request_ns { c.request_ns_per_byte } else { f64::INFINITY };
    // What is over so soon says little.
    let clear = ratio(bill.dearest.ns, NOISE_NS).min(1.0);
    let turn = bill.longest_turn;
    [
        (Measure::Turn, turn.op, ratio(turn.ns, 1), ratio(c.turn_ns, 1)),
        (Measure::Request, bill.dearest.op, bill.dearest.ns_per_byte() * clear, dear),
        (Measure::Cpu, turn.op, bill.per_byte(bill.ns()), f64::INFINITY),
        (Measure::Held, None, bill.per_byte(bill.held), many(bill.held, c.held_per_byte)),
        (Measure::Peak, turn.op, bill.per_byte(bill.peak), f64::INFINITY),
        (Measure::Logged, None, bill.per_byte(bill.logged), many(bill.logged, c.logged_per_byte)),
        (Measure::Others, None, bill.per_byte(bill.others), many(bill.others, c.others_per_byte)),
        (Measure::Snapshot, None, bill.per_byte(bill.snapshot), many(bill.snapshot, c.snapshot_per_byte)),
        (Measure::Reply, bill.largest.op, ratio(bill.largest.reply, 1), ratio(c.reply_bytes, 1)),
        (Measure::Allocated, bill.greediest.op, bill.greediest.allocated_per_byte(), f64::INFINITY),
        (Measure::Units, turn.op, bill.per_byte(bill.units), f64::INFINITY),
        (Measure::Names, None, ratio(bill.names, 1), ratio(bill.names_max, 1)),
    ]
}

/// What an attack goes beyond: the ceilings that it breaks.
pub fn beyond(bill: &Bill) -> Vec<(Measure, Option<OpCode>, f64, f64)> {
    figures(bill).into_iter().filter(|(_, _, figure, ceiling)| figure > ceiling).collect()
}

type Key = (Measure, i32, Core);

/// The dearest attack of its kind.
#[derive(Default)]
struct Kept {
    figure: f64,
    bytes: u64,
    /// How many of the next choices it is worth: more once it has grown.
    energy: u64,
    genome: Genome,
}

const ENERGY_MAX: u64 = 20;

/// Where an attack competes: turns, requests and replies by what they are about, the rest as a whole.
fn key(measure: Measure, op: Option<OpCode>, bill: &Bill) -> Key {
    let core = if measure == Measure::Turn { bill.longest_turn.core } else { Core::default() };
    let of_op = matches!(measure, Measure::Turn | Measure::Request | Measure::Reply);
    let inner = bill.dearest.inner.filter(|_| measure == Measure::Request).map_or(0, |inner| 1000 * inner.number());
    (measure, op.filter(|_| of_op).map_or(0, OpCode::number) + inner, core)
}

/// What is far beyond its ceiling need not grow, but get smaller.
fn bounded(figure: f64, ceiling: f64) -> f64 {
    figure.min(4.0 * if ceiling.is_finite() { ceiling } else { UNBOUNDED })
}

/// Dearer by more than noise, or as dear with fewer bytes.
fn is_better(figure: f64, bill: &Bill, place: &Kept) -> bool {
    figure > place.figure * 1.05 || (figure > place.figure * 0.95 && bill.bytes * 4 < place.bytes * 3)
}

/// A search that goes on as long as it is asked to.
pub struct Search {
    stream: Stream,
    plant: Option<Plant>,
    /// The largest tree that attacks meet.
    tree_max: Tree,
    reach: Reach,
    /// The only way of costing that counts, if there is one.
    measure: Option<Measure>,
    /// The dearest attack of each way of costing and operation.
    pool: BTreeMap<Key, Kept>,
    found: BTreeMap<(Measure, i32), Finding>,
    pub inputs: u64,
    pub bytes: u64,
}

impl Search {
    /// Begins with `seeds`; without any it is a cold start.
    pub fn new(seed: u64, plant: Option<Plant>, tree_max: Tree, reach: Reach, seeds: &[Genome]) -> Search {
        let stream = Stream::new(seed, "cost");
        let (pool, found) = (BTreeMap::new(), BTreeMap::new());
        let mut search = Search { stream, plant, tree_max, reach, measure: None, pool, found, inputs: 0, bytes: 0 };
        for genome in seeds {
            search.attempt(genome.clone());
        }
        search
    }

    /// Looks for nothing else. Where that is counted and not timed, equal seeds tell the same story on every machine.
    pub fn only(mut self, measure: Measure) -> Search {
        self.measure = Some(measure);
        self
    }

    /// The figures that count.
    fn figures(&self, bill: &Bill) -> impl Iterator<Item = (Measure, Option<OpCode>, f64, f64)> + use<> {
        let only = self.measure;
        figures(bill).into_iter().filter(move |(measure, ..)| only.is_none_or(|only| only == *measure))
    }

    /// Tries one more attack. Gives what it found that was not found before.
    pub fn step(&mut self) -> Vec<Finding> {
        let fresh = self.pool.is_empty() || self.stream.per_mille(200);
        let mut genome = if fresh {
            mutate::genome(&mut self.stream)
        } else {
            let (mut genome, other) = (self.chosen(), self.chosen());
            mutate::change(&mut self.stream, &mut genome, &other);
            genome
        };
        genome.tree = genome.tree.min(self.tree_max);
        self.attempt(genome)
    }

    /// One of the dearest, mostly of those that are below their ceilings still, and of those that grew lately.
    fn chosen(&mut self) -> Genome {
        let any = self.stream.per_mille(100);
        let Self { stream, pool, found, .. } = self;
        let open = |measure: Measure, op: i32| any || !found.contains_key(&(measure, op));
        let weight = |(key, kept): (&Key, &Kept)| if open(key.0, key.1) { kept.energy } else { 0 };
        let sum: u64 = pool.iter().map(weight).sum();
        let mut at = stream.below(sum);
        for (key, kept) in pool.iter_mut() {
            let weight = weight((key, kept));
            if at < weight {
                kept.energy = (kept.energy - 1).max(1);
                return kept.genome.clone();
            }
            at -= weight;
        }
        Genome::default()
    }

    fn attempt(&mut self, genome: Genome) -> Vec<Finding> {
        self.inputs += 1;
        let mut bill = run(&genome, self.plant, self.reach);
        self.bytes += bill.bytes;
        if !self.improves(&bill) {
            return Vec::new();
        }
        // Whatever disturbed one run disturbs another one elsewhere.
        bill.least(&run(&genome, self.plant, self.reach));
        let mut new = Vec::new();
        for (measure, op, figure, ceiling) in self.figures(&bill) {
            let op_number = op.map_or(0, OpCode::number);
            if figure > ceiling && !self.found.contains_key(&(measure, op_number)) {
                new.extend(self.confirmed(&genome, measure, op, &bill));
            }
            let figure = bounded(figure, ceiling);
            let place = self.pool.entry(key(measure, op, &bill)).or_default();
            if is_better(figure, &bill, place) {
                let grown = figure > place.figure * 1.2;
                *place = Kept {
                    figure,
                    bytes: bill.bytes,
                    energy: if grown { ENERGY_MAX } else { 1 },
                    genome: genome.clone(),
                };
            }
        }
        new
    }

    fn improves(&self, bill: &Bill) -> bool {
        let better = |measure, op, figure, ceiling| {
            self.pool.get(&key(measure, op, bill)).is_none_or(|place| is_better(bounded(figure, ceiling), bill, place))
        };
        self.figures(bill).any(|(measure, op, figure, ceiling)| better(measure, op, figure, ceiling))
    }

    /// The same again: the least of the three counts.
    fn confirmed(&mut self, genome: &Genome, measure: Measure, op: Option<OpCode>, bill: &Bill) -> Option<Finding> {
        let mut bill = bill.clone();
        bill.least(&run(genome, self.plant, self.reach));
        let (_, _, figure, ceiling) = figures(&bill).into_iter().find(|(of, ..)| *of == measure)?;
        if figure <= ceiling {
            return None;
        }
        let finding = Finding { measure, op, figure, ceiling, input: self.inputs, genome: genome.clone(), bill };
        self.found.insert((measure, op.map_or(0, OpCode::number)), finding.clone());
        Some(finding)
    }

    /// The dearest of each way of costing, for people.
    pub fn best(&self) -> impl Iterator<Item = (Measure, Option<OpCode>, f64, &Genome)> {
        self.pool
            .iter()
            .map(|((measure, op, _), kept)| (*measure, OpCode::from_i32(*op % 1000), kept.figure, &kept.genome))
    }
}
