//! When the others are told how far is committed: with the next append, if one comes soon, and else in a message of its own.
//!
//! An append says it anyway, so under a steady flow of writes nothing needs to be said in between. Whoever waits for it is
//! told at once, see [`crate::Machine::waiting_elsewhere`]; the rest hears of it a little later at most. Where no append has
//! come in time, as with writes that are few and far between, it is not waited for again for a while. Pure: time comes in.

use crate::types::Micros;

/// Longest wait for an append that says it.
const PATIENCE: Micros = Micros(1_000);
/// Notices that go at once after an append has failed to come so often in a row, as a power of two.
const DOUBTS_MAX: u32 = 6;

/// What is to be done about those who were not told yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// There is nobody.
    Rest,
    /// They are told now.
    Tell,
    /// An append tells them, or the time comes first.
    Until(Micros),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    /// Since when somebody was not told.
    since: Option<Micros>,
    /// How often in a row patience was in vain.
    doubts: u32,
    /// Notices that go at once before patience is tried again.
    hurried: u32,
}

impl Notices {
    /// `untold`: somebody does not know of all that is committed, and can be told.
    pub(crate) fn judge(&mut self, now: Micros, untold: bool) -> Verdict {
        if !untold {
            if self.since.take().is_some() {
                self.doubts = 0;
            }
            return Verdict::Rest;
        }
        if self.hurried > 0 {
            self.hurried -= 1;
            return Verdict::Tell;
        }
        let until = self.since.get_or_insert(now).plus(PATIENCE);
        if now < until {
            return Verdict::Until(until);
        }
        self.since = None;
        self.doubts = (self.doubts + 1).min(DOUBTS_MAX);
        self.hurried = (1 << self.doubts) - 1;
        Verdict::Tell
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commits so far apart, in microseconds, each told by the append of the next one if that comes in time: how many
    /// were told in messages of their own, and how late at most.
    fn run(apart: u64, commits: u64) -> (u64, u64) {
        let mut notices = Notices::default();
        let (mut told, mut latest) = (0, 0);
        for at in (0..commits).map(|number| number * apart) {
            assert_eq!(notices.judge(Micros(at), false), Verdict::Rest);
            let mut verdict = notices.judge(Micros(at), true);
            if let Verdict::Until(until) = verdict
                && until.0 < at + apart
            {
                latest = until.0 - at;
                verdict = notices.judge(until, true);
            }
            told += u64::from(verdict == Verdict::Tell);
        }
        (told, latest)
    }

    #[test]
    fn a_steady_flow_needs_no_notices() {
        assert_eq!(run(300, 1000), (0, 0));
        assert_eq!(run(PATIENCE.0, 1000), (0, 0));
    }

    #[test]
    fn what_no_append_follows_is_told_at_once_but_for_some() {
        let mut notices = Notices::default();
        let mut waited = 0;
        for at in (0..1000).map(|number| number * 5_000) {
            if let Verdict::Until(until) = notices.judge(Micros(at), true) {
                assert_eq!(until, Micros(at).plus(PATIENCE));
                assert_eq!(notices.judge(until, true), Verdict::Tell);
                waited += 1;
            }
        }
        assert!(waited < 25, "{waited} of 1000 waited");
        assert_eq!(run(5_000, 1000).1, PATIENCE.0);
    }

    #[test]
    fn patience_comes_back_with_the_flow() {
        let mut notices = Notices::default();
        let tell = |notices: &mut Notices, at| while notices.judge(Micros(at), true) == Verdict::Tell {};
        tell(&mut notices, 0);
        assert_eq!(notices.judge(PATIENCE, true), Verdict::Tell);
        tell(&mut notices, 5_000);
        assert_eq!(notices.judge(Micros(5_100), false), Verdict::Rest);
        assert_eq!((notices.doubts, notices.hurried), (0, 0));
    }
}
