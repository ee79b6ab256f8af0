//! A server whose state is not to be trusted: it stops serving at once and takes the whole state from another server.
//!
//! What found the fault (the image writer, the scrubber, a digest that differs) reports [`Event::Distrust`]. The log is not
//! affected: the server goes on voting and acknowledging. A leader hands over first. The leader is asked for an image that
//! holds all of this log; it is installed like that for a follower that lags behind, and the server serves again. A server
//! that is alone has nobody to ask: it ends.
//!
//! [`Event::Distrust`]: crate::Event::Distrust

use corral_core::ids::Millis;
use corral_core::member::Divergence;
use corral_core::report::Obstacle;

use super::Engine;
use crate::effect::{Effect, Ended, ToLog};
use crate::event::{Cause, Distrust, Now};
use crate::machine::Replicated;
use crate::peers::Peers;

/// A difference that lasts for so long is reported, once.
const UNDECIDED_MS: u64 = 10_000;

/// While the state is not to be trusted.
pub(super) struct Distrusted {
    since: Millis,
    /// The mark of an earlier process was found at the start.
    noted: bool,
    /// It leads and cannot heal, and says so.
    stuck: bool,
}

/// What is reported of digests that differ.
#[derive(Default)]
pub(super) struct Differences {
    /// When a difference that was found is reported, if it is still there.
    due: Option<Millis>,
    /// The server that was named last, and whether a majority contradicted it.
    said: Option<(u8, bool)>,
}

impl<M: Replicated> Engine<M> {
    /// Stops serving, and begins to heal. Nothing happens if that has begun already.
    pub(super) fn distrust(&mut self, now: Now, distrust: &Distrust) {
        let others = self.replica.raft().membership().voters.iter().any(|id| *id != self.replica.raft().id());
        if self.peers.is_none() || !others {
            let sentence = format!(
                "{}: the state cannot be trusted, and there is no other server to take it from; start the server again: it uses \
                 an older image and the log if they are whole, and refuses otherwise; then restore a backup",
                distrust.what
            );
            self.out.push(Effect::End(Ended::Damaged(sentence)));
            return;
        }
        // A damaged image is recognised by its receiver; one of a state that went another way is not.
        if !self.replica.distrust(distrust.cause == Cause::Image) {
            tracing::warn!("{}; the state is being replaced already", distrust.what);
            return;
        }
        tracing::error!(
            applied = self.replica.applied().0,
            "{}: the state cannot be trusted, this server serves no client; it takes the whole state from another server",
            distrust.what
        );
        Peers::distrusted(Some(distrust), &mut self.out);
        self.replica.machine_mut().distrust();
        let noted = distrust.cause == Cause::Noted;
        self.distrusted = Some(Distrusted { since: now.millis(), noted, stuck: false });
        self.tell_notes();
    }

    /// Ends the process if it leads and cannot heal: what is on its disk is checked at the start, and the log there reaches
    /// further back than memory. One whose start found the mark of such a state stays: another start would find the same. It goes
    /// on voting, and heals when a server with a sound state and the newest entries is back.
    pub(super) fn end_if_stuck(&mut self) {
        let stuck = self.replica.is_stuck();
        if let Some(distrusted) = self.distrusted.as_mut().filter(|distrusted| distrusted.noted) {
            if std::mem::replace(&mut distrusted.stuck, stuck) == stuck {
                return;
            }
            self.out.status.withheld = Some(if stuck { Obstacle::CannotHeal } else { Obstacle::Diverged });
            if stuck {
                tracing::error!(
                    "this server leads because the others lack entries of the log, its own state cannot be trusted, and a new start \
                     did not change that: it serves no client and waits; start the servers that do not run; if they are lost \
                     use the data of another server with `corral rescue`, or restore a backup"
                );
            }
        } else if stuck {
            let sentence = "this server leads because the others lack entries of the log, and its own state cannot be trusted, so it can \
                            write no image for them: start it again, its state is then made from the image and the log on its disk";
            self.out.push(Effect::End(Ended::Damaged(sentence.to_owned())));
        }
    }

    /// Compares the digests of the tree with the other servers', and shows what there is to know of them.
    pub(super) fn compare_digests(&mut self, now: Now) {
        let voters = &self.replica.raft().membership().voters;
        let voters: Vec<u8> = voters.iter().filter_map(|id| u8::try_from(id.0).ok()).collect();
        let member = self.replica.machine_mut();
        let found = member.divergence(&voters);
        let differs = member.differs();
        let Some(Divergence { index, own, others, peer, outvoted, confirmed, with_own, with_other }) = found else {
            self.differences.due = None;
            // The other's entries may be too old or too new to compare.
            self.differences.said = self.differences.said.filter(|_| differs);
            return;
        };
        let what =
            format!("the digest of the tree behind log entry {index} is {own} here and {others} on server {peer}");
        if outvoted {
            self.distrust(now, &Distrust { cause: Cause::Digest, what: format!("{what} and on a majority") });
            return;
        }
        let Some(due) = self.differences.due else {
            // The digests of all servers are on their way, or the wrong one is healing: reported if it stays like that.
            self.differences.due = Some(now.millis().plus(UNDECIDED_MS));
            return;
        };
        if now.millis() < due || self.differences.said.is_some_and(|(said, sure)| said == peer && (sure || !confirmed))
        {
            return;
        }
        self.differences.said = Some((peer, confirmed));
        if confirmed {
            tracing::error!(
                "{what}; a majority has the digest of this server, and server {peer} does not heal: look at its log"
            );
        } else {
            tracing::error!(
                "{what}, and no majority agrees on either ({with_own} of {} voters reported the digest of this server, {with_other} \
                 the other): one of the two has a wrong state; this server goes on serving; start the servers that do not run; \
                 if it stays so compare `hash` and the data of all servers, stop the wrong one, empty its data directory but \
                 for `myid`, and start it",
                voters.len()
            );
        }
    }

    /// What the log holds is in the state, or will be: with an image of it the log before is not needed. Followers are given entries
    /// from memory, or the image.
    pub(super) fn log_damaged(&mut self, now: Now, what: &str) {
        tracing::error!(
            "{what}; the state in memory is whole: an image of it takes the place of the log; look at the disk"
        );
        self.out.log(ToLog::Seal);
        self.damaged_to = Some(self.replica.raft().last_index());
        self.replace_damaged_log(now);
    }

    /// Begins an image that holds all of the damaged log, as soon as that is possible: after the one that is being written, which was
    /// begun before the damage was found, and not before the end of the log is applied.
    pub(super) fn replace_damaged_log(&mut self, now: Now) {
        let last = self.replica.raft().last_index();
        let Some(upto) = &mut self.damaged_to else { return };
        // What was truncated since is in no image.
        *upto = last.min(*upto);
        let upto = upto.0;
        self.write_image_if(now, |sequencer| sequencer.index() >= upto);
    }

    /// Another server's image took the place of the state.
    pub(super) fn healed(&mut self, now: Now) {
        if self.peers.is_some() {
            Peers::distrusted(None, &mut self.out);
        }
        let Some(Distrusted { since, .. }) = self.distrusted.take() else { return };
        let took_ms = now.millis().since(since);
        tracing::info!(took_ms, "the state is replaced by another server's image: this server serves again");
    }
}
