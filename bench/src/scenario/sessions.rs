//! Session storms: connections opened, sessions granted and closed again, as fast as possible or at a rate.
//!
//! One thread keeps a number of sessions on their way; each is a new TCP connection. With a rate, a session's time
//! counts from when it was due. With `--no-close` the sessions stay, for the rate of opening alone.

use std::time::Duration;

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;

use crate::args::{CommonArgs, rate, seconds, some_seconds, up_to};
use crate::due::Due;
use crate::histogram::{Latency, histogram, ratio, us};
use crate::limits::CONNECTIONS_MAX;
use crate::report::{Report, fields, overloaded};
use crate::stage::Stage;
use crate::swarm::{POLL, Swarm, What, unexpected};

const HELP: &str = "\
How it works:
  It opens sessions and closes them. Each is a new TCP connection, a createSession that the server makes durable, and a
  closeSession.

How to read it:
  Without --rate it finds the most that the server, or this one client thread (see client CPU), can do; its latency means
  little. With --rate latency counts from when each session was due, as a client sees it that reconnects after an outage.
  A long run can use up the ports of one address.

Examples:
  corral bench sessions --concurrency 64 --pid \"$(pidof corral)\"   open and close as fast as possible
  corral bench sessions --rate 500 --duration 20                       a steady stream of clients
  corral bench sessions --no-close -n 10000                            how fast ten thousand clients connect";

/// Flags of `sessions`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct SessionArgs {
    /// Sessions that are being opened or closed at the same time
    #[arg(long, default_value_t = 32, value_parser = up_to(CONNECTIONS_MAX))]
    concurrency: u32,
    /// Seconds to measure
    #[arg(long, default_value = "5", value_name = "SECONDS", value_parser = some_seconds)]
    duration: Duration,
    /// Seconds of the same load before measuring
    #[arg(long, default_value = "1", value_name = "SECONDS", value_parser = seconds)]
    warmup: Duration,
    /// Open loop: begin this many sessions per second; latency counts from when a session was due
    #[arg(long, value_name = "PER_SECOND", value_parser = rate)]
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

struct Storm<'a> {
    stage: Stage,
    swarm: Swarm<()>,
    args: &'a SessionArgs,
    /// When sessions are due; without a rate there is always one.
    schedule: Option<Due>,
    begun: u64,
    done: u64,
    on_their_way: u32,
    /// When sessions were due that are on their way, by session.
    due: Vec<u64>,
    open: Histogram<u64>,
    close: Histogram<u64>,
}

pub(super) fn run(args: &SessionArgs) -> Result<()> {
    let stage = Stage::set(&args.common, args.concurrency.max(args.count) + 1)?;
    let swarm = stage.swarm()?;
    let mut storm = Storm {
        schedule: args.rate.map(|rate| Due::new(swarm.now_ns(), 1e9 / rate)),
        stage,
        swarm,
        args,
        begun: 0,
        done: 0,
        on_their_way: 0,
        due: Vec::new(),
        open: histogram(),
        close: histogram(),
    };
    if !args.no_close {
        storm.blow(Some(args.warmup))?;
    }
    let report = storm.measure()?;
    storm.swarm.close_all(|event| Err(unexpected(&event)))?;
    ensure!(!storm.stage.stopped(), "interrupted");
    report.print(&args.common)
}

