//! The session of a connection.

use crate::ids::SessionId;

/// The session that a connection is attached to. None before the connect request is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttachedSession {
    id: SessionId,
    timeout_ms: i32,
    is_read_only: bool,
    /// The connect request had the trailing byte: the response has it, too.
    knows_read_only: bool,
}

impl Default for AttachedSession {
    fn default() -> Self {
        Self { id: SessionId(0), timeout_ms: 0, is_read_only: false, knows_read_only: true }
    }
}

impl AttachedSession {
    /// The connect request is here. `knows_read_only`: it had the trailing byte.
    pub(crate) const fn requested(&mut self, knows_read_only: bool) {
        self.knows_read_only = knows_read_only;
    }

    pub(crate) const fn attach(&mut self, id: SessionId, timeout_ms: i32) {
        (self.id, self.timeout_ms) = (id, timeout_ms);
    }

    /// A session of this connection alone, which may not write: there is no leader.
    pub(crate) const fn attach_read_only(&mut self, id: SessionId, timeout_ms: i32) {
        self.attach(id, timeout_ms);
        self.is_read_only = true;
    }

    /// 0 if there is none.
    pub(crate) const fn id(&self) -> SessionId {
        self.id
    }

    /// The session, if the leader knows it.
    pub(crate) fn replicated(&self) -> Option<SessionId> {
        Some(self.id).filter(|id| *id != SessionId(0) && !self.is_read_only)
    }

    /// 0 if there is none.
    pub(crate) const fn timeout_ms(&self) -> i32 {
        self.timeout_ms
    }

    /// The timeout, at least 0.
    pub(crate) fn silence_max_ms(&self) -> u64 {
        u64::try_from(self.timeout_ms).unwrap_or(0)
    }

    pub(crate) const fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// The trailing byte of the response to the connect request, for a session that may write.
    pub(crate) fn response_byte(&self) -> Option<bool> {
        self.knows_read_only.then_some(false)
    }
}
