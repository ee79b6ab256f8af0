//! Where servers are found: as the newest list of servers says, and as configured.

use core::net::{IpAddr, SocketAddr};

use corral_consensus::NodeId;
use corral_core::ids::Millis;
use corral_core::servers::{Server, Servers};

/// Where one server of the ensemble is reached by the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerAddress {
    pub id: NodeId,
    /// Name or IP address, without brackets.
    pub host: String,
    pub port: u16,
}

/// A list of servers that was known, and its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remembered {
    pub servers: Servers,
    pub version: u64,
}

/// Where the list of servers says now that this server is found, of what has changed there.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// By the other servers: host and port.
    pub peers: Option<(String, u16)>,
    pub clients: Option<(String, u16)>,
    /// The list itself, to be remembered.
    pub list: Option<Remembered>,
}

/// Where this server finds the others: as the list says, and as it is configured for those who are not in it: what this
/// server has of the list may be old, and a leader of today not in there. A server that is listed with any address of its
/// host is found at the host that it is configured with.
pub fn addresses(known: Option<Servers>, configured: &[PeerAddress]) -> Vec<PeerAddress> {
    let known = known.unwrap_or_default();
    let mut all: Vec<PeerAddress> = known.0.iter().map(|(id, server)| place_of(*id, server, configured)).collect();
    let more = configured.iter().filter(|peer| !known.0.keys().any(|id| u64::from(*id) == peer.id.0));
    all.extend(more.cloned());
    all
}

/// Where the list says that the other servers find this one.
fn place_of(id: u8, server: &Server, configured: &[PeerAddress]) -> PeerAddress {
    let id = NodeId(u64::from(id));
    let configured = configured.iter().find(|peer| peer.id == id && is_any(server));
    let host = configured.map_or_else(|| server.host.to_string(), |configured| configured.host.clone());
    PeerAddress { id, host, port: server.peer_port }
}

/// Time until the configuration is compared with the list.
const COMPARED_AFTER_MS: u64 = 3000;

/// Where this server is found, as the list of servers says it.
pub(crate) struct AdvertisedAddress {
    own: u8,
    /// Where clients find it, as configured.
    client_addr: SocketAddr,
    /// The newest list that was known, maybe before this start.
    newest: Option<Remembered>,
    /// As the list said it last.
    listed: Option<Server>,
    /// Since this start: for the other servers, and for clients.
    moved: (bool, bool),
    /// The first tick.
    since: Option<Millis>,
    /// The configuration was compared with the list.
    compared: bool,
}

impl AdvertisedAddress {
    /// `remembered` is a list of before this start, and `client_addr` as configured.
    pub(crate) fn new(own: u8, client_addr: SocketAddr, remembered: Option<Remembered>) -> AdvertisedAddress {
        let mut advertised = AdvertisedAddress {
            own,
            client_addr,
            newest: remembered,
            listed: None,
            moved: (false, false),
            since: None,
            compared: false,
        };
        advertised.listed = advertised.own_line().cloned();
        advertised
    }

    /// The list in the tree is this one now, and with those who join these servers are `known`. Gives the servers that count, and
    /// what changes for this server: a list that is older than one that was known before is not followed, but the servers that
    /// it names are found.
    ///
    /// At its start a server listens where its configuration says, for it may be that all servers were started at other
    /// places: where the newest list says otherwise, [`AdvertisedAddress::compare`] tells. From then on a newer list counts.
    pub(crate) fn follow(
        &mut self,
        list: Option<(Servers, u64)>,
        known: Option<Servers>,
        configured: &[PeerAddress],
    ) -> (Option<Servers>, Option<Moved>) {
        let newest = self.newest.as_ref().map(|newest| newest.version);
        let version = list.as_ref().map(|(_, version)| *version);
        let mut moved = Moved::default();
        if version > newest {
            let list = list.map(|(servers, version)| Remembered { servers, version });
            self.newest.clone_from(&list);
            moved.list = list;
        }
        if let Some(now) = self.own_line().cloned() {
            let at = |server: &Server| place_of(self.own, server, configured);
            let clients = |server: &Server| server.client.as_ref().map(|(host, port)| (host.to_string(), *port));
            if let Some(before) = &self.listed {
                let peers = Some(at(&now)).filter(|now| *now != at(before));
                moved.peers = peers.map(|place| (place.host, place.port));
                moved.clients = clients(&now).filter(|now| Some(now) != clients(before).as_ref());
            }
            self.moved = (self.moved.0 || moved.peers.is_some(), self.moved.1 || moved.clients.is_some());
            self.listed = Some(now);
        }
        let counting = if version >= newest { known } else { self.with_newest(known) };
        (counting, Some(moved).filter(|moved| *moved != Moved::default()))
    }

