//! `corral backup`: the state of a server in one file. The main thread only.

use std::fmt::Display;
use std::mem;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use clap::Args;
use corral_backup::envelope::{Head, Parser};
use corral_backup::pack::PublicKey;
use indicatif::{HumanBytes, ProgressBar, ProgressFinish};

use crate::cli::backup_file::{NewBackup, scratch};
use crate::cli::http::{Part, Server, bearer};
use crate::cli::output;
use crate::config::{self, Config, Override};
use crate::data::backups::{self, Untaken};
use crate::exit::{ExitCode, Fault};
use crate::node::rescue::Survivor;
use crate::runtime::clock::Clock;

/// The admin command, at the default of `admin.command_url`.
const PATH: &str = "/commands/backup";

/// Arguments of `corral backup`.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    server: Server,
    /// A new file, an existing directory for a file named by time and zxid, s3://BUCKET/KEY, or - for standard output
    #[arg(long, value_name = "OUT")]
    out: PathBuf,
    /// File with a token of the running server's admin.token_file
    #[arg(long, value_name = "FILE", required_unless_present_any = ["data_dir", "config"])]
    token_file: Option<PathBuf>,
    /// Path of the command, if the server has another admin.command_url
    #[arg(long, value_name = "PATH", default_value = PATH)]
    path: String,
    /// Data directory of a stopped server, in place of a running one
    #[arg(long, short, value_name = "DIR", conflicts_with = "token_file")]
    data_dir: Option<String>,
    /// Configuration of a stopped server, in place of a running one
    #[arg(long, short, value_name = "FILE", conflicts_with = "token_file")]
    config: Option<PathBuf>,
    /// Encrypt for this public key of age-keygen (age1...); may be repeated, and each key decrypts it
    #[arg(long, value_name = "KEY", value_parser = public_key)]
    encrypt: Vec<PublicKey>,
}

/// A key for which backups are encrypted.
pub(super) fn public_key(text: &str) -> Result<PublicKey, String> {
    text.parse().map_err(|error: &str| format!("{error}; give the public key that age-keygen prints, age1..."))
}

/// Takes the backup, checks it, and gives it its name.
///
/// # Errors
/// If the server does not send it whole, the data are damaged, or it cannot be written.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Fault> {
    let started = Instant::now();
    let out = NewBackup::begin(&arguments.out, &arguments.encrypt)?;
    let bar = ProgressBar::new(0).with_finish(ProgressFinish::AndClear);
    let (head, out) = match &arguments.token_file {
        Some(token_file) => arguments.running(token_file, out, &bar),
        None => arguments.stopped(out, &bar),
    }?;
    let file = out.finish(&head)?;
    drop(bar);
    let took = started.elapsed().as_secs_f64();
    let about = format!("zxid 0x{:x}, server {}, {} in {took:.1} s", head.zxid, head.server, HumanBytes(head.bytes));
    match file {
        Some(file) => output::print(&format!("{}: {about}\n", file.display())),
        None => Ok(()),
    }
}

/// Receives a backup from a running server, given the path of the command and the authorization. `begin` is given its head.
///
/// # Errors
/// If it does not come whole. Those of `begin`, and of the writer.
pub(super) fn receive(
    server: &Server,
    (path, authorization): (&str, &str),
    bar: &ProgressBar,
    begin: &mut dyn FnMut(&Head) -> Result<NewBackup, Fault>,
) -> Result<(Head, NewBackup), Fault> {
    let (mut parser, mut out, mut unwritten) = (Parser::default(), None, Vec::new());
    server.fetch(path, authorization, &mut |part| {
        let Part::Body(bytes) = part else { return Ok(()) };
        let mut take = |head: &Head, _: &[u8]| {
            if out.is_none() {
                bar.set_length(head.bytes);
                out = Some(begin(head).map_err(Untaken)?);
            }
            Ok(())
        };
        parser.push(bytes, &mut take).map_err(|Untaken(fault)| fault)?;
        bar.inc(bytes.len() as u64);
        unwritten.extend_from_slice(bytes);
        let Some(out) = &mut out else { return Ok(()) };
        let bytes = mem::take(&mut unwritten);
        out.write(|to| to.write_all(&bytes))
    })?;
    let not_whole = |error: &dyn Display| {
        let sentence = format!("the backup did not come whole: {error}; is it the admin address of corral? Try again");
        Fault::new(ExitCode::Internal, sentence)
    };
    let head = parser.finish().map_err(|error| not_whole(&error))?;
    Ok((head, out.ok_or_else(|| not_whole(&"it is empty"))?))
}

impl Arguments {
    /// A server that runs sends it.
    fn running(&self, token_file: &Path, out: NewBackup, bar: &ProgressBar) -> Result<(Head, NewBackup), Fault> {
        let mut out = Some(out);
        let mut begin =
            |_: &Head| out.take().ok_or_else(|| Fault::new(ExitCode::Internal, "two backups came".to_owned()));
        receive(&self.server, (&self.path, &bearer(token_file)?), bar, &mut begin)
    }

    /// Read from the directory of a server that does not run.
    fn stopped(&self, mut out: NewBackup, bar: &ProgressBar) -> Result<(Head, NewBackup), Fault> {
        let config = self.load_config()?;
        let scratch = scratch()?;
        bar.set_message("reading");
        let survivor = Survivor::read(&config, thread::available_parallelism().map_or(1, usize::from))?;
        let file = survivor.copy(scratch.path())?;
        let head = backups::head(&file, config.server.server_id, Clock::start().wall().0);
        out.write(|to| backups::write(&head, &file, to))?;
        Ok((head, out))
    }

    fn load_config(&self) -> Result<Config, Fault> {
        let directory = self.data_dir.as_ref();
        let mut overrides: Vec<Override> = Vec::new();
        overrides.extend(directory.map(|directory| Override::text("--data-dir", "server.data_dir", directory)));
        Ok(config::load(self.config.as_deref(), &overrides)?.config)
    }
}
