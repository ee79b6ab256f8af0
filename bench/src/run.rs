//! One load from start to end: prepare the znodes, open the sessions, warm up, measure, drain, clean up.
//!
//! The coordinating thread; it samples the server's CPU time at both ends of the measured window, merges what the client
//! threads hand over, prints progress and watches for Ctrl-C, after which it still removes what it made. Knows no
//! protocol.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, anyhow, bail, ensure};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::connection::{Connection, Pace};
use crate::console::{Interrupt, Progress};
use crate::cpu::{CpuClock, ServiceCpu, resident_kib};
use crate::figures::ratio;
use crate::limits::TIMELINE_ROWS_MAX;
use crate::listener;
use crate::meter::{Meter, Shared, cell};
use crate::own_znodes::OwnZnodes;
use crate::plan::{Extent, Plan};
use crate::session::{self, Admin};
use crate::timeline::{Gatherer, Row, Total};
use crate::worker::{Findings, Orders, Worker};
use crate::workload::Workload;

/// File descriptors a run needs beside one per connection.
const FILES_SPARE: u64 = 64;

/// What a run measured; nothing in it is rounded.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) window: Duration,
    /// By [`cell`]: the kinds of requests and the paces of connections.
    pub(crate) totals: Vec<Option<Total>>,
    pub(crate) rows: Vec<Row>,
    /// Tolerated errors by code.
    pub(crate) errors: BTreeMap<i32, u64>,
    /// Due but never sent, in an open loop.
    pub(crate) backlog: u64,
    /// Those of the backlog that are too many for the histograms.
    pub(crate) unrecorded: u64,
    pub(crate) server_cpu_ns: Option<u64>,
    pub(crate) client_cpu_ns: u64,
    pub(crate) server_resident_kib: Option<u64>,
    /// Warnings about the processes of `--pid`.
    pub(crate) doubts: Vec<String>,
}

/// What every session has created, by the session's number.
type Created = BTreeMap<u32, OwnZnodes>;

/// Runs the plan.
pub(crate) fn execute(plan: &Plan) -> Result<Measured> {
    let target = &plan.target;
    let (progress, interrupt) = (Progress::new(target.quiet), Interrupt::new()?);
    let mut run = Run { plan, progress, interrupt, parents: Vec::new() };
    raise_file_limit(plan.connections_all())?;
    let workload = Workload::of(plan);
    let server_cpu = ServiceCpu::of(&target.pids).context("--pid")?;
    let doubts = listener::doubts(&target.pids, &target.servers);
    doubts.iter().for_each(|doubt| run.progress.warn(doubt));
    run.prepare(&workload)?;
    let loaded = run.load(&workload, server_cpu);
    let (measured, created) = left_behind(loaded, &target.chroot)?;
    let measured = Measured { doubts, ..measured };
    if target.keep {
        run.progress.say(&format!("the znodes below {} are kept", target.chroot));
    } else {
        let admin = run.admin().context("cleaning up")?;
        run.clean_up(admin, &workload, &created)?;
    }
    if run.interrupt.seen() {
        bail!("interrupted");
    }
    Ok(measured)
}

/// Why a run failed after which no znode was left behind.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Withdrawn(String);

impl Withdrawn {
    pub(crate) fn because(cause: &Error) -> Error {
        Self(format!("{cause:#}")).into()
    }
}

/// Adds to the error what a failed run leaves on the server.
pub(crate) fn left_behind<T>(result: Result<T>, chroot: &str) -> Result<T> {
    result.map_err(|error| if error.is::<Withdrawn>() { error } else { anyhow!("{error:#}; left behind: {chroot}") })
}

struct Run<'a> {
    plan: &'a Plan,
    progress: Progress,
    interrupt: Interrupt,
    /// Those above the chroot that were not there before, uppermost first.
    parents: Vec<String>,
}

