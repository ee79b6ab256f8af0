//! A connection as its shard sees it: bytes not yet a whole frame, requests not yet answered, bytes not yet sent.
//!
//! Lives on one shard for its whole life. An idle connection owns no buffer.

mod attached;
mod held;
mod input;
mod output;
mod requests;

use crate::ids::{ConnId, Millis};
use crate::limits::FOUR_LETTER_BYTES_MAX;
use crate::shard::counters::ConnCounters;
use crate::shard::four_letter::is_long;
use crate::shard::read::GradualList;
use crate::shared::Text;
use crate::tree::acl::{self, Identity};
use alloc::sync::Arc;
use alloc::vec::Vec;
pub(crate) use attached::AttachedSession;
use core::fmt;
use core::net::{IpAddr, SocketAddr};
use corral_wire::fourletter::FourLetter;
pub(crate) use held::Held;
pub(crate) use input::Input;
pub(crate) use output::SHARED_BYTES;
pub(crate) use output::{BufferPool, Output};
pub(crate) use requests::{Long, Pending, Requests};

/// Where a connection is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing understood yet: a connect request or a four-letter command may come.
    Greeting {
        /// Fresh random bytes; the password, should this connection begin a session.
        entropy: [u8; 16],
    },
    /// The session command is on its way; later bytes wait.
    Connecting,
    Live,
    /// Queued bytes are still sent, then the connection ends. Input is ignored.
    Closing {
        since: Millis,
        why: Close,
    },
}

/// Why the server ends a connection. Each reason is logged and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Close {
    /// The client asked (closeSession), or a four-letter command was answered.
    Done,
    /// The client closed its end or the socket failed.
    HungUp,
    /// A length word outside `0..=frame_bytes_max`; the value.
    BadLength(i32),
    /// The first bytes were a web browser's.
    Http,
    /// The first bytes were a TLS client's.
    Tls,
    /// A request header or connect request that cannot be decoded.
    Malformed,
    /// An operation this server does not know; its number.
    UnknownOp(i32),
    /// Authentication failed: an unknown scheme, missing credentials or a wrong SASL proof.
    AuthFailed,
    /// A request without the authentication that every connection must have.
    Unauthenticated,
    /// More identities than a connection may prove, or longer ones.
    IdentityLimit,
    /// The session was ended by expiry.
    SessionExpired,
    /// The session is unknown, or its password wrong.
    SessionRefused,
    /// The session was attached to another connection.
    SessionMoved,
    /// The client has seen a later state than this server has.
    ClientAhead,
    /// No connect request within `sessionless_timeout_ms`.
    NeverConnected,
    /// Nothing heard for the session's timeout.
    Silent,
    /// The client does not read: `reply_buffer_bytes_hard_max` are waiting for it, or others wait for the memory.
    SlowReader,
    /// A part of a request takes memory that others wait for.
    SlowSender,
    /// A large request while `large_requests_bytes_max` are on their way.
    LargeRequests,
    /// Too many sessions in all.
    SessionLimit,
    /// The leader that its writes were on the way to is gone: what became of them is not known.
    Uncertain,
    /// The leader's snapshot took the place of this server's state.
    Replaced,
    /// No leader is found: another server may have one.
    NoLeader,
    /// A leader is found, and the connection was to a server that had none.
    LeaderFound,
    /// The operator sheds connections.
    Shed,
    /// The server is shutting down.
    Shutdown,
}

