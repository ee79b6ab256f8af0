//! The membership in the model (protocol chapters 11.6 and 21): the data of `/zookeeper/config`, and the effects of a
//! client's change.
//!
//! Whether the ensemble goes over to a new list, and when, is the leader's word; what the list is then is said here.

use super::acl::{WRITE, allows};
use super::caller::Caller;
use super::errors::{BAD_ARGUMENTS, BAD_VERSION, MARSHALLING_ERROR, NO_AUTH, need};
use crate::reconfig::{Change, Seats};
use crate::request::AclItem;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct List {
    pub(crate) seats: Seats,
    pub(crate) version: u64,
}

/// The list that a client's change makes of this one, in ZooKeeper's order of checks. `acl` is that of the list's znode.
///
/// # Errors
/// The code of the refusal.
pub(super) fn next_list(
    list: &List,
    caller: &Caller<'_>,
    change: &Change,
    voters_min: usize,
    acl: &[AclItem],
) -> Result<Seats, i32> {
    need(change.from == -1 || change.from == list.version.cast_signed(), BAD_VERSION)?;
    let voters = |seats: &Seats| seats.values().filter(|seat| !seat.observer).count();
    let next = match &change.members {
        Some(members) => {
            let observers = members.len() - voters(members);
            match voters(members) {
                // ZooKeeper breaks off here.
                0 if voters_min <= 1 || observers > 0 => return Err(MARSHALLING_ERROR),
                1 if voters_min > 1 && observers > 0 => return Err(MARSHALLING_ERROR),
                _ => members.clone(),
            }
        }
        None => {
            let mut next = list.seats.clone();
            next.retain(|id, _| !change.leaving.contains(id));
            next.extend(change.joining.iter().copied());
            next
        }
    };
    need(voters(&next) >= voters_min, BAD_ARGUMENTS)?;
    need(allows(acl, WRITE, caller.identities), NO_AUTH)?;
    Ok(next)
}
