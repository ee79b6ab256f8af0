//! Why this server opens no sessions or takes no writes: found once a tick, told by `srvr` and `mntr`, and logged.
//!
//! An election, or a start, is no event: the log is told when a reason has lasted, when it changes,
//! once a minute, and when it is over. It decides nothing: who holds clients back is the member.

use std::collections::BTreeMap;

use corral_consensus::{Index, NodeId, PeerError, Replica};
use corral_core::ids::Millis;
use corral_core::member::Awaited;
use corral_core::report::Obstacle;

use crate::effect::Status;
use crate::machine::Replicated;

/// A reason that is over sooner is not logged.
const LASTS_MS: u64 = 3000;
/// One that lasts is logged again in this time.
const AGAIN_MS: u64 = 60_000;
/// Commands that do not come back for so long, while nothing else is applied, do not come back.
const PROGRESS_MS: u64 = 3000;
/// What a message said of a log counts for so long.
const CONTRADICTION_MS: u64 = 10_000;

/// What the engine knows beside its replica.
pub(crate) struct ServerState {
    pub(crate) stopping: bool,
    /// What the leader gives has no space.
    pub(crate) stalled: bool,
    /// An image comes in, or is being installed.
    pub(crate) takes_an_image: bool,
    /// The server holds nothing.
    pub(crate) is_blank: bool,
    /// Whether it is in the list of servers, where that is known.
    pub(crate) listed: Option<bool>,
    /// It is no server of an ensemble: nobody holds its clients back, and nothing comes back to them.
    pub(crate) is_alone: bool,
}

impl ServerState {
    /// Of a server that is alone.
    pub(crate) const fn alone(stopping: bool, stalled: bool) -> ServerState {
        ServerState { stopping, stalled, takes_an_image: false, is_blank: false, listed: None, is_alone: true }
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Serving {
    present: Option<Obstacle>,
    since: Millis,
    /// The reason that was logged last and is not over, and when.
    said: Option<(Obstacle, Millis)>,
    /// When the applied index was seen to move, or nothing waited.
    applied: (Index, Millis),
    /// A message said what cannot be true of one ensemble's logs.
    contradiction: Option<Millis>,
    /// By peer: when such a message was logged last.
    told: BTreeMap<NodeId, Millis>,
}

impl Serving {
    /// A message of Raft was refused that only servers with an old copy of their data cause.
    pub(crate) fn contradicted(&mut self, now: Millis, peer: NodeId, leader: Option<NodeId>, error: &PeerError) {
        if leader.is_none_or(|leader| leader == peer) {
            self.contradiction = Some(now);
        }
        let told = self.told.get(&peer);
        if told.is_none_or(|told| now.since(*told) >= AGAIN_MS) {
            self.told.insert(peer, now);
            tracing::error!(
                peer = peer.0,
                "the log of server {peer} and this server's contradict each other: {error}; one of the two was started with an \
                 old copy of its data. If most servers were not, stop that one, empty its data directory but for `myid`, and start \
                 it again. If most were, stop all and run `corral rescue` where the zxid is highest (docs/operations.md, \
                 log-contradicts)"
            );
        }
    }

    /// Time has passed.
    pub(crate) fn look<M: Replicated>(
        &mut self,
        now: Millis,
        replica: &Replica<M>,
        state: &ServerState,
        status: &mut Status,
    ) {
        let applied = replica.applied();
        if applied != self.applied.0 || !replica.machine().is_waiting() {
            self.applied = (applied, now);
        }
        self.contradiction = self.contradiction.filter(|at| now.since(*at) < CONTRADICTION_MS);
        let found = self.found(now, replica, state);
        if found != self.present {
            (self.present, self.since) = (found, now);
            status.found = found;
        }
        self.say(now, status.obstacle());
    }

    fn found<M: Replicated>(&self, now: Millis, replica: &Replica<M>, state: &ServerState) -> Option<Obstacle> {
        let (raft, member) = (replica.raft(), replica.machine());
        let leads = raft.leader() == Some(raft.id());
        let flows = member.is_flowing();
        let silent = now.since(self.applied.1) >= PROGRESS_MS;
        let contradicts = !leads && (raft.leader_lacks_committed() || self.contradiction.is_some());
        let reasons = [
            (state.stopping, Obstacle::Stopping),
            (state.stalled && (!flows || state.is_alone), Obstacle::DiskFull),
            (state.takes_an_image, Obstacle::ImageAwaited),
            (state.is_blank && !flows, Obstacle::NoData),
            (contradicts, Obstacle::LogContradicts),
            (!flows && state.listed == Some(false), Obstacle::NotListed),
            (!flows && raft.leader().is_none(), Obstacle::NoLeader),
            (!flows && member.is_pausing(), Obstacle::HandingOver),
            (!flows && !leads, Obstacle::LeaderNotConnected),
            (!flows || silent, Obstacle::NoProgress),
        ];
        reasons.into_iter().find_map(|(holds, obstacle)| holds.then_some(obstacle))
    }

    fn say(&mut self, now: Millis, obstacle: Option<Obstacle>) {
        match (obstacle, self.said) {
            (None, None) => {}
            (None, Some((before, _))) => {
                tracing::info!(was = before.word(), "this server serves sessions and writes again");
                self.said = None;
            }
            (Some(obstacle), said) => {
                let lasts = now.since(self.since) >= LASTS_MS;
                let due = said.is_none_or(|(before, at)| before != obstacle || now.since(at) >= AGAIN_MS);
                if lasts && due {
                    self.said = Some((obstacle, now));
                    let seconds = now.since(self.since) / 1000;
                    tracing::warn!(
                        reason = obstacle.word(),
                        seconds,
                        "this server takes no sessions and writes: {}",
                        obstacle.sentence()
                    );
                }
            }
        }
    }
}

/// For the log of a server that holds nothing.
pub(crate) fn say_what_is_awaited(awaited: &[Awaited]) {
    let ids = |of: fn(&Awaited) -> Option<u8>| {
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

/// For the log of a server that holds nothing, while another of this cluster does, and is not in the list.
pub(crate) fn say_who_is_not_known(stranger: NodeId) {
    tracing::warn!(
        "server {} holds data of this cluster, this server has none and does not know it: no new ensemble begins beside it; \
         name it in this server's list (`server.N` lines, `ensemble.servers`) and start this one again, or stop the other",
        stranger.0
    );
}
