//! What the beginning and the end of a session mean for the state machine: ids, passwords, the last of the ephemerals.
//!
//! Pure functions of the state machine; no deadlines, which are the leader's affair (`session`).

use super::ops::without_child;
use crate::change::Change;
use crate::command::Origin;
use crate::draft::Draft;
use crate::ids::{SessionId, Zxid};
use crate::session::Session;
use crate::view::View;
use alloc::vec::Vec;

/// A session id that no other server, epoch or transaction can come up with: server id, then the zxid's own numbers.
pub(super) fn session_id(origin: Option<Origin>, zxid: Zxid) -> SessionId {
    let server = origin.map_or(0, |origin| origin.server);
    let low = (u64::from(zxid.epoch() & 0x00ff_ffff) << 32) | u64::from(zxid.counter());
    SessionId(((u64::from(server) << 56) | low).cast_signed())
}

/// Compares without telling by its duration where the first difference is.
pub(super) fn same_secret(a: &[u8; 16], b: &[u8; 16]) -> bool {
    a.iter().zip(b).fold(0, |difference, (x, y)| difference | (x ^ y)) == 0
}

/// Removes all ephemerals of a session, with one zxid, in path order.
pub(super) fn close_changes(view: &View, zxid: Zxid, ended: &Session) -> Vec<Change> {
    let mut draft = Draft::chained(view);
    for path in &ended.ephemerals {
        let at = view.hashed(path.clone());
        let parent = draft.node(at.parent(), at.parent_hash).map(|node| node.to_znode());
        if let Some(parent) = parent
            && draft.node(&at.path, at.hash).is_some()
        {
            draft.delete(at, without_child(&parent, zxid));
        }
    }
    draft.into_changes()
}
