//! This server's commands to one leadership, and how many of them have not come back.

use crate::apply::outcome::Outcome;
use crate::ids::ServerId;

/// Where a stream leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum To {
    /// This server leads.
    Own,
    Peer {
        server: ServerId,
        connection: u64,
    },
}

/// Commands of this server in an applied entry.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Back {
    done: u64,
    /// Membership changes that have begun: they come back at their end.
    begun: u64,
    ended: u64,
}

impl Back {
    pub(super) const fn note(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Underway(_) => self.begun += 1,
            Outcome::Later(_) => self.ended += 1,
            _ => self.done += 1,
        }
    }
}

/// The commands of a server to one leadership, in order and without a gap.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    term: u64,
    to: To,
    /// Number of the next message.
    sequence: u64,
    /// Commands are sent. Otherwise it has lapsed.
    flows: bool,
    /// A command was sent.
    used: bool,
    /// Commands that were sent and have not come back.
    outstanding: u64,
    /// Membership changes among them that have begun.
    underway: u64,
    /// All commands that come back in this term are of this stream, because no other stream of the term broke.
    exact: bool,
}

impl Stream {
    pub(super) const fn new(term: u64, to: To, exact: bool) -> Self {
        Self { term, to, sequence: 0, flows: true, used: false, outstanding: 0, underway: 0, exact }
    }

    pub(super) const fn term(&self) -> u64 {
        self.term
    }

    pub(super) const fn to(&self) -> To {
        self.to
    }

    pub(super) const fn flows(&self) -> bool {
        self.flows
    }

    pub(super) const fn resume(&mut self) {
        self.flows = true;
    }

    pub(super) const fn lapse(&mut self) {
        self.flows = false;
    }

    /// Whether a command was sent.
    pub(super) const fn is_used(&self) -> bool {
        self.used
    }

    pub(super) const fn is_waiting(&self) -> bool {
        self.outstanding > 0
    }

    /// Whether the outcome of a command may be unknown if the stream ends now.
    pub(super) const fn leaves_doubt(&self) -> bool {
        self.used && !(self.exact && self.outstanding == 0)
    }

    /// The leadership is the same, and the connection to it another: it is not known which commands were lost.
    pub(super) fn is_reconnected(&self, term: u64, to: Option<To>) -> bool {
        match (self.to, to) {
            (To::Peer { server, connection }, Some(To::Peer { server: same, connection: other })) => {
                self.term == term && server == same && connection != other
            }
            _ => false,
        }
    }

    /// This number of commands is sent.
    pub(super) const fn send(&mut self, commands: usize) {
        self.used = true;
        self.outstanding += commands as u64;
    }

    /// The number of the next message.
    pub(super) const fn number(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence - 1
    }

    /// An entry of the term was applied, with these commands of this server.
    pub(super) fn came_back(&mut self, back: Back) {
        self.underway += back.begun;
        // Operations that an earlier stream began do not count.
        let ended = back.ended.min(self.underway);
        self.underway -= ended;
        self.outstanding = self.outstanding.saturating_sub(back.done + ended);
    }
}
