//! Why this server accepts no sessions or no writes: found once a tick, shown by `srvr` and `mntr`, and logged.
//!
//! A short election or start is not logged. A reason is logged when it has lasted, when it changes, once a minute, and when
//! it has ended. Nothing is decided here: [`Forwarding`] holds clients back.

use std::collections::BTreeMap;

use corral_consensus::{Index, PeerError, RaftNode, Replica, ServerId};
use corral_core::forwarding::{Awaited, Forwarding};
use corral_core::ids::Millis;
use corral_core::report::Obstacle;
use corral_core::sequencer::Sequencer;

use crate::effect::Status;

/// A reason that ends sooner is not logged.
const LASTS_MS: u64 = 3000;
/// A lasting reason is logged again after this time.
const AGAIN_MS: u64 = 60_000;
/// Commands make no progress if nothing is applied for so long.
const PROGRESS_MS: u64 = 3000;
/// A message that contradicts the log counts for so long.
const CONTRADICTION_MS: u64 = 10_000;

/// Observations of the engine besides its replica.
pub(crate) struct ServerState {
    pub(crate) stopping: bool,
    /// There is no space for entries or a snapshot of the leader.
    pub(crate) stalled: bool,
    /// A snapshot is being received or installed.
    pub(crate) receives_snapshot: bool,
    /// The server has no data.
    pub(crate) has_no_data: bool,
    /// Whether it is a member, where that is known.
    pub(crate) listed: Option<bool>,
    /// It is a standalone server: its clients are not held back while its log has no space.
    pub(crate) is_standalone: bool,
}

impl ServerState {
    /// Of a standalone server.
    pub(crate) const fn standalone(stopping: bool, stalled: bool) -> ServerState {
        ServerState {
            stopping,
            stalled,
            receives_snapshot: false,
            has_no_data: false,
            listed: None,
            is_standalone: true,
        }
    }
}

/// The present reason, and its log lines.
#[derive(Default)]
pub(crate) struct Serving {
    present: Option<Obstacle>,
    since: Millis,
    /// The reason that was logged last and has not ended, and when.
    logged: Option<(Obstacle, Millis)>,
    /// The applied index, and when it last moved or no command waited.
    applied: (Index, Millis),
    /// When a message last contradicted the log.
    contradiction: Option<Millis>,
    /// By peer: when such a message was logged last.
    contradictions_logged: BTreeMap<ServerId, Millis>,
}

impl Serving {
    /// A Raft message was refused because the logs of two servers contradict each other: one has an old copy of its data.
    pub(crate) fn contradicted(&mut self, now: Millis, peer: ServerId, leader: Option<ServerId>, error: &PeerError) {
        if leader.is_none_or(|leader| leader == peer) {
            self.contradiction = Some(now);
        }
        let logged = self.contradictions_logged.get(&peer);
        if logged.is_none_or(|logged| now.since(*logged) >= AGAIN_MS) {
            self.contradictions_logged.insert(peer, now);
            tracing::error!(
                peer = peer.0,
                "the log of server {peer} and this server's contradict each other: {error}. One of the two was started with an \
                 old copy of its data. If most servers were not, stop that one, empty its data directory but for `myid`, and start \
                 it again. If most were, stop all and run `corral rescue` where the zxid is highest \
                 (docs/operate/lose-a-quorum.md)"
            );
        }
    }

    /// One tick.
    pub(crate) fn tick(
        &mut self,
        now: Millis,
        (replica, sequencer, forwarding): (&Replica, &Sequencer, Option<&Forwarding>),
        state: &ServerState,
        status: &mut Status,
    ) {
        status.clock_ahead_ms = forwarding.and_then(Forwarding::clock_ahead_ms);
        let view = sequencer.view();
        status.delta_bytes = (view.delta_bytes() + view.frozen().map_or(0, |frozen| frozen.bytes())) as u64;
        status.log_bytes = replica.raft().held_bytes();
        (status.growth_refusing, status.growth_refused) = (sequencer.refuses_growth(), sequencer.growth_refused());
        let applied = replica.applied();
        if applied != self.applied.0 || !forwarding.is_some_and(Forwarding::is_waiting) {
            self.applied = (applied, now);
        }
        self.contradiction = self.contradiction.filter(|at| now.since(*at) < CONTRADICTION_MS);
        let found = self.found(now, replica.raft(), forwarding, state);
        if found != self.present {
            (self.present, self.since) = (found, now);
            status.found = found;
        }
        self.log(now, status.obstacle());
    }

