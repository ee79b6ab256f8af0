//! What an image of an ensemble's server keeps besides the tree: the membership, what was begun of a change of it, and the
//! generation, unless it is the first.

use corral_link::Generation;
use corral_members::Extra;

/// Before a generation; what begins otherwise is a membership of the first one.
const TAG_GENERATION: u8 = b'G';

/// For an image.
pub fn encode(ensemble: &Extra, generation: Generation) -> Vec<u8> {
    let mut extra = Vec::new();
    if generation != Generation::FIRST {
        extra.push(TAG_GENERATION);
        extra.extend_from_slice(&generation.0.to_le_bytes());
    }
    extra.append(&mut ensemble.encode());
    extra
}

/// Reads what [`encode`] wrote; every value is checked.
///
/// # Errors
/// What is wrong with it, in a few words.
pub fn decode(extra: &[u8]) -> Result<(Extra, Generation), &'static str> {
    let (generation, ensemble) = match extra {
        [TAG_GENERATION, rest @ ..] => {
            let (generation, ensemble) = rest.split_first_chunk().ok_or("its generation is cut off")?;
            (Generation(u64::from_le_bytes(*generation)), ensemble)
        }
        _ => (Generation::FIRST, extra),
    };
    if generation == Generation::NONE {
        return Err("it is of no generation");
    }
    Ok((Extra::decode(ensemble)?, generation))
}

#[cfg(test)]
mod tests {
    use super::*;
    use corral_consensus::{Membership, NodeId};

    #[test]
    fn what_an_image_keeps_comes_back() {
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
