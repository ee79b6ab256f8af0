//! The flags that name a data directory to be made, and its server.

use std::path::PathBuf;

use clap::Args;

use crate::config::{self, Config, Override};
use crate::exit::Fault;

/// For the first server of an ensemble.
pub(super) const ONLY_VOTER: &str =
    "it is the only voter: start the others with empty data directories, they receive all data and become voters.";

/// Flags of the data directory.
#[derive(Args)]
pub(super) struct NewDataDir {
    /// The new data directory, empty or not there
    #[arg(long, short, value_name = "DIR", required_unless_present_any = ["config", "dry_run"])]
    data_dir: Option<String>,
    /// Configuration of the new server. In an ensemble it becomes the only voter, and the others join
    /// with empty directories
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Set any key of the configuration; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = Override::parse)]
    set: Vec<Override>,
}

impl NewDataDir {
    /// The configuration of the server.
    ///
    /// # Errors
    /// As `config::load`.
    pub(super) fn load(&self) -> Result<Config, Fault> {
        let mut overrides = self.set.clone();
        let directory = self.data_dir.as_ref();
        overrides.extend(directory.map(|directory| Override::text("--data-dir", "server.data_dir", directory)));
        // The dataLogDir of a zoo.cfg is not this server's.
        if !self.set.iter().any(|set| set.path == "server.log_dir") {
            overrides.extend(directory.map(|directory| Override::text("--data-dir", "server.log_dir", directory)));
        }
        Ok(config::load(self.config.as_deref(), &overrides)?.config)
    }

    /// How the server is started.
    pub(super) fn next(&self) -> String {
        let file = self.config.as_ref().map_or_else(String::new, |file| format!(" --config {}", file.display()));
        let given = self.data_dir.as_ref().map_or_else(String::new, |directory| {
            let log_dir = if file.is_empty() { String::new() } else { format!(" --log-dir {directory}") };
            format!(" --data-dir {directory}{log_dir}")
        });
        let set = if self.set.is_empty() { "" } else { ", with the same --set" };
        let config = if file.is_empty() { ", and the --config of its server if there is one" } else { "" };
        format!("next: corral serve{file}{given}{set}{config}")
    }
}
