//! Changes of the list of servers: the driver's part of `corral-members`, and where the links find the others.
//!
//! On the consensus actor's core, in an ensemble alone. Translates and decides nothing.

use std::net::IpAddr;

use corral_consensus::{NodeId, Replica};
use corral_core::ids::{Millis, WallMillis};
use corral_core::servers::{Server, Servers};
use corral_members::{carry_out, next_step, seen};

use crate::actor::authority::Authority;
use crate::actor::messages::Moved;
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
        let found = configured.iter().find(|peer| is_any(server) && peer.id == id).cloned();
        found.unwrap_or_else(|| PeerAddress { id, host: server.host.to_string(), port: server.peer_port })
    };
    let mut all: Vec<PeerAddress> = known.0.iter().map(of).collect();
    let more = configured.iter().filter(|peer| !known.0.keys().any(|id| u64::from(*id) == peer.id.0));
    all.extend(more.cloned());
    all
}

/// Where this server is found, as the list of servers says it.
pub(crate) struct Whereabouts {
    own: NodeId,
    /// As the list said it last.
    listed: Option<Server>,
    ports: flume::Sender<Moved>,
}

impl Whereabouts {
    /// Where the list changes, `ports` is told.
    pub(crate) fn new(own: NodeId, ports: flume::Sender<Moved>) -> Whereabouts {
        Whereabouts { own, listed: None, ports }
    }

    /// The list is this one now. What it says at first is compared with the configuration, which counts: it may be that all
    /// servers were started at other places. From then on the list counts.
    pub(crate) fn follow(&mut self, known: Option<&Servers>, configured: &[PeerAddress]) {
        let own = u8::try_from(self.own.0).ok();
        let Some(now) = own.and_then(|own| known?.0.get(&own)) else { return };
        match self.listed.replace(now.clone()) {
            None => self.compare(now, configured),
            Some(before) => {
                let peers = |server: &Server| (server.host.to_string(), server.peer_port);
                let clients = |server: &Server| server.client.as_ref().map(|(host, port)| (host.to_string(), *port));
                let moved = Moved {
                    peers: Some(peers(now)).filter(|now| *now != peers(&before)),
                    clients: clients(now).filter(|now| Some(now) != clients(&before).as_ref()),
                };
                if moved.peers.is_some() || moved.clients.is_some() {
                    // Fails only where nobody listens yet, because this server is told to stop.
                    let _ = self.ports.send(moved);
                }
            }
        }
    }

    fn compare(&self, listed: &Server, configured: &[PeerAddress]) {
        let Some(configured) = configured.iter().find(|peer| peer.id == self.own) else { return };
        if is_any(listed) || (&*listed.host, listed.peer_port) == (&*configured.host, configured.port) {
            return;
        }
        tracing::warn!(
            "the list of servers says that this one is at {}:{}, and it listens at {}:{}: correct its configuration and start \
             it again, or the list",
            &*listed.host,
            listed.peer_port,
            configured.host,
            configured.port
        );
    }
}

/// Whether a server is listed with any address of its host.
fn is_any(server: &Server) -> bool {
    server.host.parse::<IpAddr>().is_ok_and(|host| host.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_this_server_is_follows_the_list_but_not_at_first() {
        let (ports, told) = flume::unbounded();
        let configured = [PeerAddress { id: NodeId(2), host: "a".to_owned(), port: 1 }];
        let mut whereabouts = Whereabouts::new(NodeId(2), ports);
        let mut check = |list: &str, expect: Option<(Option<&str>, Option<&str>)>| {
            let list = Servers::parse(list).map(|(servers, _)| servers).expect("the list is good");
            whereabouts.follow(Some(&list), &configured);
            let found = told.try_iter().next().map(|Moved { peers, clients }| {
                let text = |at: Option<(String, u16)>| at.map(|(host, port)| format!("{host}:{port}"));
                (text(peers), text(clients))
            });
            assert_eq!(found, expect.map(|(peers, clients)| (peers.map(str::to_owned), clients.map(str::to_owned))));
        };
        check("server.1=c:1:2", None);
        check("server.2=b:1:2;9", None);
        check("server.2=b:1:2;9\nserver.1=c:1:2", None);
        check("server.2=b:3:2;9", Some((Some("b:3"), None)));
        check("server.2=d:3:2;9", Some((Some("d:3"), None)));
        check("server.2=d:3:2;10", Some((None, Some("0.0.0.0:10"))));
        check("server.2=d:3:2:observer", None);
        check("server.1=c:1:2", None);
        check("server.2=a:3:7;b:10", Some((Some("a:3"), Some("b:10"))));
        whereabouts.follow(None, &configured);
    }

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
