//! `corral snapshot get`: the present state of a running server. The main thread only.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use corral_core::ids::Zxid;
use hyper::HeaderMap;
use indicatif::{HumanBytes, ProgressBar, ProgressFinish};

use crate::cli::http::{Part, Server, bearer};
use crate::cli::output;
use crate::cli::zookeeper_dir::ZooKeeperDir;
use crate::exit::{ExitCode, Fault};

/// The admin command, at the default of `admin.command_url`.
const PATH: &str = "/commands/snapshot";

/// Arguments of `corral snapshot get`.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    server: Server,
    /// File with a token of the server's admin.token_file
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
    /// The directory in which version-2/snapshot.ZXID is written
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Path of the command, if the server has another admin.command_url
    #[arg(long, value_name = "PATH", default_value = PATH)]
    path: String,
}

/// Receives the snapshot, and compares its size with the announced one.
///
/// # Errors
/// If the server does not send it whole, or it cannot be written.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Fault> {
    let started = Instant::now();
    let authorization = bearer(&arguments.token_file)?;
    let directory = ZooKeeperDir::new(&arguments.out)?;
    let mut file = directory.begin()?;
    let bar = ProgressBar::new(0).with_finish(ProgressFinish::AndClear);
    let (mut head, mut written) = (None, 0);
    arguments.server.fetch(&arguments.path, &authorization, &mut |part| match part {
        Part::Headers(headers) => {
            let (zxid, size) = announced(headers).ok_or_else(|| {
                let sentence = "the answer is no snapshot; is it the admin address of corral?";
                Fault::new(ExitCode::Internal, sentence.to_owned())
            })?;
            bar.set_length(size);
            head = Some((zxid, size));
            Ok(())
        }
        Part::Body(bytes) => {
            file.write_all(bytes).map_err(|error| directory.failed(&error))?;
            written += bytes.len() as u64;
            bar.set_position(written);
            Ok(())
        }
    })?;
    let (zxid, size) = head.unwrap_or_default();
    if size != written {
        let sentence = format!("the server announced {size} bytes, and {written} came; try again");
        return Err(Fault::new(ExitCode::Internal, sentence));
    }
    let file = directory.finish(file, zxid)?;
    drop(bar);
    let (file, took) = (file.display(), started.elapsed().as_secs_f64());
    output::print(&format!("{file}: {}, zxid {zxid}, in {took:.1} s\n", HumanBytes(size)))
}

/// Zxid and size.
fn announced(headers: &HeaderMap) -> Option<(Zxid, u64)> {
    let text = |name| headers.get(name)?.to_str().ok();
    let zxid = u64::from_str_radix(text("last_zxid")?.strip_prefix("0x")?, 16).ok()?;
    Some((Zxid(zxid), text("snapshot_size")?.parse().ok()?))
}
