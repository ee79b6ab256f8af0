//! `corral restore`: makes a data directory from a backup. The main thread only.

use std::time::Instant;

use clap::Args;
use corral_backup::envelope::Head;
use indicatif::{HumanBytes, ProgressBar, ProgressFinish};

use crate::cli::backup_file::{Source, scratch};
use crate::cli::new_data_dir::{NewDataDir, ONLY_VOTER};
use crate::cli::output::{Output, utc};
use crate::exit::Fault;
use crate::node::restore::{self, Content, Received};

/// Arguments of `corral restore`.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    target: NewDataDir,
    /// Read and check everything; write nothing
    #[arg(long)]
    dry_run: bool,
}

/// Reads, checks, and writes.
///
/// # Errors
/// Damage, or a directory that cannot be written.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Fault> {
    let started = Instant::now();
    let mut out = Output::new();
    let config = arguments.target.load()?;
    if arguments.dry_run {
        verify(&arguments.source, &mut out)?;
        out.line("nothing was written: this was a dry run")?;
        return out.finish();
    }
    let (keys, bar) = (arguments.source.keys()?, bar());
    let read = restore::write(&config, arguments.source.open()?, &keys, &mut |head, bytes| show(&bar, head, bytes));
    let content = read.map_err(|fault| arguments.source.named(fault))?;
    drop(bar);
    describe(&mut out, &content)?;
    let directory = config.server.data_dir.display();
    out.line(&format!("restored into {directory} in {:.1} s", started.elapsed().as_secs_f64()))?;
    out.line(&arguments.target.next())?;
    if config.own_member().is_some() {
        out.line(ONLY_VOTER)?;
    }
    out.finish()
}

/// Reads a backup wholly, and says what it holds.
///
/// # Errors
/// If it is damaged, or cannot be read.
pub(super) fn verify(source: &Source, out: &mut Output) -> Result<(), Fault> {
    let scratch = scratch()?;
    let (keys, bar) = (source.keys()?, bar());
    let progress = &mut |head: &Head, bytes| show(&bar, head, bytes);
    let read = Received::in_scratch(scratch.path(), source.open()?, &keys, progress);
    let received = read.map_err(|fault| source.named(fault))?;
    drop(bar);
    describe(out, &received.content)
}

fn describe(out: &mut Output, content: &Content) -> Result<(), Fault> {
    let Content { head, znodes, sessions } = content;
    out.line(&format!("backup        of server {}, at {}", head.server, utc(head.time_ms)))?;
    out.line(&format!("zxid          0x{:x}, log entry {} of term {}", head.zxid, head.index, head.term))?;
    out.line(&format!("znodes        {znodes}"))?;
    out.line(&format!("sessions      {sessions}"))?;
    out.line(&format!(
        "checked       {} of snapshot, all checksums and the digest of the tree",
        HumanBytes(head.bytes)
    ))?;
    Ok(())
}

fn bar() -> ProgressBar {
    ProgressBar::new(0).with_finish(ProgressFinish::AndClear)
}

fn show(bar: &ProgressBar, head: &Head, bytes: u64) {
    bar.set_length(head.bytes);
    bar.set_position(bytes);
}
