//! The requests of a load: the kinds of operation with their weights, and the keys, drawn evenly or by Zipf's law.
//!
//! Made once from the command line, then read by every client thread; each connection owns its generator of random numbers.
//! Knows no wire format and no socket.

use clap::ValueEnum;
use corral_types::{SplitMix64, Xoshiro256PlusPlus};

use crate::limits::WEIGHT_MAX;

/// The operations that `--op` can name; all but the last are a [`Kind`] of request, in the same order.
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
    /// delete of a znode the same connection has created; creates one if none is left
    Delete,
    /// multi of --multi-ops setData (durable on the server)
    Multi,
    /// --read-percent getData, the rest setData; --mix gives any other mixture
    Mix,
}

/// The operation of one request. Its number is its place in tables.
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

#[derive(Clone, Debug)]
pub(crate) struct Random(Xoshiro256PlusPlus);

impl Random {
    /// Streams of one seed do not resemble each other: the generator hashes its seed.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let hashed = SplitMix64::new(seed).next_u64();
        Self(Xoshiro256PlusPlus::new(hashed ^ stream))
    }

    /// The next 32 bits: the upper half of a number, which is the better one.
    fn word(&mut self) -> u32 {
        u32::try_from(self.0.next_u64() >> 32).expect("a 64-bit number, shifted by 32")
    }

    /// A number below `bound`; 0 for a bound of 0.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        let product = u64::from(self.word()) * u64::from(bound);
        u32::try_from(product >> 32).expect("a product of two 32-bit numbers, shifted by 32")
    }
}

/// Draws places, each by its weight.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Weights {
    /// Each weight with those before it.
    sums: Vec<f64>,
}

impl Weights {
    fn of(weights: impl Iterator<Item = f64>) -> Self {
        let sum = |sum: &mut f64, weight| {
            *sum += weight;
            Some(*sum)
        };
        Self { sums: weights.scan(0.0, sum).collect() }
    }

    fn draw(&self, random: &mut Random) -> usize {
        let [.., total] = self.sums[..] else { return 0 };
        let drawn = f64::from(random.word()) / 4_294_967_296.0 * total;
        self.sums.partition_point(|sum| *sum <= drawn).min(self.sums.len() - 1)
    }
}

/// Kinds of operation with their weights; never empty.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mix {
    kinds: Vec<(Kind, u32)>,
    weights: Weights,
}

impl Mix {
    /// One operation, or reads and writes by `read_percent`.
    pub(crate) fn of(op: Operation, read_percent: u32) -> Self {
        match Kind::ALL.get(op as usize) {
            Some(kind) => Self::weighted(vec![(*kind, 1)]),
            None => Self::weighted(vec![(Kind::Get, read_percent), (Kind::Set, 100 - read_percent)]),
        }
    }

    /// Parses `get=80,set=10,create=5`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut kinds: Vec<(Kind, u32)> = Vec::new();
        for part in text.split(',') {
            let (name, weight) = part.split_once('=').ok_or_else(|| format!("{part:?} is not OPERATION=WEIGHT"))?;
            let found = Kind::ALL.into_iter().find(|kind| kind.name() == name.trim());
            let known =
                || format!("there is no operation {name:?}; there are {}", Kind::ALL.map(Kind::name).join(", "));
            let kind = found.ok_or_else(known)?;
            let weight = weight.trim().parse().ok().filter(|weight| *weight <= WEIGHT_MAX);
            let weight = weight.ok_or_else(|| format!("{part:?} has no whole number up to {WEIGHT_MAX}"))?;
            if kinds.iter().any(|(known, _)| *known == kind) {
                return Err(format!("{name} is named twice"));
            }
            kinds.push((kind, weight));
        }
        let mix = Self::weighted(kinds);
        if mix.kinds.is_empty() { Err("all weights are 0".to_owned()) } else { Ok(mix) }
    }

    fn weighted(mut kinds: Vec<(Kind, u32)>) -> Self {
        kinds.retain(|(_, weight)| *weight > 0);
        let weights = Weights::of(kinds.iter().map(|(_, weight)| f64::from(*weight)));
        Self { kinds, weights }
    }

    pub(crate) fn draw(&self, random: &mut Random) -> Kind {
        let at = if self.kinds.len() == 1 { 0 } else { self.weights.draw(random) };
        self.kinds[at].0
    }

    pub(crate) fn kinds(&self) -> impl Iterator<Item = Kind> {
        self.kinds.iter().map(|(kind, _)| *kind)
    }

    pub(crate) fn has(&self, kind: Kind) -> bool {
        self.kinds().any(|known| known == kind)
    }

    /// The one operation's name, or `mix`.
    pub(crate) fn name(&self) -> &'static str {
        if let [(only, _)] = self.kinds[..] { only.name() } else { "mix" }
    }

    /// As [`Mix::parse`] takes it.
    pub(crate) fn text(&self) -> String {
        self.kinds.iter().map(|(kind, weight)| format!("{}={weight}", kind.name())).collect::<Vec<_>>().join(",")
    }

    /// For people: the operation, or the weights if there are several.
    pub(crate) fn title(&self) -> String {
        if self.kinds.len() == 1 { self.name().to_owned() } else { self.text() }
    }
}

