//! Permissions of clients (protocol chapter 17), for the few schemes that simulated clients use.

use std::net::IpAddr;

use crate::request::AclItem;

pub(crate) const READ: i32 = 1;
pub(crate) const WRITE: i32 = 2;
pub(crate) const CREATE: i32 = 4;
pub(crate) const DELETE: i32 = 8;
pub(crate) const ADMIN: i32 = 16;

/// Credentials of the superuser, and the identity that they prove.
pub(crate) const SUPER: &str = "super:sesame";
pub(crate) const SUPER_ID: &str = "super:vj2Twc2lQjSrH72zpcKdVtrT1Pc=";

/// A proven identity: scheme and id.
pub(crate) type Identity = (String, String);

/// The id that a client proves with these credentials; the digests were computed elsewhere.
///
/// # Panics
/// For credentials that no simulated client has.
pub(crate) fn digest_id(credentials: &str) -> &'static str {
    match credentials {
        "ann:apple" => "ann:6q+u+bEVJTdGGyG40XXuyaDlxCA=",
        "bob:berry" => "bob:mrR6qjBZtUx4tq2fut24AGeVGbI=",
        SUPER => SUPER_ID,
        other => unreachable!("{other:?} is nobody's"),
    }
}

/// Whether an ACL grants any of the wanted permissions (protocol chapter 17.4).
pub(crate) fn allows(acl: &[AclItem], wanted: i32, identities: &[Identity]) -> bool {
    let names = |entry: &AclItem| match entry.scheme.as_str() {
        "world" => entry.id == "anyone",
        scheme => identities.iter().filter(|who| who.0 == scheme).any(|(_, id)| match scheme {
            "ip" => is_within(id, &entry.id) == Some(true),
            "sasl" => *id == entry.id || id == "super",
            _ => *id == entry.id,
        }),
    };
    identities.iter().any(|(scheme, _)| scheme == "super")
        || acl.is_empty()
        || acl.iter().any(|entry| entry.perms & wanted != 0 && names(entry))
}

/// Whether an address is in a network, bit by bit. `None` where the answer depends on how Java reads an address that is
/// written oddly.
pub(crate) fn is_within(address: &str, network: &str) -> Option<bool> {
    let bits_of = |text: &str| -> Option<Vec<bool>> {
        let octets = match text.parse::<IpAddr>().ok()? {
            IpAddr::V4(four) => four.octets().to_vec(),
            IpAddr::V6(_) if text.contains('.') => return None,
            IpAddr::V6(six) => six.octets().to_vec(),
        };
        Some(octets.iter().flat_map(|octet| (0..8).map(move |at| octet >> (7 - at) & 1 == 1)).collect())
    };
    let (network, count) = network.split_once('/').map_or((network, None), |(network, count)| (network, Some(count)));
    let (network, address) = (bits_of(network)?, bits_of(address)?);
    let count = match count.map(str::parse::<i32>) {
        None => network.len(),
        Some(count) => match count.ok().and_then(|count| usize::try_from(count).ok()) {
            Some(count) if count <= network.len() => count,
            _ => return Some(false),
        },
    };
    Some(network.len() == address.len() && network[..count] == address[..count])
}

/// The limits on a list, as the documentation has them.
const ENTRIES_MAX: usize = 256;
const BYTES_MAX: usize = 32 << 10;

/// The ACL as it is stored (protocol chapter 17.3). `None` is INVALIDACL.
pub(super) fn fixed_up(sent: &[AclItem], identities: &[Identity]) -> Option<Vec<AclItem>> {
    let mut unique: Vec<&AclItem> = Vec::new();
    for entry in sent {
        if !unique.contains(&entry) {
            unique.push(entry);
        }
    }
    let mut fixed = Vec::new();
    for entry in unique {
        match entry.scheme.as_str() {
            "world" if entry.id == "anyone" => fixed.push(entry.clone()),
            "auth" => {
                let mut proven = identities.iter().filter(|(scheme, _)| scheme == "digest").peekable();
                proven.peek()?;
                fixed.extend(proven.map(|(scheme, id)| AclItem::new(entry.perms, scheme, id)));
            }
            "digest" if entry.id.split(':').filter(|part| !part.is_empty()).count() == 2 => fixed.push(entry.clone()),
            "ip" if entry.id.parse::<std::net::Ipv4Addr>().is_ok() => fixed.push(entry.clone()),
            _ => return None,
        }
    }
    let bytes: usize = fixed.iter().map(|entry| entry.scheme.len() + entry.id.len()).sum();
    let fits = sent.len().max(fixed.len()) <= ENTRIES_MAX && bytes <= BYTES_MAX;
    (fits && !fixed.is_empty()).then_some(fixed)
}

/// An entry of getACL as a client without the ADMIN permission sees it (protocol chapter 12.1).
pub(crate) fn redacted(entry: &AclItem) -> AclItem {
    match entry.id.split_once(':') {
        Some((user, _)) if entry.scheme == "digest" => AclItem::new(entry.perms, "digest", &format!("{user}:x")),
        _ => entry.clone(),
    }
}
