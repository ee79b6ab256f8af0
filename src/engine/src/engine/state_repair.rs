//! A server with a corrupt state stops serving at once, and takes the whole state from another server.
//!
//! The snapshot writer, the scrubber, or a digest that differs reports [`Event::StateCorrupt`]. The log is not affected:
//! the server goes on voting, storing and acknowledging. A leader transfers leadership first. The server asks the leader
//! for a snapshot, which replaces the state, applies its own log from there, and serves again. A standalone server has no
//! other server to take the state from: it ends.
//!
//! [`Event::StateCorrupt`]: crate::Event::StateCorrupt

use corral_consensus::{Index, Role, ServerId};
use corral_core::forwarding::Divergence;
use corral_core::ids::Millis;

use super::context::Context;
use crate::effect::{Effect, Ended, Outbox};
use crate::event::{CorruptState, Finding};
use crate::outgoing::send_raft;

/// A difference that lasts for so long is reported, once.
const UNDECIDED_MS: u64 = 10_000;
/// A server that leads with a corrupt state is stuck if no successor makes progress for this time, in milliseconds.
const STUCK_MS: u64 = 10_000;

/// Whether the state is corrupt, and the differences of digests that were reported.
#[derive(Default)]
pub(super) struct StateRepair {
    /// Present while the state is corrupt.
    repair: Option<Repair>,
    /// When a difference of digests is reported, if it is still there.
    report_at: Option<Millis>,
    /// The server that was reported last, and whether a majority contradicted it.
    reported: Option<(ServerId, bool)>,
}

/// A repair in progress.
struct Repair {
    since: Millis,
    /// Since when this server leads, and the best successor has acknowledged up to this entry. 0: there is none.
    leads: Option<(Millis, Index)>,
    /// It was logged that this server cannot hand over.
    is_stuck_logged: bool,
    /// A start may help: it uses an older snapshot and the log, if they are whole.
    start_helps: bool,
}

impl StateRepair {
    /// Stops serving, and begins the repair. True if it has begun with this call; the caller informs the shards then.
    pub(super) fn begin(&mut self, found: &CorruptState, context: &mut Context<'_>) -> bool {
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
        if !context.replica.mark_state_corrupt() {
            tracing::warn!("{}; the state is being replaced already", found.what);
            return false;
        }
        tracing::error!(
            applied = context.replica.applied().0,
            "{}: the state cannot be trusted, this server serves no client; it takes the whole state from another server",
            found.what
        );
        show(Some(found), context.out);
        if let Some(forwarding) = &mut context.forwarding {
            forwarding.distrust();
        }
        let now = context.now.millis();
        let start_helps = found.finding == Finding::DamagedSnapshot;
        self.repair = Some(Repair { since: now, leads: None, is_stuck_logged: false, start_helps });
        true
    }

    /// One tick: requests a snapshot. While one of the corrupt state is being written (`is_writing`) none is requested: both
    /// files may have the same name.
    pub(super) fn request_state(&mut self, is_writing: bool, context: &mut Context<'_>) {
        let now = context.now.millis();
        let Some(repair) = &mut self.repair else { return };
        if !is_writing {
            send_raft(context.replica.state_requests(), context.out);
        }
        let raft = context.replica.raft();
        let followers = raft.followers();
        let reached = followers.successor().map_or(Index(0), |to| followers.matched(to));
        let before = repair.leads.filter(|(_, before)| *before == reached);
        repair.leads = (raft.role() == Role::Leader).then(|| before.unwrap_or((now, reached)));
        let is_stuck = repair.leads.is_some_and(|(since, _)| now.since(since) >= STUCK_MS);
        if is_stuck && repair.start_helps {
            let sentence = "the state of this server cannot be trusted, and no other server with a state that can be is able to lead: \
                            start this server again, its state is then made from an older snapshot and the log on its disk";
            context.out.push(Effect::End(Ended::Damaged(sentence.to_owned())));
        } else if is_stuck && !std::mem::replace(&mut repair.is_stuck_logged, true) {
            tracing::error!(
                "the state of this server cannot be trusted, and it leads because no other server can: they do not run, their states \
                 cannot be trusted either, or they lack entries that no log holds any more; start the servers that do not run; if all \
                 run see docs/operate/disk-faults.md"
            );
        }
    }

    /// Whether a repair is in progress.
    pub(super) fn is_active(&self) -> bool {
        self.repair.is_some()
    }

    /// Compares the digests of the tree with those of the other servers, and logs a difference that lasts. Gives what is
    /// corrupt if a majority has another digest than this server.
    pub(super) fn compare_digests(&mut self, context: &mut Context<'_>) -> Option<CorruptState> {
        let now = context.now.millis();
        let voters = &context.replica.raft().membership().voters;
        let forwarding = context.forwarding.as_mut()?;
        let (found, differs) = (forwarding.divergence(voters), forwarding.differs());
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
                "{what}, and no majority agrees on either. {with_own} of {} voters reported the digest of this server, {with_other} \
                 the other. One of the two has a wrong state. This server goes on serving. Start the servers that do not run. \
                 If it lasts, compare `hash` and the data of all servers, stop the wrong one, empty its data directory except \
                 `myid`, and start it",
                voters.len()
            );
        }
        None
    }

    /// The state is intact: another server's snapshot replaced it, and the log is applied from there.
    pub(super) fn end(&mut self, context: &mut Context<'_>) {
        if let Some(forwarding) = &mut context.forwarding {
            show(None, context.out);
            forwarding.trust();
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
