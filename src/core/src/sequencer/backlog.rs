//! The commands that wait for a log entry.
//!
//! Proposals are cut to the size of a log entry before they wait. Proposals that were held back for long, or of a
//! server with other limits, may be larger. A command larger than an entry is answered with an error, in its place.
//!
//! A leader also judges the cost of a command before the command is logged. The logged command is carried out, even if
//! it costs more by the prices of the server that applies it. A restart and another member may have other prices.

use super::config::SequencerConfig;
use super::queue::Queue;
use crate::apply::{Circumstances, StateMachine, cost_at_most, cost_of_znodes};
use crate::command::{Batch, Command, CommandKind, Proposals, Waiting, is_too_heavy};
use crate::cost::{ENTRY_MAX, OP};
use crate::ids::{SessionId, WallMillis};
use crate::quota::may_set_quota;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use corral_wire::error::ErrorCode;

/// Such a share of an entry's bytes proposals may have. A batch is less than the limit on batches, and the last proposals that
/// went in. That both take more in the log than they count for, by half at most, is provided for.
const SHARES: usize = 4;

/// A command that exceeds the maximum log entry size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Oversized {
    /// Session of the client; 0 for a command without one.
    pub session: SessionId,
    /// Bytes of its encoding, in a batch of its own.
    pub bytes: usize,
    /// One of so many would have fitted.
    pub bytes_max: usize,
}

/// The present state of the sequencer, as far as commands are judged by it.
pub(super) struct Present<'m> {
    pub(super) machine: &'m mut StateMachine,
    /// No batch is proposed that is not applied.
    pub(super) is_applied: bool,
    /// Batches have `features::ADMITTED`.
    pub(super) admits: bool,
}

/// The commands that wait for a log entry.
pub(super) struct Backlog {
    queue: Queue,
    /// Whether a command that waits or is proposed may give the first subtree a quota: those behind it then cost more
    /// than the state tells.
    quotas_ahead: bool,
    oversized: Option<Oversized>,
    /// See [`Backlog::refuse_growth`].
    refuses_growth: bool,
    growth_refused: u64,
    batch_bytes_max: usize,
    entry_bytes_max: usize,
    command_cost_max: u64,
}

impl Backlog {
    pub(super) fn new(config: &SequencerConfig) -> Self {
        let SequencerConfig { batch_bytes_max, entry_bytes_max, command_cost_max, .. } = *config;
        Self {
            queue: Queue::default(),
            quotas_ahead: false,
            oversized: None,
            refuses_growth: false,
            growth_refused: 0,
            batch_bytes_max,
            entry_bytes_max,
            command_cost_max,
        }
    }

    /// Commands that wait.
    pub(super) const fn commands(&self) -> usize {
        self.queue.commands()
    }

    /// Bytes of the commands that wait.
    pub(super) const fn bytes(&self) -> usize {
        self.queue.bytes()
    }

    /// All that waits, in no time.
    pub(super) fn take(&mut self) -> VecDeque<Proposals> {
        self.queue.take()
    }

    /// Ahead of everything that waits already.
    pub(super) fn put_first(&mut self, commands: Vec<Command>) {
        self.queue.push_front(Proposals { commands, ..Proposals::default() });
    }

    /// Behind everything that waits already.
    pub(super) fn wait(&mut self, present: &Present<'_>, mut proposals: Proposals) {
        if self.queue.commands() == 0 && present.is_applied {
            self.quotas_ahead = false;
        }
        self.quotas_ahead |= proposals.commands.iter().any(|command| command.creates(may_set_quota));
        if self.refuses_growth && present.admits {
            self.refuse_growing(&mut proposals);
        }
        let bytes_max = self.entry_bytes_max / SHARES;
        let mut costs = self.costs_of(present.machine, &proposals);
        proposals.count(&costs);
        if proposals.bytes <= bytes_max && proposals.cost <= self.entry_cost_max() {
            return self.queue.push_back(proposals);
        }
        let mut waiting = Waiting::from(proposals);
        while let Some(piece) = waiting.take_by_cost(bytes_max, self.entry_cost_max(), &mut costs) {
            let piece = if piece.bytes > bytes_max { self.fitting(piece) } else { piece };
            self.queue.push_back(piece);
        }
    }