impl fmt::Display for Close {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::HungUp => f.write_str("the client closed the connection"),
            Self::BadLength(length) if *length > 0 => {
                write!(f, "a request of {length} bytes is longer than may be (limits.frame_bytes_max, jute.maxbuffer)")
            }
            Self::BadLength(length) => write!(f, "a request of {length} bytes cannot be"),
            Self::Http => f.write_str("HTTP spoken on the plain client port"),
            Self::Tls => f.write_str("TLS spoken on the plain client port"),
            Self::Malformed => f.write_str("malformed request"),
            Self::UnknownOp(number) => write!(f, "operation {number} is not served"),
            Self::AuthFailed => f.write_str("authentication refused"),
            Self::Unauthenticated => f.write_str("a request before authentication (security.enforce_schemes)"),
            Self::IdentityLimit => f.write_str(
                "more auth packets than a connection may send (limits.identities_per_connection_max), or identities of more than 2 KiB",
            ),
            Self::SessionExpired => f.write_str("its session ended"),
            Self::SessionRefused => f.write_str("session unknown or password wrong"),
            Self::SessionMoved => f.write_str("its session moved to another connection"),
            Self::ClientAhead => f.write_str("the client has seen a later state than this server has"),
            Self::NeverConnected => f.write_str("no connect request in time"),
            Self::Silent => f.write_str("no request within the session timeout"),
            Self::SlowReader => f.write_str("it does not read its replies"),
            Self::SlowSender => f.write_str("its request did not come whole while other connections waited for memory"),
            Self::LargeRequests => {
                f.write_str("too many bytes of large requests at once (limits.large_requests_bytes_max)")
            }
            Self::SessionLimit => f.write_str("too many sessions (sessions_max)"),
            Self::Uncertain => {
                f.write_str("the leader was lost or the disk is full: the outcome of its writes is unknown")
            }
            Self::Replaced => f.write_str("a snapshot of the leader replaced this server's state"),
            Self::NoLeader => f.write_str("the server has no leader, or its disk is full"),
            Self::LeaderFound => f.write_str("the session was read-only, and the server has a leader again"),
            Self::Shed => f.write_str("the operator sheds connections (shed_connections)"),
            Self::Shutdown => f.write_str("the server stops"),
        }
    }
}

/// The queues of its shard in which a connection stands, each once.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "it may stand in several")]
pub(crate) struct Waits {
    /// For memory.
    pub(crate) memory: bool,
    /// Its next request is a costly write.
    pub(crate) costly: bool,
    /// Its next requests wait until others have had their turns.
    pub(crate) turn: bool,
    /// Enough commands of its shard are in flight.
    pub(crate) in_flight: bool,
    /// Its next read waits for a newer view.
    pub(crate) view: bool,
}

/// The lists of active connections of its shard in which a connection stands.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ActivityMarks {
    /// Active since the last report.
    pub(crate) noted: bool,
    /// Idle if it is not active again.
    pub(crate) cooling: bool,
}

#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) id: ConnId,
    pub(crate) peer: SocketAddr,
    pub(crate) phase: Phase,
    pub(crate) session: AttachedSession,
    pub(crate) opened: Millis,
    /// Whether it uses TLS.
    pub(crate) is_secured: bool,
    /// Last.
    pub(crate) active_at: Millis,
    pub(crate) activity: ActivityMarks,
    pub(crate) identities: Arc<Vec<Identity>>,
    /// The turn, and the place in its table of identities, of this connection's latest proposal.
    pub(crate) identity_turn: u64,
    pub(crate) identity_place: u32,
    pub(crate) input: Input,
    pub(crate) output: Output,
    pub(crate) held: Held,
    pub(crate) pending: Requests,
    /// The number of the latest transaction of which it was told an event.
    pub(crate) told: u32,
    pub(crate) waits: Waits,
    /// Nothing more is taken before the answer to a sync, a walk or a reconfig, or ever after a closeSession.
    pub(crate) blocked: bool,
    /// Not to be read from until what holds it back has gone.
    pub(crate) stalled: bool,
    /// The client sends no more: when nothing is owed to it any more, the connection ends.
    pub(crate) mute: bool,
    /// The four-letter command this connection waits for an answer to.
    pub(crate) command: Option<FourLetter>,
    pub(crate) counters: ConnCounters,
}

const _: () =
    assert!(size_of::<Conn>() <= 320, "there is one for each connection, and the allocator's next size is 384");