    /// This server's line of the newest list.
    fn own_line(&self) -> Option<&Server> {
        self.newest.as_ref()?.servers.0.get(&self.own)
    }

    /// The servers of the newest list, and those of an older one that are not in there.
    fn with_newest(&self, known: Option<Servers>) -> Option<Servers> {
        let mut all = known.unwrap_or_default();
        all.0.extend(self.newest.as_ref()?.servers.0.clone());
        Some(all)
    }

    /// Once, when a server that was away has had the time to learn the list: where it listens elsewhere than the list says, as
    /// sentences. What has moved since its start was told then.
    pub(crate) fn compare(&mut self, now: Millis, configured: &[PeerAddress]) -> Vec<String> {
        let since = *self.since.get_or_insert(now);
        let own = configured.iter().find(|peer| peer.id == NodeId(u64::from(self.own)));
        let (Some(listed), Some(own)) = (self.own_line().cloned(), own) else { return Vec::new() };
        if self.compared || now.since(since) < COMPARED_AFTER_MS {
            return Vec::new();
        }
        self.compared = true;
        let mut differences = Vec::new();
        let at = place_of(self.own, &listed, configured);
        if at != *own && !self.moved.0 {
            differences.push(format!(
                "the list of servers says that the others find this one at {}:{}, and its configuration says {}:{}: correct \
                 the configuration and start it again, or the list",
                at.host, at.port, own.host, own.port
            ));
        }
        let (port, client) = (self.client_addr.port(), listed.client.as_ref().map(|(_, port)| *port));
        if let Some(client) = client.filter(|client| *client != port && port != 0 && !self.moved.1) {
            differences.push(format!(
                "the list of servers says that clients find this one at port {client}, and it listens at {port}: correct its \
                 configuration and start it again, or the list"
            ));
        }
        differences
    }
}

