//! The table of living sessions, sorted by id, in chunks. A frozen copy shares the chunks until they are written to:
//! freezing a hundred thousand sessions copies a thousand pointers.
//!
//! Part of the replicated state, so it is the same on every server: its content depends on the operations on it alone.

use super::ephemerals::Ephemerals;
use crate::ids::{Origin, SessionId};
use crate::tree::snapshot::SnapshotSession;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::RangeFrom;

/// Most sessions of one chunk: what the first change behind a freeze copies.
const CHUNK_MAX: usize = 128;

/// A session as every server knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Negotiated timeout, milliseconds. The leader ends a session that is inactive for longer.
    pub timeout_ms: i32,
    /// The secret with which a client attaches the session to another connection.
    pub password: [u8; 16],
    /// The connection that created or last attached it; after a restart one of an earlier process.
    pub owner: Option<Origin>,
    /// Paths of the session's ephemeral znodes.
    pub ephemerals: Ephemerals,
}

type Chunk = Vec<(SessionId, Session)>;

/// All living sessions. A clone is cheap and independent.
#[derive(Clone, Debug, Default)]
pub struct SessionTable {
    /// By an id at or below the chunk's first and above all of the chunk before it. No chunk is empty.
    chunks: BTreeMap<SessionId, Arc<Chunk>>,
    len: usize,
}

impl SessionTable {
    /// A table without sessions.
    pub const fn new() -> Self {
        Self { chunks: BTreeMap::new(), len: 0 }
    }

    /// Number of sessions.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no session.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The session of this id; `None` if it does not live. Takes logarithmic time.
    pub fn get(&self, id: &SessionId) -> Option<&Session> {
        let (_, chunk) = self.chunks.range(..=id).next_back()?;
        Some(&chunk[place(chunk, *id).ok()?].1)
    }

    pub(crate) fn get_mut(&mut self, id: &SessionId) -> Option<&mut Session> {
        let (_, chunk) = self.chunks.range_mut(..=id).next_back()?;
        let at = place(chunk, *id).ok()?;
        Some(&mut Arc::make_mut(chunk)[at].1)
    }

    /// Adds a session, or replaces the one of the same id.
    pub fn insert(&mut self, id: SessionId, session: Session) {
        let Some((key, chunk)) = self.chunks.range_mut(..=id).next_back() else {
            self.chunks.insert(id, Arc::new(Vec::from([(id, session)])));
            self.len += 1;
            return;
        };
        let (key, at) = (*key, place(chunk, id));
        let at = match at {
            Ok(at) => {
                Arc::make_mut(chunk)[at].1 = session;
                return;
            }
            Err(at) => at,
        };
        self.len += 1;
        if chunk.len() < CHUNK_MAX {
            Arc::make_mut(chunk).insert(at, (id, session));
        } else if at == CHUNK_MAX {
            // Ids grow: full chunks stay full.
            self.chunks.insert(id, Arc::new(Vec::from([(id, session)])));
        } else {
            let whole = Arc::make_mut(chunk);
            whole.insert(at, (id, session));
            let upper = whole.split_off(CHUNK_MAX / 2);
            debug_assert!(key < upper[0].0, "ids of a chunk lie at or above its key");
            self.chunks.insert(upper[0].0, Arc::new(upper));
        }
    }

    /// Takes a session out.
    pub fn remove(&mut self, id: &SessionId) -> Option<Session> {
        let (key, chunk) = self.chunks.range_mut(..=id).next_back()?;
        let (key, at) = (*key, place(chunk, *id).ok()?);
        self.len -= 1;
        let chunk = Arc::make_mut(chunk);
        let (_, session) = chunk.remove(at);
        if chunk.is_empty() {
            self.chunks.remove(&key);
        } else if chunk.len() * 4 <= chunk.capacity() {
            chunk.shrink_to(chunk.len() * 2);
        }
        Some(session)
    }