    /// From now on, or no longer, a leader refuses commands of clients that may add data to the tree: QUOTAEXCEEDED.
    pub(super) const fn refuse_growth(&mut self, refuses: bool) {
        self.refuses_growth = refuses;
    }

    /// Whether it does.
    pub(super) const fn refuses_growth(&self) -> bool {
        self.refuses_growth
    }

    /// Commands that were refused for that.
    pub(super) const fn growth_refused(&self) -> u64 {
        self.growth_refused
    }

    fn refuse_growing(&mut self, proposals: &mut Proposals) {
        for command in proposals.commands.iter_mut().filter(|command| command.kind.adds_data()) {
            command.kind = CommandKind::Refused(ErrorCode::QuotaExceeded);
            self.growth_refused += 1;
        }
    }

    /// Returns the most that each command costs. It takes long for many, so each cost is computed once.
    fn costs_of(&self, machine: &StateMachine, proposals: &Proposals) -> VecDeque<u64> {
        let speaks_as =
            |command: &Command| proposals.identities.get(command.identities as usize).map_or(0, |who| who.len());
        proposals.commands.iter().map(|command| self.cost_of(machine, command, speaks_as(command))).collect()
    }

    /// Returns the most that the next proposals cost in the present state. Sessions to be closed may have got
    /// ephemerals since the last count. They get more only from entries that are proposed and not applied. Where too
    /// many closings are together, they are cut once more.
    fn weigh_next(&mut self, machine: &StateMachine) -> Option<u64> {
        let next = self.queue.front()?;
        if next.cost_of_closing == 0 {
            return Some(next.cost);
        }
        let closings = next.commands.iter().filter(|command| command.kind == CommandKind::CloseSession);
        let closing = closings.map(|command| self.cost_of(machine, command, 0)).fold(0, u64::saturating_add);
        let cost = next.cost.saturating_sub(next.cost_of_closing).saturating_add(closing);
        let fits = cost <= self.entry_cost_max() || next.commands.len() == 1;
        self.queue.weigh_front(cost, closing);
        if fits {
            return Some(cost);
        }
        let proposals = self.queue.pop_front()?;
        let mut costs = self.costs_of(machine, &proposals);
        let (mut waiting, mut pieces) = (Waiting::from(proposals), Vec::new());
        while let Some(piece) = waiting.take_by_cost(usize::MAX, self.entry_cost_max(), &mut costs) {
            pieces.push(piece);
        }
        pieces.into_iter().rev().for_each(|piece| self.queue.push_front(piece));
        self.queue.front().map(|next| next.cost)
    }

    /// Returns the most that a command costs, in units of [`crate::cost`], for a connection with so many identities. It
    /// is of the present state: see [`Backlog::weigh_next`].
    fn cost_of(&self, machine: &StateMachine, command: &Command, identities: usize) -> u64 {
        let ended = match command.kind {
            CommandKind::CloseSession => machine.sessions().get(&command.session),
            _ => None,
        };
        let at = Circumstances {
            identities,
            ephemerals: ended.map_or(0, |ended| ended.ephemerals.len()),
            ephemerals_bytes: ended.map_or(0, |ended| ended.ephemerals.bytes()),
            quotas: self.quotas_ahead || machine.has_quotas(),
            znodes: cost_of_znodes(machine.view(), &command.kind),
        };
        cost_at_most(&command.kind, at)
    }

