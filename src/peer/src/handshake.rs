//! The handshake of the server that dials, and the answer to it: both of fixed size, checksummed, every field
//! validated.
//!
//! Pure, on any thread. It encodes whether a server is admitted, and does not decide it.

use std::fmt;

use crate::fixed::{TOKEN_BYTES, check, seal, word};

pub use crate::fixed::{HandshakeError, VERSION};

/// First bytes of a handshake.
pub const HANDSHAKE_MAGIC: [u8; 4] = *b"cRrL";
/// First bytes of an answer.
pub const ANSWER_MAGIC: [u8; 4] = *b"cRaN";
/// Longest name of a cluster, bytes.
pub const CLUSTER_BYTES_MAX: usize = 62;
/// Bytes of a handshake, the same in every version, so that each version can read the version of every other.
///
/// Magic 4, version 2, from 1, to 1, generation 8, incarnation 8, length of the name 1, name 62, token 7, checksum 4.
pub const HANDSHAKE_BYTES: usize = 98;
/// Bytes of an answer, the same in every version.
///
/// Magic 4, version 2, verdict 1, id 1, generation 8, zero 8, checksum 4.
pub const ANSWER_BYTES: usize = 28;

const NAME_AT: usize = 25;
const HANDSHAKE_CHECKED: usize = HANDSHAKE_BYTES - 4;
const ANSWER_CHECKED: usize = ANSWER_BYTES - 4;
const TOKEN_AT: usize = NAME_AT + CLUSTER_BYTES_MAX;
const _: () = assert!(TOKEN_AT + TOKEN_BYTES == HANDSHAKE_CHECKED);

/// The name that all servers of an ensemble share: 1 to 62 letters, digits, `-`, `_` or `.`.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterName(String);

