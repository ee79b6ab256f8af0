//! Cells of load: a short name such as `get1k:64x16@50000` and the flags of the load generator it stands for.
//!
//! Pure. The values are checked against the load generator's own limits before anything is started.

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser as _, ValueEnum};

use crate::Operation;
use crate::args::rate;
use crate::plan::{Args, Plan};

/// The load generator's command line.
#[derive(clap::Parser)]
struct Load {
    #[command(flatten)]
    args: Args,
}

/// How the list of cells is written, for `--help` and for errors.
pub(super) const GRAMMAR: &str = "OP[N][:CONNECTIONSxDEPTH][@RATE]";

const CONNECTIONS_DEFAULT: u32 = 64;
const DEPTH_DEFAULT: u32 = 16;
const VALUE_BYTES_DEFAULT: u64 = 100;
const CHILDREN_DEFAULT: u64 = 100;
const READ_PERCENT_DEFAULT: u64 = 90;

/// One kind of load.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cell {
    /// The name in its full form, for example `get:64x16`.
    pub(super) name: String,
    op: Operation,
    /// The operation's name.
    word: String,
    /// Bytes of the values, number of children, or per cent of reads.
    amount: u64,
    pub(super) connections: u32,
    pub(super) depth: u32,
    rate: Option<f64>,
}

impl Cell {
    /// Reads one cell.
    ///
    /// # Errors
    /// A text that is no cell, with the cell and the grammar.
    pub(super) fn of(text: &str) -> Result<Self> {
        Self::read(text).with_context(|| format!("--cells: {text:?} is not {GRAMMAR}"))
    }

    fn read(text: &str) -> Result<Self> {
        let (rest, rate) = match text.split_once('@') {
            Some((rest, rate)) => (rest, Some(rate.parse().context("the rate is no number")?)),
            None => (text, None),
        };
        let (load, shape) = rest.split_once(':').unwrap_or((rest, ""));
        let (connections, depth) = match shape.split_once('x') {
            Some((connections, depth)) => {
                (connections.parse().context("no number of connections")?, depth.parse().context("no depth")?)
            }
            None if shape.is_empty() => (CONNECTIONS_DEFAULT, DEPTH_DEFAULT),
            None => bail!("behind the colon stand connections, an x and the depth"),
        };
        let digits = load.find(|letter: char| letter.is_ascii_digit()).unwrap_or(load.len());
        let (word, amount) = load.split_at(digits);
        let op = Operation::from_str(word, true).map_err(|_| anyhow::anyhow!("there is no operation {word:?}"))?;
        let (default, unit) = match op {
            Operation::Children => (CHILDREN_DEFAULT, "children"),
            Operation::Mix => (READ_PERCENT_DEFAULT, "per cent of reads"),
            _ => (VALUE_BYTES_DEFAULT, "bytes"),
        };
        let amount = if amount.is_empty() { default } else { with_suffix(amount).with_context(|| unit.to_owned())? };
        ensure!(connections > 0 && depth > 0, "connections and depth are at least 1");
        let shown = if amount == default { String::new() } else { spelled(amount) };
        let pace = rate.map_or(String::new(), |rate: f64| format!("@{rate}"));
        let word = word.to_ascii_lowercase();
        let name = format!("{word}{shown}:{connections}x{depth}{pace}");
        Ok(Self { name, op, word, amount, connections, depth, rate })
    }

    /// The load generator's flags.
    pub(super) fn flags(&self) -> Vec<String> {
        let mut flags = vec!["--op".to_owned(), self.word.clone()];
        let mut flag = |name: &str, value: String| flags.extend([name.to_owned(), value]);
        flag("--connections", self.connections.to_string());
        flag("--depth", self.depth.to_string());
        match self.op {
            Operation::Children => flag("--children", self.amount.to_string()),
            Operation::Mix => flag("--read-percent", self.amount.to_string()),
            _ => flag("--value-bytes", self.amount.to_string()),
        }
        if let Some(rate) = self.rate {
            flag("--rate", rate.to_string());
        }
        flags
    }

    /// Asks the load generator whether it would take the cell.
    ///
    /// # Errors
    /// A value out of the load generator's limits, with the flag it stands for.
    pub(super) fn check(&self) -> Result<()> {
        self.rate.map(|value| rate("--rate", value)).transpose()?;
        let words = std::iter::once("load".to_owned()).chain(self.flags());
        let load = Load::try_parse_from(words).map_err(|error| {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            anyhow::anyhow!("{}", first.trim_start_matches("error: "))
        })?;
        Plan::of(&load.args).map(|_| ())
    }