    /// One command: as it is, if it fits an entry behind what may go before it, and other servers take that.
    fn fitting(&mut self, proposals: Proposals) -> Proposals {
        let bytes_max = self.entry_bytes_max.saturating_sub(2 * self.batch_bytes_max);
        let Proposals { identities, commands, bytes, cost, cost_of_closing, generation } = proposals;
        let mut batch = Batch { time: WallMillis(0), first_zxid: 0, features: 0, identities, commands };
        let encoded = batch.encode().len();
        if encoded <= bytes_max && !batch.commands.iter().any(|command| is_too_heavy(&command.kind)) {
            let Batch { identities, commands, .. } = batch;
            return Proposals { identities, commands, bytes, cost, cost_of_closing, generation };
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
    pub(super) const fn take_oversized(&mut self) -> Option<Oversized> {
        self.oversized.take()
    }

    /// Fills a batch with everything that waits, up to the limit. `None` when nothing waits, or if the next command is costly and not
    /// all is applied.
    pub(super) fn fill(&mut self, present: &mut Present<'_>, mut batch: Batch) -> Option<Batch> {
        if !self.judge_next(present, &batch) {
            return None;
        }
        let (mut bytes, mut cost) = (0, 0);
        while bytes < self.batch_bytes_max
            && self.weigh_next(present.machine).is_some_and(|next| cost == 0 || cost + next <= self.entry_cost_max())
            && let Some(mut proposals) = self.queue.pop_front()
        {
            bytes += proposals.bytes;
            cost += proposals.cost;
            if batch.commands.is_empty() {
                batch.identities = proposals.identities;
                batch.commands = proposals.commands;
                batch.commands.reserve_exact(self.commands_that_fit(bytes, cost));
                continue;
            }
            let offset = u32::try_from(batch.identities.len()).expect("fewer identities than commands");
            batch.identities.append(&mut proposals.identities);
            for command in &mut proposals.commands {
                command.identities += offset;
            }
            batch.commands.append(&mut proposals.commands);
        }
        if batch.commands.is_empty() {
            return None;
        }
        batch.share_identities();
        Some(batch)
    }

    /// Commands of the proposals that go into a batch that has this many bytes.
    fn commands_that_fit(&self, mut bytes: usize, mut cost: u64) -> usize {
        let fits = |waiting: &&Proposals| {
            cost += waiting.cost;
            let fits = bytes < self.batch_bytes_max && cost <= self.entry_cost_max();
            bytes += waiting.bytes;
            fits
        };
        self.queue.iter().take_while(fits).map(|waiting| waiting.commands.len()).sum()
    }

    /// Units that the commands of one entry may cost together, if they are more than one: fewer than one command may.
    fn entry_cost_max(&self) -> u64 {
        ENTRY_MAX.min(self.command_cost_max / 2)
    }

    /// Judges the next command if it may cost more than the limit, and refuses it beyond that. The command is evaluated on the state
    /// to which it will be applied, and the changes are dropped. So everything before it has to be applied: false until then.
    /// Most commands pass by one comparison.
    fn judge_next(&mut self, present: &mut Present<'_>, empty: &Batch) -> bool {
        let cost_max = self.command_cost_max;
        let may_be_too_costly = self.queue.front().is_some_and(|next| next.cost >= cost_max);
        if !present.admits || !may_be_too_costly {
            return true;
        }
        if !present.is_applied {
            return false;
        }
        let Some(next) = self.queue.pop_front() else { return true };
        let Proposals { identities, commands, bytes, cost, cost_of_closing, generation } = next;
        let mut batch = Batch { identities, commands, ..*empty };
        // A command that costs so much has proposals of its own.
        let is_refused = batch.commands.len() == 1 && present.machine.is_too_costly(&batch);
        let judged = if is_refused {
            batch.commands[0].kind = CommandKind::Refused(ErrorCode::ThrottledOp);
            Proposals { cost: OP, generation, ..Proposals::new(batch.identities, batch.commands) }
        } else {
            let Batch { identities, commands, .. } = batch;
            Proposals { identities, commands, bytes, cost, cost_of_closing, generation }
        };
        self.queue.push_front(judged);
        true
    }
}

#[cfg(test)]
mod tests;
