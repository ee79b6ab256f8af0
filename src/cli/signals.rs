//! The signals that end a command.
//!
//! The main thread, in a runtime of tokio.

use std::io;

use nix::sys::signal::Signal as Number;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::{ExitCode, Fault};

/// SIGINT, SIGTERM and SIGHUP.
pub(super) struct Stops([Signal; 3]);

impl Stops {
    /// Takes the signals from here on.
    ///
    /// # Errors
    /// If the system refuses that.
    pub(super) fn new() -> Result<Stops, Fault> {
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let failed = |error: io::Error| Fault::new(ExitCode::Internal, format!("cannot handle signals: {error}"));
        let [interrupt, terminate, hangup] = kinds.map(|kind| signal(kind).map_err(failed));
        Ok(Stops([interrupt?, terminate?, hangup?]))
    }

    /// Waits for one of them.
    pub(super) async fn next(&mut self) -> Number {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => Number::SIGINT,
            _ = terminate.recv() => Number::SIGTERM,
            _ = hangup.recv() => Number::SIGHUP,
        }
    }
}
