//! `corral-sim costs`: the table of what operations cost at worst, and the search for what costs more.

use std::time::{Duration, Instant};

use corral_sim::fuzz::cost::genome::{Genome, Tree};
use corral_sim::fuzz::cost::plant::Plant;
use corral_sim::fuzz::cost::search::{self, CEILINGS, REACH, REACH_QUICK, Search};
use corral_sim::fuzz::cost::{Reach, constructions, table};
use corral_sim::fuzz::runner;

use crate::{commit, say};

/// How to call it.
pub(crate) const USAGE: &str = "       corral-sim costs [--only TEXT] [--write FILE]
       corral-sim costs search [--inputs N] [--for SECONDS] [--seed S] [--from cold|known]
                        [--tree small|wide|large] [--quick yes] [--best yes]
                        [--plant 0..4]
       corral-sim costs replay JSON";

const BEGIN: &str = "<!-- costs: begin, written by corral-sim costs --write -->\n";
const END: &str = "<!-- costs: end -->\n";

struct Options {
    inputs: u64,
    time: Duration,
    seed: u64,
    plant: Option<Plant>,
    tree: Tree,
    reach: Reach,
    cold: bool,
    best: bool,
}

/// Runs what the words ask for. `None` if they make no sense, otherwise whether no ceiling was broken.
pub(crate) fn run(words: &[&str]) -> Option<bool> {
    assert!(runner::is_counted(), "the counting allocator is installed in this program");
    match words {
        ["search", options @ ..] => parse(options).map(|options| hunt(&options)),
        ["replay", json] => replay(json),
        [] => Some(measure("", None)),
        ["--only", which] => Some(measure(which, None)),
        ["--write", file] => Some(measure("", Some(file))),
        _ => None,
    }
}

fn parse(words: &[&str]) -> Option<Options> {
    let mut options = Options {
        inputs: u64::MAX,
        time: Duration::from_hours(1000),
        seed: 0,
        plant: None,
        tree: Tree::Large,
        reach: REACH,
        cold: true,
        best: false,
    };
    for pair in words.chunks(2) {
        match *pair {
            ["--inputs", count] => options.inputs = count.parse().ok()?,
            ["--for", seconds] => options.time = Duration::from_secs(seconds.parse().ok()?),
            ["--from", which] => options.cold = which == "cold",
            ["--tree", "small"] => options.tree = Tree::Small,
            ["--tree", "wide"] => options.tree = Tree::Wide,
            ["--tree", "large"] => options.tree = Tree::Large,
            ["--quick", yes] => options.reach = if yes == "yes" { REACH_QUICK } else { REACH },
            ["--best", yes] => options.best = yes == "yes",
            ["--seed", seed] => options.seed = seed.parse().ok()?,
            ["--plant", number] => options.plant = Some(*Plant::ALL.get(number.parse::<usize>().ok()?)?),
            _ => return None,
        }
    }
    Some(options)
}

/// Prints the table, and writes it into the documentation if there is a file. Whether every turn is short enough.
fn measure(which: &str, file: Option<&str>) -> bool {
    say(table::HEADING);
    let rows = table::measure(which, |row| say(&row.line()));
    let mut good = true;
    for row in rows.iter().filter(|row| row.is_too_long()) {
        good = false;
        let (op, what) = (row.construction.op, row.construction.what);
        let (ms, ceiling) = (row.longest_ns() / 1_000_000, CEILINGS.turn_ns / 1_000_000);
        say(&format!("FAIL {op}, {what}: a core does nothing else for {ms} ms, {ceiling} ms at most"));
    }
    if let Some(file) = file {
        good &= write(file, &table::text(&rows)).inspect_err(|error| say(&format!("{file}: {error}"))).is_ok();
    }
    good
}

fn write(file: &str, table: &str) -> std::io::Result<()> {
    let text = std::fs::read_to_string(file)?;
    let missing = || std::io::Error::other("the marks of the table are missing");
    let (before, rest) = text.split_once(BEGIN).ok_or_else(missing)?;
    let (_, behind) = rest.split_once(END).ok_or_else(missing)?;
    let note = format!("Measured at commit {} on {}.\n", commit(), machine());
    std::fs::write(file, format!("{before}{BEGIN}{note}\n{table}{END}{behind}"))
}

/// The processor, for people.
fn machine() -> String {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let count = cpus.lines().filter(|line| line.starts_with("processor")).count();
    format!("{count} CPUs, {}", model.trim_start_matches([' ', '\t', ':']))
}

fn hunt(options: &Options) -> bool {
    let begun = Instant::now();
    let seeds: Vec<Genome> = constructions::all().into_iter().map(|known| known.genome).collect();
    let seeds = if options.cold { &[][..] } else { &seeds };
    let mut search = Search::new(options.seed, options.plant, options.tree, options.reach, seeds);
    let mut found = 0;
    while search.inputs < options.inputs && begun.elapsed() < options.time {
        for finding in search.step() {
            found += 1;
            say(&format!("{finding} ({} s)\n     {}", begun.elapsed().as_secs(), json(&finding.genome)));
        }
    }
    for (measure, op, figure, genome) in search.best().filter(|_| options.best) {
        let op = op.map_or("-", corral_wire::OpCode::name);
        say(&format!("best {measure:?} {op} {figure:.1} {}", json(genome)));
    }
    say(&format!(
        "seed {}: {} inputs, {} bytes, {} s, {found} findings",
        options.seed,
        search.inputs,
        search.bytes,
        begun.elapsed().as_secs()
    ));
    found == 0
}

fn json(genome: &Genome) -> String {
    serde_json::to_string(genome).unwrap_or_default()
}

fn replay(text: &str) -> Option<bool> {
    let genome: Genome = serde_json::from_str(text).ok()?;
    let bill = search::run(&genome, None, REACH);
    let beyond = search::beyond(&bill);
    say(&format!("{bill:#?}\nbeyond: {beyond:?}"));
    Some(beyond.is_empty())
}
