//! The hello of the server that dials, and the answer to it: both of fixed size, checksummed, every field validated.
//!
//! Pure, on any thread. It does not decide who is welcome; it gives that decision its words.

use std::fmt;

use crate::secret::TOKEN_BYTES;

/// First bytes of a hello.
pub const HELLO_MAGIC: [u8; 4] = *b"cRrL";
/// First bytes of an answer.
pub const ANSWER_MAGIC: [u8; 4] = *b"cRaN";
/// First bytes of a challenge.
pub const CHALLENGE_MAGIC: [u8; 4] = *b"cRcH";
/// First bytes of the proof that a challenge is answered with.
pub const PROOF_MAGIC: [u8; 4] = *b"cRpR";
/// Version of hello, answer and frames.
pub const VERSION: u16 = 3;
/// Longest name of a cluster, bytes.
pub const CLUSTER_BYTES_MAX: usize = 62;
/// magic 4, version 2, from 1, to 1, generation 8, incarnation 8, length of the name 1, name 62, token 7, checksum 4. As long
/// in every version, so that each reads the version of every other.
pub const HELLO_BYTES: usize = 98;
/// magic 4, version 2, verdict 1, id 1, generation 8, zero 8, checksum 4. As long in every version.
pub const ANSWER_BYTES: usize = 28;

const NAME_AT: usize = 25;
const HELLO_CHECKED: usize = HELLO_BYTES - 4;
const ANSWER_CHECKED: usize = ANSWER_BYTES - 4;
const TOKEN_AT: usize = NAME_AT + CLUSTER_BYTES_MAX;
const _: () = assert!(TOKEN_AT + TOKEN_BYTES == HELLO_CHECKED);

/// The name all servers of an ensemble share: 1 to 62 letters, digits, `-`, `_` or `.`.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterName(String);

impl ClusterName {
    /// A name, if it is one.
    pub fn new(name: &str) -> Option<ClusterName> {
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let fits = (1..=CLUSTER_BYTES_MAX).contains(&name.len());
        (fits && name.bytes().all(legal)).then(|| ClusterName(name.to_owned()))
    }

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

/// Which of the ensembles that a cluster has been a server's data are of: a rescue makes one server an ensemble by itself, and
/// what others keep of the one before does not belong to it. Of two the later is the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Generation(pub u64);

impl Generation {
    /// Nobody was rescued yet.
    pub const FIRST: Generation = Generation(0);
    /// Of a server that holds nothing: it belongs to whoever gives it everything.
    pub const NONE: Generation = Generation(u64::MAX);

    /// Whether servers of these two must not speak with each other.
    pub fn is_apart_from(self, other: Generation) -> bool {
        self != other && self != Generation::NONE && other != Generation::NONE
    }

    /// That of who is rescued at this time, Unix milliseconds.
    #[must_use]
    pub fn next(self, now_ms: u64) -> Generation {
        Generation(now_ms.max(self.0.saturating_add(1)).min(u64::MAX - 1))
    }
}

/// What a server says first when it dials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    pub cluster: ClusterName,
    /// Id of the server that dials; never 0.
    pub from: u8,
    /// Id of the server that it means to reach; never 0.
    pub to: u8,
    /// Of the dialler's data.
    pub generation: Generation,
    /// Drawn by the dialler's process when it started.
    pub incarnation: u64,
    /// By which the other server knows this process again; another one for each server.
    pub token: [u8; TOKEN_BYTES],
}

/// Why bytes are no hello, or no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// Somebody speaks something else.
    #[error("it does not speak the protocol between servers")]
    Magic,
    /// A server of another version.
    #[error("it speaks version {0} of the protocol between servers, this server version {VERSION}")]
    Version(u16),
    /// The bytes are not those that were sent.
    #[error("the checksum is wrong")]
    Checksum,
    /// A field that no server of this version sends.
    #[error("{0}")]
    Field(&'static str),
}

