//! The servers of an ensemble as configuration names them: ZooKeeper's `server.N` lines, and the same in TOML.
//!
//! Pure data and parsing, at start-up. It resolves no name: a name that does not resolve today may do so tomorrow. It
//! does not know which of the servers this one is.

use std::fmt;
use std::net::IpAddr;

use crate::config::value::{Field, Limits, Raw, Rejection, Role, quoted, shortened};

/// Servers of one ensemble at most.
pub(crate) const MEMBERS_MAX: usize = corral_consensus::limits::MEMBERS_MAX;
/// Largest id: it is the highest byte of session ids, and 255 there is ZooKeeper's mark of local sessions.
pub(crate) const ID_MAX: u8 = 254;
/// Longest host name of the DNS.
const HOST_BYTES_MAX: usize = 253;

const FORM: &str = "give HOST:PORT:PORT[:participant|:observer][;[HOST:]CLIENTPORT], for example \
                    10.0.0.1:2888:3888:participant;2181";
const TOML_FORM: &str = "give \"ID=HOST:PORT[:participant|:observer][;[HOST:]CLIENTPORT]\", for example \
                         \"1=10.0.0.1:2888;2181\"";

/// One server of the ensemble.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// 1 to `ID_MAX`.
    pub(crate) id: u8,
    /// Name or IP address, without brackets.
    pub(crate) host: String,
    /// Where its peers reach it; the first port of a `server.N` line.
    pub(crate) port: u16,
    /// The second port of a `server.N` line, which only ZooKeeper needs; kept because clients are shown it.
    pub(crate) election_port: Option<u16>,
    pub(crate) role: Role,
    /// Where its clients reach it, if the line says so; without a host when it names a port alone.
    pub(crate) client: Option<(Option<String>, u16)>,
}

impl Member {
    /// Parses the text behind `server.N=`. The second string is a warning.
    pub(crate) fn of_zookeeper(id: u8, text: &str) -> Result<(Member, Option<String>), Rejection> {
        read(id, text, true)
    }

    /// Where its peers reach it.
    pub(crate) fn peer_address(&self) -> String {
        format!("{}:{}", bracketed(&self.host), self.port)
    }

    /// Whether it is reached without leaving this host, as far as its name tells.
    pub(crate) fn is_on_loopback(&self) -> bool {
        match self.host.parse::<IpAddr>() {
            Ok(address) => address.is_loopback(),
            Err(_) => self.host == "localhost" || self.host.ends_with(".localhost"),
        }
    }
}

impl fmt::Display for Member {
    /// As `of_zookeeper` takes it, without a second port if there is none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.peer_address())?;
        if let Some(port) = self.election_port {
            write!(f, ":{port}")?;
        }
        write!(f, ":{}", self.role.word())?;
        match &self.client {
            Some((Some(host), port)) => write!(f, ";{}:{port}", bracketed(host)),
            Some((None, port)) => write!(f, ";{port}"),
            None => Ok(()),
        }
    }
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

/// All servers of the ensemble, by id; empty or one of them is a server that runs alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Members(pub(crate) Vec<Member>);

impl Members {
    /// Adds a server.
    pub(crate) fn add(&mut self, member: Member) -> Result<(), Rejection> {
        if self.0.len() >= MEMBERS_MAX {
            let reason = format!("there are more than {MEMBERS_MAX} servers");
            return Err(Rejection::new(reason, "an ensemble has three, five or seven, and some observers"));
        }
        if self.of(member.id).is_some() {
            let reason = format!("there are two servers {}", member.id);
            return Err(Rejection::new(reason, "give each server an id of its own"));
        }
        if let Some(other) = self.0.iter().find(|other| (&other.host, other.port) == (&member.host, member.port)) {
            let reason = format!("servers {} and {} have one address", other.id, member.id);
            return Err(Rejection::new(reason, "give each server a host or port of its own"));
        }
        let at = self.0.partition_point(|other| other.id < member.id);
        self.0.insert(at, member);
        Ok(())
    }

    /// The server of this id.
    pub(crate) fn of(&self, id: u8) -> Option<&Member> {
        self.0.iter().find(|member| member.id == id)
    }

    /// Whether several servers make an ensemble.
    pub(crate) fn is_ensemble(&self) -> bool {
        self.0.len() > 1
    }

    /// How many have a vote.
    pub(crate) fn voters(&self) -> usize {
        self.0.iter().filter(|member| member.role == Role::Participant).count()
    }
}

impl Field for Members {
    const KIND: &'static str = "list of servers";

