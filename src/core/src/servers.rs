//! The servers of an ensemble as `/zookeeper/config` names them, and the changes to that list that clients ask for.
//!
//! Pure texts and values, part of the state machine: every server comes to the same list. The text is ZooKeeper's to
//! the byte (protocol chapter 21). It has a line for each server in the order of their ids, then the version, no
//! newline behind it. It knows nothing of connections, of the leader, or of the membership in Raft.

mod read;

use crate::limits::{ENSEMBLE_ID_MAX, ENSEMBLE_SERVERS_MAX, RECONFIG_BYTES_MAX};
use crate::shared::Text;
use alloc::collections::BTreeMap;
use alloc::string::String;
use core::fmt::{self, Write};
use corral_wire::error::ErrorCode;

/// Where the list is kept.
pub const CONFIG_PATH: &str = "/zookeeper/config";

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

/// The servers by id; ids are 1 to [`ENSEMBLE_ID_MAX`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Servers(pub BTreeMap<u8, Server>);

impl Servers {
    /// Reads the lines of servers as this module writes them, and a version behind them: 0 when there is none. `None`
    /// when the text is no such list, or an empty one.
    pub fn parse(text: &str) -> Option<(Self, u64)> {
        let (mut servers, mut version) = (Self::default(), None);
        for line in text.lines() {
            let (key, value) = line.split_once('=')?;
            if version.is_some() {
                return None;
            }
            match key.strip_prefix("server.") {
                Some(id) => {
                    let id = id.parse().ok().filter(|id| (1..=ENSEMBLE_ID_MAX).contains(id))?;
                    let server = read::server(value).ok()?;
                    let is_new = servers.0.insert(id, server).is_none();
                    if !is_new || servers.0.len() > ENSEMBLE_SERVERS_MAX {
                        return None;
                    }
                }
                None if key == "version" => version = Some(u64::from_str_radix(value, 16).ok()?),
                None => return None,
            }
        }
        (!servers.0.is_empty()).then_some((servers, version.unwrap_or(0)))
    }

    /// The lines alone.
    pub fn lines(&self) -> String {
        let mut text = String::new();
        for (id, server) in &self.0 {
            writeln!(text, "server.{id}={server}").expect("a string takes everything");
        }
        text
    }

    /// Returns the data of the znode.
    pub fn text(&self, version: u64) -> String {
        let mut text = self.lines();
        write!(text, "version={version:x}").expect("a string takes everything");
        text
    }

    /// Ids and roles: what the membership follows from.
    pub fn roles(&self) -> impl Iterator<Item = (u8, Role)> {
        self.0.iter().map(|(id, server)| (*id, server.role))
    }

    /// How many have a vote.
    pub fn voters(&self) -> usize {
        self.0.values().filter(|server| server.role == Role::Participant).count()
    }
}

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
            Some(members) => read::whole(members, voters_min)?,
            None => read::changed(servers, self.joining.as_deref(), self.leaving.as_deref())?,
        };
        let fits = next.voters() >= voters_min && next.0.len() <= ENSEMBLE_SERVERS_MAX;
        if fits { Ok(next) } else { Err(ErrorCode::BadArguments) }
    }
}

#[cfg(test)]
mod tests;