impl Run<'_> {
    fn admin(&self) -> Result<Admin> {
        let target = &self.plan.target;
        Admin::open(target.servers[0], target.session_timeout_ms, target.reply_timeout)
    }

    fn prepare(&mut self, workload: &Workload) -> Result<()> {
        let mut admin = self.admin()?;
        let connections = self.plan.connections_all();
        let chroot = &self.plan.target.chroot;
        let total = workload.prepared(connections).count();
        let mut paths = workload.prepared(connections).peekable();
        // The parents of a chroot of several parts may exist already.
        while paths.peek().is_some_and(|path| path.len() < chroot.len()) {
            let Some(parent) = paths.next() else { break };
            match admin.create_all(std::iter::once(parent.clone()), |_| b"", |_| Ok(())) {
                Ok(()) => self.parents.push(parent),
                Err(error) => ensure!(format!("{error:#}").contains("NODEEXISTS"), error),
            }
        }
        let (progress, interrupt) = (&mut self.progress, &mut self.interrupt);
        let tick = |done| {
            ensure!(!interrupt.seen(), "interrupted; left behind: {chroot}");
            progress.now_and_then(|| format!("preparing: {done} of {total} znodes"));
            Ok(())
        };
        admin.create_all(paths, |nth| workload.prepared_value(nth), tick).context("preparing")?;
        admin.close()
    }

    fn connect(&mut self, workload: &Workload) -> Result<(Vec<Vec<Connection>>, Duration)> {
        let plan = self.plan;
        let target = &plan.target;
        let mut shares: Vec<Vec<Connection>> = (0..plan.threads).map(|_| Vec::new()).collect();
        let mut session_timeout = Duration::MAX;
        let pace = if plan.rate.is_some() { Pace::Open } else { Pace::Closed };
        for number in 0..plan.connections_all() {
            let server = target.servers[number as usize % target.servers.len()];
            let opened = session::open(server, target.session_timeout_ms, target.reply_timeout);
            let (stream, granted) = opened.with_context(|| format!("opening session {number}"))?;
            session_timeout = session_timeout.min(granted);
            let floods = plan.flood.filter(|_| number >= plan.connections);
            let pace = floods.map_or((pace, plan.depth), |flood| (Pace::Closed, flood.depth));
            let connection = Connection::new(stream, server, number, workload, pace)?;
            shares[thread_of(plan, number) as usize].push(connection);
            ensure!(!self.interrupt.seen(), "interrupted");
            self.progress.now_and_then(|| format!("connecting: {number} of {} sessions", plan.connections_all()));
        }
        Ok((shares, session_timeout))
    }

    /// Removes what was prepared, when the sessions cannot be opened. Returns the cause.
    fn withdraw(&mut self, workload: &Workload, cause: Error) -> Error {
        let target = &self.plan.target;
        if target.keep {
            return cause;
        }
        let stock = OwnZnodes::prepared(workload.stock);
        let created = (0..self.plan.connections_all()).map(|number| (number, stock.clone())).collect();
        let admin = Admin::open_late(target.servers[0], target.session_timeout_ms, target.reply_timeout);
        match admin.and_then(|admin| self.clean_up(admin, workload, &created)) {
            Ok(()) => Withdrawn::because(&cause),
            // The removal fails for the same cause; the caller reports that the znodes are left behind.
            Err(_) => cause,
        }
    }

    /// Returns the figures and what each connection created.
    fn load(&mut self, workload: &Workload, server_cpu: Option<ServiceCpu>) -> Result<(Measured, Created)> {
        let connected = self.connect(workload);
        let (shares, session_timeout) = connected.map_err(|cause| self.withdraw(workload, cause))?;
        let plan = self.plan;
        let shared = &Shared::new(plan.interval, intervals_max(plan));
        let mut gatherer = Gatherer::new(plan.flood.map(|_| Pace::Open));
        let orders = |thread: usize, share: &[Connection]| Orders {
            interval_ns: plan.rate.and_then(|rate| interval_ns(rate, plan.connections, share)),
            reply_timeout: plan.target.reply_timeout,
            session_timeout,
            cpu: plan.target.cpu(thread),
        };
        let mut workers = Vec::new();
        for share in shares {
            let (thread, batches, empty) = gatherer.join();
            let kinds = workload.kinds();
            let cells = share.iter().flat_map(|of| kinds.iter().map(|kind| cell(of.pace, *kind)));
            let meter = Meter::new(thread, cells, batches, empty);
            workers.push(Worker::new(shared, workload, orders(thread, &share), share, meter)?);
        }
        thread::scope(|scope| {
            let threads: Vec<_> = workers.into_iter().map(|worker| scope.spawn(|| worker.run())).collect();
            let watched = self.watch(shared, server_cpu, &mut gatherer);
            shared.end();
            if watched.is_err() {
                shared.fail();
            }
            let results = threads.into_iter().map(|thread| thread.join().expect("a panic aborts the process"));
            let results = results.collect();
            let window = watched?;
            gatherer.finish()?;
            gather(plan, &window, results, gatherer)
        })
    }

    /// Warms up and measures. A failed client thread ends the window early; its own error is reported by the caller.
    fn watch(
        &mut self,
        shared: &Shared,
        mut server_cpu: Option<ServiceCpu>,
        gatherer: &mut Gatherer,
    ) -> Result<Window> {
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
        let begun_ns = shared.begin();
        let mut looked = begun;
        while !self.over(begun, shared) && !self.stopped(shared) {
            thread::sleep(self.step(begun));
            if looked.elapsed() > Duration::from_millis(250) {
                looked = Instant::now();
                server_cpu.as_mut().map(ServiceCpu::look).transpose().context("--pid")?;
            }
            if gatherer.look()? > 0 {
                self.progress.now_and_then(|| standing(gatherer, shared));
            }
            ensure!(gatherer.rows.len() < TIMELINE_ROWS_MAX as usize, "the timeline is full; give a longer --interval");
        }
        let elapsed = Duration::from_nanos(shared.end() - begun_ns);
        let server_cpu_ns = server_cpu.as_mut().map(ServiceCpu::elapsed_ns).transpose().context("--pid")?;
        let client_cpu_ns = client_cpu.elapsed_ns()?;
        Ok(Window { elapsed, server_cpu_ns, client_cpu_ns })
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

    fn clean_up(&mut self, mut admin: Admin, workload: &Workload, created: &Created) -> Result<()> {
        let all_created =
            created.iter().flat_map(|(connection, own)| own.there().map(|nth| workload.created_path(*connection, nth)));
        let chroot = &self.plan.target.chroot;
        let mut prepared: Vec<String> = workload.shared(self.plan.connections_all()).collect();
        prepared.retain(|path| path.len() >= chroot.len());
        let total = prepared.len() + created.values().map(|own| own.there().count()).sum::<usize>();
        let (progress, interrupt) = (&mut self.progress, &mut self.interrupt);
        let interrupted_before = interrupt.seen();
        admin
            .delete_all(all_created.chain(prepared.into_iter().rev()), |done| {
                let again = interrupt.seen_again() || (!interrupted_before && interrupt.seen());
                ensure!(!again, "interrupted while cleaning up; the rest below {chroot} is left behind");
                progress.now_and_then(|| format!("cleaning up: {done} of {total} znodes"));
                Ok(())
            })
            .context("cleaning up")?;
        for parent in self.parents.iter().rev() {
            // Another client may have created a znode there, or have removed it.
            if let Err(error) = admin.delete_all(std::iter::once(parent.clone()), |_| Ok(())) {
                let said = format!("{error:#}");
                ensure!(said.contains("NOTEMPTY") || said.contains("NONODE"), error.context("cleaning up"));
            }
        }
        admin.close()
    }
}

