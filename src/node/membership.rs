//! The membership as the data directory has it: in the newest snapshot, and nowhere else.
//!
//! Recovery and main thread, at start. A server that runs alone keeps no membership, so that its data directory and one
//! of an ensemble's server are told apart. Beside the membership stands the generation, unless it is the first.

use corral_consensus::{Membership, ServerId};
use corral_core::forwarding::Founders;
use corral_core::tree::snapshot::Snapshot;
use corral_engine::extra::Extra;
use corral_engine::recovery::{DataKind, DataMismatch};
use corral_peer::Generation;
use corral_storage::log::Recovered;

use crate::config::Config;
use crate::config::value::Role;
use crate::exit::{ExitCode, Fault};
use crate::runtime::clock::Clock;

/// Judges the newest snapshot and the content of the log.
///
/// # Errors
/// When the data directory is of another kind of server than the configured one, or damaged.
pub(crate) fn data_kind(config: &Config, snapshot: Option<&Snapshot>, log: &Recovered) -> Result<DataKind, Fault> {
    let kind = DataKind::of(config.own_member().is_some(), snapshot, (log.first_index, log.last_index));
    kind.map_err(|mismatch| match mismatch {
        DataMismatch::OfEnsemble => {
            let sentence = "the data directory is that of a server of an ensemble, and no other servers are configured: \
                            name them (ensemble.servers, or the server.N lines of a zoo.cfg), or make it the data of a \
                            server that runs alone with `corral rescue`";
            Fault::new(ExitCode::DataDirForeign, sentence)
        }
        DataMismatch::RanAlone => {
            let sentence = "the data directory is that of a server that ran alone, and an ensemble is configured: start \
                            without the other servers, or make it the first server of the ensemble with `corral rescue`";
            Fault::new(ExitCode::DataDirForeign, sentence)
        }
        DataMismatch::NoSnapshot { first } => {
            let sentence = format!(
                "the log begins with entry {first}, and the snapshot before it is missing: if a majority of the other servers runs, \
                 empty the data directory but for `myid` and start: this server learns everything from the others"
            );
            Fault::new(ExitCode::DataDamaged, sentence)
        }
        DataMismatch::Membership(what) => {
            let sentence = format!("the membership in the newest snapshot is invalid: {what}");
            Fault::new(ExitCode::DataDamaged, sentence)
        }
    })
}

/// The membership for a snapshot in which this server is the only voter, in a generation behind `before`. Empty for a server
/// that runs alone.
///
/// # Errors
/// If this server is an observer. The sentence ends with `remedy`.
pub(crate) fn only_voter(config: &Config, before: Generation, remedy: &str) -> Result<Vec<u8>, Fault> {
    match config.own_member() {
        None => Ok(Vec::new()),
        Some(own) if own.role == Role::Observer => {
            let sentence = format!("server {} is an observer: {remedy}", own.id);
            Err(Fault::new(ExitCode::Config, sentence))
        }
        Some(_) => {
            let generation = before.next(Clock::start().wall().0.cast_unsigned());
            Ok(Extra::new(Membership::simple(&[config.own_id()], &[]), generation).encode())
        }
    }
}

/// Servers of this role, as configured.
fn ids(config: &Config, role: Role) -> Vec<ServerId> {
    let members = config.ensemble.servers.0.iter().filter(|member| member.role == role);
    members.map(|member| ServerId(member.id)).collect()
}

/// The wanted membership; this server alone if it is not in an ensemble.
pub(crate) fn wanted(config: &Config) -> Membership {
    if config.own_member().is_none() {
        return Membership::simple(&[config.own_id()], &[]);
    }
    Membership::simple(&ids(config, Role::Participant), &ids(config, Role::Observer))
}

/// The founders of a new ensemble.
pub(crate) fn founders(config: &Config) -> Founders {
    Founders { own: config.own_id(), voters: ids(config, Role::Participant), learners: ids(config, Role::Observer) }
}
