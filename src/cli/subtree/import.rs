//! `corral import json`, `jsonl` and `tar`: a subtree into a running server. The main thread only.

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use clap::{Args, ValueEnum};
use corral_client::Client;
use corral_core::path;
use signal_hook::consts::SIGINT;
use signal_hook::flag;

use crate::cli::client::Connection;
use crate::cli::output::{Output, print};
use crate::cli::subtree::consent::Consent;
use crate::cli::subtree::format::{Format, read};
use crate::cli::subtree::plan::Plan;
use crate::cli::subtree::record::Tree;
use crate::cli::subtree::write::Writing;
use crate::exit::{ExitCode, Fault};

/// Arguments of the imports of a subtree.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The file of an export
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The path to import to, if it is another than that of the export. Its parent must exist
    #[arg(value_name = "PATH")]
    root: Option<String>,
    /// Write without a question
    #[arg(long)]
    yes: bool,
    /// Show the plan; write nothing
    #[arg(long)]
    dry_run: bool,
    /// Show each line of the plan
    #[arg(long)]
    verbose: bool,
    /// Delete znodes below PATH that the file does not hold
    #[arg(long)]
    delete: bool,
    /// Import ephemerals in the file too, without a session. Otherwise they are left out
    #[arg(long, value_name = "AS")]
    ephemerals: Option<Ephemerals>,
    #[command(flatten)]
    connection: Connection,
}

/// Ephemerals of the file on the server.
#[derive(Clone, Copy, ValueEnum)]
enum Ephemerals {
    /// Znodes without a session
    Persistent,
}

/// Checks the file, shows the plan, asks, and writes.
///
/// # Errors
/// If the file is refused, the server does not answer, or not everything was written.
pub(crate) fn run(arguments: &Arguments, format: Format) -> Result<(), Fault> {
    let tree = read(format, &arguments.file)?;
    let root = arguments.root.clone().unwrap_or_else(|| tree.root.clone());
    if !path::is_valid(&root) {
        return Err(Fault::new(ExitCode::Usage, format!("{root:?} is no path; give one such as /app")));
    }
    arguments.connection.with(|client| import(client, arguments, tree, root))
}

async fn import(client: Client, arguments: &Arguments, tree: Tree, root: String) -> Result<(), Fault> {
    let persistent = arguments.ephemerals.is_some();
    let plan = Plan::make(&client, tree, &root, persistent, arguments.delete).await?;
    plan.print(&mut Output::new(), arguments.verbose)?;
    let consent = Consent {
        dry_run: arguments.dry_run,
        yes: arguments.yes,
        asks: io::stdin().is_terminal(),
        authenticates: arguments.connection.authenticates(),
        option: "--yes",
    };
    if let Some(reason) = consent.refusal(&plan).await? {
        return print(&format!("{reason}\n"));
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    let unset = |error: io::Error| Fault::new(ExitCode::Internal, format!("signals cannot be taken: {error}"));
    // The second one ends the process at once.
    flag::register_conditional_default(SIGINT, Arc::clone(&interrupted)).map_err(unset)?;
    flag::register(SIGINT, Arc::clone(&interrupted)).map_err(unset)?;
    let started = Instant::now();
    let counts = Writing::new(&client, &plan, interrupted).run(&plan).await?;
    print(&format!("{counts} in {:.1} s\n", started.elapsed().as_secs_f64()))
}
