//! Access control: identities of a connection, valid ACL lists, and permission checks (protocol chapter 17).

mod entry;
mod ids;
mod list;

pub use entry::{AclEntry, AclSpec, ArchivedAclEntry, Identity};
pub use list::{Acl, AclList};

use crate::cost;
use crate::shared::Text;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use core::net::IpAddr;
use corral_wire::error::ErrorCode;
use ids::{ip_pattern, is_digest_id, is_distinguished_name, is_kerberos_name};
use sha1::{Digest, Sha1};

/// Permission to read a znode's data and list its children. All bits are those of ZooKeeper's `ZooDefs.Perms`.
pub const READ: i32 = 1;
/// Permission to set a znode's data.
pub const WRITE: i32 = 2;
/// Permission to create children of a znode.
pub const CREATE: i32 = 4;
/// Permission to delete children of a znode.
pub const DELETE: i32 = 8;
/// Permission to set a znode's ACL, and to see the hashes of digest ids in it.
pub const ADMIN: i32 = 16;
/// All five permissions.
pub const ALL: i32 = 31;

/// Entries of one ACL at most: every operation on the node may have to look at each, for each identity.
///
/// Neither this nor the other limits on ACLs can be configured, because they decide how the log is replayed.
pub const ENTRIES_MAX: usize = 256;
/// Bytes of all schemes and ids of one ACL, `auth` entries replaced by the identities that they stand for.
pub const BYTES_MAX: usize = 32 << 10;
/// Bytes that `auth` entries may bring into one ACL: a few bytes sent must not become many that are kept.
pub const AUTH_BYTES_MAX: usize = 4 << 10;
/// Bytes of an id of the scheme `ip`: the longest address with its length takes 43.
pub const IP_BYTES_MAX: usize = 64;

/// Most cost of storing an ACL.
pub(crate) const STORED_COST: u64 = cost::bytes(BYTES_MAX) + ENTRIES_MAX as u64 * cost::NAME;

/// The most that storing this ACL costs.
pub(crate) fn stored_cost(sent: &AclSpec) -> u64 {
    if *sent == AclSpec::Open { 0 } else { STORED_COST }
}

/// A hash function for digests.
pub type DigestHash = fn(&[u8]) -> Vec<u8>;

/// The hash of digests unless another is configured.
pub fn sha1(bytes: &[u8]) -> Vec<u8> {
    Sha1::digest(bytes).to_vec()
}

/// `user:` and the base64 of the hash of the whole `user:password`: the id that a digest auth packet proves.
///
/// Bytes that are not UTF-8 are replaced before the hash is made, as the Java server does.
pub fn digest_id(credentials: &[u8], hash: DigestHash) -> String {
    let credentials = String::from_utf8_lossy(credentials);
    let user = credentials.split(':').next().unwrap_or_default();
    format!("{user}:{}", STANDARD.encode(hash(credentials.as_bytes())))
}

/// Schemes that an ACL may name only if they are switched on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Schemes {
    /// Whether ACLs may name the scheme `sasl`.
    pub sasl: bool,
    /// Whether ACLs may name the scheme `x509`.
    pub x509: bool,
}

/// Turns what a client sent into what is stored: duplicates dropped, `auth` expanded, every id checked. `bounded`: by the
/// limits on bytes too, which log entries of former versions do not know.
///
/// # Errors
/// `InvalidAcl`, as `PrepRequestProcessor.fixupACL` decides, and beyond a limit; `MarshallingError` where that breaks off at a
/// null id.
pub fn fix_up(spec: &AclSpec, identities: &[Identity], schemes: Schemes, bounded: bool) -> Result<Acl, ErrorCode> {
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
    let mut auth_bytes = 0;
    for entry in sent {
        if !seen.insert(entry) {
            continue;
        }
        match &*entry.scheme {
            "world" if &*entry.id == "anyone" => fixed.push(entry.clone()),
            "auth" => {
                let before = fixed.len();
                expand_auth(entry.perms, identities, &mut fixed)?;
                auth_bytes += text_bytes(&fixed[before..]);
            }
            "ip" if (!bounded || entry.id.len() <= IP_BYTES_MAX) && ip_pattern(&entry.id).is_some() => {
                fixed.push(entry.clone())
            }
            "digest" if is_digest_id(&entry.id) => fixed.push(entry.clone()),
            "sasl" if schemes.sasl && is_kerberos_name(&entry.id) => fixed.push(entry.clone()),
            "x509" if schemes.x509 && is_distinguished_name(&entry.id) => fixed.push(entry.clone()),
            _ => return Err(ErrorCode::InvalidAcl),
        }
    }
    if matches!(spec, AclSpec::BrokenOff(_)) {
        return Err(ErrorCode::MarshallingError);
    }
    let too_long = text_bytes(&fixed) > BYTES_MAX || auth_bytes > AUTH_BYTES_MAX;
    if fixed.is_empty() || fixed.len() > ENTRIES_MAX || (bounded && too_long) {
        return Err(ErrorCode::InvalidAcl);
    }
    Ok(Acl::List(Arc::new(AclList::from(fixed))))
}

