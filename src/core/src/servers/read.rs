//! Reading what clients send for servers, as leniently and as strictly as ZooKeeper, with its error for each fault.
//!
//! There are two faults. ZooKeeper's parser refuses a text (BADARGUMENTS), or it breaks off by an unexpected exception
//! (MARSHALLINGERROR). The exceptions are of unchecked numbers that cannot be parsed, and of ports beyond 65535.
//! Refused here and not there: several addresses for one server, groups and weights, the port 0, ids that are not 1 to
//! 254.

use super::{Role, Server, Servers};
use crate::limits::{ENSEMBLE_ID_MAX, ENSEMBLE_SERVERS_MAX};
use crate::shared::Text;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};
use corral_wire::error::ErrorCode;

/// Longest host name of the DNS.
const HOST_BYTES_MAX: usize = 253;

const REFUSED: ErrorCode = ErrorCode::BadArguments;
const BROKEN_OFF: ErrorCode = ErrorCode::MarshallingError;

/// The list with these servers gone and those there, in this order.
pub(super) fn changed(servers: &Servers, joining: Option<&str>, leaving: Option<&str>) -> Result<Servers, ErrorCode> {
    let mut next = servers.clone();
    for id in items(leaving.unwrap_or_default(), ',') {
        let id: i64 = number(id).ok_or(BROKEN_OFF)?;
        if let Ok(id) = u8::try_from(id) {
            next.0.remove(&id);
        }
    }
    let mut taken: BTreeMap<u8, Vec<(Text, u16)>> = next.0.iter().map(|(&id, server)| (id, places(server))).collect();
    for joiner in items(joining.unwrap_or_default(), ',') {
        let mut parts = items(joiner, '=');
        let (Some(key), Some(spec), None) = (parts.next(), parts.next(), parts.next()) else { return Err(REFUSED) };
        let id: i64 = number(key.rsplit('.').next().unwrap_or(key)).ok_or(BROKEN_OFF)?;
        let server = server(spec)?;
        let id = legal_id(id)?;
        if server.client.is_none() {
            return Err(REFUSED);
        }
        let places = places(&server);
        let mut others = taken.iter().filter(|(other, _)| **other != id).flat_map(|(_, taken)| taken);
        if others.any(|place| places.contains(place)) {
            return Err(REFUSED);
        }
        taken.insert(id, places);
        next.0.insert(id, server);
        if next.0.len() > ENSEMBLE_SERVERS_MAX {
            return Err(REFUSED);
        }
    }
    Ok(next)
}

/// A whole list.
pub(super) fn whole(text: &str, voters_min: usize) -> Result<Servers, ErrorCode> {
    let properties = properties(text)?;
    let known = |key: &String| key.starts_with("server.") || key == "version";
    if !properties.keys().all(known) {
        return Err(REFUSED);
    }
    let mut servers = Servers::default();
    for (key, value) in &properties {
        match key.strip_prefix("server.") {
            Some(id) => {
                let id: i64 = number(id).ok_or(BROKEN_OFF)?;
                let server = server(value)?;
                servers.0.insert(legal_id(id)?, server);
            }
            None => {
                i64::from_str_radix(value, 16).map_err(|_| BROKEN_OFF)?;
            }
        }
    }
    // ZooKeeper breaks off where no server has a vote, or only one, unless that is refused anyway.
    let (voters, observers) = (servers.voters(), servers.0.len() - servers.voters());
    match voters {
        0 if voters_min <= 1 || observers > 0 => Err(BROKEN_OFF),
        1 if voters_min > 1 && observers > 0 => Err(BROKEN_OFF),
        _ => Ok(servers),
    }
}

fn legal_id(id: i64) -> Result<u8, ErrorCode> {
    u8::try_from(id).ok().filter(|id| (1..=ENSEMBLE_ID_MAX).contains(id)).ok_or(REFUSED)
}

/// Reads the text behind `server.N=`.
pub(super) fn server(text: &str) -> Result<Server, ErrorCode> {
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
    Ok(Server { host, peer_port, election_port, role, client })
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
fn number<T: core::str::FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

/// The addresses that no other server may have. Those of the loopback and of any interface mean another host each time.
fn places(server: &Server) -> Vec<(Text, u16)> {
    let own = |port: u16| (server.host.clone(), port);
    let all = [Some(own(server.peer_port)), Some(own(server.election_port)), server.client.clone()];
    all.into_iter().flatten().filter(|(host, _)| !means_many(host)).collect()
}

fn means_many(host: &str) -> bool {
    match host.parse::<IpAddr>() {
        Ok(address) => address.is_unspecified() || address.is_loopback(),
        Err(_) => host == "localhost",
    }
}

/// Between the separators, without spaces around and without the empty ones.
fn items(text: &str, separator: char) -> impl Iterator<Item = &str> {
    text.split(separator).map(str::trim).filter(|item| !item.is_empty())
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

/// Java's properties, with commas for newlines too: keys and values, the last of a key counts. Escapes are refused.
fn properties(text: &str) -> Result<BTreeMap<String, String>, ErrorCode> {
    const SPACE: [char; 3] = [' ', '\t', '\u{c}'];
    let mut found = BTreeMap::new();
    for line in text.split([',', '\n', '\r']) {
        let line = line.trim_start_matches(SPACE);
        if line.is_empty() || line.starts_with(['#', '!']) {
            continue;
        }
        if line.contains('\\') {
            return Err(REFUSED);
        }
        let end = line.find(|c| matches!(c, '=' | ':') || SPACE.contains(&c)).unwrap_or(line.len());
        let (key, rest) = line.split_at(end);
        let rest = rest.trim_start_matches(SPACE);
        let value = rest.strip_prefix(['=', ':']).unwrap_or(rest).trim_start_matches(SPACE);
        found.insert(String::from(key), String::from(value));
    }
    Ok(found)
}
