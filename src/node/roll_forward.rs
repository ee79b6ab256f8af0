//! Roll forward: the entries of an archive, applied to the state of a backup.
//!
//! Main thread, no actor runs.

use std::borrow::Cow;

use corral_backup::entries::{self, Entry, Place};
use corral_backup::envelope::Head;
use corral_consensus::EntryKind;
use corral_core::apply::StateMachine;
use corral_core::command::Batch;
use corral_core::ids::Millis;
use corral_core::sequencer::{FrozenState, Sequencer, SequencerConfig};
use corral_engine::LoadedSnapshot;

use crate::data::backups;
use crate::exit::{ExitCode, Fault, not_a_batch};
use crate::node::recovery::state_machine;
use crate::node::replay::{batch_in, commit_alone};

/// Where to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// Where the entries end.
    End,
    /// Behind the transaction with this zxid.
    Zxid(u64),
    /// Behind the last entry that its leader proposed at this time, in milliseconds since 1970, or before.
    Time(i64),
    /// Behind the entry with this index.
    Index(u64),
}

/// Gives entries with the one of this index, if there are any.
pub(crate) type Parts<'p> = dyn FnMut(u64) -> Result<Option<(Head, Vec<u8>)>, Fault> + 'p;

/// The state of a backup, with entries applied to it.
pub(crate) struct State {
    sequencer: Sequencer,
    term: u64,
    /// Of the last entry, if it is known.
    crc: Option<u32>,
    /// Of the log behind the backup. 0 if it is unknown.
    salt: u32,
    /// When the last entry was proposed, by its leader's clock. Unknown for those in the backup.
    pub(crate) time_ms: Option<i64>,
    /// An entry that is looked for, and whether it was applied.
    pub(crate) awaited: Option<Place>,
    pub(crate) has_awaited: bool,
    /// Entries that were applied to the backup.
    pub(crate) entries: u64,
}

impl State {
    /// The state of a backup.
    ///
    /// # Errors
    /// If the system has no entropy.
    pub(crate) fn of(head: &Head, loaded: &LoadedSnapshot) -> Result<State, Fault> {
        let (machine, index, term) = state_machine(Some(loaded))?;
        let sequencer = Sequencer::new(SequencerConfig::default(), machine, index, term);
        let crc = Some(head.crc).filter(|crc| *crc != 0);
        Ok(State {
            sequencer,
            term,
            crc,
            salt: head.salt,
            time_ms: None,
            awaited: None,
            has_awaited: false,
            entries: 0,
        })
    }

    pub(crate) fn machine(&self) -> &StateMachine {
        self.sequencer.machine()
    }

    /// The last zxid.
    pub(crate) fn zxid(&self) -> u64 {
        self.machine().view().zxid().0
    }

    /// Index and term of the last entry.
    pub(crate) fn position(&self) -> (u64, u64) {
        (self.sequencer.index(), self.term)
    }

    /// The last entry that was applied.
    pub(crate) fn last(&self) -> Option<Place> {
        let (index, term) = self.position();
        Some(Place { index, term, crc: self.crc? })
    }

    /// For a snapshot.
    pub(crate) fn freeze(&mut self) -> FrozenState {
        self.sequencer.freeze(Millis(0), Vec::new())
    }

    /// Applies entries. Whether the wanted place was reached, and not only the end of the entries.
    ///
    /// # Errors
    /// If entries are damaged, or do not belong to this state. Those of `parts`.
    pub(crate) fn roll_forward(&mut self, until: Until, parts: &mut Parts<'_>) -> Result<bool, Fault> {
        loop {
            if self.is_at(until) {
                return Ok(true);
            }
            let next = self.sequencer.index() + 1;
            let Some((head, body)) = parts(next)? else { return Ok(false) };
            // An entry without content may be of any log.
            if self.crc.is_none() && self.salt != 0 && head.salt != self.salt {
                return Err(damaged(format!("entry {next} is of another log than its base")));
            }
            let (before, entries) = entries::decode(&body).map_err(backups::fault)?;
            let mut is_joined = self.joins(before)?;
            for entry in entries {
                if entry.place.index < next {
                    is_joined |= self.joins(entry.place)?;
                } else if !is_joined {
                    break;
                } else if !self.apply(&entry, until)? {
                    return Ok(true);
                }
            }
            if self.sequencer.index() < next {
                return Err(damaged(format!("entry {next} is not where it should be")));
            }
        }
    }

    fn is_at(&self, until: Until) -> bool {
        match until {
            Until::Zxid(zxid) => self.zxid() >= zxid,
            Until::Index(index) => self.sequencer.index() >= index,
            Until::End | Until::Time(_) => false,
        }
    }

    /// Whether this is the last entry. The term is 0 if the entry is in the backup alone, and the log begins behind it.
    fn joins(&self, place: Place) -> Result<bool, Fault> {
        let (index, term) = self.position();
        if place.index != index {
            return Ok(false);
        }
        let is_same = match self.crc {
            Some(crc) => (place.term, place.crc) == (term, crc),
            None => place.term == term || place.term == 0,
        };
        if is_same { Ok(true) } else { Err(damaged(format!("entry {index} is of another history"))) }
    }

    /// Applies an entry, or as much of it as is wanted. False if there is nothing wanted behind it.
    fn apply(&mut self, entry: &Entry<'_>, until: Until) -> Result<bool, Fault> {
        let Place { index, term, crc } = entry.place;
        let kind = if entry.is_membership { EntryKind::ConfChange } else { EntryKind::Normal };
        let (mut payload, mut goes_on) = (batch_in(kind, index, entry.payload)?, true);
        if !payload.is_empty() {
            let mut batch = Batch::decode(&payload).map_err(|_| not_a_batch(index))?;
            if matches!(until, Until::Time(time) if batch.time.0 > time) {
                return Ok(false);
            }
            let first_later = match until {
                Until::Zxid(zxid) => batch.with_zxids().position(|(own, _)| own.is_some_and(|own| own > zxid)),
                _ => None,
            };
            if let Some(count) = first_later {
                batch.commands.truncate(count);
                if batch.commands.is_empty() {
                    return Ok(false);
                }
                goes_on = false;
                payload = Cow::Owned(batch.encode());
            }
            self.time_ms = Some(batch.time.0);
        }
        commit_alone(&mut self.sequencer, (index, term), &payload)?;
        (self.term, self.crc) = (term, Some(crc));
        self.entries += 1;
        self.has_awaited |= self.awaited == Some(entry.place);
        Ok(goes_on && !self.is_at(until))
    }
}

fn damaged(what: String) -> Fault {
    Fault::new(ExitCode::DataDamaged, format!("the archive is damaged: {what}"))
}
