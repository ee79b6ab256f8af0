//! The checks and the question before a plan is written. The main thread only.

use std::io::{self, Write as _};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use tokio::time::sleep;

use crate::cli::subtree::plan::Plan;
use crate::cli::subtree::write::closed_parents;
use crate::exit::{ExitCode, Fault};

/// Between two looks for the answer.
const PAUSE: Duration = Duration::from_millis(50);

/// How the user agrees to a plan.
pub(crate) struct Consent {
    pub(crate) dry_run: bool,
    pub(crate) yes: bool,
    /// Whether standard input is a terminal to ask on.
    pub(crate) asks: bool,
    /// Whether the session has an identity beside its address.
    pub(crate) authenticates: bool,
    /// The option that agrees.
    pub(crate) option: &'static str,
}

impl Consent {
    /// Asks if that is needed. Gives the reason for which nothing is to be written, if there is one.
    ///
    /// # Errors
    /// If the plan cannot be written whole, or the user does not agree.
    pub(crate) async fn refusal(&self, plan: &Plan) -> Result<Option<&'static str>, Fault> {
        if plan.is_empty() {
            return Ok(Some("nothing to write"));
        }
        if !self.authenticates
            && let Some(path) = closed_parents(plan).next()
        {
            let sentence = format!(
                "nothing was written: {path} has children, and its ACL lets only others create them; give an identity with --auth-file"
            );
            return Err(Fault::new(ExitCode::Config, sentence));
        }
        if self.dry_run {
            return Ok(Some("nothing was written: this was a dry run"));
        }
        if self.yes || self.asks && agreed().await? {
            return Ok(None);
        }
        Err(Fault::new(ExitCode::Internal, format!("nothing was written; give {}", self.option)))
    }
}

/// Asks on a terminal, and keeps the session alive meanwhile.
async fn agreed() -> Result<bool, Fault> {
    let unreadable = |error: io::Error| Fault::new(ExitCode::Internal, format!("no answer: {error}"));
    let mut stderr = io::stderr().lock();
    stderr.write_all(b"write this? [y/N] ").and_then(|()| stderr.flush()).map_err(unreadable)?;
    drop(stderr);
    let input = io::stdin();
    let mut polled = [PollFd::new(&input, PollFlags::IN)];
    while poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).map_err(|error| unreadable(error.into()))? == 0 {
        sleep(PAUSE).await;
    }
    let mut answer = String::new();
    input.read_line(&mut answer).map_err(unreadable)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
