//! Watch fan-out: many sessions watch one znode, one session writes it.
//!
//! In every round each session is armed, the write is sent, and the clock runs until the last session has its event;
//! the writer's own reply is timed beside it. Every session must get exactly one event of the right type and path, and
//! read the new version afterwards. One thread.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use corral_wire::consts::{AddWatchMode, EventType, KeeperState, VERSION_ANY};
use corral_wire::records::{GetDataResponse, WatcherEvent};
use corral_wire::{OpCode, Reader};
use hdrhistogram::Histogram;
use serde::Serialize;

use super::stage::{Heading, Stage, cpu_row, print, us};
use crate::args::{CommonArgs, flags, program, up_to};
use crate::check::expect;
use crate::figures::{Latency, ratio};
use crate::limits::{CONNECTIONS_MAX, ROUNDS_MAX, VALUE_BYTES_MAX};
use crate::meter::histogram;
use crate::run::left_behind;
use crate::swarm::{Event, What, granted};
use crate::table::Table;
use crate::workload::{encoded, value};

/// Ends the help.
fn help() -> String {
    let program = program();
    format!(
        "\
What it does:
  All sessions watch one znode. In each round one more session writes the znode, which fires every watch. The first round
  warms up. Without --persistent the sessions read the znode again before each round, to arm one-shot watches.

How to read it:
  Times count from when the write was sent. Server CPU is that from the write to the last event, per event. All sockets are
  read on one thread, so that the time to the last event includes the client's own work: a microsecond or two for each event.
  The writer's socket is read between the others.

Before it:
  Thousands of sessions need higher limits: ulimit -n here, in corral --set limits.connections_per_ip_max=0, in ZooKeeper
  maxClientCnxns=0.

Examples:
  {program} watches -n 10000 --rounds 20 --pid PID --cpu 1
  {program} watches -n 1000 --persistent"
    )
}

/// Flags of `watches`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = help())]
pub struct WatchArgs {
    /// Sessions that watch
    #[arg(short = 'n', long, default_value_t = 1000, value_parser = up_to(CONNECTIONS_MAX))]
    sessions: u32,
    /// Writes, one after the other; the first one warms up and is not counted
    #[arg(long, default_value_t = 10, value_parser = up_to(ROUNDS_MAX))]
    rounds: u32,
    /// Persistent watches (addWatch, ZooKeeper 3.6 and newer) instead of one-shot ones
    #[arg(long)]
    persistent: bool,
    /// Bytes of the znode's value
    #[arg(long, default_value_t = 100, value_name = "BYTES")]
    value_bytes: usize,
    #[command(flatten)]
    common: CommonArgs,
}

/// The report of `watches`. Times in microseconds from when the write was sent.
#[derive(Debug, Serialize)]
struct WatchReport {
    #[serde(flatten)]
    heading: Heading,
    sessions: u32,
    rounds: u32,
    persistent: bool,
    /// Events delivered in the counted rounds, each checked.
    events: u64,
    /// Until the first session had its event; over the rounds.
    first_event_us: Latency,
    /// Until the last session had its event; over the rounds.
    last_event_us: Latency,
    /// Until the writer had its reply; over the rounds.
    writer_reply_us: Latency,
    /// Until a session had its event; over all events.
    event_us: Latency,
    /// Events per second of the median round.
    events_per_second: f64,
    server_cpu_us_per_event: Option<f64>,
    client_cpu_us_per_event: f64,
    /// What a reader of the figures must know.
    remarks: Vec<String>,
}

const TAG_ARM: u32 = 1;
const TAG_WRITE: u32 = 2;
const NAME: &str = "w";

struct Watches {
    stage: Stage,
    watchers: Vec<usize>,
    writer: usize,
    persistent: bool,
    path: Vec<u8>,
    value: Vec<u8>,
    /// Writes done.
    version: i32,
    first: Histogram<u64>,
    last: Histogram<u64>,
    reply: Histogram<u64>,
    each: Histogram<u64>,
    server_cpu_ns: u64,
    client_cpu_ns: u64,
}

