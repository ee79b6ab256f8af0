//! Sessions: the replicated table, and the leader's deadlines (protocol chapter 15).

mod table;

use crate::command::Origin;
use crate::ids::{Millis, SessionId, ShardId};
use crate::shared::Text;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::RangeBounds;

pub use table::SessionTable;

/// A session as every server knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pub timeout_ms: i32,
    pub password: [u8; 16],
    /// The connection that created or last attached it; after a restart one of an earlier process.
    pub owner: Option<Origin>,
    pub ephemerals: Ephemerals,
}

/// Paths of a session's ephemerals, sorted: the order in which closing removes them. Most sessions have none, so that
/// case takes a pointer's room; a clone shares the list until either is written to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ephemerals(Option<Arc<BTreeSet<Text>>>);

impl Ephemerals {
    /// Whether the path is new.
    pub fn insert(&mut self, path: Text) -> bool {
        Arc::make_mut(self.0.get_or_insert_default()).insert(path)
    }

    /// Whether the path was there.
    pub fn remove(&mut self, path: &Text) -> bool {
        let Some(list) = &mut self.0 else { return false };
        let removed = Arc::make_mut(list).remove(path);
        if list.is_empty() {
            self.0 = None;
        }
        removed
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Text> {
        self.0.iter().flat_map(|list| list.iter())
    }

    /// Those within the bounds.
    pub fn range(&self, bounds: impl RangeBounds<Text>) -> impl Iterator<Item = &Text> {
        self.0.as_ref().map(|list| list.range::<Text, _>(bounds)).into_iter().flatten()
    }
}

impl FromIterator<Text> for Ephemerals {
    fn from_iter<I: IntoIterator<Item = Text>>(paths: I) -> Self {
        let list: BTreeSet<Text> = paths.into_iter().collect();
        Self((!list.is_empty()).then(|| Arc::new(list)))
    }
}

#[derive(Clone, Copy, Debug)]
struct Deadline {
    heard: Millis,
    /// The bucket that speaks for the session; entries in other buckets are stale.
    placed: u64,
    timeout_ms: u32,
    owner: Option<ShardId>,
}

impl Deadline {
    /// `ExpiryQueue.roundToNextInterval`: expiry falls between T and T + tick after the last sign of life.
    fn bucket(&self, tick_ms: u64) -> u64 {
        (self.heard.plus(self.timeout_ms.into()).0 / tick_ms + 1) * tick_ms
    }
}

/// When each session ends unless it is heard from. Kept by the leader alone, in its memory alone: a new leader starts
/// every deadline afresh.
///
/// A session is in exactly one bucket; being heard from only notes the time, and a bucket that comes due puts those
/// that have been heard from since into a later one. So a sign of life costs one map look-up, whatever the number.
#[derive(Clone, Debug)]
pub struct Expiry {
    tick_ms: u64,
    deadlines: hashbrown::HashMap<SessionId, Deadline, xxhash_rust::xxh3::Xxh3DefaultBuilder>,
    buckets: BTreeMap<u64, Vec<SessionId>>,
    /// Until when each shard has told us of every session it heard from. A shard that is behind with its reports
    /// cannot testify that a session was silent, so its sessions wait for it.
    reported: BTreeMap<ShardId, Millis>,
}

impl Expiry {
    /// `tick_ms` is the bucket width, at least 1.
    pub fn new(tick_ms: u64) -> Self {
        let deadlines = hashbrown::HashMap::with_hasher(xxhash_rust::xxh3::Xxh3DefaultBuilder::new());
        Self { tick_ms: tick_ms.max(1), deadlines, buckets: BTreeMap::new(), reported: BTreeMap::new() }
    }

    /// Starts or restarts a session's deadline, with a full timeout from `now`.
    pub fn start(&mut self, now: Millis, session: SessionId, timeout_ms: i32, owner: Option<ShardId>) {
        let timeout_ms = u32::try_from(timeout_ms).unwrap_or(0);
        let mut deadline = Deadline { timeout_ms, heard: now, owner, placed: 0 };
        deadline.placed = deadline.bucket(self.tick_ms);
        self.buckets.entry(deadline.placed).or_default().push(session);
        self.deadlines.insert(session, deadline);
    }

    /// Forgets a session that has ended. Its place in a bucket goes when the bucket comes due.
    pub fn stop(&mut self, session: SessionId) {
        self.deadlines.remove(&session);
    }

    /// A client that tries to renew its session is alive, whatever comes of it.
    pub fn heard_directly(&mut self, now: Millis, session: SessionId) {
        if let Some(deadline) = self.deadlines.get_mut(&session) {
            deadline.heard = deadline.heard.max(now);
        }
    }

