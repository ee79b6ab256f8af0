//! The control plane: signals, four-letter words, and what the process knows of itself. Plain threads, off the data
//! path.

mod facts;
mod gauges;
mod words;

use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::actor::messages::ToConsensus;
use crate::exit::{ExitCode, Fault};
use crate::runtime::mailbox::Post;

pub(crate) use facts::Facts;
pub(crate) use gauges::{Gauges, Stopwatch};
pub(crate) use words::Words;

/// Starts the thread that turns signals into messages: SIGTERM and SIGINT stop in good order, SIGUSR1 asks for an
/// image, SIGHUP is reserved and does nothing.
///
/// # Errors
/// When the handlers cannot be installed.
pub(crate) fn handle_signals(consensus: Post<ToConsensus>) -> Result<(), Fault> {
    let failed = |error: std::io::Error| Fault::new(ExitCode::Internal, format!("cannot handle signals: {error}"));
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP, signal_hook::consts::SIGUSR1]).map_err(failed)?;
    let listen = move || {
        for signal in signals.forever() {
            match signal {
                SIGHUP => tracing::info!("SIGHUP is reserved; nothing is reloaded"),
                SIGTERM | SIGINT => drop(consensus.send(ToConsensus::Stop)),
                _ => drop(consensus.send(ToConsensus::Snapshot)),
            }
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(listen).map_err(failed)?;
    Ok(())
}
