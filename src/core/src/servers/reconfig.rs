//! A request to change the list of servers, read as leniently and as strictly as ZooKeeper, with its error for each fault.
//!
//! Refused here and not there: groups and weights, and ids that are not 1 to 254.

use super::Servers;
use super::server::{BROKEN_OFF, REFUSED, Server, number};
use crate::limits::{ENSEMBLE_ID_MAX, ENSEMBLE_SERVERS_MAX, RECONFIG_BYTES_MAX};
use crate::shared::Text;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;
use corral_types::ServerId;
use corral_wire::error::ErrorCode;

/// A `reconfig` request as the client sent it. With `members` the others are passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reconfig {
    /// `server.5=host:port:port[:role];[host:]port`, separated by commas.
    pub joining: Option<Text>,
    /// Ids, separated by commas.
    pub leaving: Option<Text>,
    /// The whole new list, separated by commas or newlines.
    pub members: Option<Text>,
    /// The version that the list must have; -1 = any.
    pub from: i64,
}

impl Default for Reconfig {
    fn default() -> Self {
        Self { joining: None, leaving: None, members: None, from: -1 }
    }
}

impl Reconfig {
    /// Bytes of its texts.
    pub fn bytes(&self) -> usize {
        let texts = [&self.joining, &self.leaving, &self.members];
        texts.into_iter().flatten().map(|text| text.len()).sum()
    }

    /// Whether its texts are longer than those of any list of servers, or name more servers than a list may ever hold.
    /// Each one is compared with all others.
    pub fn is_too_long(&self) -> bool {
        let texts = [&self.joining, &self.leaving, &self.members];
        let names_too_many = |text: &Text| text.split([',', '\n', '\r']).nth(4 * ENSEMBLE_SERVERS_MAX).is_some();
        self.bytes() > RECONFIG_BYTES_MAX || texts.into_iter().flatten().any(names_too_many)
    }

    /// The list that it makes of this one, or why there is none: BADARGUMENTS, or MARSHALLINGERROR where ZooKeeper breaks
    /// off because a number is none. `voters_min`: so many must have a vote.
    ///
    /// # Errors
    /// Those two.
    pub fn apply(&self, servers: &Servers, voters_min: usize) -> Result<Servers, ErrorCode> {
        let next = match &self.members {
            Some(members) => whole(members, voters_min)?,
            None => changed(servers, self.joining.as_deref(), self.leaving.as_deref())?,
        };
        let fits = next.voters() >= voters_min && next.0.len() <= ENSEMBLE_SERVERS_MAX;
        if fits { Ok(next) } else { Err(ErrorCode::BadArguments) }
    }
}

/// The list with these servers gone and those there, in this order.
fn changed(servers: &Servers, joining: Option<&str>, leaving: Option<&str>) -> Result<Servers, ErrorCode> {
    let mut next = servers.clone();
    for id in items(leaving.unwrap_or_default(), ',') {
        let id: i64 = number(id).ok_or(BROKEN_OFF)?;
        if let Ok(id) = u8::try_from(id) {
            next.0.remove(&ServerId(id));
        }
    }
    let mut taken: BTreeMap<_, _> = next.0.iter().map(|(&id, server)| (id, places(server))).collect();
    for joiner in items(joining.unwrap_or_default(), ',') {
        let mut parts = items(joiner, '=');
        let (Some(key), Some(spec), None) = (parts.next(), parts.next(), parts.next()) else { return Err(REFUSED) };
        let id: i64 = number(key.rsplit('.').next().unwrap_or(key)).ok_or(BROKEN_OFF)?;
        let server = Server::parse(spec)?;
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
fn whole(text: &str, voters_min: usize) -> Result<Servers, ErrorCode> {
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
                let server = Server::parse(value)?;
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

fn legal_id(id: i64) -> Result<ServerId, ErrorCode> {
    u8::try_from(id).ok().filter(|id| (1..=ENSEMBLE_ID_MAX).contains(id)).map(ServerId).ok_or(REFUSED)
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
