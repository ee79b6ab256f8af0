//! Checks that the processes of `--pid` listen on the addresses of the load. Otherwise CPU time and memory of another
//! program would be reported as the server's.
//!
//! The coordinating thread, before anything is sent. Compares the sockets a process holds (`/proc/PID/fd`) with those that
//! listen (`/proc/PID/net/tcp` and `tcp6`). What cannot be read, or is in another network namespace, is not checked.
//! It warns, and never refuses.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// `TCP_LISTEN`, as the tables have it.
const LISTENING: &str = "0A";

/// A warning for each process that does not listen on one of the addresses.
pub(crate) fn doubts(pids: &[i32], servers: &[SocketAddr]) -> Vec<String> {
    let own = fs::read_link("/proc/self/ns/net").ok();
    // Of each process that can be judged, where it listens.
    let mut found: Vec<(i32, Vec<SocketAddr>)> = Vec::new();
    for pid in pids {
        let Some(network) = fs::read_link(format!("/proc/{pid}/ns/net")).ok() else { continue };
        if let Some(addresses) = listens_on(*pid).filter(|_| own == Some(network)) {
            found.push((*pid, addresses));
        }
    }
    let serves = |at: &Vec<SocketAddr>| at.iter().any(|at| servers.iter().any(|server| reaches(*server, *at)));
    // A load on the leader alone has the followers' processes accounted too: they listen, but elsewhere.
    let ensemble = found.iter().any(|(_, addresses)| serves(addresses));
    let doubtful = found.into_iter().filter(|(_, at)| !serves(at) && (at.is_empty() || !ensemble));
    doubtful.map(|(pid, _)| doubt(pid, servers)).collect()
}

fn doubt(pid: i32, servers: &[SocketAddr]) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = name.trim().replace(char::is_control, "?");
    let servers = servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
    format!(
        "process {pid} ({name}) does not listen on {servers}: is --pid the server's? Its CPU time and memory are reported"
    )
}

/// Whether a connection to `server` can end at a socket that is bound to `at`.
fn reaches(server: SocketAddr, at: SocketAddr) -> bool {
    let (ip, at_ip) = (server.ip().to_canonical(), at.ip().to_canonical());
    server.port() == at.port() && (at_ip.is_unspecified() || at_ip == ip)
}

/// Where a process listens; `None` if that cannot be read.
fn listens_on(pid: i32) -> Option<Vec<SocketAddr>> {
    let mut listening = BTreeMap::new();
    for table in ["tcp", "tcp6"] {
        // A machine may have no IPv6.
        let text = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        listening.extend(text.lines().filter_map(listener));
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).ok()? {
        // A file that was closed meanwhile is none that listens.
        let Ok(target) = fs::read_link(entry.ok()?.path()) else { continue };
        let inode = target.to_str().and_then(|text| text.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok());
        found.extend(inode.and_then(|inode: u64| listening.get(&inode)));
    }
    Some(found)
}

/// The inode and the address of a line of the table, if it is of a socket that listens.
fn listener(line: &str) -> Option<(u64, SocketAddr)> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let (local, state) = (words.next()?, words.nth(1)?);
    let inode = words.nth(5)?.parse().ok()?;
    (state == LISTENING).then_some((inode, address(local)?))
}

/// Reads `0100007F:0885`: words of the machine's byte order, then the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let word = |at: usize| u32::from_str_radix(ip.get(at * 8..at * 8 + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let bytes: [u8; 16] = [word(0)?, word(1)?, word(2)?, word(3)?].concat().try_into().ok()?;
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_process_is_known_by_its_socket() {
        let reaches = |server: &str, at: &str| reaches(server.parse().unwrap(), at.parse().unwrap());
        for at in ["127.0.0.1:2181", "0.0.0.0:2181", "[::]:2181", "[::ffff:127.0.0.1]:2181"] {
            assert!(reaches("127.0.0.1:2181", at), "{at}");
        }
        assert!(!reaches("127.0.0.1:2181", "127.0.0.2:2181") && !reaches("127.0.0.1:2181", "127.0.0.1:2182"));
        let own = i32::try_from(std::process::id()).unwrap();
        for addr in ["127.0.0.1:0", "[::ffff:127.0.0.1]:0"] {
            let here = TcpListener::bind(addr).unwrap();
            let server = here.local_addr().unwrap();
            assert_eq!(doubts(&[own, i32::MAX], &[server]), Vec::<String>::new(), "what does not exist is not judged");
            let elsewhere = SocketAddr::new(server.ip(), 1);
            let doubt = doubts(&[own], &[elsewhere]).pop().unwrap();
            assert!(doubt.contains(&format!("process {own} (")) && doubt.contains(":1: is --pid"), "{doubt}");
            // With another that serves it may be a follower, as long as it listens at all.
            let mut idle = std::process::Command::new("sleep").arg("60").spawn().unwrap();
            let doubts = doubts(&[own, i32::try_from(idle.id()).unwrap()], &[server]);
            idle.kill().unwrap();
            idle.wait().unwrap();
            assert!(doubts.len() == 1 && doubts[0].contains("(sleep)"), "{doubts:?}");
        }
    }
}