    fn parse(raw: &Raw, _limits: Limits) -> Result<Members, Rejection> {
        let Raw::List(list) = raw else {
            return Err(Rejection::new("the value is no list of texts", format!("in a list, {TOML_FORM}")));
        };
        let mut members = Members::default();
        for text in list {
            let refused = |rejection: Rejection| {
                Rejection::new(format!("{:?}: {}", shortened(text), rejection.reason), rejection.remedy)
            };
            let (id, rest) = text.split_once('=').ok_or_else(|| refused(Rejection::new("there is no =", TOML_FORM)))?;
            let id = id_of(id.trim().trim_start_matches("server.")).map_err(refused)?;
            let (member, _) = read(id, rest.trim(), false).map_err(refused)?;
            members.add(member).map_err(refused)?;
        }
        Ok(members)
    }

    fn show(&self) -> String {
        let shown: Vec<String> = self.0.iter().map(|member| quoted(&format!("{}={member}", member.id))).collect();
        format!("[{}]", shown.join(", "))
    }
}

/// The id of a server, as in `server.N` and in the file `myid`.
pub(crate) fn id_of(text: &str) -> Result<u8, Rejection> {
    let remedy = format!("give a whole number from 1 to {ID_MAX}");
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let id = if digits { text.parse::<u64>().ok() } else { None };
    let Some(id) = id else {
        return Err(Rejection::new(format!("{:?} is no id of a server", shortened(text)), remedy));
    };
    match u8::try_from(id) {
        Ok(id @ 1..=ID_MAX) => Ok(id),
        _ => {
            let reason = format!("{id} is no id of a server: it becomes the highest byte of session ids");
            Err(Rejection::new(reason, remedy))
        }
    }
}

/// The roles that `server.N` lines and `peerType` know, in any case.
pub(crate) fn role_of(text: &str) -> Result<Role, Rejection> {
    match text.to_ascii_lowercase().as_str() {
        "participant" => Ok(Role::Participant),
        "observer" => Ok(Role::Observer),
        _ => {
            Err(Rejection::new(format!("{:?} is no role of a server", shortened(text)), "give participant or observer"))
        }
    }
}

fn read(id: u8, text: &str, two_ports: bool) -> Result<(Member, Option<String>), Rejection> {
    let form = if two_ports { FORM } else { TOML_FORM };
    let malformed = |reason: String| Rejection::new(reason, form);
    let mut sides = text.split(';').map(str::trim);
    let (server, client, more) = (sides.next().unwrap_or_default(), sides.next(), sides.next());
    if more.is_some() {
        return Err(malformed(format!("{:?} has more than one ;", shortened(text))));
    }
    let mut addresses = server.split('|').map(str::trim);
    let first = addresses.next().unwrap_or_default();
    let unused = addresses.count();
    let parts = parts(first).ok_or_else(|| malformed(format!("{:?} has an open bracket", shortened(first))))?;
    let (host, rest) = parts.split_first().expect("splitting gives at least one part");
    let host = host_of(host)?;
    let (ports, role) = match rest {
        [ports @ .., role] if !role.starts_with(|c: char| c.is_ascii_digit()) => (ports, role_of(role)?),
        ports => (ports, Role::Participant),
    };
    let (port, election_port) = match ports {
        [port, election] => (port_of(port)?, Some(port_of(election)?)),
        [port] if !two_ports => (port_of(port)?, None),
        _ => return Err(malformed(format!("{:?} does not have the form of a server", shortened(text)))),
    };
    let client = client.map(|client| client_of(client, form)).transpose()?;
    let warning = (unused > 0).then(|| format!("server {id} has several addresses; only {first} is used"));
    Ok((Member { id, host, port, election_port, role, client }, warning))
}

fn client_of(text: &str, form: &str) -> Result<(Option<String>, u16), Rejection> {
    match parts(text).as_deref() {
        Some([port]) => Ok((None, port_of(port)?)),
        Some([host, port]) => Ok((Some(host_of(host)?), port_of(port)?)),
        _ => Err(Rejection::new(format!("{:?} is no address for clients", shortened(text)), form)),
    }
}

/// The text at its colons; those between brackets at its begin are part of an IPv6 address.
fn parts(text: &str) -> Option<Vec<&str>> {
    let Some(rest) = text.strip_prefix('[') else { return Some(text.split(':').map(str::trim).collect()) };
    let (host, rest) = rest.split_once(']')?;
    let mut parts = vec![host];
    match rest.strip_prefix(':') {
        Some(rest) => parts.extend(rest.split(':').map(str::trim)),
        None if rest.is_empty() => {}
        None => return None,
    }
    Some(parts)
}

fn host_of(text: &str) -> Result<String, Rejection> {
    let text = text.trim();
    let legal = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '%');
    if text.is_empty() || text.len() > HOST_BYTES_MAX || !text.chars().all(legal) {
        let reason = format!("{:?} is no host", shortened(text));
        return Err(Rejection::new(reason, "give a name or an IP address, an IPv6 address in brackets"));
    }
    Ok(text.to_owned())
}