pub(super) fn run(args: &WatchArgs) -> Result<()> {
    let fits = args.value_bytes <= VALUE_BYTES_MAX;
    flags(
        fits.then_some(()).with_context(|| format!("--value-bytes {} is above {VALUE_BYTES_MAX}", args.value_bytes)),
    )?;
    let mut stage = Stage::set(&args.common, args.sessions + 1)?;
    let names = vec![NAME.to_owned()];
    stage.prepare(names, &value(args.value_bytes))?;
    let target = stage.target.clone();
    let (mut stage, report) = left_behind(measure(stage, args), &target.chroot)?;
    stage.clean_up()?;
    print(&args.common, &report, table(&report))
}

fn measure(mut stage: Stage, args: &WatchArgs) -> Result<(Stage, WatchReport)> {
    let mut watchers = stage.open_sessions(args.sessions + 1)?;
    let writer = watchers.pop().context("one more session than watchers was opened")?;
    stage.swarm.favour(writer);
    let path = encoded(|writer| writer.str(&stage.path(NAME)));
    let mut run = Watches {
        stage,
        watchers,
        writer,
        persistent: args.persistent,
        path,
        value: value(args.value_bytes),
        version: 0,
        first: histogram(),
        last: histogram(),
        reply: histogram(),
        each: histogram(),
        server_cpu_ns: 0,
        client_cpu_ns: 0,
    };
    if args.persistent {
        run.add_persistent()?;
    }
    run.round(false)?;
    let mut rounds = 0;
    while rounds < args.rounds && !run.stage.stopped() {
        run.round(true)?;
        rounds += 1;
        run.stage.progress.now_and_then(|| format!("{rounds} of {} rounds", args.rounds));
    }
    let Watches { mut stage, mut watchers, writer, .. } = run;
    watchers.push(writer);
    stage.close_sessions(&watchers)?;
    let events = run.each.len();
    let report = WatchReport {
        heading: Heading::of("watches", &args.common),
        sessions: args.sessions,
        rounds,
        persistent: args.persistent,
        events,
        first_event_us: Latency::of(&run.first),
        last_event_us: Latency::of(&run.last),
        writer_reply_us: Latency::of(&run.reply),
        event_us: Latency::of(&run.each),
        events_per_second: f64::from(args.sessions) * 1e9 / ratio(run.last.value_at_quantile(0.5).max(1), 1),
        server_cpu_us_per_event: (!stage.target.pids.is_empty())
            .then(|| us(run.server_cpu_ns) / ratio(events.max(1), 1)),
        client_cpu_us_per_event: us(run.client_cpu_ns) / ratio(events.max(1), 1),
        remarks: stage.doubts.clone(),
    };
    Ok((stage, report))
}

impl Watches {
    fn add_persistent(&mut self) -> Result<()> {
        let mode = encoded(|writer| writer.i32(AddWatchMode::Persistent.number()));
        self.ask_all(OpCode::AddWatch, &mode, |_, _| Ok(()))
    }

    /// Reads the znode in every session, which also arms one-shot watches: all must see the last write.
    fn read_all(&mut self) -> Result<()> {
        let arm = encoded(|writer| writer.bool(!self.persistent));
        let (version, value) = (self.version, std::mem::take(&mut self.value));
        let read = self.ask_all(OpCode::GetData, &arm, |run, event| {
            let reply = GetDataResponse::decode(&mut Reader::new(run.stage.swarm.body(event)))?;
            expect("Stat.version", version, reply.stat.version)?;
            ensure!(reply.data == Some(value.as_slice()), "the value read is not the one written");
            Ok(())
        });
        self.value = value;
        read
    }

    /// The same request of every watching session.
    fn ask_all(&mut self, op: OpCode, tail: &[u8], check: impl Fn(&Self, &Event) -> Result<()>) -> Result<()> {
        for watcher in &self.watchers {
            self.stage.swarm.request(*watcher, op, &[&self.path, tail], TAG_ARM)?;
        }
        let mut left = self.watchers.len();
        while left > 0 {
            for event in self.stage.poll()? {
                match event.what {
                    What::Reply(TAG_ARM, error) => granted(op.name(), error)?,
                    what => bail!("session {}: {what:?}, which was not requested", event.peer),
                }
                check(self, &event).with_context(|| format!("session {}", event.peer))?;
                left -= 1;
            }
        }
        Ok(())
    }