    /// All sessions in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (&SessionId, &Session)> {
        self.range(SessionId(i64::MIN)..)
    }

    /// The sessions from an id on, in order.
    pub fn range(&self, from: RangeFrom<SessionId>) -> impl Iterator<Item = (&SessionId, &Session)> {
        let from = from.start;
        let first = self.chunks.range(..=from).next_back().map_or(from, |(key, _)| *key);
        let chunks = self.chunks.range(first..).flat_map(|(_, chunk)| chunk.iter());
        chunks.skip_while(move |(id, _)| *id < from).map(|(id, session)| (id, session))
    }

    /// As a snapshot keeps them. Takes as long as there are sessions: for the snapshot writer's thread.
    pub fn to_snapshot(&self) -> Vec<SnapshotSession> {
        let mut list = Vec::with_capacity(self.len);
        list.extend(self.iter().map(|(id, session)| SnapshotSession {
            id: *id,
            timeout_ms: session.timeout_ms,
            password: session.password,
            owner: session.owner,
            ephemerals: session.ephemerals.iter().cloned().collect(),
        }));
        list
    }
}

impl FromIterator<(SessionId, Session)> for SessionTable {
    fn from_iter<I: IntoIterator<Item = (SessionId, Session)>>(sessions: I) -> Self {
        let mut table = Self::new();
        sessions.into_iter().for_each(|(id, session)| table.insert(id, session));
        table
    }
}

impl FromIterator<SnapshotSession> for SessionTable {
    fn from_iter<I: IntoIterator<Item = SnapshotSession>>(sessions: I) -> Self {
        let session = |SnapshotSession { id, timeout_ms, password, owner, ephemerals }| {
            let ephemerals = ephemerals.into_iter().collect::<Ephemerals>();
            (id, Session { timeout_ms, password, owner, ephemerals })
        };
        sessions.into_iter().map(session).collect()
    }
}

fn place(chunk: &Chunk, id: SessionId) -> Result<usize, usize> {
    chunk.binary_search_by_key(&id, |(id, _)| *id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::Text;
    use corral_types::SplitMix64;

    fn session(number: i32) -> Session {
        Session { timeout_ms: number, password: [0; 16], owner: None, ephemerals: Ephemerals::default() }
    }

    fn same(table: &SessionTable, model: &BTreeMap<SessionId, Session>) {
        assert_eq!(table.len(), model.len());
        assert!(table.iter().eq(model.iter()), "the same sessions in the same order");
        assert!(table.chunks.values().all(|chunk| !chunk.is_empty() && chunk.len() <= CHUNK_MAX));
    }

    #[test]
    fn agrees_with_a_plain_map_and_clones_are_independent() {
        let (mut table, mut model) = (SessionTable::new(), BTreeMap::new());
        let mut frozen = Vec::new();
        let mut random = SplitMix64::new(3);
        let mut draw = |below: u64| i64::try_from(random.below(below)).expect("small");
        for round in 0..20_000 {
            let id = SessionId(draw(1500) - 700);
            match draw(8) {
                0..=3 => {
                    table.insert(id, session(round));
                    model.insert(id, session(round));
                }
                4 | 5 => assert_eq!(table.remove(&id), model.remove(&id)),
                6 => {
                    let path = Text::from("/e");
                    let note = |session: &mut Session| session.ephemerals.insert(path.clone());
                    assert_eq!(table.get_mut(&id).map(note), model.get_mut(&id).map(note));
                }
                _ => {
                    assert_eq!(table.get(&id), model.get(&id));
                    assert!(table.range(id..).take(9).eq(model.range(id..).take(9)), "from {id}");
                }
            }
            if round % 4000 == 0 {
                same(&table, &model);
                frozen.push((table.clone(), model.clone()));
            }
        }
        same(&table, &model);
        frozen.iter().for_each(|(table, model)| same(table, model));
        let again: SessionTable = table.to_snapshot().into_iter().collect();
        same(&again, &model);
    }

    #[test]
    fn growing_ids_fill_their_chunks() {
        let ids = (0..10_000).map(SessionId);
        let mut table: SessionTable = ids.clone().map(|id| (id, session(1))).collect();
        assert_eq!(table.chunks.len(), 10_000_usize.div_ceil(CHUNK_MAX));
        for id in ids.clone().filter(|id| id.0 % 500 != 0) {
            assert!(table.remove(&id).is_some());
        }
        assert_eq!((table.len(), table.chunks.len()), (20, 20));
        assert!(table.chunks.values().all(|chunk| chunk.capacity() <= 4), "what has gone takes no room");
    }
}
