//! The machine of the test group: a list of numbers, that knows exactly which entries must come back as its own.

use std::collections::VecDeque;

use corral_consensus::limits::APPLIED_WORK_MAX;
use corral_consensus::{Index, Machine, ServerId, Term};

/// Identity of an applied entry: its term, and a number that is 0 for an entry without payload.
pub(crate) type Line = (Term, u64);

/// First byte of a membership change's context here, so that it is told from a number.
pub(crate) const CONTEXT: u8 = 0xcc;

#[derive(Default)]
pub(crate) struct Ledger {
    /// Numbers to be proposed.
    pub(crate) waiting: VecDeque<u64>,
    proposed: VecDeque<u64>,
    leads: Option<Term>,
    /// The applied entries, from index 1 on.
    pub(crate) lines: Vec<Line>,
    pub(crate) contexts: usize,
    /// Leaderships that ended with proposals under way.
    pub(crate) lost_tails: usize,
    /// Proposals of such a leadership.
    forgotten: Vec<u64>,
    /// Proposals among `forgotten` that were committed all the same.
    pub(crate) came_back: usize,
    work: u64,
}

/// Cost of an entry, so that a turn applies a few.
pub(crate) const COST: u64 = APPLIED_WORK_MAX / 3;

impl Ledger {
    /// The ledger of a snapshot with `lines`.
    pub(crate) fn holding(lines: Vec<Line>) -> Ledger {
        Ledger { lines, ..Ledger::default() }
    }
}

pub(crate) fn number(payload: &[u8]) -> u64 {
    payload.first_chunk::<8>().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// Every fifth number waits until everything that was proposed before is applied.
const fn waits(number: u64) -> bool {
    number.is_multiple_of(5)
}

impl Machine for Ledger {
    type Fault = String;

    fn commands_queued(&self) -> usize {
        self.waiting.len()
    }

    fn next_batch(&mut self) -> Option<Vec<u8>> {
        assert!(self.leads.is_some(), "only a leader is asked for a proposal");
        if self.waiting.front().is_some_and(|next| waits(*next)) && !self.proposed.is_empty() {
            return None;
        }
        let next = self.waiting.pop_front()?;
        self.proposed.push_back(next);
        Some(next.to_be_bytes().to_vec())
    }

    /// Every third number is somebody's at server 2.
    fn servers_waiting(&self) -> Vec<ServerId> {
        self.proposed.back().filter(|number| *number % 3 == 0).map(|_| ServerId(2)).into_iter().collect()
    }

    fn prepare(&mut self, _index: Index, _term: Term, _payload: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn membership_ahead(&mut self, _index: Index, _context: &[u8]) {}

    fn commit(&mut self, index: Index, term: Term, payload: &[u8], own: bool) -> Result<(), String> {
        assert_eq!(index.0, self.lines.len() as u64 + 1, "applied one after the other");
        let value = number(payload);
        let context = payload.first() == Some(&CONTEXT);
        self.contexts += usize::from(context);
        if own {
            assert_eq!(self.proposed.pop_front(), Some(value), "an entry of our own is the oldest one proposed");
            assert_eq!(self.leads, Some(term), "nothing of a former leadership is our own");
        } else {
            let ours = self.leads == Some(term) && value != 0 && !context;
            assert!(!ours, "entry {index} of our own leadership came as somebody else's");
            self.came_back += usize::from(self.forgotten.contains(&value));
        }
        self.lines.push((term, value));
        self.work += COST;
        Ok(())
    }

    fn work(&self) -> u64 {
        self.work
    }

    fn lead(&mut self, term: Term) {
        assert_eq!(self.leads, None, "a leadership begins once");
        assert_eq!(self.lines.last(), Some(&(term, 0)), "everything before the term is applied");
        self.leads = Some(term);
    }

    fn follow(&mut self) {
        assert!(self.leads.take().is_some(), "only a leadership can end");
        self.lost_tails += usize::from(!self.proposed.is_empty());
        self.forgotten.extend(self.proposed.drain(..));
        self.waiting.clear();
    }
}
