//! Who may do what (protocol chapter 17), for the few schemes that simulated clients use.

use crate::request::AclItem;

pub(crate) const READ: i32 = 1;
pub(crate) const WRITE: i32 = 2;
pub(crate) const CREATE: i32 = 4;
pub(crate) const DELETE: i32 = 8;
pub(crate) const ADMIN: i32 = 16;

/// Credentials of the one who may do everything, and what they prove.
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
    identities.iter().any(|(scheme, _)| scheme == "super")
        || acl.is_empty()
        || acl.iter().any(|entry| {
            entry.perms & wanted != 0
                && ((entry.scheme == "world" && entry.id == "anyone")
                    || identities.iter().any(|(scheme, id)| *scheme == entry.scheme && *id == entry.id))
        })
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

/// What getACL shows to somebody without the ADMIN permission (protocol chapter 12.1).
pub(crate) fn redacted(entry: &AclItem) -> AclItem {
    match entry.id.split_once(':') {
        Some((user, _)) if entry.scheme == "digest" => AclItem::new(entry.perms, "digest", &format!("{user}:x")),
        _ => entry.clone(),
    }
}
