//! What makes a server one of an ensemble: its links to the others, its place in Raft, its clock for elections.
//!
//! Main thread, at start. Everything here is absent from a server that runs alone. It knows no message.

use std::time::Duration;

use corral_consensus::NodeId;
use corral_core::member::EnsembleConfig;

use crate::actor::messages::ToConsensus;
use crate::config::Config;
use crate::config::value::Role;
use crate::exit::{ExitCode, Fault};
use crate::net::peers::{Links, setup};
use crate::runtime::mailbox::Post;

/// So many times the election timeout may pass without a leader before those who wait for one are sent away.
const HOLD_ELECTIONS: u64 = 20;
/// So many times the election timeout may pass without a word of a server before it is taken for lost.
const LOST_ELECTIONS: u64 = 8;

/// The servers with and without a vote; this one alone when there is no ensemble.
pub(crate) fn members(config: &Config) -> (Vec<NodeId>, Vec<NodeId>) {
    if config.own_member().is_none() {
        return (vec![NodeId(u64::from(config.server.server_id))], Vec::new());
    }
    let ids = |role: Role| {
        let members = config.ensemble.servers.0.iter().filter(move |member| member.role == role);
        members.map(|member| NodeId(u64::from(member.id))).collect()
    };
    (ids(Role::Participant), ids(Role::Observer))
}

/// Raft's unit of time: how often a leader says that it is there.
pub(crate) fn tick(config: &Config) -> Duration {
    Duration::from_millis(u64::from(config.ensemble.heartbeat_ms))
}

/// Ticks without a leader until the next election, at least.
pub(crate) fn election_ticks(config: &Config) -> u32 {
    config.ensemble.election_ms.div_ceil(config.ensemble.heartbeat_ms.max(1)).max(2)
}

/// What the machine is told of the ensemble.
pub(crate) fn member_config(config: &Config, shards: u16) -> EnsembleConfig {
    let election_ms = u64::from(config.ensemble.election_ms);
    EnsembleConfig { shards, hold_ms: election_ms * HOLD_ELECTIONS, lost_after_ms: election_ms * LOST_ELECTIONS }
}

/// Listens for the other servers and dials them; `None` when there are none.
///
/// # Errors
/// When the address cannot be had, or the files of TLS are not usable.
pub(crate) fn start_links(
    config: &Config,
    incarnation: u64,
    consensus: Post<ToConsensus>,
) -> Result<Option<Links>, Fault> {
    let Some(own) = config.own_member() else { return Ok(None) };
    let settings = setup::settings(config, incarnation)?;
    let servers = config.ensemble.servers.0.len();
    let links = Links::start(settings, move |event| drop(consensus.send(ToConsensus::Peer(event))));
    let links = links.map_err(|error| Fault::new(ExitCode::Internal, format!("no links to other servers: {error}")))?;
    tracing::info!(id = own.id, port = own.port, servers, "one of an ensemble");
    Ok(Some(links))
}
