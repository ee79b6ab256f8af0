//! Sockets that listen, for clients and for the other servers.
//!
//! On the thread that opens a port. It accepts no connection and resolves no name.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

use socket2::{Domain, Socket, Type};

use crate::exit::{ExitCode, Fault};

/// Binds a socket to the address. `[::]` is every address of the host, IPv4 and IPv6; any other address is that one alone.
///
/// # Errors
/// When the address is in use, is no address of this host, or needs a privilege.
pub(crate) fn bind(address: SocketAddr) -> io::Result<Socket> {
    let address = effective(address);
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    if address.ip() == Ipv6Addr::UNSPECIFIED {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    // Accepted connections inherit this.
    socket.set_nodelay(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Listens at the address, as [`bind`] binds it. The kernel holds `backlog` connections that wait to be accepted.
///
/// # Errors
/// As [`bind`].
pub(crate) fn listen(address: SocketAddr, backlog: i32) -> io::Result<TcpListener> {
    let socket = bind(address)?;
    socket.listen(backlog)?;
    Ok(socket.into())
}

/// The address that [`bind`] binds: where the kernel has no IPv6, `0.0.0.0` instead of `[::]`.
pub(crate) fn effective(address: SocketAddr) -> SocketAddr {
    if address.ip() == Ipv6Addr::UNSPECIFIED && Socket::new(Domain::IPV6, Type::STREAM, None).is_err() {
        return SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port());
    }
    address
}

/// The address of a connection's other end. A socket of both families shows an IPv4 address as `::ffff:a.b.c.d`; it
/// becomes plain IPv4.
pub(crate) fn canonical(peer: SocketAddr) -> SocketAddr {
    SocketAddr::new(peer.ip().to_canonical(), peer.port())
}

/// The fault of an address that cannot be listened on, which this key of the configuration gives.
pub(crate) fn fault(address: SocketAddr, error: &io::Error, key: &str) -> Fault {
    let sentence = match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!("{address} is in use by another program; stop it (`ss -ltnp` shows it), or set {key} to another")
        }
        io::ErrorKind::AddrNotAvailable => {
            format!("{address} is no address of this host; set {key} to an address of `ip addr`, or to 0.0.0.0")
        }
        io::ErrorKind::PermissionDenied => {
            format!("{address} needs a privilege; set {key} to a port above 1023, or grant CAP_NET_BIND_SERVICE")
        }
        _ => format!("{address} cannot be listened on: {error}; set {key} to another address"),
    };
    Fault::new(ExitCode::ListenFailed, sentence)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, TcpStream};

    use super::*;

    #[test]
    fn every_address_is_of_both_families_and_others_are_bound_alone() {
        let local = |host: &str| host.parse::<IpAddr>().expect("an address");
        let check = |address: &str, open: &[&str], shut: &[&str]| {
            let listener = listen(SocketAddr::new(local(address), 0), 9).expect("the host has it");
            let port = listener.local_addr().expect("it is bound").port();
            for host in open {
                let far = TcpStream::connect((local(host), port)).expect(host);
                let (near, peer) = listener.accept().expect("one connects");
                assert_eq!(Some(canonical(peer)), far.local_addr().ok());
                assert!(near.nodelay().expect("it can be asked"));
            }
            assert!(shut.iter().all(|host| TcpStream::connect((local(host), port)).is_err()), "{address}");
        };
        check("0.0.0.0", &["127.0.0.1", "127.0.0.2"], &["::1"]);
        check("127.0.0.1", &["127.0.0.1"], &["127.0.0.2", "::1"]);
        check("::", &["127.0.0.1"], &[]);
        if bind(SocketAddr::new(local("::1"), 0)).is_ok() {
            check("::", &["::1"], &[]);
            check("::1", &["::1"], &["127.0.0.1"]);
        }
    }

    #[test]
    fn listen_sentences() {
        let address: SocketAddr = ([127, 0, 0, 1], 2181).into();
        let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let error =
            std::net::TcpListener::bind(taken.local_addr().expect("it is bound")).expect_err("the port is taken");
        let key = "server.client_addr";
        let in_use = fault(address, &error, key).sentence;
        assert!(in_use.starts_with("127.0.0.1:2181 is in use by another program"));
        assert!(in_use.ends_with("set server.client_addr to another"));
        let error = io::Error::from(nix::errno::Errno::EADDRNOTAVAIL);
        assert!(fault(address, &error, key).sentence.contains("is no address of this host"));
        assert_eq!(fault(address, &io::Error::from(nix::errno::Errno::EACCES), key).code, ExitCode::ListenFailed);
    }
}
