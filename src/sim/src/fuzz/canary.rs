//! Decoders with a bug each, of the kinds that the real ones must not have.

use corral_wire::OpCode;
use corral_wire::records::AddWatchRequest;
use corral_wire::{Reader, Wire};

use super::Tally;
use crate::violation::Violation;

fn chosen(byte: u8) -> Option<OpCode> {
    OpCode::ALL.get(usize::from(byte) % (OpCode::ALL.len() + 1)).copied()
}

/// An addWatch whose mode is an index into a table, unchecked.
pub(super) fn unchecked_index(input: &[u8]) -> Result<Tally, Violation> {
    const MODES: [u64; 2] = [1, 2];
    let Some((first, record)) = input.split_first() else { return Ok(Tally::default()) };
    match AddWatchRequest::decode(&mut Reader::new(record)) {
        Ok(request) if chosen(*first) == Some(OpCode::AddWatch) => {
            let mode = usize::try_from(request.mode).unwrap_or_default();
            Ok(Tally { accepted: MODES[mode], ..Tally::default() })
        }
        _ => Ok(Tally::default()),
    }
}

/// A setWatches that makes room for as many paths as it is told will come.
pub(super) fn trusted_count(input: &[u8]) -> Result<Tally, Violation> {
    let Some((first, record)) = input.split_first() else { return Ok(Tally::default()) };
    let mut reader = Reader::new(record);
    if chosen(*first) == Some(OpCode::SetWatches) && reader.i64().is_ok() {
        let told = reader.i32().ok().and_then(|told| usize::try_from(told).ok()).unwrap_or(0);
        let mut paths = Vec::with_capacity(told.min(1 << 16));
        while let Ok(Some(path)) = Option::<&str>::decode(&mut reader) {
            paths.push(path);
        }
        return Ok(Tally { accepted: paths.len() as u64, ..Tally::default() });
    }
    Ok(Tally::default())
}
