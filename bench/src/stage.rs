//! The parts that every run needs around its measuring: the target, sessions, CPU clocks, progress; znodes prepared
//! before and removed after it.
//!
//! On the coordinating thread. Does not know what is measured.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use corral_wire::consts::VERSION_ANY;
use corral_wire::{ErrorCode, OpCode};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::args::{CommonArgs, Target, pin};
use crate::console::{Interrupt, Progress};
use crate::cpu::{CpuClock, doubts};
use crate::frames::{create_tail, encoded, encoded_path, push_frame};
use crate::limits::{ADMIN_WINDOW, ADMIN_WINDOW_BYTES, OPENING_MAX, PLACE_WAIT};
use crate::swarm::{Event, POLL, Swarm, What, granted_or, unexpected};

/// File descriptors a run needs beside one per connection.
const FILES_SPARE: u64 = 64;

pub(crate) struct Stage {
    pub(crate) target: Target,
    pub(crate) progress: Progress,
    pub(crate) interrupt: Interrupt,
    pub(crate) server_cpu: CpuClock,
    pub(crate) client_cpu: CpuClock,
    /// Warnings about the processes of `--pid`.
    pub(crate) doubts: Vec<String>,
    /// From when the clocks of all sessions count.
    pub(crate) start: Instant,
}

pub(crate) type Paths<'a> = Box<dyn Iterator<Item = String> + 'a>;

/// The paths of a run that creates no znodes beside the prepared ones.
pub(crate) fn nothing<R>(_: &R) -> Paths<'_> {
    Box::new(std::iter::empty())
}

impl Stage {
    /// Checks the common flags, allows for so many sessions, and pins the thread.
    pub(crate) fn set(args: &CommonArgs, sessions: u32) -> Result<Self> {
        let target = Target::of(args)?;
        let interrupt = Interrupt::new()?;
        raise_file_limit(sessions)?;
        let server_cpu = CpuClock::of(&target.pids).context("--pid")?;
        pin(target.cpu(0))?;
        let mut progress = Progress::new(args.quiet);
        let doubts = doubts(&target.pids, &target.servers);
        doubts.iter().for_each(|doubt| progress.warn(&format!("warning: {doubt}")));
        let (client_cpu, start) = (CpuClock::own()?, Instant::now());
        Ok(Self { target, progress, interrupt, server_cpu, client_cpu, doubts, start })
    }

    /// A path below the run's own znode.
    pub(crate) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.target.chroot)
    }

    /// Sessions that are yet to be opened.
    pub(crate) fn swarm<T: Copy + std::fmt::Debug>(&self) -> Result<Swarm<T>> {
        Swarm::new(&self.target.args, self.start)
    }

    /// Whether Ctrl-C was pressed.
    pub(crate) fn stopped(&mut self) -> bool {
        self.interrupt.seen()
    }

    /// Counts CPU time from here.
    pub(crate) fn restart_cpu(&mut self) -> Result<()> {
        self.client_cpu.restart()?;
        self.server_cpu.restart().context("--pid")
    }

    /// Nanoseconds of CPU time since the restart: the server's, if its processes are known, and the client's.
    pub(crate) fn cpu_ns(&mut self) -> Result<(Option<u64>, u64)> {
        Ok((self.server_cpu.elapsed_ns().context("--pid")?, self.client_cpu.elapsed_ns()?.unwrap_or(0)))
    }

    /// Opens the sessions with these numbers, some at a time. Returns them as the swarm calls them, in order.
    pub(crate) fn open_sessions<T: Copy + std::fmt::Debug>(
        &mut self,
        swarm: &mut Swarm<T>,
        numbers: &[usize],
    ) -> Result<Vec<usize>> {
        let mut sessions = Vec::new();
        let mut opened = 0;
        while opened < numbers.len() {
            while sessions.len() < numbers.len() && sessions.len() - opened < OPENING_MAX {
                sessions.push(swarm.open(self.target.server(numbers[sessions.len()]))?);
            }
            for Event { peer, what, .. } in swarm.poll(POLL)? {
                ensure!(matches!(what, What::Opened), "session {peer}: {what:?} while sessions open");
                opened += 1;
            }
            ensure!(!self.interrupt.seen(), "interrupted");
            self.progress.now_and_then(|| format!("opening: {opened} of {} sessions", numbers.len()));
        }
        Ok(sessions)
    }

    /// Creates the run's own znode and the znodes `below` it (parents first, the nth with `value(n)`), and measures.
    /// Then it removes them and the znodes that were `made` meanwhile. After a failure it removes what was prepared. If
    /// that fails too, the error names the place.
    pub(crate) fn perform<'v, R>(
        &mut self,
        below: &dyn Fn() -> Vec<String>,
        value: &dyn Fn(u64) -> &'v [u8],
        measure: impl FnOnce(&mut Self) -> Result<R>,
        made: impl for<'r> Fn(&'r R) -> Paths<'r>,
    ) -> Result<R> {
        let mut admin = Admin::open(self, Duration::ZERO)?;
        let chroot = [self.target.chroot.clone()].into_iter();
        admin.run(OpCode::Create, chroot, &|_| create_record(b""), &[], |_| Ok(())).context("preparing")?;
        let filled = self.fill(admin, below(), value).context("preparing");
        let measured = match filled.and_then(|()| measure(self)) {
            Ok(measured) => measured,
            Err(cause) => {
                // The places of the sessions become free only when the server has seen that all of them are closed.
                let removed =
                    if self.target.args.keep { Err(anyhow!("--keep")) } else { Admin::open(self, PLACE_WAIT) };
                let removed = removed.and_then(|admin| self.remove(admin, Box::new([].into_iter()), below()));
                return Err(match removed {
                    Ok(()) => cause,
                    Err(_) => anyhow!("{cause:#}; left behind: {}", self.target.chroot),
                });
            }
        };
        if self.target.args.keep {
            self.progress.say(&format!("the znodes below {} are kept", self.target.chroot));
        } else {
            let removed =
                Admin::open(self, Duration::ZERO).and_then(|admin| self.remove(admin, made(&measured), below()));
            removed.context("cleaning up")?;
        }
        ensure!(!self.interrupt.seen(), "interrupted");
        Ok(measured)
    }

    fn fill<'v>(&mut self, mut admin: Admin, paths: Vec<String>, value: &dyn Fn(u64) -> &'v [u8]) -> Result<()> {
        let (progress, interrupt, total) = (&mut self.progress, &mut self.interrupt, paths.len());
        let record = |nth| create_record(value(nth));
        admin.run(OpCode::Create, paths.into_iter(), &record, &[], |done| {
            ensure!(!interrupt.seen(), "interrupted");
            progress.now_and_then(|| format!("preparing: {done} of {total} znodes"));
            Ok(())
        })?;
        admin.close()
    }

    fn remove(&mut self, mut admin: Admin, made: Paths<'_>, mut below: Vec<String>) -> Result<()> {
        below.insert(0, self.target.chroot.clone());
        let (progress, interrupt, chroot) = (&mut self.progress, &mut self.interrupt, &self.target.chroot);
        let before = interrupt.seen();
        let record = |_| encoded(|writer| writer.i32(VERSION_ANY));
        // The run may have deleted some of the prepared znodes.
        let all = made.chain(below.into_iter().rev());
        admin.run(OpCode::Delete, all, &record, &[ErrorCode::NoNode], |done| {
            let again = interrupt.seen_again() || (!before && interrupt.seen());
            ensure!(!again, "interrupted while cleaning up; the rest below {chroot} is left behind");
            progress.now_and_then(|| format!("cleaning up: {done} znodes"));
            Ok(())
        })?;
        admin.close()
    }
}

