//! One load from its sessions to its figures: open, warm up, measure, drain.
//!
//! The coordinating thread: it samples the server's CPU time at both ends of the measured window. It merges the results
//! of the client threads, prints progress and watches for Ctrl-C. Knows no protocol.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::cpu::Memory;
use crate::limits::TIMELINE_ROWS_MAX;
use crate::meter::{Gathered, Pace, Shared};
use crate::plan::Plan;
use crate::stage::{Paths, Stage};
use crate::worker::{Client, Findings, Worker};
use crate::workload::{OwnZnodes, Workload};

/// The measurements of a run; nothing in it is rounded.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) window: Duration,
    /// Totals, rows and tolerated errors.
    pub(crate) gathered: Gathered,
    /// Requests of an open loop that were due but never sent.
    pub(crate) backlog: u64,
    pub(crate) server_cpu_ns: Option<u64>,
    pub(crate) client_cpu_ns: u64,
    pub(crate) server_resident_kib: Option<u64>,
    /// Warnings about the processes of `--pid`.
    pub(crate) doubts: Vec<String>,
    /// The znodes that each connection created, with the connection's number.
    own: Vec<(u32, OwnZnodes)>,
    workload: Arc<Workload>,
}

impl Measured {
    /// The znodes that the connections created and did not delete.
    fn made(&self) -> Paths<'_> {
        let path = |number: u32, nth| self.workload.created_path(number, nth);
        Box::new(self.own.iter().flat_map(move |(number, own)| own.there().map(move |nth| path(*number, nth))))
    }
}

pub(crate) fn execute(plan: &Plan) -> Result<Measured> {
    let mut stage = Stage::set(&plan.args.common, plan.connections_all())?;
    let workload = Arc::new(Workload::of(plan, &stage.target.chroot));
    stage.perform(
        &|| workload.prepared(),
        &|nth| workload.prepared_value(nth),
        |stage| measure(stage, plan, &workload),
        Measured::made,
    )
}

fn measure(stage: &mut Stage, plan: &Plan, workload: &Arc<Workload>) -> Result<Measured> {
    let shared = &Shared::new(stage.start, plan.args.threads);
    let mut gathered = Gathered::new(plan.flood.map(|_| Pace::Open));
    let pace = if plan.args.rate.is_some() { Pace::Open } else { Pace::Closed };
    let mut workers = Vec::new();
    for thread in 0..plan.args.threads {
        let numbers: Vec<u32> = (0..plan.connections_all()).filter(|of| thread_of(plan, *of) == thread).collect();
        let mut swarm = stage.swarm()?;
        stage.open_sessions(&mut swarm, &numbers.iter().map(|number| *number as usize).collect::<Vec<_>>())?;
        let client = |number: &u32| {
            let closed = plan.floods(*number).map(|flood| (Pace::Closed, flood.depth));
            let (pace, depth) = closed.unwrap_or((pace, plan.args.depth));
            Client::new(*number, pace, depth, workload)
        };
        let clients: Vec<Client> = numbers.iter().map(client).collect();
        let interval_ns = plan.args.rate.and_then(|rate| interval_ns(rate, plan.args.connections, &clients));
        let thread = (thread as usize, stage.target.cpu(thread as usize));
        workers.push(Worker::new(shared, workload, thread, interval_ns, swarm, clients));
    }
    thread::scope(|scope| {
        let threads: Vec<_> = workers.into_iter().map(|worker| scope.spawn(|| worker.run())).collect();
        let watched = watch(stage, plan, shared, &mut gathered);
        if watched.is_err() {
            shared.end();
            shared.fail();
        }
        let results: Vec<Result<Findings>> =
            threads.into_iter().map(|thread| thread.join().expect("a panic aborts the process")).collect();
        let (window, server_cpu_ns, client_cpu_ns) = watched?;
        gathered.finish(shared.take());
        let (findings, mut failures): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
        // The thread that failed first has the cause; the others only report that they stopped.
        failures.sort_by_key(|of| of.as_ref().is_err_and(|error| error.to_string().starts_with("stopped because")));
        failures.into_iter().next().transpose()?;
        let findings: Vec<Findings> = findings.into_iter().collect::<Result<_>>()?;
        let backlog = findings.iter().map(|of| of.backlog).sum();
        let own = findings.into_iter().flat_map(|of| of.own).collect();
        let memory = Memory::of(&stage.target.pids).ok().flatten();
        let server_resident_kib = memory.map(|memory| memory.rss_kib);
        let doubts = stage.doubts.clone();
        let workload = Arc::clone(workload);
        Ok(Measured {
            window,
            gathered,
            backlog,
            server_cpu_ns,
            client_cpu_ns,
            server_resident_kib,
            doubts,
            own,
            workload,
        })
    })
}

