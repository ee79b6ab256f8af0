//! Another server's snapshot becomes the state: because this server lags, or because its state was corrupt.

use std::sync::Arc;

use corral_consensus::{Index, Replica, Term};
use corral_core::sequencer::Sequencer;
use corral_core::shard::{self, ShardMessage};

use crate::effect::{Effect, Garbage, Outbox};
use crate::event::Now;
use crate::peers::Ensemble;
use crate::snapshot::Arrived;

/// Replaces the state. `report` informs the replica.
pub(super) fn install(
    now: Now,
    arrived: Arrived,
    ensemble: &mut Ensemble,
    (replica, sequencer): (&mut Replica, &mut Sequencer),
    out: &mut Outbox,
    report: impl FnOnce(&mut Replica),
) {
    let Ensemble { peers, forwarding, .. } = ensemble;
    let Arrived { loaded, state } = arrived;
    let (view, alive) = (state.view().clone(), state.sessions().len() as u64);
    let (former, frozen) = sequencer.install(state, loaded.index, loaded.term);
    forwarding.installed(sequencer, loaded.index, loaded.term);
    out.push(Effect::Drop(Garbage::Core(shard::Garbage::State(Box::new(former)))));
    out.effects.extend(frozen.map(|frozen| Effect::Drop(Garbage::Frozen(Box::new(frozen)))));
    report(replica);
    replica.compact(Index(loaded.index), Term(loaded.term));
    out.status.served_snapshot = loaded.index;
    out.push(Effect::Installed { zxid: loaded.zxid, index: loaded.index });
    peers.offer.add(now.millis(), loaded.offered());
    peers.adopt(loaded.generation(), out);
    tracing::info!(index = loaded.index, zxid = %view.zxid(), nodes = view.node_count(), "snapshot installed");
    out.shards(ShardMessage::Install(Arc::new(view), alive));
}
