//! Reads: sequentially consistent for each session, and exact: the body is the state at the header's zxid
//! (protocol chapters 4 and 12). That the header is exact is a promise of this server alone.
//!
//! A session's own earlier writes are visible because header zxids never go back. Its later writes are not, because a
//! write's zxid lies above that of every reply before it (`writes`). A read shows everything that was acknowledged to
//! any client when the read was sent. One server is one truth, whatever the number of its shards.

use corral_core::limits::WALK_PIECE;

use crate::check::checkers::Checkers;
use crate::check::facts::Facts;
use crate::link::Sent;
use crate::model::{ADMIN, BAD_ARGUMENTS, Identity, LinkId, MARSHALLING_ERROR, Model, NO_AUTH, READ, allows, redacted};
use crate::request::{Body, NO_NODE, Request};
use crate::violation::{Checked, require};

pub(super) fn read_answered(
    checkers: &Checkers,
    link: LinkId,
    sent: &Sent,
    zxid: i64,
    err: i32,
    body: &Body,
) -> Checked {
    require(zxid.cast_unsigned() >= sent.acked_before, "reads", || {
        format!("{:?} at {zxid:#x}, but {:#x} was seen before it was sent", sent.request, sent.acked_before)
    })?;
    if matches!(sent.request, Request::CheckWatches { .. } | Request::RemoveWatches { .. }) {
        // The watches at this zxid are known once the events before it are counted: see `watches`.
        return Ok(());
    }
    let Facts { identities, session, .. } = &checkers.facts[link.0];
    let (right_err, right_body) = match &sent.request {
        Request::Ephemerals { prefix } => {
            (0, Body::Names(checkers.model.tree.owned_at(*session, prefix, zxid.cast_unsigned())))
        }
        request => expected(&checkers.model, request, zxid.cast_unsigned(), identities),
    };
    let right = err == right_err && (*body == right_body || is_walked(checkers, sent, zxid, body, &right_body));
    require(right, "reads", || {
        format!("{:?} at {zxid:#x}: got {err} {body:?}, the model has {right_err} {right_body:?}", sent.request)
    })
}

/// A count of so many that it is made in pieces: what is created or deleted meanwhile may be in it or not. A piece
/// visits fewer znodes than [`WALK_PIECE`], because their names cost too: with paths as short as here more than half.
fn is_walked(checkers: &Checkers, sent: &Sent, zxid: i64, body: &Body, right: &Body) -> bool {
    let (Request::CountDescendants { path }, Body::Count(found), Body::Count(right)) = (&sent.request, body, right)
    else {
        return false;
    };
    let steps = checkers.model.tree.steps(sent.acked_before, zxid.cast_unsigned());
    let changed = steps.filter(|(_, step)| step.changes_below(path)).count();
    let in_pieces = usize::try_from(*found).is_ok_and(|found| found >= WALK_PIECE / 2);
    in_pieces && usize::try_from(found.abs_diff(*right)).is_ok_and(|off| off <= changed)
}

fn expected(model: &Model, request: &Request, zxid: u64, identities: &[Identity]) -> (i32, Body) {
    let (path, wanted) = match request {
        Request::Exists { path, .. } if path.contains('\0') => return (BAD_ARGUMENTS, Body::Nothing),
        Request::Exists { path, .. }
        | Request::GetData { path, .. }
        | Request::GetChildren { path, .. }
        | Request::CountDescendants { path } => (path, READ),
        Request::GetAcl { path } => (path, READ | ADMIN),
        Request::Sync { path } => return (0, Body::Path(path.clone())),
        Request::AddWatch { .. } => return (0, Body::Count(0)),
        Request::Truncated(_) => return (MARSHALLING_ERROR, Body::Nothing),
        _ => return (0, Body::Nothing),
    };
    let Some(node) = model.tree.node_at(path, zxid) else { return (NO_NODE, Body::Nothing) };
    if !allows(&node.acl, wanted, identities) {
        return (NO_AUTH, Body::Nothing);
    }
    let body = match request {
        Request::Exists { .. } => Body::Stat(node.stat()),
        Request::CountDescendants { .. } => {
            Body::Count(i32::try_from(model.tree.below_at(path, zxid).count()).expect("a small tree"))
        }
        Request::GetData { .. } => Body::Data(node.data.clone(), node.stat()),
        Request::GetChildren { with_stat: false, .. } => Body::Names(model.tree.children_at(path, zxid)),
        Request::GetChildren { with_stat: true, .. } => {
            Body::NamesStat(model.tree.children_at(path, zxid), node.stat())
        }
        _ if allows(&node.acl, ADMIN, identities) => Body::Acl(node.acl.clone(), node.stat()),
        _ => Body::Acl(node.acl.iter().map(redacted).collect(), node.stat()),
    };
    (0, body)
}
