//! A log that was just opened, as the recovery of a server reads it.

use std::ops::ControlFlow;

use corral_types::{HardState, Record, StoredEntry, StoredLog, Term};

use crate::disk::Disk;
use crate::log::{Log, LogError, Recovered};

/// A log with the findings of its open.
pub struct RecoveredLog<'a, D: Disk> {
    /// The log.
    pub log: &'a mut Log<D>,
    /// The findings.
    pub found: &'a mut Recovered,
}

impl<D: Disk> StoredLog for RecoveredLog<'_, D> {
    type Error = LogError;

    fn held(&self) -> (u64, u64) {
        (self.found.first_index, self.found.last_index)
    }

    fn hard_state(&self) -> Option<HardState> {
        self.found.hard_state
    }

    fn stepped_over(&self) -> Option<Term> {
        self.found.stepped_over.as_ref().and(self.found.last_term).map(Term)
    }

    fn go_on_behind(&mut self, position: (u64, u64)) -> Result<(), LogError> {
        self.log.go_on_behind(self.found, position)
    }

    fn reach_back(&self, position: (u64, u64), bytes: u64) -> (u64, u64) {
        self.log.reach_back(position, bytes)
    }

    fn term(&self, index: u64) -> Option<u64> {
        self.log.term(index)
    }

    fn visit(
        &self,
        range: (u64, u64),
        visit: &mut dyn FnMut(StoredEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), LogError> {
        self.log.visit(range, visit).map(drop)
    }

    fn write(&mut self, records: &[Record<'_>]) -> Result<(), LogError> {
        self.log.append(records)?;
        self.log.sync().map(drop)
    }
}
