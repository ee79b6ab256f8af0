//! Session storms: connections opened, sessions granted and closed again, as fast as possible or at a rate.
//!
//! One thread keeps a number of sessions on their way; each is a new TCP connection. With a rate, a session's time
//! counts from when it was due. With `--no-close` the sessions stay, for the rate of opening alone.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use hdrhistogram::Histogram;
use serde::Serialize;

use super::stage::{Heading, Stage, cpu_row, print, us};
use crate::args::{CommonArgs, flags, program, rate, seconds, up_to};
use crate::due::{Backlog, Due};
use crate::figures::{Latency, ratio};
use crate::limits::CONNECTIONS_MAX;
use crate::meter::histogram;
use crate::report::open_loop_remarks;
use crate::swarm::What;
use crate::table::Table;

/// Ends the help.
fn help() -> String {
    let program = program();
    format!(
        "\
What it does:
  It opens sessions and closes them. Each is a new TCP connection, a createSession that the server makes durable, and a
  closeSession.

How to read it:
  Without --rate it finds the most that the server, or this one client thread (see client CPU), can do; its latency means
  little. With --rate latency counts from when each session was due, as a client sees it that reconnects after an outage.
  A long run can use up the ports of one address.

Examples:
  {program} sessions --concurrency 64 --pid PID   open and close as fast as possible
  {program} sessions --rate 500 --duration 20     a steady stream of clients
  {program} sessions --no-close -n 10000          how fast ten thousand clients connect"
    )
}

/// Flags of `sessions`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = help())]
pub struct SessionArgs {
    /// Sessions that are being opened or closed at the same time
    #[arg(long, default_value_t = 32, value_parser = up_to(CONNECTIONS_MAX))]
    concurrency: u32,
    /// Seconds to measure
    #[arg(long, default_value_t = 5.0, value_name = "SECONDS")]
    duration: f64,
    /// Seconds of the same load before measuring
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS")]
    warmup: f64,
    /// Open loop: begin this many sessions per second; latency counts from when a session was due
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<f64>,
    /// Open --count sessions and hold them all, instead of closing each of them
    #[arg(long)]
    no_close: bool,
    /// Sessions to open with --no-close
    #[arg(short = 'n', long, default_value_t = 1000, requires = "no_close", value_parser = up_to(CONNECTIONS_MAX))]
    count: u32,
    #[command(flatten)]
    common: CommonArgs,
}

/// The report of `sessions`.
#[derive(Debug, Serialize)]
struct SessionReport {
    #[serde(flatten)]
    heading: Heading,
    concurrency: u32,
    offered_rate: Option<f64>,
    closed_each: bool,
    seconds: f64,
    /// Sessions opened (and closed) in the window.
    sessions: u64,
    /// Sessions per second.
    throughput: f64,
    /// Sessions that were due at the end, with a rate, but had found no place.
    backlog: u64,
    /// From the beginning of the TCP connection (with a rate, from when it was due) to the session's grant.
    open_us: Latency,
    /// From the request to close to its reply; absent with `--no-close`.
    close_us: Option<Latency>,
    server_cpu_us_per_session: Option<f64>,
    client_cpu_us_per_session: f64,
    /// What a reader of the figures must know.
    remarks: Vec<String>,
}

/// What the window gave, taken when it ended.
struct Taken {
    end_ns: u64,
    seconds: f64,
    sessions: u64,
    /// Sessions that ended in the window and were due before it.
    earlier: u64,
    server_cpu_ns: Option<u64>,
    client_cpu_ns: u64,
}

struct Storm<'a> {
    stage: Stage,
    args: &'a SessionArgs,
    /// When sessions are due; without a rate there is always one.
    schedule: Option<Due>,
    begun: u64,
    done: u64,
    /// Sessions of the window; with a rate those that were due in it.
    counted: u64,
    /// Sessions that were due earlier count for nothing.
    since_ns: u64,
    on_their_way: u32,
    /// When sessions were due that are on their way, by session.
    due: Vec<u64>,
    held: Vec<usize>,
    open: Histogram<u64>,
    close: Histogram<u64>,
}

