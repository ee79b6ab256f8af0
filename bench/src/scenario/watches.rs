//! Watch fan-out: many sessions watch one znode, one session writes it.
//!
//! In every round each session is armed, the write is sent, and the clock runs until the last session has its event.
//! The writer's own reply is timed beside it. Every session must get exactly one event of the right type and path, and
//! read the new version afterwards. One thread.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use corral_wire::consts::{AddWatchMode, EventType, KeeperState, VERSION_ANY};
use corral_wire::records::{GetDataResponse, WatcherEvent};
use corral_wire::{OpCode, Reader};
use hdrhistogram::Histogram;

use crate::args::{CommonArgs, up_to};
use crate::check::expect;
use crate::frames::{encoded, encoded_path, set_tail, value};
use crate::histogram::{Latency, histogram, ratio, us};
use crate::limits::{CONNECTIONS_MAX, ROUNDS_MAX};
use crate::report::{Report, fields};
use crate::stage::{Stage, nothing};
use crate::swarm::{Event, POLL, Swarm, What, granted_or, unexpected};

const HELP: &str = "\
How it works:
  All sessions watch one znode. In each round one more session writes the znode, which fires every watch. Without
  --persistent the sessions read the znode again before each round, to arm one-shot watches. Thousands of sessions need
  higher limits: ulimit -n here, in corral --set limits.connections_per_ip_max=0, in ZooKeeper maxClientCnxns=0.

How to read it:
  Times count from when the write was sent. Server CPU is that from the write to the last event, per event. All sockets are
  read on one thread, so that the time to the last event includes the client's own work: a microsecond or two for each event.
  The writer's socket is read between the others.

Examples:
  corral bench watches -n 50                              one-shot watches of 50 sessions
  corral bench watches -n 10000 --rounds 20 --cpu 1 --pid \"$(pidof corral)\"
  corral bench watches -n 1000 --persistent               watches that stay";

/// Flags of `watches`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct WatchArgs {
    /// Sessions that watch
    #[arg(short = 'n', long, default_value_t = 1000, value_parser = up_to(CONNECTIONS_MAX))]
    sessions: u32,
    /// Writes, one after the other; the first one warms up and is not counted
    #[arg(long, default_value_t = 10, value_parser = up_to(ROUNDS_MAX))]
    rounds: u32,
    /// Persistent watches (addWatch, ZooKeeper 3.6 and newer) instead of one-shot ones
    #[arg(long)]
    persistent: bool,
    #[command(flatten)]
    common: CommonArgs,
}

const VALUE_BYTES: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    Arm,
    Write,
}

struct Watches<'a> {
    stage: &'a mut Stage,
    swarm: Swarm<Ask>,
    watchers: Vec<usize>,
    writer: usize,
    persistent: bool,
    znode: String,
    value: Vec<u8>,
    /// Writes done.
    version: i32,
    first: Histogram<u64>,
    last: Histogram<u64>,
    reply: Histogram<u64>,
    each: Histogram<u64>,
    server_cpu_ns: Option<u64>,
    client_cpu_ns: u64,
}

pub(super) fn run(args: &WatchArgs) -> Result<()> {
    let mut stage = Stage::set(&args.common, args.sessions + 1)?;
    let (znode, value) = (stage.path("w"), value(VALUE_BYTES));
    let report = stage.perform(&|| vec![znode.clone()], &|_| &value, |stage| measure(stage, args), nothing)?;
    report.print(&args.common)
}

fn measure(stage: &mut Stage, args: &WatchArgs) -> Result<Report> {
    let mut swarm = stage.swarm()?;
    let numbers: Vec<usize> = (0..=args.sessions as usize).collect();
    let mut watchers = stage.open_sessions(&mut swarm, &numbers)?;
    let writer = watchers.pop().context("one more session than watchers was opened")?;
    swarm.favour(writer);
    let mut run = Watches {
        znode: stage.path("w"),
        stage,
        swarm,
        watchers,
        writer,
        persistent: args.persistent,
        value: value(VALUE_BYTES),
        version: 0,
        first: histogram(),
        last: histogram(),
        reply: histogram(),
        each: histogram(),
        server_cpu_ns: None,
        client_cpu_ns: 0,
    };
    if args.persistent {
        let mode = encoded(|writer| writer.i32(AddWatchMode::Persistent.number()));
        run.ask_all(OpCode::AddWatch, &mode, |_| Ok(()))?;
    }
    run.round(false)?;
    let mut rounds = 0;
    while rounds < args.rounds && !run.stage.stopped() {
        run.round(true)?;
        rounds += 1;
        run.stage.progress.now_and_then(|| format!("{rounds} of {} rounds", args.rounds));
    }
    run.swarm.close_all(|event| Err(unexpected(&event)))?;
    let (sessions, persistent, events) = (args.sessions, args.persistent, run.each.len());
    let each = |ns| us(ns) / ratio(events.max(1), 1);
    let kind = if persistent { "persistent" } else { "one-shot" };
    Ok(Report {
        scenario: "watches",
        headline: format!("{sessions} sessions with a {kind} watch on one znode, one write, every event checked"),
        load: fields! { sessions, rounds, persistent },
        figures: fields! {
            events,
            first_event_us: Latency::of(&run.first),
            last_event_us: Latency::of(&run.last),
            writer_reply_us: Latency::of(&run.reply),
            event_us: Latency::of(&run.each),
            // Of the median round.
            events_per_second: f64::from(sessions) * 1e9 / ratio(run.last.value_at_quantile(0.5).max(1), 1),
            server_cpu_us_per_event: run.server_cpu_ns.map(each),
            client_cpu_us_per_event: each(run.client_cpu_ns),
        },
        remarks: run.stage.doubts.clone(),
    })
}

