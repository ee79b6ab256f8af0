//! The servers compared with each other: versions, members, leader, lag, digests and clocks.
//!
//! Pure. All members that are given count as those of one ensemble, beside servers that run alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use serde_json::{Map, Value, json};

use super::pages;
use super::report::{Fact, Finding};
use super::server::{CLOCK_MS_MAX, Server};

/// Bits of a zxid that count within an epoch.
const COUNTER_BITS: u32 = 32;

/// The lines of the page.
pub(super) fn facts(servers: &[Server]) -> Vec<Fact> {
    let mut facts = vec![Fact::new("versions", words(versions(servers)), json!(versions(servers)))];
    let voters = voters(servers);
    if !voters.is_empty() {
        let leaders = leaders(servers);
        facts.push(Fact::new("leader", words(&leaders), json!(leaders)));
        let shown: Vec<String> = voters.iter().map(|(id, address)| format!("{id} at {address}")).collect();
        facts.push(Fact::new("voters", shown.join(", "), json!(voters)));
        let missing = missing(servers);
        facts.push(Fact::new("not examined", words(&missing), json!(missing)));
    }
    let lags: Vec<(&str, Option<u64>)> =
        members(servers).map(|server| (&*server.address, lag(server, servers))).collect();
    if !lags.is_empty() {
        let shown = |(address, lag): &(&str, Option<u64>)| match lag {
            Some(transactions) => format!("{address} {transactions}"),
            None => format!("{address} in an earlier epoch"),
        };
        let value: Map<String, Value> = lags.iter().map(|(address, lag)| ((*address).to_owned(), json!(lag))).collect();
        facts.push(Fact::new("lag", lags.iter().map(shown).collect::<Vec<_>>().join(", "), value));
    }
    facts
}

/// Findings between the servers. `unreached` other targets did not answer.
pub(super) fn findings(servers: &[Server], unreached: usize) -> Vec<Finding> {
    let mut findings = Vec::new();
    let versions = versions(servers);
    if versions.len() > 1 {
        let sentence = format!("the servers run different versions: {}", words(versions));
        findings.push(Finding::warning("versions", sentence, pages::UPGRADE));
    }
    findings.extend(membership(servers, unreached));
    findings.extend(leadership(servers));
    findings.extend(digests(servers));
    findings.extend(clocks(servers));
    findings
}

fn versions(servers: &[Server]) -> BTreeSet<&str> {
    servers.iter().map(Server::version).filter(|version| !version.is_empty()).collect()
}

fn members(servers: &[Server]) -> impl Iterator<Item = &Server> {
    servers.iter().filter(|server| server.id.is_some())
}

/// The voters that any server knows.
fn voters(servers: &[Server]) -> BTreeMap<u64, &str> {
    servers.iter().flat_map(|server| &server.voters).map(|(id, address)| (*id, &**address)).collect()
}

/// Voters that did not answer.
fn missing(servers: &[Server]) -> Vec<u64> {
    let examined: BTreeSet<u64> = servers.iter().filter_map(|server| server.id).collect();
    voters(servers).into_keys().filter(|id| !examined.contains(id)).collect()
}

/// The leaders that any server knows.
fn leaders(servers: &[Server]) -> BTreeSet<u64> {
    let known = |server: &Server| if server.is_leader() { server.id } else { server.leader };
    members(servers).filter_map(known).collect()
}

/// Transactions that the server lacks to the newest zxid of all members. `None` if it is in an earlier epoch.
fn lag(server: &Server, servers: &[Server]) -> Option<u64> {
    let newest = members(servers).filter_map(|server| server.zxid).max()?;
    let own = server.zxid?;
    (own >> COUNTER_BITS == newest >> COUNTER_BITS).then(|| newest.saturating_sub(own))
}

fn membership(servers: &[Server], unreached: usize) -> Vec<Finding> {
    let mut findings = Vec::new();
    let views: Vec<&Server> = members(servers).filter(|server| !server.voters.is_empty()).collect();
    if let Some((first, other)) =
        views.first().and_then(|first| Some((first, views.iter().find(|server| server.voters != first.voters)?)))
    {
        let sentence = format!(
            "the lists of {} and {} differ: {}; correct the wrong one, or run this command again, because a change may be under way",
            first.address,
            other.address,
            difference(&first.voters, &other.voters)
        );
        findings.push(Finding::warning("members", sentence, pages::MEMBERS));
    }
    // Of a single server the operator did not ask for the others. A target that did not answer may be one of them.
    let missing = missing(servers);
    if servers.len() + unreached > 1 && missing.len() > unreached {
        let sentence =
            format!("voters that are no target: at least {} of {}", missing.len() - unreached, words(missing));
        findings.push(Finding::warning("members", sentence, "corral doctor with the admin addresses of all servers"));
    }
    findings
}

/// The first voter at which two lists differ.
fn difference(first: &BTreeMap<u64, String>, other: &BTreeMap<u64, String>) -> String {
    let ids: BTreeSet<&u64> = first.keys().chain(other.keys()).collect();
    let differs = ids.into_iter().find(|id| first.get(id) != other.get(id));
    differs.map_or_else(String::new, |id| {
        let at = |list: &BTreeMap<u64, String>| list.get(id).map_or("missing", |address| address).to_owned();
        format!("voter {id} is {} in the first and {} in the second", at(first), at(other))
    })
}

