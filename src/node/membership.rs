//! Who belongs to the ensemble, as the data directory says it: in the newest image, and nowhere else.
//!
//! Recovery and main thread, at start. A server that runs alone keeps no membership, so that its data directory and one of
//! an ensemble's server are told apart. Beside the membership stands the generation, unless it is the first.

use corral_consensus::{Config as RaftConfig, ConsensusError, Membership, NodeId, RaftNode, Restored};
use corral_core::image::Image;
use corral_core::member::Founders;
use corral_engine::extra;
use corral_link::Generation;
use corral_storage::log::Recovered;

use crate::config::Config;
use crate::config::value::Role;
use crate::exit::{ExitCode, Fault};

/// What a server is by its data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    Alone,
    /// It holds nothing: it belongs to nothing before it is told, or all founders are newborn.
    Newborn,
    Member(Membership, Generation),
}

impl Kept {
    /// Of which generation the data are.
    pub(crate) fn generation(&self) -> Generation {
        match self {
            Kept::Alone => Generation::FIRST,
            Kept::Newborn => Generation::NONE,
            Kept::Member(_, generation) => *generation,
        }
    }
}

/// Judges the newest image and what the log holds.
///
/// # Errors
/// When the data directory is of the other kind of server than what is configured, or damaged.
pub(crate) fn kept(config: &Config, image: Option<&Image>, log: &Recovered) -> Result<Kept, Fault> {
    let extra = image.map_or(&[][..], Image::extra);
    match (config.own_member().is_some(), image.is_some(), extra.is_empty()) {
        (false, _, true) => Ok(Kept::Alone),
        (false, _, false) => {
            let sentence = "the data directory is that of a server of an ensemble, and no other servers are configured: \
                            name them (ensemble.servers, or the server.N lines of a zoo.cfg), or make it the data of a \
                            server that runs alone with `corral rescue`";
            Err(Fault::new(ExitCode::DataDirForeign, sentence.to_owned()))
        }
        (true, false, _) if log.last_index == 0 => Ok(Kept::Newborn),
        (true, false, _) if log.first_index > 1 => {
            let sentence = format!(
                "the log begins with entry {}, and the image before it is missing: if a majority of the other servers runs, \
                 empty the data directory but for `myid` and start: this server learns everything from the others",
                log.first_index
            );
            Err(Fault::new(ExitCode::DataDamaged, sentence))
        }
        (true, _, true) => {
            let sentence = "the data directory is that of a server that ran alone, and an ensemble is configured: start \
                            without the other servers, or make it the first server of the ensemble with `corral rescue`";
            Err(Fault::new(ExitCode::DataDirForeign, sentence.to_owned()))
        }
        (true, _, false) => extra::decode(extra)
            .map(|(ensemble, generation)| Kept::Member(ensemble.members, generation))
            .map_err(|what| {
                let sentence = format!("the newest image says nonsense of who belongs to the ensemble: {what}");
                Fault::new(ExitCode::DataDamaged, sentence)
            }),
    }
}

/// The node to begin with.
///
/// # Errors
/// When what was found does not fit together.
pub(crate) fn raft_node(kept: &Kept, config: RaftConfig, restored: Restored) -> Result<RaftNode, ConsensusError> {
    match kept {
        Kept::Alone => RaftNode::new(config, restored),
        Kept::Newborn => RaftNode::newborn(config),
        Kept::Member(membership, _) => RaftNode::with_membership(config, membership.clone(), restored),
    }
}

/// Servers of this role, as configured.
fn ids(config: &Config, role: Role) -> impl Iterator<Item = u8> {
    config.ensemble.servers.0.iter().filter(move |member| member.role == role).map(|member| member.id)
}

/// Who ought to belong to the ensemble; this server alone when it is none.
pub(crate) fn wanted(config: &Config) -> Membership {
    if config.own_member().is_none() {
        return Membership::simple(&[NodeId(u64::from(config.server.server_id))], &[]);
    }
    let nodes = |role| ids(config, role).map(|id| NodeId(u64::from(id))).collect::<Vec<_>>();
    Membership::simple(&nodes(Role::Participant), &nodes(Role::Observer))
}

/// Who forms a new ensemble.
pub(crate) fn founders(config: &Config) -> Founders {
    Founders {
        own: config.server.server_id,
        voters: ids(config, Role::Participant).collect(),
        learners: ids(config, Role::Observer).collect(),
    }
}
