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

use crate::actor::consensus::ConsensusActor;
use crate::actor::messages::{Cause, Distrust, Ending, ToLog};
use crate::exit::{ExitCode, Fault};

/// A difference that no majority decides is reported this often, milliseconds.
const REPORT_EVERY_MS: u64 = 60_000;
/// One that lasts for so long is reported.
const UNDECIDED_MS: u64 = 10_000;

impl ConsensusActor {
    /// The image writer or the scrubber found that the state is wrong.
    pub(super) fn found_wrong(&mut self, distrust: &Distrust) {
        let mismatches = u64::from(distrust.cause == Cause::Digest);
        self.links.gauges.digest_mismatches.fetch_add(mismatches, Ordering::Relaxed);
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
        self.distrusted = Some(self.clock.now());
        self.tell_notes();
    }

    /// Ends the process if it leads and cannot heal. What is on its disk is checked at the start.
    pub(super) fn end_if_stuck(&self) {
        if self.replica.is_stuck() {
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
        let Some(Divergence { index, own, others, peer, outvoted, confirmed }) = found else {
            self.divergence_due = None;
            return;
        };
        let what =
            format!("the digest of the tree behind log entry {index} is {own} here and {others} on server {peer}");
        if outvoted {
            self.distrust(&Distrust { cause: Cause::Digest, what: format!("{what} and on a majority") });
            return;
        }
        let Some(due) = self.divergence_due else {
            // The digests of all servers are on their way, or the wrong one is healing: reported if it stays like that.
            self.divergence_due = Some(now.plus(UNDECIDED_MS));
            return;
        };
        if now < due {
            return;
        }
        self.divergence_due = Some(now.plus(REPORT_EVERY_MS));
        if confirmed {
            tracing::error!(
                "{what}; a majority has the digest of this server, and server {peer} does not heal: look at its log"
            );
        } else {
            tracing::error!(
                "{what}, and no majority agrees on either: one of the two has a wrong state; this server goes on serving; compare \
                 `hash` and the data of all servers, stop the wrong one, empty its data directory but for `myid`, and start it"
            );
        }
    }

    /// What the log holds is in the state: with an image of it the log before is not needed. Followers are given entries from
    /// memory, or the image.
    pub(super) fn log_damaged(&mut self, what: &str) {
        tracing::error!(
            "{what}; the state in memory is whole: an image of it takes the place of the log; look at the disk"
        );
        let _ = self.links.log.send(ToLog::Seal);
        self.drops_log = true;
        self.snapshot_if(|_| true);
    }

    /// Another server's image took the place of the state.
    pub(super) fn healed(&mut self) {
        let Some(since) = self.distrusted.take() else { return };
        if let Some((peers, _)) = &mut self.links.peers {
            peers.distrusted(None);
        }
        let took_ms = self.clock.now().since(since);
        tracing::info!(took_ms, "the state is replaced by another server's image: this server serves again");
    }
}
