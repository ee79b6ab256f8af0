//! `corral restore`: makes a data directory from a backup. The main thread only.

use std::time::Instant;

use clap::Args;
use corral_backup::envelope::Head;
use indicatif::{HumanBytes, ProgressBar, ProgressFinish};

use crate::cli::archive::files::Archive;
use crate::cli::archive::restore::{Moment, Wanted};
use crate::cli::backup_file::{Source, scratch};
use crate::cli::new_data_dir::{NewDataDir, ONLY_VOTER};
use crate::cli::output::Output;
use crate::cli::time::utc;
use crate::exit::{ExitCode, Fault};
use crate::node::restore::{self, Received};
use crate::node::roll_forward::State;

/// Arguments of `corral restore`.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    moment: Moment,
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
    let archive = Archive::find(arguments.source.path())?;
    let mut wanted = match &archive {
        Some(archive) => Some(Wanted::choose(archive, &arguments.moment)?),
        None if arguments.moment.is_given() => {
            let sentence = format!(
                "{}: it is no archive of corral archive: --to-zxid and --to-time need one",
                arguments.source.path().display()
            );
            return Err(Fault::new(ExitCode::Config, sentence));
        }
        None => None,
    };
    let base = wanted.as_ref().map(|wanted| wanted.base(&arguments.source));
    let source = base.as_ref().unwrap_or(&arguments.source);
    let (keys, bar, scratch) = (source.keys()?, bar(), scratch()?);
    let progress = &mut |head: &Head, bytes| show(&bar, head, bytes);
    let mut change = |head: &Head, state: &mut State| match &mut wanted {
        Some(wanted) => wanted.apply(head, state, &keys, &bar),
        None => Ok(()),
    };
    let read = if arguments.dry_run {
        Received::in_scratch(scratch.path(), source.open()?, &keys, progress).and_then(|received| {
            let mut state = State::of(&received.head, &received.loaded)?;
            change(&received.head, &mut state).map(|()| (received.head, state))
        })
    } else {
        restore::write(&config, source.open()?, &keys, &mut change, progress)
    };
    let (head, state) = read.map_err(|fault| arguments.source.named(fault))?;
    bar.finish_and_clear();
    match &wanted {
        Some(wanted) => wanted.describe(&mut out, &head, &state)?,
        None => describe_head(&mut out, &head)?,
    }
    describe(&mut out, &head, &state)?;
    if arguments.dry_run {
        out.line("nothing was written: this was a dry run")?;
        return out.finish();
    }
    let directory = config.server.data_dir.display();
    out.line(&format!("restored into {directory} in {:.1} s", started.elapsed().as_secs_f64()))?;
    out.line(&arguments.target.next())?;
    if config.own_member().is_some() {
        out.line(ONLY_VOTER)?;
    }
    out.finish()
}

/// Reads a backup wholly, and says what it holds. Gives its time, in milliseconds since 1970.
///
/// # Errors
/// If it is damaged, or cannot be read.
pub(super) fn verify(source: &Source, out: &mut Output) -> Result<i64, Fault> {
    let (scratch, keys, bar) = (scratch()?, source.keys()?, bar());
    let progress = &mut |head: &Head, bytes| show(&bar, head, bytes);
    let read = Received::in_scratch(scratch.path(), source.open()?, &keys, progress);
    let received = read.map_err(|fault| source.named(fault))?;
    drop(bar);
    describe_head(out, &received.head)?;
    describe(out, &received.head, &State::of(&received.head, &received.loaded)?)?;
    Ok(received.head.time_ms)
}

fn describe_head(out: &mut Output, head: &Head) -> Result<(), Fault> {
    out.line(&format!("backup        of server {}, at {}", head.server, utc(head.time_ms))).map(drop)
}

fn describe(out: &mut Output, head: &Head, state: &State) -> Result<(), Fault> {
    let ((index, term), view) = (state.position(), state.machine().view());
    out.line(&format!("zxid          0x{:x}, log entry {index} of term {term}", state.zxid()))?;
    out.line(&format!("znodes        {}", view.node_count()))?;
    out.line(&format!("sessions      {}", state.machine().sessions().len()))?;
    if let Some(digest) = view.tree_digest() {
        out.line(&format!("digest        {digest}, as the command hash shows it"))?;
    }
    let bytes = HumanBytes(head.bytes);
    out.line(&format!("checked       {bytes} of snapshot, all checksums and the digest of the tree"))?;
    Ok(())
}

fn bar() -> ProgressBar {
    ProgressBar::new(0).with_finish(ProgressFinish::AndClear)
}

fn show(bar: &ProgressBar, head: &Head, bytes: u64) {
    bar.set_length(head.bytes);
    bar.set_position(bytes);
}
