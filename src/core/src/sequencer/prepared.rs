//! Batches of another leader's entries, decoded when the entries come and applied when they are committed.
//!
//! So an unreadable entry never gets into a log, and no entry is decoded twice. The kept batches are a mere cache: an
//! entry that is not here is decoded when it is committed.

use crate::command::Batch;
use alloc::collections::VecDeque;

/// Bytes of the entries that are kept decoded; more are looked at and forgotten.
const KEPT_BYTES_MAX: usize = 4 << 20;

/// Which entry it is: index, term, address and length of its payload, which lies there for as long as the log holds it.
type Name = (u64, u64, usize, usize);

fn name(index: u64, term: u64, payload: &[u8]) -> Name {
    (index, term, payload.as_ptr().addr(), payload.len())
}

/// A log entry that is no batch, although its checksum is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotABatch;

/// Decoded batches of entries that are not committed yet.
#[derive(Default)]
pub(super) struct Prepared {
    kept: VecDeque<(Name, Batch)>,
    bytes: usize,
}

// Addresses are compared, never followed.
impl Prepared {
    /// An entry has come, perhaps in place of others from its index on.
    pub(super) fn prepare(&mut self, index: u64, term: u64, payload: &[u8]) -> Result<(), NotABatch> {
        while self.kept.back().is_some_and(|((kept, ..), _)| *kept >= index) {
            let dropped = self.kept.pop_back();
            self.forget(dropped.map(|(name, _)| name));
        }
        if payload.is_empty() {
            return Ok(());
        }
        let batch = Batch::decode_of_peer(payload).map_err(|_| NotABatch)?;
        if self.bytes + payload.len() <= KEPT_BYTES_MAX {
            self.bytes += payload.len();
            self.kept.push_back((name(index, term, payload), batch));
        }
        Ok(())
    }

    /// The entry is committed; all before it are.
    pub(super) fn take(&mut self, index: u64, term: u64, payload: &[u8]) -> Option<Batch> {
        while let Some(((kept, ..), _)) = self.kept.front()
            && *kept <= index
        {
            let (found, batch) = self.kept.pop_front()?;
            self.forget(Some(found));
            if found == name(index, term, payload) {
                return Some(batch);
            }
        }
        None
    }

    fn forget(&mut self, name: Option<Name>) {
        self.bytes -= name.map_or(0, |(.., bytes)| bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Command, CommandKind};
    use crate::ids::WallMillis;
    use alloc::vec::Vec;

    fn payload(zxid: u64) -> Vec<u8> {
        let commands = Vec::from([Command::own(None, CommandKind::CloseSession)]);
        Batch { time: WallMillis(1), first_zxid: zxid, features: 0, identities: Vec::new(), commands }.encode()
    }

    #[test]
    fn what_was_prepared_is_applied_and_nothing_else() {
        let entries: Vec<Vec<u8>> = (0..6).map(payload).collect();
        let mut prepared = Prepared::default();
        for (index, entry) in (1..).zip(&entries) {
            assert_eq!(prepared.prepare(index, 1, entry), Ok(()));
        }
        assert_eq!(prepared.take(1, 1, &entries[0]).map(|batch| batch.first_zxid), Some(0));
        assert_eq!(
            prepared.take(3, 1, &entries[2]).map(|batch| batch.first_zxid),
            Some(2),
            "the second was an empty one"
        );
        // The same place and other bytes, or another term: decoded anew.
        assert_eq!(prepared.take(4, 1, &entries[3].clone()), None);
        assert_eq!(prepared.take(5, 2, &entries[4]), None);
        // Other entries replace uncommitted ones.
        let other = payload(9);
        assert_eq!(prepared.prepare(6, 2, &other), Ok(()));
        assert_eq!(prepared.take(6, 2, &other).map(|batch| batch.first_zxid), Some(9));
        assert!(prepared.kept.is_empty() && prepared.bytes == 0);
    }

    #[test]
    fn unreadable_payloads_are_refused() {
        let mut prepared = Prepared::default();
        assert_eq!(prepared.prepare(1, 1, b"garbage!"), Err(NotABatch));
        assert_eq!(prepared.prepare(1, 1, b""), Ok(()));
    }

    #[test]
    fn little_is_kept() {
        let mut prepared = Prepared::default();
        let entries: Vec<Vec<u8>> = (0..200_000).map(payload).collect();
        for (index, entry) in (1..).zip(&entries) {
            assert_eq!(prepared.prepare(index, 1, entry), Ok(()));
        }
        assert!(prepared.bytes <= KEPT_BYTES_MAX && prepared.kept.len() < entries.len());
    }
}
