//! When followers are informed of a commit: by the next append, if one comes soon, or else by a commit notice.
//!
//! An append holds the commit index, so a steady flow of writes needs no notices. A member with waiting clients is
//! informed at once, see [`crate::Machine::servers_waiting`]. The others are informed a little later at most. If no
//! append came in time, as with rare writes, the next notices go without a wait for a while. Pure: time comes in.

use crate::types::Micros;

/// Longest wait for an append.
const WAIT_MAX: Micros = Micros(1_000);
/// Largest number of waits in vain that count. After `n` of them in a row, `2^n - 1` notices go without a wait.
const VAIN_WAITS_MAX: u32 = 6;

/// The decision about members that are not informed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoticeDecision {
    /// There is none.
    None,
    /// They are sent a notice now.
    Send,
    /// They wait for an append, until that time at most.
    Until(Micros),
}

/// The state that the decision depends on.
#[derive(Debug, Default)]
pub(crate) struct NoticeDelay {
    /// Since when a member is not informed.
    since: Option<Micros>,
    /// Waits in vain in a row.
    vain_waits: u32,
    /// Notices that go at once before the next wait.
    without_wait: u32,
}

impl NoticeDelay {
    /// Decides for `now`. `has_uninformed`: a member does not know the commit index, and a notice could inform it.
    pub(crate) fn decide(&mut self, now: Micros, has_uninformed: bool) -> NoticeDecision {
        if !has_uninformed {
            if self.since.take().is_some() {
                self.vain_waits = 0;
            }
            return NoticeDecision::None;
        }
        if self.without_wait > 0 {
            self.without_wait -= 1;
            return NoticeDecision::Send;
        }
        let until = self.since.get_or_insert(now).plus(WAIT_MAX);
        if now < until {
            return NoticeDecision::Until(until);
        }
        self.since = None;
        self.vain_waits = (self.vain_waits + 1).min(VAIN_WAITS_MAX);
        self.without_wait = (1 << self.vain_waits) - 1;
        NoticeDecision::Send
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commits at this distance in microseconds, each with an append that informs of the one before. Gives how many needed
    /// a notice, and the longest delay.
    fn run(apart: u64, commits: u64) -> (u64, u64) {
        let mut notices = NoticeDelay::default();
        let (mut notices_sent, mut latest) = (0, 0);
        for at in (0..commits).map(|number| number * apart) {
            assert_eq!(notices.decide(Micros(at), false), NoticeDecision::None);
            let mut decision = notices.decide(Micros(at), true);
            if let NoticeDecision::Until(until) = decision
                && until.0 < at + apart
            {
                latest = until.0 - at;
                decision = notices.decide(until, true);
            }
            notices_sent += u64::from(decision == NoticeDecision::Send);
        }
        (notices_sent, latest)
    }

    #[test]
    fn a_steady_flow_needs_no_notices() {
        assert_eq!(run(300, 1000), (0, 0));
        assert_eq!(run(WAIT_MAX.0, 1000), (0, 0));
    }

    #[test]
    fn rare_commits_are_sent_at_once_with_few_exceptions() {
        let mut notices = NoticeDelay::default();
        let mut waited = 0;
        for at in (0..1000).map(|number| number * 5_000) {
            if let NoticeDecision::Until(until) = notices.decide(Micros(at), true) {
                assert_eq!(until, Micros(at).plus(WAIT_MAX));
                assert_eq!(notices.decide(until, true), NoticeDecision::Send);
                waited += 1;
            }
        }
        assert!(waited < 25, "{waited} of 1000 waited");
        assert_eq!(run(5_000, 1000).1, WAIT_MAX.0);
    }

    #[test]
    fn a_steady_flow_restores_the_wait() {
        let mut notices = NoticeDelay::default();
        let send = |notices: &mut NoticeDelay, at| while notices.decide(Micros(at), true) == NoticeDecision::Send {};
        send(&mut notices, 0);
        assert_eq!(notices.decide(WAIT_MAX, true), NoticeDecision::Send);
        send(&mut notices, 5_000);
        assert_eq!(notices.decide(Micros(5_100), false), NoticeDecision::None);
        assert_eq!((notices.vain_waits, notices.without_wait), (0, 0));
    }
}
