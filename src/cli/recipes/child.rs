//! The command that a recipe protects: it runs while the session holds a znode, and ends with it.
//!
//! The main thread, in a runtime of tokio. The kernel kills the command when this thread ends.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{self, Stdio};
use std::{io, iter};

use clap::{Args, ValueEnum};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, getppid};
use tokio::io::AsyncWriteExt as _;

use crate::cli::client::failed;
use crate::cli::recipes::session::{Limit, Session, deleted, own_id};
use crate::cli::signals::Stops;
use crate::exit::{ExitCode, Fault};

/// How a shell shows the end by a signal.
const SIGNALLED: i32 = 128;

/// The end of the command when the session is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum OnLost {
    /// SIGKILL, before a server can expire the session
    Kill,
    /// SIGTERM. The command may go on, and must check its fencing token
    Signal,
    /// Nothing. The command goes on, and must check its fencing token
    Ignore,
}

/// How a znode is held while a command runs.
#[derive(Args)]
pub(super) struct Holding {
    /// Signal for the command when the session is lost or the own znode is deleted
    #[arg(long, value_enum, default_value_t = OnLost::Kill)]
    pub(super) on_lost: OnLost,
    /// Data of the own znode, to name its holder [default: HOST:PID]
    #[arg(long, value_name = "TEXT")]
    id: Option<String>,
    #[command(flatten)]
    pub(super) limit: Limit,
}

impl Holding {
    pub(super) fn id(&self) -> String {
        self.id.clone().unwrap_or_else(own_id)
    }
}

/// A znode that this session holds.
pub(super) struct HeldZnode {
    pub(super) znode: String,
    /// Znodes in other layouts, made in the same transaction.
    pub(super) twins: Vec<String>,
    /// The zxid that created them. Later holders have larger ones.
    pub(super) token: i64,
}

impl HeldZnode {
    /// That of the session's own znode.
    ///
    /// # Errors
    /// If the znode was deleted, of the server, or if the session has ended.
    pub(super) async fn of(session: &Session, znode: String) -> Result<HeldZnode, Fault> {
        HeldZnode::of_twins(session, znode, Vec::new()).await
    }

    /// That of the session's own znodes in several layouts.
    ///
    /// # Errors
    /// As those of [`HeldZnode::of`].
    pub(super) async fn of_twins(session: &Session, znode: String, twins: Vec<String>) -> Result<HeldZnode, Fault> {
        match session.stat(&znode).await.map_err(|error| failed(&znode, &error))? {
            Some(stat) => Ok(HeldZnode { znode, twins, token: stat.czxid }),
            None => Err(deleted(&znode)),
        }
    }

    /// All its znodes.
    pub(super) fn znodes(&self) -> impl Iterator<Item = &str> {
        iter::once(&self.znode).chain(&self.twins).map(String::as_str)
    }

    /// Its znode and token in the command's environment.
    pub(super) fn environment<'a>(&'a self, path: &'a str, token: &'a str) -> [(&'a str, &'a str); 3] {
        [("CORRAL_PATH", path), ("CORRAL_ZNODE", &self.znode), ("CORRAL_FENCING_TOKEN", token)]
    }
}

/// The first argument of a process that becomes the command. The number of the recipe's process follows.
const BELOW: &str = "run-below";

/// Becomes the command, which the kernel kills when its parent ends, if the process was started for that.
///
/// # Errors
/// If the command cannot be executed.
pub(in crate::cli) fn become_command(given: &[OsString]) -> Result<(), Fault> {
    let [_, below, parent, program, words @ ..] = given else { return Ok(()) };
    if below != BELOW {
        return Ok(());
    }
    let failed = |error| Fault::new(ExitCode::Internal, format!("no signal at the end of the parent: {error}"));
    set_pdeathsig(Signal::SIGKILL).map_err(failed)?;
    if *parent != *getppid().to_string() {
        return Err(Fault::new(ExitCode::SessionLost, "the recipe ended before its command began"));
    }
    let error = process::Command::new(program).args(words).exec();
    let code = if error.kind() == io::ErrorKind::NotFound { ExitCode::UnknownVerb } else { ExitCode::NotExecutable };
    Err(Fault::new(code, format!("{}: {error}", program.display())))
}

