//! Reads the configuration again at SIGHUP: levels of the log count from then on, and other keys at the next start.
//!
//! A thread of its own, because names may be resolved.

use crate::cli::logging::LogChanges;
use crate::config::{self, Config, LogSettings};
use crate::exit::Fault;

/// Keys that are applied at once.
const APPLIED: [&str; 2] = ["server.log_level", "logging.modules"];

/// Reads the configuration.
type Load = Box<dyn Fn() -> Result<Config, Fault> + Send>;

/// The configuration in use, and how it is read again.
pub(super) struct Reload {
    load: Load,
    /// The values in use.
    values: Vec<(&'static str, String)>,
    log: LogChanges,
}

impl Reload {
    /// Of a server that was started with this configuration.
    pub(super) fn new(load: Load, config: &Config, log: LogChanges) -> Reload {
        Reload { load, values: config::values(config), log }
    }

    /// Applies the changes that can be, and names the others.
    pub(super) fn run(&mut self) {
        self.log.reopen();
        let config = match (self.load)() {
            Ok(config) => config,
            Err(fault) => {
                return tracing::error!("the configuration is not read again, the one in use stays: {fault}");
            }
        };
        let (applied, others) = self.take(&config);
        if !applied.is_empty() {
            self.log.set_levels(&LogSettings::of(&config));
            tracing::info!(keys = applied.join(", "), "configuration read again: these keys count from now on");
        }
        if !others.is_empty() {
            tracing::warn!(keys = others.join(", "), "configuration read again: these keys count after a restart");
        }
    }

    /// The changed keys: applied ones, which are in use then, and the others.
    fn take(&mut self, config: &Config) -> (Vec<&'static str>, Vec<&'static str>) {
        let read = config::values(config);
        let (mut applied, mut others) = (Vec::new(), Vec::new());
        for (used, (key, value)) in self.values.iter_mut().zip(read) {
            if used.1 == value {
                continue;
            }
            if APPLIED.contains(&key) {
                used.1 = value;
                applied.push(key);
            } else {
                others.push(key);
            }
        }
        (applied, others)
    }
}
