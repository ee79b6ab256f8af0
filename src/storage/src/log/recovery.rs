//! Opens a log: reads what is there, cuts a torn tail, and makes the rest durable. Runs once, on the log thread.
//!
//! [`replay`](super::replay) has the rule that tells a torn tail from damage. Damage fails the open, and nothing is
//! changed. A torn tail is zeroed.
//!
//! A killed process leaves `DURABLE` exactly as it was at its last acknowledgement, in pages of its own. Then the rule
//! holds for every damage that leaves a copy there or a watermark in the log. A power cut within milliseconds of an
//! acknowledgement may leave older ones. The part truncated then may have been acknowledged if the disk is damaged as
//! well, and [`CutInfo`] states so.
//!
//! One exception: a snapshot holds all entries up to [`LogConfig::held`], and the first whole record behind the damage
//! shows that no later one was hit. Then the log begins with that record, and
//! [`SteppedOver`](super::recovered::SteppedOver) states so. A lost hard state is not noticed: this is for a server
//! with a vote that no other server counts.

use std::collections::VecDeque;
use std::hint::black_box;
use std::iter;

use corral_types::HardState;

use super::config::LogConfig;
use super::durable_file::DurableFile;
use super::error::LogError;
use super::index::EntryIndex;
use super::recovered::{CutInfo, Progress, Recovered};
use super::replay::Replay;
use super::segment::DATA_START;
use super::segment_file::SegmentFile;
use super::segments::Segments;
use super::survey::{Survey, begin, open_one};
use super::unusable::Unusable;
use super::writer::Writer;
use crate::disk::Disk;
use crate::field::{is_zero, narrow, wide};
use crate::limits::PAGE_BYTES;

/// A log that is durable up to its end and can be appended to.
pub(crate) struct Opened<D: Disk> {
    pub(crate) writer: Writer<D>,
    pub(crate) index: EntryIndex,
    pub(crate) hard_state: Option<HardState>,
    pub(crate) recovered: Recovered,
}

/// Opens the log in `disk`, or begins one; see [`Log::open`](super::Log::open).
pub(crate) fn open<D: Disk>(
    disk: D,
    config: &LogConfig,
    progress: &mut dyn FnMut(Progress),
) -> Result<Opened<D>, LogError> {
    config.check()?;
    let Survey { generations, mut spares, has_durable_file } = Survey::of(&disk, config)?;
    let point = DurableFile::read(&disk, has_durable_file)?;
    let durable_point_lost = point.is_none() && !generations.is_empty();
    let (mut segments, mut unusable) = (VecDeque::new(), Unusable::default());
    let newest = generations.last().copied();
    if generations.is_empty() {
        if !config.create_if_missing {
            return Err(LogError::NoLog);
        }
        point.map_or(Ok(false), |point| point.fits(iter::empty()))?;
        segments.push_back(begin(&disk, config, &mut spares)?);
    }
    for generation in generations {
        let after = segments.back().map(|before: &SegmentFile<D::Segment>| *before.head());
        match open_one(&disk, generation, after) {
            Ok(segment) => segments.push_back(segment),
            Err(error) if config.held > 0 && newest > Some(generation) => {
                unusable.add(error, generation, &mut segments)?;
                if after.is_some_and(|before| before.stamp.generation.saturating_add(1) != generation) {
                    // The missing part lies before this one.
                    segments.push_back(open_one(&disk, generation, None)?);
                }
            }
            Err(error) => return Err(error),
        }
    }
    let replay = Replay::run(&segments, point, disk.boot(), config.held, progress);
    let (replay, put_aside) = unusable.judge(replay)?;
    let durable_file = DurableFile::open(&disk, has_durable_file)?;
    let mut segments = Segments::new(disk, config, segments, replay.active, spares);
    let tail_cut = cut(&mut segments, &replay)?;
    segments.drop_misfits_ahead()?;
    settle(&mut segments, &replay)?;
    let (index, hard_state) = (replay.index, replay.hard_state);
    let mut writer = Writer::new(segments, replay.tail, durable_file);
    if replay.tail == DATA_START {
        writer.complete_start(index.next(), hard_state)?;
    }
    writer.release_read()?;
    writer.mark()?;
    writer.sync_durable_file()?;
    let recovered = Recovered {
        hard_state,
        first_index: index.first(),
        last_index: index.last(),
        last_term: index.last_term(),
        tail_cut,
        stepped_over: replay.stepped_over,
        durable_point_lost,
        put_aside,
    };
    Ok(Opened { writer, index, hard_state, recovered })
}

/// Zeroes the torn tail of the active segment, durably, so that no record of it can ever follow a new one.
fn cut<D: Disk>(segments: &mut Segments<D>, replay: &Replay) -> Result<Option<CutInfo>, LogError> {
    let (from, to) = (replay.tail, replay.cut_to);
    if to <= from {
        return Ok(None);
    }
    let active = segments.active_mut();
    if let Some(torn) = active.bytes_mut().get_mut(from..to) {
        torn.fill(0);
    }
    active.sync(from, to)?;
    Ok(Some(CutInfo {
        file: active.name().to_owned(),
        offset: wide(from),
        bytes: wide(to.saturating_sub(from)),
        never_acknowledged: replay.never_acknowledged,
    }))
}

/// Makes what was found durable. Records beyond the highest watermark may never have reached the disk. An earlier
/// process may have ended at a failed sync, after which the kernel takes those pages for clean. So they are stored once
/// more, which makes the pages dirty, and then synced.
fn settle<D: Disk>(segments: &mut Segments<D>, replay: &Replay) -> Result<(), LogError> {
    let in_use = segments.in_use_mut();
    let last = in_use.len().saturating_sub(1);
    for (nth, segment) in in_use.enumerate() {
        let head = *segment.head();
        let to = if nth == last { replay.tail } else { narrow(head.bytes) };
        let from = narrow(replay.watermark.saturating_sub(head.base)).max(DATA_START);
        if from < to {
            store_again(segment.bytes_mut(), from, to);
            segment.sync(from, to)?;
        }
    }
    Ok(())
}

/// Stores a range over itself, page by page, so that the kernel takes its pages for dirty.
fn store_again(bytes: &mut [u8], from: usize, to: usize) {
    let Some(range) = bytes.get_mut(from..to) else { return };
    for piece in range.chunks_mut(PAGE_BYTES) {
        if is_zero(piece) {
            continue;
        }
        let copy = black_box(piece.to_vec());
        black_box(&mut *piece).copy_from_slice(&copy);
    }
}
