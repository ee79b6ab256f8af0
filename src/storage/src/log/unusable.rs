//! Segment files that an open leaves out, because a snapshot holds every entry that they can have held. Part of an open.

use std::collections::VecDeque;

use super::error::LogError;
use super::recovered::SteppedOver;
use super::replay::Replay;
use super::segment::segment_name;
use super::segment_file::SegmentFile;

/// Files that cannot be read as segments, or are missing, and all segments before them.
#[derive(Default)]
pub(crate) struct Unusable {
    first: Option<LogError>,
    names: Vec<String>,
}

impl Unusable {
    /// Notes a file that cannot be used, and takes all `before` it. Returns the error if it is not about damage.
    pub(crate) fn add<S>(
        &mut self,
        error: LogError,
        generation: u64,
        before: &mut VecDeque<SegmentFile<S>>,
    ) -> Result<(), LogError> {
        let is_missing = match &error {
            LogError::MissingSegment { .. } => true,
            LogError::Damaged { .. } | LogError::NotASegment { .. } => false,
            _ => return Err(error),
        };
        self.names.extend(before.drain(..).map(|file| file.into_parts().0));
        if !is_missing {
            self.names.push(segment_name(generation));
        }
        self.first.get_or_insert(error);
        Ok(())
    }

    /// The outcome of reading what is left. If that fails, the fault of the first of these files is the reason.
    pub(crate) fn judge(self, replay: Result<Replay, LogError>) -> Result<(Replay, Vec<String>), LogError> {
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
