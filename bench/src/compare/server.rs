//! The servers of a comparison: running ones that are named, and ones that are started freshly for every round.
//!
//! A started server is a process of ours: pinned, with a data directory of its own, counted as started when it grants a
//! session, ended by its process id alone. Runs on the main thread. Knows no figures.

use std::fs;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, socket};
use nix::unistd::Pid;

use crate::session;

/// A server that grants no session within this time has failed.
const START_PATIENCE: Duration = Duration::from_secs(90);
/// The same for one that is said to run already.
const RUNNING_PATIENCE: Duration = Duration::from_secs(5);
/// A server that has not ended this long after SIGTERM is killed.
const STOP_PATIENCE: Duration = Duration::from_secs(30);
const POLL_EVERY: Duration = Duration::from_millis(50);
/// Ports looked at for one that is free.
const PORTS_TRIED: u16 = 100;
const SESSION_TIMEOUT_MS: i32 = 10_000;
/// How much of a failed server's log is shown.
const LOG_TAIL_BYTES: usize = 2000;

/// A server as named on the command line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Spec {
    pub(super) name: String,
    pub(super) source: Source,
}

/// Where the server comes from.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Source {
    /// It runs already.
    Running { address: String, pid: Option<i32> },
    /// A command of the shell with placeholders.
    Command(String),
}

impl Spec {
    /// Reads `NAME=HOST:PORT[,pid=N]`.
    ///
    /// # Errors
    /// Anything else.
    pub(super) fn running(text: &str) -> Result<Self> {
        let grammar = || format!("--server {text:?} is not NAME=HOST:PORT[,pid=N]");
        let (name, rest) = text.split_once('=').with_context(grammar)?;
        let (address, pid) = match rest.split_once(",pid=") {
            Some((address, pid)) => (address, Some(pid.parse::<i32>().with_context(grammar)?)),
            None => (rest, None),
        };
        ensure!(!name.is_empty() && address.contains(':') && !address.contains(','), grammar());
        Ok(Self { name: name.to_owned(), source: Source::Running { address: address.to_owned(), pid } })
    }

    /// Reads `NAME=COMMAND`.
    ///
    /// # Errors
    /// Anything else, and a command without `{port}`.
    pub(super) fn started(text: &str) -> Result<Self> {
        let (name, command) = text.split_once('=').with_context(|| format!("--start {text:?} is not NAME=COMMAND"))?;
        ensure!(!name.is_empty() && !command.is_empty(), "--start {text:?} is not NAME=COMMAND");
        ensure!(
            command.contains("{port}"),
            "--start {name}: the command has no {{port}}, so nobody knows where it listens"
        );
        Ok(Self { name: name.to_owned(), source: Source::Command(command.to_owned()) })
    }
}

/// What a started server is given.
pub(super) struct Place<'a> {
    /// A directory for this start alone; it exists.
    pub(super) directory: &'a Path,
    pub(super) port: u16,
    /// CPUs to pin to; empty = not pinned.
    pub(super) cpus: &'a [usize],
}

/// A server that serves.
pub(super) struct Server {
    pub(super) address: String,
    pub(super) pid: Option<i32>,
    /// As it was started, placeholders filled in; none if it ran already.
    pub(super) command: Option<String>,
    child: Option<Child>,
    log: PathBuf,
}

impl Server {
    /// Gives the server once it grants sessions, starting it if need be. `stopped` says whether to give up.
    ///
    /// # Errors
    /// A command that cannot be started or ends at once, a server that grants no session.
    pub(super) fn ready(spec: &Spec, place: &Place<'_>, stopped: &dyn Fn() -> bool) -> Result<Self> {
        let log = place.directory.join("server.log");
        let mut server = match &spec.source {
            Source::Running { address, pid } => {
                Self { address: address.clone(), pid: *pid, command: None, child: None, log }
            }
            Source::Command(template) => {
                let address = format!("127.0.0.1:{}", place.port);
                let directory = std::env::current_dir().context("the current directory")?;
                let command = with_program_found(&filled(template, place), &directory);
                let child = spawn(&command, place, &log).with_context(|| format!("{}: {command}", spec.name))?;
                let pid = i32::try_from(child.id()).context("process ids are small")?;
                Self { address, pid: Some(pid), command: Some(command), child: Some(child), log }
            }
        };
        server.wait_until_served(stopped).with_context(|| format!("{}{}", spec.name, server.log_tail()))?;
        Ok(server)
    }

