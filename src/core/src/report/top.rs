//! `top`: addresses, sessions and beginnings of paths with most requests. ZooKeeper has no such command.

use crate::ids::SessionId;
use crate::shard::load::Load;
use crate::shard::pieces::{Held, TopClients};
use crate::shared::Text;
use crate::tree::acl;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt::Write;
use core::net::IpAddr;

/// Rows of a list.
const ROWS: usize = 20;
const TITLES: [&str; 6] = ["requests/s", "bytes/s", "work %", "waiting", "watches", "connections"];

/// Addresses, most requests first.
pub fn addresses(top: &TopClients) -> Vec<TopRow<&IpAddr>> {
    rows(top, &top.loads.addresses, |address| held(&top.by_address, address))
}

/// The address of most requests.
pub fn busiest(top: &TopClients) -> Option<TopRow<&IpAddr>> {
    addresses(top).into_iter().next()
}

/// Sessions with their addresses, most requests first.
pub fn sessions(top: &TopClients) -> Vec<TopRow<&(SessionId, IpAddr)>> {
    rows(top, &top.loads.sessions, |(session, _)| held(&top.by_session, session))
}

/// Paths of at most two levels, most requests first. Their watches are not counted.
pub fn prefixes(top: &TopClients) -> Vec<TopRow<&Text>> {
    rows(top, &top.loads.prefixes, |_| Held::default())
}

fn rows<'l, K: Ord>(top: &TopClients, list: &'l [(K, Load)], held: impl Fn(&K) -> Held) -> Vec<TopRow<&'l K>> {
    let mut list: Vec<&(K, Load)> = list.iter().collect();
    list.sort_by_key(|(key, load)| (Reverse((load.requests, load.bytes)), key));
    let ms = top.loads.took_ms.max(1);
    let row = |(key, load): &'l (K, Load)| TopRow {
        key,
        requests_per_second: load.requests.saturating_mul(1000) / ms,
        bytes_per_second: load.bytes.saturating_mul(1000) / ms,
        work_percent: load.cost.saturating_mul(100) / top.loads.total.cost.max(1),
        held: held(key),
    };
    list.into_iter().take(ROWS).map(row).collect()
}

fn held<K: PartialEq>(list: &[(K, Held)], key: &K) -> Held {
    list.iter().find(|(known, _)| known == key).map_or_else(Held::default, |(_, held)| *held)
}

/// A row of the answer.
#[derive(Debug, PartialEq, Eq)]
pub struct TopRow<K> {
    /// The address, the session or the path.
    pub key: K,
    /// Requests in a second, on average of the window.
    pub requests_per_second: u64,
    /// Bytes of requests and replies in a second, on average of the window.
    pub bytes_per_second: u64,
    /// Share of the work that the shards did for requests, as they estimate it.
    pub work_percent: u64,
    /// Its connections, as far as they were counted.
    pub held: Held,
}

/// The answer as text.
pub fn text(top: &TopClients) -> String {
    let mut text = format!("The last {} ms of each shard\n\n", top.loads.took_ms);
    table(&mut text, "address", &addresses(top), |address| acl::address_text(**address));
    let session = |of: &&(SessionId, IpAddr)| format!("{} {}", of.0, acl::address_text(of.1));
    table(&mut text, "session", &sessions(top), session);
    table(&mut text, "path", &prefixes(top), |prefix| String::from(&***prefix));
    text
}

fn table<K>(text: &mut String, head: &str, rows: &[TopRow<K>], name: impl Fn(&K) -> String) {
    let _ = write!(text, "{head:<40}");
    for title in TITLES {
        let _ = write!(text, " {title:>11}");
    }
    text.push('\n');
    for row in rows {
        let TopRow { key, requests_per_second, bytes_per_second, work_percent, held } = row;
        let _ = write!(text, "{:<40}", name(key));
        let Held { connections, waiting, watches } = held;
        for number in [requests_per_second, bytes_per_second, work_percent, waiting, watches, connections] {
            let _ = write!(text, " {number:>11}");
        }
        text.push('\n');
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::load::Loads;

    #[test]
    fn the_answer_has_three_tables() {
        let address = |last| IpAddr::from([10, 0, 0, last]);
        let load = |requests| Load { requests, bytes: 30 * requests, cost: requests * 100_000 };
        let held = Held { connections: 2, waiting: 3, watches: 4 };
        let loads = Loads {
            took_ms: 2000,
            total: load(1002),
            addresses: Vec::from([(address(1), load(2)), (address(2), load(1000))]),
            sessions: Vec::from([((SessionId(0x10), address(2)), load(1000))]),
            prefixes: Vec::from([(Text::from("/a/b"), load(1002))]),
        };
        let mut top = TopClients { loads, by_address: Vec::from([(address(2), held)]), by_session: Vec::new() };
        top.merge(TopClients { by_address: Vec::from([(address(2), held)]), ..TopClients::default() });
        let text = text(&top);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[3], ["10.0.0.2", "500", "15000", "99", "6", "8", "4"]);
        assert_eq!(rows[4], ["10.0.0.1", "1", "30", "0", "0", "0", "0"]);
        assert_eq!(rows[7], ["0x10", "10.0.0.2", "500", "15000", "99", "0", "0", "0"]);
        assert_eq!(rows[10], ["/a/b", "501", "15030", "100", "0", "0", "0"]);
    }
}
