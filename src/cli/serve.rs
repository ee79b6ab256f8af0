//! `corral serve`: configuration, checks of the host, then the node until it stops.
//!
//! The main thread only. The flags defined here are shared with `check-config`, so that it shows what `serve` would do.

use std::fs::metadata;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::{env, thread};

use clap::Args;
use corral_storage::end_on_lost_page;

use crate::cli::logging::{self, Log};
use crate::cli::names;
use crate::cli::reload::Reload;
use crate::config::{self, Config, Loaded, LogSettings, Override, Refused};
use crate::control::Signals;
use crate::data::staged;
use crate::exit::{ExitCode, Fault};
use crate::net::peers::setup;
use crate::version::VERSION;
use crate::{node, preflight};

/// Flags that name the configuration file and override its values.
#[derive(Args, Clone)]
pub(crate) struct ConfigArguments {
    /// Configuration file: corral's TOML or an unchanged ZooKeeper zoo.cfg
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where snapshots and log are kept; created if missing [default: ./data]
    #[arg(long, short, value_name = "DIR")]
    data_dir: Option<String>,
    /// Where the log is kept, if not in the data directory
    #[arg(long, value_name = "DIR")]
    log_dir: Option<String>,
    /// Address for clients [default: 127.0.0.1:2181]
    #[arg(long, short = 'a', value_name = "ADDR:PORT")]
    client_addr: Option<String>,
    /// Number of shards; 0 chooses by the CPUs [default: 0]
    #[arg(long, value_name = "N")]
    shards: Option<u16>,
    /// How much is logged: error, warn, info, debug or trace [default: info]; the environment
    /// variable RUST_LOG sets it for each module, for example RUST_LOG=info,corral_engine=debug
    #[arg(long, short, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Set any other key, for example --set limits.connections_max=1000; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = Override::parse)]
    set: Vec<Override>,
}

impl ConfigArguments {
    /// The effective configuration.
    ///
    /// # Errors
    /// As `config::load`.
    pub(crate) fn load(&self) -> Result<Loaded, Fault> {
        config::load(self.config.as_deref(), &self.overrides())
    }

    /// As [`ConfigArguments::load`], while the server runs: a pipe in place of the file could make it wait for ever.
    fn load_again(&self) -> Result<Loaded, Fault> {
        self.check_file()?;
        self.load()
    }

    /// Checks that the configuration can be read a second time.
    fn check_file(&self) -> Result<(), Fault> {
        match &self.config {
            Some(path) if metadata(path).is_ok_and(|meta| !meta.is_file()) => {
                let sentence = format!("{} is no regular file; name a file", path.display());
                Err(Fault::new(ExitCode::Config, sentence))
            }
            _ => Ok(()),
        }
    }

    fn overrides(&self) -> Vec<Override> {
        let texts = [
            ("--data-dir", "server.data_dir", &self.data_dir),
            ("--log-dir", "server.log_dir", &self.log_dir),
            ("--client-addr", "server.client_addr", &self.client_addr),
            ("--log-level", "server.log_level", &self.log_level),
        ];
        let mut overrides = self.set.clone();
        overrides.extend(
            texts.into_iter().filter_map(|(flag, path, value)| Some(Override::text(flag, path, value.as_ref()?))),
        );
        overrides.extend(self.shards.map(|shards| Override::number("--shards", "runtime.shards", shards.into())));
        overrides
    }

    /// The effective configuration, and the address to listen on for the other servers. The files of TLS and of the secret
    /// are checked.
    fn load_to_serve(&self) -> Result<(Loaded, Option<SocketAddr>), Refused> {
        let loaded = config::load_once(self.config.as_deref(), &self.overrides())?;
        let logging = Box::new(LogSettings::of(&loaded.config));
        setup::check_files(&loaded.config).map_err(|fault| Refused { fault, unresolved: Vec::new(), logging })?;
        let address = setup::own_address(&loaded.config)?;
        Ok((loaded, address))
    }
}

/// Arguments of `corral serve`.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    config: ConfigArguments,
}

/// Runs the server until it is told to stop.
///
/// # Errors
/// Any fault that keeps it from starting or ends it early.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Fault> {
    // Before anything is made: told to stop while it starts, the server ends in good order too.
    let signals = Signals::take_over()?;
    end_on_lost_page(ExitCode::MappedPageLost.number())
        .map_err(|error| Fault::new(ExitCode::Internal, format!("cannot handle signals: {error}")))?;
    let (config, mut log) = (arguments.config.clone(), None);
    let Some((loaded, peers_at)) = names::wait(move || config.load_to_serve(), &signals, &mut log)? else {
        let settings = LogSettings::of(&Config::default());
        let _log = log.map_or_else(|| logging::start(&settings), Ok)?;
        tracing::info!("stopped before anything was served");
        return Ok(());
    };
    let plan = loaded.core_plan(&preflight::usable_cpus()?)?;
    let Loaded { mut config, warnings, notes, file, .. } = loaded;
    let settings = LogSettings::of(&config);
    let log = log.map_or_else(|| logging::start(&settings), Ok)?;
    let (version, pid, data_dir) = (VERSION, std::process::id(), config.server.data_dir.display().to_string());
    tracing::info!(version, pid, data_dir, "corral starts");
    if let Some(file) = file {
        tracing::info!(file = %file.display(), "configuration read");
    }
    reload_at_sighup(arguments.config.clone(), &config, &log, &signals)?;
    let host = preflight::check(&config, &plan)?;
    for note in &notes {
        tracing::info!("{note}");
    }
    for warning in warnings.iter().chain(&plan.warnings).chain(&host.warnings) {
        tracing::warn!("{warning}");
    }
    config.limits.connections_max = host.connections_max;
    if config.has_secrets() {
        preflight::forbid_core_dumps()?;
    }
    let stopped = config.clone();
    node::run(config, &plan, peers_at, &signals)?;
    let is_restored = staged::is_announced(&stopped) && !signals.is_to_stop();
    if is_restored { Err(start_again(&arguments.config)) } else { Ok(()) }
}

/// Starts this program again, in the same process. Returns if that is not possible.
fn start_again(arguments: &ConfigArguments) -> Fault {
    // Also if another version was installed since.
    const THIS_PROGRAM: &str = "/proc/self/exe";
    let mut words = env::args_os();
    let name = words.next().unwrap_or_default();
    let reason = match arguments.check_file() {
        Ok(()) => Command::new(THIS_PROGRAM).arg0(name).args(words).exec().to_string(),
        Err(unread) => unread.sentence,
    };
    let sentence = format!("cannot start again: {reason}; start the server, and it has the restored data");
    Fault::new(ExitCode::Internal, sentence)
}

/// From here on SIGHUP has the configuration read again, and compared with this one.
fn reload_at_sighup(arguments: ConfigArguments, config: &Config, log: &Log, signals: &Signals) -> Result<(), Fault> {
    let load = Box::new(move || arguments.load_again().map(|loaded| loaded.config));
    let (mut reload, changes) = (Reload::new(load, config, log.changes.clone()), log.changes.clone());
    let (ask, asked) = flume::bounded(1);
    let failed = |error: std::io::Error| Fault::new(ExitCode::Internal, format!("no thread can be started: {error}"));
    let again = move || asked.iter().for_each(|()| reload.run());
    thread::Builder::new().name("reload".to_owned()).spawn(again).map_err(failed)?;
    signals.reload_by(move || {
        changes.reopen();
        let _ = ask.try_send(());
    });
    Ok(())
}