/// Bytes of the schemes and ids of these entries.
pub fn text_bytes(list: &[AclEntry]) -> usize {
    list.iter().map(|entry| entry.scheme.len() + entry.id.len()).sum()
}

fn expand_auth(perms: i32, identities: &[Identity], fixed: &mut Vec<AclEntry>) -> Result<(), ErrorCode> {
    let proven = || identities.iter().filter(|identity| is_authenticated(&identity.scheme));
    if proven().next().is_none() {
        return Err(ErrorCode::InvalidAcl);
    }
    // A list beyond the limit is refused: one more entry than it may hold is enough for that.
    for identity in proven().take((ENTRIES_MAX + 1).saturating_sub(fixed.len())) {
        fixed.push(AclEntry { perms, scheme: identity.scheme.clone(), id: identity.id.clone() });
    }
    Ok(())
}

/// The SASL user of ZooKeeper's `letAnySaslUserDoX`. Every connection with a SASL user has its rights in ACLs, but is not this user.
#[derive(Clone, Debug)]
pub struct AnySaslUser(Identity);

impl AnySaslUser {
    /// The user with this name.
    pub fn named(name: &str) -> Self {
        Self(identity("sasl", name))
    }

    /// The identity that gives a connection these rights.
    pub(crate) fn identity(&self) -> Identity {
        self.0.clone()
    }

    /// Whether this is that identity, and none that the connection proved.
    fn is(&self, identity: &Identity) -> bool {
        Arc::ptr_eq(&self.0.id.0, &identity.id.0)
    }
}

/// The identities of a connection that it proved.
pub(crate) fn proven<'i>(identities: &'i [Identity], any: Option<&AnySaslUser>) -> impl Iterator<Item = &'i Identity> {
    identities.iter().filter(move |identity| any.is_none_or(|any| !any.is(identity)))
}

/// Replaces the `auth` entries of a sent ACL by the identities that the connection proved, as its evaluation would replace them.
pub(crate) fn expand_proven(spec: &mut AclSpec, identities: &[Identity], any: &AnySaslUser) {
    let (AclSpec::List(sent) | AclSpec::BrokenOff(sent)) = spec else { return };
    if sent.iter().all(|entry| &*entry.scheme != "auth") {
        return;
    }
    let own: Vec<Identity> = proven(identities, Some(any)).cloned().collect();
    let mut expanded = Vec::new();
    for entry in sent.iter() {
        if &*entry.scheme != "auth" {
            expanded.push(entry.clone());
        } else if expand_auth(entry.perms, &own, &mut expanded).is_err() {
            *spec = AclSpec::Malformed;
            return;
        }
    }
    *sent = expanded;
}

/// Whether an identity of this scheme is authenticated: an address is not.
fn is_authenticated(scheme: &str) -> bool {
    matches!(scheme, "digest" | "sasl" | "x509")
}

/// The user name that whoAmI shows for an identity.
pub fn user_name(identity: &Identity) -> &str {
    match &*identity.scheme {
        "digest" => identity.id.split(':').next().unwrap_or_default(),
        _ => &identity.id,
    }
}

/// Returns a digest id as getACL shows it to a client without the ADMIN permission: `user:x`.
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

/// An entry that grants nothing.
pub(crate) fn without_rights() -> AclEntry {
    AclEntry { perms: 0, scheme: Text::from("world"), id: Text::from("anyone") }
}

