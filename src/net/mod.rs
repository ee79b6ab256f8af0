//! Sockets: those of clients in [`client`], after their [`handshakes`] if they speak TLS; connections to the other servers of the ensemble in [`peers`].

pub(crate) mod acceptor;
pub(crate) mod client;
pub(crate) mod handshakes;
pub(crate) mod listen;
pub(crate) mod peers;
pub(crate) mod tls;
