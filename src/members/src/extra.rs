//! What an image keeps of its ensemble besides the tree: who belongs to it, and the change of the list of servers that it is in
//! the middle of.
//!
//! On the consensus actor's core, in the recovery of a start and in the simulator. To image and storage it is bytes: the
//! membership first, and behind it what was begun, if anything was. A change that needs a server which lags behind the
//! leader's memory of the log would not end without images taken in the middle of it.

use std::ops::DerefMut;

use corral_consensus::{Machine, Membership, Replica};
use corral_core::evaluate::Begun;
use corral_core::member::Member;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extra {
    pub members: Membership,
    pub begun: Option<Begun>,
}

impl Extra {
    /// As this replica has it where it has applied its log to.
    pub fn of<M: Machine + DerefMut<Target = Member>>(replica: &Replica<M>) -> Extra {
        let raft = replica.raft();
        let members = raft.founders().unwrap_or_else(|| raft.membership());
        Extra { members, begun: replica.machine().sequencer.machine().begun().cloned() }
    }

    /// For an image.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = self.members.encode().to_vec();
        out.extend(self.begun.iter().flat_map(Begun::encode));
        out
    }

    /// Reads what [`Extra::encode`] wrote; every value is checked.
    ///
    /// # Errors
    /// What is wrong with it, in a few words.
    pub fn decode(extra: &[u8]) -> Result<Extra, &'static str> {
        let (members, rest) = Membership::decode_first(extra)?;
        let begun = if rest.is_empty() { None } else { Some(Begun::decode(rest).ok_or("what was begun is no list")?) };
        Ok(Extra { members, begun })
    }
}

/// Nothing was begun.
impl From<Membership> for Extra {
    fn from(members: Membership) -> Extra {
        Extra { members, begun: None }
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
        Extra { members, begun: begun.then_some(Begun { servers, origin }) }
    }

    #[test]
    fn what_is_kept_comes_back() {
        let plain = extra(false);
        assert_eq!(plain.encode(), plain.members.encode(), "as images without a change have it");
        for extra in [plain, extra(true)] {
            assert_eq!(Extra::decode(&extra.encode()), Ok(extra));
        }
        let nobody = Extra { begun: Some(Begun { origin: None, ..extra(true).begun.expect("it has") }), ..extra(true) };
        assert_eq!(Extra::decode(&nobody.encode()), Ok(nobody));
    }

    #[test]
    fn nonsense_is_refused() {
        let (bytes, members) = (extra(true).encode(), extra(true).members.encode().len());
        for cut in (0..bytes.len()).filter(|cut| *cut != members) {
            assert!(Extra::decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        let more: Vec<u8> = bytes.iter().copied().chain([0]).collect();
        assert_eq!(Extra::decode(&more), Err("what was begun is no list"));
    }
}