/// Builds an identity.
pub fn identity(scheme: &str, id: &str) -> Identity {
    Identity { scheme: Text::from(scheme), id: Text::from(id) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost;
    use alloc::vec;

    const NO_MORE: Schemes = Schemes { sasl: false, x509: false };

    fn entry(perms: i32, scheme: &str, id: &str) -> AclEntry {
        AclEntry { perms, scheme: Text::from(scheme), id: Text::from(id) }
    }

    #[test]
    fn digests_as_zookeeper_computes_them() {
        assert_eq!(digest_id(b"super:superpw", sha1), "super:g9oN2HttPfn8MMWJZ2r45Np/LIA=");
        assert_eq!(digest_id(b"user1:pass1", sha1), "user1:+7K83PhyQ3ijGj0ADmljf0quVwQ=");
        assert_eq!(digest_id(b"kim:p\xe9w", sha1), digest_id("kim:p\u{fffd}w".as_bytes(), sha1));
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
            let got = fix_up(&AclSpec::List(sent.clone()), &me, NO_MORE, true).ok();
            assert_eq!(got, want.map(|list| Acl::List(Arc::new(AclList::from(list)))), "{sent:?}");
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
        // Each entry stands for all identities, as in ZooKeeper.
        let by_two = [(1, "a:h1"), (1, "b:h2"), (4, "a:h1"), (4, "b:h2")].map(|(perms, id)| entry(perms, "digest", id));
        check(vec![entry(1, "auth", ""), entry(4, "auth", "")], Some(by_two.to_vec()));
        check(vec![entry(5, "super", "")], None);
        assert_eq!(
            fix_up(&AclSpec::List(vec![entry(5, "auth", "")]), &me[..1], NO_MORE, true),
            Err(ErrorCode::InvalidAcl)
        );
        for (before, code) in [(world, ErrorCode::MarshallingError), (entry(1, "ip", "x"), ErrorCode::InvalidAcl)] {
            assert_eq!(fix_up(&AclSpec::BrokenOff(vec![before]), &me, NO_MORE, true), Err(code));
        }
    }

    #[test]
    fn a_list_has_a_limit_before_and_after_expansion() {
        let me = [identity("digest", "a:h1"), identity("digest", "b:h2")];
        let list =
            |count: usize| -> Vec<AclEntry> { (0..count).map(|at| entry(1, "digest", &format!("u:{at}"))).collect() };
        assert!(fix_up(&AclSpec::List(list(ENTRIES_MAX)), &me, NO_MORE, true).is_ok());
        assert_eq!(fix_up(&AclSpec::List(list(ENTRIES_MAX + 1)), &me, NO_MORE, true), Err(ErrorCode::InvalidAcl));
        let mut expanding = list(ENTRIES_MAX - 1);
        expanding.push(entry(1, "auth", ""));
        assert_eq!(fix_up(&AclSpec::List(expanding), &me, NO_MORE, true), Err(ErrorCode::InvalidAcl));
    }

    #[test]
    fn many_identities_are_not_copied_for_each_wish() {
        let many = vec![identity("digest", ""); 10 * ENTRIES_MAX];
        let mut fixed = Vec::new();
        for perms in 0..10 {
            assert_eq!(expand_auth(perms, &many, &mut fixed), Ok(()));
        }
        assert_eq!(fixed.len(), ENTRIES_MAX + 1);
        assert_eq!(expand_auth(1, &[identity("ip", "::1")], &mut fixed), Err(ErrorCode::InvalidAcl));
        let wish = vec![entry(1, "auth", "")];
        let fixed = |spec| fix_up(&spec, &many, NO_MORE, true);
        assert_eq!(fixed(AclSpec::List(wish.clone())), Err(ErrorCode::InvalidAcl));
        assert_eq!(fixed(AclSpec::BrokenOff(wish)), Err(ErrorCode::MarshallingError));
    }

    #[test]
    fn a_list_has_a_limit_in_bytes_before_and_after_expansion() {
        let id = |length: usize| format!("u:{}", "h".repeat(length - 2));
        let me = [identity("digest", &id(AUTH_BYTES_MAX / 4))];
        let one = |length: usize| vec![entry(1, "digest", &id(length))];
        let fixed = |list: Vec<AclEntry>, bounded| fix_up(&AclSpec::List(list), &me, NO_MORE, bounded).is_ok();
        let most = BYTES_MAX - "digest".len();
        assert!(fixed(one(most), true) && !fixed(one(most + 1), true) && fixed(one(most + 1), false));
        let wishes = |count: i32| (1..=count).map(|perms| entry(perms, "auth", "")).collect();
        assert!(fixed(wishes(3), true) && !fixed(wishes(4), true) && fixed(wishes(4), false));
    }

    #[test]
    fn an_address_pattern_has_a_limit_in_bytes() {
        let padded = |length: usize| format!("10.0.0.1/{}32", "0".repeat(length - "10.0.0.1/32".len()));
        for (length, bounded, want) in
            [(IP_BYTES_MAX, true, true), (IP_BYTES_MAX + 1, true, false), (3900, true, false), (3900, false, true)]
        {
            let sent = AclSpec::List(vec![entry(1, "ip", &padded(length))]);
            assert_eq!(fix_up(&sent, &[], NO_MORE, bounded).is_ok(), want, "{length} {bounded}");
        }
    }

    #[test]
    fn what_a_check_costs_goes_by_entries_and_identities() {
        let me = [identity("ip", "10.1.2.3"), identity("digest", "a:h1")];
        let list = AclList::from(vec![entry(1, "digest", &"x".repeat(8000)), entry(1, "ip", "10.0.0.0/8")]);
        let bytes = "ip10.1.2.3digesta:h1".len();
        assert_eq!((list.cost(&me), list.cost(&[])), (4 * cost::ACL_ENTRY + cost::bytes(bytes), 0));
    }

    #[test]
    fn granting_by_data() {
        let me = [identity("ip", "10.1.2.3"), identity("digest", "a:h1")];
        let check = |perms, scheme, id, wanted, want| {
            let list = AclList::from(vec![entry(perms, scheme, id)]);
            assert_eq!(list.grants(wanted, &me), want, "{scheme}:{id}");
        };
        check(1, "world", "anyone", READ, true);
        check(1, "world", "anyone", WRITE, false);
        check(31, "ip", "10.0.0.0/8", ADMIN, true);
        check(31, "ip", "11.0.0.0/8", ADMIN, false);
        check(31, "ip", "0.0.0.0/0", ADMIN, true);
        check(31, "ip", "::/0", ADMIN, false);
        check(2, "digest", "a:h1", WRITE | READ, true);
        check(2, "digest", "a:h2", WRITE, false);
        let nothing = AclList::from(vec![entry(0, "world", "anyone")]);
        assert!(nothing.grants(READ, &[identity("super", "")]) && !nothing.grants(READ, &me));
        assert!(AclList::default().grants(READ, &me));
    }

    #[test]
    fn what_patterns_match() {
        for (address, pattern, want) in [
            ("10.1.2.3", "10.0.0.0/8", true),
            ("10.1.2.3", "10.1.2.3", true),
            ("10.1.2.3", "11.0.0.0/8", false),
            ("10.1.2.3", "0.0.0.0/0", true),
            ("10.1.2.3", "::/0", false),
            ("0:0:0:0:0:0:0:1", "::1", true),
            ("0:0:0:0:0:0:0:1", "::2/126", true),
            ("0:0:0:0:0:0:0:1", "::2/127", false),
            ("fe80:0:0:0:0:0:a:1", "fe80::/10", true),
            ("0:0:0:0:0:0:0:1", "0.0.0.0/0", false),
            ("0:0:0:0:0:0:0:ffff", "::-1", true),
            ("nonsense", "0.0.0.0/0", false),
        ] {
            let list = AclList::from(vec![entry(READ, "ip", pattern)]);
            assert_eq!(list.grants(READ, &[identity("ip", address)]), want, "{address} in {pattern}");
        }
    }

    #[test]
    fn schemes_that_are_switched_on() {
        let check = |schemes, scheme, id, want| {
            let sent = AclSpec::List(vec![entry(1, scheme, id)]);
            assert_eq!(fix_up(&sent, &[], schemes, true).is_ok(), want, "{scheme}:{id}");
        };
        let all = Schemes { sasl: true, x509: true };
        for (scheme, good, bad) in [("sasl", "bob/host@REALM", "a@b@c"), ("x509", "CN=bob,O=x", "bob")] {
            check(all, scheme, good, true);
            check(all, scheme, bad, false);
            check(NO_MORE, scheme, good, false);
        }
        let grants_to = |who: &str, scheme: &str, id: &str| {
            AclList::from(vec![entry(1, scheme, id)]).grants(READ, &[identity(scheme, who)])
        };
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
