//! Hash functions of the scheme `digest`.
//!
//! Pure.

use corral_core::tree::acl::{self, DigestHash};
use sha2::{Digest as _, Sha256, Sha384, Sha512};
use sha3::{Sha3_256, Sha3_512};

use crate::config::value::DigestAlgorithm;

/// The function of an algorithm.
pub(crate) fn hash(algorithm: DigestAlgorithm) -> DigestHash {
    match algorithm {
        DigestAlgorithm::Sha1 => acl::sha1,
        DigestAlgorithm::Sha256 => |bytes| Sha256::digest(bytes).to_vec(),
        DigestAlgorithm::Sha384 => |bytes| Sha384::digest(bytes).to_vec(),
        DigestAlgorithm::Sha512 => |bytes| Sha512::digest(bytes).to_vec(),
        DigestAlgorithm::Sha3_256 => |bytes| Sha3_256::digest(bytes).to_vec(),
        DigestAlgorithm::Sha3_512 => |bytes| Sha3_512::digest(bytes).to_vec(),
    }
}
