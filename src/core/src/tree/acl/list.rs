//! An ACL list as it is stored: the entries, and a form of them for checks, computed once.

use super::entry::{AclEntry, Identity};
use super::ids::{ip_address, ip_pattern};
use crate::cost;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::ops::Deref;
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Immutable. Equal when the entries are.
#[derive(Clone, Debug, Default)]
pub struct AclList {
    entries: Arc<Vec<AclEntry>>,
    /// All that a check reads of an entry that is of no use to the connection.
    grants: Box<[Grant]>,
}

/// The permissions of an entry, and its subject.
#[derive(Clone, Copy, Debug)]
struct Grant {
    perms: i32,
    subject: Subject,
}

/// A list that no cache holds is fetched for its check: 6 KB of 255 entries, in their order.
const _: () = assert!(size_of::<Grant>() <= 24, "a grant is small");

/// The connections that an entry applies to.
#[derive(Clone, Copy, Debug)]
enum Subject {
    Anyone,
    /// An id that matches no connection.
    NoConnection,
    /// Addresses that share the leading bits.
    Network(IpAddr, u8),
    /// The identity of the same scheme and id, by the hash of both, as bytes that need no alignment. The SASL superuser is any
    /// of that scheme.
    Exactly([u8; 8]),
}

impl Subject {
    fn of(entry: &AclEntry) -> Self {
        match &*entry.scheme {
            "world" if &*entry.id == "anyone" => Self::Anyone,
            "world" => Self::NoConnection,
            "ip" => ip_pattern(&entry.id).map_or(Self::NoConnection, |(network, bits)| Self::Network(network, bits)),
            scheme => Self::Exactly(hash_of(scheme, &entry.id).to_ne_bytes()),
        }
    }
}

impl From<Arc<Vec<AclEntry>>> for AclList {
    fn from(entries: Arc<Vec<AclEntry>>) -> Self {
        let grants = entries.iter().map(|entry| Grant { perms: entry.perms, subject: Subject::of(entry) }).collect();
        Self { entries, grants }
    }
}

impl From<Vec<AclEntry>> for AclList {
    fn from(entries: Vec<AclEntry>) -> Self {
        Self::from(Arc::new(entries))
    }
}

impl Deref for AclList {
    type Target = [AclEntry];
    fn deref(&self) -> &[AclEntry] {
        &self.entries
    }
}

impl PartialEq for AclList {
    fn eq(&self, other: &Self) -> bool {
        self.entries == other.entries
    }
}

impl Eq for AclList {}

impl AclList {
    /// The entries' own allocation.
    pub const fn entries(&self) -> &Arc<Vec<AclEntry>> {
        &self.entries
    }

    /// Whether the list grants any of the `wanted` permissions to a connection with these identities.
    ///
    /// Takes at most [`AclList::cost`], and far less where both are many. An entry finds its identity among their
    /// sorted hashes, and texts are compared only where hashes agree.
    pub fn grants(&self, wanted: i32, identities: &[Identity]) -> bool {
        if self.entries.is_empty() {
            return true;
        }
        let mut hashes: SmallVec<[u64; 4]> = SmallVec::new();
        let mut addresses: SmallVec<[IpAddr; 1]> = SmallVec::new();
        let mut is_sasl_super = false;
        for Identity { scheme, id } in identities {
            match &**scheme {
                "super" => return true,
                "ip" => addresses.extend(ip_address(id)),
                scheme => {
                    is_sasl_super |= scheme == "sasl" && &**id == "super";
                    hashes.push(hash_of(scheme, id));
                }
            }
        }
        hashes.sort_unstable();
        let is_sasl = |at: usize| self.entries.get(at).is_some_and(|entry| &*entry.scheme == "sasl");
        let is_proven = |at: usize| {
            let is = |entry: &AclEntry, who: &Identity| who.id == entry.id && who.scheme == entry.scheme;
            self.entries.get(at).is_some_and(|entry| identities.iter().any(|who| is(entry, who)))
        };
        self.grants.iter().enumerate().any(|(at, Grant { perms, subject })| {
            perms & wanted != 0
                && match *subject {
                    Subject::Anyone => true,
                    Subject::NoConnection => false,
                    Subject::Network(network, bits) => addresses.iter().any(|address| lies_in(*address, network, bits)),
                    Subject::Exactly(hash) => {
                        let is_known = hashes.binary_search(&u64::from_ne_bytes(hash)).is_ok();
                        (is_sasl_super && is_sasl(at)) || (is_known && is_proven(at))
                    }
                }
        })
    }

    /// Returns the most that a check costs, in units of [`cost`].
    pub fn cost(&self, identities: &[Identity]) -> u64 {
        let bytes: usize = identities.iter().map(|who| who.scheme.len() + who.id.len()).sum();
        self.entries.len() as u64 * identities.len() as u64 * cost::ACL_ENTRY + cost::bytes(bytes)
    }
}

fn hash_of(scheme: &str, id: &str) -> u64 {
    xxh3_64_with_seed(id.as_bytes(), scheme.len() as u64)
}

/// Whether the leading bits are the same. An IPv4 and an IPv6 address never match.
fn lies_in(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            network.to_bits() & mask == address.to_bits() & mask
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            network.to_bits() & mask == address.to_bits() & mask
        }
        _ => false,
    }
}

/// A znode's ACL. Nearly all nodes are open, so that case costs nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acl {
    /// Exactly `world:anyone` with all permissions (31).
    Open,
    /// Any other list. Clients see its entries in this order.
    List(Arc<AclList>),
}