/// Warms up and measures. Returns the window's length and the CPU time of server and client in it. A failed client thread ends
/// the window early; its own error is reported by the caller.
fn watch(
    stage: &mut Stage,
    plan: &Plan,
    shared: &Shared,
    gathered: &mut Gathered,
) -> Result<(Duration, Option<u64>, u64)> {
    let warm_until = Instant::now() + plan.args.warmup;
    while Instant::now() < warm_until && !shared.failed() && !stage.stopped() {
        thread::sleep(Duration::from_millis(20).min(warm_until.saturating_duration_since(Instant::now())));
        stage.progress.now_and_then(|| "warming up".to_owned());
    }
    stage.restart_cpu()?;
    let (begun, before) = (Instant::now(), shared.operations());
    // Entries of the warm-up are dropped.
    shared.take();
    let interval = plan.args.interval;
    while !shared.failed() && !stage.stopped() {
        let step = match plan.args.ops {
            Some(operations) if shared.operations() - before >= operations => break,
            Some(_) => Duration::from_millis(2),
            None if begun.elapsed() >= plan.args.duration => break,
            None => Duration::from_millis(50).min(plan.args.duration.saturating_sub(begun.elapsed())),
        };
        let rows = u32::try_from(gathered.rows.len())?;
        let next = begun + interval * (rows + 1);
        thread::sleep(step.min(next.saturating_duration_since(Instant::now())));
        // The last interval takes the rest of the window.
        if Instant::now() >= next && rows + 1 < plan.intervals_max() {
            gathered.interval(&shared.take(), begun.elapsed());
            stage.progress.now_and_then(|| progress_line(gathered));
        }
        ensure!(rows < TIMELINE_ROWS_MAX, "the timeline is full; give a longer --interval");
    }
    let window = begun.elapsed();
    shared.end();
    gathered.interval(&shared.take(), window);
    let (server_cpu_ns, client_cpu_ns) = stage.cpu_ns()?;
    Ok((window, server_cpu_ns, client_cpu_ns))
}

/// The last complete interval, in one line.
fn progress_line(gathered: &Gathered) -> String {
    let row = gathered.rows.last().copied().unwrap_or_default();
    let errors: u64 = gathered.errors().values().sum();
    let end = row.start + row.seconds;
    format!("{end:.0} s: {:.0} operations/s, p99 {:.0} us, {errors} errors", row.throughput, row.p99_us)
}

/// The client thread of a connection: they are dealt out in turn, but a flood has the last thread to itself.
fn thread_of(plan: &Plan, number: u32) -> u32 {
    let threads = plan.args.threads;
    match plan.flood {
        Some(_) if threads > 1 && number >= plan.args.connections => threads - 1,
        Some(_) if threads > 1 => number % (threads - 1),
        _ => number % threads,
    }
}

/// Nanoseconds between two requests of one thread's open loop: every connection has the same share of the rate.
fn interval_ns(rate: f64, connections: u32, share: &[Client]) -> Option<f64> {
    let open = share.iter().filter(|client| client.pace == Pace::Open).count();
    let open = u32::try_from(open).ok().filter(|open| *open > 0)?;
    Some(1e9 * f64::from(connections) / (rate * f64::from(open)))
}