impl Storm<'_> {
    /// Blows through the measured window.
    fn measure(&mut self) -> Result<Report> {
        let args = self.args;
        self.open.reset();
        self.close.reset();
        self.stage.restart_cpu()?;
        let (before, begin_ns) = (self.done, self.swarm.now_ns());
        self.blow((!args.no_close).then_some(args.duration))?;
        let end_ns = self.swarm.now_ns();
        let (sessions, (server_ns, client_ns)) = (self.done - before, self.stage.cpu_ns()?);
        // Sessions on their way count with all they take, those still due with all they have waited. A server that
        // stalls at the end of the window is charged for it as for any other stall.
        while self.on_their_way > 0 {
            self.take(POLL)?;
        }
        let backlog = self.charge_backlog(end_ns);
        let seconds = Duration::from_nanos(end_ns - begin_ns).as_secs_f64();
        let throughput = ratio(sessions, 1) / seconds;
        let mut remarks = self.stage.doubts.clone();
        remarks.extend(args.rate.and_then(|rate| overloaded(rate, throughput)));
        let each = |ns| us(ns) / ratio(sessions.max(1), 1);
        let what = if args.no_close { "opened and held" } else { "opened and closed" };
        let pace = args.rate.map_or("as fast as possible".to_owned(), |rate| format!("at {rate:.0}/s"));
        Ok(Report {
            scenario: "sessions",
            headline: format!("{what}, {} at once, {pace}", args.concurrency),
            load: fields! { concurrency: args.concurrency, offered_rate: args.rate, closed_each: !args.no_close },
            figures: fields! {
                seconds,
                sessions,
                throughput,
                backlog,
                open_us: Latency::of(&self.open),
                close_us: (!args.no_close).then(|| Latency::of(&self.close)),
                server_cpu_us_per_session: server_ns.map(each),
                client_cpu_us_per_session: each(client_ns),
            },
            remarks,
        })
    }

    /// Opens sessions for a time, or until all are there that are to be held.
    fn blow(&mut self, extent: Option<Duration>) -> Result<()> {
        let begin_ns = self.swarm.now_ns();
        let end_ns = extent.map(|extent| begin_ns + u64::try_from(extent.as_nanos()).unwrap_or(u64::MAX));
        loop {
            let now_ns = self.swarm.now_ns();
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
        const LONGEST_MS: u16 = 20;
        let due = self.schedule.as_ref().filter(|_| self.has_room());
        let wait_ms = due.map_or(LONGEST_MS, |due| due.wait_ms(self.swarm.now_ns(), LONGEST_MS));
        Duration::from_millis(wait_ms.into())
    }

    fn has_room(&self) -> bool {
        let limit = if self.args.no_close { u64::from(self.args.count) } else { u64::MAX };
        self.on_their_way < self.args.concurrency && self.begun < limit
    }

    /// Begins what is due, as far as there is room.
    fn begin_due(&mut self, now_ns: u64) -> Result<()> {
        while self.has_room() {
            let due_ns = match &mut self.schedule {
                Some(due) if due.next_ns() > now_ns => return Ok(()),
                Some(due) => due.take(),
                None => self.swarm.now_ns(),
            };
            self.begun += 1;
            let session = self.swarm.open(self.stage.target.server(usize::try_from(self.begun)?))?;
            self.due.resize(self.due.len().max(session + 1), 0);
            self.due[session] = due_ns;
            self.on_their_way += 1;
        }
        Ok(())
    }

    fn take(&mut self, wait: Duration) -> Result<()> {
        for event in self.swarm.poll(wait)? {
            let due_ns = self.due[event.peer];
            match event.what {
                What::Opened => self.open.saturating_record(event.at_ns.saturating_sub(due_ns)),
                What::Closed => self.close.saturating_record(event.at_ns - event.since_ns),
                _ => return Err(unexpected(&event)),
            }
            if event.what == What::Opened && !self.args.no_close {
                self.swarm.close(event.peer)?;
            } else {
                self.done += 1;
                self.on_their_way -= 1;
            }
        }
        Ok(())
    }

    /// Enters the sessions that were due but never begun with the time they had waited so far.
    fn charge_backlog(&mut self, end_ns: u64) -> u64 {
        // Sessions that are to be held are all begun.
        let Some(due) = self.schedule.as_mut().filter(|_| !self.args.no_close) else { return 0 };
        due.backlog(self.swarm.now_ns(), end_ns, |waited_ns, count| self.open.saturating_record_n(waited_ns, count))
    }
}
