//! Messages between servers of an ensemble beside Raft: forwarded commands, signs of life, the leader's clock, reports
//! of uninitialised servers. Types and their encoding.
//!
//! Little-endian: version, kind, six bytes of zero, term, then by kind. Every field is checked here as it is read, and
//! fields that depend on the sender in [`Forward::check`]. No byte of a peer can make this server panic, or order a
//! command that a client's shard would not have proposed. Framing, checksums and the sender's identity are the
//! transport's.

use crate::command::{Batch, Command, Proposals, Renumbered, identities_weight};
use crate::ids::{Millis, ServerId, SessionId, WallMillis};
use crate::limits::{IDENTITIES_BYTES_MAX, REPORT_SESSIONS_MAX};
use crate::tree::acl::Identity;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use corral_types::Reader;

/// Version of the encoding.
const VERSION: u8 = 1;
/// Version, kind, padding.
const TAG_BYTES: usize = 8;

/// Why a peer's message is not taken. The connection it came on is to be closed with this as the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerFault {
    /// Another version of the encoding; which.
    Version(u8),
    /// The bytes are no message.
    Malformed(&'static str),
    /// A command that its sender cannot have been asked for.
    Foreign(&'static str),
    /// A message of a stream is missing: `expected` should have come.
    Gap {
        /// Sequence number of the missing message.
        expected: u64,
        /// Sequence number of the message that was received.
        found: u64,
    },
    /// Commands come faster than they are ordered, beyond [`crate::limits::FORWARDED_BYTES_MAX`].
    Flood,
}

impl fmt::Display for PeerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => write!(f, "message version {version} is not supported"),
            Self::Malformed(what) => write!(f, "malformed message: {what}"),
            Self::Foreign(what) => write!(f, "a command that is not the sender's: {what}"),
            Self::Flood => f.write_str("more commands than this server can order; waiting commands go on"),
            Self::Gap { expected, found } => write!(f, "message {expected} of the stream is missing, {found} came"),
        }
    }
}

impl core::error::Error for PeerFault {}

/// One message from a server to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerMessage {
    /// Commands of a follower's clients, for the leader.
    Forward(Forward),
    /// Sessions that were active on a follower, for the leader.
    SessionReport(SessionReport),
    /// The leader's clock, for its followers.
    Heartbeat(Heartbeat),
    /// The sender holds no data: counted for bootstrap.
    Uninitialised(Uninitialised),
    /// The leader is about to transfer leadership.
    Pause(Pause),
    /// The answer to a pause: the stream of commands has ended.
    Paused(Paused),
    /// A digest of the sender's tree, to be compared.
    Digest(Digest),
}

/// To the leader: what a server's shards propose, one turn of one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// The leader's, as its follower knows it.
    pub term: u64,
    /// Counts forwards and reports of a stream from 0.
    pub sequence: u64,
    /// `bytes` and `generation` do not travel.
    pub proposals: Proposals,
}

/// To the leader: the sessions that a server heard from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionReport {
    /// Term of the leader, as the sender knows it.
    pub term: u64,
    /// As in a forward.
    pub sequence: u64,
    /// A time of the leader's clock that the server knew before its shards looked. All sessions that it heard until
    /// then are named here or in an earlier report.
    pub echo: Millis,
    /// At most [`REPORT_SESSIONS_MAX`].
    pub sessions: Vec<SessionId>,
}

/// From the leader: its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// Term in which the sender leads.
    pub term: u64,
    /// The leader's monotonic clock. The receiver sends it back as [`SessionReport::echo`].
    pub clock: Millis,
}

/// To all servers: the sender is uninitialised, and has no stored vote. Of no term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uninitialised {
    /// Digest of the founders of the ensemble, as the sender was configured.
    pub founders: u64,
    /// Incarnation of the receiver in the last report that the sender has of it; 0 without a report.
    pub acknowledged: u64,
    /// It has bootstrapped the ensemble already, and nothing has come of that yet.
    pub bootstrapped: bool,
}

