//! The log behind an image: what of it is applied at once, and what Raft is given.
//!
//! A tail of gigabytes lies in the mapped log. What is known to be committed is applied from there, a page at a time, so that a start
//! takes no more memory than the server had.

use std::time::Duration;

use bytes::Bytes;
use corral_consensus::{ConfChange, Entry, EntryKind, Index, Machine, Term};
use corral_core::ids::Millis;
use corral_core::sequencer::Sequencer;
use corral_engine::{CatchUp, Place, ReplicatedMember};
use corral_storage::log::{Entry as Record, Log, Recovered};
use corral_storage::{EntryKind as RecordKind, MmapDisk};

use crate::exit::{ExitCode, Fault};
use crate::node::recovery::{Purpose, not_a_batch};
use crate::runtime::clock::Clock;

/// Log entries read in one go.
const READ_BYTES: usize = 8 << 20;

/// Whether to go on with the next entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Go {
    On,
    /// This one was not taken.
    No,
}

/// Shows each entry from one index to another, both included, until it is enough.
///
/// # Errors
/// The log's, or those of `show`.
pub(crate) fn each_entry(
    log: &Log<MmapDisk>,
    (from, upto): (u64, u64),
    mut show: impl FnMut(Record<'_>) -> Result<Go, Fault>,
) -> Result<(), Fault> {
    let (mut next, mut goes_on) = (from, true);
    while goes_on && next <= upto {
        let mut last = Ok(Go::On);
        next = log.read(next, READ_BYTES, &mut |entry| {
            if last == Ok(Go::On) && entry.index <= upto {
                last = show(entry);
            }
        })?;
        goes_on = last? == Go::On;
    }
    Ok(())
}

/// Checks that the log goes on where the image ends, if it holds anything behind it.
///
/// # Errors
/// What is missing, and what to do about that.
pub(crate) fn reaches(purpose: Purpose, found: &Recovered, image: u64) -> Result<(), Fault> {
    if found.first_index <= image + 1 && found.last_index >= image {
        return Ok(());
    }
    let Recovered { first_index, last_index, .. } = *found;
    let holds = if first_index > last_index {
        format!("the log holds no entry, and its next one is {first_index}")
    } else {
        format!("the log holds entries {first_index} to {last_index}")
    };
    let sentence = format!(
        "{holds}, but the newest whole image ends at {image}: entries between are missing; {}",
        purpose.remedy()
    );
    Err(Fault::new(ExitCode::DataDamaged, sentence))
}

/// Brings the machine from the image's place, an index and its term, as far as the log is known to be committed; gives the place
/// where it is then. Ends before a change of the membership, which Raft has to see.
///
/// # Errors
/// The log's, or an entry is not understood.
pub(crate) fn replay(
    machine: &mut ReplicatedMember,
    log: &Log<MmapDisk>,
    image: (u64, u64),
    committed: u64,
    clock: Clock,
) -> Result<(u64, u64), Fault> {
    let (mut place, mut bytes, mut catch_up) = (image, 0, CatchUp::default());
    machine.shows = false;
    machine.set_time(clock.now(), clock.wall());
    let applied = each_entry(log, (image.0 + 1, committed), |entry| {
        if entry.kind == RecordKind::Membership {
            return Ok(Go::No);
        }
        let now = Place { applied: place.0, committed, bytes };
        if let Some(progress) = catch_up.look(Duration::from_millis(clock.now().0), now) {
            progress.log();
        }
        let commit = machine.commit(Index(entry.index), Term(entry.term), entry.payload, false);
        commit.map_err(|_| not_a_batch(place.0 + 1))?;
        place = (entry.index, entry.term);
        bytes += entry.payload.len() as u64;
        Ok(Go::On)
    });
    machine.shows = true;
    applied.map(|()| place)
}

/// Every log entry behind an index, for Raft.
///
/// # Errors
/// The log's.
pub(crate) fn entries_after(log: &Log<MmapDisk>, found: &Recovered, index: u64) -> Result<Vec<Entry>, Fault> {
    let mut entries = Vec::new();
    each_entry(log, (index + 1, found.last_index), |entry| {
        let kind = match entry.kind {
            RecordKind::Normal => EntryKind::Normal,
            RecordKind::Membership => EntryKind::ConfChange,
        };
        let payload = Bytes::copy_from_slice(entry.payload);
        entries.push(Entry { term: Term(entry.term), index: Index(entry.index), kind, payload });
        Ok(Go::On)
    })?;
    Ok(entries)
}

/// Applies an entry where there is no Raft: of a change of the membership it is what that carries.
///
/// # Errors
/// When it is not understood.
pub(crate) fn apply_alone(sequencer: &mut Sequencer, entry: &Record<'_>) -> Result<(), Fault> {
    let fault = || not_a_batch(entry.index);
    let change = match entry.kind {
        RecordKind::Normal => None,
        RecordKind::Membership => {
            Some(ConfChange::decode(&Bytes::copy_from_slice(entry.payload)).map_err(|_| fault())?)
        }
    };
    let payload = change.as_ref().map_or(entry.payload, |change| &change.context);
    sequencer.commit(Millis(0), entry.index, entry.term, payload, false).map(drop).map_err(|_| fault())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log that holds these entries, both included.
    fn holding(first_index: u64, last_index: u64) -> Recovered {
        Recovered {
            first_index,
            last_index,
            hard_state: None,
            last_term: None,
            tail_cut: None,
            stepped_over: None,
            durable_point_lost: false,
            put_aside: Vec::new(),
        }
    }

    #[test]
    fn a_log_that_does_not_reach_the_image_is_described() {
        for (first, last) in [(1, 10), (11, 12), (5, 20), (11, 10)] {
            assert!(reaches(Purpose::Alone, &holding(first, last), 10).is_ok(), "{first} to {last}");
        }
        for (first, last, holds) in
            [(12, 20, "entries 12 to 20"), (1, 9, "entries 1 to 9"), (12, 11, "no entry, and its next one is 12")]
        {
            let fault = reaches(Purpose::Alone, &holding(first, last), 10).expect_err("entries are missing");
            assert_eq!(fault.code, ExitCode::DataDamaged);
            assert!(fault.sentence.contains(holds) && fault.sentence.contains("ends at 10"), "{}", fault.sentence);
        }
    }
}