impl Hello {
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..4].copy_from_slice(&HELLO_MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        (bytes[6], bytes[7]) = (self.from, self.to);
        bytes[8..16].copy_from_slice(&self.generation.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.incarnation.to_le_bytes());
        let name = self.cluster.as_str().as_bytes();
        bytes[24] = u8::try_from(name.len()).expect("a name has at most 62 bytes");
        bytes[NAME_AT..][..name.len()].copy_from_slice(name);
        bytes[TOKEN_AT..HELLO_CHECKED].copy_from_slice(&self.token);
        seal(&mut bytes, HELLO_CHECKED);
        bytes
    }

    /// Whether these bytes can begin a hello.
    pub fn may_begin_with(bytes: &[u8]) -> bool {
        bytes.iter().zip(HELLO_MAGIC).all(|(found, due)| *found == due)
    }

    /// # Errors
    /// Magic, version, checksum or field, whichever is wrong first.
    pub fn decode(bytes: &[u8; HELLO_BYTES]) -> Result<Hello, HelloError> {
        check(bytes, HELLO_MAGIC, HELLO_CHECKED)?;
        let (from, to) = (bytes[6], bytes[7]);
        let (generation, incarnation) = (Generation(word(bytes, 8)), word(bytes, 16));
        if from == 0 || to == 0 {
            return Err(HelloError::Field("a server has the id 0"));
        }
        let (name, padding) = bytes[NAME_AT..TOKEN_AT]
            .split_at_checked(usize::from(bytes[24]))
            .ok_or(HelloError::Field("the name of the cluster is too long"))?;
        let cluster = std::str::from_utf8(name)
            .ok()
            .and_then(ClusterName::new)
            .ok_or(HelloError::Field("the name of the cluster is none"))?;
        if padding.iter().any(|byte| *byte != 0) {
            return Err(HelloError::Field("there are bytes behind the name of the cluster"));
        }
        let mut token = [0; TOKEN_BYTES];
        token.copy_from_slice(&bytes[TOKEN_AT..HELLO_CHECKED]);
        Ok(Hello { cluster, from, to, generation, incarnation, token })
    }
}

/// What becomes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Verdict {
    /// Frames may follow.
    Welcome = 0,
    /// The dialler is of another cluster.
    WrongCluster = 1,
    /// The dialler means another server.
    WrongServer = 2,
    /// The dialler is none of the servers this one is configured with.
    NotConfigured = 3,
    /// Another process of the dialler's id is connected.
    Duplicate = 4,
    /// The dialler's last connection has not ended yet.
    Busy = 5,
    /// The dialler's certificate is not for the server it says it is.
    WrongCertificate = 6,
    /// The dialler speaks another version.
    WrongVersion = 7,
    /// The dialler's data are of another generation.
    WrongGeneration = 8,
    /// The dialler has not proven that it holds this server's secret.
    NotProven = 9,
}

impl Verdict {
    pub const ALL: [Verdict; 10] = [
        Verdict::Welcome,
        Verdict::WrongCluster,
        Verdict::WrongServer,
        Verdict::NotConfigured,
        Verdict::Duplicate,
        Verdict::Busy,
        Verdict::WrongCertificate,
        Verdict::WrongVersion,
        Verdict::WrongGeneration,
        Verdict::NotProven,
    ];
}

/// The answer to a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    pub verdict: Verdict,
    /// Id of the server that answers; 0 where a rejection does not tell it.
    pub id: u8,
    /// Of its data; [`Generation::NONE`] where a rejection does not tell it.
    pub generation: Generation,
}

