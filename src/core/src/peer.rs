//! What servers of an ensemble say to each other beside Raft: commands on their way to the leader, signs of life, the
//! leader's clock, that one remembers nothing. Types and their encoding.
//!
//! Little-endian: version, kind, six bytes of zero, term, then by kind. Every field of what is read is checked here, and
//! what depends on who sent it in [`Forward::check`]: no byte of a peer can make this server panic or order what a
//! client's shard would not have proposed. Framing, checksums and the sender's identity are the transport's.

use crate::command::{Batch, Proposals};
use crate::ids::{Millis, SessionId, WallMillis};
use crate::limits::TOUCH_SESSIONS_MAX;
use alloc::vec::Vec;
use core::fmt;

/// Version of the encoding.
const VERSION: u8 = 1;
/// Version, kind, padding.
const TAG_BYTES: usize = 8;

/// Why a peer's message is not taken. The link it came on is to be closed with this as the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerFault {
    /// Another version of the encoding; which.
    Version(u8),
    /// The bytes are no message.
    Malformed(&'static str),
    /// A command that its sender cannot have been asked for.
    Foreign(&'static str),
    /// A message of a stream is missing: `expected` should have come.
    Gap { expected: u64, found: u64 },
}

impl fmt::Display for PeerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => write!(f, "message version {version} is not supported"),
            Self::Malformed(what) => write!(f, "malformed message: {what}"),
            Self::Foreign(what) => write!(f, "a command that is not the sender's: {what}"),
            Self::Gap { expected, found } => write!(f, "message {expected} of the stream is missing, {found} came"),
        }
    }
}

impl core::error::Error for PeerFault {}

/// One message from a server to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerMessage {
    Forward(Forward),
    Touch(Touch),
    Beat(Beat),
    Newborn(Newborn),
    Pause(Pause),
    Paused(Paused),
    Digest(Digest),
}

/// To the leader: what a server's shards propose, one turn of one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// The leader's, as its follower knows it.
    pub term: u64,
    /// Counts forwards and touches of a stream from 0.
    pub sequence: u64,
    /// `bytes` and `generation` do not travel.
    pub proposals: Proposals,
}

/// To the leader: the sessions that a server heard from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touch {
    pub term: u64,
    /// As in a forward.
    pub sequence: u64,
    /// A time of the leader's clock that the server knew of before its shards looked: whatever it heard until then is named
    /// here or was before.
    pub echo: Millis,
    /// At most [`TOUCH_SESSIONS_MAX`].
    pub sessions: Vec<SessionId>,
}

/// From the leader: its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    pub term: u64,
    pub clock: Millis,
}

/// To everybody: the sender has promised nothing to anybody that it remembers. Of no term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Newborn {
    /// Digest of the founders of the ensemble, as the sender was configured.
    pub founders: u64,
    /// The start of the receiver that the sender heard the same from; 0 if it heard nothing.
    pub heard: u64,
    /// It has formed the ensemble already, and nothing has come of that yet.
    pub formed: bool,
}

/// From a leader that is about to let another lead: no more commands are to be sent to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    pub term: u64,
}

/// To the leader: nothing comes in this stream any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paused {
    pub term: u64,
    /// As in a forward.
    pub sequence: u64,
}

/// To everybody: the digest of the sender's tree behind that log entry. Of no term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    pub index: u64,
    /// ZooKeeper's definition, see `digest`.
    pub digest: u64,
}

/// The kinds. The first four have the numbers of their frames between servers; a pause travels as a beat, and the word
/// that it is kept as a touch.
const FORWARD: u8 = 2;
const TOUCH: u8 = 3;
const BEAT: u8 = 4;
const NEWBORN: u8 = 7;
const PAUSE: u8 = 8;
const PAUSED: u8 = 9;
const DIGEST: u8 = 10;