    /// One write and all its events.
    fn round(&mut self, counted: bool) -> Result<()> {
        self.read_all()?;
        let tail = encoded(|writer| {
            writer.buffer(Some(&self.value));
            writer.i32(VERSION_ANY);
        });
        self.stage.restart_cpu()?;
        let sent_ns = self.stage.swarm.now_ns();
        self.stage.swarm.request(self.writer, OpCode::SetData, &[&self.path, &tail], TAG_WRITE)?;
        self.version += 1;
        let (mut events, mut replied_ns) = (Vec::with_capacity(self.watchers.len()), None);
        let mut heard = vec![false; self.watchers.len() + 1];
        while events.len() < self.watchers.len() || replied_ns.is_none() {
            let came = self.stage.swarm.poll(Duration::from_millis(50))?;
            for event in &came {
                match event.what {
                    What::Reply(TAG_WRITE, error) => {
                        granted("setData", error)?;
                        replied_ns = Some(event.at_ns - sent_ns);
                    }
                    What::Notified(_) => {
                        self.check_event(event, &mut heard)?;
                        events.push(event.at_ns - sent_ns);
                    }
                    what => bail!("session {}: {what:?}, which was not requested", event.peer),
                }
            }
            self.stage.swarm.recycle(came);
            let waited = Duration::from_nanos(self.stage.swarm.now_ns() - sent_ns);
            let (missing, reply_timeout) = (self.watchers.len() - events.len(), self.stage.target.reply_timeout);
            ensure!(waited <= reply_timeout, "{missing} sessions have no event {waited:.1?} after the write");
        }
        if counted {
            self.server_cpu_ns += self.stage.server_cpu_ns()?.unwrap_or(0);
            self.client_cpu_ns += self.stage.client_cpu.elapsed_ns()?;
            self.first.saturating_record(events.first().copied().unwrap_or(0));
            self.last.saturating_record(events.last().copied().unwrap_or(0));
            self.reply.saturating_record(replied_ns.unwrap_or(0));
            events.into_iter().for_each(|ns| self.each.saturating_record(ns));
        }
        Ok(())
    }

    fn check_event(&self, event: &Event, heard: &mut [bool]) -> Result<()> {
        let at = self.watchers.binary_search(&event.peer);
        let at = at.map_err(|_| anyhow::anyhow!("an event for session {}, which has no watch", event.peer))?;
        ensure!(!std::mem::replace(&mut heard[at], true), "session {}: two events for one write", event.peer);
        let record = WatcherEvent::decode(&mut Reader::new(self.stage.swarm.body(event)))?;
        expect("event type", EventType::NodeDataChanged.number(), record.event_type)?;
        expect("event state", KeeperState::SyncConnected.number(), record.state)?;
        expect("event path", self.stage.path(NAME).as_str(), record.path.unwrap_or_default())?;
        Ok(())
    }
}

fn table(report: &WatchReport) -> Table {
    let mut table = Table::default();
    let kind = if report.persistent { "persistent" } else { "one-shot" };
    table.row("watches", &format!("{} sessions with a {kind} watch on one znode, one write", report.sessions));
    table.row("machine", &report.heading.machine.to_string());
    table.row("measured", &format!("{} rounds, {} events, every one checked", report.rounds, report.events));
    table.latency("first event us", &report.first_event_us);
    table.latency("last event us", &report.last_event_us);
    table.latency("any event us", &report.event_us);
    table.latency("writer's reply us", &report.writer_reply_us);
    table.row("throughput", &format!("{:.0} events/s in the median round", report.events_per_second));
    cpu_row(&mut table, "event", report.server_cpu_us_per_event, report.client_cpu_us_per_event);
    table.notes(&report.remarks);
    table
}
