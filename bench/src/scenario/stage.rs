//! What the scenarios share: the stage with its sessions, the preparation and removal of znodes, the head of every report.
//!
//! On the thread of the scenario. It does not know what a scenario measures.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Error, Result, bail, ensure};
use serde::Serialize;

use crate::args::{CommonArgs, Target, pin};
use crate::console::{Interrupt, Progress};
use crate::cpu::{CpuClock, ServiceCpu};
use crate::figures::ratio;
use crate::listener;
use crate::machine::{Machine, command_line, unix_time};
use crate::run::{Withdrawn, raise_file_limit};
use crate::session::Admin;
use crate::swarm::{Event, Swarm, What};
use crate::table::Table;

/// What every scenario's report begins with.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Heading {
    scenario: &'static str,
    label: Option<String>,
    unix_time: u64,
    command: String,
    pub(super) machine: Machine,
}

impl Heading {
    pub(super) fn of(scenario: &'static str, args: &CommonArgs) -> Self {
        let label = args.label.clone();
        Self { scenario, label, unix_time: unix_time(), command: command_line(), machine: Machine::here() }
    }
}

/// Prints a report as one line of JSON or as a table.
pub(super) fn print(args: &CommonArgs, report: &impl Serialize, table: Table) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let written = if args.json {
        writeln!(out, "{}", serde_json::to_string(report).context("the report holds only strings and numbers")?)
    } else {
        write!(out, "{}", table.into_text())
    };
    written.context("the report cannot be printed")
}

/// Where a scenario takes place.
pub(super) struct Stage {
    pub(super) target: Target,
    pub(super) swarm: Swarm,
    pub(super) progress: Progress,
    pub(super) interrupt: Interrupt,
    pub(super) server_cpu: Option<ServiceCpu>,
    pub(super) client_cpu: CpuClock,
    /// The scenario's znodes below its own, parents first.
    pub(super) names: Vec<String>,
    /// Warnings about the processes of `--pid`.
    pub(super) doubts: Vec<String>,
}

impl Stage {
    /// Checks the common flags, pins the thread, allows for so many sessions.
    pub(super) fn set(args: &CommonArgs, sessions: u32) -> Result<Self> {
        let target = Target::of(args)?;
        let interrupt = Interrupt::new()?;
        raise_file_limit(sessions)?;
        let server_cpu = ServiceCpu::of(&target.pids).context("--pid")?;
        pin(target.cpu(0))?;
        let swarm = Swarm::new(target.session_timeout_ms, target.reply_timeout)?;
        let mut progress = Progress::new(target.quiet);
        let doubts = listener::doubts(&target.pids, &target.servers);
        doubts.iter().for_each(|doubt| progress.warn(doubt));
        let client_cpu = CpuClock::start(i32::try_from(std::process::id())?)?;
        Ok(Self { target, swarm, progress, interrupt, server_cpu, client_cpu, names: Vec::new(), doubts })
    }

