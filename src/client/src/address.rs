//! Where the servers are: `host:port,host:port/chroot`.

use corral_core::path;
use corral_wire::ErrorCode;

use crate::error::Error;

const PORT: u16 = 2181;
/// Of one list.
const SERVERS_MAX: usize = 64;

/// Servers of one ensemble, and the path below which all paths of the session are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Servers {
    /// Hosts without brackets, and ports.
    pub(crate) hosts: Vec<(String, u16)>,
    /// Empty for the root.
    pub(crate) chroot: String,
}

impl Servers {
    /// Parses ZooKeeper's connect string. A host without a port has 2181.
    ///
    /// # Errors
    /// `BadArguments` if it is none.
    pub fn parse(text: &str) -> Result<Servers, Error> {
        let wrong = |reason: &str| Error::new(ErrorCode::BadArguments, format!("{text:?}: {reason}"));
        let (list, chroot) = text.find('/').map_or((text, ""), |at| text.split_at(at));
        let chroot = if chroot == path::ROOT { "" } else { chroot };
        if !chroot.is_empty() && !path::is_valid(chroot) {
            return Err(wrong("the chroot is no path"));
        }
        let hosts: Option<Vec<_>> = list.split(',').map(|part| host(part.trim())).collect();
        match hosts {
            Some(hosts) if hosts.len() <= SERVERS_MAX => Ok(Servers { hosts, chroot: chroot.to_owned() }),
            Some(_) => Err(wrong(&format!("more than {SERVERS_MAX} servers"))),
            None => Err(wrong("servers are given as HOST:PORT,HOST:PORT/CHROOT")),
        }
    }

    /// The path below which all paths are, `/` without one.
    pub fn chroot(&self) -> &str {
        path::or_root(&self.chroot)
    }

    /// The path for the server.
    pub(crate) fn full(&self, path: &str) -> String {
        match path {
            path::ROOT if !self.chroot.is_empty() => self.chroot.clone(),
            path => [&self.chroot, path].concat(),
        }
    }

    /// The path for the client. One outside of the chroot is not changed.
    pub(crate) fn own<'p>(&self, path: &'p str) -> &'p str {
        match path.strip_prefix(self.chroot.as_str()) {
            Some("") => path::ROOT,
            Some(rest) if rest.starts_with('/') => rest,
            // Events of a session without a path, and of the config, are not below a chroot.
            _ => path,
        }
    }
}

fn host(text: &str) -> Option<(String, u16)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            (host, port.strip_prefix(':').or(port.is_empty().then_some(""))?)
        }
        None => match text.split_once(':') {
            // An IPv6 address without brackets has no port.
            Some((_, more)) if more.contains(':') => (text, ""),
            parts => parts.unwrap_or((text, "")),
        },
    };
    let has_port = !text.ends_with(':');
    let port = if port.is_empty() { PORT } else { port.parse().ok()? };
    let is_host = !host.is_empty() && host.chars().all(|one| one.is_ascii_alphanumeric() || "-._:%".contains(one));
    (is_host && (has_port || host == text)).then(|| (host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connect_strings() {
        let parse = |text: &str| {
            let servers = Servers::parse(text).ok()?;
            let hosts: Vec<String> = servers.hosts.iter().map(|(host, port)| format!("{host} {port}")).collect();
            Some((hosts.join(","), servers.chroot))
        };
        let is = |hosts: &str, chroot: &str| Some((hosts.to_owned(), chroot.to_owned()));
        assert_eq!(parse("a"), is("a 2181", ""));
        assert_eq!(parse("a:1, b/c/d"), is("a 1,b 2181", "/c/d"));
        assert_eq!(parse("[::1]:99/"), is("::1 99", ""));
        assert_eq!(parse("::1"), is("::1 2181", ""));
        assert_eq!(parse("[::1]"), is("::1 2181", ""));
        for wrong in ["", "a,,b", "a:", "a:b", ":1", "[::1", "[::1]x", "a:70000", "a/b/", "a//b", "http://a", "a b"] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn paths_below_a_chroot() {
        let servers = Servers::parse("a/x").expect("valid");
        for (own, full) in [("/", "/x"), ("/a", "/x/a"), ("/x", "/x/x")] {
            assert_eq!(servers.full(own), full);
            assert_eq!(servers.own(full), own);
        }
        assert_eq!(servers.own("/xy"), "/xy");
    }
}
