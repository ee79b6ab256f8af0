//! What a snapshot holds of its ensemble besides the tree: the members, the membership change in progress, and whether the log had entries
//! with `features::ADMITTED`.
//!
//! To the snapshot format these are bytes: a tag for the last of these, the membership, then the change, if there is one. A snapshot can be
//! taken during a change: a change that needs a server which lags behind the leader's log in memory could not end
//! otherwise.

use std::ops::DerefMut;

use corral_consensus::{Machine, Membership, Replica};
use corral_core::coordinator::Coordinator;
use corral_core::evaluate::Begun;

/// Members and the membership change in progress, at one log index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extra {
    /// The members in force.
    pub members: Membership,
    /// The membership change that was begun and has not ended.
    pub begun: Option<Begun>,
    /// An entry with `features::ADMITTED` was applied.
    pub has_admitted: bool,
}

/// Before the membership, if an entry with `features::ADMITTED` was applied.
const TAG_ADMITTED: u8 = b'A';

/// Why the bytes are not an encoded [`Extra`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeExtraError {
    /// The membership cannot be decoded, for this reason.
    #[error("{0}")]
    Membership(&'static str),
    /// What follows the membership is not a membership change.
    #[error("the membership change is not a list of servers")]
    Change,
}

impl Extra {
    /// Of this replica, at its applied index. Of an uninitialised server the founders are the members.
    #[must_use]
    pub fn of<M: Machine + DerefMut<Target = Coordinator>>(replica: &Replica<M>) -> Extra {
        let raft = replica.raft();
        let members = raft.founders().unwrap_or_else(|| raft.membership());
        let state = replica.machine().sequencer.machine();
        Extra { members, begun: state.begun().cloned(), has_admitted: state.has_admitted() }
    }

    /// Encodes it for a snapshot.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if self.has_admitted {
            out.push(TAG_ADMITTED);
        }
        out.extend(self.members.encode());
        out.extend(self.begun.iter().flat_map(Begun::encode));
        out
    }

    /// Decodes what [`Extra::encode`] wrote; every value is checked.
    ///
    /// # Errors
    /// If the bytes are not what [`Extra::encode`] writes.
    pub fn decode(extra: &[u8]) -> Result<Extra, DecodeExtraError> {
        let untagged = extra.strip_prefix(&[TAG_ADMITTED]);
        let (has_admitted, extra) = (untagged.is_some(), untagged.unwrap_or(extra));
        let (members, rest) = Membership::decode_first(extra).map_err(DecodeExtraError::Membership)?;
        let begun = if rest.is_empty() { None } else { Some(Begun::decode(rest).ok_or(DecodeExtraError::Change)?) };
        Ok(Extra { members, begun, has_admitted })
    }
}

/// The members of an ensemble without a membership change in progress.
impl From<Membership> for Extra {
    fn from(members: Membership) -> Extra {
        Extra { members, begun: None, has_admitted: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corral_consensus::NodeId;
    use corral_core::command::Origin;
    use corral_core::ids::{ConnId, ShardId};
    use corral_core::servers::Servers;

    fn extra(begun: bool) -> Extra {
        let nodes = |ids: &[u64]| ids.iter().copied().map(NodeId).collect::<Vec<_>>();
        let members = Membership {
            voters: nodes(&[1, 2]),
            voters_outgoing: nodes(&[1, 3]),
            learners_next: nodes(&[3]),
            ..Membership::default()
        };
        let (servers, _) = Servers::parse("server.1=a:1:2;0.0.0.0:3\nserver.3=c:1:2:observer\n").expect("a list");
        let conn = ConnId { slot: 5, generation: 6 };
        let origin = Some(Origin { server: 3, shard: ShardId(1), conn, incarnation: 7 });
        Extra { members, begun: begun.then_some(Begun { servers, origin }), has_admitted: begun }
    }

    #[test]
    fn what_is_kept_comes_back() {
        let plain = extra(false);
        assert_eq!(plain.encode(), plain.members.encode(), "as snapshots without a change have it");
        for extra in [plain, extra(true)] {
            assert_eq!(Extra::decode(&extra.encode()), Ok(extra));
        }
        let nobody = Extra { begun: Some(Begun { origin: None, ..extra(true).begun.expect("it has") }), ..extra(true) };
        assert_eq!(Extra::decode(&nobody.encode()), Ok(nobody));
    }

    #[test]
    fn nonsense_is_refused() {
        let (bytes, members) = (extra(true).encode(), 1 + extra(true).members.encode().len());
        for cut in (0..bytes.len()).filter(|cut| *cut != members) {
            assert!(Extra::decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        let more: Vec<u8> = bytes.iter().copied().chain([0]).collect();
        assert_eq!(Extra::decode(&more), Err(DecodeExtraError::Change));
    }
}
