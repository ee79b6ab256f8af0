//! The mode of this server, as clients are shown it. It follows from the role in Raft, and from the flow of commands.

use corral_consensus::{Role, RoleChange};
use corral_core::forwarding::Leadership;
use corral_core::report::Mode;
use corral_core::shard::Flow;

use crate::effect::Status;

/// The mode, and the log lines of its changes.
pub(crate) struct ServedMode {
    /// Whether a leader was known when the role was logged last.
    had_leader: bool,
    /// The mode that follows from the role in Raft.
    of_role: Mode,
    /// The mode while client connections are closed.
    drained: Option<Mode>,
    /// The mode without a leader.
    leaderless: Mode,
}

impl ServedMode {
    /// `read_only`: without a leader the server serves read-only clients.
    pub(crate) const fn new(read_only: bool) -> ServedMode {
        let leaderless = if read_only { Mode::ReadOnly } else { Mode::Looking };
        ServedMode { had_leader: true, of_role: Mode::Looking, drained: None, leaderless }
    }

    /// Term, role or leader have changed.
    pub(crate) fn role_changed(&mut self, change: RoleChange, status: &mut Status) -> Leadership {
        let leader = change.leader.map(|leader| leader.0);
        let mode = match (change.role, change.leader) {
            (Role::Leader, _) => Mode::Leader,
            (_, None) => Mode::Looking,
            (Role::Learner, _) => Mode::Observer,
            _ => Mode::Follower,
        };
        self.of_role = mode;
        self.show(status);
        if mode != Mode::Looking || self.had_leader {
            tracing::info!(role = mode.word(), term = change.term.0, leader, "leadership changed");
        }
        self.had_leader = mode != Mode::Looking;
        match change.role {
            Role::Leader => Leadership::Leader,
            _ => Leadership::Follower { leader: change.leader },
        }
    }

    /// The shards are sent this. `listed`: whether this server is a member, where that is known.
    pub(crate) fn flow(&mut self, flow: Flow, has_no_data: bool, listed: Option<bool>, status: &mut Status) {
        match flow {
            Flow::Leaderless => {
                let mode = self.leaderless.word();
                if status.stalled {
                    tracing::warn!(mode, "the disk is full: client connections are closed; free space");
                } else if has_no_data {
                    tracing::info!(
                        mode,
                        "this server has no data yet: client connections are closed until it has a leader"
                    );
                } else {
                    tracing::warn!(mode, "no leader: client connections are closed");
                }
                if listed == Some(false) {
                    tracing::warn!("this server is not a member of the ensemble: stop it, or add it with reconfig");
                }
                self.drained = Some(self.leaderless);
            }
            Flow::Distrusted => self.drained = Some(Mode::Looking),
            Flow::Resume => self.drained = None,
            Flow::Pause | Flow::Uncertain { .. } => return,
        }
        self.show(status);
    }

    fn show(&self, status: &mut Status) {
        status.mode = self.drained.unwrap_or(self.of_role);
    }
}