pub(super) fn run(args: &SessionArgs) -> Result<()> {
    let rate = flags(args.rate.map(|value| rate("--rate", value)).transpose())?;
    let duration = flags(seconds("--duration", args.duration, 0.001))?;
    let warmup = flags(seconds("--warmup", args.warmup, 0.0))?;
    let stage = Stage::set(&args.common, args.concurrency.max(args.count) + 1)?;
    let mut storm = Storm {
        schedule: rate.map(|rate| Due::new(stage.swarm.now_ns(), 1e9 / rate)),
        stage,
        args,
        begun: 0,
        done: 0,
        counted: 0,
        since_ns: 0,
        on_their_way: 0,
        due: Vec::new(),
        held: Vec::new(),
        open: histogram(),
        close: histogram(),
    };
    if !args.no_close {
        storm.blow(Some(warmup))?;
    }
    let taken = storm.measure((!args.no_close).then_some(duration))?;
    // Those on their way count with all they take, those still due with all they have waited: a server that stalls at the
    // end of the window is charged for it as for any other.
    storm.arrive()?;
    let backlog = storm.charge_backlog(taken.end_ns);
    let report = storm.report(&taken, backlog);
    storm.close_held()?;
    ensure!(!storm.stage.stopped(), "interrupted");
    print(&args.common, &report, table(&report))
}

