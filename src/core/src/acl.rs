//! Access control: who a connection is, what an ACL list may hold, and whether it grants (protocol chapter 17).

mod ids;

use crate::command::{AclSpec, Identity};
use crate::shared::Text;
use crate::view::NodeRef;
use crate::znode::{Acl, AclEntry};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use core::net::IpAddr;
use corral_wire::error::ErrorCode;
use ids::{ip_matches, ip_pattern, is_digest_id, is_distinguished_name, is_kerberos_name};
use sha1::{Digest, Sha1};

pub const READ: i32 = 1;
pub const WRITE: i32 = 2;
pub const CREATE: i32 = 4;
pub const DELETE: i32 = 8;
pub const ADMIN: i32 = 16;
pub const ALL: i32 = 31;

/// Entries of one ACL at most: every operation on the node may have to look at each, for each identity.
///
/// Not configurable, because it decides how the log is replayed.
pub const ENTRIES_MAX: usize = 256;

/// `user:` and the base64 of the SHA-1 of the whole `user:password`: the id that a digest auth packet proves.
///
/// Bytes that are not UTF-8 are replaced in the user part, as the Java server does; the hash covers the original bytes.
pub fn digest_id(credentials: &[u8]) -> String {
    let user = credentials.split(|b| *b == b':').next().unwrap_or_default();
    let hash = STANDARD.encode(Sha1::digest(credentials));
    format!("{}:{hash}", String::from_utf8_lossy(user))
}

/// Schemes that an ACL may name only if they are switched on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Schemes {
    pub sasl: bool,
    pub x509: bool,
}

/// Turns what a client sent into what is stored: duplicates dropped, `auth` expanded, every id checked.
///
/// # Errors
/// `InvalidAcl`, as `PrepRequestProcessor.fixupACL` decides; `MarshallingError` where that breaks off at a null id.
pub fn fix_up(spec: &AclSpec, identities: &[Identity], schemes: Schemes) -> Result<Acl, ErrorCode> {
    let sent = match spec {
        AclSpec::Open => return Ok(Acl::Open),
        AclSpec::Missing | AclSpec::Malformed => return Err(ErrorCode::InvalidAcl),
        AclSpec::List(list) | AclSpec::BrokenOff(list) if list.len() > ENTRIES_MAX => {
            return Err(ErrorCode::InvalidAcl);
        }
        AclSpec::List(list) | AclSpec::BrokenOff(list) => list,
    };
    let mut fixed: Vec<AclEntry> = Vec::with_capacity(sent.len());
    let mut seen = BTreeSet::new();
    for entry in sent {
        if !seen.insert(entry) {
            continue;
        }
        match &*entry.scheme {
            "world" if &*entry.id == "anyone" => fixed.push(entry.clone()),
            "auth" => expand_auth(entry.perms, identities, &mut fixed)?,
            "ip" if ip_pattern(&entry.id).is_some() => fixed.push(entry.clone()),
            "digest" if is_digest_id(&entry.id) => fixed.push(entry.clone()),
            "sasl" if schemes.sasl && is_kerberos_name(&entry.id) => fixed.push(entry.clone()),
            "x509" if schemes.x509 && is_distinguished_name(&entry.id) => fixed.push(entry.clone()),
            _ => return Err(ErrorCode::InvalidAcl),
        }
    }
    if matches!(spec, AclSpec::BrokenOff(_)) {
        return Err(ErrorCode::MarshallingError);
    }
    if fixed.is_empty() || fixed.len() > ENTRIES_MAX {
        return Err(ErrorCode::InvalidAcl);
    }
    Ok(Acl::List(Arc::new(fixed)))
}

fn expand_auth(perms: i32, identities: &[Identity], fixed: &mut Vec<AclEntry>) -> Result<(), ErrorCode> {
    let before = fixed.len();
    for identity in identities.iter().filter(|id| is_authenticated(&id.scheme)) {
        fixed.push(AclEntry { perms, scheme: identity.scheme.clone(), id: identity.id.clone() });
    }
    if fixed.len() == before { Err(ErrorCode::InvalidAcl) } else { Ok(()) }
}

/// Whether an identity of this scheme proves who somebody is: an address does not.
fn is_authenticated(scheme: &str) -> bool {
    matches!(scheme, "digest" | "sasl" | "x509")
}