/// A running command.
pub(super) struct Child {
    process: tokio::process::Child,
    /// Without a controlling terminal its process group is its own, and signals go to all in it.
    has_group: bool,
}

impl Child {
    /// Starts the command. `input` is its standard input, if there is one to give.
    ///
    /// # Errors
    /// If the system has no room for a process.
    pub(super) fn start(
        command: &[OsString],
        environment: &[(&str, &str)],
        input: Option<Vec<u8>>,
    ) -> Result<Child, Fault> {
        let mut child = tokio::process::Command::new("/proc/self/exe");
        child.arg(BELOW).arg(process::id().to_string()).args(command).envs(environment.iter().copied());
        let has_group = File::open("/dev/tty").is_err();
        if has_group {
            child.process_group(0);
        }
        if input.is_some() {
            child.stdin(Stdio::piped());
        }
        let failed = |error| Fault::new(ExitCode::Internal, format!("the command cannot start: {error}"));
        let mut process = child.spawn().map_err(failed)?;
        if let (Some(mut stdin), Some(input)) = (process.stdin.take(), input) {
            // A command need not read its input.
            tokio::spawn(async move { stdin.write_all(&input).await });
        }
        Ok(Child { process, has_group })
    }

    /// Waits for the command's end, and gives its exit code.
    ///
    /// # Errors
    /// If the system does not tell.
    pub(super) async fn wait(&mut self) -> Result<u8, Fault> {
        let failed = |error| Fault::new(ExitCode::Internal, format!("the command's end is unknown: {error}"));
        let status = self.process.wait().await.map_err(failed)?;
        let code = status.code().or_else(|| status.signal().map(|signal| SIGNALLED + signal));
        Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
    }

    /// Runs the command to its end while `kept` waits, and gives its exit code. Signals go to the command.
    ///
    /// # Errors
    /// The fault that `kept` gives, once the command has ended because of it or by itself.
    pub(super) async fn run(
        &mut self,
        stops: &mut Stops,
        on_lost: OnLost,
        kept: impl Future<Output = Fault>,
    ) -> Result<u8, Fault> {
        let fault = {
            let mut kept = std::pin::pin!(kept);
            loop {
                tokio::select! {
                    biased;
                    code = self.wait() => return code,
                    signal = stops.any() => self.forward(signal),
                    fault = &mut kept => break fault,
                }
            }
        };
        let told = match on_lost {
            OnLost::Kill => {
                self.send(Signal::SIGKILL);
                "the command was killed"
            }
            OnLost::Signal => {
                self.send(Signal::SIGTERM);
                "the command got SIGTERM"
            }
            OnLost::Ignore => "the command went on",
        };
        loop {
            tokio::select! {
                biased;
                code = self.wait() => {
                    code?;
                    return Err(Fault { sentence: format!("{}; {told}", fault.sentence), ..fault });
                }
                signal = stops.any() => self.forward(signal),
            }
        }
    }

    /// A terminal sends SIGINT to the command by itself.
    pub(super) fn forward(&self, signal: Signal) {
        if self.has_group || signal != Signal::SIGINT {
            self.send(signal);
        }
        if matches!(signal, Signal::SIGTERM | Signal::SIGINT | Signal::SIGHUP) {
            // A stopped process gets other signals only when it goes on.
            self.send(Signal::SIGCONT);
        }
    }

    fn send(&self, signal: Signal) {
        // Without a number it has ended. It may also have ended meanwhile.
        let Some(pid) = self.process.id().and_then(|pid| i32::try_from(pid).ok()).map(Pid::from_raw) else { return };
        let _ = if self.has_group { killpg(pid, signal) } else { kill(pid, signal) };
        if signal == Signal::SIGKILL {
            // It may have left its group.
            let _ = kill(pid, signal);
        }
    }
}

/// Runs a command while the session holds `place`.
///
/// # Errors
/// If the session is lost or a znode deleted meanwhile, or the command cannot start.
pub(super) async fn hold(
    session: &Session,
    stops: &mut Stops,
    path: &str,
    place: &HeldZnode,
    on_lost: OnLost,
    command: &[OsString],
) -> Result<u8, Fault> {
    let token = place.token.to_string();
    let mut child = Child::start(command, &place.environment(path, &token), None)?;
    child.run(stops, on_lost, session.any_gone(place.znodes())).await
}
