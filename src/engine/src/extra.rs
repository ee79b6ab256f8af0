//! What a snapshot of an ensemble's server holds besides the tree: the membership, the membership change in progress, and
//! the generation, unless it is the first. To the snapshot format these are bytes.

use corral_members::{DecodeExtraError, Extra};
use corral_peer::Generation;

/// Why the bytes of a snapshot are not those of a membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExtraError {
    /// The bytes end within the generation.
    #[error("its generation is cut off")]
    TruncatedGeneration,
    /// The generation is that of a server without data.
    #[error("it is of no generation")]
    NoGeneration,
    /// The membership cannot be decoded.
    #[error(transparent)]
    Membership(#[from] DecodeExtraError),
}

/// Before a generation; what begins otherwise is a membership of the first one.
const TAG_GENERATION: u8 = b'G';

/// Encodes membership and generation for a snapshot.
#[must_use]
pub fn encode(ensemble: &Extra, generation: Generation) -> Vec<u8> {
    let mut extra = Vec::new();
    if generation != Generation::FIRST {
        extra.push(TAG_GENERATION);
        extra.extend_from_slice(&generation.0.to_le_bytes());
    }
    extra.append(&mut ensemble.encode());
    extra
}

/// Decodes what [`encode`] wrote; every value is checked.
///
/// # Errors
/// If the bytes are not what [`encode`] writes.
pub fn decode(extra: &[u8]) -> Result<(Extra, Generation), ExtraError> {
    let (generation, ensemble) = match extra {
        [TAG_GENERATION, rest @ ..] => {
            let (generation, ensemble) = rest.split_first_chunk().ok_or(ExtraError::TruncatedGeneration)?;
            (Generation(u64::from_le_bytes(*generation)), ensemble)
        }
        _ => (Generation::FIRST, extra),
    };
    if generation == Generation::NONE {
        return Err(ExtraError::NoGeneration);
    }
    Ok((Extra::decode(ensemble)?, generation))
}

#[cfg(test)]
mod tests {
    use super::*;
    use corral_consensus::{Membership, NodeId};

    #[test]
    fn what_a_snapshot_keeps_comes_back() {
        let members = Membership::simple(&[NodeId(1), NodeId(3)], &[NodeId(7)]);
        let ensemble = Extra::from(members.clone());
        for generation in [Generation::FIRST, Generation(1), Generation(u64::MAX - 1)] {
            let kept = encode(&ensemble, generation);
            assert_eq!(decode(&kept), Ok((ensemble.clone(), generation)));
            for end in 0..kept.len() {
                assert!(decode(&kept[..end]).is_err(), "cut at {end}");
            }
        }
        assert_eq!(encode(&ensemble, Generation::FIRST), members.encode());
        assert!(decode(&encode(&ensemble, Generation::NONE)).is_err());
    }
}