fn create_record(value: &[u8]) -> Vec<u8> {
    encoded(|writer| create_tail(writer, value, 0))
}

/// A session that prepares and cleans up: many requests of one kind, pipelined, each reply checked.
struct Admin {
    /// A request's tag is its place in its batch.
    swarm: Swarm<usize>,
    session: usize,
}

impl Admin {
    /// Opens the session, and tries again for so long if it is refused.
    fn open(stage: &Stage, timeout: Duration) -> Result<Self> {
        let until = Instant::now() + timeout;
        loop {
            match Self::try_open(stage) {
                Err(_) if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
                opened => return opened,
            }
        }
    }

    fn try_open(stage: &Stage) -> Result<Self> {
        let mut swarm = stage.swarm()?;
        let session = swarm.open(stage.target.server(0))?;
        while swarm.poll(POLL)?.is_empty() {}
        Ok(Self { swarm, session })
    }

    /// Sends the request for every path, in order. `tick` is called with the number done so far, and stops the work by an error.
    /// Returns how many had no error; others than those tolerated end the work.
    fn run(
        &mut self,
        op: OpCode,
        mut paths: impl Iterator<Item = String>,
        tail: &dyn Fn(u64) -> Vec<u8>,
        tolerated: &[ErrorCode],
        mut tick: impl FnMut(u64) -> Result<()>,
    ) -> Result<u64> {
        let (mut done, mut begun) = (0, 0);
        loop {
            let (mut batch, mut bytes, now_ns) = (Vec::new(), 0, self.swarm.now_ns());
            while batch.len() < ADMIN_WINDOW && bytes < ADMIN_WINDOW_BYTES {
                let Some(path) = paths.next() else { break };
                let (encoded, tail) = (encoded_path(&path), tail(begun));
                bytes += encoded.len() + tail.len();
                let frame = |out: &mut Vec<u8>, xid| push_frame(out, xid, op, &encoded, &tail);
                self.swarm.push(self.session, batch.len(), now_ns, frame);
                batch.push(path);
                begun += 1;
            }
            if batch.is_empty() {
                return Ok(done);
            }
            self.swarm.flush(self.session)?;
            self.swarm.replies(batch.len(), |at, error, _| {
                if tolerated.iter().any(|code| code.code() == error) {
                    return Ok(());
                }
                done += 1;
                granted_or(&format!("{} {}", op.name(), batch[at]), error)
            })?;
            tick(begun)?;
        }
    }

    /// Closes the session and waits for the server to agree.
    fn close(mut self) -> Result<()> {
        self.swarm.close_all(|event| Err(unexpected(&event)))
    }
}

/// Refuses a run the process has not enough file descriptors for, after raising the soft limit.
fn raise_file_limit(connections: u32) -> Result<()> {
    let needed = u64::from(connections) + FILES_SPARE;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft >= needed {
        return Ok(());
    }
    ensure!(hard >= needed, "{connections} sessions need {needed} open files, the hard limit is {hard} (ulimit -n)");
    setrlimit(Resource::RLIMIT_NOFILE, needed, hard).context("raising the limit of open files")
}