    /// A path below the scenario's own znode.
    pub(super) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.target.chroot)
    }

    fn admin(&self) -> Result<Admin> {
        Admin::open(self.target.servers[0], self.target.session_timeout_ms, self.target.reply_timeout)
    }

    /// Creates the scenario's own znode and those below it, in order, all with this value.
    pub(super) fn prepare(&mut self, names: Vec<String>, value: &[u8]) -> Result<()> {
        self.names = names;
        let mut admin = self.admin()?;
        let chroot = self.target.chroot.clone();
        let all = std::iter::once(chroot).chain(self.names.iter().map(|name| self.path(name)));
        admin
            .create_all(all, |_| value, |_| Ok(()))
            .context("preparing; does the --chroot exist, or not its parent?")?;
        admin.close()
    }

    /// Removes what [`Self::prepare`] made. Fails if the run was interrupted.
    pub(super) fn clean_up(&mut self) -> Result<()> {
        if self.target.keep {
            self.progress.say(&format!("the znodes below {} are kept", self.target.chroot));
        } else {
            self.remove(self.admin().context("cleaning up")?)?;
        }
        ensure!(!self.interrupt.seen(), "interrupted");
        Ok(())
    }

    fn remove(&self, mut admin: Admin) -> Result<()> {
        let below = self.names.iter().rev().map(|name| self.path(name));
        let all = below.chain([self.target.chroot.clone()]);
        admin.delete_all(all, |_| Ok(())).context("cleaning up")?;
        admin.close()
    }

    /// Removes what was prepared, when the sessions cannot be opened. Returns the cause.
    fn withdraw(&mut self, cause: Error) -> Error {
        let Target { session_timeout_ms, reply_timeout, keep, .. } = self.target;
        // Closes all sessions, so that the server accepts the one that cleans up.
        let Ok(empty) = Swarm::new(session_timeout_ms, reply_timeout) else { return cause };
        self.swarm = empty;
        if keep {
            return cause;
        }
        let admin = Admin::open_late(self.target.servers[0], session_timeout_ms, reply_timeout);
        match admin.and_then(|admin| self.remove(admin)) {
            Ok(()) => Withdrawn::because(&cause),
            // The removal fails for the same cause; the caller reports that the znodes are left behind.
            Err(_) => cause,
        }
    }

    /// Whether Ctrl-C was pressed.
    pub(super) fn stopped(&mut self) -> bool {
        self.interrupt.seen()
    }

    /// Opens sessions, some at a time. Returns their numbers. If not all can be opened, what was prepared is removed.
    pub(super) fn open_sessions(&mut self, count: u32) -> Result<Vec<usize>> {
        self.try_open_sessions(count).map_err(|cause| self.withdraw(cause))
    }

    fn try_open_sessions(&mut self, count: u32) -> Result<Vec<usize>> {
        const AT_ONCE: usize = 64;
        let mut opened = Vec::new();
        let mut begun = 0;
        while opened.len() < count as usize {
            while begun < count as usize && begun - opened.len() < AT_ONCE {
                let servers = &self.target.servers;
                self.swarm.open(servers[begun % servers.len()])?;
                begun += 1;
            }
            for event in self.poll()? {
                match event.what {
                    What::Opened => opened.push(event.peer),
                    what => bail!("session {}: {what:?} while sessions are opened", event.peer),
                }
            }
            ensure!(!self.interrupt.seen(), "interrupted");
            self.progress.now_and_then(|| format!("opening: {} of {count} sessions", opened.len()));
        }
        opened.sort_unstable();
        Ok(opened)
    }

    /// Closes sessions and waits until all are closed.
    pub(super) fn close_sessions(&mut self, sessions: &[usize]) -> Result<()> {
        for session in sessions {
            self.swarm.close(*session)?;
        }
        let mut left = sessions.len();
        while left > 0 {
            for event in self.poll()? {
                match event.what {
                    What::Closed => left -= 1,
                    what => bail!("session {}: {what:?} while sessions are closed", event.peer),
                }
            }
        }
        Ok(())
    }

    /// What comes next, if anything comes soon.
    pub(super) fn poll(&mut self) -> Result<Vec<Event>> {
        self.swarm.poll(Duration::from_millis(50))
    }

    /// Counts CPU time from here.
    pub(super) fn restart_cpu(&mut self) -> Result<()> {
        self.client_cpu.restart()?;
        self.server_cpu.as_mut().map(ServiceCpu::restart).transpose().context("--pid").map(|_| ())
    }

    /// Nanoseconds the server used since the last restart.
    pub(super) fn server_cpu_ns(&mut self) -> Result<Option<u64>> {
        self.server_cpu.as_mut().map(ServiceCpu::elapsed_ns).transpose().context("--pid")
    }
}

/// The server's and the client's CPU time for each of what was counted.
pub(super) fn cpu_row(table: &mut Table, each: &str, server_us: Option<f64>, client_us: f64) {
    if let Some(cpu) = server_us {
        table.row("server CPU", &format!("{cpu:.3} us/{each}"));
    }
    table.row("client CPU", &format!("{client_us:.3} us/{each}"));
}

/// Nanoseconds as microseconds, for reports.
pub(super) fn us(ns: u64) -> f64 {
    ratio(ns, 1000)
}
