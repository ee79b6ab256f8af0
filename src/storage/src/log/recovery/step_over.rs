//! Damage that an open does not refuse, because a checked image holds every entry that it can have hit: behind it the log goes
//! on at the first record that shows how many entries came before. Part of recovery; see [`held`](crate::log::LogConfig::held).

use std::collections::VecDeque;

use super::Replay;
use crate::disk::Segment;
use crate::log::index::EntryIndex;
use crate::log::mark::{Trace, find_trace};
use crate::log::record::RecordKind;
use crate::log::segment::{DATA_START, segment_name};
use crate::log::{HardState, Live, LogError};

/// Damage that the open did not refuse, because a checked image holds every entry that it can have hit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SteppedOver {
    /// Of the first damage.
    pub file: String,
    pub offset: u64,
    /// How many places are damaged.
    pub places: u64,
}

/// Files that cannot be read as segments, or are missing, and with them all that lie before.
#[derive(Default)]
pub(super) struct Unusable {
    first: Option<LogError>,
    names: Vec<String>,
}

impl Unusable {
    pub(super) fn add<S>(
        &mut self,
        error: LogError,
        generation: u64,
        before: &mut VecDeque<Live<S>>,
    ) -> Result<(), LogError> {
        let is_missing = match &error {
            LogError::MissingSegment { .. } => true,
            LogError::Damaged { .. } | LogError::NotASegment { .. } => false,
            _ => return Err(error),
        };
        self.names.extend(before.drain(..).map(|live| live.name));
        if !is_missing {
            self.names.push(segment_name(generation));
        }
        self.first.get_or_insert(error);
        Ok(())
    }

    /// The outcome of reading what is left. What is wrong with the first of these files is why that fails.
    pub(super) fn judge(self, replay: Result<Replay, LogError>) -> Result<(Replay, Vec<String>), LogError> {
        let Some(error) = self.first else {
            let mut replay = replay?;
            if let Some(over) = &mut replay.stepped_over {
                over.places = over.places.max(1);
            }
            return Ok((replay, Vec::new()));
        };
        let Ok(mut replay) = replay else { return Err(error) };
        let (LogError::Damaged { file, .. } | LogError::NotASegment { file, .. } | LogError::MissingSegment { file }) =
            error
        else {
            return Err(error);
        };
        let places = replay.stepped_over.map_or(0, |later| later.places).saturating_add(1);
        replay.stepped_over = Some(SteppedOver { file, offset: 0, places });
        Ok((replay, self.names))
    }
}

impl Replay {
    /// Goes on behind damage at the first whole record that shows how many entries the log had had before it, if no entry behind
    /// `held` is among them. Hard states on the way count. The damage is the error if there is no such record.
    pub(super) fn step_over<S: Segment>(
        &mut self,
        segments: &VecDeque<Live<S>>,
        damage: LogError,
        held: u64,
    ) -> Result<(), LogError> {
        let LogError::Damaged { file, offset, what } = damage else { return Err(damage) };
        let next_max = if held == 0 { 0 } else { held.saturating_add(1) };
        for (nth, live) in segments.iter().enumerate().skip(self.active) {
            let (bytes, stamp) = (live.file.bytes(), live.head.stamp);
            let mut from = if nth == self.active { self.tail.saturating_add(8) } else { DATA_START };
            while let Some((at, trace)) = find_trace(bytes, from, stamp) {
                from = at.saturating_add(8);
                let Trace::Record(head) = trace else { continue };
                let Some(payload) = head.payload(bytes, at) else { continue };
                if head.kind == RecordKind::HardState {
                    self.hard_state = HardState::decode(payload).or(self.hard_state);
                    continue;
                }
                if head.index > next_max {
                    return Err(LogError::Damaged { file, offset, what });
                }
                self.index = EntryIndex::new(head.index);
                (self.active, self.tail) = (nth, at);
                let first = self.stepped_over.get_or_insert(SteppedOver { file, offset, places: 0 });
                first.places = first.places.saturating_add(1);
                return Ok(());
            }
        }
        Err(LogError::Damaged { file, offset, what })
    }
}
