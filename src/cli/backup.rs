//! `corral backup`: the state of a server in one file. The main thread only.

use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use clap::Args;
use corral_backup::envelope::{Head, Parser};
use corral_backup::pack::{Packer, PublicKey};
use indicatif::{HumanBytes, ProgressBar, ProgressFinish};

use crate::cli::backup_file::{Target, scratch, unwritable};
use crate::cli::http::{Part, Server, bearer};
use crate::cli::output;
use crate::config::{self, Config, Override};
use crate::data::backups;
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
    /// A new file, a directory for a file named by time and zxid, s3://BUCKET/KEY, or - for standard output
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

fn public_key(text: &str) -> Result<PublicKey, String> {
    text.parse().map_err(|error: &str| format!("{error}; give the public key that age-keygen prints, age1..."))
}

/// Takes the backup, checks it, and gives it its name.
///
/// # Errors
/// If the server does not send it whole, the data are damaged, or it cannot be written.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Fault> {
    let started = Instant::now();
    let target = Target::create(&arguments.out, !arguments.encrypt.is_empty())?;
    let bar = ProgressBar::new(0).with_finish(ProgressFinish::AndClear);
    let unwritable = |error| unwritable(&arguments.out, &error);
    let mut packer = Packer::new(BufWriter::new(target), &arguments.encrypt).map_err(unwritable)?;
    let head = match &arguments.token_file {
        Some(token_file) => arguments.running(token_file, &mut packer, &bar),
        None => arguments.stopped(&mut packer, &bar),
    }?;
    let written = packer.finish().and_then(|out| out.into_inner().map_err(io::IntoInnerError::into_error));
    let mut target = written.map_err(unwritable)?;
    target.flush().map_err(unwritable)?;
    drop(bar);
    let took = started.elapsed().as_secs_f64();
    let about = format!("zxid 0x{:x}, server {}, {} in {took:.1} s", head.zxid, head.server, HumanBytes(head.bytes));
    match target.finish(&head)? {
        Some(file) => output::print(&format!("{}: {about}\n", file.display())),
        None => Ok(()),
    }
}

type Out = Packer<BufWriter<Target>>;

impl Arguments {
    /// A server that runs sends it.
    fn running(&self, token_file: &Path, packer: &mut Out, bar: &ProgressBar) -> Result<Head, Fault> {
        let (authorization, mut parser) = (bearer(token_file)?, Parser::default());
        self.server.fetch(&self.path, &authorization, &mut |part| match part {
            Part::Headers(_) => Ok(()),
            Part::Body(bytes) => {
                let mut progress = |head: &Head, _: &[u8]| {
                    bar.set_length(head.bytes);
                    Ok(())
                };
                parser.push(bytes, &mut progress).map_err(|error: corral_backup::BackupError| error.to_string())?;
                bar.inc(bytes.len() as u64);
                packer.write_all(bytes).map_err(|error| unwritable(&self.out, &error).sentence)
            }
        })?;
        parser.finish().map_err(|error| {
            let sentence =
                format!("the backup did not come whole: {error}; is it the admin address of corral? Try again");
            Fault::new(ExitCode::Internal, sentence)
        })
    }

    /// Read from the directory of a server that does not run.
    fn stopped(&self, packer: &mut Out, bar: &ProgressBar) -> Result<Head, Fault> {
        let config = self.load_config()?;
        let scratch = scratch()?;
        bar.set_message("reading");
        let survivor = Survivor::read(&config, thread::available_parallelism().map_or(1, usize::from))?;
        let file = survivor.copy(scratch.path())?;
        let head = backups::head(&file, config.server.server_id, Clock::start().wall().0);
        backups::write(&head, &file, packer).map_err(|error| unwritable(&self.out, &error))?;
        Ok(head)
    }

    fn load_config(&self) -> Result<Config, Fault> {
        let directory = self.data_dir.as_ref();
        let mut overrides: Vec<Override> = Vec::new();
        overrides.extend(directory.map(|directory| Override::text("--data-dir", "server.data_dir", directory)));
        Ok(config::load(self.config.as_deref(), &overrides)?.config)
    }
}