/// How `--keys-distribution` can spread the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Distribution {
    /// Every key is as likely as every other
    Uniform,
    /// The nth key has a share proportional to 1 / n^theta (--zipf-theta)
    Zipf,
}

#[derive(Debug)]
pub(crate) enum Keys {
    Uniform(u32),
    Zipf(Weights),
}

impl Keys {
    /// `count` keys, the exponent for Zipf's law.
    pub(crate) fn new(count: u32, theta: Option<f64>) -> Self {
        let law = |theta: f64| Self::Zipf(Weights::of((1..=count).map(|rank| f64::from(rank).powf(-theta))));
        theta.map_or(Self::Uniform(count), law)
    }

    pub(crate) fn draw(&self, random: &mut Random) -> u32 {
        match self {
            Self::Uniform(count) => random.below(*count),
            Self::Zipf(weights) => u32::try_from(weights.draw(random)).expect("made from a 32-bit count"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_parsed_or_refused_and_numbers_are_places() {
        let text = |text: &str| Mix::parse(text).map(|mix| mix.text());
        let all = "get=80,set=10,create=5,delete=3,exists=1,children=1,multi=2";
        assert_eq!(text(all).as_deref(), Ok(all));
        assert_eq!(text(" get = 1 , set = 0 ").as_deref(), Ok("get=1"));
        for (given, part) in [
            ("get=0", "all weights are 0"),
            ("", "is not OPERATION=WEIGHT"),
            ("get=-1", "no whole number"),
            ("get=1000001", "no whole number up to 1000000"),
            ("get=1,get=2", "named twice"),
            ("mix=1", "there is no operation"),
        ] {
            assert!(text(given).expect_err(given).contains(part), "{given}");
        }
        for (at, kind) in Kind::ALL.into_iter().enumerate() {
            let op = Operation::from_str(kind.name(), false).unwrap();
            assert_eq!((kind as usize, op as usize), (at, at));
        }
    }

    /// Pearson's statistic of a million draws with an exponent against the law of another.
    fn chi_squared(theta: Option<f64>, law: f64, seed: u64) -> f64 {
        let (mut random, keys, mut drawn) = (Random::new(seed, 0), Keys::new(1000, theta), vec![0_u32; 1000]);
        (0..1_000_000).for_each(|_| drawn[keys.draw(&mut random) as usize] += 1);
        let sum: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-law)).sum();
        let expect = (1..=1000).map(|rank| 1e6 * f64::from(rank).powf(-law) / sum);
        expect.zip(drawn).map(|(expect, found)| (f64::from(found) - expect).powi(2) / expect).sum()
    }

    #[test]
    fn draws_follow_the_law_of_uniform_and_zipf_keys() {
        // 999 degrees of freedom: mean 999, standard deviation 44.7; five of them are 224.
        for (theta, law, seed) in [(None, 0.0, 7), (Some(0.5), 0.5, 1), (Some(0.99), 0.99, 1), (Some(1.2), 1.2, 1)] {
            let found = chi_squared(theta, law, seed);
            assert!(found < 1223.0, "theta {theta:?}: {found}");
        }
        assert!(chi_squared(Some(0.97), 0.99, 1) > 1223.0, "the statistic tells 0.97 from 0.99");
    }
}
