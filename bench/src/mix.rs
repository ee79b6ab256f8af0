//! What requests a load consists of: the kinds of operation and their weights.
//!
//! Parsed once from the command line, then read by every client thread. Knows no wire format and no socket.

use clap::ValueEnum;

use crate::keys::Random;
use crate::limits::WEIGHT_MAX;

/// What `--op` can name; all but the last are a [`Kind`] of request, in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Operation {
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
}

impl Kind {
    /// All, by their numbers.
    pub(crate) const ALL: [Self; 7] =
        [Self::Get, Self::Exists, Self::Children, Self::Set, Self::Create, Self::Delete, Self::Multi];

    /// The name on the command line and in reports.
    pub(crate) const fn name(self) -> &'static str {
        ["get", "exists", "children", "set", "create", "delete", "multi"][self as usize]
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
        match Kind::ALL.get(op as usize) {
            Some(kind) => Self::weighted(&[(*kind, 1)]),
            None => Self::weighted(&[(Kind::Get, read_percent), (Kind::Set, 100 - read_percent)]),
        }
    }

    /// Parses `get=80,set=10,create=5`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut weights: Vec<(Kind, u32)> = Vec::new();
        for part in text.split(',') {
            let (name, weight) = part.split_once('=').ok_or_else(|| format!("{part:?} is not OPERATION=WEIGHT"))?;
            let found = Kind::ALL.into_iter().find(|kind| kind.name() == name.trim());
            let known =
                || format!("there is no operation {name:?}; there are {}", Kind::ALL.map(Kind::name).join(", "));
            let kind = found.ok_or_else(known)?;
            let weight: u32 = weight.trim().parse().map_err(|_| format!("{weight:?} is not a whole number"))?;
            if weight > WEIGHT_MAX {
                return Err(format!("the weight {weight} is above {WEIGHT_MAX}"));
            }
            if weights.iter().any(|(known, _)| *known == kind) {
                return Err(format!("{name} is named twice"));
            }
            weights.push((kind, weight));
        }
        let mix = Self::weighted(&weights);
        if mix.total > 0 { Ok(mix) } else { Err("all weights are 0".to_owned()) }
    }

    fn weighted(weights: &[(Kind, u32)]) -> Self {
        let mut total = 0;
        let mut sums = Vec::new();
        for (kind, weight) in weights.iter().filter(|(_, weight)| *weight > 0) {
            total += weight;
            sums.push((*kind, total));
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
        if let [(only, _)] = self.sums[..] { only.name() } else { "mix" }
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

    /// For people: the operation, or the weights if there are several.
    pub(crate) fn title(&self) -> String {
        if self.sums.len() == 1 { self.name().to_owned() } else { self.text() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_parsed_or_refused_and_draws_keep_them() {
        let text = |text: &str| Mix::parse(text).map(|mix| mix.text());
        let all = "get=80,set=10,create=5,delete=3,exists=1,children=1,multi=2";
        assert_eq!(text(all).as_deref(), Ok(all));
        assert_eq!(text(" get = 1 , set = 0 ").as_deref(), Ok("get=1"));
        for (given, part) in [
            ("get=0", "all weights are 0"),
            ("", "is not OPERATION=WEIGHT"),
            ("get=-1", "not a whole number"),
            ("get=1,get=2", "named twice"),
            ("mix=1", "there is no operation"),
            ("get=1000001", "above"),
        ] {
            assert!(text(given).expect_err(given).contains(part), "{given}");
        }
        let (mix, mut random, mut counts) = (Mix::parse("get=80,set=20").unwrap(), Random::new(1, 1), [0_u32; 7]);
        (0..100_000).for_each(|_| counts[mix.draw(&mut random) as usize] += 1);
        // Four standard deviations of a binomial count of 100,000.
        assert!(counts[Kind::Get as usize].abs_diff(80_000) < 506, "{counts:?}");
        assert_eq!(counts[Kind::Get as usize] + counts[Kind::Set as usize], 100_000);
    }

    #[test]
    fn numbers_are_places() {
        for (at, kind) in Kind::ALL.into_iter().enumerate() {
            let op = Operation::from_str(kind.name(), false).unwrap();
            assert_eq!((kind as usize, op as usize), (at, at));
        }
    }
}
