//! The settings of a server of an ensemble that follow from its configuration alone.
//!
//! Main thread, at start. Knows neither the server's data nor its connections.

use std::time::Duration;

use corral_core::forwarding::EnsembleConfig;
use corral_core::servers::Servers;
use corral_engine::StoredServers;

use crate::config::Config;

/// So many times the election timeout may pass without a word of a server before it is taken for lost.
const LOST_ELECTIONS: u64 = 8;

/// Raft's unit of time, and how often sessions are looked at, of a server that is alone.
const TICK_ALONE: Duration = Duration::from_millis(100);

/// Raft's unit of time: how often a leader says that it is there.
pub(crate) fn tick(config: &Config) -> Duration {
    if config.own_member().is_none() {
        return TICK_ALONE;
    }
    Duration::from_millis(u64::from(config.ensemble.heartbeat_ms))
}

/// Ticks without a leader until the next election, at least.
pub(crate) fn election_ticks(config: &Config) -> u32 {
    config.ensemble.election_ms.div_ceil(config.ensemble.heartbeat_ms.max(1)).max(2)
}

/// The machine's settings of the ensemble.
pub(crate) fn member_config(config: &Config, shards: usize) -> EnsembleConfig {
    let shards = u16::try_from(shards).expect("shards are numbered in 16 bits");
    let election_ms = u64::from(config.ensemble.election_ms);
    EnsembleConfig { shards, hold_ms: u64::from(config.ensemble.hold_ms), lost_after_ms: election_ms * LOST_ELECTIONS }
}

/// The membership as clients are shown it. No thread here listens on a port for ZooKeeper's elections. If the
/// configuration names none, a port that ZooKeeper's clients accept stands there.
pub(crate) fn servers(config: &Config) -> Servers {
    let mut lines = String::new();
    for member in &config.ensemble.servers.0 {
        let other = if member.port == u16::MAX { 1 } else { member.port + 1 };
        let election_port = member.election_port.filter(|port| *port != member.port).or(Some(other));
        let shown = crate::config::members::Member { election_port, ..member.clone() };
        lines.push_str(&format!("server.{}={shown}\n", member.id));
    }
    Servers::parse(&lines).expect("the configuration was checked by the same rules").0
}

/// The membership as it is while none is stored.
pub(crate) fn stored_servers(config: &Config) -> StoredServers {
    StoredServers { servers: servers(config), version: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::members::Member;

    #[test]
    fn clients_are_shown_what_is_configured() {
        let mut config = Config::default();
        for (id, text) in [(2, "[::1]:2888:3888:observer;2181"), (1, "a.example:2888:2888"), (3, "c:65535:1;[::]:9")] {
            let (member, _) = Member::of_zookeeper(id, text).expect("the line is good");
            config.ensemble.servers.add(member).expect("there is room");
        }
        let longest = format!("{}:1:2", "x".repeat(253));
        let (member, _) = Member::of_zookeeper(254, &longest).expect("the line is good");
        config.ensemble.servers.add(member).expect("there is room");
        let text = servers(&config).lines();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "server.1=a.example:2888:2889:participant");
        assert_eq!(lines[1], "server.2=[0:0:0:0:0:0:0:1]:2888:3888:observer;0.0.0.0:2181");
        assert_eq!(lines[2], "server.3=c:65535:1:participant;[0:0:0:0:0:0:0:0]:9");
        assert_eq!(lines[3], format!("server.254={longest}:participant"));
    }
}
