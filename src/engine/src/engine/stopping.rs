//! How a server stops: connections drain, another leads, one last image is written.
//!
//! What is under way is answered first; the log closes last, so that everything that was
//! acknowledged is in it whatever becomes of the image.

use corral_consensus::{Micros, Role};

use super::Engine;
use crate::effect::{Effect, Ended, ToLog};
use crate::event::Now;
use crate::machine::Replicated;

/// How long a leader that stops waits until another leads.
const HAND_OVER_MAX: Micros = Micros(1_000_000);

/// How far a stop has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stopping {
    No,
    /// Shards that still have connections.
    Draining(usize),
    /// Another is to lead, by that time.
    HandingOver(Micros),
    /// An image that was begun before is being written, then the last one. No more than that: others write on meanwhile.
    LastImage {
        begun: bool,
    },
    Done,
}

impl<M: Replicated> Engine<M> {
    /// Whether another turn is wanted at once.
    pub(super) fn go_on_stopping(&mut self, now: Now) -> bool {
        if self.stopping == Stopping::Draining(0) {
            self.stopping = Stopping::HandingOver(now.micros.plus(HAND_OVER_MAX));
        }
        let mut said = false;
        if let Stopping::HandingOver(until) = self.stopping
            && self.has_handed_over(now, until, &mut said)
        {
            self.stopping = Stopping::LastImage { begun: false };
        }
        if matches!(self.stopping, Stopping::LastImage { .. }) && self.replica.is_distrusted() {
            // Of such a state no image counts.
            self.stopping = Stopping::Done;
        }
        if let Stopping::LastImage { begun } = self.stopping {
            let running = |engine: &Self| engine.replica.machine().sequencer.snapshot_running();
            if !begun && !running(self) {
                let log_is_damaged = self.damaged_to.is_some();
                self.write_image_if(now, |sequencer| sequencer.has_changes() || log_is_damaged);
                self.stopping = Stopping::LastImage { begun: true };
            }
            let is_over = matches!(self.stopping, Stopping::LastImage { begun: true }) && !running(self);
            if is_over || self.retry.is_some() {
                self.stopping = Stopping::Done;
            }
        }
        if self.stopping == Stopping::Done {
            self.out.log(ToLog::Close);
            self.out.push(Effect::End(Ended::Stopped));
        }
        said
    }

    /// A leader that stops lets another lead first: when its own clients have their answers, the others send nothing more, and
    /// what they sent is in the log. True when it leads no more, or there is no use in waiting. `said`: something is to be sent.
    fn has_handed_over(&mut self, now: Now, until: Micros, said: &mut bool) -> bool {
        let leads = self.peers.is_some() && self.replica.raft().role() == Role::Leader;
        if !leads || now.micros >= until {
            return true;
        }
        let Some(successor) = self.replica.raft().successor() else { return true };
        *said = self.replica.machine_mut().pause();
        if self.replica.machine().is_paused() && !self.replica.raft().is_transferring() {
            tracing::info!(to = successor.0, "handing over leadership");
            if self.replica.transfer(successor).is_err() {
                return true;
            }
            *said = true;
        }
        false
    }
}
