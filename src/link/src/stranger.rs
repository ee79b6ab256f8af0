//! Who is it that speaks something else on a port for servers? A guess from the first bytes, for the log.
//!
//! Pure, on any thread. It decides nothing: a connection that does not begin with a hello is closed in any case.

/// What the first bytes of a connection look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stranger {
    /// A TLS handshake.
    Tls,
    /// An HTTP request.
    Http,
    /// The election protocol of ZooKeeper's servers.
    ZooKeeperElection,
    /// A follower or observer of ZooKeeper.
    ZooKeeperLearner,
    /// A ZooKeeper client, or one of the four-letter words.
    ZooKeeperClient,
    /// None of these.
    Unknown,
}

impl Stranger {
    /// Names who begins with these bytes; eight are enough.
    pub fn of(bytes: &[u8]) -> Stranger {
        const METHODS: [&[u8]; 6] = [b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE"];
        const WORDS: [&[u8]; 6] = [b"ruok", b"srvr", b"stat", b"mntr", b"isro", b"conf"];
        match bytes {
            // The record type of a handshake, and the major version of all TLS.
            [0x16, 0x03, ..] => Stranger::Tls,
            // The protocol's version, -65536 and -65535 as a long.
            [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00, 0x00 | 0x01, ..] => Stranger::ZooKeeperElection,
            // A QuorumPacket begins with its type: FOLLOWERINFO is 11, OBSERVERINFO 16.
            [0, 0, 0, 11 | 16, ..] => Stranger::ZooKeeperLearner,
            // The length word of a ConnectRequest, then protocol version 0.
            [0, 0, 0, 40..=64, 0, 0, 0, 0, ..] => Stranger::ZooKeeperClient,
            _ if METHODS.iter().any(|method| bytes.starts_with(method)) => Stranger::Http,
            _ if WORDS.iter().any(|word| bytes.starts_with(word)) => Stranger::ZooKeeperClient,
            _ => Stranger::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_are_named() {
        let check = |bytes: &[u8], expect: Stranger| assert_eq!(Stranger::of(bytes), expect, "{bytes:x?}");
        check(&[0x16, 3, 1, 2, 0, 1, 0, 1], Stranger::Tls);
        check(b"GET / HTTP/1.1", Stranger::Http);
        check(&(-65536_i64).to_be_bytes(), Stranger::ZooKeeperElection);
        check(&(-65535_i64).to_be_bytes(), Stranger::ZooKeeperElection);
        check(&[0, 0, 0, 11, 0, 0, 0, 0], Stranger::ZooKeeperLearner);
        check(&[0, 0, 0, 45, 0, 0, 0, 0], Stranger::ZooKeeperClient);
        check(b"srvr", Stranger::ZooKeeperClient);
        check(b"", Stranger::Unknown);
        check(&[1; 8], Stranger::Unknown);
    }
}
