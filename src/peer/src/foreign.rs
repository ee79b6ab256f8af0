//! Guesses from its first bytes which other protocol a connection to the port for servers speaks, for the log.
//!
//! Pure, on any thread. It decides nothing: a connection that does not begin with a handshake is closed in any case.

/// A protocol other than the one between servers, guessed from the first bytes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignProtocol {
    /// A TLS handshake.
    Tls,
    /// An HTTP request.
    Http,
    /// The election protocol of ZooKeeper's servers.
    ZooKeeperElection,
    /// A follower or observer of ZooKeeper.
    ZooKeeperLearner,
    /// A ZooKeeper client, or one of the four-letter commands.
    ZooKeeperClient,
    /// None of these.
    Unknown,
}

impl ForeignProtocol {
    /// Guesses the protocol of a connection that begins with these bytes; eight are enough.
    #[must_use]
    pub fn guess(bytes: &[u8]) -> ForeignProtocol {
        const METHODS: [&[u8]; 6] = [b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE"];
        const WORDS: [&[u8]; 6] = [b"ruok", b"srvr", b"stat", b"mntr", b"isro", b"conf"];
        match bytes {
            // The record type of a handshake, and the major version of all TLS.
            [0x16, 0x03, ..] => ForeignProtocol::Tls,
            // The protocol's version, -65536 and -65535 as a long.
            [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00, 0x00 | 0x01, ..] => ForeignProtocol::ZooKeeperElection,
            // A QuorumPacket begins with its type: FOLLOWERINFO is 11, OBSERVERINFO 16.
            [0, 0, 0, 11 | 16, ..] => ForeignProtocol::ZooKeeperLearner,
            // The length word of a ConnectRequest, then protocol version 0.
            [0, 0, 0, 40..=64, 0, 0, 0, 0, ..] => ForeignProtocol::ZooKeeperClient,
            _ if METHODS.iter().any(|method| bytes.starts_with(method)) => ForeignProtocol::Http,
            _ if WORDS.iter().any(|word| bytes.starts_with(word)) => ForeignProtocol::ZooKeeperClient,
            _ => ForeignProtocol::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_protocols_are_named() {
        let check =
            |bytes: &[u8], expect: ForeignProtocol| assert_eq!(ForeignProtocol::guess(bytes), expect, "{bytes:x?}");
        check(&[0x16, 3, 1, 2, 0, 1, 0, 1], ForeignProtocol::Tls);
        check(b"GET / HTTP/1.1", ForeignProtocol::Http);
        check(&(-65536_i64).to_be_bytes(), ForeignProtocol::ZooKeeperElection);
        check(&(-65535_i64).to_be_bytes(), ForeignProtocol::ZooKeeperElection);
        check(&[0, 0, 0, 11, 0, 0, 0, 0], ForeignProtocol::ZooKeeperLearner);
        check(&[0, 0, 0, 45, 0, 0, 0, 0], ForeignProtocol::ZooKeeperClient);
        check(b"srvr", ForeignProtocol::ZooKeeperClient);
        check(b"", ForeignProtocol::Unknown);
        check(&[1; 8], ForeignProtocol::Unknown);
    }
}