impl ClusterName {
    /// Makes a name; `None` if it is too long, empty, or has other characters.
    #[must_use]
    pub fn new(name: &str) -> Option<ClusterName> {
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let fits = (1..=CLUSTER_BYTES_MAX).contains(&name.len());
        (fits && name.bytes().all(legal)).then(|| ClusterName(name.to_owned()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// Generation of the data of an ensemble: a rescue begins a new one. Of two generations the later is the greater.
///
/// `corral rescue` makes one server an ensemble of its own. Data that other servers still hold are of the generation
/// before, and are not part of the new ensemble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Generation(pub u64);

impl Generation {
    /// No server was rescued yet.
    pub const FIRST: Generation = Generation(0);
    /// Of a server without data: it takes the generation of the snapshot that it receives.
    pub const NONE: Generation = Generation(u64::MAX);

    /// Whether servers of these two generations must not exchange frames.
    #[must_use]
    pub fn is_apart_from(self, other: Generation) -> bool {
        self != other && self != Generation::NONE && other != Generation::NONE
    }

    /// The generation of a rescue at this time, in Unix milliseconds. It is later than this one.
    #[must_use]
    pub fn next(self, now_ms: u64) -> Generation {
        Generation(now_ms.max(self.0.saturating_add(1)).min(u64::MAX - 1))
    }
}

/// The first message of the server that dials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// Name of the dialler's cluster.
    pub cluster: ClusterName,
    /// Id of the server that dials; never 0.
    pub from: u8,
    /// Id of the server that it wants to reach; never 0.
    pub to: u8,
    /// Generation of the dialler's data.
    pub generation: Generation,
    /// Random number that the dialler's process drew when it started.
    pub incarnation: u64,
    /// Lets the listener recognise this process on another connection; see [`token`](crate::secret::token).
    pub token: [u8; TOKEN_BYTES],
}

impl Handshake {
    /// The bytes of the message.
    #[must_use]
    pub fn encode(&self) -> [u8; HANDSHAKE_BYTES] {
        let mut bytes = [0; HANDSHAKE_BYTES];
        bytes[..4].copy_from_slice(&HANDSHAKE_MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        (bytes[6], bytes[7]) = (self.from, self.to);
        bytes[8..16].copy_from_slice(&self.generation.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.incarnation.to_le_bytes());
        let name = self.cluster.as_str().as_bytes();
        bytes[24] = u8::try_from(name.len()).expect("a name has at most 62 bytes");
        bytes[NAME_AT..][..name.len()].copy_from_slice(name);
        bytes[TOKEN_AT..HANDSHAKE_CHECKED].copy_from_slice(&self.token);
        seal(&mut bytes, HANDSHAKE_CHECKED);
        bytes
    }

    /// Whether these bytes can be the first of a handshake.
    #[must_use]
    pub fn may_begin_with(bytes: &[u8]) -> bool {
        bytes.iter().zip(HANDSHAKE_MAGIC).all(|(found, due)| *found == due)
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// Magic, version, checksum or field, whichever is wrong first.
    pub fn decode(bytes: &[u8; HANDSHAKE_BYTES]) -> Result<Handshake, HandshakeError> {
        check(bytes, HANDSHAKE_MAGIC, HANDSHAKE_CHECKED)?;
        let (from, to) = (bytes[6], bytes[7]);
        let (generation, incarnation) = (Generation(word(bytes, 8)), word(bytes, 16));
        if from == 0 || to == 0 {
            return Err(HandshakeError::Field("a server has the id 0"));
        }
        let (name, padding) = bytes[NAME_AT..TOKEN_AT]
            .split_at_checked(usize::from(bytes[24]))
            .ok_or(HandshakeError::Field("the name of the cluster is too long"))?;
        let cluster = std::str::from_utf8(name)
            .ok()
            .and_then(ClusterName::new)
            .ok_or(HandshakeError::Field("the name of the cluster is none"))?;
        if padding.iter().any(|byte| *byte != 0) {
            return Err(HandshakeError::Field("there are bytes behind the name of the cluster"));
        }
        let mut token = [0; TOKEN_BYTES];
        token.copy_from_slice(&bytes[TOKEN_AT..HANDSHAKE_CHECKED]);
        Ok(Handshake { cluster, from, to, generation, incarnation, token })
    }
}

/// Whether the listener admits a connection, and why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Admission {
    /// Frames may follow.
    Welcome = 0,
    /// The dialler is of another cluster.
    WrongCluster = 1,
    /// The dialler wants to reach another server.
    WrongServer = 2,
    /// The dialler is not one of the servers in the listener's configuration.
    NotConfigured = 3,
    /// Another process with the dialler's id is connected.
    Duplicate = 4,
    /// The dialler's last connection has not ended yet.
    Busy = 5,
    /// The dialler's certificate is not for the id in its handshake.
    WrongCertificate = 6,
    /// The dialler has another version of the protocol.
    WrongVersion = 7,
    /// The dialler's data are of another generation.
    WrongGeneration = 8,
    /// The dialler has not proven that it holds this server's secret.
    NotProven = 9,
}

impl Admission {
    /// All values.
    pub const ALL: [Admission; 10] = [
        Admission::Welcome,
        Admission::WrongCluster,
        Admission::WrongServer,
        Admission::NotConfigured,
        Admission::Duplicate,
        Admission::Busy,
        Admission::WrongCertificate,
        Admission::WrongVersion,
        Admission::WrongGeneration,
        Admission::NotProven,
    ];
}

/// The answer to a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whether the connection is admitted.
    pub verdict: Admission,
    /// Id of the listener; 0 if a rejection does not state it.
    pub id: u8,
    /// Generation of its data; [`Generation::NONE`] if a rejection does not state it.
    pub generation: Generation,
}

impl Answer {
    /// The bytes of the message.
    #[must_use]
    pub fn encode(&self) -> [u8; ANSWER_BYTES] {
        let mut bytes = [0; ANSWER_BYTES];
        bytes[..4].copy_from_slice(&ANSWER_MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        (bytes[6], bytes[7]) = (self.verdict as u8, self.id);
        bytes[8..16].copy_from_slice(&self.generation.0.to_le_bytes());
        seal(&mut bytes, ANSWER_CHECKED);
        bytes
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// Magic, version, checksum or field, whichever is wrong first.
    pub fn decode(bytes: &[u8; ANSWER_BYTES]) -> Result<Answer, HandshakeError> {
        check(bytes, ANSWER_MAGIC, ANSWER_CHECKED)?;
        let verdict = Admission::ALL.into_iter().find(|verdict| *verdict as u8 == bytes[6]);
        let verdict = verdict.ok_or(HandshakeError::Field("the verdict is unknown"))?;
        if word(bytes, 16) != 0 {
            return Err(HandshakeError::Field("there are bytes where none are"));
        }
        if bytes[7] == 0 && verdict == Admission::Welcome {
            return Err(HandshakeError::Field("a server has the id 0"));
        }
        Ok(Answer { verdict, id: bytes[7], generation: Generation(word(bytes, 8)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn handshake() -> Handshake {
        let cluster = ClusterName::new("blue-1.x_y").expect("a name");
        let token = [0xa5; TOKEN_BYTES];
        Handshake { cluster, from: 3, to: 255, generation: Generation(7), incarnation: u64::MAX, token }
    }

    fn answer(verdict: Admission) -> Answer {
        Answer { verdict, id: 1, generation: Generation::NONE }
    }

    #[test]
    fn generations() {
        let (first, none, later) = (Generation::FIRST, Generation::NONE, Generation(9));
        assert!(first.is_apart_from(later) && later.is_apart_from(first));
        for one in [first, none, later] {
            assert!(!one.is_apart_from(one) && !one.is_apart_from(none) && !none.is_apart_from(one));
        }
        assert_eq!(
            (first.next(5), Generation(5).next(5), Generation(8).next(5)),
            (Generation(5), Generation(6), later)
        );
        assert_eq!(Generation(u64::MAX - 1).next(u64::MAX), Generation(u64::MAX - 1));
    }

    #[test]
    fn names() {
        let check = |name: &str, good: bool| assert_eq!(ClusterName::new(name).is_some(), good, "{name}");
        check("a", true);
        check(&"x".repeat(CLUSTER_BYTES_MAX), true);
        check(&"x".repeat(CLUSTER_BYTES_MAX + 1), false);
        for bad in ["", "a b", "a\n", "\u{e4}", "a/b"] {
            check(bad, false);
        }
    }

    #[test]
    fn handshakes_and_answers_come_back() {
        assert_eq!(Handshake::decode(&handshake().encode()), Ok(handshake()));
        for verdict in Admission::ALL {
            let answer = answer(verdict);
            assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
        }
    }

    #[test]
    fn every_changed_bit_is_noticed() {
        let (handshake, answer) = (handshake().encode(), answer(Admission::Busy).encode());
        for bit in 0..HANDSHAKE_BYTES * 8 {
            let mut bad = handshake;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Handshake::decode(&bad).is_err(), "bit {bit}");
        }
        for bit in 0..ANSWER_BYTES * 8 {
            let mut bad = answer;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Answer::decode(&bad).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn what_is_wrong_is_told() {
        let check = |at: usize, new: &[u8], expect: HandshakeError| {
            let mut bytes = handshake().encode();
            bytes[at..][..new.len()].copy_from_slice(new);
            seal(&mut bytes, HANDSHAKE_CHECKED);
            assert_eq!(Handshake::decode(&bytes), Err(expect));
        };
        check(0, b"GET ", HandshakeError::Magic);
        check(4, &[1], HandshakeError::Version(1));
        check(6, &[0], HandshakeError::Field("a server has the id 0"));
        check(24, &[0], HandshakeError::Field("the name of the cluster is none"));
        check(24, &[255], HandshakeError::Field("the name of the cluster is too long"));
        check(25, b" ", HandshakeError::Field("the name of the cluster is none"));
        check(25, &[0xff], HandshakeError::Field("the name of the cluster is none"));
        check(86, &[1], HandshakeError::Field("there are bytes behind the name of the cluster"));
        let mut bytes = handshake().encode();
        bytes[HANDSHAKE_BYTES - 1] ^= 1;
        assert_eq!(Handshake::decode(&bytes), Err(HandshakeError::Checksum));
    }

    proptest! {
        #[test]
        fn what_decodes_is_its_own_snapshot(mut bytes in any::<[u8; 32]>().prop_map(|noise| {
            let mut bytes = handshake().encode();
            bytes[4..36].copy_from_slice(&noise);
            bytes
        }), honest in any::<bool>()) {
            if honest {
                bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
                seal(&mut bytes, HANDSHAKE_CHECKED);
            }
            if let Ok(handshake) = Handshake::decode(&bytes) {
                prop_assert_eq!(handshake.encode(), bytes);
            }
        }
    }
}
