//! Checks of a log behind a snapshot, and how it is applied where there is no Raft.

use std::borrow::Cow;

use bytes::Bytes;
use corral_consensus::{ConfChange, EntryKind};
use corral_core::ids::Millis;
use corral_core::sequencer::Sequencer;
use corral_engine::{Purpose, recovery::reaches};
use corral_types::StoredEntry;

use crate::exit::not_a_batch;
use crate::exit::{ExitCode, Fault};

/// Checks that a log with these entries, first and last, goes on where the snapshot ends, if it holds anything behind
/// it.
///
/// # Errors
/// The missing part, and the remedy.
pub(crate) fn check_reach(purpose: Purpose, held: (u64, u64), snapshot: u64) -> Result<(), Fault> {
    if reaches(held, snapshot) { Ok(()) } else { Err(gap(purpose, held, snapshot)) }
}

/// Entries between the snapshot and these, first and last, are missing.
pub(crate) fn gap(purpose: Purpose, (first, last): (u64, u64), snapshot: u64) -> Fault {
    let holds = if first > last {
        format!("the log holds no entry, and its next one is {first}")
    } else {
        format!("the log holds entries {first} to {last}")
    };
    let sentence = format!(
        "{holds}, but the newest whole snapshot ends at {snapshot}: entries between are missing; {}",
        purpose.remedy()
    );
    Fault::new(ExitCode::DataDamaged, sentence)
}

/// Applies an entry where there is no Raft.
///
/// # Errors
/// When it is not understood.
pub(crate) fn apply_alone(sequencer: &mut Sequencer, entry: &StoredEntry<'_>) -> Result<(), Fault> {
    let batch = batch_in(entry.kind, entry.index.0, entry.payload)?;
    commit_alone(sequencer, (entry.index.0, entry.term.0), &batch)
}

/// The batch in the payload of an entry: of a change of the membership it is what that carries.
///
/// # Errors
/// When it is not understood.
pub(crate) fn batch_in(kind: EntryKind, index: u64, payload: &[u8]) -> Result<Cow<'_, [u8]>, Fault> {
    match kind {
        EntryKind::Normal => Ok(Cow::Borrowed(payload)),
        EntryKind::ConfChange => {
            let change = ConfChange::decode(&Bytes::copy_from_slice(payload)).map_err(|_| not_a_batch(index))?;
            Ok(Cow::Owned(change.context.to_vec()))
        }
    }
}

/// Applies the batch of the entry with this index and term.
///
/// # Errors
/// When it is not understood.
pub(crate) fn commit_alone(sequencer: &mut Sequencer, (index, term): (u64, u64), batch: &[u8]) -> Result<(), Fault> {
    sequencer.apply_entry(Millis(0), index, term, batch, false).map(drop).map_err(|_| not_a_batch(index))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_does_not_reach_the_snapshot_is_described() {
        for held in [(1, 10), (11, 12), (5, 20), (11, 10)] {
            assert!(check_reach(Purpose::Standalone, held, 10).is_ok(), "{held:?}");
        }
        for (first, last, holds) in
            [(12, 20, "entries 12 to 20"), (1, 9, "entries 1 to 9"), (12, 11, "no entry, and its next one is 12")]
        {
            let fault = check_reach(Purpose::Standalone, (first, last), 10).expect_err("entries are missing");
            assert_eq!(fault.code, ExitCode::DataDamaged);
            assert!(fault.sentence.contains(holds) && fault.sentence.contains("ends at 10"), "{}", fault.sentence);
        }
    }
}
