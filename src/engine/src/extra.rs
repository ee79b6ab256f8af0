//! The part of a snapshot that only servers of an ensemble have, beside the tree. To the snapshot format these are
//! bytes:
//!
//! 1. The generation, behind a tag, unless it is the first.
//! 2. A tag, if the log had entries with `features::ADMITTED`.
//! 3. The id of the ensemble behind a tag, if it is known.
//! 4. The membership.
//! 5. The membership change in progress, if there is one: a change that needs a server which lags behind the leader's log
//!    in memory could not end otherwise.

use corral_consensus::{Membership, RaftNode};
use corral_core::apply::{Begun, EnsembleId, StateMachine};
use corral_peer::Generation;

/// Generation, members and the membership change in progress, at one log index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extra {
    /// The generation of the data.
    pub generation: Generation,
    /// An entry with `features::ADMITTED` was applied.
    pub has_admitted: bool,
    /// Which ensemble the data are of.
    pub ensemble_id: Option<EnsembleId>,
    /// The members in force.
    pub members: Membership,
    /// The membership change that was begun and has not ended.
    pub begun: Option<Begun>,
}

/// Before a generation; what begins otherwise is of the first one.
const TAG_GENERATION: u8 = b'G';
/// Before the membership, if an entry with `features::ADMITTED` was applied.
const TAG_ADMITTED: u8 = b'A';
/// Before the id of the ensemble.
const TAG_ENSEMBLE_ID: u8 = b'E';

impl Extra {
    /// Of an ensemble with these members, without a membership change in progress.
    #[must_use]
    pub fn new(members: Membership, generation: Generation) -> Extra {
        Extra { generation, has_admitted: false, ensemble_id: None, members, begun: None }
    }

    /// Of a server with this state. Of an uninitialised server the founders are the members.
    #[must_use]
    pub fn of(raft: &RaftNode, state: &StateMachine, generation: Generation) -> Extra {
        let members = raft.founders().unwrap_or_else(|| raft.membership());
        let (has_admitted, ensemble_id) = (state.has_admitted(), state.ensemble_id());
        Extra { generation, has_admitted, ensemble_id, members, begun: state.begun().cloned() }
    }

    /// Encodes it for a snapshot.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if self.generation != Generation::FIRST {
            out.push(TAG_GENERATION);
            out.extend_from_slice(&self.generation.0.to_le_bytes());
        }
        if self.has_admitted {
            out.push(TAG_ADMITTED);
        }
        if let Some(EnsembleId(ensemble_id)) = self.ensemble_id {
            out.push(TAG_ENSEMBLE_ID);
            out.extend_from_slice(&ensemble_id.to_le_bytes());
        }
        out.extend(self.members.encode());
        out.extend(self.begun.iter().flat_map(Begun::encode));
        out
    }

    /// Decodes what [`Extra::encode`] wrote; every value is checked.
    ///
    /// # Errors
    /// If the bytes are not what [`Extra::encode`] writes.
    pub fn decode(extra: &[u8]) -> Result<Extra, ExtraError> {
        let (generation, extra) = tagged(TAG_GENERATION, extra).ok_or(ExtraError::TruncatedGeneration)?;
        let generation = generation.map_or(Generation::FIRST, Generation);
        if generation == Generation::NONE {
            return Err(ExtraError::NoGeneration);
        }
        let untagged = extra.strip_prefix(&[TAG_ADMITTED]);
        let (has_admitted, extra) = (untagged.is_some(), untagged.unwrap_or(extra));
        let (ensemble_id, extra) = tagged(TAG_ENSEMBLE_ID, extra).ok_or(ExtraError::TruncatedEnsembleId)?;
        let ensemble_id = ensemble_id.map(EnsembleId);
        let (members, rest) = Membership::decode_first(extra).map_err(ExtraError::Membership)?;
        let begun = if rest.is_empty() { None } else { Some(Begun::decode(rest).ok_or(ExtraError::Change)?) };
        Ok(Extra { generation, has_admitted, ensemble_id, members, begun })
    }
}

/// The number behind a tag, if the bytes begin with that tag, and the bytes behind it. `None` if the number is cut off.
fn tagged(tag: u8, bytes: &[u8]) -> Option<(Option<u64>, &[u8])> {
    let Some(rest) = bytes.strip_prefix(&[tag]) else { return Some((None, bytes)) };
    let (number, rest) = rest.split_first_chunk()?;
    Some((Some(u64::from_le_bytes(*number)), rest))
}

/// Why the bytes of a snapshot are not those of a membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExtraError {
    /// The bytes end within the generation.
    #[error("its generation is cut off")]
    TruncatedGeneration,
    /// The bytes end within the id of the ensemble.
    #[error("the id of its ensemble is cut off")]
    TruncatedEnsembleId,
    /// The generation is that of a server without data.
    #[error("it is of no generation")]
    NoGeneration,
    /// The membership cannot be decoded, for this reason.
    #[error("{0}")]
    Membership(&'static str),
    /// The bytes behind the membership are not a membership change.
    #[error("the membership change is not a list of servers")]
    Change,
}

#[cfg(test)]
mod tests {
    use super::*;
    use corral_consensus::ServerId;
    use corral_core::ids::{ConnId, Origin, ShardId};
    use corral_core::servers::Servers;

    fn extra(in_change: bool) -> Extra {
        let nodes = |ids: &[u8]| ids.iter().copied().map(ServerId).collect::<Vec<_>>();
        let members = Membership {
            voters: nodes(&[1, 2]),
            voters_outgoing: nodes(&[1, 3]),
            learners_next: nodes(&[3]),
            ..Membership::default()
        };
        let (servers, _) = Servers::parse("server.1=a:1:2;0.0.0.0:3\nserver.3=c:1:2:observer\n").expect("a list");
        let conn = ConnId { slot: 5, generation: 6 };
        let origin = Some(Origin { server: ServerId(3), shard: ShardId(1), conn, incarnation: 7 });
        let begun = in_change.then_some(Begun { servers, origin });
        let ensemble_id = in_change.then_some(EnsembleId(7));
        Extra { generation: Generation::FIRST, has_admitted: in_change, ensemble_id, members, begun }
    }

    #[test]
    fn members_and_change_are_decoded_as_encoded() {
        let plain = extra(false);
        assert_eq!(plain.encode(), plain.members.encode(), "as snapshots without a change have it");
        let begun = extra(true).begun.map(|begun| Begun { origin: None, ..begun });
        let without_origin = Extra { begun, ..extra(true) };
        for extra in [plain, extra(true), without_origin] {
            for generation in [Generation::FIRST, Generation(1), Generation(u64::MAX - 1)] {
                let extra = Extra { generation, ..extra.clone() };
                assert_eq!(Extra::decode(&extra.encode()), Ok(extra));
            }
        }
        let none = Extra { generation: Generation::NONE, ..extra(false) };
        assert_eq!(Extra::decode(&none.encode()), Err(ExtraError::NoGeneration));
    }

    #[test]
    fn truncated_and_longer_bytes_are_refused() {
        let extra = Extra { generation: Generation(7), ..extra(true) };
        let (bytes, members) = (extra.encode(), 1 + 8 + 1 + 1 + 8 + extra.members.encode().len());
        for cut in (0..bytes.len()).filter(|cut| *cut != members) {
            assert!(Extra::decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        let more: Vec<u8> = bytes.iter().copied().chain([0]).collect();
        assert_eq!(Extra::decode(&more), Err(ExtraError::Change));
    }
}