/// Whether a list of (perms, scheme, id) grants any of the `wanted` permissions to a connection with these identities.
pub fn grants<'a>(
    entries: impl Iterator<Item = (i32, &'a str, &'a str)>,
    wanted: i32,
    identities: &[Identity],
) -> bool {
    if identities.iter().any(|identity| &*identity.scheme == "super") {
        return true;
    }
    let mut empty = true;
    for (perms, scheme, id) in entries {
        empty = false;
        if perms & wanted == 0 {
            continue;
        }
        let granted = match scheme {
            "world" => id == "anyone",
            "ip" => identities.iter().any(|who| &*who.scheme == "ip" && ip_matches(&who.id, id)),
            "sasl" => identities.iter().any(|who| &*who.scheme == "sasl" && (*who.id == *id || &*who.id == "super")),
            _ => identities.iter().any(|who| *who.scheme == *scheme && *who.id == *id),
        };
        if granted {
            return true;
        }
    }
    empty
}

/// Whether a znode grants any of the `wanted` permissions. Most are open to all, which is asked first.
pub fn allows(node: &NodeRef<'_>, wanted: i32, identities: &[Identity]) -> bool {
    node.is_open_acl() || grants(node.acl().iter(), wanted, identities)
}

/// The user name that whoAmI shows for an identity.
pub fn user_name(identity: &Identity) -> &str {
    match &*identity.scheme {
        "digest" => identity.id.split(':').next().unwrap_or_default(),
        _ => &identity.id,
    }
}

/// What getACL shows of a digest id to somebody without the ADMIN permission: `user:x`.
pub fn redact<'a>(scheme: &str, id: &'a str) -> (&'a str, &'static str) {
    match id.split_once(':') {
        Some((user, _)) if scheme == "digest" => (user, ":x"),
        _ => (id, ""),
    }
}

/// An address as ZooKeeper shows it, because Java does: all eight groups of an IPv6 address, none shortened.
pub fn address_text(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => format!("{address}"),
        IpAddr::V6(address) => {
            let groups: Vec<String> = address.segments().iter().map(|group| format!("{group:x}")).collect();
            groups.join(":")
        }
    }
}