struct Window {
    elapsed: Duration,
    server_cpu_ns: Option<u64>,
    client_cpu_ns: u64,
}

/// The client thread of a connection: they are dealt out in turn, but a flood has the last thread to itself.
fn thread_of(plan: &Plan, number: u32) -> u32 {
    match plan.flood {
        Some(_) if plan.threads > 1 && number >= plan.connections => plan.threads - 1,
        Some(_) if plan.threads > 1 => number % (plan.threads - 1),
        _ => number % plan.threads,
    }
}

/// Nanoseconds between two requests of one thread's open loop: every connection has the same share of the rate.
fn interval_ns(rate: f64, connections: u32, share: &[Connection]) -> Option<f64> {
    let open = share.iter().filter(|connection| connection.pace == Pace::Open).count();
    let open = u32::try_from(open).ok().filter(|open| *open > 0)?;
    Some(1e9 * f64::from(connections) / (rate * f64::from(open)))
}

/// The timeline's length, if it is known.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn intervals_max(plan: &Plan) -> u32 {
    match plan.extent {
        // What ends a little after a full interval does not make one more.
        Extent::Time(duration) => ((duration.as_secs_f64() / plan.interval.as_secs_f64() - 0.1).ceil() as u32).max(1),
        Extent::Ops(_) => u32::MAX,
    }
}

