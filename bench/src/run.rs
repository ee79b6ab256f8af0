//! One run from start to end: prepare the znodes, open the sessions, warm up, measure, drain, clean up.
//!
//! The coordinating thread; it samples the server's CPU time at both ends of the measured window, prints progress and
//! watches for Ctrl-C, after which it still removes what it made. Knows no protocol.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::args::{Extent, Operation, Plan};
use crate::connection::Connection;
use crate::cpu::{CpuClock, resident_kib};
use crate::session::{self, Admin};
use crate::worker::{Findings, Orders, Phase, Shared, Worker, histogram};
use crate::workload::Workload;

/// File descriptors a run needs beside one per connection.
const FILES_SPARE: u64 = 64;

/// What a run measured; nothing in it is rounded.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) window: Duration,
    /// Operations completed in the window.
    pub(crate) operations: u64,
    /// Latency in nanoseconds.
    pub(crate) latency: Histogram<u64>,
    /// Due but never sent, in an open loop.
    pub(crate) backlog: u64,
    pub(crate) server_cpu_ns: Option<u64>,
    pub(crate) client_cpu_ns: u64,
    pub(crate) server_resident_kib: Option<u64>,
}

/// Runs the plan.
pub(crate) fn execute(plan: &Plan) -> Result<Measured> {
    let mut run = Run { plan, progress: Progress::new(plan.quiet), interrupt: Interrupt::new()? };
    raise_file_limit(plan.connections)?;
    let workload = Workload::of(plan);
    let server_cpu = plan.pid.map(CpuClock::start).transpose().context("--pid")?;
    run.prepare(&workload)?;
    let loaded = run.load(&workload, server_cpu);
    let (measured, created) = loaded.with_context(|| format!("the znodes below {} are left behind", plan.chroot))?;
    if plan.keep {
        run.progress.say(&format!("the znodes below {} are kept", plan.chroot));
    } else {
        run.clean_up(&workload, &created)?;
    }
    if run.interrupt.seen() {
        bail!("interrupted");
    }
    Ok(measured)
}

struct Run<'a> {
    plan: &'a Plan,
    progress: Progress,
    interrupt: Interrupt,
}

