//! Decoders with a bug each, of the kinds that the real ones must not have.

use corral_wire::records::AddWatchRequest;
use corral_wire::{OpCode, Reader, Wire};

use super::records;
use super::tally::Tally;
use crate::rng::Stream;
use crate::violation::Violation;

/// An addWatch with a mode that is an unchecked index into a table.
pub(super) fn unchecked_index(input: &[u8]) -> Result<Tally, Violation> {
    const MODES: [u64; 2] = [1, 2];
    let Ok(request) = AddWatchRequest::decode(&mut Reader::new(input)) else { return Ok(Tally::default()) };
    let mode = usize::try_from(request.mode).unwrap_or_default();
    Ok(Tally { accepted: MODES[mode], ..Tally::default() })
}

/// A setWatches that makes room for as many paths as it is told will come.
pub(super) fn trusted_count(input: &[u8]) -> Result<Tally, Violation> {
    let mut reader = Reader::new(input);
    let told = reader.i64().and_then(|_| reader.i32()).ok().and_then(|told| usize::try_from(told).ok()).unwrap_or(0);
    let mut paths = Vec::with_capacity(told.min(1 << 16));
    while let Ok(Some(path)) = Option::<&str>::decode(&mut reader) {
        paths.push(path);
    }
    Ok(Tally { accepted: paths.len() as u64, ..Tally::default() })
}

pub(super) fn generate_watch(stream: &mut Stream, out: &mut Vec<u8>) {
    records::body(stream, OpCode::AddWatch, out);
}

pub(super) fn generate_watches(stream: &mut Stream, out: &mut Vec<u8>) {
    records::body(stream, OpCode::SetWatches, out);
}