    fn wait_until_served(&mut self, stopped: &dyn Fn() -> bool) -> Result<()> {
        let address = resolved(&self.address)?;
        let patience = if self.child.is_some() { START_PATIENCE } else { RUNNING_PATIENCE };
        let until = Instant::now() + patience;
        loop {
            let tried = session::Admin::open(address, SESSION_TIMEOUT_MS, Duration::from_secs(2));
            let Err(error) = tried.and_then(session::Admin::close) else { return Ok(()) };
            if let Some(child) = &mut self.child
                && let Some(status) = child.try_wait()?
            {
                bail!("it ended by itself ({status})");
            }
            ensure!(!stopped(), "interrupted");
            if Instant::now() > until {
                return Err(error.context(format!("it granted no session within {} s", patience.as_secs())));
            }
            thread::sleep(POLL_EVERY);
        }
    }

    /// The end of the server's log with a line in front, or nothing.
    pub(super) fn log_tail(&self) -> String {
        let text = fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        let from = text.char_indices().rev().nth(LOG_TAIL_BYTES).map_or(0, |(at, _)| at);
        let tail = text[from..].trim();
        if tail.is_empty() { String::new() } else { format!("; its log ends with\n{tail}\n") }
    }

    /// Ends a server that was started here. A running one is left alone. Gives whether it had to be killed.
    pub(super) fn stop(mut self) -> bool {
        self.end()
    }

    fn end(&mut self) -> bool {
        let Some(mut child) = self.child.take() else { return false };
        let Ok(pid) = i32::try_from(child.id()) else { return false };
        // It may have ended already; then there is nothing to signal.
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        let until = Instant::now() + STOP_PATIENCE;
        while Instant::now() < until {
            if matches!(child.try_wait(), Ok(Some(_)) | Err(_)) {
                return false;
            }
            thread::sleep(POLL_EVERY);
        }
        let _ = child.kill();
        let _ = child.wait();
        true
    }
}

impl Drop for Server {
    /// A server that was started never outlives the comparison, also when a cell fails.
    fn drop(&mut self) {
        self.end();
    }
}

/// The first port from `first` on that nobody listens on, connects from or has just left; servers differ in whether they
/// can take over such a port.
pub(super) fn free_port(first: u16) -> Result<u16> {
    let free = |port: &u16| {
        let flags = SockFlag::SOCK_CLOEXEC;
        let Ok(socket) = socket(AddressFamily::Inet, SockType::Stream, flags, None) else { return false };
        bind(socket.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, *port)).is_ok()
    };
    let mut ports = first..=first.saturating_add(PORTS_TRIED - 1);
    ports.find(free).with_context(|| format!("no port of {PORTS_TRIED} from {first} on is free"))
}

fn resolved(address: &str) -> Result<SocketAddr> {
    let mut found = address.to_socket_addrs().with_context(|| format!("{address} is no HOST:PORT"))?;
    found.next().with_context(|| format!("{address} has no address"))
}

/// The command with its placeholders filled in.
fn filled(template: &str, place: &Place<'_>) -> String {
    let cpu = place.cpus.first().map_or_else(|| "0".to_owned(), ToString::to_string);
    let data = place.directory.join("data");
    let data = format!("'{}'", data.display().to_string().replace('\'', r"'\''"));
    template.replace("{port}", &place.port.to_string()).replace("{cpu}", &cpu).replace("{data_dir}", &data)
}

