//! Log lines for sessions that expire: one each while they are few, and the number of the others.

use corral_core::ids::{Millis, SessionId};
use corral_core::session::SessionTable;

/// Lines in one second at most.
const LINES_PER_SECOND: usize = 20;

/// How many lines were written in the present second.
#[derive(Default)]
pub(super) struct ExpiryLog {
    second: u64,
    lines: usize,
}

impl ExpiryLog {
    /// Logs that these sessions expired, each with the server of its last connection.
    pub(super) fn write(&mut self, now: Millis, expired: &[SessionId], sessions: &SessionTable) {
        let second = now.0 / 1000;
        let so_far = if self.second == second { self.lines } else { 0 };
        let lines = expired.len().min(LINES_PER_SECOND - so_far);
        (self.second, self.lines) = (second, so_far + lines);
        for session in &expired[..lines] {
            let server = sessions.get(session).and_then(|known| known.owner).map(|origin| origin.server.0);
            tracing::info!(%session, server, "session expired");
        }
        if expired.len() > lines {
            tracing::info!(sessions = expired.len() - lines, "more sessions expired");
        }
    }
}
