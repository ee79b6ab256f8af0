//! Sizes of messages: the last, the smallest and the largest.

/// Sizes of messages, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// `None` before the first message.
    known: Option<Known>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    last: u32,
    min: u32,
    max: u32,
}

impl Sizes {
    pub(crate) fn note(&mut self, bytes: usize) {
        let last = u32::try_from(bytes).unwrap_or(u32::MAX);
        let before = self.known.unwrap_or(Known { last, min: last, max: last });
        self.known = Some(Known { last, min: before.min.min(last), max: before.max.max(last) });
    }

    /// The last of all is that of one of the two.
    pub(crate) fn merge(&mut self, other: &Self) {
        let (Some(own), Some(others)) = (self.known, other.known) else {
            self.known = self.known.or(other.known);
            return;
        };
        self.known = Some(Known { min: own.min.min(others.min), max: own.max.max(others.max), ..others });
    }

    /// Size of the last message. Like the others -1 before the first, as in ZooKeeper.
    pub fn last(&self) -> i64 {
        self.known.map_or(-1, |known| known.last.into())
    }

    /// Size of the smallest message.
    pub fn min(&self) -> i64 {
        self.known.map_or(-1, |known| known.min.into())
    }

    /// Size of the largest message.
    pub fn max(&self) -> i64 {
        self.known.map_or(-1, |known| known.max.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_begin_with_none() {
        let of = |bytes: &[usize]| {
            let mut sizes = Sizes::default();
            bytes.iter().for_each(|bytes| sizes.note(*bytes));
            sizes
        };
        let shown = |sizes: Sizes| (sizes.last(), sizes.min(), sizes.max());
        assert_eq!(shown(of(&[])), (-1, -1, -1));
        assert_eq!(shown(of(&[16, 90, 40])), (40, 16, 90));
        let mut both = of(&[]);
        both.merge(&of(&[20]));
        both.merge(&of(&[]));
        both.merge(&of(&[30, 10]));
        assert_eq!(shown(both), (10, 10, 30));
    }
}
