//! `corral export json`, `jsonl` and `tar`: a subtree of a running server. The main thread only.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use corral_client::{Client, ErrorCode};
use corral_core::ids::Zxid;
use indicatif::{HumanCount, ProgressBar, ProgressFinish};

use crate::cli::client::{Connection, failed};
use crate::cli::new_file::NewFile;
use crate::cli::subtree::format::{Format, Writer};
use crate::cli::subtree::record::Record;
use crate::cli::subtree::walk::{Found, walk};
use crate::exit::{ExitCode, Fault};

/// Arguments of the exports of a subtree.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The path to export with all below it. /zookeeper is left out of /
    #[arg(value_name = "PATH", default_value = "/")]
    root: String,
    /// The file to write. Without it standard output is written
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Leave out znodes that may not be read, with all below them
    #[arg(long)]
    skip_unreadable: bool,
    #[command(flatten)]
    connection: Connection,
}

/// Writes the subtree. A file appears whole or not at all.
///
/// # Errors
/// If the server does not answer, a znode may not be read, or the file cannot be written.
pub(crate) fn run(arguments: &Arguments, format: Format) -> Result<(), Fault> {
    let Some(out) = &arguments.out else {
        return arguments.connection.with(|client| write(client, arguments, format, io::stdout().lock())).map(drop);
    };
    let unwritable = |error: io::Error| Fault::new(ExitCode::StorageUnavailable, format!("{}: {error}", out.display()));
    let file = NewFile::create(out).map_err(unwritable)?;
    let file = arguments.connection.with(|client| write(client, arguments, format, file))?;
    file.finish(out).map_err(unwritable)
}

async fn write<W: Write>(client: Client, arguments: &Arguments, format: Format, out: W) -> Result<W, Fault> {
    let (started, root) = (Instant::now(), arguments.root.as_str());
    let found = client.exists(root, None).await.map_err(|error| failed(root, &error))?;
    found.ok_or_else(|| failed(root, &ErrorCode::NoNode.into()))?;
    let unwritable = |error: io::Error| Fault::new(ExitCode::StorageUnavailable, format!("cannot be written: {error}"));
    let mut writer = Writer::begin(format, BufWriter::new(out), root).map_err(unwritable)?;
    let bar = ProgressBar::new_spinner().with_finish(ProgressFinish::AndClear);
    let (mut znodes, mut skipped, mut newest) = (0, 0, 0);
    let skip = arguments.skip_unreadable.then_some(&mut skipped);
    walk(&client, root, skip, |Found { path, data, acl, stat }| {
        newest = newest.max(stat.czxid).max(stat.mzxid).max(stat.pzxid);
        writer.add(Record::new(below(root, path), &data, &acl, &stat), &data).map_err(unwritable)?;
        znodes += 1;
        bar.set_message(format!("{} znodes", HumanCount(znodes)));
        bar.tick();
        Ok(())
    })
    .await?;
    let buffered = writer.finish().map_err(unwritable)?;
    let out = buffered.into_inner().map_err(|error| unwritable(error.into_error()))?;
    drop(bar);
    let took = started.elapsed().as_secs_f64();
    let mut stderr = io::stderr().lock();
    // Without a standard error the exit code remains.
    let _ = writeln!(
        stderr,
        "{znodes} znodes in {took:.1} s, {skipped} left out as unreadable, newest change at zxid {}\n\
         writes during the export may be there in part; corral snapshot get takes the state of one instant\n\
         servers show clients containers and TTL nodes as persistent, and so does the file",
        Zxid(newest.cast_unsigned())
    );
    Ok(out)
}

/// The path below the root of the export.
fn below(root: &str, path: String) -> String {
    match path.strip_prefix(root) {
        Some("") => corral_core::path::ROOT.to_owned(),
        Some(rest) if rest.starts_with('/') => rest.to_owned(),
        _ => path,
    }
}