    /// For people: `get, 64 connections x 16, 100 B`.
    pub(super) fn title(&self) -> String {
        let Self { amount, connections, depth, .. } = self;
        let what = match self.op {
            Operation::Children => format!("children of a znode with {amount}"),
            Operation::Mix => format!("mix of {amount} % get, the rest set"),
            _ => format!("{} of {amount} B", self.word),
        };
        let plural = if *connections == 1 { "" } else { "s" };
        let pace = self.rate.map_or(String::new(), |rate| format!(", open loop at {rate}/s"));
        format!("{what}, {connections} connection{plural} x {depth}{pace}")
    }

    /// What all cells of a sweep over the number of connections have in common: `get x 1`. None in an open loop.
    pub(super) fn sweep(&self) -> Option<String> {
        let load = self.name.split(':').next().unwrap_or_default();
        self.rate.is_none().then(|| format!("{load}, depth {}", self.depth))
    }

    /// A name for files.
    pub(super) fn file_name(&self) -> String {
        self.name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect()
    }
}

/// 100, 1k, 64k, 1m.
fn with_suffix(text: &str) -> Result<u64> {
    let (digits, factor) = match text.as_bytes().last().map(u8::to_ascii_lowercase) {
        Some(b'k') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm') => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    let number: u64 = digits.parse().with_context(|| format!("{text:?} is no number"))?;
    number.checked_mul(factor).with_context(|| format!("{text} is too large"))
}

fn spelled(amount: u64) -> String {
    match amount {
        amount if amount > 0 && amount % (1 << 20) == 0 => format!("{}m", amount >> 20),
        amount if amount > 0 && amount % (1 << 10) == 0 => format!("{}k", amount >> 10),
        amount => amount.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_have_a_full_name_and_flags() {
        fn check(text: &str, name: &str, flags: &str) {
            let cell = Cell::of(text).unwrap();
            assert_eq!((cell.name.as_str(), cell.flags().join(" ").as_str()), (name, flags));
            assert_eq!(Cell::of(name).unwrap(), cell, "the full name is a cell too");
        }
        check("get:64x16", "get:64x16", "--op get --connections 64 --depth 16 --value-bytes 100");
        check("get1k", "get1k:64x16", "--op get --connections 64 --depth 16 --value-bytes 1024");
        check("set:1x1", "set:1x1", "--op set --connections 1 --depth 1 --value-bytes 100");
        check("mix90:64x16", "mix:64x16", "--op mix --connections 64 --depth 16 --read-percent 90");
        check("mix50:2x3", "mix50:2x3", "--op mix --connections 2 --depth 3 --read-percent 50");
        check("children:8x1", "children:8x1", "--op children --connections 8 --depth 1 --children 100");
        check("get@50000", "get:64x16@50000", "--op get --connections 64 --depth 16 --value-bytes 100 --rate 50000");
    }

    #[test]
    fn what_is_no_cell_is_refused_with_the_grammar() {
        for text in ["", "put", "get:64", "get:x1", "get:0x1", "get:1x0", "get@fast", "get5q", "get:1x1x1", ":1x1"] {
            let error = format!("{:#}", Cell::of(text).expect_err(text));
            assert!(error.contains(GRAMMAR), "{text:?} gives {error:?}");
        }
    }

    #[test]
    fn what_the_load_generator_would_refuse_is_refused() {
        fn check(text: &str, part: &str) {
            let checked = Cell::of(text).and_then(|cell| cell.check());
            let error = checked.err().map(|error| format!("{error:#}")).unwrap_or_default();
            assert!(error.contains(part) && error.is_empty() == part.is_empty(), "{text:?} gives {error:?}");
        }
        for fine in ["get", "set1k:1x1", "mix100:1x1", "children1000:8x1", "get@0.5", "create:50000x1"] {
            check(fine, "");
        }
        check("mix200:1x1", "200 is not in 0..=100");
        check("get:1x1@NaN", "--rate NaN");
        check("get:1x1@-5", "--rate");
        check("get:1x1@1e300", "--rate 1e300");
        check("set2m:1x1", "--value-bytes 2097152");
        check("children2m:1x1", "2097152 is not in 1..=1000000");
        check("children99999m:1x1", "--children");
        check("get:50001x1", "50001 is not in 1..=50000");
        check("get:1x65537", "65537 is not in 1..=65536");
        check("set512k:5000x16", "bytes in flight");
    }

    #[test]
    fn sweeps_are_over_connections_alone() {
        let sweep = |text: &str| Cell::of(text).unwrap().sweep();
        assert_eq!(sweep("get:1x1"), sweep("get:1000x1"));
        assert_ne!(sweep("get:1x1"), sweep("get:1x2"));
        assert_ne!(sweep("get:1x1"), sweep("get1k:1x1"));
        assert_eq!(sweep("get:1x1@5"), None);
    }
}
