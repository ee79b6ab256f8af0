//! How a server stops: connections drain, leadership is transferred, a last snapshot is written, the log is closed.
//!
//! Requests in flight are answered first. The log closes last, so everything acknowledged is in it whatever becomes of
//! the snapshot. A stage that cannot end is bounded: by time, or by one attempt.

use corral_consensus::{Micros, Role};
use corral_core::shard::ShardMessage;

use super::context::Context;
use super::snapshots::Snapshots;
use crate::effect::{Effect, Ended, ToLog};

/// How long a stopping leader waits until another server leads.
const HAND_OVER_MAX: Micros = Micros(1_000_000);

/// The shutdown of one server.
pub(super) struct Shutdown {
    stage: Stage,
}

/// The stages, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The server runs.
    Running,
    /// So many shards still have connections.
    Draining(usize),
    /// Leadership is transferred, until that time at most.
    HandingOver(Micros),
    /// The snapshot in progress is awaited, then the last one is written. It is one snapshot: the other servers go on
    /// writing meanwhile.
    LastSnapshot { begun: bool },
    /// The process may end.
    Done,
}

impl Shutdown {
    pub(super) fn new() -> Shutdown {
        Shutdown { stage: Stage::Running }
    }

    /// Whether the server stops.
    pub(super) fn has_begun(&self) -> bool {
        self.stage != Stage::Running
    }

    /// Begins to stop. Nothing happens if that has begun before.
    pub(super) fn begin(&mut self, shards: usize, context: &mut Context<'_>) {
        if self.has_begun() {
            return;
        }
        tracing::info!("stopping: answering requests in flight");
        self.stage = Stage::Draining(shards);
        context.out.shards(ShardMessage::Drain);
    }

    /// A shard has no connection left.
    pub(super) fn drained(&mut self) {
        if let Stage::Draining(left) = self.stage {
            self.stage = Stage::Draining(left - 1);
        }
    }

    /// A snapshot could not be written. Whether the stop waited for it: it does not wait for another attempt.
    pub(super) fn gives_up_snapshot(&mut self) -> bool {
        let waits = matches!(self.stage, Stage::LastSnapshot { .. });
        if waits {
            self.stage = Stage::Done;
        }
        waits
    }

    /// Does what can be done now, at the end of each turn. True: another turn is wanted at once, because messages are to
    /// be sent.
    pub(super) fn advance(&mut self, snapshots: &mut Snapshots, context: &mut Context<'_>) -> bool {
        let now = context.now.micros;
        if self.stage == Stage::Draining(0) {
            self.stage = Stage::HandingOver(now.plus(HAND_OVER_MAX));
        }
        let mut has_sent = false;
        if let Stage::HandingOver(until) = self.stage
            && (now >= until || has_handed_over(context, &mut has_sent))
        {
            self.stage = Stage::LastSnapshot { begun: false };
        }
        if matches!(self.stage, Stage::LastSnapshot { .. }) && context.replica.is_state_corrupt() {
            // A snapshot of a corrupt state does not count.
            self.stage = Stage::Done;
        }
        if let Stage::LastSnapshot { begun } = self.stage {
            self.stage = write_last_snapshot(begun, snapshots, context);
        }
        if self.stage == Stage::Done {
            context.out.log(ToLog::Close);
            context.out.push(Effect::End(Ended::Stopped));
        }
        has_sent
    }
}

fn write_last_snapshot(begun: bool, snapshots: &mut Snapshots, context: &mut Context<'_>) -> Stage {
    let is_writing = |context: &Context<'_>| context.sequencer.snapshot_running();
    let begins = !begun && !is_writing(context);
    if begins {
        let log_is_damaged = snapshots.is_log_damaged();
        snapshots.write_if(context, |sequencer| sequencer.has_changes() || log_is_damaged);
    }
    let is_over = (begun || begins) && !is_writing(context);
    if is_over || snapshots.is_to_retry() { Stage::Done } else { Stage::LastSnapshot { begun: begun || begins } }
}

/// A stopping leader transfers leadership first. It waits until its own clients have their answers and the others
/// forward nothing more. True when it leads no more, or waiting is of no use. `has_sent`: there are messages to send.
fn has_handed_over(context: &mut Context<'_>, has_sent: &mut bool) -> bool {
    let raft = context.replica.raft();
    let Some(forwarding) = context.forwarding.as_mut().filter(|_| raft.role() == Role::Leader) else { return true };
    let Some(successor) = raft.followers().successor() else { return true };
    let now = context.now.millis();
    *has_sent = forwarding.ask_for_pause(now);
    let is_paused = forwarding.is_silent(now) && context.sequencer.commands_waiting() == 0;
    if is_paused && !raft.is_transferring() {
        tracing::info!(to = successor.0, "transferring leadership");
        if context.replica.transfer(successor).is_err() {
            return true;
        }
        *has_sent = true;
    }
    false
}
