//! `corral export zookeeper`: writes the data of a stopped server for ZooKeeper. The main thread only.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use clap::Args;
use corral_core::znode::Owner;
use corral_zookeeper::export;
use indicatif::{HumanCount, ProgressBar, ProgressFinish};

use crate::cli::output::Output;
use crate::cli::serve::ConfigArguments;
use crate::exit::{ExitCode, Fault};
use crate::node::rescue::Survivor;

/// Where ZooKeeper looks below its dataDir.
const VERSION_DIRECTORY: &str = "version-2";
/// A file that is not whole.
const UNFINISHED: &str = "unfinished";

/// Arguments of `corral export zookeeper`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The dataDir for ZooKeeper, without a version-2
    #[arg(value_name = "OUT")]
    out: PathBuf,
    #[command(flatten)]
    config: ConfigArguments,
}

/// Reads the data directory, and writes one snapshot with everything that its log holds.
///
/// # Errors
/// If the server runs, its data are damaged, or the directory cannot be written or holds files.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Fault> {
    let started = Instant::now();
    let config = arguments.config.load()?.config;
    let directory = arguments.out.join(VERSION_DIRECTORY);
    check_empty(&directory)?;
    let survivor = Survivor::read(&config, thread::available_parallelism().map_or(1, usize::from))?;
    let machine = survivor.machine();
    let (view, sessions) = (machine.view(), machine.sessions());
    let bar = ProgressBar::new_spinner().with_finish(ProgressFinish::AndClear);
    let file = directory.join(export::file_name(view.zxid()));
    let progress = &mut |count| {
        bar.set_message(format!("{} znodes", HumanCount(count)));
        bar.tick();
    };
    let write = |to| export::write(view, sessions, to, progress);
    write_whole(&directory, &file, write).map_err(|error| {
        Fault::new(ExitCode::StorageUnavailable, format!("{}: cannot be written: {error}", file.display()))
    })?;
    drop(bar);
    let mut out = Output::new();
    let (znodes, count) = (view.node_count(), sessions.len());
    let took = started.elapsed().as_secs_f64();
    out.line(&format!("{}: {znodes} znodes, {count} sessions, zxid {}, in {took:.1} s", file.display(), view.zxid()))?;
    let mut has_ttl = false;
    view.walk("/", |_, node| {
        has_ttl = matches!(Owner::from_bits(node.stat().owner), Owner::Ttl(_));
        !has_ttl
    });
    if has_ttl {
        out.line("there are znodes with a TTL: ZooKeeper deletes them unless it has extendedTypesEnabled=true")?;
    }
    out.line(&format!(
        "next: give the directory to ZooKeeper's user, and start ZooKeeper with dataDir={}",
        arguments.out.display()
    ))?;
    out.finish()
}

/// ZooKeeper would start with the newest snapshot there.
fn check_empty(directory: &Path) -> Result<(), Fault> {
    let refused = |what: String| Err(Fault::new(ExitCode::DataDirForeign, format!("{}: {what}", directory.display())));
    match fs::read_dir(directory) {
        Ok(entries) => match entries.flatten().map(|entry| entry.file_name()).find(|name| name != UNFINISHED) {
            Some(found) => refused(format!("holds {}: choose another directory", found.to_string_lossy())),
            None => Ok(()),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => refused(error.to_string()),
    }
}

/// The file appears whole and durable, or not at all. Its owner alone may read it, because it holds all data.
fn write_whole(
    directory: &Path,
    file: &Path,
    write: impl FnOnce(BufWriter<File>) -> io::Result<BufWriter<File>>,
) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let unfinished = directory.join(UNFINISHED);
    let to = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
    write(BufWriter::new(to))?.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    fs::rename(&unfinished, file)?;
    File::open(directory)?.sync_all()
}
