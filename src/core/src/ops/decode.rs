//! The fields that several operations decode, and the refusals. The only place where a client's bytes are copied.

use crate::path;
use crate::shared::Text;
use crate::tree::acl::{AclEntry, AclSpec};
use alloc::vec::Vec;
use corral_wire::records::Acl;
use corral_wire::{DecodeError, Vector};

/// Why a request never becomes a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The record cannot be decoded: MARSHALLINGERROR.
    Undecodable,
    /// More operations than any budget allows: THROTTLEDOP.
    TooManyOps,
    /// Known to the protocol, not served here: UNIMPLEMENTED, and the connection ends.
    NotServed,
}

impl From<DecodeError> for Refused {
    fn from(_: DecodeError) -> Self {
        Self::Undecodable
    }
}

/// The path of one of Keeper's operations, which has no use for a null one.
pub(crate) fn required(path: Option<&str>) -> Result<Text, Refused> {
    path.map(Text::from).ok_or(Refused::Undecodable)
}

/// A path as sent. A null one becomes [`path::NULL`].
pub(crate) fn text(path: Option<&str>) -> Text {
    Text::from(path.unwrap_or(path::NULL))
}

/// An ACL as sent.
pub(crate) fn acl_spec(sent: Option<Vector<'_, Acl<'_>>>) -> AclSpec {
    let Some(sent) = sent.filter(|list| !list.is_empty()) else { return AclSpec::Missing };
    if sent == Acl::OPEN_ACL_UNSAFE {
        return AclSpec::Open;
    }
    let mut list = Vec::with_capacity(sent.len());
    for acl in sent.iter() {
        // The id of `auth` is not looked at; kazoo sends null there.
        let id = if acl.scheme == Some("auth") { Some(acl.id.unwrap_or_default()) } else { acl.id };
        let Some(scheme) = acl.scheme else { return AclSpec::Malformed };
        let Some(id) = id else { return AclSpec::BrokenOff(list) };
        list.push(AclEntry { perms: acl.perms, scheme: Text::from(scheme), id: Text::from(id) });
    }
    AclSpec::List(list)
}
