//! The signals that end a command.
//!
//! The main thread, in a runtime of tokio.

use std::io;

use nix::sys::signal::Signal as Number;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::{ExitCode, Fault};

/// SIGINT, SIGTERM and SIGHUP. SIGUSR1 and SIGUSR2 are for commands, and change nothing without one.
pub(super) struct Stops {
    stops: [Signal; 3],
    others: [Signal; 2],
}

impl Stops {
    /// Takes the signals from here on.
    ///
    /// # Errors
    /// If the system refuses that.
    pub(super) fn new() -> Result<Stops, Fault> {
        let failed = |error: io::Error| Fault::new(ExitCode::Internal, format!("cannot handle signals: {error}"));
        let taken = |kind| signal(kind).map_err(failed);
        let stops = [taken(SignalKind::interrupt())?, taken(SignalKind::terminate())?, taken(SignalKind::hangup())?];
        let others = [taken(SignalKind::user_defined1())?, taken(SignalKind::user_defined2())?];
        Ok(Stops { stops, others })
    }

    /// Waits for a signal that ends a command.
    pub(super) async fn next(&mut self) -> Number {
        let [interrupt, terminate, hangup] = &mut self.stops;
        tokio::select! {
            _ = interrupt.recv() => Number::SIGINT,
            _ = terminate.recv() => Number::SIGTERM,
            _ = hangup.recv() => Number::SIGHUP,
        }
    }

    /// Waits for any of the signals.
    pub(super) async fn any(&mut self) -> Number {
        let [interrupt, terminate, hangup] = &mut self.stops;
        let [one, two] = &mut self.others;
        tokio::select! {
            _ = interrupt.recv() => Number::SIGINT,
            _ = terminate.recv() => Number::SIGTERM,
            _ = hangup.recv() => Number::SIGHUP,
            _ = one.recv() => Number::SIGUSR1,
            _ = two.recv() => Number::SIGUSR2,
        }
    }
}
