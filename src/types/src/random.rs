//! Generators of pseudo-random numbers: deterministic, from a seed alone, and equal on every machine. Not for secrets.

/// SplitMix64: one word of state, for the random numbers of one concern.
///
/// By Guy Steele, Doug Lea and Christine Flood, "Fast splittable pseudorandom number generators" (2014), with the constants
/// of <https://prng.di.unimi.it/splitmix64.c>.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The generator of this seed. Seeds that are close to each other give unlike numbers.
    #[must_use]
    pub const fn new(seed: u64) -> SplitMix64 {
        SplitMix64(seed)
    }

    /// The next 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number in `0..bound`; 0 if `bound` is 0. It has the bias of a remainder.
    pub const fn below(&mut self, bound: u64) -> u64 {
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
    pub const fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Xoshiro256++: a longer state, for long streams of numbers.
///
/// By David Blackman and Sebastiano Vigna, "Scrambled linear pseudorandom number generators" (2021), as in
/// <https://prng.di.unimi.it/xoshiro256plusplus.c>.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xoshiro256PlusPlus([u64; 4]);

impl Xoshiro256PlusPlus {
    /// The generator of this seed: its state is drawn with [`SplitMix64`], as its authors advise.
    #[must_use]
    pub const fn new(seed: u64) -> Xoshiro256PlusPlus {
        let mut words = SplitMix64::new(seed);
        Xoshiro256PlusPlus([words.next_u64(), words.next_u64(), words.next_u64(), words.next_u64()])
    }

    /// The next 64 bits. The upper ones are the better ones.
    pub const fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = self.0;
        let word = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (mixed_c, mixed_d) = (c ^ a, d ^ b);
        self.0 = [a ^ mixed_d, b ^ mixed_c, mixed_c ^ (b << 17), mixed_d.rotate_left(45)];
        word
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
        let mut random = Xoshiro256PlusPlus([1, 2, 3, 4]);
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
