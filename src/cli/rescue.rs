//! `corral rescue`: makes the data of a stopped server those of the only server of its ensemble that votes, or of a
//! server that runs alone. For when a majority is lost for good. The main thread only.

use std::thread;

use clap::Args;

use crate::cli::output::Output;
use crate::cli::serve::ConfigArguments;
use crate::exit::Fault;
use crate::node::rescue::Survivor;

/// Arguments of `corral rescue`.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    config: ConfigArguments,
    /// Carry it out; without this flag only print what would change
    #[arg(long)]
    yes: bool,
}

/// Reports the content of the data directory and its possible gaps. With `--yes` it changes the membership.
///
/// # Errors
/// The fault that keeps it from being done.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Fault> {
    let config = arguments.config.load()?.config;
    let survivor = Survivor::read(&config, thread::available_parallelism().map_or(1, usize::from))?;
    let mut out = Output::new();
    let (nodes, zxid) = survivor.extent();
    let Survivor { index, term, .. } = survivor;
    out.line(&format!(
        "{}: {nodes} znodes as of zxid 0x{zxid:x}, up to log entry {index} of term {term}",
        config.server.data_dir.display()
    ))?;
    match &survivor.members {
        None => out.line("it ran alone: nothing is lost")?,
        Some(members) => {
            let leaving = members.voters_outgoing.iter().filter(|id| !members.voters.contains(id));
            let voters: Vec<String> = members.voters.iter().chain(leaving).map(ToString::to_string).collect();
            out.line(&format!(
                "servers {} voted when its newest snapshot was written; writes that they acknowledged after that log entry, and \
                 that this server never received, are lost; writes that it received and that were not acknowledged stay",
                voters.join(", ")
            ))?
        }
    };
    let becomes = config.own_member().map_or_else(
        || "a server that runs alone".to_owned(),
        |own| format!("server {}, the only one of its ensemble that votes", own.id),
    );
    if !arguments.yes {
        out.line(&format!("nothing was changed: with --yes it becomes {becomes}"))?;
        return out.finish();
    }
    survivor.rescue(&config)?;
    out.line(&format!("it is now {becomes}"))?;
    if config.own_member().is_some() {
        out.line(
            "start it now; empty the data directory of each other server before that one starts again, and see that its \
             configuration names this one: it then takes everything from it, and votes when it has it",
        )?;
    }
    out.finish()
}
