//! A server whose state is not to be trusted: it stops serving at once and takes the whole state from another server.
//!
//! What found the fault (the image writer, the scrubber, a digest that differs) sends [`ToConsensus::Distrust`]. The log is not
//! affected: the server goes on voting and acknowledging. A leader hands over first. The leader is asked for an image that
//! holds all of this log; it is installed like that for a follower that lags behind, and the server serves again. A server
//! that is alone has nobody to ask: it ends.
//!
//! [`ToConsensus::Distrust`]: crate::actor::messages::ToConsensus::Distrust

use std::sync::atomic::Ordering;

use corral_core::ids::Millis;
use corral_core::member::Divergence;
use corral_core::report::Obstacle;

use crate::actor::consensus::ConsensusActor;
use crate::actor::messages::{Cause, Distrust, Ending, ToLog};
use crate::exit::{ExitCode, Fault};

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

impl ConsensusActor {
    /// The image writer or the scrubber found that the state is wrong.
    pub(super) fn found_wrong(&mut self, distrust: &Distrust) {
        let mismatches = u64::from(distrust.cause == Cause::Digest);
        self.links.gauges.digest_mismatches.fetch_add(mismatches, Ordering::Relaxed);
        let damaged = u64::from(distrust.cause == Cause::Image);
        self.links.gauges.scrub_damaged.fetch_add(damaged, Ordering::Relaxed);
        self.distrust(distrust);
    }

    /// Stops serving, and begins to heal. Nothing happens if that has begun already.
    pub(super) fn distrust(&mut self, distrust: &Distrust) {
        let others = self.replica.raft().membership().voters.iter().any(|id| *id != self.replica.raft().id());
        let Some((peers, _)) = self.links.peers.as_mut().filter(|_| others) else {
            let sentence = format!(
                "{}: the state cannot be trusted, and there is no other server to take it from; start the server again: it uses \
                 an older image and the log if they are whole, and refuses otherwise; then restore a backup",
                distrust.what
            );
            let _ = self.links.endings.send(Ending::Failed(Fault::new(ExitCode::DataDamaged, sentence)));
            return;
        };
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
        peers.distrusted(Some(distrust));
        self.replica.machine_mut().distrust();
        let noted = distrust.cause == Cause::Noted;
        self.distrusted = Some(Distrusted { since: self.clock.now(), noted, stuck: false });
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
            self.links.gauges.withhold(Some(if stuck { Obstacle::CannotHeal } else { Obstacle::Diverged }));
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
            let _ = self.links.endings.send(Ending::Failed(Fault::new(ExitCode::DataDamaged, sentence)));
        }
    }

    /// Compares the digests of the tree with the other servers', and shows what there is to know of them.
    pub(super) fn compare_digests(&mut self, now: Millis) {
        let voters = &self.replica.raft().membership().voters;
        let voters: Vec<u8> = voters.iter().filter_map(|id| u8::try_from(id.0).ok()).collect();
        let member = self.replica.machine_mut();
        let (found, mismatches) = (member.divergence(&voters), member.take_digest_mismatches());
        self.links.gauges.show_digests(mismatches, member.sequencer.machine().view().digest_log());
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
            self.distrust(&Distrust { cause: Cause::Digest, what: format!("{what} and on a majority") });
            return;
        }
        let Some(due) = self.differences.due else {
            // The digests of all servers are on their way, or the wrong one is healing: reported if it stays like that.
            self.differences.due = Some(now.plus(UNDECIDED_MS));
            return;
        };
        if now < due || self.differences.said.is_some_and(|(said, sure)| said == peer && (sure || !confirmed)) {
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
    pub(super) fn log_damaged(&mut self, what: &str) {
        tracing::error!(
            "{what}; the state in memory is whole: an image of it takes the place of the log; look at the disk"
        );
        let _ = self.links.log.send(ToLog::Seal);
        self.damaged_to = Some(self.replica.raft().last_index());
        self.replace_damaged_log();
    }

    /// Begins an image that holds all of the damaged log, as soon as that is possible: after the one that is being written, which was
    /// begun before the damage was found, and not before the end of the log is applied.
    pub(super) fn replace_damaged_log(&mut self) {
        let last = self.replica.raft().last_index();
        let Some(upto) = &mut self.damaged_to else { return };
        // What was truncated since is in no image.
        *upto = last.min(*upto);
        let upto = upto.0;
        self.snapshot_if(|sequencer| sequencer.index() >= upto);
    }

    /// Another server's image took the place of the state.
    pub(super) fn healed(&mut self) {
        if let Some((peers, _)) = &mut self.links.peers {
            peers.distrusted(None);
        }
        let Some(Distrusted { since, .. }) = self.distrusted.take() else { return };
        let took_ms = self.clock.now().since(since);
        tracing::info!(took_ms, "the state is replaced by another server's image: this server serves again");
    }
}