/// The command to run in another directory: a program given by a relative path with a slash is meant from this one.
fn with_program_found(command: &str, directory: &Path) -> String {
    let command = command.trim_start();
    let quote = command.chars().next().filter(|first| ['\'', '"'].contains(first));
    let (path, end) = match quote {
        Some(quote) => (&command[1..], quote),
        None => (command, ' '),
    };
    let path = path.split(end).next().unwrap_or_default();
    // What the shell expands is not for us to judge; an absolute path and a name to look up need nothing.
    if !path.contains('/') || path.starts_with(['/', '~', '$', '`']) {
        return command.to_owned();
    }
    let directory = directory.display().to_string();
    let plain = |letter: char| letter.is_alphanumeric() || "/._-+,:@%".contains(letter);
    if directory.chars().all(plain) {
        format!("{directory}/{command}")
    } else {
        format!("'{}/'{command}", directory.replace('\'', r"'\''"))
    }
}

/// Starts the command in a process group of its own, so that Ctrl-C at the terminal reaches this program alone.
fn spawn(command: &str, place: &Place<'_>, log: &Path) -> Result<Child> {
    use std::os::unix::process::CommandExt as _;
    let log = fs::File::create(log).context("the log file")?;
    let mut shell = Command::new("/bin/sh");
    // With `exec` the process id is the server's own.
    shell.args(["-c", &format!("exec {command}")]).current_dir(place.directory).stdin(Stdio::null());
    shell.stdout(log.try_clone()?).stderr(log).process_group(0);
    // A child inherits the affinity of the thread that starts it.
    let own = sched_getaffinity(Pid::from_raw(0)).context("the CPUs this program may use")?;
    if !place.cpus.is_empty() {
        let mut wanted = CpuSet::new();
        for cpu in place.cpus {
            wanted.set(*cpu).with_context(|| format!("--server-cpu {cpu}"))?;
        }
        sched_setaffinity(Pid::from_raw(0), &wanted).with_context(|| format!("--server-cpu {:?}", place.cpus))?;
    }
    let child = shell.spawn();
    sched_setaffinity(Pid::from_raw(0), &own).context("going back to the CPUs of before")?;
    child.context("the command cannot be started")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_servers() {
        fn check(text: &str, name: &str, address: &str, pid: Option<i32>) {
            let source = Source::Running { address: address.to_owned(), pid };
            assert_eq!(Spec::running(text).unwrap(), Spec { name: name.to_owned(), source });
        }
        check("a=127.0.0.1:2181", "a", "127.0.0.1:2181", None);
        check("ZooKeeper NIO=h:1,pid=7", "ZooKeeper NIO", "h:1", Some(7));
        for text in ["", "a", "a=", "=h:1", "a=h", "a=h:1,pid=x", "a=h:1,cpu=2"] {
            let error = format!("{:#}", Spec::running(text).expect_err(text));
            assert!(error.contains("NAME=HOST:PORT"), "{text:?} gives {error:?}");
        }
    }

    #[test]
    fn a_port_that_is_taken_is_passed_over() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        assert!(free_port(port).unwrap() > port);
    }

    #[test]
    fn commands_and_their_placeholders() {
        let spec =
            Spec::started("corral=corral serve --client-addr=h:{port} --data-dir {data_dir} --cpu {cpu}").unwrap();
        let Source::Command(template) = &spec.source else { panic!("it is a command") };
        let place = Place { directory: Path::new("/tmp/it's"), port: 24_000, cpus: &[3, 4] };
        assert_eq!(
            filled(template, &place),
            r"corral serve --client-addr=h:24000 --data-dir '/tmp/it'\''s/data' --cpu 3"
        );
        assert_eq!(spec.name, "corral");
        let found = |command: &str, directory: &str| with_program_found(command, Path::new(directory));
        assert_eq!(found("target/release/corral serve a/b", "/home/x"), "/home/x/target/release/corral serve a/b");
        assert_eq!(found("./corral serve", "/it's here"), r"'/it'\''s here/'./corral serve");
        assert_eq!(found("'my own/corral' serve", "/home/x"), "/home/x/'my own/corral' serve");
        for same in
            ["corral serve --data-dir a/b", "/bin/corral serve", "$HOME/corral", "'/my own/corral' serve", "~/c"]
        {
            assert_eq!(found(same, "/home/x"), same);
        }
        for text in ["corral", "=x {port}", "a=", "a=serve without a port"] {
            assert!(Spec::started(text).is_err(), "{text:?} is taken");
        }
    }
}
