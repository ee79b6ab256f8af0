//! The hello of the server that dials, and the answer to it: both of fixed size, checksummed, every field validated.
//!
//! Pure, on any thread. It does not decide who is welcome; it gives that decision its words.

use std::fmt;

/// First bytes of a hello.
pub const HELLO_MAGIC: [u8; 4] = *b"cRrL";
/// First bytes of an answer.
pub const ANSWER_MAGIC: [u8; 4] = *b"cRaN";
/// Version of hello, answer and frames.
pub const VERSION: u16 = 1;
/// Longest name of a cluster, bytes.
pub const CLUSTER_BYTES_MAX: usize = 62;
/// magic 4, version 2, from 8, to 8, incarnation 8, length of the name 1, name 62, padding 1, checksum 4.
pub const HELLO_BYTES: usize = 98;
/// magic 4, version 2, verdict 1, padding 1, id 8, incarnation 8, checksum 4.
pub const ANSWER_BYTES: usize = 28;

const NAME_AT: usize = 31;
const HELLO_CHECKED: usize = HELLO_BYTES - 4;
const ANSWER_CHECKED: usize = ANSWER_BYTES - 4;
const _: () = assert!(NAME_AT + CLUSTER_BYTES_MAX + 1 == HELLO_CHECKED);

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

/// What a server says first when it dials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    pub cluster: ClusterName,
    /// Id of the server that dials; never 0.
    pub from: u64,
    /// Id of the server that it means to reach; never 0.
    pub to: u64,
    /// Drawn by the dialler's process when it started.
    pub incarnation: u64,
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
        bytes[6..14].copy_from_slice(&self.from.to_le_bytes());
        bytes[14..22].copy_from_slice(&self.to.to_le_bytes());
        bytes[22..30].copy_from_slice(&self.incarnation.to_le_bytes());
        let name = self.cluster.as_str().as_bytes();
        bytes[30] = u8::try_from(name.len()).expect("a name has at most 62 bytes");
        bytes[NAME_AT..][..name.len()].copy_from_slice(name);
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
        let (from, to, incarnation) = (word(bytes, 6), word(bytes, 14), word(bytes, 22));
        if from == 0 || to == 0 {
            return Err(HelloError::Field("a server has the id 0"));
        }
        let (name, padding) = bytes[NAME_AT..HELLO_CHECKED]
            .split_at_checked(usize::from(bytes[30]))
            .ok_or(HelloError::Field("the name of the cluster is too long"))?;
        let cluster = std::str::from_utf8(name)
            .ok()
            .and_then(ClusterName::new)
            .ok_or(HelloError::Field("the name of the cluster is none"))?;
        if padding.iter().any(|byte| *byte != 0) {
            return Err(HelloError::Field("there are bytes behind the name of the cluster"));
        }
        Ok(Hello { cluster, from, to, incarnation })
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
}

impl Verdict {
    pub const ALL: [Verdict; 8] = [
        Verdict::Welcome,
        Verdict::WrongCluster,
        Verdict::WrongServer,
        Verdict::NotConfigured,
        Verdict::Duplicate,
        Verdict::Busy,
        Verdict::WrongCertificate,
        Verdict::WrongVersion,
    ];
}

/// The answer to a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    pub verdict: Verdict,
    /// Id of the server that answers; never 0.
    pub id: u64,
    /// Drawn by its process when it started.
    pub incarnation: u64,
}

impl Answer {
    pub fn encode(&self) -> [u8; ANSWER_BYTES] {
        let mut bytes = [0; ANSWER_BYTES];
        bytes[..4].copy_from_slice(&ANSWER_MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        bytes[6] = self.verdict as u8;
        bytes[8..16].copy_from_slice(&self.id.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.incarnation.to_le_bytes());
        seal(&mut bytes, ANSWER_CHECKED);
        bytes
    }

    /// # Errors
    /// Magic, version, checksum or field, whichever is wrong first.
    pub fn decode(bytes: &[u8; ANSWER_BYTES]) -> Result<Answer, HelloError> {
        check(bytes, ANSWER_MAGIC, ANSWER_CHECKED)?;
        let verdict = Verdict::ALL.into_iter().find(|verdict| *verdict as u8 == bytes[6]);
        let verdict = verdict.ok_or(HelloError::Field("the verdict is unknown"))?;
        let (id, incarnation) = (word(bytes, 8), word(bytes, 16));
        match (bytes[7], id) {
            (0, 1..) => Ok(Answer { verdict, id, incarnation }),
            (0, 0) => Err(HelloError::Field("a server has the id 0")),
            _ => Err(HelloError::Field("the padding is not zero")),
        }
    }
}

fn seal(bytes: &mut [u8], checked: usize) {
    let checksum = crc32c::crc32c(&bytes[..checked]);
    bytes[checked..].copy_from_slice(&checksum.to_le_bytes());
}

fn check(bytes: &[u8], magic: [u8; 4], checked: usize) -> Result<(), HelloError> {
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
        Hello { cluster, from: 3, to: 255, incarnation: u64::MAX }
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
            let answer = Answer { verdict, id: 1, incarnation: 0 };
            assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
        }
    }

    #[test]
    fn every_changed_bit_is_noticed() {
        let (hello, answer) = (hello().encode(), Answer { verdict: Verdict::Busy, id: 1, incarnation: 2 }.encode());
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
        check(4, &[2], HelloError::Version(2));
        check(6, &[0], HelloError::Field("a server has the id 0"));
        check(30, &[0], HelloError::Field("the name of the cluster is none"));
        check(30, &[255], HelloError::Field("the name of the cluster is too long"));
        check(31, b" ", HelloError::Field("the name of the cluster is none"));
        check(31, &[0xff], HelloError::Field("the name of the cluster is none"));
        check(93, &[1], HelloError::Field("there are bytes behind the name of the cluster"));
        let mut bytes = hello().encode();
        bytes[97] ^= 1;
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
