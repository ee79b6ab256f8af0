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
    /// In use.
    config: Config,
    log: LogChanges,
}

impl Reload {
    /// Of a server that was started with this configuration.
    pub(super) fn new(load: Load, config: &Config, log: LogChanges) -> Reload {
        Reload { load, config: config.clone(), log }
    }

    /// Applies the changes that can be, and names the others.
    pub(super) fn run(&mut self) {
        let config = match (self.load)() {
            Ok(config) => config,
            Err(fault) => {
                return tracing::error!("the configuration is not read again, the one in use stays: {fault}");
            }
        };
        let (applied, others) = take(&mut self.config, &config);
        if !applied.is_empty() {
            self.log.set_levels(&LogSettings::of(&config));
            tracing::info!(keys = applied.join(", "), "configuration read again: these keys count from now on");
        }
        if !others.is_empty() {
            tracing::warn!(keys = others.join(", "), "configuration read again: these keys count after a restart");
        }
    }
}

/// The changed keys: applied ones, which are in use then, and the others.
fn take(used: &mut Config, read: &Config) -> (Vec<&'static str>, Vec<&'static str>) {
    let values = config::values(used).into_iter().zip(config::values(read));
    let changed = values.filter(|((_, used), (_, read))| used != read).map(|((key, _), _)| key);
    let (applied, mut others): (Vec<&str>, Vec<&str>) = changed.partition(|key| APPLIED.contains(key));
    used.server.log_level = read.server.log_level;
    used.logging.modules = read.logging.modules.clone();
    // Secrets are not shown, so their values look the same.
    if others.is_empty() && used != read {
        others.push("a password or digest");
    }
    (applied, others)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::value::{LogLevel, Secret};

    #[test]
    fn changed_keys_are_named() {
        let mut used = Config::default();
        let mut read = Config::default();
        assert_eq!(take(&mut used, &read), (vec![], vec![]));
        read.server.log_level = LogLevel::Debug;
        read.limits.connections_max = 7;
        assert_eq!(take(&mut used, &read), (vec!["server.log_level"], vec!["limits.connections_max"]));
        assert_eq!(take(&mut used, &read), (vec![], vec!["limits.connections_max"]));
        let (mut one, mut other) = (Config::default(), Config::default());
        one.security.super_digest = Secret("super:a".to_owned());
        other.security.super_digest = Secret("super:b".to_owned());
        assert_eq!(take(&mut one, &other), (vec![], vec!["a password or digest"]));
    }
}
