//! `top`: the clients that load this server most, by address and by session. ZooKeeper has no such command.
//!
//! Connections count their requests and bytes in any case. This looks at all of them twice, some seconds apart.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use corral_core::ids::{Millis, SessionId};
use corral_core::report::{ConnLine, Gathered};
use serde::Serialize;

use super::json::object;

/// Rows of a list.
const ROWS: usize = 20;

/// A connection. Its address may have been that of an earlier one.
type Key = (SocketAddr, Millis);

/// Counters of all connections at a moment.
pub(super) struct Counted(HashMap<Key, Load>);

/// Load by one connection, address or session.
#[derive(Clone, Copy, Default)]
struct Load {
    connections: u64,
    requests: u64,
    /// Received and sent.
    bytes: u64,
    outstanding: u64,
    watches: u64,
}

impl Load {
    fn of(line: &ConnLine) -> Load {
        Load {
            connections: 1,
            requests: line.counters.received,
            bytes: line.counters.bytes,
            outstanding: line.queued as u64,
            watches: u64::from(line.watches),
        }
    }

    /// With the counts since then. A reset may have come between.
    fn since(self, before: &Load) -> Load {
        Load {
            requests: self.requests.saturating_sub(before.requests),
            bytes: self.bytes.saturating_sub(before.bytes),
            ..self
        }
    }

    fn add(&mut self, other: &Load) {
        self.connections += other.connections;
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.outstanding += other.outstanding;
        self.watches += other.watches;
    }
}

#[derive(Serialize)]
struct Row {
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<String>,
    connections: u64,
    requests_per_second: u64,
    bytes_per_second: u64,
    outstanding_requests: u64,
    watches: u64,
}

impl Counted {
    /// Of connections that were gathered for `cons`.
    pub(super) fn of(gathered: &Gathered) -> Counted {
        Counted(gathered.report.conns.iter().map(|line| (key(line), Load::of(line))).collect())
    }

    /// The answer: the clients of most requests since then.
    pub(super) fn answer(&self, gathered: &Gathered, took: Duration) -> Vec<u8> {
        let (mut addresses, mut sessions) = (HashMap::new(), HashMap::new());
        for line in &gathered.report.conns {
            let load = Load::of(line);
            let load = self.0.get(&key(line)).map_or(load, |before| load.since(before));
            addresses.entry(line.peer().ip()).or_insert_with(Load::default).add(&load);
            if line.session != SessionId(0) {
                sessions.entry((line.session, line.peer().ip())).or_insert_with(Load::default).add(&load);
            }
        }
        let of_address = |(address, load): (IpAddr, Load)| row(address, None, &load, took);
        let of_session =
            |((session, address), load): ((SessionId, IpAddr), Load)| row(address, Some(session), &load, took);
        let cut = gathered.report.is_full().then_some("there are more connections than an answer may hold");
        object(|fields| {
            fields.put("seconds", &took.as_secs_f64());
            fields.put("addresses", &most(addresses).map(of_address).collect::<Vec<_>>());
            fields.put("sessions", &most(sessions).map(of_session).collect::<Vec<_>>());
            fields.put("command", "top");
            fields.put("error", &cut);
        })
    }
}

fn key(line: &ConnLine) -> Key {
    (line.peer(), line.opened)
}

/// Those of most requests, and of these of most bytes.
fn most<K: Hash + Ord + Copy>(loads: HashMap<K, Load>) -> impl Iterator<Item = (K, Load)> {
    let mut loads: Vec<(K, Load)> = loads.into_iter().collect();
    loads.sort_by_key(|(key, load)| (std::cmp::Reverse((load.requests, load.bytes)), *key));
    loads.into_iter().take(ROWS)
}

fn row(address: IpAddr, session: Option<SessionId>, load: &Load, took: Duration) -> Row {
    let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX).max(1);
    let per_second = |count: u64| count.saturating_mul(1000) / ms;
    Row {
        address: address.to_string(),
        session_id: session.map(|session| session.to_string()),
        connections: load.connections,
        requests_per_second: per_second(load.requests),
        bytes_per_second: per_second(load.bytes),
        outstanding_requests: load.outstanding,
        watches: load.watches,
    }
}
