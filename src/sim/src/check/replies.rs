//! Replies: exactly one for each request, in order, on each connection (protocol chapter 4.3).
//!
//! The order itself is held by the client: a reply must carry the xid of its oldest unanswered request, and end where
//! its record ends. Here stand the replies that say nothing about the tree.

use super::Checkers;
use crate::violation::{Checked, require};

const UNIMPLEMENTED: i32 = -6;

/// The reply to an operation nobody knows.
pub(super) fn refused(zxid: i64, err: i32) -> Checked {
    require(zxid == -1 && err == UNIMPLEMENTED, "replies", || format!("unknown operation: zxid {zxid:#x}, err {err}"))
}

impl Checkers {
    /// The reply to a good auth packet: zxid 0, no error (protocol chapter 17.6).
    pub(crate) fn authenticated(&self, zxid: i64, err: i32) -> Checked {
        require(zxid == 0 && err == 0, "replies", || format!("auth: zxid {zxid:#x}, err {err}"))
    }
}