impl Run<'_> {
    fn admin(&self) -> Result<Admin> {
        Admin::open(self.plan.servers[0], self.plan.session_timeout_ms, self.plan.reply_timeout)
    }

    fn prepare(&mut self, workload: &Workload) -> Result<()> {
        let mut admin = self.admin()?;
        let total = workload.prepared(self.plan.connections).count();
        let mut paths = workload.prepared(self.plan.connections).peekable();
        // The parents of a chroot of several parts may exist already.
        while paths.peek().is_some_and(|path| path.len() < self.plan.chroot.len()) {
            let made = admin.create_all(paths.next().into_iter(), b"", |_| Ok(()));
            if let Err(error) = made {
                ensure!(format!("{error:#}").contains("NODEEXISTS"), error);
            }
        }
        let (progress, interrupt) = (&mut self.progress, &mut self.interrupt);
        admin
            .create_all(paths, &workload.value, |done| {
                ensure!(!interrupt.seen(), "interrupted; the znodes below {} are left behind", self.plan.chroot);
                progress.now_and_then(|| format!("preparing: {done} of {total} znodes"));
                Ok(())
            })
            .context("preparing")?;
        admin.close()
    }

    fn connect(&mut self) -> Result<(Vec<Vec<Connection>>, Duration)> {
        let plan = self.plan;
        let mut shares: Vec<Vec<Connection>> = (0..plan.threads).map(|_| Vec::new()).collect();
        let mut session_timeout = Duration::MAX;
        for number in 0..plan.connections {
            let server = plan.servers[number as usize % plan.servers.len()];
            let opened = session::open(server, plan.session_timeout_ms, plan.reply_timeout);
            let (stream, granted) = opened.with_context(|| format!("opening session {number}"))?;
            session_timeout = session_timeout.min(granted);
            shares[(number % plan.threads) as usize].push(Connection::new(stream, server, number)?);
            ensure!(!self.interrupt.seen(), "interrupted");
            self.progress.now_and_then(|| format!("connecting: {number} of {} sessions", plan.connections));
        }
        Ok((shares, session_timeout))
    }

    /// Gives the figures and the number of znodes each connection created.
    fn load(&mut self, workload: &Workload, server_cpu: Option<CpuClock>) -> Result<(Measured, Vec<u32>)> {
        let (shares, session_timeout) = self.connect()?;
        let plan = self.plan;
        let shared = &Shared::new();
        let orders = |at: usize| Orders {
            depth: plan.depth,
            interval_ns: plan.rate.map(|rate| 1e9 * f64::from(plan.threads) / rate),
            reply_timeout: plan.reply_timeout,
            session_timeout,
            cpu: plan.cpus.get(at % plan.cpus.len().max(1)).copied(),
        };
        let workers: Result<Vec<Worker<'_>>> = shares
            .into_iter()
            .enumerate()
            .map(|(at, share)| Worker::new(shared, workload, orders(at), share))
            .collect();
        let workers = workers?;
        thread::scope(|scope| {
            let threads: Vec<_> = workers.into_iter().map(|worker| scope.spawn(|| worker.run())).collect();
            let watched = self.watch(shared, server_cpu);
            shared.enter(Phase::Drain);
            if watched.is_err() {
                shared.fail();
            }
            let mut results = Vec::new();
            for thread in threads {
                results.push(thread.join().expect("a panic aborts the process"));
            }
            let window = watched?;
            self.gather(window, results)
        })
    }

    /// Warms up and measures. A failed client thread ends the window early; its own error is reported by the caller.
    fn watch(&mut self, shared: &Shared, mut server_cpu: Option<CpuClock>) -> Result<Window> {
        let mut client_cpu = CpuClock::start(i32::try_from(std::process::id())?)?;
        let warm_until = Instant::now() + self.plan.warmup;
        while Instant::now() < warm_until && !self.stopped(shared) {
            thread::sleep(Duration::from_millis(20).min(warm_until.saturating_duration_since(Instant::now())));
            self.progress.now_and_then(|| "warming up".to_owned());
        }
        client_cpu.restart()?;
        if let Some(cpu) = &mut server_cpu {
            cpu.restart().context("--pid")?;
        }
        let begun = Instant::now();
        shared.enter(Phase::Measure);
        let mut looked = begun;
        while !self.over(begun, shared) && !self.stopped(shared) {
            thread::sleep(self.step(begun));
            if looked.elapsed() > Duration::from_millis(250) {
                looked = Instant::now();
                server_cpu.as_mut().map(CpuClock::look).transpose().context("--pid")?;
            }
            let (done, seconds) = (shared.measured(), begun.elapsed().as_secs());
            self.progress.now_and_then(|| format!("measuring: {done} operations in {seconds} s"));
        }
        let operations = shared.measured();
        let elapsed = begun.elapsed();
        let server_cpu_ns = server_cpu.as_mut().map(CpuClock::elapsed_ns).transpose().context("--pid")?;
        let client_cpu_ns = client_cpu.elapsed_ns()?;
        Ok(Window { elapsed, operations, server_cpu_ns, client_cpu_ns })
    }

    fn over(&self, begun: Instant, shared: &Shared) -> bool {
        match self.plan.extent {
            Extent::Time(duration) => begun.elapsed() >= duration,
            Extent::Ops(operations) => shared.measured() >= operations,
        }
    }

    fn step(&self, begun: Instant) -> Duration {
        match self.plan.extent {
            Extent::Time(duration) => Duration::from_millis(50).min(duration.saturating_sub(begun.elapsed())),
            Extent::Ops(_) => Duration::from_millis(2),
        }
    }

    fn stopped(&mut self, shared: &Shared) -> bool {
        shared.failed() || self.interrupt.seen()
    }

    fn gather(&self, window: Window, results: Vec<Result<Findings>>) -> Result<(Measured, Vec<u32>)> {
        let mut latency = histogram();
        let (mut backlog, mut created) = (0, vec![0; self.plan.connections as usize]);
        let mut failures = Vec::new();
        for (thread, result) in results.into_iter().enumerate() {
            match result {
                Ok(findings) => {
                    latency.add(&findings.latency).context("histograms have the same bounds")?;
                    backlog += findings.backlog;
                    for (at, count) in findings.created.into_iter().enumerate() {
                        created[at * self.plan.threads as usize + thread] = count;
                    }
                }
                Err(error) => failures.push(error),
            }
        }
        // The thread that failed first says why; the others only say that they stopped.
        failures.sort_by_key(|error| error.to_string().starts_with("stopped because"));
        if let Some(first) = failures.into_iter().next() {
            return Err(first);
        }
        let measured = Measured {
            window: window.elapsed,
            operations: window.operations,
            latency,
            backlog,
            server_cpu_ns: window.server_cpu_ns,
            client_cpu_ns: window.client_cpu_ns,
            server_resident_kib: self.plan.pid.and_then(resident_kib),
        };
        Ok((measured, created))
    }

    fn clean_up(&mut self, workload: &Workload, created: &[u32]) -> Result<()> {
        let mut admin = self.admin().context("cleaning up")?;
        let all_created = (0..)
            .zip(created)
            .flat_map(|(connection, count)| (0..*count).map(move |nth| workload.created_path(connection, nth)));
        let mut prepared: Vec<String> = workload.prepared(self.plan.connections).collect();
        prepared.retain(|path| path.len() >= self.plan.chroot.len());
        let total = prepared.len() as u64 + created.iter().map(|count| u64::from(*count)).sum::<u64>();
        let (progress, interrupt) = (&mut self.progress, &mut self.interrupt);
        let chroot = &self.plan.chroot;
        let interrupted_before = interrupt.seen();
        admin
            .delete_all(all_created.chain(prepared.into_iter().rev()), |done| {
                let again = interrupt.seen_again() || (!interrupted_before && interrupt.seen());
                ensure!(!again, "interrupted while cleaning up; the rest below {chroot} is left behind");
                progress.now_and_then(|| format!("cleaning up: {done} of {total} znodes"));
                Ok(())
            })
            .context("cleaning up")?;
        admin.close()
    }
}

