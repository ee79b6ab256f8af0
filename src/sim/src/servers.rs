//! The ids of servers, and which servers are members.

use corral_consensus::{Membership, ServerId};

use crate::options::EnsembleOptions;

/// The id of the server at this place.
pub(crate) fn server_id(at: usize) -> ServerId {
    ServerId(u8::try_from(at + 1).expect("few servers"))
}

/// The place of the server with this id.
pub(crate) fn place_of(id: ServerId) -> usize {
    usize::from(id.0) - 1
}

/// Whether that server is one of the members; every server is, if `members` is `None`.
pub(crate) fn is_member(members: Option<&Membership>, at: usize) -> bool {
    members.is_none_or(|members| members.contains(server_id(at)))
}

/// The members of a new ensemble.
pub(crate) fn founders(ensemble: &EnsembleOptions) -> Membership {
    let ids: Vec<ServerId> = (0..ensemble.servers).map(server_id).collect();
    Membership::simple(&ids, &[])
}
