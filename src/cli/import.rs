//! `corral import zookeeper`: makes a data directory from the files of a ZooKeeper server. The main thread only.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use corral_zookeeper::SourceError;
use corral_zookeeper::directory::{Loaded, Progress, Report, Source};
use corral_zookeeper::servable;
use corral_zookeeper::tree::{Counts, Tree};
use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressFinish};

use crate::cli::new_data_dir::{NewDataDir, ONLY_VOTER};
use crate::cli::output::{Output, plain};
use crate::config::Config;
use crate::data::owner;
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
    #[command(flatten)]
    target: NewDataDir,
    /// Read and report everything; write nothing
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
    let config = arguments.target.load()?;
    let bar = ProgressBar::new_spinner().with_finish(ProgressFinish::AndClear);
    bar.enable_steady_tick(TICK);
    arguments.check_target(&config)?;
    let source = Source::open(&arguments.source, arguments.log_dir.as_deref()).map_err(unreadable)?;
    let read = source.load(&mut |progress| bar.set_message(text(progress))).map_err(unreadable)?;
    let Loaded { tree, mut report } = read;
    if let Some(process) = source.server() {
        report.doubt(format!("process {process} has the log open: stop the ZooKeeper server first"));
    }
    let mut out = Output::new();
    let counts = tree.counts();
    bar.suspend(|| print_report(&mut out, &tree, &counts, &report).and_then(|()| out.finish()))?;
    if !report.doubts.is_empty() && !arguments.force {
        let mut sentence = String::from("nothing was written, because of doubts:");
        report.doubts.iter().for_each(|doubt| sentence.extend(["\n", doubt]));
        sentence.push_str(
            "\nremove the cause, or read the files of another server; --force imports this state all the same",
        );
        return Err(Fault::new(ExitCode::DataDamaged, sentence));
    }
    servable::check(&tree).map_err(|error| Fault { code: ExitCode::DataDirForeign, ..unreadable(error) })?;
    if arguments.dry_run {
        out.line("nothing was written: this was a dry run")?;
        return out.finish();
    }
    bar.set_message("writing");
    import::write(&config, tree)?;
    source.check_unchanged().map_err(|error| {
        let directory = config.server.data_dir.display();
        Fault::new(ExitCode::DataDamaged, format!("{error}; empty {directory}, and import again"))
    })?;
    bar.finish_and_clear();
    arguments.print_next(&mut out, &config, &counts, started.elapsed())?;
    out.finish()
}

impl Arguments {
    /// Target directories are new, and not within the sources.
    fn check_target(&self, config: &Config) -> Result<(), Fault> {
        if self.dry_run {
            return Ok(());
        }
        for target in [&config.server.data_dir, &config.server.log_dir] {
            for source in [Some(&self.source), self.log_dir.as_ref()].into_iter().flatten() {
                if whole(target).starts_with(whole(source)) {
                    let (target, source) = (target.display(), source.display());
                    let sentence =
                        format!("{target} lies in {source}, which is read and not written: choose another directory");
                    return Err(Fault::new(ExitCode::DataDirForeign, sentence));
                }
            }
        }
        owner::check_new(config)
    }

    fn print_next(&self, out: &mut Output, config: &Config, counts: &Counts, took: Duration) -> Result<(), Fault> {
        let directory = config.server.data_dir.display();
        out.line(&format!("imported into {directory}: {} znodes in {:.1} s", counts.znodes, took.as_secs_f64()))?;
        out.line(&self.target.next())?;
        if counts.ttls > 0 && !config.features.extended_types {
            out.line("there are znodes with a TTL: set features.extended_types = true, or clients cannot create more")?;
        }
        if config.own_member().is_some() {
            out.line(&format!(
                "{ONLY_VOTER} Import on this server alone: a second import on another server replaces this one and its later writes"
            ))?;
        }
        Ok(())
    }
}

/// Without links and `..`, as far as it is there.
fn whole(path: &Path) -> PathBuf {
    let mut missing = Vec::new();
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for above in absolute.ancestors() {
        if let Ok(found) = above.canonicalize() {
            return missing.iter().rev().fold(found, |path, name| path.join(name));
        }
        missing.extend(above.file_name());
    }
    absolute
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

fn print_report(out: &mut Output, tree: &Tree, counts: &Counts, report: &Report) -> Result<(), Fault> {
    for damaged in &report.damaged_snapshots {
        out.line(&format!("damaged snapshot passed over: {}", plain(damaged)))?;
    }
    let snapshot =
        report.snapshot.as_ref().map_or_else(|| "none".to_owned(), |path| plain(&path.display().to_string()));
    out.line(&format!("snapshot      {snapshot}"))?;
    let (all, files) = (count(report.transactions, "transaction"), count(report.logs.len() as u64, "file"));
    let ineffective = report.ineffective;
    out.line(&format!("log           {all} of {files}, of which {ineffective} failed or were in the snapshot"))?;
    for torn in &report.torn {
        out.line(&format!("torn end      {}; it was never acknowledged", plain(torn)))?;
    }
    let compared = match report.digests {
        0 => "none in the files".to_owned(),
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
    if !rustix::process::geteuid().is_root() {
        out.line("not checked   whether a ZooKeeper of another user still runs: that needs root")?;
    }
    report.doubts.iter().try_for_each(|doubt| out.line(&format!("doubt         {}", plain(doubt))).map(drop))
}

/// A number of things, in words.
fn count(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}
