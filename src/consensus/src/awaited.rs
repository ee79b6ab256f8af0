//! What followers that take over an image will need behind it, so that the log's memory keeps it for them.
//!
//! An image takes seconds to write, to send and to take over, and the others write on meanwhile. Were what they write dropped
//! by the budget alone, the image would be of no use when it is there, and neither would the next one: under load the follower
//! would never catch up. The consensus actor's; pure, and empty unless somebody lags.

use std::collections::BTreeMap;

use crate::types::{Index, NodeId};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Awaited {
    by: BTreeMap<NodeId, Waiting>,
}

/// What one follower waits for.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// It will need every entry behind this one.
    pub(crate) from: Index,
    /// Looks since it was last heard.
    pub(crate) silent: u32,
}

impl Awaited {
    /// There is no image for this follower. One that is frozen from now on ends at `applied` or behind it.
    pub(crate) fn wanted(&mut self, by: NodeId, applied: Index) {
        self.by.entry(by).or_insert(Waiting { from: applied, silent: 0 });
    }

    /// The follower is given the image that ends at `index`.
    pub(crate) fn given(&mut self, to: NodeId, index: Index) {
        self.by.insert(to, Waiting { from: index, silent: 0 });
    }

    /// Whatever is behind this entry must stay.
    pub(crate) fn first(&self) -> Option<Index> {
        self.by.values().map(|waiting| waiting.from).min()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by.is_empty()
    }

    /// Forgets those of whom `waits` says so.
    pub(crate) fn retain(&mut self, mut waits: impl FnMut(NodeId, &mut Waiting) -> bool) {
        self.by.retain(|id, waiting| waits(*id, waiting));
    }
}
