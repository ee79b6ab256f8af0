//! What requests a load consists of: the kinds of operation and their weights.
//!
//! Parsed once from the command line, then read by every client thread. Knows no wire format and no socket.

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;

use crate::keys::Random;
use crate::limits::WEIGHT_MAX;

/// What `--op` can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Operation {
    /// getData of a key
    Get,
    /// exists of a key
    Exists,
    /// getChildren2 of one znode with --children children
    Children,
    /// setData of a key (durable on the server)
    Set,
    /// create of a new persistent znode (durable on the server)
    Create,
    /// delete of a znode the same connection has created; one that has none left creates one
    Delete,
    /// multi of --multi-ops setData (durable on the server)
    Multi,
    /// --read-percent getData, the rest setData; --mix gives any other mixture
    Mix,
}

/// What one request does. Its number is its place in tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Get,
    Exists,
    Children,
    Set,
    Create,
    Delete,
    Multi,
    /// Keeps a quiet session alive; not measured.
    Ping,
    /// Ends the session; not measured.
    Close,
}

impl Kind {
    /// Those that are measured, by their numbers.
    pub(crate) const MEASURED: [Self; 7] =
        [Self::Get, Self::Exists, Self::Children, Self::Set, Self::Create, Self::Delete, Self::Multi];

    /// The name on the command line and in reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Exists => "exists",
            Self::Children => "children",
            Self::Set => "set",
            Self::Create => "create",
            Self::Delete => "delete",
            Self::Multi => "multi",
            Self::Ping => "ping",
            Self::Close => "closeSession",
        }
    }

    /// Whether the server's disk is waited for.
    pub(crate) const fn writes(self) -> bool {
        matches!(self, Self::Set | Self::Create | Self::Delete | Self::Multi)
    }

    /// Whether it works on the prepared keys.
    pub(crate) const fn uses_keys(self) -> bool {
        matches!(self, Self::Get | Self::Exists | Self::Set | Self::Multi)
    }
}

/// Kinds of operation with their weights; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mix {
    /// Each kind with the sum of the weights up to and with it.
    sums: Vec<(Kind, u32)>,
    total: u32,
}

impl Mix {
    /// One operation, or reads and writes by `read_percent`.
    pub(crate) fn of(op: Operation, read_percent: u32) -> Self {
        let kind = match op {
            Operation::Get => Kind::Get,
            Operation::Exists => Kind::Exists,
            Operation::Children => Kind::Children,
            Operation::Set => Kind::Set,
            Operation::Create => Kind::Create,
            Operation::Delete => Kind::Delete,
            Operation::Multi => Kind::Multi,
            Operation::Mix => {
                let weights = [(Kind::Get, read_percent), (Kind::Set, 100 - read_percent)];
                return Self::weighted(weights.into_iter());
            }
        };
        Self::weighted(std::iter::once((kind, 1)))
    }

    /// Parses `get=80,set=10,create=5`.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut weights: Vec<(Kind, u32)> = Vec::new();
        for part in text.split(',') {
            let (name, weight) = part.split_once('=').with_context(|| format!("{part:?} is not OPERATION=WEIGHT"))?;
            let Some(kind) = Kind::MEASURED.into_iter().find(|kind| kind.name() == name.trim()) else {
                let known = Kind::MEASURED.map(Kind::name).join(", ");
                bail!("there is no operation {name:?}; there are {known}");
            };
            let weight: u32 = weight.trim().parse().with_context(|| format!("{weight:?} is not a whole number"))?;
            ensure!(weight <= WEIGHT_MAX, "the weight {weight} is above {WEIGHT_MAX}");
            ensure!(weights.iter().all(|(known, _)| *known != kind), "{name} is named twice");
            weights.push((kind, weight));
        }
        let mix = Self::weighted(weights.into_iter());
        ensure!(mix.total > 0, "all weights are 0");
        Ok(mix)
    }

    fn weighted(weights: impl Iterator<Item = (Kind, u32)>) -> Self {
        let mut total = 0;
        let mut sums = Vec::new();
        for (kind, weight) in weights.filter(|(_, weight)| *weight > 0) {
            total += weight;
            sums.push((kind, total));
        }
        Self { sums, total }
    }

    /// Draws the kind of the next request.
    pub(crate) fn draw(&self, random: &mut Random) -> Kind {
        if let [(only, _)] = self.sums[..] {
            return only;
        }
        let drawn = random.below(self.total);
        let found = self.sums.iter().find(|(_, sum)| drawn < *sum);
        found.expect("a number below the total is below the last sum").0
    }

    /// The kinds in it.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = Kind> {
        self.sums.iter().map(|(kind, _)| *kind)
    }

    /// Whether the kind is in it.
    pub(crate) fn has(&self, kind: Kind) -> bool {
        self.kinds().any(|known| known == kind)
    }

    /// The one operation's name, or `mix`.
    pub(crate) fn name(&self) -> &'static str {
        match self.sums[..] {
            [(only, _)] => only.name(),
            _ => "mix",
        }
    }

    /// As [`Mix::parse`] takes it.
    pub(crate) fn text(&self) -> String {
        let mut before = 0;
        let weights = self.sums.iter().map(|(kind, sum)| {
            let weight = sum - std::mem::replace(&mut before, *sum);
            format!("{}={weight}", kind.name())
        });
        weights.collect::<Vec<_>>().join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_parsed_or_refused() {
        fn check(text: &str, expect: Result<&str, &str>) {
            match (Mix::parse(text), expect) {
                (Ok(mix), Ok(expect)) => assert_eq!(mix.text(), expect),
                (Err(error), Err(part)) => assert!(format!("{error:#}").contains(part), "{text}: {error:#}"),
                (found, expect) => panic!("{text}: {found:?} instead of {expect:?}"),
            }
        }
        check(
            "get=80,set=10,create=5,delete=3,exists=1,children=1,multi=2",
            Ok("get=80,set=10,create=5,delete=3,exists=1,children=1,multi=2"),
        );
        check(" get = 1 , set = 0 ", Ok("get=1"));
        check("get= 1", Ok("get=1"));
        check("get=1,set=0", Ok("get=1"));
        check("get=0", Err("all weights are 0"));
        check("", Err("is not OPERATION=WEIGHT"));
        check("get", Err("is not OPERATION=WEIGHT"));
        check("get=x", Err("not a whole number"));
        check("get=-1", Err("not a whole number"));
        check("get=1,get=2", Err("named twice"));
        check("mix=1", Err("there is no operation"));
        check("ping=1", Err("there is no operation"));
        check("get=1000001", Err("above"));
    }

    #[test]
    fn draws_keep_the_weights() {
        let mix = Mix::parse("get=80,set=15,delete=5").unwrap();
        let mut random = Random::new(1, 1);
        let mut counts = [0_u32; Kind::MEASURED.len()];
        for _ in 0..100_000 {
            counts[mix.draw(&mut random) as usize] += 1;
        }
        // Four standard deviations of a binomial count of 100,000.
        for (kind, expect, width) in [(Kind::Get, 80_000, 506), (Kind::Set, 15_000, 452), (Kind::Delete, 5_000, 276)] {
            let found = counts[kind as usize];
            assert!(found.abs_diff(expect) < width, "{}: {found}, not {expect}", kind.name());
        }
        assert_eq!(counts.iter().sum::<u32>(), 100_000);
    }

    #[test]
    fn numbers_are_places() {
        for (at, kind) in Kind::MEASURED.into_iter().enumerate() {
            assert_eq!(kind as usize, at);
        }
    }
}