impl Conn {
    pub(crate) fn new(
        id: ConnId,
        peer: SocketAddr,
        entropy: [u8; 16],
        now: Millis,
        identities: Arc<Vec<Identity>>,
    ) -> Self {
        Self {
            id,
            peer,
            phase: Phase::Greeting { entropy },
            session: AttachedSession::default(),
            opened: now,
            is_secured: false,
            active_at: now,
            activity: ActivityMarks::default(),
            identities,
            identity_turn: 0,
            identity_place: 0,
            input: Input::default(),
            output: Output::default(),
            held: Held::default(),
            pending: Requests::default(),
            told: 0,
            waits: Waits::default(),
            blocked: false,
            stalled: false,
            mute: false,
            command: None,
            counters: ConnCounters::default(),
        }
    }

    /// Not heard from for a while: gives back what was kept for the next request. True when all is given back.
    pub(crate) fn cool_down(&mut self) -> bool {
        self.pending.shrink() && self.input.capacity() == 0
    }

    /// The list of children that is being written for it.
    pub(crate) fn list_under_way(&mut self) -> Option<&mut GradualList> {
        match self.pending.front_mut() {
            Some(Pending::Long { begun: Some(long), .. }) => match &mut **long {
                Long::List(list) => Some(list),
                Long::Walk(_) | Long::Rewatch(_) => None,
            },
            _ => None,
        }
    }

    /// Bytes of memory that it holds. The input of a connection that waits for memory is not counted: connections that
    /// wait must not keep each other waiting.
    #[inline]
    pub(crate) fn holds(&self) -> usize {
        let mut bytes = self.output.capacity() + self.pending.queued_bytes();
        if !self.waits.memory {
            bytes += self.input.capacity();
        }
        if self.blocked {
            bytes += self.pending.blocking_bytes();
        }
        if self.command.is_some_and(is_long) && self.unsent() == 0 {
            bytes += FOUR_LETTER_BYTES_MAX;
        }
        bytes
    }

    /// Bytes that are missing of the request that the input begins with; 0 when it is whole, or its length has not
    /// come.
    pub(crate) fn missing(&self) -> usize {
        if self.is_greeting() {
            return 0;
        }
        self.input.missing()
    }

    #[inline]
    pub(crate) fn unsent(&self) -> usize {
        self.output.unsent()
    }

    pub(crate) const fn is_greeting(&self) -> bool {
        matches!(self.phase, Phase::Greeting { .. })
    }

    /// Whether everything it was asked is answered and sent; what it waits for that is no request of its, is not owed.
    pub(crate) fn is_paid(&self) -> bool {
        self.pending.is_empty() && self.unsent() == 0 && !self.stalled && self.command.is_none()
    }

    /// Whether it only sends what is queued already.
    pub(crate) const fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Closing { .. })
    }

    /// It takes what is queued for it, and is answered nothing more.
    pub(crate) fn close_after_flush(&mut self, now: Millis, why: Close) {
        if !self.is_closing() {
            self.phase = Phase::Closing { since: now, why };
            (self.pending, self.input) = Default::default();
        }
    }
}

/// The identities that come with an address, shared by the latest connections from it.
#[derive(Debug)]
pub(crate) struct AddressIdentities {
    scheme: Text,
    latest: Vec<Option<(IpAddr, Arc<Vec<Identity>>)>>,
}

impl AddressIdentities {
    /// Addresses kept; which one has to go is decided by its last byte.
    const KEPT_MAX: usize = 64;

    pub(crate) fn new() -> Self {
        Self { scheme: Text::from("ip"), latest: alloc::vec![None; Self::KEPT_MAX] }
    }

    pub(crate) fn of(&mut self, address: IpAddr) -> Arc<Vec<Identity>> {
        let last = match address {
            IpAddr::V4(address) => address.octets()[3],
            IpAddr::V6(address) => address.octets()[15],
        };
        let place = &mut self.latest[usize::from(last) % Self::KEPT_MAX];
        match place {
            Some((known, identities)) if *known == address => Arc::clone(identities),
            _ => {
                let id = Text::from(acl::address_text(address));
                let identities = Arc::new(alloc::vec![Identity { scheme: self.scheme.clone(), id }]);
                *place = Some((address, Arc::clone(&identities)));
                identities
            }
        }
    }
}
