//! The budget of file descriptors: the number that each use needs, and the number left for clients.
//!
//! A new descriptor has the lowest free number. A client keeps its connection only if the number is below
//! [`DescriptorBudget::clients_end`]. So clients cannot take the numbers from there on, which are for log, snapshots and
//! other servers. Segments of the log and snapshots that are served hold no descriptor: a mapping needs none.

use crate::config::Config;

/// Open for the life of the process: standard streams, directories with their locks, listeners, bells of threads.
const FIXED: u64 = 32;
/// Of each executor: three rings of the runtime, the shard's own, and their eventfds.
const PER_EXECUTOR: u64 = 16;
/// Files that are open for a while: a new segment, snapshots, scrubber, small files of the data directory, certificates,
/// and the kernel's figures.
const FILES: u64 = 32;
/// Connections of clients that were accepted and are given to a shard, or refused.
const ACCEPTED: u64 = 32;
/// Connections by HTTP of an endpoint: for metrics, and for administration.
pub(crate) const HTTP_CONNECTIONS_MAX: u16 = 32;
/// In an ensemble: connections to the port for servers without a handshake. The last is accepted before the oldest is closed.
pub(crate) const STRANGERS: u64 = 256 + 1;
/// Of each other server: both connections, ending connections, the bell of its sender, and the resolver of names.
const PER_PEER: u64 = 16;
/// Other servers that are counted at least, because a reconfig may add some.
const PEERS_MIN: u64 = 4;

/// Descriptors by use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DescriptorBudget {
    /// Open from the start to the end.
    process: u64,
    /// Open for a while, connections by HTTP included.
    files: u64,
    /// Connections with other servers.
    peers: u64,
    /// Connections to the port for servers without a handshake.
    strangers: u64,
}

impl DescriptorBudget {
    /// Of a server with this configuration and so many executors.
    pub(crate) fn of(config: &Config, executors: u64) -> DescriptorBudget {
        let process = FIXED.saturating_add(executors.saturating_mul(PER_EXECUTOR));
        let endpoints = u64::from(config.metrics.http_addr.is_some()) + u64::from(config.admin.enabled);
        let files = FILES + endpoints * u64::from(HTTP_CONNECTIONS_MAX);
        let Some(own) = config.own_member().map(|member| member.id) else {
            return DescriptorBudget { process, files, peers: 0, strangers: 0 };
        };
        let others = config.ensemble.servers.0.iter().filter(|member| member.id != own).count() as u64;
        DescriptorBudget { process, files, peers: others.max(PEERS_MIN) * PER_PEER, strangers: STRANGERS }
    }

    /// Descriptors that clients leave free.
    fn kept_free(&self) -> u64 {
        self.files + ACCEPTED + self.peers + self.strangers
    }

    /// Descriptors that the server needs without clients.
    pub(crate) fn server(&self) -> u64 {
        self.process.saturating_add(self.kept_free())
    }

    /// The connection of a client has a number below this if the process may have so many descriptors.
    pub(crate) fn clients_end(&self, limit: u64) -> u64 {
        limit.saturating_sub(self.kept_free())
    }

    /// The uses and their numbers, for a message.
    pub(crate) fn words(&self) -> String {
        let DescriptorBudget { process, files, peers, strangers } = self;
        let ensemble = match peers {
            0 => String::new(),
            _ => format!(", {peers} for other servers, {strangers} for connections to their port without a handshake"),
        };
        format!("{process} for the process, {files} for log, snapshots and other files, {ACCEPTED} to accept{ensemble}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::members::Member;

    #[test]
    fn clients_leave_what_the_server_needs() {
        let mut config = Config::default();
        let alone = DescriptorBudget::of(&config, 2);
        assert_eq!((alone.server(), alone.clients_end(1000)), (32 + 2 * 16 + 32 + 32 + 32, 1000 - 32 - 32 - 32));
        assert_eq!(alone.words(), "64 for the process, 64 for log, snapshots and other files, 32 to accept");
        for id in 1..=3 {
            let (member, _) = Member::of_zookeeper(id, &format!("host{id}:1:2")).expect("it is well formed");
            config.ensemble.servers.add(member).expect("it is another one");
        }
        let ensemble = DescriptorBudget::of(&config, 2);
        assert_eq!(ensemble.server(), alone.server() + 4 * 16 + 257);
        assert_eq!(ensemble.clients_end(100), 0);
        assert!(
            ensemble.words().ends_with("64 for other servers, 257 for connections to their port without a handshake")
        );
    }
}
