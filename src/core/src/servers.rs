//! The servers of an ensemble as `/zookeeper/config` names them, and the changes to that list that clients ask for.
//!
//! Pure texts and values, part of the state machine: every server comes to the same list. The text is ZooKeeper's to
//! the byte (protocol chapter 21). It has a line for each server in the order of their ids, then the version, no
//! newline behind it. It knows nothing of connections, of the leader, or of the membership in Raft.

pub mod reconfig;
mod server;

use crate::limits::{ENSEMBLE_ID_MAX, ENSEMBLE_SERVERS_MAX};
use alloc::collections::BTreeMap;
use alloc::string::String;
use core::fmt::Write;
use corral_types::ServerId;
pub use server::{Role, Server};

/// Where the list is kept.
pub const CONFIG_PATH: &str = "/zookeeper/config";

/// The servers by id; ids are 1 to [`ENSEMBLE_ID_MAX`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Servers(pub BTreeMap<ServerId, Server>);

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
                    let server = Server::parse(value).ok()?;
                    let is_new = servers.0.insert(ServerId(id), server).is_none();
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
    pub fn roles(&self) -> impl Iterator<Item = (ServerId, Role)> {
        self.0.iter().map(|(id, server)| (*id, server.role))
    }

    /// How many have a vote.
    pub fn voters(&self) -> usize {
        self.0.values().filter(|server| server.role == Role::Participant).count()
    }
}

#[cfg(test)]
mod tests;
