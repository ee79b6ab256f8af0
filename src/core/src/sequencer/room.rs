//! What waits is cut to a size that fits a log entry, before it waits: proposals may come whole that were held back for long,
//! or from a server with other limits. A command that fits no entry alone is answered with an error, in its place.

use super::Sequencer;
use crate::command::{Batch, CommandKind, Proposals, Waiting};
use crate::ids::{SessionId, WallMillis};
use alloc::sync::Arc;
use alloc::vec;

/// Such a share of an entry's bytes proposals may have. A batch is less than the limit on batches, and the last proposals that
/// went in. That both take more in the log than they count for, by half at most, is provided for.
const SHARES: usize = 4;

/// A command that fits no log entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Oversized {
    pub session: SessionId,
    pub bytes: usize,
    /// One of so many would have fitted.
    pub bytes_max: usize,
}

impl Sequencer {
    /// Behind everything that waits already.
    pub(super) fn wait(&mut self, proposals: Proposals) {
        let bytes_max = self.config.entry_bytes_max / SHARES;
        if proposals.bytes <= bytes_max {
            return self.wait_as_it_is(proposals);
        }
        let mut waiting = Waiting::from(proposals);
        while let Some(piece) = waiting.take(bytes_max) {
            let piece = if piece.bytes > bytes_max { self.fitting(piece) } else { piece };
            self.wait_as_it_is(piece);
        }
    }

    fn wait_as_it_is(&mut self, proposals: Proposals) {
        self.commands_waiting += proposals.commands.len();
        self.queue.push_back(proposals);
    }

    /// As [`Sequencer::wait`], before everything that waits already. For a few small ones.
    pub(super) fn wait_in_front(&mut self, proposals: Proposals) {
        self.commands_waiting += proposals.commands.len();
        self.queue.push_front(proposals);
    }

    /// One command: as it is, if it fits an entry behind what may go before it.
    fn fitting(&mut self, proposals: Proposals) -> Proposals {
        let bytes_max = self.config.entry_bytes_max.saturating_sub(2 * self.config.batch_bytes_max);
        let Proposals { identities, commands, bytes, generation } = proposals;
        let mut batch = Batch { time: WallMillis(0), first_zxid: 0, features: 0, identities, commands };
        let encoded = batch.encode().len();
        if encoded <= bytes_max {
            let Batch { identities, commands, .. } = batch;
            return Proposals { identities, commands, bytes, generation };
        }
        for command in &mut batch.commands {
            self.oversized = Some(Oversized { session: command.session, bytes: encoded, bytes_max });
            command.identities = 0;
            if matches!(command.kind, CommandKind::Op(_) | CommandKind::Multi(_) | CommandKind::Reconfig(_)) {
                command.kind = CommandKind::Undecodable;
            }
        }
        Proposals::new(vec![Arc::default()], batch.commands)
    }

    /// The last command that was found to fit no entry since it was last told: for the log.
    pub const fn take_oversized(&mut self) -> Option<Oversized> {
        self.oversized.take()
    }
}
