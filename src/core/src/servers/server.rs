//! One server of the list: its text, read as leniently and as strictly as ZooKeeper, with its error for each fault.
//!
//! There are two faults. ZooKeeper's parser refuses a text (BADARGUMENTS), or it breaks off by an unexpected exception
//! (MARSHALLINGERROR). The exceptions are of unchecked numbers that cannot be parsed, and of ports beyond 65535.
//! Refused here and not there: several addresses for one server, and the port 0.

use crate::shared::Text;
use alloc::format;
use alloc::vec::Vec;
use core::fmt::{self, Write};
use core::net::{IpAddr, Ipv6Addr};
use corral_wire::error::ErrorCode;

/// Longest host name of the DNS.
const HOST_BYTES_MAX: usize = 253;

pub(super) const REFUSED: ErrorCode = ErrorCode::BadArguments;
pub(super) const BROKEN_OFF: ErrorCode = ErrorCode::MarshallingError;

/// Whether a server has a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// It votes: a follower or the leader.
    Participant,
    /// It has no vote. It receives the log and serves reads.
    Observer,
}

impl Role {
    /// As the text has it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Participant => "participant",
            Self::Observer => "observer",
        }
    }
}

/// One server of the list. Hosts are without brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Name or IP address at which the other servers reach it.
    pub host: Text,
    /// Where the other servers reach it.
    pub peer_port: u16,
    /// Only ZooKeeper has a use for it; it travels in the text.
    pub election_port: u16,
    /// Its role in the ensemble.
    pub role: Role,
    /// Where clients reach it, if the list says so.
    pub client: Option<(Text, u16)>,
}

impl Server {
    /// Reads the text behind `server.N=`.
    pub(super) fn parse(text: &str) -> Result<Self, ErrorCode> {
        let sides = split(text, ';');
        let client = match sides.as_slice() {
            [] => return Err(BROKEN_OFF),
            [_, client] => Some(client_of(client)?),
            _ => None,
        };
        let parts = host_and_ports(sides[0])?;
        if sides.len() > 2 || sides[0].contains('|') {
            return Err(REFUSED);
        }
        let (host, peer, election, role) = match parts.as_slice() {
            [host, peer, election] => (host, peer, election, None),
            [host, peer, election, role] => (host, peer, election, Some(role)),
            _ => return Err(REFUSED),
        };
        let (host, peer_port, election_port) = (host_of(host)?, port(peer)?, port(election)?);
        if peer_port == election_port {
            return Err(REFUSED);
        }
        let role = match role.map(|role| role.trim().to_lowercase()).as_deref() {
            None | Some("participant") => Role::Participant,
            Some("observer") => Role::Observer,
            Some(_) => return Err(REFUSED),
        };
        Ok(Self { host, peer_port, election_port, role, client })
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        put_host(f, &self.host)?;
        write!(f, ":{}:{}:{}", self.peer_port, self.election_port, self.role.word())?;
        if let Some((host, port)) = &self.client {
            f.write_char(';')?;
            put_host(f, host)?;
            write!(f, ":{port}")?;
        }
        Ok(())
    }
}

fn put_host(f: &mut fmt::Formatter<'_>, host: &str) -> fmt::Result {
    if host.contains(':') { write!(f, "[{host}]") } else { f.write_str(host) }
}

fn client_of(text: &str) -> Result<(Text, u16), ErrorCode> {
    match host_and_ports(text)?.as_slice() {
        [] => Err(BROKEN_OFF),
        [last] => Ok((Text::from("0.0.0.0"), port(last)?)),
        [host, last] => Ok((host_of(host)?, port(last)?)),
        _ => Err(REFUSED),
    }
}

/// The text at its colons; those in brackets at its begin are part of an address.
fn host_and_ports(text: &str) -> Result<Vec<&str>, ErrorCode> {
    let Some(rest) = text.strip_prefix('[') else { return Ok(split(text, ':')) };
    let (host, rest) = rest.split_once(']').ok_or(REFUSED)?;
    let mut behind = rest.chars();
    match behind.next() {
        None => Ok(Vec::from([host])),
        // The character may be any.
        Some(_) if behind.as_str().is_empty() => Err(REFUSED),
        Some(_) => {
            let mut parts = Vec::from([host]);
            parts.extend(split(behind.as_str(), ':'));
            Ok(parts)
        }
    }
}

fn host_of(text: &str) -> Result<Text, ErrorCode> {
    let legal = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '%');
    if text.len() > HOST_BYTES_MAX || !text.chars().all(legal) {
        return Err(REFUSED);
    }
    Ok(match text.parse() {
        // As Java prints it: no group is left out.
        Ok(IpAddr::V6(address)) => in_full(address),
        _ if text.is_empty() => Text::from("localhost"),
        _ => Text::from(text),
    })
}

fn in_full(address: Ipv6Addr) -> Text {
    let [a, b, c, d, e, f, g, h] = address.segments();
    Text::from(format!("{a:x}:{b:x}:{c:x}:{d:x}:{e:x}:{f:x}:{g:x}:{h:x}"))
}

fn port(text: &str) -> Result<u16, ErrorCode> {
    match u16::try_from(number::<i32>(text).ok_or(REFUSED)?) {
        Ok(0) => Err(REFUSED),
        Ok(port) => Ok(port),
        Err(_) => Err(BROKEN_OFF),
    }
}

/// A number as Java reads it: digits, a sign perhaps, no space.
pub(super) fn number<T: core::str::FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

/// As Java splits: what is empty at the end is no part.
fn split(text: &str, separator: char) -> Vec<&str> {
    let mut parts: Vec<&str> = text.split(separator).collect();
    while parts.len() > 1 && parts.last().is_some_and(|part| part.is_empty()) {
        parts.pop();
    }
    if parts == [""] && !text.is_empty() {
        parts.clear();
    }
    parts
}
