//! `corral export zookeeper`: writes the data of a stopped server for ZooKeeper. The main thread only.

use std::io::{self, BufWriter};
use std::path::PathBuf;
use std::thread;
use std::time::Instant;

use clap::Args;
use corral_core::shared::Text;
use corral_core::tree::znode::Owner;
use corral_zookeeper::export;
use indicatif::{HumanCount, ProgressBar, ProgressFinish};

use crate::cli::output::Output;
use crate::cli::serve::ConfigArguments;
use crate::cli::zookeeper_dir::ZooKeeperDir;
use crate::exit::Fault;
use crate::node::rescue::Survivor;

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
    let directory = ZooKeeperDir::new(&arguments.out)?;
    let survivor = Survivor::read(&config, thread::available_parallelism().map_or(1, usize::from))?;
    let machine = survivor.machine();
    let (view, sessions) = (machine.view(), machine.sessions());
    let bar = ProgressBar::new_spinner().with_finish(ProgressFinish::AndClear);
    let progress = &mut |count| {
        bar.set_message(format!("{} znodes", HumanCount(count)));
        bar.tick();
    };
    let written = export::write(view, sessions, BufWriter::new(directory.begin()?), progress);
    let written = written.and_then(|writer| writer.into_inner().map_err(io::IntoInnerError::into_error));
    let file = directory.finish(written.map_err(|error| directory.failed(&error))?, view.zxid())?;
    drop(bar);
    let mut out = Output::new();
    let (znodes, count) = (view.node_count(), sessions.len());
    let took = started.elapsed().as_secs_f64();
    out.line(&format!("{}: {znodes} znodes, {count} sessions, zxid {}, in {took:.1} s", file.display(), view.zxid()))?;
    let owner = |path: &Text| view.get(path).map(|node| Owner::from_bits(node.stat().owner));
    if machine.reapable().iter().any(|path| matches!(owner(path), Some(Owner::Ttl(_)))) {
        out.line("there are znodes with a TTL: ZooKeeper deletes them unless it has extendedTypesEnabled=true")?;
    }
    out.line(&format!(
        "next: give the directory to ZooKeeper's user, and start ZooKeeper with dataDir={}",
        arguments.out.display()
    ))?;
    out.finish()
}
