//! Events of the connections: their begin, their end, and frames.
//!
//! Plain data. Made on the connections' threads, taken on the thread of the receiver of events.

use std::fmt;
use std::io::{self, ErrorKind};

use corral_consensus::ServerId;
use corral_peer::{Frame, FrameError};

use crate::net::peers::budget::Hold;

/// Which of the two connections with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Dialled by this server, which sends on it.
    Out,
    /// Dialled by the peer, which sends its frames on it.
    In,
}

/// The events of the connections. For one peer and direction always `Up`, frames, `Down`, in this order, then again.
#[derive(Debug)]
pub(crate) enum ConnectionEvent {
    /// The name of a peer has not resolved since it is dialled, or resolves now for the first time after that.
    Name { peer: ServerId, resolves: bool },
    /// A connection stands.
    Up {
        peer: ServerId,
        direction: Direction,
        /// Names the connection among all of this process; never 0.
        stream: u64,
        /// Drawn by the peer's process when it started.
        incarnation: u64,
    },
    /// A connection has ended. Messages that were queued on it and not received by the peer are lost.
    Down { peer: ServerId, direction: Direction, stream: u64, reason: Reason },
    /// Frames that arrived together, never empty.
    Frames {
        peer: ServerId,
        /// The connection it came on.
        stream: u64,
        frames: Vec<Frame>,
        /// To be dropped when the frames are dealt with: while too much is held, the peer is not read.
        hold: Hold,
    },
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The peer closed it in good order, as its kernel does for a process that died with nothing unread.
    Closed,
    /// The peer's kernel refused it: its process is gone.
    Reset,
    /// The peer's host acknowledges nothing any more.
    Dead,
    /// The peer's process takes nothing any more.
    Stalled,
    /// The peer broke the protocol.
    Bad(FrameError),
    /// The peer sent where it must be silent.
    Spoke,
    /// The receiver of the frames does not understand the peer's messages.
    NotUnderstood,
    /// A message that must not be lost did not fit into the queue.
    QueueFull,
    /// The same process of the peer has dialled again.
    Replaced,
    /// This server stops, or the peer is not one of its servers any more.
    Stopped,
    /// Anything else, in the words of the kernel or of TLS.
    Failed(String),
}

impl Reason {
    /// Of an error while reading or writing.
    pub(crate) fn of(error: &io::Error) -> Reason {
        match error.kind() {
            ErrorKind::UnexpectedEof => Reason::Closed,
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted => Reason::Reset,
            ErrorKind::TimedOut | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => Reason::Dead,
            _ => Reason::Failed(error.to_string()),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Closed => f.write_str("it closed the connection"),
            Reason::Reset => f.write_str("its process is gone"),
            Reason::Dead => f.write_str("its host does not answer; look at the host and the network"),
            Reason::Stalled => f.write_str("it takes nothing any more; look whether it is stopped or overloaded"),
            Reason::Bad(error) => write!(f, "it broke the protocol: {error}"),
            Reason::Spoke => f.write_str("it broke the protocol: it sent where it must be silent"),
            Reason::NotUnderstood => f.write_str("it broke the protocol: its messages cannot be decoded"),
            Reason::QueueFull => f.write_str("it takes less than there is for it, and the queue for it is full"),
            Reason::Replaced => f.write_str("it has dialled again"),
            Reason::Stopped => f.write_str("this server ends it"),
            Reason::Failed(words) => f.write_str(words),
        }
    }
}
