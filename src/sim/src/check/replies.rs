//! Replies: one for each request, in order. Each passes the checkers of reads, writes and watches.

use crate::check::checkers::Checkers;
use crate::check::{reads, watches, writes};
use crate::link::Sent;
use crate::model::{LinkId, UNIMPLEMENTED};
use crate::request::{Body, Request};
use crate::violation::{Checked, require};

/// A reply reached its client. The client has checked that it answers the oldest request and ends with its record.
pub(crate) fn replied(checkers: &mut Checkers, link: LinkId, sent: &Sent, zxid: i64, err: i32, body: &Body) -> Checked {
    if matches!(sent.request, Request::Unknown(_)) {
        let refused = zxid == -1 && err == UNIMPLEMENTED;
        return require(refused, "replies", || format!("unknown operation: zxid {zxid:#x}, err {err}"));
    }
    goes_on(checkers, link, zxid)?;
    let is_logged = sent.command.is_some() && !writes::is_refused_by_shard(checkers, link, sent, zxid, err);
    if is_logged {
        writes::write_answered(checkers, link, sent, zxid, err, body)?;
    } else if sent.command.is_none() {
        reads::read_answered(checkers, link, sent, zxid, err, body)?;
    }
    watches::events_before_reply(checkers, link, &sent.request, zxid)?;
    watches::watches_held(checkers, link, &sent.request, err)?;
    watches::watch_set(checkers, link, &sent.request, zxid, err);
    checkers.facts[link.0].last_reply = (zxid, is_logged);
    checkers.acked = checkers.acked.max(zxid.cast_unsigned());
    let incarnation = checkers.facts[link.0].incarnation;
    let acked_by = checkers.acked_by.entry(incarnation).or_default();
    *acked_by = (*acked_by).max(zxid.cast_unsigned());
    Ok(())
}

/// A session's view never goes back, and never shows an uncommitted state.
fn goes_on(checkers: &mut Checkers, link: LinkId, zxid: i64) -> Checked {
    let newest = checkers.model.zxid;
    let known = u64::try_from(zxid).is_ok_and(|zxid| zxid <= newest);
    require(known, "reads", || format!("header zxid {zxid:#x}, the last committed is {newest:#x}"))?;
    let session = checkers.facts[link.0].session;
    let seen = checkers.seen.entry(session).or_default();
    require(zxid >= *seen, "reads", || format!("session {session:#x} goes back from {seen:#x} to {zxid:#x}"))?;
    *seen = zxid;
    Ok(())
}
