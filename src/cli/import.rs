//! `corral import zookeeper`: makes a data directory from the files of a ZooKeeper server. The main thread only.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use corral_zookeeper::SourceError;
use corral_zookeeper::directory::{Loaded, Progress, Report, Source};
use corral_zookeeper::tree::{Counts, Tree};
use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressFinish};

use crate::cli::output::{Output, plain};
use crate::config::{self, Config, Override};
use crate::exit::{ExitCode, Fault};
use crate::node::import;

/// How often the progress moves on a terminal.
const TICK: Duration = Duration::from_millis(100);

/// Arguments of `corral import zookeeper`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// ZooKeeper's dataDir
    #[arg(value_name = "DIR")]
    source: PathBuf,
    /// ZooKeeper's dataLogDir, if it has one
    #[arg(long, value_name = "DIR")]
    log_dir: Option<PathBuf>,
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
    /// Read everything and say what it is; write nothing
    #[arg(long)]
    dry_run: bool,
    /// Import a doubtful state too, in which transactions may be missing. ZooKeeper would start with it
    #[arg(long)]
    force: bool,
}

/// Reads, reports, and writes.
///
/// # Errors
/// Damage, doubts without `--force`, or a directory that cannot be written.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Fault> {
    let started = Instant::now();
    let config = arguments.load_config()?;
    let bar = ProgressBar::new_spinner().with_finish(ProgressFinish::AndClear);
    bar.enable_steady_tick(TICK);
    let source = Source::open(&arguments.source, arguments.log_dir.as_deref()).map_err(unreadable)?;
    let Loaded { tree, report } = source.load(&mut |progress| bar.set_message(text(progress))).map_err(unreadable)?;
    bar.set_message("checking the state");
    import::check(&tree)?;
    let mut out = Output::new();
    let counts = tree.counts();
    bar.suspend(|| tell(&mut out, &tree, &counts, &report))?;
    if !report.doubts.is_empty() && !arguments.force {
        out.finish()?;
        let mut sentence = String::from("nothing was written, because transactions may be missing:");
        report.doubts.iter().for_each(|doubt| sentence.extend(["\n", doubt]));
        sentence.push_str("\nread the files of another server of the ensemble, or import this state with --force");
        return Err(Fault::new(ExitCode::DataDamaged, sentence));
    }
    if arguments.dry_run {
        out.line("nothing was written: this was a dry run")?;
        return out.finish();
    }
    bar.set_message("writing");
    import::write(&config, tree)?;
    bar.finish_and_clear();
    tell_next(&mut out, &config, &counts, started.elapsed())?;
    out.finish()
}

impl Arguments {
    fn load_config(&self) -> Result<Config, Fault> {
        let mut overrides = self.set.clone();
        let directory = self.data_dir.as_ref();
        overrides.extend(directory.map(|directory| Override::text("--data-dir", "server.data_dir", directory)));
        Ok(config::load(self.config.as_deref(), &overrides)?.config)
    }
}

fn unreadable(error: SourceError) -> Fault {
    let code = match error {
        SourceError::Io { .. } => ExitCode::StorageUnavailable,
        SourceError::Damaged { .. } | SourceError::Unfit(_) => ExitCode::DataDamaged,
    };
    Fault::new(code, format!("nothing was written: {error}"))
}

fn text(progress: Progress) -> String {
    match progress {
        Progress::Snapshot(bytes) => format!("reading the snapshot: {}", HumanBytes(bytes)),
        Progress::Log(count) => format!("replaying the log: {} transactions", HumanCount(count)),
    }
}

fn tell(out: &mut Output, tree: &Tree, counts: &Counts, report: &Report) -> Result<(), Fault> {
    for damaged in &report.damaged_snapshots {
        out.line(&format!("damaged snapshot passed over: {}", plain(damaged)))?;
    }
    let snapshot = report.snapshot.as_ref().map_or_else(|| "none".to_owned(), |path| path.display().to_string());
    out.line(&format!("snapshot      {snapshot}"))?;
    let (all, files) = (count(report.transactions, "transaction"), count(report.logs.len() as u64, "file"));
    let ineffective = report.ineffective;
    out.line(&format!("log           {all} of {files}, of which {ineffective} failed or were in the snapshot"))?;
    for torn in &report.torn {
        out.line(&format!("torn end      {torn}: it was never acknowledged, and ZooKeeper drops it too"))?;
    }
    let compared = match report.digests {
        0 => "none in the files: versions before 3.6 keep none".to_owned(),
        digests => format!("{digests} compared, {}", if report.differs { "and they differ" } else { "all equal" }),
    };
    out.line(&format!("digests       {compared}"))?;
    out.line(&format!("last zxid     {}", tree.zxid()))?;
    let Counts { znodes, data_bytes, ephemerals, containers, ttls, quotas, sessions, acls } = *counts;
    out.line(&format!("znodes        {znodes}, with {data_bytes} bytes of data"))?;
    out.line(&format!(
        "of these      {ephemerals} ephemerals, {containers} containers, {ttls} with a TTL, {quotas} quotas"
    ))?;
    out.line(&format!("sessions      {sessions}"))?;
    out.line(&format!("ACLs          {}", count(acls, "different one")))?;
    if report.ended_ephemerals > 0 {
        out.line(&format!("deleted       {} ephemerals of sessions that are gone", report.ended_ephemerals))?;
    }
    if report.orphans > 0 {
        out.line(&format!("dropped       {} znodes without a parent", report.orphans))?;
    }
    report.doubts.iter().try_for_each(|doubt| out.line(&format!("doubt         {doubt}")).map(drop))
}

/// A number of things, in words.
fn count(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

fn tell_next(out: &mut Output, config: &Config, counts: &Counts, took: Duration) -> Result<(), Fault> {
    let directory = config.server.data_dir.display();
    out.line(&format!("imported into {directory}: {} znodes in {:.1} s", counts.znodes, took.as_secs_f64()))?;
    match config.own_member() {
        None => out.line(&format!("next: corral serve --data-dir {directory}"))?,
        Some(own) => out.line(&format!(
            "next: start server {}, which is the only voter; then start the others with empty data directories: they receive all \
             data and become voters",
            own.id
        ))?,
    };
    Ok(())
}