impl Watches<'_> {
    /// Reads the znode in every session, which also arms one-shot watches: all must see the last write.
    fn read_all(&mut self) -> Result<()> {
        let (version, value) = (self.version, self.value.clone());
        self.ask_all(OpCode::GetData, &[u8::from(!self.persistent)], |event| {
            let reply = GetDataResponse::decode(&mut Reader::new(&event.body))?;
            expect("Stat.version", version, reply.stat.version)?;
            ensure!(reply.data == Some(value.as_slice()), "the value read is not the one written");
            Ok(())
        })
    }

    /// The same request of every watching session.
    fn ask_all(&mut self, op: OpCode, tail: &[u8], check: impl Fn(&Event<Ask>) -> Result<()>) -> Result<()> {
        let path = encoded_path(&self.znode);
        for watcher in &self.watchers {
            self.swarm.request(*watcher, op, [&path, tail], Ask::Arm)?;
        }
        self.swarm.replies(self.watchers.len(), |_, error, event| {
            granted_or(op.name(), error)?;
            check(event)
        })
    }

    /// One write and all its events.
    fn round(&mut self, counted: bool) -> Result<()> {
        self.read_all()?;
        let tail = encoded(|writer| set_tail(writer, &self.value, VERSION_ANY));
        self.stage.restart_cpu()?;
        let sent_ns = self.swarm.now_ns();
        self.swarm.request(self.writer, OpCode::SetData, [&encoded_path(&self.znode), &tail], Ask::Write)?;
        self.version += 1;
        let (mut events, mut replied_ns) = (Vec::with_capacity(self.watchers.len()), None);
        let mut notified = vec![false; self.watchers.len() + 1];
        while events.len() < self.watchers.len() || replied_ns.is_none() {
            for event in self.swarm.poll(POLL)? {
                match event.what {
                    What::Reply(Ask::Write, error) => {
                        granted_or("setData", error)?;
                        replied_ns = Some(event.at_ns - sent_ns);
                    }
                    What::Notified(_) => {
                        self.check_event(&event, &mut notified)?;
                        events.push(event.at_ns - sent_ns);
                    }
                    _ => return Err(unexpected(&event)),
                }
            }
            let waited = Duration::from_nanos(self.swarm.now_ns() - sent_ns);
            let (missing, timeout) = (self.watchers.len() - events.len(), self.swarm.reply_timeout);
            ensure!(waited <= timeout, "{missing} sessions have no event {waited:.1?} after the write");
        }
        if counted {
            let (server, client) = self.stage.cpu_ns()?;
            self.server_cpu_ns = server.map(|ns| self.server_cpu_ns.unwrap_or(0) + ns);
            self.client_cpu_ns += client;
            self.first.saturating_record(events.first().copied().unwrap_or(0));
            self.last.saturating_record(events.last().copied().unwrap_or(0));
            self.reply.saturating_record(replied_ns.unwrap_or(0));
            events.into_iter().for_each(|ns| self.each.saturating_record(ns));
        }
        Ok(())
    }

    fn check_event(&self, event: &Event<Ask>, notified: &mut [bool]) -> Result<()> {
        let at = self.watchers.binary_search(&event.peer);
        let at = at.map_err(|_| anyhow::anyhow!("an event for session {}, which has no watch", event.peer))?;
        ensure!(!std::mem::replace(&mut notified[at], true), "session {}: two events for one write", event.peer);
        let record = WatcherEvent::decode(&mut Reader::new(&event.body))?;
        expect("event type", EventType::NodeDataChanged.number(), record.event_type)?;
        expect("event state", KeeperState::SyncConnected.number(), record.state)?;
        expect("event path", self.znode.as_str(), record.path.unwrap_or_default())
    }
}
