//! ClickHouse Keeper's removeRecursive: deletes a subtree (protocol chapter 38).

use super::caller::Caller;
use super::decode::{Refused, required};
use super::draft::Draft;
use super::operation::{Affected, Costs, Operation};
use super::result::OpResult;
use crate::cost::{self, ENTRY_MAX, ZNODE};
use crate::encoding::{Take, put_varint};
use crate::path;
use crate::shared::Text;
use crate::tree::acl;
use crate::tree::view::NodeRef;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use corral_wire::records::RemoveRecursiveRequest;
use corral_wire::{ErrorCode, OpCode, Reader};

/// Znodes that the removals of one transaction may take at most: all of them are looked at before the first goes.
pub(crate) const REMOVED_MAX: usize = 1000;
const DONE: OpResult = OpResult::Done(OpCode::RemoveRecursive);

/// Deletes a znode and all below it, if they are at most `limit`. All or nothing. DELETE is needed on the parent and on each
/// znode that goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoveRecursive {
    /// Path of the subtree's root.
    pub path: Text,
    /// Most znodes that may be deleted, the root included. Of more, none is deleted: `NotEmpty`.
    pub limit: u32,
}

impl RemoveRecursive {
    pub(super) fn of(request: RemoveRecursiveRequest<'_>) -> Result<Self, Refused> {
        Ok(Self { path: required(request.path)?, limit: request.remove_nodes_limit })
    }
}

impl Operation for RemoveRecursive {
    /// The estimate has all its changes.
    const AFFECTED: Affected = Affected::None;

    fn decode(_: OpCode, reader: &mut Reader<'_>) -> Result<Self, Refused> {
        Self::of(RemoveRecursiveRequest::decode(reader)?)
    }

    /// Besides its removals, it passes over marks of earlier removals: it has an entry of its own.
    fn cost_at_most(&self, costs: &Costs) -> u64 {
        (costs.one + REMOVED_MAX as u64 * (ZNODE + costs.deletion + costs.check)).max(ENTRY_MAX)
    }

    fn evaluate(self, caller: &Caller<'_>, draft: &mut Draft<'_>) -> Result<OpResult, ErrorCode> {
        caller.check_session()?;
        let Self { path, limit } = self;
        if !path::has_parent(&path) || path::UNDELETABLE.contains(&&*path) {
            return Err(ErrorCode::BadArguments);
        }
        caller.guard(&path)?;
        let at = draft.hashed(path);
        let Some(parent) = draft.node(at.parent(), at.parent_hash) else { return Ok(DONE) };
        caller.allow(&parent, acl::DELETE)?;
        if draft.node(&at.path, at.hash).is_none() {
            return Ok(DONE);
        }
        let limit = usize::try_from(limit).unwrap_or(usize::MAX).min(REMOVED_MAX.saturating_sub(draft.removed()));
        let subtree = removable(caller, draft, &at.path, limit)?;
        // Backwards, because a parent's path sorts before those of its children.
        for path in subtree.into_iter().rev() {
            let at = draft.hashed(path);
            draft.delete(at);
        }
        Ok(DONE)
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.limit));
    }

    fn take(path: Text, take: &mut Take<'_>) -> Option<Self> {
        Some(Self { path, limit: take.number()? })
    }
}

/// The paths of a subtree as the transaction sees it, if they are few enough and all may be deleted.
fn removable(caller: &Caller<'_>, draft: &Draft<'_>, root: &Text, limit: usize) -> Result<BTreeSet<Text>, ErrorCode> {
    let (mut found, mut denied, mut exhausted) = (BTreeSet::new(), false, false);
    let mut take = |path: Text, node: &NodeRef<'_>| {
        match caller.allow(node, acl::DELETE).and_then(|()| {
            let own = cost::ZNODE + cost::CHANGE + path_cost(&path) + cost::bytes(node.data_len());
            caller.spend(own + caller.deletion_cost())
        }) {
            Ok(()) => {}
            Err(ErrorCode::ThrottledOp) => exhausted = true,
            Err(_) => denied = true,
        }
        found.insert(path);
        !exhausted && found.len() <= limit
    };
    // Each change of the transaction may be one below the root, and is looked at.
    let look = cost::NAME + cost::bytes(root.len());
    caller.spend(caller.uncommitted(draft) as u64 * look)?;
    for (path, node) in draft.changed_below(root) {
        if !take(path, &NodeRef::Live(node)) {
            break;
        }
    }
    // A znode with more children than may go, and than this transaction can have taken away, is not walked into at
    // all.
    let (enough, mut too_wide, mut passed) = (limit + draft.change_count(), false, Ok(()));
    draft.view().walk(root, |path, node| {
        too_wide |= node.stat().num_children as usize > enough;
        let changed =
            if caller.bounds_deletions() && draft.has_changed(path) { cost::ZNODE + 4 * path.len() as u64 } else { 0 };
        passed = caller.spend(if too_wide { 0 } else { changed + caller.passing_cost(&node.stat()) });
        !too_wide && passed.is_ok() && (draft.has_changed(path) || take(Text::from(path), &node))
    });
    passed?;
    if exhausted {
        return Err(ErrorCode::ThrottledOp);
    }
    match (too_wide || found.len() > limit, denied) {
        (true, _) => Err(ErrorCode::NotEmpty),
        (false, true) => Err(ErrorCode::NoAuth),
        (false, false) => Ok(found),
    }
}

/// The path of a znode that goes is compared, copied and hashed several times.
fn path_cost(path: &Text) -> u64 {
    4 * path.len() as u64
}
