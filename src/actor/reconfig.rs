//! Changes of the list of servers: the driver's part of `corral-members`, and where the links find the others.
//!
//! On the consensus actor's core, in an ensemble alone. Translates and decides nothing.

use std::net::IpAddr;

use corral_consensus::{NodeId, Replica};
use corral_core::ids::{Millis, WallMillis};
use corral_core::servers::{Server, Servers};
use corral_members::{carry_out, next_step, seen};

use crate::actor::authority::Authority;
use crate::net::peers::PeerAddress;

/// The next step of a change of the list of servers, if one can be done now.
pub(crate) fn reconfigure(replica: &mut Replica<Authority>, now: Millis, wall: WallMillis) {
    if let Some(proposal) = next_step(replica, (now, wall), seen) {
        carry_out(replica, proposal);
    }
}

/// Where this server finds the others: as the list says, and as it is configured for those who are not in it: what this
/// server has of the list may be old, and a leader of today not in there. A server that is listed with any address of its
/// host is found where it is configured, too.
pub(crate) fn addresses(known: Option<Servers>, configured: &[PeerAddress]) -> Vec<PeerAddress> {
    let known = known.unwrap_or_default();
    let of = |(id, server): (&u8, &Server)| {
        let id = NodeId(u64::from(*id));
        let is_any = server.host.parse::<IpAddr>().is_ok_and(|host| host.is_unspecified());
        let found = configured.iter().find(|peer| is_any && peer.id == id).cloned();
        found.unwrap_or_else(|| PeerAddress { id, host: server.host.to_string(), port: server.peer_port })
    };
    let mut all: Vec<PeerAddress> = known.0.iter().map(of).collect();
    let more = configured.iter().filter(|peer| !known.0.keys().any(|id| u64::from(*id) == peer.id.0));
    all.extend(more.cloned());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_others_are_found() {
        let peer = |id: u64, host: &str, port: u16| PeerAddress { id: NodeId(id), host: host.to_owned(), port };
        let configured = [peer(1, "old", 1), peer(2, "b", 1), peer(3, "c", 1)];
        let list = |text: &str| Servers::parse(text).map(|(servers, _)| servers);
        assert_eq!(addresses(None, &configured), configured);
        let known = list("server.1=a:1:2\nserver.2=0.0.0.0:7:2\nserver.4=d:1:2");
        let all = [peer(1, "a", 1), peer(2, "b", 1), peer(4, "d", 1), peer(3, "c", 1)];
        assert_eq!(addresses(known, &configured), all);
    }
}
