//! Host names of this server that do not resolve yet: the start waits for them.
//!
//! The main thread, before anything is opened. Each try runs on a thread of its own: the system's resolver may block for
//! long, and SIGTERM must end the process at once.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::cli::logging::{self, Log};
use crate::config::Refused;
use crate::control::Signals;
use crate::exit::{ExitCode, Fault};

/// Pause between two tries.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Calls `attempt` until the host names of this server resolve. `None` when the server is told to stop before that.
/// Each name that is awaited is logged once, and once more when it resolves. Logging is started for that.
///
/// # Errors
/// The fault of `attempt`, if anything else is wrong.
pub(super) fn wait<T: Send + 'static>(
    attempt: impl Fn() -> Result<T, Refused> + Send + Sync + 'static,
    signals: &Signals,
    logging: &mut Option<Log>,
) -> Result<Option<T>, Fault> {
    let failed = |what: &str| Fault::new(ExitCode::Internal, format!("the configuration cannot be read: {what}"));
    let attempt = Arc::new(attempt);
    let mut awaited: Vec<String> = Vec::new();
    loop {
        let (sender, outcome) = flume::bounded(1);
        let attempt = Arc::clone(&attempt);
        let run = move || drop(sender.send(attempt()));
        thread::Builder::new().name("names".to_owned()).spawn(run).map_err(|error| failed(&error.to_string()))?;
        let Some(ended) = signals.wait_for(&outcome) else { return Ok(None) };
        let ended = ended.map_err(|_| failed("its thread ended"))?;
        let unresolved = ended.as_ref().err().map_or(&[][..], |refused| &refused.unresolved[..]);
        for name in awaited.iter().filter(|name| !unresolved.contains(name)) {
            tracing::info!(name, "the name of this server resolves now");
        }
        let refused = match ended {
            Ok(done) => return Ok(Some(done)),
            Err(refused) if refused.unresolved.is_empty() => return Err(refused.fault),
            Err(refused) => refused,
        };
        if logging.is_none() {
            *logging = Some(logging::start(&refused.logging)?);
        }
        for name in refused.unresolved.iter().filter(|name| !awaited.contains(name)) {
            tracing::warn!(
                name,
                "a name of this server does not resolve yet; it is tried every second, and the server starts when it \
                 resolves: {}",
                refused.fault
            );
        }
        awaited = refused.unresolved;
        if signals.stop().recv_timeout(AGAIN_AFTER).is_ok() {
            return Ok(None);
        }
    }
}
