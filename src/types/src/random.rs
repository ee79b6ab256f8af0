//! Generators of pseudo-random numbers: deterministic, from a seed alone, and equal on every machine. Not for secrets.

use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

/// SplitMix64: one word of state, for the random numbers of one concern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitMix64(rand_xoshiro::SplitMix64);

impl SplitMix64 {
    /// The generator of this seed. Seeds that are close to each other give unlike numbers.
    #[must_use]
    pub fn new(seed: u64) -> SplitMix64 {
        SplitMix64(rand_xoshiro::SplitMix64::seed_from_u64(seed))
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number in `0..bound`; 0 if `bound` is 0. It has the bias of a remainder.
    pub fn below(&mut self, bound: u64) -> u64 {
        let word = self.next_u64();
        if bound == 0 { 0 } else { word % bound }
    }

    /// As [`SplitMix64::below`], for places in a list.
    ///
    /// # Panics
    /// Never: a number below a `usize` is one.
    pub fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(bound as u64)).expect("below a usize")
    }

    /// True this often in a hundred.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Xoshiro256++: a longer state, for long streams of numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xoshiro256PlusPlus(rand_xoshiro::Xoshiro256PlusPlus);

impl Xoshiro256PlusPlus {
    /// The generator of this seed: its state is drawn with [`SplitMix64`], as its authors advise.
    #[must_use]
    pub fn new(seed: u64) -> Xoshiro256PlusPlus {
        Xoshiro256PlusPlus(rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// The next 64 bits. The upper ones are the better ones.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of the reference implementations.
    #[test]
    fn numbers_are_those_of_the_reference_implementations() {
        let mut random = SplitMix64::new(1_477_776_061_723_855_037);
        for expected in [1_985_237_415_132_408_290, 2_979_275_885_539_914_483, 13_511_426_838_097_143_398] {
            assert_eq!(random.next_u64(), expected);
        }
        let mut state = [0; 32];
        (0..4).for_each(|word: u8| state[usize::from(word) * 8] = word + 1);
        let mut random = Xoshiro256PlusPlus(rand_xoshiro::Xoshiro256PlusPlus::from_seed(state));
        for expected in [
            41_943_041,
            58_720_359,
            3_588_806_011_781_223,
            3_591_011_842_654_386,
            9_228_616_714_210_784_205,
            9_973_669_472_204_895_162,
        ] {
            assert_eq!(random.next_u64(), expected);
        }
    }

    #[test]
    fn numbers_are_below_their_bound() {
        let mut random = SplitMix64::new(1);
        assert_eq!((random.below(0), random.below(1), random.index(1)), (0, 0, 0));
        assert!((0..1000).all(|_| random.below(7) < 7));
        assert!(!random.chance(0) && random.chance(100));
    }
}