impl PeerMessage {
    /// Appends the encoding to `out`.
    pub fn encode(self, out: &mut Vec<u8>) {
        let (kind, term) = match &self {
            Self::Forward(forward) => (FORWARD, forward.term),
            Self::Touch(touch) => (TOUCH, touch.term),
            Self::Beat(beat) => (BEAT, beat.term),
            Self::Newborn(_) => (NEWBORN, 0),
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
            Self::Touch(touch) => {
                assert!(touch.sessions.len() <= TOUCH_SESSIONS_MAX, "more sessions go in several messages");
                put(out, touch.sequence);
                put(out, touch.echo.0);
                put(out, touch.sessions.len() as u64);
                for session in &touch.sessions {
                    put(out, session.0.cast_unsigned());
                }
            }
            Self::Beat(beat) => put(out, beat.clock.0),
            Self::Newborn(newborn) => {
                put(out, newborn.founders);
                put(out, newborn.heard);
                put(out, u64::from(newborn.formed));
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
    /// Whatever is wrong with the bytes by themselves.
    pub fn decode(bytes: &[u8]) -> Result<Self, PeerFault> {
        let (tag, mut rest) = bytes.split_first_chunk::<TAG_BYTES>().ok_or(PeerFault::Malformed("too short"))?;
        let [version, kind, padding @ ..] = *tag;
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
                let proposals = proposals(rest)?;
                rest = &[];
                Self::Forward(Forward { term, sequence, proposals })
            }
            TOUCH => {
                let (sequence, echo) = (take(&mut rest)?, Millis(take(&mut rest)?));
                let sessions = sessions(&mut rest)?;
                Self::Touch(Touch { term, sequence, echo, sessions })
            }
            BEAT => Self::Beat(Beat { term, clock: Millis(take(&mut rest)?) }),
            NEWBORN if term != 0 => return Err(PeerFault::Malformed("a newborn knows no term")),
            NEWBORN => Self::Newborn(newborn(&mut rest)?),
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
    pub fn check(&self, server: u8, incarnation: u64) -> Result<(), PeerFault> {
        let identities = self.proposals.identities.len();
        for command in &self.proposals.commands {
            let origin = command.origin.ok_or(PeerFault::Foreign("nobody asked for it"))?;
            if origin.server != server || origin.incarnation != incarnation {
                return Err(PeerFault::Foreign("another server's connection asked for it"));
            }
            if command.identities as usize >= identities {
                return Err(PeerFault::Foreign("nobody knows as whom"));
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

fn take(rest: &mut &[u8]) -> Result<u64, PeerFault> {
    let (value, behind) = rest.split_first_chunk::<8>().ok_or(PeerFault::Malformed("too short"))?;
    *rest = behind;
    Ok(u64::from_le_bytes(*value))
}

fn newborn(rest: &mut &[u8]) -> Result<Newborn, PeerFault> {
    let (founders, heard) = (take(rest)?, take(rest)?);
    let formed = match take(rest)? {
        0 => false,
        1 => true,
        _ => return Err(PeerFault::Malformed("neither formed nor not")),
    };
    Ok(Newborn { founders, heard, formed })
}

/// As a batch that is not ordered yet.
fn put_proposals(out: &mut Vec<u8>, proposals: Proposals) {
    let Proposals { identities, commands, .. } = proposals;
    let batch = Batch { time: WallMillis(0), first_zxid: 0, features: 0, identities, commands };
    out.extend_from_slice(&batch.encode());
}

fn proposals(bytes: &[u8]) -> Result<Proposals, PeerFault> {
    let batch = Batch::decode(bytes).map_err(|_| PeerFault::Malformed("no commands"))?;
    let Batch { time, first_zxid, features, identities, commands } = batch;
    if (time, first_zxid, features) != (WallMillis(0), 0, 0) {
        return Err(PeerFault::Malformed("commands that were ordered already"));
    }
    if commands.is_empty() {
        return Err(PeerFault::Malformed("no command"));
    }
    Ok(Proposals::new(identities, commands))
}

fn sessions(rest: &mut &[u8]) -> Result<Vec<SessionId>, PeerFault> {
    let count = usize::try_from(take(rest)?).map_err(|_| PeerFault::Malformed("too many sessions"))?;
    if count > TOUCH_SESSIONS_MAX {
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
    use crate::command::{Command, CommandKind, Identity, Origin, WriteOp};
    use crate::ids::{ConnId, ShardId};
    use crate::shared::Text;
    use alloc::boxed::Box;
    use alloc::sync::Arc;
    use alloc::vec;

    fn forward() -> Forward {
        let origin = Origin { server: 2, shard: ShardId(1), conn: ConnId { slot: 3, generation: 4 }, incarnation: 5 };
        let op = WriteOp::Delete { path: Text::from("/a/b"), version: -1 };
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
            PeerMessage::Touch(Touch { term: 1, sequence: u64::MAX, echo: Millis(77), sessions }),
            PeerMessage::Touch(Touch { term: 1, sequence: 0, echo: Millis(0), sessions: vec![] }),
            PeerMessage::Beat(Beat { term: u64::MAX, clock: Millis(u64::MAX) }),
            PeerMessage::Newborn(Newborn { founders: u64::MAX, heard: 7, formed: true }),
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
                        let _ = forward.check(2, 5);
                    }
                }
            }
        }
    }

    #[test]
    fn a_forward_holds_its_senders_clients_commands_only() {
        let good = forward();
        assert_eq!(good.check(2, 5), Ok(()));
        assert!(good.check(3, 5).is_err(), "another server");
        assert!(good.check(2, 6).is_err(), "another start of it");
        let with = |change: fn(&mut Command)| {
            let mut forward = forward();
            change(&mut forward.proposals.commands[1]);
            forward.check(2, 5)
        };
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
        let mut newborn = encoded(&messages()[4]);
        newborn[8] = 1;
        assert_eq!(PeerMessage::decode(&newborn), Err(PeerFault::Malformed("a newborn knows no term")));
        (newborn[8], newborn[32]) = (0, 2);
        assert_eq!(PeerMessage::decode(&newborn), Err(PeerFault::Malformed("neither formed nor not")));
    }
}