/// Whether a server is listed with any address of its host.
fn is_any(server: &Server) -> bool {
    server.host.parse::<IpAddr>().is_ok_and(|host| host.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> (Servers, u64) {
        Servers::parse(text).expect("the list is good")
    }

    fn peer(id: u64, host: &str, port: u16) -> PeerAddress {
        PeerAddress { id: NodeId(id), host: host.to_owned(), port }
    }

    /// Server 2 with its configuration and a list of before.
    fn advertised(remembered: Option<&str>) -> AdvertisedAddress {
        let remembered = remembered.map(list).map(|(servers, version)| Remembered { servers, version });
        let client_addr = SocketAddr::from(([127, 0, 0, 1], 9));
        AdvertisedAddress::new(2, client_addr, remembered)
    }

    /// Where the others and clients find it from then on, and the version of the list to be remembered; `-` = nothing new.
    fn told(moved: Option<Moved>) -> String {
        let Some(Moved { peers, clients, list }) = moved else { return "-".to_owned() };
        let text = |at: Option<(String, u16)>| at.map_or("-".to_owned(), |(host, port)| format!("{host}:{port}"));
        let version = list.map_or("-".to_owned(), |list| list.version.to_string());
        format!("{} {} {version}", text(peers), text(clients))
    }

    #[test]
    fn where_this_server_is_follows_the_list_but_not_at_first() {
        let configured = [peer(2, "a", 1)];
        let mut advertised = advertised(None);
        let mut check = |text: &str, expect: &str| {
            let (servers, version) = list(text);
            let (counts, moved) =
                advertised.follow(Some((servers.clone(), version)), Some(servers.clone()), &configured);
            assert_eq!((told(moved).as_str(), counts), (expect, Some(servers)), "{text}");
        };
        check("server.1=c:1:2\nversion=1", "- - 1");
        check("server.2=b:1:2;9\nversion=2", "- - 2");
        check("server.2=b:1:2;9\nversion=2", "-");
        check("server.2=b:1:2;9\nserver.1=c:1:2\nversion=3", "- - 3");
        check("server.2=b:3:2;9\nversion=4", "b:3 - 4");
        check("server.2=d:3:2;9\nversion=5", "d:3 - 5");
        check("server.2=d:3:2;10\nversion=6", "- 0.0.0.0:10 6");
        check("server.2=d:3:2:observer\nversion=7", "- - 7");
        check("server.1=c:1:2\nversion=8", "- - 8");
        check("server.2=a:3:7;b:10\nversion=9", "a:3 b:10 9");
        // Any address of its host is the one of its configuration.
        check("server.2=0.0.0.0:3:7;b:10\nversion=a", "- - 10");
        check("server.2=0.0.0.0:4:7;b:10\nversion=b", "a:4 - 11");
        check("server.2=[::]:4:7;b:10\nversion=c", "- - 12");
        let (counts, moved) = advertised.follow(None, None, &configured);
        assert_eq!(counts.map(|all| all.lines()), Some("server.2=[0:0:0:0:0:0:0:0]:4:7:participant;b:10\n".to_owned()));
        assert_eq!(told(moved), "-");
    }

    #[test]
    fn a_list_that_is_older_than_what_was_known_moves_nobody() {
        let configured = [peer(1, "a", 1), peer(2, "a", 2), peer(3, "a", 3)];
        let mut advertised = advertised(Some("server.1=b:1:7\nserver.2=b:2:7;9\nserver.4=b:4:7\nversion=5"));
        let mut check = |text: Option<&str>, told_now: &str, lines: &[&str]| {
            let tree = text.map(list);
            let known = tree.clone().map(|(servers, _)| servers);
            let (counts, moved) = advertised.follow(tree, known, &configured);
            let counts = counts.expect("a list is known").lines();
            let expect: String = lines.iter().map(|line| format!("server.{line}:participant\n")).collect();
            assert_eq!((told(moved).as_str(), counts.replace(";0.0.0.0:9", "")), (told_now, expect), "{text:?}");
        };
        let remembered = ["1=b:1:7", "2=b:2:7", "4=b:4:7"];
        check(None, "-", &remembered);
        let old = "server.1=a:1:7\nserver.2=a:2:7;8\nserver.3=a:3:7\nversion=1";
        check(Some(old), "-", &["1=b:1:7", "2=b:2:7", "3=a:3:7", "4=b:4:7"]);
        check(Some("server.2=c:2:7;7\nversion=4"), "-", &remembered);
        check(Some("server.1=b:1:7\nserver.2=b:2:7;9\nserver.4=b:4:7\nversion=5"), "-", &remembered);
        // A newer one counts alone.
        check(Some("server.1=b:1:7\nserver.2=b:3:7;9\nversion=6"), "b:3 - 6", &["1=b:1:7", "2=b:3:7"]);
    }

    #[test]
    fn a_list_that_is_newer_than_what_was_known_moves_at_once() {
        let mut advertised = advertised(Some("server.2=a:2:7;9\nversion=5"));
        let (servers, version) = list("server.2=a:3:7;10\nversion=6");
        let (_, moved) = advertised.follow(Some((servers.clone(), version)), Some(servers), &[peer(2, "a", 2)]);
        assert_eq!(told(moved), "a:3 0.0.0.0:10 6");
    }

    #[test]
    fn where_the_list_differs_from_the_configuration_is_told_once_and_not_at_once() {
        let check = |text: &str, newer: Option<&str>, expect: &[&str]| {
            let configured = [peer(1, "a", 1), peer(2, "a", 2)];
            let mut advertised = advertised(Some(text));
            assert_eq!(advertised.compare(Millis(100), &configured), [""; 0]);
            if let Some((servers, version)) = newer.map(list) {
                advertised.follow(Some((servers.clone(), version)), Some(servers), &configured);
            }
            assert_eq!(advertised.compare(Millis(99 + COMPARED_AFTER_MS), &configured), [""; 0]);
            let told = advertised.compare(Millis(100 + COMPARED_AFTER_MS), &configured);
            assert_eq!(told.len(), expect.len(), "{told:?}");
            assert!(told.iter().zip(expect).all(|(told, part)| told.contains(part)), "{told:?}");
            assert_eq!(advertised.compare(Millis(100_000), &configured), [""; 0]);
        };
        check("server.2=a:2:7;9\nversion=5", None, &[]);
        check("server.2=a:2:7\nversion=5", None, &[]);
        check("server.2=[::]:2:7;b:9\nversion=5", None, &[]);
        check("server.2=b:2:7;8\nversion=5", None, &["find this one at b:2, and its configuration says a:2", "port 8"]);
        check("server.2=[::]:3:7;9\nversion=5", None, &["a:3, and its configuration says a:2"]);
        check("server.1=b:2:7;8\nversion=5", None, &[]);
        // Moved while it was away, and its configuration says so.
        check("server.2=b:2:7;8\nversion=5", Some("server.2=a:2:7;9\nversion=6"), &[]);
        check("server.2=b:2:7;8\nversion=5", Some("server.2=a:2:7;8\nversion=6"), &["port 8"]);
    }

    #[test]
    fn where_others_are_found() {
        let configured = [peer(1, "old", 1), peer(2, "b", 1), peer(3, "c", 1)];
        assert_eq!(addresses(None, &configured), configured);
        let (known, _) = list("server.1=a:1:2\nserver.2=0.0.0.0:7:2\nserver.4=d:1:2");
        let all = [peer(1, "a", 1), peer(2, "b", 7), peer(4, "d", 1), peer(3, "c", 1)];
        assert_eq!(addresses(Some(known), &configured), all);
    }
}
