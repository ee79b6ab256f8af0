//! Snapshots that were replaced while znodes still have data of them: the snapshot writer adds them, the scrubber
//! compares them with their checksums. They are few: the changes above a snapshot go into the next but one.

use std::sync::{Mutex, PoisonError};

use corral_core::tree::snapshot::{Lender, SnapshotFault};

#[derive(Default)]
pub(crate) struct Lenders(Mutex<Vec<Lender>>);

impl Lenders {
    pub(crate) fn add(&self, lender: Lender) {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.retain(Lender::is_needed);
        list.push(lender);
    }

    /// Reads all of them; gives what is damaged.
    pub(crate) fn verify(&self, mut pace: impl FnMut(usize)) -> Vec<SnapshotFault> {
        // The snapshot writer must not wait for the reading.
        let list = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let faults = list.iter().filter_map(|lender| lender.verify(&mut pace)?.err()).collect();
        list.into_iter().for_each(|lender| self.add(lender));
        faults
    }
}
