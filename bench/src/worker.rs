//! A client thread: one epoll loop over its share of the connections.
//!
//! In a closed loop every reply is followed at once by the next request of that connection, one write per batch of
//! replies. In an open loop requests fall due at a fixed rate; one that finds no free place waits, and its latency
//! counts from when it was due, so that the waiting time of a stalled server is counted for all requests (no coordinated omission).
//! The window is dictated by the coordinator through what they share. Knows nothing of CPU accounting and reports.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

use crate::args::pin;
use crate::connection::{Connection, Pace};
use crate::due::{Backlog, Due};
use crate::keys::Random;
use crate::limits::{CLOSE_WAIT, EVENTS_MAX, SCRATCH_BYTES};
use crate::meter::{Meter, Shared};
use crate::own_znodes::OwnZnodes;
use crate::workload::Workload;

/// The orders of one client thread.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    /// Nanoseconds between two requests of this thread's open loop.
    pub(crate) interval_ns: Option<f64>,
    pub(crate) reply_timeout: Duration,
    /// A third of a session timeout without a request is followed by a ping.
    pub(crate) session_timeout: Duration,
    pub(crate) cpu: Option<usize>,
}

/// What one client thread found, beside what its meter handed over.
#[derive(Debug)]
pub(crate) struct Findings {
    /// Requests of an open loop that were due but had found no place when the run ended.
    pub(crate) backlog: u64,
    /// Those of the backlog that are too many for the histograms.
    pub(crate) unrecorded: u64,
    /// What each connection created, with the connection's number.
    pub(crate) own: Vec<(u32, OwnZnodes)>,
}

/// The open loop of this thread.
#[derive(Debug)]
struct Schedule {
    due: Due,
    /// Connections with a free place, one entry per place.
    free: VecDeque<usize>,
}