    /// A shard tells which of its sessions it heard from, and that it has read its sockets up to `at`.
    pub fn heard(&mut self, shard: ShardId, at: Millis, sessions: &[(SessionId, Millis)]) {
        for (session, heard) in sessions {
            if let Some(deadline) = self.deadlines.get_mut(session) {
                deadline.heard = deadline.heard.max(*heard);
            }
        }
        let reported = self.reported.entry(shard).or_default();
        *reported = at.max(*reported);
    }

    /// Sessions whose time is over, each given once; they are no longer tracked afterwards.
    pub fn expired(&mut self, now: Millis) -> Vec<SessionId> {
        let mut over = Vec::new();
        while let Some(bucket) = self.buckets.first_entry().filter(|bucket| *bucket.key() <= now.0) {
            let (due, sessions) = bucket.remove_entry();
            for session in sessions {
                let Some(deadline) = self.deadlines.get(&session).filter(|deadline| deadline.placed == due) else {
                    continue;
                };
                let mut next = deadline.bucket(self.tick_ms);
                if next <= due {
                    if !self.may_be_unheard(deadline) {
                        self.deadlines.remove(&session);
                        over.push(session);
                        continue;
                    }
                    next = due + (self.tick_ms / 8).max(1);
                }
                self.buckets.entry(next).or_default().push(session);
                self.deadlines.entry(session).and_modify(|deadline| deadline.placed = next);
            }
        }
        over
    }

    /// Whether the owner's last report is older than the silence it would have to testify for.
    fn may_be_unheard(&self, deadline: &Deadline) -> bool {
        let Some(owner) = deadline.owner else { return false };
        self.reported.get(&owner).is_none_or(|at| *at < deadline.heard.plus(deadline.timeout_ms.into()))
    }

    /// When the session ends unless it is heard from.
    pub fn due(&self, session: SessionId) -> Option<Millis> {
        Some(Millis(self.deadlines.get(&session)?.bucket(self.tick_ms)))
    }

    /// How many sessions are tracked.
    pub fn len(&self) -> usize {
        self.deadlines.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.deadlines.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const SHARD: ShardId = ShardId(0);

    #[test]
    fn expires_between_timeout_and_timeout_plus_tick() {
        for start in [0, 1, 999, 1000, 1001] {
            let mut expiry = Expiry::new(1000);
            expiry.start(Millis(start), SessionId(7), 4000, None);
            let ended = (start..start + 10_000).find(|ms| !expiry.expired(Millis(*ms)).is_empty());
            let after = ended.map(|ms| ms - start);
            assert!(after.is_some_and(|ms| ms > 4000 - 1 && ms <= 5000), "from {start}: {after:?}");
            assert!(expiry.is_empty());
        }
    }

    #[test]
    fn signs_of_life_postpone() {
        let mut expiry = Expiry::new(100);
        expiry.start(Millis(0), SessionId(1), 400, Some(SHARD));
        expiry.heard(SHARD, Millis(350), &[(SessionId(1), Millis(350))]);
        expiry.heard(SHARD, Millis(800), &[]);
        assert_eq!(expiry.expired(Millis(799)), vec![]);
        assert_eq!(expiry.expired(Millis(800)), vec![SessionId(1)]);
        assert_eq!(expiry.expired(Millis(9_000)), vec![]);
    }

    #[test]
    fn a_silent_shard_expires_nobody() {
        let mut expiry = Expiry::new(100);
        expiry.start(Millis(0), SessionId(1), 400, Some(SHARD));
        assert_eq!(expiry.expired(Millis(60_000)), vec![]);
        expiry.heard(SHARD, Millis(60_001), &[(SessionId(1), Millis(60_000))]);
        assert_eq!(expiry.expired(Millis(60_400)), vec![]);
        expiry.heard(SHARD, Millis(60_600), &[]);
        assert_eq!(expiry.expired(Millis(60_600)), vec![SessionId(1)]);
    }

    #[test]
    fn a_shorter_timeout_counts_from_the_renewal() {
        let mut expiry = Expiry::new(100);
        expiry.start(Millis(0), SessionId(1), 40_000, None);
        expiry.start(Millis(50), SessionId(1), 400, None);
        assert_eq!(expiry.expired(Millis(500)), vec![SessionId(1)]);
        assert_eq!(expiry.expired(Millis(90_000)), vec![]);
    }

    #[test]
    fn stopped_sessions_are_gone() {
        let mut expiry = Expiry::new(100);
        expiry.start(Millis(0), SessionId(1), 400, None);
        expiry.stop(SessionId(1));
        assert_eq!(expiry.expired(Millis(10_000)), vec![]);
    }
}
