//! The streams of commands and reports from followers: each message is taken once, and in its order.

use super::links::Sender;
use crate::forwarding::peer::PeerFault;
use crate::ids::ServerId;
use crate::limits::SERVERS_MAX;
use alloc::collections::BTreeMap;

/// The newest stream from a follower.
#[derive(Clone, Copy, Debug)]
struct Intake {
    connection: u64,
    next: u64,
}

/// The newest stream of each follower, and the next message that is taken of it.
#[derive(Debug, Default)]
pub(super) struct Intakes {
    newest: BTreeMap<ServerId, Intake>,
}

impl Intakes {
    /// The leadership is another.
    pub(super) fn clear(&mut self) {
        self.newest.clear();
    }

    /// Whether a message is the next of the newest stream from there. A message of an older connection is dropped: its sender knows,
    /// or will know, that the stream is over.
    ///
    /// # Errors
    ///
    /// If messages before it are missing.
    pub(super) fn take(&mut self, from: Sender, sequence: u64) -> Result<bool, PeerFault> {
        let Sender { peer, connection, .. } = from;
        let known = self.newest.get(&peer).copied();
        if known.is_some_and(|intake| connection < intake.connection) {
            return Ok(false);
        }
        let expected = known.filter(|intake| intake.connection == connection).map_or(0, |intake| intake.next);
        // A stream may begin anew on the same connection; nothing of the former one comes behind.
        if sequence != 0 && sequence != expected {
            return Err(PeerFault::Gap { expected, found: sequence });
        }
        assert!(self.newest.len() <= SERVERS_MAX, "a server's id is a byte");
        self.newest.insert(peer, Intake { connection, next: sequence + 1 });
        Ok(true)
    }
}