/// Drives the connections until the coordinator ends the run.
pub(crate) struct Worker<'a> {
    shared: &'a Shared,
    workload: &'a Workload,
    orders: Orders,
    connections: Vec<Connection>,
    /// Whether there are connections of both paces.
    mixed: bool,
    epoll: Epoll,
    scratch: Vec<u8>,
    meter: Meter,
    schedule: Option<Schedule>,
    /// Connections that were given requests in this turn of the open loop.
    touched: Vec<usize>,
    looked_ns: u64,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(
        shared: &'a Shared,
        workload: &'a Workload,
        orders: Orders,
        connections: Vec<Connection>,
        meter: Meter,
    ) -> Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("epoll_create")?;
        for (at, connection) in connections.iter().enumerate() {
            epoll.add(&connection.link.stream, EpollEvent::new(EpollFlags::EPOLLIN, at as u64)).context("epoll_ctl")?;
        }
        let has = |pace| connections.iter().any(|connection: &Connection| connection.pace == pace);
        Ok(Self {
            shared,
            workload,
            orders,
            mixed: has(Pace::Open) && has(Pace::Closed),
            connections,
            epoll,
            scratch: vec![0; SCRATCH_BYTES],
            meter,
            schedule: None,
            touched: Vec::new(),
            looked_ns: 0,
        })
    }

    /// Runs to the end of the load. If it fails, it stops the others.
    pub(crate) fn run(mut self) -> Result<Findings> {
        let shared = self.shared;
        let ran = pin(self.orders.cpu).and_then(|()| self.drive());
        if ran.is_err() {
            shared.fail();
        }
        ran?;
        let Backlog { all: backlog, unrecorded } = self.charge_backlog();
        self.close_sessions()?;
        self.meter.finish();
        Ok(Findings { backlog, unrecorded, own: self.connections.into_iter().map(Connection::into_own).collect() })
    }

    fn drive(&mut self) -> Result<()> {
        self.begin()?;
        let mut events = vec![EpollEvent::empty(); EVENTS_MAX];
        loop {
            if self.shared.failed() {
                bail!("stopped because another client thread failed");
            }
            if self.meter.is_after() && self.connections.iter().all(|connection| connection.in_flight() == 0) {
                return Ok(());
            }
            let count = self.wait(&mut events)?;
            self.serve_all(&events[..count])?;
            let now_ns = self.shared.now_ns();
            self.meter.follow(self.shared, now_ns);
            self.issue_due(now_ns)?;
            self.look_after(now_ns)?;
        }
    }

    /// Fills every connection of a closed loop, starts the schedule of the others.
    fn begin(&mut self) -> Result<()> {
        let now_ns = self.shared.now_ns();
        if let Some(interval_ns) = self.orders.interval_ns {
            let mut places: Vec<(u32, usize)> = Vec::new();
            for (at, connection) in self.connections.iter().enumerate().filter(|(_, of)| of.pace == Pace::Open) {
                places.extend((0..connection.depth).map(|place| (place, at)));
            }
            // The first place of every connection before the second of any.
            places.sort_unstable();
            let free = places.into_iter().map(|(_, at)| at).collect();
            self.schedule = Some(Schedule { due: Due::new(now_ns, interval_ns), free });
        }
        for at in 0..self.connections.len() {
            let connection = &mut self.connections[at];
            if connection.pace == Pace::Closed {
                for _ in 0..connection.depth {
                    connection.issue(self.workload, now_ns)?;
                }
                self.flush(at, now_ns)?;
            }
        }
        Ok(())
    }

    fn wait(&self, events: &mut [EpollEvent]) -> Result<usize> {
        let timeout_ms = match &self.schedule {
            Some(schedule) if !self.meter.is_after() && !schedule.free.is_empty() => {
                // Sleep only whole milliseconds ahead of the next due time, then poll: the wait must not round up.
                let ahead_ns = schedule.due.next_ns().saturating_sub(self.shared.now_ns());
                u8::try_from((ahead_ns / 1_000_000).min(100)).unwrap_or(100)
            }
            _ => 100,
        };
        match self.epoll.wait(events, timeout_ms) {
            Ok(count) => Ok(count),
            Err(Errno::EINTR) => Ok(0),
            Err(error) => Err(error).context("epoll_wait"),
        }
    }

    /// Serves the sockets that are ready: beside a flood those that follow a rate first, so that the client's own work
    /// for the flood does not count as the server's delay.
    fn serve_all(&mut self, events: &[EpollEvent]) -> Result<()> {
        let passes: &[Option<Pace>] = if self.mixed { &[Some(Pace::Open), Some(Pace::Closed)] } else { &[None] };
        let mut finished = 0;
        for pass in passes {
            for event in events {
                let at = usize::try_from(event.data())?;
                if pass.is_none_or(|pace| self.connections[at].pace == pace) {
                    finished += self.serve(at, event.events())?;
                }
            }
        }
        self.meter.publish(self.shared, finished);
        Ok(())
    }

    /// Takes what one socket has. Returns the number of requests it finished.
    fn serve(&mut self, at: usize, ready: EpollFlags) -> Result<u64> {
        let connection = &mut self.connections[at];
        let mut finished = 0;
        let bytes = if ready == EpollFlags::EPOLLOUT { 0 } else { connection.receive(&mut self.scratch)? };
        let now_ns = self.shared.now_ns();
        if bytes > 0 {
            let (meter, pace) = (&mut self.meter, connection.pace);
            meter.follow(self.shared, now_ns);
            connection.replies(&self.scratch[..bytes], self.workload, |answer| {
                meter.record(pace, answer, now_ns);
                finished += 1;
            })?;
            match (&mut self.schedule, pace) {
                (Some(schedule), Pace::Open) => schedule.free.extend((0..finished).map(|_| at)),
                _ if self.meter.is_after() => {}
                _ => {
                    for _ in 0..finished {
                        connection.issue(self.workload, now_ns)?;
                    }
                }
            }
        }
        self.flush(at, now_ns)?;
        Ok(finished)
    }

    fn flush(&mut self, at: usize, now_ns: u64) -> Result<()> {
        self.connections[at].link.flush(&self.epoll, at as u64, now_ns)
    }

    /// Sends what has fallen due in an open loop, as far as there are places.
    fn issue_due(&mut self, now_ns: u64) -> Result<()> {
        let Some(schedule) = &mut self.schedule else { return Ok(()) };
        while !self.meter.is_after() && schedule.due.next_ns() <= now_ns {
            let Some(at) = schedule.free.pop_front() else { break };
            self.connections[at].issue(self.workload, schedule.due.take())?;
            self.touched.push(at);
        }
        self.touched.sort_unstable();
        self.touched.dedup();
        let touched = std::mem::take(&mut self.touched);
        for at in &touched {
            self.flush(*at, now_ns)?;
        }
        self.touched = touched;
        self.touched.clear();
        Ok(())
    }

    /// Once in a while: pings quiet sessions, and gives up on a server that does not answer.
    fn look_after(&mut self, now_ns: u64) -> Result<()> {
        if now_ns.saturating_sub(self.looked_ns) < 200_000_000 {
            return Ok(());
        }
        self.looked_ns = now_ns;
        let quiet = self.orders.session_timeout / 3;
        for at in 0..self.connections.len() {
            let connection = &mut self.connections[at];
            let since = |then_ns: u64| Duration::from_nanos(now_ns.saturating_sub(then_ns));
            if let Some(waited) = connection.oldest_ns().map(since).filter(|waited| *waited > self.orders.reply_timeout)
            {
                // In an open loop the wait may have been for a place; only a socket that is silent is a failure.
                let paced = connection.pace == Pace::Open;
                if since(connection.link.last_sent_ns) > self.orders.reply_timeout || !paced {
                    let count = connection.in_flight();
                    bail!("no reply for {waited:.1?} on connection {at} of this thread, {count} requests in flight");
                }
            }
            if connection.in_flight() == 0 && since(connection.link.last_sent_ns) > quiet {
                connection.ping(now_ns);
                self.flush(at, now_ns)?;
            }
        }
        Ok(())
    }

    /// Enters the requests that were due but never sent with the time they had waited so far.
    fn charge_backlog(&mut self) -> Backlog {
        let Some(schedule) = &mut self.schedule else { return Backlog::default() };
        let (now_ns, end_ns) = (self.shared.now_ns(), self.shared.end_ns());
        // Of which kind they would have been is not yet drawn.
        let (mut random, mut own) = (Random::new(self.workload.seed, u64::MAX), OwnZnodes::default());
        let (workload, meter) = (self.workload, &mut self.meter);
        schedule.due.backlog(now_ns, end_ns, |waited_ns| {
            let kind = workload.next(&mut random, 0, &mut own).kind;
            meter.record_ns(Pace::Open, kind, waited_ns);
        })
    }

    /// Closes every session, all at once, and waits a little for the server to agree.
    fn close_sessions(&mut self) -> Result<()> {
        let begun_ns = self.shared.now_ns();
        for at in 0..self.connections.len() {
            self.connections[at].close_session(begun_ns);
            self.flush(at, begun_ns)?;
        }
        let limit_ns = begun_ns + u64::try_from(CLOSE_WAIT.as_nanos())?;
        let mut events = vec![EpollEvent::empty(); EVENTS_MAX];
        let mut open = self.connections.len();
        while open > 0 && self.shared.now_ns() < limit_ns {
            let count = self.wait(&mut events)?;
            for event in &events[..count] {
                let at = usize::try_from(event.data())?;
                let connection = &mut self.connections[at];
                if connection.in_flight() == 0 {
                    continue;
                }
                let bytes = connection.receive(&mut self.scratch)?;
                connection.replies(&self.scratch[..bytes], self.workload, |_| {})?;
                if connection.in_flight() == 0 {
                    self.epoll.delete(&connection.link.stream).context("epoll_ctl")?;
                    open -= 1;
                } else {
                    self.flush(at, begun_ns)?;
                }
            }
        }
        Ok(())
    }
}
