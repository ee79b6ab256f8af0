//! Decisions of a start about damaged data.
//!
//! A server of an ensemble puts damaged data aside and begins without data, as if its disk had been emptied. It has lost its
//! promises with its data, so it founds no new ensemble. A server that no other can replace refuses to start.

use corral_consensus::{Membership, ServerId};
use corral_core::servers::{Role, Servers};

use crate::extra::Extra;

/// The use for which data are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A standalone server.
    Standalone,
    /// A server of an ensemble.
    Member,
    /// The only voter of an ensemble. Others may be configured, or observe.
    OnlyVoter,
    /// A rescue: a survivor is to be an ensemble by itself.
    Rescue,
}

impl Purpose {
    /// The entry up to which the log may be damaged, if the newest snapshot ends at `snapshot`. 0: no damage is tolerated.
    ///
    /// Another server may count on the vote of a member, and such damage can hide the vote. The log of an only voter must
    /// hold the last entry of the snapshot, because that shows whether the log continues the snapshot.
    #[must_use]
    pub fn damage_tolerated_to(self, snapshot: u64) -> u64 {
        match self {
            Purpose::Standalone => snapshot,
            Purpose::OnlyVoter => snapshot.saturating_sub(1),
            Purpose::Member | Purpose::Rescue => 0,
        }
    }

    /// The remedy if data are missing: a part of a sentence.
    #[must_use]
    pub fn remedy(self) -> &'static str {
        match self {
            Purpose::Standalone | Purpose::OnlyVoter => "restore the data directory from a backup",
            Purpose::Member => {
                "empty the data directory but for `myid` and start: this server learns everything from the others"
            }
            Purpose::Rescue => {
                "this server cannot be rescued: leave its directory as it is, and rescue another survivor, or restore a backup"
            }
        }
    }
}

/// The decision about damaged data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDamage {
    /// The server does not start.
    Refuse,
    /// The data are read once more, as [`Purpose::OnlyVoter`]. If they are damaged for that use as well the server does not
    /// start.
    ReadAsOnlyVoter,
    /// The data are put aside, and the server begins without data: see [`Plan::is_healing`](crate::recovery::Plan).
    PutAside,
}

/// Decides about damaged data. `configured` are the members by configuration, with this server. `list` is the newest list of
/// servers that was stored. `extra` is the part for an ensemble of the newest readable snapshot, see [`Extra`]. If neither
/// can be read, others may have the lost data.
#[must_use]
pub fn on_damage(own: ServerId, configured: &Membership, list: Option<&Servers>, extra: Option<&[u8]>) -> OnDamage {
    if configured.voters.iter().all(|id| *id == own) {
        return OnDamage::Refuse;
    }
    let by_list = list.is_some_and(|list| votes_alone(list, own));
    let members = extra.and_then(|extra| Extra::decode(extra).ok()).map(|extra| extra.members);
    let by_snapshot = members.is_some_and(|all| all.voters_outgoing.is_empty() && all.voters == [own]);
    if by_list || by_snapshot { OnDamage::ReadAsOnlyVoter } else { OnDamage::PutAside }
}

/// Whether this server is the only participant of the list.
fn votes_alone(list: &Servers, own: ServerId) -> bool {
    let voters = list.roles().filter(|(_, role)| *role == Role::Participant);
    voters.map(|(id, _)| id).eq([own])
}

#[cfg(test)]
mod tests {
    use super::*;
    use corral_peer::Generation;

    const OWN: ServerId = ServerId(1);

    fn kept(members: Membership) -> Vec<u8> {
        Extra::new(members, Generation::FIRST).encode()
    }

    fn members(voters: &[u8]) -> Membership {
        Membership::simple(&voters.iter().map(|id| ServerId(*id)).collect::<Vec<_>>(), &[])
    }

    #[test]
    fn data_that_no_other_server_has_are_not_put_aside() {
        let decide = |configured: &[u8], list: Option<&str>, snapshot: Option<&[u8]>| {
            let list = list.map(|text| Servers::parse(text).expect("the list is good").0);
            on_damage(OWN, &members(configured), list.as_ref(), snapshot.map(|ids| kept(members(ids))).as_deref())
        };
        let alone = "server.1=a:1:2\nserver.2=b:1:2:observer\nserver.3=c:1:2:observer\nversion=5";
        let two = "server.1=a:1:2\nserver.2=b:1:2\nversion=5";
        assert_eq!(decide(&[1], None, None), OnDamage::Refuse);
        assert_eq!(decide(&[1, 2, 3], None, None), OnDamage::PutAside);
        assert_eq!(decide(&[1, 2, 3], Some(two), Some(&[1, 2])), OnDamage::PutAside);
        assert_eq!(decide(&[1, 2, 3], Some(alone), Some(&[1, 2])), OnDamage::ReadAsOnlyVoter);
        assert_eq!(decide(&[1, 2, 3], None, Some(&[1])), OnDamage::ReadAsOnlyVoter, "after a rescue");
        assert_eq!(decide(&[1, 2, 3], Some("server.2=b:1:2\nversion=5"), None), OnDamage::PutAside);
        let leaving = Membership { voters_outgoing: vec![OWN, ServerId(2)], ..members(&[1]) };
        assert_eq!(on_damage(OWN, &members(&[1, 2]), None, Some(&kept(leaving))), OnDamage::PutAside);
    }
}