    fn found(
        &self,
        now: Millis,
        raft: &RaftNode,
        forwarding: Option<&Forwarding>,
        state: &ServerState,
    ) -> Option<Obstacle> {
        let leads = raft.leader() == Some(raft.id());
        let flows = forwarding.is_none_or(Forwarding::is_flowing);
        let is_pausing = forwarding.is_some_and(Forwarding::is_pausing);
        let silent = now.since(self.applied.1) >= PROGRESS_MS;
        let leader_is_corrupt = raft.leader().is_some_and(|leader| raft.followers().has_corrupt_state(leader));
        let contradicts = !leads && (raft.leader_lacks_committed() || self.contradiction.is_some());
        let reasons = [
            (state.stopping, Obstacle::Stopping),
            (state.stalled && (!flows || state.is_standalone), Obstacle::DiskFull),
            (state.receives_snapshot, Obstacle::SnapshotAwaited),
            (state.has_no_data && !flows, Obstacle::NoData),
            (contradicts, Obstacle::LogContradicts),
            (!flows && state.listed == Some(false), Obstacle::NotListed),
            (!flows && raft.leader().is_none(), Obstacle::NoLeader),
            (!flows && is_pausing, Obstacle::HandingOver),
            (!flows && !leads, Obstacle::LeaderNotConnected),
            (!flows || silent || leader_is_corrupt, Obstacle::NoProgress),
        ];
        reasons.into_iter().find_map(|(holds, obstacle)| holds.then_some(obstacle))
    }

    fn log(&mut self, now: Millis, obstacle: Option<Obstacle>) {
        match (obstacle, self.logged) {
            (None, None) => {}
            (None, Some((before, _))) => {
                tracing::info!(was = before.word(), "this server accepts sessions and writes again");
                self.logged = None;
            }
            (Some(obstacle), said) => {
                let lasts = now.since(self.since) >= LASTS_MS;
                let due = said.is_none_or(|(before, at)| before != obstacle || now.since(at) >= AGAIN_MS);
                if lasts && due {
                    self.logged = Some((obstacle, now));
                    let seconds = now.since(self.since) / 1000;
                    let (reason, sentence) = (obstacle.word(), obstacle.sentence());
                    // As at each first start, and until a server is added to an ensemble.
                    if obstacle == Obstacle::NoData && now.since(self.since) < AGAIN_MS {
                        tracing::info!(reason, seconds, "this server waits for data: {sentence}");
                    } else {
                        tracing::warn!(reason, seconds, "this server accepts no sessions and no writes: {sentence}");
                    }
                }
            }
        }
    }
}

/// Logs what a server without data waits for.
pub(crate) fn log_what_is_awaited(awaited: &[Awaited]) {
    let ids = |of: fn(&Awaited) -> Option<ServerId>| {
        let ids: Vec<String> = awaited.iter().filter_map(of).map(|id| id.to_string()).collect();
        ids.join(", ")
    };
    let silent = ids(|one| if let Awaited::Silent(id) = one { Some(*id) } else { None });
    let others = ids(|one| if let Awaited::Disagrees(id) = one { Some(*id) } else { None });
    if !others.is_empty() {
        tracing::warn!("configured with other servers than this one: server {others}; the lists must be the same");
    }
    if silent.is_empty() {
        tracing::info!("this server has no data: it waits for a leader to give it everything");
    } else {
        tracing::info!(
            "this server has no data: it waits until a leader gives it everything, or until server {silent}, without data too, \
             is reached and a new ensemble begins; do not empty a server that has data"
        );
    }
}

/// Logs that a new ensemble begins; `absent` are founders that it does not wait for.
pub(crate) fn log_bootstrap(absent: &[ServerId]) {
    if absent.is_empty() {
        tracing::info!("no voting server has data: bootstrapping a new ensemble");
    } else {
        tracing::warn!(
            absent = ?absent.iter().map(|id| id.0).collect::<Vec<u8>>(),
            "a majority of the voting servers has no data, and the names of the absent ones never resolved: bootstrapping a new \
             ensemble without them; if one of them has data, stop all servers and keep its data directory"
        );
    }
}

/// Logs that a server outside of the list holds data of this cluster, while this server has none.
pub(crate) fn log_unknown_server(server: ServerId) {
    tracing::warn!(
        "server {} holds data of this cluster, this server has none and does not know it. No new ensemble begins beside it. \
         Name it in this server's list (`server.N` lines, `ensemble.servers`) and start this one again, or stop the other",
        server.0
    );
}
