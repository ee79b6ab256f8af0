//! Owners of znodes, and how these end: sessions with their ephemerals, containers, TTL nodes.
//!
//! Pure functions of the state machine. When a session or a znode is over is the leader's affair (`session`, `reaper`).

use crate::ids::{Origin, SessionId, Zxid};
use crate::ops::OpResult;
use crate::ops::draft::Draft;
use crate::session::{Session, SessionTable};
use crate::shared::Text;
use crate::tree::change::{Change, Changes};
use crate::tree::view::View;
use crate::tree::znode::Owner;
use alloc::collections::BTreeSet;
use corral_wire::OpCode;
use corral_wire::error::ErrorCode;

/// A session id that no other server, epoch or transaction can come up with: server id, then the zxid's own numbers.
pub(super) fn session_id(origin: Option<Origin>, zxid: Zxid) -> SessionId {
    let server = origin.map_or(0, |origin| origin.server.0);
    let low = (u64::from(zxid.epoch() & 0x00ff_ffff) << 32) | u64::from(zxid.counter());
    SessionId(((u64::from(server) << 56) | low).cast_signed())
}

/// Removes all ephemerals of a session, with one zxid, in path order.
pub(super) fn close_changes(view: &View, zxid: Zxid, ended: &Session) -> Changes {
    // None depends on another: ephemerals have no children.
    let mut draft = Draft::single(view, zxid);
    for path in ended.ephemerals.iter() {
        let at = view.hashed(path.clone());
        if draft.node(&at.path, at.hash).is_some() {
            draft.delete(at);
        }
    }
    draft.into_changes()
}

/// Deletes a container or TTL node that was chosen at `mzxid`, unless it is no longer what it was.
pub(super) fn reap(draft: &mut Draft<'_>, path: Text, mzxid: Zxid) -> Result<OpResult, ErrorCode> {
    let at = draft.hashed(path);
    let stat = draft.node(&at.path, at.hash).ok_or(ErrorCode::NoNode)?.stat();
    if !matches!(Owner::from_bits(stat.owner), Owner::Container | Owner::Ttl(_)) || stat.mzxid != mzxid {
        return Err(ErrorCode::BadVersion);
    }
    if stat.num_children > 0 {
        return Err(ErrorCode::NotEmpty);
    }
    draft.delete(at);
    Ok(OpResult::Done(OpCode::Delete))
}

/// Keeps the lists of sessions' ephemerals, and of containers and TTL nodes. To be called before the change is applied.
pub(super) fn note_owner(view: &View, sessions: &mut SessionTable, reapable: &mut BTreeSet<Text>, change: &Change) {
    let (at, owner) = match change {
        Change::Created { at, node, .. } => (at, Owner::from_bits(node.stat.owner)),
        Change::Deleted { at, .. } => {
            let Some(node) = view.get_hashed(&at.path, at.hash) else { return };
            (at, Owner::from_bits(node.stat().owner))
        }
        Change::DataSet { .. } | Change::Quiet { .. } => return,
    };
    let created = matches!(change, Change::Created { .. });
    let _ = match owner {
        Owner::Persistent => false,
        Owner::Session(owner) => match sessions.get_mut(&owner) {
            Some(session) if created => session.ephemerals.insert(at.path.clone()),
            Some(session) => session.ephemerals.remove(&at.path),
            None => false,
        },
        Owner::Container | Owner::Ttl(_) if created => reapable.insert(at.path.clone()),
        Owner::Container | Owner::Ttl(_) => reapable.remove(&at.path),
    };
}