/// The last complete interval, in one line.
fn standing(gatherer: &Gatherer, shared: &Shared) -> String {
    let interval = Duration::from_nanos(shared.interval_ns()).as_secs_f64();
    let row = gatherer.rows.last().copied().unwrap_or_default();
    let (second, p99) = (gatherer.rows.len(), Duration::from_nanos(row.p99_ns));
    let p99 = if row.p99_ns == 0 { "-".to_owned() } else { format!("{p99:.1?}") };
    let rate = ratio(row.operations, 1) / interval;
    let errors: u64 = gatherer.errors.values().sum();
    format!("{:.0} s: {rate:.0} operations/s, p99 {p99}, {errors} errors", ratio(second as u64, 1) * interval)
}

fn gather(
    plan: &Plan,
    window: &Window,
    results: Vec<Result<Findings>>,
    gatherer: Gatherer,
) -> Result<(Measured, Created)> {
    let (mut backlog, mut unrecorded, mut created) = (0, 0, Created::new());
    let mut failures = Vec::new();
    for result in results {
        match result {
            Ok(findings) => {
                backlog += findings.backlog;
                unrecorded += findings.unrecorded;
                created.extend(findings.own);
            }
            Err(error) => failures.push(error),
        }
    }
    // The thread that failed first has the cause; the others only report that they stopped.
    failures.sort_by_key(|error| error.to_string().starts_with("stopped because"));
    if let Some(first) = failures.into_iter().next() {
        return Err(first);
    }
    let (totals, rows, errors) = gatherer.into_totals();
    let measured = Measured {
        window: window.elapsed,
        totals,
        rows,
        errors,
        backlog,
        unrecorded,
        server_cpu_ns: window.server_cpu_ns,
        client_cpu_ns: window.client_cpu_ns,
        server_resident_kib: resident_kib(&plan.target.pids),
        doubts: Vec::new(),
    };
    Ok((measured, created))
}

/// Refuses a run the process has not enough file descriptors for, after raising the soft limit.
pub(crate) fn raise_file_limit(connections: u32) -> Result<()> {
    let needed = u64::from(connections) + FILES_SPARE;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft >= needed {
        return Ok(());
    }
    ensure!(hard >= needed, "{connections} sessions need {needed} open files, the hard limit is {hard} (ulimit -n)");
    setrlimit(Resource::RLIMIT_NOFILE, needed, hard).context("raising the limit of open files")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Flood;
    use crate::workload::tests::plan;

    #[test]
    fn a_flood_has_a_thread_to_itself_if_there_are_two() {
        fn check(threads: u32, flood: bool, expect: &[u32]) {
            let flood = flood.then_some(Flood { connections: 2, depth: 1 });
            let plan = Plan { connections: 3, threads, flood, ..plan("") };
            let found: Vec<u32> = (0..plan.connections_all()).map(|number| thread_of(&plan, number)).collect();
            assert_eq!(found, expect, "{threads} threads");
        }
        check(1, false, &[0, 0, 0]);
        check(2, false, &[0, 1, 0]);
        check(1, true, &[0, 0, 0, 0, 0]);
        check(2, true, &[0, 0, 0, 1, 1]);
        check(3, true, &[0, 1, 0, 2, 2]);
    }

    #[test]
    fn a_whole_number_of_intervals_makes_no_stump() {
        let count = |flags: &str| intervals_max(&plan(flags));
        assert_eq!(count("--duration 10"), 10);
        assert_eq!(count("--duration 10.05"), 10);
        assert_eq!(count("--duration 2.5"), 3);
        assert_eq!(count("--duration 0.3"), 1);
        assert_eq!(count("--duration 1 --interval 0.2"), 5);
        assert_eq!(count("--ops 5"), u32::MAX);
    }
}