fn leadership(servers: &[Server]) -> Option<Finding> {
    let leading: Vec<&str> =
        servers.iter().filter(|server| server.is_leader()).map(|server| &*server.address).collect();
    if leading.len() > 1 {
        let sentence = format!(
            "several servers lead: {}; run this command again, because an election may be held",
            words(leading)
        );
        return Some(Finding::critical("leader", sentence, pages::NOT_SERVING));
    }
    let leaders = leaders(servers);
    (leaders.len() > 1).then(|| {
        let sentence = format!(
            "the servers follow different leaders: {}; run this command again, because an election may be held",
            words(leaders)
        );
        Finding::warning("leader", sentence, pages::NOT_SERVING)
    })
}

/// The newest difference of two digests at one zxid.
fn digests(servers: &[Server]) -> Option<Finding> {
    let mut known: BTreeMap<u64, (u64, &str)> = BTreeMap::new();
    let mut different = BTreeMap::new();
    for server in members(servers) {
        for (zxid, digest) in &server.digests {
            let (first, address) = *known.entry(*zxid).or_insert((*digest, &server.address));
            if first != *digest {
                different.insert(*zxid, (address, &server.address));
            }
        }
    }
    let (zxid, (first, other)) = different.pop_last()?;
    let sentence = format!("the trees of {first} and {other} differ at zxid 0x{zxid:x}");
    Some(Finding::critical("digests", sentence, pages::DIGESTS))
}

/// The two clocks that differ most.
fn clocks(servers: &[Server]) -> Option<Finding> {
    let clocks = || servers.iter().filter_map(|server| Some((&server.address, server.clock?)));
    let (ahead, latest) = clocks().max_by_key(|(_, clock)| clock.from_ms)?;
    let (behind, earliest) = clocks().min_by_key(|(_, clock)| clock.to_ms)?;
    let difference = latest.ahead_of(earliest);
    difference.exceeds(CLOCK_MS_MAX).then(|| {
        let sentence = format!("the clocks of {ahead} and {behind} differ: the first is {}", difference.shown());
        Finding::warning("clock", sentence, "timedatectl status on both hosts")
    })
}

/// Joined by commas, or `none`.
fn words<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    let words: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::super::clock::Offset;
    use super::*;

    /// A member with a clock that is known within a second.
    fn member(id: u64, state: &str, zxid: u64) -> Server {
        let mut server = Server::with(id, json!({"server_state": state, "version": "3.9.5-corral-0.1.0, built"}));
        (server.zxid, server.leader) = (Some(zxid), Some(1));
        server.voters = (1..4).map(|id| (id, format!("h{id}:2888"))).collect();
        server.digests = BTreeMap::from([(5, 7)]);
        server.clock = Some(Offset { from_ms: -3, to_ms: 1000 });
        server
    }

    fn three() -> [Server; 3] {
        [member(1, "leader", 0x1_0000_0005), member(2, "follower", 0x1_0000_0003), member(3, "follower", 0xffff_ffff)]
    }

    fn checks(servers: &[Server], unreached: usize) -> Vec<String> {
        findings(servers, unreached).into_iter().map(|finding| finding.check).collect()
    }

    #[test]
    fn servers_that_agree_have_no_findings() {
        let servers = three();
        assert_eq!(findings(&servers, 0), []);
        assert_eq!(findings(&servers[..1], 0), [], "the others were not asked for");
        assert_eq!(findings(&servers[..2], 1), [], "the third one did not answer");
        assert_eq!(findings(&[], 1), []);
        assert_eq!(servers.each_ref().map(|server| lag(server, &servers)), [Some(0), Some(2), None]);
    }

    #[test]
    fn differences_are_findings() {
        let servers = three();
        assert_eq!(checks(&servers[..2], 0), ["members"], "the third one is no target");
        let with = |change: &dyn Fn(&mut Server)| {
            let mut servers = three();
            change(&mut servers[1]);
            checks(&servers, 0)
        };
        assert_eq!(with(&|other| drop(other.voters.remove(&3))), ["members"]);
        assert_eq!(with(&|other| other.leader = Some(3)), ["leader"]);
        assert_eq!(with(&|other| other.digests.extend([(5, 8)])), ["digests"]);
        assert_eq!(with(&|other| other.digests.extend([(6, 8)])), [""; 0]);
        assert_eq!(with(&|other| other.clock = Some(Offset { from_ms: 3000, to_ms: 4000 })), ["clock"]);
        assert_eq!(with(&|other| other.clock = Some(Offset { from_ms: -9000, to_ms: 9000 })), [""; 0]);
        let leads = json!({"server_state": "leader", "version": "3.9.5-corral-0.2.0, built"});
        let [first, _, third] = three();
        let servers = [first, Server::with(2, leads), third];
        assert_eq!(checks(&servers, 0), ["versions", "leader"]);
    }
}
