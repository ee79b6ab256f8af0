//! Randomness of a run: one generator per concern, all from one seed, so that a draw more in one concern changes
//! nothing in the others. The only source of randomness there is.

use corral_types::Xoshiro256PlusPlus;

#[derive(Clone, Debug)]
pub(crate) struct Stream(Xoshiro256PlusPlus);

impl Stream {
    /// The stream of a concern; `concern` is a name, so that no two share a salt by accident.
    pub(crate) fn new(seed: u64, concern: &str) -> Stream {
        let salt = xxhash_rust::xxh3::xxh3_64_with_seed(concern.as_bytes(), seed);
        Stream(Xoshiro256PlusPlus::new(salt))
    }

    pub(crate) fn word(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`, which is at least 1. The bias of the remainder is of no matter here.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.word() % bound.max(1)
    }

    /// A number in `from..=to`.
    pub(crate) fn within(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from + 1)
    }

    /// As [`Stream::below`], for counting.
    pub(crate) fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(bound as u64)).expect("below a usize")
    }

    /// True this often in a thousand.
    pub(crate) fn per_mille(&mut self, share: u64) -> bool {
        self.below(1000) < share
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }

    pub(crate) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        for chunk in bytes.chunks_mut(8) {
            let word = self.word().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
        bytes
    }

    /// A delay with a long tail: mostly up to `usual`, seldom up to fifty times that.
    pub(crate) fn delay(&mut self, usual: u64) -> u64 {
        let spread = if self.per_mille(20) { usual * 50 } else { usual };
        self.below(spread + 1)
    }
}
