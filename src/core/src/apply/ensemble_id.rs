//! Which ensemble the data of a server are of, so that a disk of another ensemble replaces nothing.

use crate::command::Batch;
use xxhash_rust::xxh3::xxh3_64;

/// Made from the zxid and the time of the first batch with [`features::IDENTIFIED`](crate::features::IDENTIFIED), so the same on
/// every server of an ensemble. Other ensembles have another one, unless their first batches were made in the same millisecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnsembleId(pub u64);

impl EnsembleId {
    pub(super) fn of(batch: &Batch) -> Self {
        let [zxid, time] = [batch.first_zxid.to_le_bytes(), batch.time.0.to_le_bytes()];
        Self(xxh3_64(&[zxid, time].concat()))
    }
}