/// From a leader that is about to let another lead: no more commands are to be sent to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Term in which the sender leads.
    pub term: u64,
}

/// To the leader: nothing comes in this stream any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paused {
    /// Term of the pause that is confirmed.
    pub term: u64,
    /// As in a forward.
    pub sequence: u64,
}

/// To all servers: the digest of the sender's tree behind that log entry. Of no term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    /// Index of the log entry.
    pub index: u64,
    /// ZooKeeper's definition, see `digest`.
    pub digest: u64,
}

/// The kinds. The first four have the numbers of their frames between servers. A pause travels as a heartbeat, and the
/// confirmation of it as a report.
const FORWARD: u8 = 2;
const SESSION_REPORT: u8 = 3;
const HEARTBEAT: u8 = 4;
const UNINITIALISED: u8 = 7;
const PAUSE: u8 = 8;
const PAUSED: u8 = 9;
const DIGEST: u8 = 10;

impl PeerMessage {
    /// Appends the encoding to `out`.
    pub fn encode(self, out: &mut Vec<u8>) {
        let (kind, term) = match &self {
            Self::Forward(forward) => (FORWARD, forward.term),
            Self::SessionReport(report) => (SESSION_REPORT, report.term),
            Self::Heartbeat(heartbeat) => (HEARTBEAT, heartbeat.term),
            Self::Uninitialised(_) => (UNINITIALISED, 0),
            Self::Digest(_) => (DIGEST, 0),
            Self::Pause(pause) => (PAUSE, pause.term),
            Self::Paused(paused) => (PAUSED, paused.term),
        };
        out.extend_from_slice(&[VERSION, kind, 0, 0, 0, 0, 0, 0]);
        put(out, term);
        match self {
            Self::Forward(forward) => {
                put(out, forward.sequence);
                put_proposals(out, forward.proposals);
            }
            Self::SessionReport(report) => {
                assert!(report.sessions.len() <= REPORT_SESSIONS_MAX, "more sessions go in several messages");
                put(out, report.sequence);
                put(out, report.echo.0);
                put(out, report.sessions.len() as u64);
                for session in &report.sessions {
                    put(out, session.0.cast_unsigned());
                }
            }
            Self::Heartbeat(heartbeat) => put(out, heartbeat.clock.0),
            Self::Uninitialised(uninitialised) => {
                put(out, uninitialised.founders);
                put(out, uninitialised.acknowledged);
                put(out, u64::from(uninitialised.bootstrapped));
            }
            Self::Digest(report) => {
                put(out, report.index);
                put(out, report.digest);
            }
            Self::Pause(_) => {}
            Self::Paused(paused) => put(out, paused.sequence),
        }
    }

    /// Reads one message that fills `bytes` exactly.
    ///
    /// # Errors
    /// Any fault of the bytes by themselves.
    pub fn decode(bytes: &[u8]) -> Result<Self, PeerFault> {
        let mut rest = Reader::new(bytes);
        let tag = rest.array::<TAG_BYTES>().ok_or(PeerFault::Malformed("too short"))?;
        let [version, kind, padding @ ..] = tag;
        if version != VERSION {
            return Err(PeerFault::Version(version));
        }
        if padding != [0; TAG_BYTES - 2] {
            return Err(PeerFault::Malformed("its tag is not empty"));
        }
        let term = take(&mut rest)?;
        let message = match kind {
            FORWARD => {
                let sequence = take(&mut rest)?;
                let proposals = proposals(rest.rest())?;
                Self::Forward(Forward { term, sequence, proposals })
            }
            SESSION_REPORT => {
                let (sequence, echo) = (take(&mut rest)?, Millis(take(&mut rest)?));
                let sessions = sessions(&mut rest)?;
                Self::SessionReport(SessionReport { term, sequence, echo, sessions })
            }
            HEARTBEAT => Self::Heartbeat(Heartbeat { term, clock: Millis(take(&mut rest)?) }),
            UNINITIALISED if term != 0 => return Err(PeerFault::Malformed("an uninitialised server knows no term")),
            UNINITIALISED => Self::Uninitialised(uninitialised(&mut rest)?),
            DIGEST if term != 0 => return Err(PeerFault::Malformed("a digest is of no term")),
            DIGEST => Self::Digest(Digest { index: take(&mut rest)?, digest: take(&mut rest)? }),
            PAUSE => Self::Pause(Pause { term }),
            PAUSED => Self::Paused(Paused { term, sequence: take(&mut rest)? }),
            _ => return Err(PeerFault::Malformed("unknown kind")),
        };
        if rest.is_empty() { Ok(message) } else { Err(PeerFault::Malformed("bytes behind its end")) }
    }
}

