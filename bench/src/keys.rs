//! Which key a request goes to: a small deterministic generator, and keys drawn evenly or by Zipf's law.
//!
//! The law's table is built once and shared read-only by all client threads; each connection owns its generator. A draw
//! is exact (Walker's alias method: two random numbers and one look into a table), whatever the exponent. Knows no wire.

use anyhow::{Result, ensure};
use clap::ValueEnum;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::{SplitMix64, Xoshiro256PlusPlus};

use crate::limits::ZIPF_THETA_MAX;

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
pub enum Distribution {
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

/// Checks the exponent of Zipf's law.
pub(crate) fn checked_theta(distribution: Distribution, theta: f64) -> Result<Option<f64>> {
    ensure!((0.0..=ZIPF_THETA_MAX).contains(&theta), "--zipf-theta {theta} is not within 0..={ZIPF_THETA_MAX}");
    Ok((distribution == Distribution::Zipf).then_some(theta))
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

    fn counts(keys: &Keys, count: u32, seed: u64) -> Vec<u32> {
        let mut random = Random::new(seed, 0);
        let mut counts = vec![0; count as usize];
        for _ in 0..DRAWS {
            counts[keys.draw(&mut random) as usize] += 1;
        }
        counts
    }

    /// Pearson's statistic of the draws against the law, and its degrees of freedom.
    fn chi_squared(theta: f64, count: u32, drawn: &[u32]) -> f64 {
        let sum: f64 = (1..=count).map(|rank| f64::from(rank).powf(-theta)).sum();
        let expect = (1..=count).map(|rank| f64::from(DRAWS) * f64::from(rank).powf(-theta) / sum);
        expect.zip(drawn).map(|(expect, found)| (f64::from(*found) - expect).powi(2) / expect).sum()
    }

    #[test]
    fn zipf_draws_follow_the_law() {
        // 999 degrees of freedom: mean 999, standard deviation 44.7; five of them are 224.
        for theta in [0.0, 0.5, 0.99, 1.2] {
            for seed in 1..=3 {
                let found = chi_squared(theta, 1000, &counts(&Keys::new(1000, Some(theta)), 1000, seed));
                assert!(found < 1223.0, "theta {theta}, seed {seed}: {found}");
            }
        }
    }

    #[test]
    fn a_wrong_law_is_noticed() {
        let drawn = counts(&Keys::new(1000, Some(0.97)), 1000, 1);
        assert!(chi_squared(0.99, 1000, &drawn) > 1223.0, "the statistic tells 0.97 from 0.99");
    }

    #[test]
    fn uniform_draws_reach_every_key_evenly() {
        let found = chi_squared(0.0, 1000, &counts(&Keys::new(1000, None), 1000, 7));
        assert!(found < 1223.0, "{found}");
    }

    #[test]
    fn one_key_and_equal_seeds() {
        let keys = Keys::new(1, Some(0.99));
        assert_eq!(counts(&keys, 1, 1), [DRAWS]);
        let keys = Keys::new(50, Some(0.8));
        assert_eq!(counts(&keys, 50, 4), counts(&keys, 50, 4));
        assert_ne!(counts(&keys, 50, 4), counts(&keys, 50, 5));
    }

    #[test]
    fn exponents_are_checked() {
        assert_eq!(checked_theta(Distribution::Uniform, 0.99).unwrap(), None);
        assert_eq!(checked_theta(Distribution::Zipf, 0.5).unwrap(), Some(0.5));
        for theta in [-0.1, 10.1, f64::NAN, f64::INFINITY] {
            assert!(checked_theta(Distribution::Zipf, theta).is_err(), "{theta}");
        }
    }
}
