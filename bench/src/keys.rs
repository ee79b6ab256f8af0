//! Which key a request goes to: a small deterministic generator, and keys drawn evenly or by Zipf's law.
//!
//! The law's table is built once and shared read-only by all client threads; each connection owns its generator. A draw
//! is exact (Walker's alias method: two random numbers and one look into a table), whatever the exponent. Knows no wire.

use clap::ValueEnum;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::{SplitMix64, Xoshiro256PlusPlus};

/// A small deterministic generator.
#[derive(Clone, Debug)]
pub(crate) struct Random(Xoshiro256PlusPlus);

impl Random {
    /// Streams of one seed do not resemble each other: `seed_from_u64` hashes its argument.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let hashed = SplitMix64::seed_from_u64(seed).next_u64();
        Self(Xoshiro256PlusPlus::seed_from_u64(hashed ^ stream))
    }

    /// Any 32-bit number.
    pub(crate) fn word(&mut self) -> u32 {
        self.0.next_u32()
    }

    /// A number below `bound`; 0 for a bound of 0.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        let product = u64::from(self.word()) * u64::from(bound);
        u32::try_from(product >> 32).expect("a product of two 32-bit numbers, shifted by 32")
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

/// Draws keys.
#[derive(Debug)]
pub(crate) enum Keys {
    Uniform(u32),
    Zipf(Vec<Slot>),
}

/// One slot of the alias table: this key, if a random word is below the threshold, else the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    threshold: u32,
    other: u32,
}

impl Keys {
    /// `count` keys, the exponent for Zipf's law.
    pub(crate) fn new(count: u32, theta: Option<f64>) -> Self {
        theta.map_or(Self::Uniform(count), |theta| Self::Zipf(alias_table(count, theta)))
    }

    /// The number of the next key.
    pub(crate) fn draw(&self, random: &mut Random) -> u32 {
        match self {
            Self::Uniform(count) => random.below(*count),
            Self::Zipf(slots) => {
                let at = random.below(u32::try_from(slots.len()).expect("made from a 32-bit count"));
                let slot = slots[at as usize];
                if random.word() < slot.threshold { at } else { slot.other }
            }
        }
    }
}

/// Vose's construction: every slot has an equal chance and holds at most two keys.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn alias_table(count: u32, theta: f64) -> Vec<Slot> {
    let mut shares: Vec<f64> = (1..=count).map(|rank| f64::from(rank).powf(-theta)).collect();
    // Summed from the smallest, so that rounding stays far below what a threshold can tell apart.
    let sum: f64 = shares.iter().rev().sum();
    for share in &mut shares {
        *share *= f64::from(count) / sum;
    }
    let mut slots: Vec<Slot> = (0..count).map(|key| Slot { threshold: u32::MAX, other: key }).collect();
    let (mut small, mut large): (Vec<u32>, Vec<u32>) = (0..count).partition(|key| shares[*key as usize] < 1.0);
    while let (Some(poor), Some(rich)) = (small.pop(), large.last().copied()) {
        let share = shares[poor as usize];
        slots[poor as usize] = Slot { threshold: (share * 4_294_967_296.0) as u32, other: rich };
        let left = shares[rich as usize] - (1.0 - share);
        shares[rich as usize] = left;
        if left < 1.0 {
            large.pop();
            small.push(rich);
        }
    }
    slots
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u32 = 1_000_000;

    /// Pearson's statistic of draws with an exponent against the law of another.
    fn chi_squared(theta: Option<f64>, law: f64, seed: u64) -> f64 {
        let (mut random, keys, mut drawn) = (Random::new(seed, 0), Keys::new(1000, theta), vec![0_u32; 1000]);
        (0..DRAWS).for_each(|_| drawn[keys.draw(&mut random) as usize] += 1);
        let sum: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-law)).sum();
        let expect = (1..=1000).map(|rank| f64::from(DRAWS) * f64::from(rank).powf(-law) / sum);
        expect.zip(drawn).map(|(expect, found)| (f64::from(found) - expect).powi(2) / expect).sum()
    }

    #[test]
    fn draws_follow_the_law_of_uniform_and_zipf_keys() {
        // 999 degrees of freedom: mean 999, standard deviation 44.7; five of them are 224.
        for theta in [0.0, 0.5, 0.99, 1.2] {
            let found = chi_squared(Some(theta), theta, 1);
            assert!(found < 1223.0, "theta {theta}: {found}");
        }
        let uniform = chi_squared(None, 0.0, 7);
        assert!(uniform < 1223.0, "{uniform}");
        assert!(chi_squared(Some(0.97), 0.99, 1) > 1223.0, "the statistic tells 0.97 from 0.99");
        assert_eq!(Keys::new(1, Some(0.99)).draw(&mut Random::new(1, 1)), 0);
    }
}
