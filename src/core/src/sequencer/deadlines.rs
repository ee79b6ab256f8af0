//! When each session ends unless it is heard from, while this server leads.

use crate::ids::{Millis, Origin, ServerId, SessionId};
use crate::limits::SESSIONS_PIECE;
use crate::session::{Expiry, Session, SessionTable, Witness};

/// The deadlines of sessions while this server leads.
pub(super) struct Deadlines {
    expiry: Expiry,
    /// The first session with a deadline that is yet to be started.
    starts_from: Option<SessionId>,
    /// This server, and this start of it.
    start: (ServerId, u64),
}

impl Deadlines {
    pub(super) fn new(tick_ms: u64, start: (ServerId, u64)) -> Self {
        Self { expiry: Expiry::new(tick_ms), starts_from: None, start }
    }

    pub(super) const fn expiry(&self) -> &Expiry {
        &self.expiry
    }

    pub(super) const fn expiry_mut(&mut self) -> &mut Expiry {
        &mut self.expiry
    }

    /// Every session has a full timeout from now on. Where they are very many, the deadlines of some are started by the
    /// next calls of [`Deadlines::start_some`].
    pub(super) fn start_all(&mut self, now: Millis, sessions: &SessionTable) {
        self.starts_from = Some(SessionId(i64::MIN));
        self.start_some(now, sessions);
    }

    pub(super) fn start_some(&mut self, now: Millis, sessions: &SessionTable) {
        let Some(from) = self.starts_from else { return };
        let mut sessions = sessions.range(from..);
        for (id, session) in sessions.by_ref().take(SESSIONS_PIECE) {
            self.start(now, *id, session);
        }
        self.starts_from = sessions.next().map(|(id, _)| *id);
    }

    /// This session has a full timeout from now on.
    pub(super) fn start(&mut self, now: Millis, id: SessionId, session: &Session) {
        let witness = self.witness(now, session.owner);
        self.expiry.start(now, id, session.timeout_ms, witness);
    }

    /// This server leads no more.
    pub(super) fn clear(&mut self) {
        self.expiry.clear();
        self.starts_from = None;
    }

    /// Returns the shard or server of the connection that owns a session. `None` if its process has ended.
    fn witness(&mut self, now: Millis, owner: Option<Origin>) -> Option<Witness> {
        let at = owner?;
        let (server, incarnation) = self.start;
        if at.server != server {
            return self.expiry.server(now, at.server, at.incarnation);
        }
        (at.incarnation == incarnation).then_some(Witness::Shard(at.shard))
    }
}