fn port_of(text: &str) -> Result<u16, Rejection> {
    match text.trim().parse() {
        Ok(port @ 1..) => Ok(port),
        _ => Err(Rejection::new(format!("{:?} is no port", shortened(text)), "give a port from 1 to 65535")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: Result<&str, &str>) {
        match (Member::of_zookeeper(7, text), expect) {
            (Ok((member, _)), Ok(shown)) => assert_eq!(member.to_string(), shown),
            (Err(rejection), Err(reason)) => {
                assert!(rejection.reason.contains(reason), "{:?} lacks {reason:?}", rejection.reason);
                assert!(!rejection.remedy.is_empty());
            }
            (found, _) => panic!("{text:?} gives {found:?}"),
        }
    }

    #[test]
    fn lines_of_zookeeper() {
        check("a:2888:3888", Ok("a:2888:3888:participant"));
        check("10.0.0.1:2888:3888:OBSERVER;2181", Ok("10.0.0.1:2888:3888:observer;2181"));
        check("[fe80::1%eth0]:1:2:participant;[::]:3", Ok("[fe80::1%eth0]:1:2:participant;[::]:3"));
        check(" a : 1 : 2 ; b : 3 ", Ok("a:1:2:participant;b:3"));
        check("a:1:2|b:3:4", Ok("a:1:2:participant"));
        check("a:1", Err("does not have the form"));
        check("a", Err("does not have the form"));
        check("", Err("\"\" is no host"));
        check("a:1:2:3", Err("does not have the form"));
        check("a:1:2:leader", Err("\"leader\" is no role"));
        check("a:1:2:observer:3", Err("does not have the form"));
        check("a:0:2", Err("\"0\" is no port"));
        check("a:65536:2", Err("\"65536\" is no port"));
        check("a b:1:2", Err("\"a b\" is no host"));
        check("[::1:1:2", Err("has an open bracket"));
        check("[::1]1:2", Err("has an open bracket"));
        check("a:1:2;b:3:4", Err("is no address for clients"));
        check("a:1:2;x", Err("\"x\" is no port"));
        check("a:1:2;3;4", Err("more than one ;"));
        check(&"x".repeat(300), Err("is no host"));
    }

    #[test]
    fn several_addresses_are_warned_of() {
        let (_, warning) = Member::of_zookeeper(7, "a:1:2|b:3:4|c:5:6:participant;7").expect("it is legal");
        assert_eq!(warning.as_deref(), Some("server 7 has several addresses; only a:1:2 is used"));
    }

    #[test]
    fn lists_of_toml() {
        let check = |list: &[&str], expect: Result<&str, &str>| {
            let raw = Raw::List(list.iter().map(|&text| text.to_owned()).collect());
            match (Members::parse(&raw, Limits::NONE), expect) {
                (Ok(members), Ok(shown)) => assert_eq!(members.show(), shown),
                (Err(rejection), Err(reason)) => assert!(rejection.reason.contains(reason), "{rejection:?}"),
                (found, _) => panic!("{list:?} gives {found:?}"),
            }
        };
        check(&[], Ok("[]"));
        check(&["2=b:1", "server.1=a:1:2:observer;3"], Ok("[\"1=a:1:2:observer;3\", \"2=b:1:participant\"]"));
        check(&["a:1"], Err("there is no ="));
        check(&["x=a:1"], Err("\"x\" is no id"));
        check(&["0=a:1"], Err("0 is no id"));
        check(&["255=a:1"], Err("255 is no id of a server: it becomes the highest byte"));
        check(&["1=a:1", "1=b:1"], Err("there are two servers 1"));
        check(&["1=a:1", "2=a:1"], Err("servers 1 and 2 have one address"));
        let many: Vec<String> = (1..=65).map(|id| format!("{id}=a:{id}")).collect();
        check(&many.iter().map(String::as_str).collect::<Vec<_>>(), Err("more than 64 servers"));
        assert!(Members::parse(&Raw::Text("1=a:1".to_owned()), Limits::NONE).is_err());
    }

    #[test]
    fn what_is_on_this_host() {
        let check = |host: &str, expect: bool| {
            let (member, _) = Member::of_zookeeper(1, &format!("{host}:1:2")).expect("it is legal");
            assert_eq!(member.is_on_loopback(), expect, "{host}");
        };
        check("127.0.0.9", true);
        check("[::1]", true);
        check("localhost", true);
        check("10.0.0.1", false);
        check("one.example", false);
        check("notlocalhost", false);
    }
}