impl Forward {
    /// Whether all of its commands are such as shards of this start of this server propose for their clients.
    ///
    /// # Errors
    /// [`PeerFault::Foreign`] otherwise.
    pub fn check(&self, server: ServerId, incarnation: u64) -> Result<(), PeerFault> {
        let identities = self.proposals.identities.len();
        if self.proposals.identities.iter().any(|list| identities_weight(list) > IDENTITIES_BYTES_MAX) {
            return Err(PeerFault::Foreign("more identities than a connection may have"));
        }
        for command in &self.proposals.commands {
            let origin = command.origin.ok_or(PeerFault::Foreign("no client sent it"))?;
            if origin.server != server || origin.incarnation != incarnation {
                return Err(PeerFault::Foreign("another server's connection asked for it"));
            }
            if command.identities as usize >= identities {
                return Err(PeerFault::Foreign("its identities are unknown"));
            }
            if !command.kind.is_clients() {
                return Err(PeerFault::Foreign("no client can ask for it"));
            }
        }
        Ok(())
    }
}

fn put(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn take(rest: &mut Reader<'_>) -> Result<u64, PeerFault> {
    rest.u64().ok_or(PeerFault::Malformed("too short"))
}

fn uninitialised(rest: &mut Reader<'_>) -> Result<Uninitialised, PeerFault> {
    let (founders, acknowledged) = (take(rest)?, take(rest)?);
    let bootstrapped = match take(rest)? {
        0 => false,
        1 => true,
        _ => return Err(PeerFault::Malformed("neither bootstrapped nor not")),
    };
    Ok(Uninitialised { founders, acknowledged, bootstrapped })
}

/// As a batch that is not ordered yet.
fn put_proposals(out: &mut Vec<u8>, proposals: Proposals) {
    let Proposals { identities, commands, .. } = proposals;
    let batch = Batch { time: WallMillis(0), first_zxid: 0, features: 0, identities, commands };
    out.extend_from_slice(&batch.encode());
}

fn proposals(bytes: &[u8]) -> Result<Proposals, PeerFault> {
    let batch = Batch::decode_of_peer(bytes).map_err(|_| PeerFault::Malformed("no commands"))?;
    let Batch { time, first_zxid, features, identities, mut commands } = batch;
    if (time, first_zxid, features) != (WallMillis(0), 0, 0) {
        return Err(PeerFault::Malformed("commands that were ordered already"));
    }
    if commands.is_empty() {
        return Err(PeerFault::Malformed("no command"));
    }
    // Those of commands that were dropped are not used: each takes more memory than its bytes, if it is empty.
    let identities =
        if identities.len() > commands.len() { used_alone(&identities, &mut commands) } else { identities };
    // Commands and identities count with their weight, and empty lists of identities count for nothing.
    let mut proposals = Proposals::new(identities, commands);
    proposals.bytes = proposals.bytes.max(bytes.len());
    Ok(proposals)
}

/// The lists of identities that commands name, which then name them there. A number of no list stays one of no list.
fn used_alone(lists: &[Arc<Vec<Identity>>], commands: &mut [Command]) -> Vec<Arc<Vec<Identity>>> {
    let mut used = Renumbered::new();
    for command in commands {
        let Some(list) = lists.get(command.identities as usize) else { continue };
        command.identities = used.place_of(command.identities, list);
    }
    used.lists
}

fn sessions(rest: &mut Reader<'_>) -> Result<Vec<SessionId>, PeerFault> {
    let count = usize::try_from(take(rest)?).map_err(|_| PeerFault::Malformed("too many sessions"))?;
    if count > REPORT_SESSIONS_MAX {
        return Err(PeerFault::Malformed("too many sessions"));
    }
    if rest.len() != count * 8 {
        return Err(PeerFault::Malformed("another number of sessions than it says"));
    }
    let mut sessions = Vec::with_capacity(count);
    for _ in 0..count {
        let session = SessionId(take(rest)?.cast_signed());
        if session == SessionId(0) {
            return Err(PeerFault::Malformed("session 0"));
        }
        sessions.push(session);
    }
    Ok(sessions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Command, CommandKind};
    use crate::ids::{ConnId, Origin, ShardId};
    use crate::ops;
    use crate::ops::WriteOp;
    use crate::shared::Text;
    use crate::tree::acl::Identity;
    use alloc::boxed::Box;
    use alloc::sync::Arc;
    use alloc::vec;

    fn forward() -> Forward {
        let origin =
            Origin { server: ServerId(2), shard: ShardId(1), conn: ConnId { slot: 3, generation: 4 }, incarnation: 5 };
        let op = WriteOp::Delete(ops::Delete { path: Text::from("/a/b"), version: -1 });
        let command = |kind| Command { origin: Some(origin), session: SessionId(9), identities: 0, kind };
        let identities = vec![Arc::new(vec![Identity { scheme: Text::from("ip"), id: Text::from("::1") }])];
        let commands = vec![command(CommandKind::Op(op)), command(CommandKind::CloseSession)];
        Forward { term: 7, sequence: 1, proposals: Proposals::new(identities, commands) }
    }

    fn encoded(message: &PeerMessage) -> Vec<u8> {
        let mut bytes = Vec::new();
        message.clone().encode(&mut bytes);
        bytes
    }

    fn messages() -> [PeerMessage; 8] {
        let sessions = vec![SessionId(-1), SessionId(i64::MAX)];
        [
            PeerMessage::Forward(forward()),
            PeerMessage::SessionReport(SessionReport { term: 1, sequence: u64::MAX, echo: Millis(77), sessions }),
            PeerMessage::SessionReport(SessionReport { term: 1, sequence: 0, echo: Millis(0), sessions: vec![] }),
            PeerMessage::Heartbeat(Heartbeat { term: u64::MAX, clock: Millis(u64::MAX) }),
            PeerMessage::Uninitialised(Uninitialised { founders: u64::MAX, acknowledged: 7, bootstrapped: true }),
            PeerMessage::Digest(Digest { index: u64::MAX, digest: 3 }),
            PeerMessage::Pause(Pause { term: 7 }),
            PeerMessage::Paused(Paused { term: 7, sequence: u64::MAX }),
        ]
    }

    #[test]
    fn messages_survive_the_way() {
        for message in messages() {
            let bytes = encoded(&message);
            assert_eq!(PeerMessage::decode(&bytes).as_ref(), Ok(&message));
            for end in 0..bytes.len() {
                assert!(PeerMessage::decode(&bytes[..end]).is_err(), "{message:?} cut at {end}");
            }
            let longer = [&bytes[..], &[0]].concat();
            assert!(PeerMessage::decode(&longer).is_err(), "{message:?} with a byte behind it");
        }
    }

    #[test]
    fn no_single_byte_does_harm() {
        for message in messages() {
            let bytes = encoded(&message);
            for at in 0..bytes.len() {
                for value in [0, 1, 0x7f, 0x80, 0xff] {
                    let mut bad = bytes.clone();
                    bad[at] = value;
                    if let Ok(PeerMessage::Forward(forward)) = PeerMessage::decode(&bad) {
                        let _ = forward.check(ServerId(2), 5);
                    }
                }
            }
        }
    }

    #[test]
    fn a_forward_holds_its_senders_clients_commands_only() {
        let good = forward();
        assert_eq!(good.check(ServerId(2), 5), Ok(()));
        assert!(good.check(ServerId(3), 5).is_err(), "another server");
        assert!(good.check(ServerId(2), 6).is_err(), "another start of it");
        let with = |change: fn(&mut Command)| {
            let mut forward = forward();
            change(&mut forward.proposals.commands[1]);
            forward.check(ServerId(2), 5)
        };
        let mut many = forward();
        many.proposals
            .identities
            .push(Arc::new(vec![Identity { scheme: Text::from("digest"), id: Text::from("") }; 200]));
        assert!(many.check(ServerId(2), 5).is_err(), "more identities than a connection may have");
        assert!(with(|command| command.origin = None).is_err());
        assert!(with(|command| command.identities = 1).is_err());
        assert!(with(|command| command.kind = CommandKind::SystemNodes(vec![])).is_err());
        assert!(with(|command| command.kind = CommandKind::Reap { path: Text::from("/"), mzxid: 1 }).is_err());
        assert!(with(|command| command.kind = CommandKind::Configured(Text::from(""))).is_err());
        assert!(with(|command| command.kind = CommandKind::ReconfigBegins(Text::from(""))).is_err());
        assert!(with(|command| command.kind = CommandKind::ReconfigEnds).is_err());
        assert!(with(|command| command.kind = CommandKind::Reconfig(Box::default())).is_ok());
    }

    #[test]
    fn lists_of_identities_that_no_command_names_go() {
        let mut sent = forward();
        let named = Arc::clone(&sent.proposals.identities[0]);
        sent.proposals.identities = vec![Arc::default(), Arc::default(), named, Arc::default()];
        sent.proposals.commands[0].identities = 2;
        sent.proposals.commands[1].identities = 2;
        let Ok(PeerMessage::Forward(came)) = PeerMessage::decode(&encoded(&PeerMessage::Forward(sent.clone()))) else {
            panic!("it is a forward");
        };
        assert_eq!(came.proposals.identities, forward().proposals.identities);
        assert!(came.proposals.commands.iter().all(|command| command.identities == 0));
        assert_eq!(came.check(ServerId(2), 5), Ok(()));
        sent.proposals.commands[1].identities = 7;
        let Ok(PeerMessage::Forward(came)) = PeerMessage::decode(&encoded(&PeerMessage::Forward(sent))) else {
            panic!("it is a forward");
        };
        assert!(came.check(ServerId(2), 5).is_err(), "a command names no list of identities");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let check = |change: fn(&mut Vec<u8>), fault| {
            let mut bytes = encoded(&messages()[1]);
            change(&mut bytes);
            assert_eq!(PeerMessage::decode(&bytes), Err(fault));
        };
        check(|bytes| bytes[0] = 2, PeerFault::Version(2));
        check(|bytes| bytes[1] = 99, PeerFault::Malformed("unknown kind"));
        check(|bytes| bytes[5] = 1, PeerFault::Malformed("its tag is not empty"));
        check(|bytes| bytes[39] = 1, PeerFault::Malformed("too many sessions"));
        check(|bytes| bytes[32] = 3, PeerFault::Malformed("another number of sessions than it says"));
        check(|bytes| bytes[40..48].fill(0), PeerFault::Malformed("session 0"));
        let mut uninitialised = encoded(&messages()[4]);
        uninitialised[8] = 1;
        assert_eq!(
            PeerMessage::decode(&uninitialised),
            Err(PeerFault::Malformed("an uninitialised server knows no term"))
        );
        (uninitialised[8], uninitialised[32]) = (0, 2);
        assert_eq!(PeerMessage::decode(&uninitialised), Err(PeerFault::Malformed("neither bootstrapped nor not")));
    }
}