/// Builds an identity.
pub fn identity(scheme: &str, id: &str) -> Identity {
    Identity { scheme: Text::from(scheme), id: Text::from(id) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const NO_MORE: Schemes = Schemes { sasl: false, x509: false };

    fn entry(perms: i32, scheme: &str, id: &str) -> AclEntry {
        AclEntry { perms, scheme: Text::from(scheme), id: Text::from(id) }
    }

    #[test]
    fn digests_as_zookeeper_computes_them() {
        assert_eq!(digest_id(b"super:superpw"), "super:g9oN2HttPfn8MMWJZ2r45Np/LIA=");
        assert_eq!(digest_id(b"user1:pass1"), "user1:+7K83PhyQ3ijGj0ADmljf0quVwQ=");
    }

    #[test]
    fn addresses_as_java_prints_them() {
        for (address, text) in
            [("10.0.0.1", "10.0.0.1"), ("::ffff:10.0.0.1", "10.0.0.1"), ("fe80::a:1", "fe80:0:0:0:0:0:a:1")]
        {
            assert_eq!(address_text(address.parse().expect("an address")), text);
        }
    }

    #[test]
    fn fix_up_by_data() {
        let me = [
            identity("ip", "127.0.0.1"),
            identity("digest", "a:h1"),
            identity("digest", "b:h2"),
            identity("super", ""),
        ];
        let check = |sent: Vec<AclEntry>, want: Option<Vec<AclEntry>>| {
            let got = fix_up(&AclSpec::List(sent.clone()), &me, NO_MORE).ok();
            assert_eq!(got, want.map(|list| Acl::List(Arc::new(list))), "{sent:?}");
        };
        let world = entry(31, "world", "anyone");
        check(vec![world.clone(), world.clone()], Some(vec![world.clone()]));
        check(vec![entry(1, "world", "someone")], None);
        check(vec![entry(63, "digest", "u:h")], Some(vec![entry(63, "digest", "u:h")]));
        check(vec![entry(1, "digest", ":h")], Some(vec![entry(1, "digest", ":h")]));
        check(vec![entry(1, "digest", "a:b:")], Some(vec![entry(1, "digest", "a:b:")]));
        for bad in ["u", "u:", "a:b:c", ""] {
            check(vec![entry(1, "digest", bad)], None);
        }
        for (good, id) in [
            (true, "10.0.0.0/8"),
            (true, "::1/128"),
            (false, "10.0.0.0/33"),
            (false, "x"),
            (true, "1.2.3.4"),
            (false, "1.2.3.4/"),
        ] {
            check(vec![entry(1, "ip", id)], good.then(|| vec![entry(1, "ip", id)]));
        }
        check(vec![entry(5, "auth", "")], Some(vec![entry(5, "digest", "a:h1"), entry(5, "digest", "b:h2")]));
        check(vec![entry(5, "super", "")], None);
        assert_eq!(fix_up(&AclSpec::List(vec![entry(5, "auth", "")]), &me[..1], NO_MORE), Err(ErrorCode::InvalidAcl));
        for (before, code) in [(world, ErrorCode::MarshallingError), (entry(1, "ip", "x"), ErrorCode::InvalidAcl)] {
            assert_eq!(fix_up(&AclSpec::BrokenOff(vec![before]), &me, NO_MORE), Err(code));
        }
    }

    #[test]
    fn a_list_has_a_limit_before_and_after_expansion() {
        let me = [identity("digest", "a:h1"), identity("digest", "b:h2")];
        let list =
            |count: usize| -> Vec<AclEntry> { (0..count).map(|at| entry(1, "digest", &format!("u:{at}"))).collect() };
        assert!(fix_up(&AclSpec::List(list(ENTRIES_MAX)), &me, NO_MORE).is_ok());
        assert_eq!(fix_up(&AclSpec::List(list(ENTRIES_MAX + 1)), &me, NO_MORE), Err(ErrorCode::InvalidAcl));
        let mut expanding = list(ENTRIES_MAX - 1);
        expanding.push(entry(1, "auth", ""));
        assert_eq!(fix_up(&AclSpec::List(expanding), &me, NO_MORE), Err(ErrorCode::InvalidAcl));
    }

    #[test]
    fn granting_by_data() {
        let me = [identity("ip", "10.1.2.3"), identity("digest", "a:h1")];
        let check = |perms, scheme, id, wanted, want| {
            assert_eq!(grants([(perms, scheme, id)].into_iter(), wanted, &me), want, "{scheme}:{id}");
        };
        check(1, "world", "anyone", READ, true);
        check(1, "world", "anyone", WRITE, false);
        check(31, "ip", "10.0.0.0/8", ADMIN, true);
        check(31, "ip", "11.0.0.0/8", ADMIN, false);
        check(31, "ip", "0.0.0.0/0", ADMIN, true);
        check(31, "ip", "::/0", ADMIN, false);
        check(2, "digest", "a:h1", WRITE | READ, true);
        check(2, "digest", "a:h2", WRITE, false);
        assert!(grants([(0, "world", "anyone")].into_iter(), READ, &[identity("super", "")]));
        assert!(grants(core::iter::empty(), READ, &me));
    }

    #[test]
    fn schemes_that_are_switched_on() {
        let check = |schemes, scheme, id, want| {
            let sent = AclSpec::List(vec![entry(1, scheme, id)]);
            assert_eq!(fix_up(&sent, &[], schemes).is_ok(), want, "{scheme}:{id}");
        };
        let all = Schemes { sasl: true, x509: true };
        for (scheme, good, bad) in [("sasl", "bob/host@REALM", "a@b@c"), ("x509", "CN=bob,O=x", "bob")] {
            check(all, scheme, good, true);
            check(all, scheme, bad, false);
            check(NO_MORE, scheme, good, false);
        }
        let grants_to =
            |who: &str, scheme: &str, id: &str| grants([(1, scheme, id)].into_iter(), READ, &[identity(scheme, who)]);
        assert!(
            grants_to("bob", "sasl", "bob") && grants_to("super", "sasl", "bob") && grants_to("CN=a", "x509", "CN=a")
        );
        assert!(
            !grants_to("eve", "sasl", "bob")
                && !grants_to("super", "x509", "bob")
                && !grants_to("CN=a", "x509", "cn=a")
        );
    }
}
