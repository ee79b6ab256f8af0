//! The addresses of servers: as the list of servers in the tree states them, and as configured.
//!
//! The newest list counts. Servers that are not in it keep their configured addresses, because this server's list may be
//! old, and a leader of today not in it.

use core::net::{IpAddr, SocketAddr};

use corral_consensus::ServerId;
use corral_core::ids::Millis;
use corral_core::servers::{Server, Servers};

/// The address at which the other servers reach one server of the ensemble.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerAddress {
    /// The server.
    pub id: ServerId,
    /// Name or IP address, without brackets.
    pub host: String,
    /// Port of its peer listener.
    pub port: u16,
}

/// A list of servers with its version, as it is stored for the next start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredServers {
    /// The list.
    pub servers: Servers,
    /// Its version; a newer list has a higher one.
    pub version: u64,
}

/// The changes for this server that come with a new list of servers.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Its address for the other servers, host and port, if that has changed.
    pub peers: Option<(String, u16)>,
    /// Its address for clients, host and port, if that has changed.
    pub clients: Option<(String, u16)>,
    /// The list itself, to be stored, if it is newer than the stored one.
    pub list: Option<StoredServers>,
}

/// The addresses of all servers: those of the list, and the configured ones of servers that are not in it. A server that
/// is listed with an unspecified address (`0.0.0.0`) has the host of the configuration.
#[must_use]
pub fn addresses(known: Option<Servers>, configured: &[PeerAddress]) -> Vec<PeerAddress> {
    let known = known.unwrap_or_default();
    let mut all: Vec<PeerAddress> = known.0.iter().map(|(id, server)| address_of(*id, server, configured)).collect();
    let more = configured.iter().filter(|peer| !known.0.contains_key(&peer.id));
    all.extend(more.cloned());
    all
}

/// The address of one listed server for the other servers.
fn address_of(id: ServerId, server: &Server, configured: &[PeerAddress]) -> PeerAddress {
    let configured = configured.iter().find(|peer| peer.id == id && is_any(server));
    let host = configured.map_or_else(|| server.host.to_string(), |configured| configured.host.clone());
    PeerAddress { id, host, port: server.peer_port }
}

/// Time after the start until the configuration is compared with the list, in milliseconds.
const COMPARED_AFTER_MS: u64 = 3000;

/// The addresses of this server, as the list of servers states them.
pub(crate) struct AdvertisedAddress {
    own: ServerId,
    /// Its address for clients, as configured.
    client_addr: SocketAddr,
    /// The newest list known, perhaps stored before this start.
    newest: Option<StoredServers>,
    /// This server in the last list.
    listed: Option<Server>,
    /// Whether its address has changed since this start: for the other servers, and for clients.
    moved: (bool, bool),
    /// The first tick.
    since: Option<Millis>,
    /// The configuration was compared with the list.
    compared: bool,
}

impl AdvertisedAddress {
    /// `stored` is a list from before this start, and `client_addr` as configured.
    pub(crate) fn new(own: ServerId, client_addr: SocketAddr, stored: Option<StoredServers>) -> AdvertisedAddress {
        let mut advertised = AdvertisedAddress {
            own,
            client_addr,
            newest: stored,
            listed: None,
            moved: (false, false),
            since: None,
            compared: false,
        };
        advertised.listed = advertised.own_line().cloned();
        advertised
    }

    /// The list in the tree has changed to `list`; with joining servers it is `known`. Gives the servers that count,
    /// and the changes for this server. A list that is older than the newest known one moves no server; only the
    /// servers that it adds count.
    ///
    /// At its start a server listens at its configured address, because an operator may have moved all servers while
    /// they were stopped. [`AdvertisedAddress::compare`] reports a difference to the newest list. After the start a newer
    /// list counts.
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
            let list = list.map(|(servers, version)| StoredServers { servers, version });
            self.newest.clone_from(&list);
            moved.list = list;
        }
        if let Some(now) = self.own_line().cloned() {
            let at = |server: &Server| address_of(self.own, server, configured);
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

    /// The servers of the newest list, and the servers that only an older list has.
    fn with_newest(&self, known: Option<Servers>) -> Option<Servers> {
        let mut all = known.unwrap_or_default();
        all.0.extend(self.newest.as_ref()?.servers.0.clone());
        Some(all)
    }

    /// Once, when a restarted server has had the time to receive the list: the differences between the list and the
    /// configuration, as sentences. Addresses that have changed since the start are left out.
    pub(crate) fn compare(&mut self, now: Millis, configured: &[PeerAddress]) -> Vec<String> {
        let since = *self.since.get_or_insert(now);
        let own = configured.iter().find(|peer| peer.id == self.own);
        let (Some(listed), Some(own)) = (self.own_line().cloned(), own) else { return Vec::new() };
        if self.compared || now.since(since) < COMPARED_AFTER_MS {
            return Vec::new();
        }
        self.compared = true;
        let mut differences = Vec::new();
        let at = address_of(self.own, &listed, configured);
        if at != *own && !self.moved.0 {
            differences.push(format!(
                "the membership says that the others find this one at {}:{}, and its configuration says {}:{}: correct \
                 the configuration and start it again, or the list",
                at.host, at.port, own.host, own.port
            ));
        }
        let (port, client) = (self.client_addr.port(), listed.client.as_ref().map(|(_, port)| *port));
        if let Some(client) = client.filter(|client| *client != port && port != 0 && !self.moved.1) {
            differences.push(format!(
                "the membership says that clients find this one at port {client}, and it listens at {port}: correct its \
                 configuration and start it again, or the list"
            ));
        }
        differences
    }
}