impl Answer {
    pub fn encode(&self) -> [u8; ANSWER_BYTES] {
        let mut bytes = [0; ANSWER_BYTES];
        bytes[..4].copy_from_slice(&ANSWER_MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        (bytes[6], bytes[7]) = (self.verdict as u8, self.id);
        bytes[8..16].copy_from_slice(&self.generation.0.to_le_bytes());
        seal(&mut bytes, ANSWER_CHECKED);
        bytes
    }

    /// # Errors
    /// Magic, version, checksum or field, whichever is wrong first.
    pub fn decode(bytes: &[u8; ANSWER_BYTES]) -> Result<Answer, HelloError> {
        check(bytes, ANSWER_MAGIC, ANSWER_CHECKED)?;
        let verdict = Verdict::ALL.into_iter().find(|verdict| *verdict as u8 == bytes[6]);
        let verdict = verdict.ok_or(HelloError::Field("the verdict is unknown"))?;
        if word(bytes, 16) != 0 {
            return Err(HelloError::Field("there are bytes where none are"));
        }
        if bytes[7] == 0 && verdict == Verdict::Welcome {
            return Err(HelloError::Field("a server has the id 0"));
        }
        Ok(Answer { verdict, id: bytes[7], generation: Generation(word(bytes, 8)) })
    }
}

pub(crate) fn seal(bytes: &mut [u8], checked: usize) {
    let checksum = crc32c::crc32c(&bytes[..checked]);
    bytes[checked..].copy_from_slice(&checksum.to_le_bytes());
}

pub(crate) fn check(bytes: &[u8], magic: [u8; 4], checked: usize) -> Result<(), HelloError> {
    if bytes[..4] != magic {
        return Err(HelloError::Magic);
    }
    let version = u16::from_le_bytes([bytes[4], bytes[5]]);
    if version != VERSION {
        return Err(HelloError::Version(version));
    }
    let told: [u8; 4] = bytes[checked..].try_into().expect("the checksum is the last field");
    if crc32c::crc32c(&bytes[..checked]) != u32::from_le_bytes(told) {
        return Err(HelloError::Checksum);
    }
    Ok(())
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hello() -> Hello {
        let cluster = ClusterName::new("blue-1.x_y").expect("a name");
        let token = [0xa5; TOKEN_BYTES];
        Hello { cluster, from: 3, to: 255, generation: Generation(7), incarnation: u64::MAX, token }
    }

    fn answer(verdict: Verdict) -> Answer {
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
    fn hellos_and_answers_come_back() {
        assert_eq!(Hello::decode(&hello().encode()), Ok(hello()));
        for verdict in Verdict::ALL {
            let answer = answer(verdict);
            assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
        }
    }

    #[test]
    fn every_changed_bit_is_noticed() {
        let (hello, answer) = (hello().encode(), answer(Verdict::Busy).encode());
        for bit in 0..HELLO_BYTES * 8 {
            let mut bad = hello;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Hello::decode(&bad).is_err(), "bit {bit}");
        }
        for bit in 0..ANSWER_BYTES * 8 {
            let mut bad = answer;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Answer::decode(&bad).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn what_is_wrong_is_told() {
        let check = |at: usize, new: &[u8], expect: HelloError| {
            let mut bytes = hello().encode();
            bytes[at..][..new.len()].copy_from_slice(new);
            seal(&mut bytes, HELLO_CHECKED);
            assert_eq!(Hello::decode(&bytes), Err(expect));
        };
        check(0, b"GET ", HelloError::Magic);
        check(4, &[1], HelloError::Version(1));
        check(6, &[0], HelloError::Field("a server has the id 0"));
        check(24, &[0], HelloError::Field("the name of the cluster is none"));
        check(24, &[255], HelloError::Field("the name of the cluster is too long"));
        check(25, b" ", HelloError::Field("the name of the cluster is none"));
        check(25, &[0xff], HelloError::Field("the name of the cluster is none"));
        check(86, &[1], HelloError::Field("there are bytes behind the name of the cluster"));
        let mut bytes = hello().encode();
        bytes[HELLO_BYTES - 1] ^= 1;
        assert_eq!(Hello::decode(&bytes), Err(HelloError::Checksum));
    }

    proptest! {
        #[test]
        fn what_decodes_is_its_own_image(mut bytes in any::<[u8; 32]>().prop_map(|noise| {
            let mut bytes = hello().encode();
            bytes[4..36].copy_from_slice(&noise);
            bytes
        }), honest in any::<bool>()) {
            if honest {
                bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
                seal(&mut bytes, HELLO_CHECKED);
            }
            if let Ok(hello) = Hello::decode(&bytes) {
                prop_assert_eq!(hello.encode(), bytes);
            }
        }
    }
}
