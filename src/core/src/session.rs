//! Sessions: the replicated table, and the leader's deadlines (protocol chapter 15).

mod expiry;
mod table;

use crate::command::Origin;
use crate::shared::Text;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use core::ops::RangeBounds;

pub use expiry::{Expiry, Witness};
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

    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |list| list.len())
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
