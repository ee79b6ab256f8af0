//! What waits is cut to a size that fits a log entry, before it waits: proposals may come whole that were held back for long,
//! or from a server with other limits. A command that fits no entry alone is answered with an error, in its place.

use super::Sequencer;
use crate::command::{Batch, Command, CommandKind, Proposals, Waiting};
use crate::cost::ENTRY_MAX;
use crate::evaluate::{Circumstances, cost_at_most, cost_of_data, may_set_quota};
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
    pub(super) fn wait(&mut self, mut proposals: Proposals) {
        if self.commands_waiting == 0 && self.proposed.is_empty() {
            self.quotas_ahead = false;
        }
        self.quotas_ahead |= proposals.commands.iter().any(|command| command.creates(may_set_quota));
        let bytes_max = self.config.entry_bytes_max / SHARES;
        let speaks_as =
            |command: &Command| proposals.identities.get(command.identities as usize).map_or(0, |who| who.len());
        let costs = proposals.commands.iter().map(|command| self.cost_of(command, speaks_as(command)));
        proposals.cost = costs.fold(0, u64::saturating_add);
        if proposals.bytes <= bytes_max && proposals.cost <= ENTRY_MAX {
            return self.wait_as_it_is(proposals);
        }
        let mut waiting = Waiting::from(proposals);
        while let Some(piece) = waiting.take_by_cost(bytes_max, ENTRY_MAX, |command, who| self.cost_of(command, who)) {
            let piece = if piece.bytes > bytes_max { self.fitting(piece) } else { piece };
            self.wait_as_it_is(piece);
        }
    }

    /// What a command costs at most, in units of [`crate::cost`], for a connection with so many identities. As the state is now:
    /// a session that closes may have got more ephemerals by then, but not more than it may have.
    fn cost_of(&self, command: &Command, identities: usize) -> u64 {
        let ended = match command.kind {
            CommandKind::CloseSession => self.machine.sessions().get(&command.session),
            _ => None,
        };
        let at = Circumstances {
            identities,
            ephemerals: ended.map_or(0, |ended| ended.ephemerals.len()),
            ephemerals_bytes: ended.map_or(0, |ended| ended.ephemerals.bytes()),
            quotas: self.quotas_ahead || self.machine.has_quotas(),
            data: cost_of_data(self.machine.view(), &command.kind),
        };
        cost_at_most(&command.kind, at)
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
        let Proposals { identities, commands, bytes, cost, generation } = proposals;
        let mut batch = Batch { time: WallMillis(0), first_zxid: 0, features: 0, identities, commands };
        let encoded = batch.encode().len();
        if encoded <= bytes_max {
            let Batch { identities, commands, .. } = batch;
            return Proposals { identities, commands, bytes, cost, generation };
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