/// Whether a server is listed with an unspecified address.
fn is_any(server: &Server) -> bool {
    server.host.parse::<IpAddr>().is_ok_and(|host| host.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> (Servers, u64) {
        Servers::parse(text).expect("the list is good")
    }

    fn peer(id: u8, host: &str, port: u16) -> PeerAddress {
        PeerAddress { id: ServerId(id), host: host.to_owned(), port }
    }

    /// Server 2 with its configuration and a list of before.
    fn advertised(stored: Option<&str>) -> AdvertisedAddress {
        let stored = stored.map(list).map(|(servers, version)| StoredServers { servers, version });
        let client_addr = SocketAddr::from(([127, 0, 0, 1], 9));
        AdvertisedAddress::new(ServerId(2), client_addr, stored)
    }

    /// Where the others and clients find it from then on, and the version of the list to store; `-` = nothing
    /// new.
    fn text_of(moved: Option<Moved>) -> String {
        let Some(Moved { peers, clients, list }) = moved else { return "-".to_owned() };
        let text = |at: Option<(String, u16)>| at.map_or("-".to_owned(), |(host, port)| format!("{host}:{port}"));
        let version = list.map_or("-".to_owned(), |list| list.version.to_string());
        format!("{} {} {version}", text(peers), text(clients))
    }

    #[test]
    fn the_address_follows_the_list_after_the_first_one() {
        let configured = [peer(2, "a", 1)];
        let mut advertised = advertised(None);
        let mut check = |text: &str, expect: &str| {
            let (servers, version) = list(text);
            let (counts, moved) =
                advertised.follow(Some((servers.clone(), version)), Some(servers.clone()), &configured);
            assert_eq!((text_of(moved).as_str(), counts), (expect, Some(servers)), "{text}");
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
        assert_eq!(text_of(moved), "-");
    }

    #[test]
    fn an_older_list_moves_no_server() {
        let configured = [peer(1, "a", 1), peer(2, "a", 2), peer(3, "a", 3)];
        let mut advertised = advertised(Some("server.1=b:1:7\nserver.2=b:2:7;9\nserver.4=b:4:7\nversion=5"));
        let mut check = |text: Option<&str>, told_now: &str, lines: &[&str]| {
            let tree = text.map(list);
            let known = tree.clone().map(|(servers, _)| servers);
            let (counts, moved) = advertised.follow(tree, known, &configured);
            let counts = counts.expect("a list is known").lines();
            let expect: String = lines.iter().map(|line| format!("server.{line}:participant\n")).collect();
            assert_eq!((text_of(moved).as_str(), counts.replace(";0.0.0.0:9", "")), (told_now, expect), "{text:?}");
        };
        let newest = ["1=b:1:7", "2=b:2:7", "4=b:4:7"];
        check(None, "-", &newest);
        let old = "server.1=a:1:7\nserver.2=a:2:7;8\nserver.3=a:3:7\nversion=1";
        check(Some(old), "-", &["1=b:1:7", "2=b:2:7", "3=a:3:7", "4=b:4:7"]);
        check(Some("server.2=c:2:7;7\nversion=4"), "-", &newest);
        check(Some("server.1=b:1:7\nserver.2=b:2:7;9\nserver.4=b:4:7\nversion=5"), "-", &newest);
        // A newer one counts alone.
        check(Some("server.1=b:1:7\nserver.2=b:3:7;9\nversion=6"), "b:3 - 6", &["1=b:1:7", "2=b:3:7"]);
    }

    #[test]
    fn a_newer_list_moves_this_server_at_once() {
        let mut advertised = advertised(Some("server.2=a:2:7;9\nversion=5"));
        let (servers, version) = list("server.2=a:3:7;10\nversion=6");
        let (_, moved) = advertised.follow(Some((servers.clone(), version)), Some(servers), &[peer(2, "a", 2)]);
        assert_eq!(text_of(moved), "a:3 0.0.0.0:10 6");
    }

    #[test]
    fn a_difference_between_list_and_configuration_is_reported_once() {
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
        // Moved while it was not running, and its configuration says so.
        check("server.2=b:2:7;8\nversion=5", Some("server.2=a:2:7;9\nversion=6"), &[]);
        check("server.2=b:2:7;8\nversion=5", Some("server.2=a:2:7;8\nversion=6"), &["port 8"]);
    }

    #[test]
    fn addresses_of_the_list_and_of_the_configuration() {
        let configured = [peer(1, "old", 1), peer(2, "b", 1), peer(3, "c", 1)];
        assert_eq!(addresses(None, &configured), configured);
        let (known, _) = list("server.1=a:1:2\nserver.2=0.0.0.0:7:2\nserver.4=d:1:2");
        let all = [peer(1, "a", 1), peer(2, "b", 7), peer(4, "d", 1), peer(3, "c", 1)];
        assert_eq!(addresses(Some(known), &configured), all);
    }
}
