//! A server whose state is corrupt: it stops serving at once, and takes the whole state from another server.
//!
//! The snapshot writer, the scrubber, or a digest that differs reports [`Event::StateCorrupt`]. The log is not affected:
//! the server goes on voting and acknowledging. A leader transfers leadership first. The server requests a snapshot from
//! the leader that holds all of this log. It is installed as on a follower that lags, and the server serves again. A
//! standalone server has no other server to take the state from: it ends.
//!
//! [`Event::StateCorrupt`]: crate::Event::StateCorrupt

use corral_core::coordinator::Divergence;
use corral_core::ids::Millis;
use corral_core::report::Obstacle;

use super::context::Context;
use crate::effect::{Effect, Ended, Outbox};
use crate::event::{CorruptState, Finding};
use crate::machine::Replicated;

/// A difference that lasts for so long is reported, once.
const UNDECIDED_MS: u64 = 10_000;

/// Whether the state is corrupt, and what was reported of digests that differ.
#[derive(Default)]
pub(super) struct StateRepair {
    /// Present while the state is corrupt.
    repair: Option<Repair>,
    /// When a difference of digests is reported, if it is still there.
    report_at: Option<Millis>,
    /// The server that was reported last, and whether a majority contradicted it.
    reported: Option<(u8, bool)>,
}

/// A repair in progress.
struct Repair {
    since: Millis,
    /// The start found the mark of an earlier process.
    is_noted: bool,
    /// This server leads and cannot be repaired; that was reported.
    is_stuck: bool,
}

impl StateRepair {
    /// Stops serving, and begins the repair. True if it has begun with this call; the caller informs the shards then.
    pub(super) fn begin<M: Replicated>(&mut self, found: &CorruptState, context: &mut Context<'_, M>) -> bool {
        let raft = context.replica.raft();
        let has_others = raft.membership().voters.iter().any(|id| *id != raft.id());
        if !context.is_in_ensemble() || !has_others {
            let sentence = format!(
                "{}: the state cannot be trusted, and there is no other server to take it from; start the server again: it uses \
                 an older snapshot and the log if they are whole, and refuses otherwise; then restore a backup",
                found.what
            );
            context.out.push(Effect::End(Ended::Damaged(sentence)));
            return false;
        }
        // The receiver of a damaged snapshot recognises it. A snapshot of a state that diverged looks intact.
        if !context.replica.mark_state_corrupt(found.finding == Finding::DamagedSnapshot) {
            tracing::warn!("{}; the state is being replaced already", found.what);
            return false;
        }
        tracing::error!(
            applied = context.replica.applied().0,
            "{}: the state cannot be trusted, this server serves no client; it takes the whole state from another server",
            found.what
        );
        show(Some(found), context.out);
        context.replica.machine_mut().distrust();
        let is_noted = found.finding == Finding::NotedByEarlierProcess;
        self.repair = Some(Repair { since: context.now.millis(), is_noted, is_stuck: false });
        true
    }

    /// Ends the process if it leads and cannot be repaired: a start checks the data on disk, and the log there reaches
    /// further back than memory. A server whose start found the mark of an earlier process goes on: another start would
    /// find the same. It votes, and is repaired when a server with an intact state and the newest entries is back.
    pub(super) fn end_if_stuck<M: Replicated>(&mut self, context: &mut Context<'_, M>) {
        let stuck = context.replica.is_stuck();
        if let Some(repair) = self.repair.as_mut().filter(|repair| repair.is_noted) {
            if std::mem::replace(&mut repair.is_stuck, stuck) == stuck {
                return;
            }
            context.out.status.withheld = Some(if stuck { Obstacle::CannotHeal } else { Obstacle::Diverged });
            if stuck {
                tracing::error!(
                    "this server leads because the others lack entries of the log, its own state cannot be trusted, and a new start \
                     did not change that: it serves no client and waits; start the servers that do not run; if they are lost \
                     use the data of another server with `corral rescue`, or restore a backup"
                );
            }
        } else if stuck {
            let sentence = "this server leads because the others lack entries of the log, and its own state cannot be trusted, so it can \
                            write no snapshot for them: start it again, its state is then made from the snapshot and the log on its disk";
            context.out.push(Effect::End(Ended::Damaged(sentence.to_owned())));
        }
    }

    /// Compares the digests of the tree with those of the other servers, and logs a difference that lasts. Gives what is
    /// corrupt if a majority has another digest than this server.
    pub(super) fn compare_digests<M: Replicated>(&mut self, context: &mut Context<'_, M>) -> Option<CorruptState> {
        let now = context.now.millis();
        let voters = &context.replica.raft().membership().voters;
        let voters: Vec<u8> = voters.iter().filter_map(|id| u8::try_from(id.0).ok()).collect();
        let member = context.replica.machine_mut();
        let found = member.divergence(&voters);
        let differs = member.differs();
        let Some(Divergence { index, own, others, peer, outvoted, confirmed, with_own, with_other }) = found else {
            self.report_at = None;
            // The entries of the other server may be too old or too new to compare.
            self.reported = self.reported.filter(|_| differs);
            return None;
        };
        let what =
            format!("the digest of the tree behind log entry {index} is {own} here and {others} on server {peer}");
        if outvoted {
            let what = format!("{what} and on a majority");
            return Some(CorruptState { finding: Finding::DivergedDigest, what });
        }
        let Some(report_at) = self.report_at else {
            // Digests of other servers are on their way, or the wrong server is repaired: logged if it lasts.
            self.report_at = Some(now.plus(UNDECIDED_MS));
            return None;
        };
        if now < report_at || self.reported.is_some_and(|(said, sure)| said == peer && (sure || !confirmed)) {
            return None;
        }
        self.reported = Some((peer, confirmed));
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
        None
    }

    /// A snapshot of another server replaced the state: it is intact.
    pub(super) fn end<M: Replicated>(&mut self, context: &mut Context<'_, M>) {
        if context.is_in_ensemble() {
            show(None, context.out);
        }
        let Some(Repair { since, .. }) = self.repair.take() else { return };
        let took_ms = context.now.millis().since(since);
        tracing::info!(took_ms, "the state is replaced by another server's snapshot: this server serves again");
    }
}

/// Shows in the status that the state is corrupt, or intact again. A difference of digests is noted on disk, because the
/// next start would not find it by checksums.
fn show(found: Option<&CorruptState>, out: &mut Outbox) {
    out.status.withheld = found.map(|found| found.finding.obstacle());
    match found {
        None => out.push(Effect::NoteStateCorrupt(None)),
        Some(CorruptState { finding: Finding::DivergedDigest, what }) => {
            out.push(Effect::NoteStateCorrupt(Some(what.clone())));
        }
        Some(CorruptState { finding: Finding::DamagedSnapshot | Finding::NotedByEarlierProcess, .. }) => {}
    }
}