struct Window {
    elapsed: Duration,
    operations: u64,
    server_cpu_ns: Option<u64>,
    client_cpu_ns: u64,
}

/// Refuses a run the process has not enough file descriptors for, after raising the soft limit.
fn raise_file_limit(connections: u32) -> Result<()> {
    let needed = u64::from(connections) + FILES_SPARE;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft >= needed {
        return Ok(());
    }
    ensure!(hard >= needed, "--connections {connections} needs {needed} open files, the hard limit is {hard}");
    setrlimit(Resource::RLIMIT_NOFILE, needed, hard).context("raising the limit of open files")
}

/// SIGINT and SIGTERM as something to ask for, so that the znodes can still be removed.
struct Interrupt {
    signals: SignalFd,
    count: u32,
}

impl Interrupt {
    /// Takes both signals over for the rest of the process; threads started later inherit that.
    fn new() -> Result<Self> {
        let mut set = SigSet::empty();
        set.add(Signal::SIGINT);
        set.add(Signal::SIGTERM);
        set.thread_block().context("blocking signals")?;
        let signals = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC);
        Ok(Self { signals: signals.context("signalfd")?, count: 0 })
    }

    fn seen(&mut self) -> bool {
        while let Ok(Some(_)) = self.signals.read_signal() {
            self.count += 1;
        }
        self.count > 0
    }

    fn seen_again(&mut self) -> bool {
        self.seen() && self.count > 1
    }
}

/// A line on standard error every few seconds.
struct Progress {
    quiet: bool,
    last: Instant,
}

impl Progress {
    const EVERY: Duration = Duration::from_secs(5);

    fn new(quiet: bool) -> Self {
        Self { quiet, last: Instant::now() }
    }

    fn now_and_then(&mut self, text: impl FnOnce() -> String) {
        if self.last.elapsed() >= Self::EVERY {
            self.last = Instant::now();
            self.say(&text());
        }
    }

    fn say(&self, text: &str) {
        if !self.quiet {
            // Progress that cannot be printed is no reason to end a run.
            let _ = writeln!(std::io::stderr(), "corral-bench: {text}");
        }
    }
}

/// Whether the operation waits for the server's disk.
pub(crate) const fn writes(op: Operation) -> bool {
    matches!(op, Operation::Set | Operation::Create | Operation::Mix)
}