impl Storm<'_> {
    /// Blows through the measured window.
    fn measure(&mut self, extent: Option<Duration>) -> Result<Taken> {
        self.open.reset();
        self.close.reset();
        self.stage.restart_cpu()?;
        let (before, begin_ns) = (self.done, self.stage.swarm.now_ns());
        self.counted = 0;
        if self.schedule.is_some() && !self.args.no_close {
            self.since_ns = begin_ns;
        }
        self.blow(extent)?;
        let end_ns = self.stage.swarm.now_ns();
        Ok(Taken {
            end_ns,
            seconds: Duration::from_nanos(end_ns - begin_ns).as_secs_f64(),
            sessions: self.counted,
            earlier: self.done - before - self.counted,
            server_cpu_ns: self.stage.server_cpu_ns()?,
            client_cpu_ns: self.stage.client_cpu.elapsed_ns()?,
        })
    }

    /// Opens sessions for a time, or until all are there that are to be held.
    fn blow(&mut self, extent: Option<Duration>) -> Result<()> {
        let begin_ns = self.stage.swarm.now_ns();
        let end_ns = extent.map(|extent| begin_ns + u64::try_from(extent.as_nanos()).unwrap_or(u64::MAX));
        loop {
            let now_ns = self.stage.swarm.now_ns();
            let over = end_ns.map_or(self.done >= u64::from(self.args.count), |end_ns| now_ns >= end_ns);
            if over || self.stage.stopped() {
                return Ok(());
            }
            self.begin_due(now_ns)?;
            self.take(self.wait())?;
            let done = self.done;
            self.stage.progress.now_and_then(|| format!("{done} sessions"));
        }
    }

    /// How long nothing need be begun.
    fn wait(&self) -> Duration {
        const LONGEST_MS: u64 = 20;
        let ahead_ms = match &self.schedule {
            // Sleep only whole milliseconds ahead of the next due time, then poll: the wait must not round up.
            Some(due) if self.on_their_way < self.args.concurrency && self.begun < self.limit() => {
                due.next_ns().saturating_sub(self.stage.swarm.now_ns()) / 1_000_000
            }
            _ => LONGEST_MS,
        };
        Duration::from_millis(ahead_ms.min(LONGEST_MS))
    }

    /// No more sessions are begun in all.
    fn limit(&self) -> u64 {
        if self.args.no_close { u64::from(self.args.count) } else { u64::MAX }
    }

    /// Begins what is due, as far as there are places.
    fn begin_due(&mut self, now_ns: u64) -> Result<()> {
        while self.on_their_way < self.args.concurrency && self.begun < self.limit() {
            let due_ns = match &mut self.schedule {
                Some(due) if due.next_ns() > now_ns => return Ok(()),
                Some(due) => due.take(),
                None => self.stage.swarm.now_ns(),
            };
            self.begun += 1;
            let servers = &self.stage.target.servers;
            let server = servers[usize::try_from(self.begun)? % servers.len()];
            let session = self.stage.swarm.open(server)?;
            self.due.resize(self.due.len().max(session + 1), 0);
            self.due[session] = due_ns;
            self.on_their_way += 1;
        }
        Ok(())
    }

    fn take(&mut self, wait: Duration) -> Result<()> {
        let events = self.stage.swarm.poll(wait)?;
        for event in &events {
            match event.what {
                What::Opened => {
                    if self.due[event.peer] >= self.since_ns {
                        self.open.saturating_record(event.at_ns.saturating_sub(self.due[event.peer]));
                    }
                    if self.args.no_close {
                        self.held.push(event.peer);
                        self.finished(event.peer);
                    } else {
                        self.stage.swarm.close(event.peer)?;
                    }
                }
                What::Closed => {
                    if self.due[event.peer] >= self.since_ns {
                        self.close.saturating_record(event.at_ns - event.since_ns);
                    }
                    self.finished(event.peer);
                }
                what => bail!("session {}: {what:?}, which was not requested", event.peer),
            }
        }
        self.stage.swarm.recycle(events);
        Ok(())
    }

    fn finished(&mut self, session: usize) {
        self.done += 1;
        self.counted += u64::from(self.due[session] >= self.since_ns);
        self.on_their_way -= 1;
    }

    /// Lets those end that are on their way.
    fn arrive(&mut self) -> Result<()> {
        while self.on_their_way > 0 {
            self.take(Duration::from_millis(50))?;
        }
        Ok(())
    }

    /// Enters the sessions that were due but never begun with the time they had waited so far.
    fn charge_backlog(&mut self, end_ns: u64) -> Backlog {
        // Sessions that are to be held are all begun.
        let Some(due) = self.schedule.as_mut().filter(|_| !self.args.no_close) else { return Backlog::default() };
        due.backlog(self.stage.swarm.now_ns(), end_ns, |waited_ns| self.open.saturating_record(waited_ns))
    }

    fn close_held(&mut self) -> Result<()> {
        let held = std::mem::take(&mut self.held);
        self.stage.close_sessions(&held)
    }

    fn report(&self, taken: &Taken, backlog: Backlog) -> SessionReport {
        let Self { args, open, close, .. } = self;
        let Taken { seconds, sessions, server_cpu_ns, client_cpu_ns, .. } = *taken;
        let throughput = ratio(sessions, 1) / seconds;
        let mut remarks = self.stage.doubts.clone();
        if taken.earlier > u64::from(args.concurrency) {
            remarks.push(format!(
                "{} sessions that were due before the window ended in it: they are not counted, but the server's CPU time is",
                taken.earlier
            ));
        }
        remarks.extend(args.rate.into_iter().flat_map(|rate| open_loop_remarks(rate, throughput, backlog.unrecorded)));
        SessionReport {
            heading: Heading::of("sessions", &args.common),
            concurrency: args.concurrency,
            offered_rate: args.rate,
            closed_each: !args.no_close,
            seconds,
            sessions,
            throughput,
            backlog: backlog.all,
            open_us: Latency::of(open),
            close_us: (!args.no_close).then(|| Latency::of(close)),
            server_cpu_us_per_session: server_cpu_ns.map(|ns| us(ns) / ratio(sessions.max(1), 1)),
            client_cpu_us_per_session: us(client_cpu_ns) / ratio(sessions.max(1), 1),
            remarks,
        }
    }
}

fn table(report: &SessionReport) -> Table {
    let mut table = Table::default();
    let what = if report.closed_each { "opened and closed" } else { "opened and held" };
    let pace = report.offered_rate.map_or("as fast as possible".to_owned(), |rate| format!("at {rate:.0}/s"));
    table.row("sessions", &format!("{what}, {} at once, {pace}", report.concurrency));
    table.row("machine", &report.heading.machine.to_string());
    table.row("measured", &format!("{} sessions in {:.2} s", report.sessions, report.seconds));
    table.row("throughput", &format!("{:.0} sessions/s", report.throughput));
    table.latency("open us", &report.open_us);
    if let Some(close) = &report.close_us {
        table.latency("close us", close);
    }
    cpu_row(&mut table, "session", report.server_cpu_us_per_session, report.client_cpu_us_per_session);
    if report.backlog > 0 {
        table.row("backlog", &format!("{} sessions were due and not begun at the end", report.backlog));
    }
    table.notes(&report.remarks);
    table
}
