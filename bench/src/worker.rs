//! A client thread: one epoll loop over its share of the connections.
//!
//! In a closed loop every reply is followed at once by the next request of that connection, one write per batch of
//! replies. In an open loop requests fall due at a fixed rate; one that finds no free place waits, and its latency
//! counts from when it was due, so that a stalled server is charged for all who had to wait (no coordinated omission).
//! Phases are dictated by the coordinator through one atomic. Knows nothing of CPU accounting and reports.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

use crate::connection::Connection;
use crate::limits::{BACKLOG_RECORDED_MAX, CLOSE_WAIT, EVENTS_MAX, LATENCY_MAX, SCRATCH_BYTES};
use crate::workload::Workload;

/// Where a run stands; only ever moves forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Warm,
    Measure,
    Drain,
}

/// What the coordinator and the client threads share.
#[derive(Debug)]
pub(crate) struct Shared {
    phase: AtomicU8,
    /// Operations completed in the measured window, all threads.
    measured: AtomicU64,
    /// A thread gave up: everyone is to stop.
    failed: AtomicBool,
    pub(crate) start: Instant,
}

impl Shared {
    pub(crate) fn new() -> Self {
        Self {
            phase: AtomicU8::new(Phase::Warm as u8),
            measured: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            start: Instant::now(),
        }
    }

    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::SeqCst);
    }

    fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Warm,
            1 => Phase::Measure,
            _ => Phase::Drain,
        }
    }

    pub(crate) fn measured(&self) -> u64 {
        self.measured.load(Ordering::Relaxed)
    }

    pub(crate) fn fail(&self) {
        self.failed.store(true, Ordering::SeqCst);
    }

    pub(crate) fn failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    pub(crate) fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// What one client thread is told.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    pub(crate) depth: u32,
    /// Nanoseconds between two requests of this thread in an open loop.
    pub(crate) interval_ns: Option<f64>,
    pub(crate) reply_timeout: Duration,
    /// Half a session timeout without a request is followed by a ping.
    pub(crate) session_timeout: Duration,
    pub(crate) cpu: Option<usize>,
}

/// What one client thread found.
#[derive(Debug)]
pub(crate) struct Findings {
    /// Latency in nanoseconds of every request answered in the measured window or in flight at its end.
    pub(crate) latency: Histogram<u64>,
    /// Requests of an open loop that were due but had found no place when the run ended.
    pub(crate) backlog: u64,
    /// The number of znodes each connection created, by the order in which they were given.
    pub(crate) created: Vec<u32>,
}

/// An empty histogram: three significant digits up to `LATENCY_MAX`.
pub(crate) fn histogram() -> Histogram<u64> {
    let max = u64::try_from(LATENCY_MAX.as_nanos()).unwrap_or(u64::MAX);
    Histogram::new_with_bounds(1, max, 3).expect("the bounds are constants and valid")
}

/// Due times of an open loop.
#[derive(Debug)]
struct Schedule {
    interval_ns: f64,
    start_ns: u64,
    issued: u64,
    /// Connections with a free place, one entry per place.
    free: VecDeque<usize>,
}

impl Schedule {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    fn due_ns(&self) -> u64 {
        // A float holds the product exactly enough: 2^53 ns are 104 days.
        self.start_ns + (self.issued as f64 * self.interval_ns) as u64
    }
}

/// Drives the connections until the coordinator ends the run.
pub(crate) struct Worker<'a> {
    shared: &'a Shared,
    workload: &'a Workload,
    orders: Orders,
    connections: Vec<Connection>,
    epoll: Epoll,
    scratch: Vec<u8>,
    latency: Histogram<u64>,
    phase: Phase,
    /// When this thread saw the end of the measured window.
    ended_ns: u64,
    schedule: Option<Schedule>,
    looked_ns: u64,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(
        shared: &'a Shared,
        workload: &'a Workload,
        orders: Orders,
        connections: Vec<Connection>,
    ) -> Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("epoll_create")?;
        for (at, connection) in connections.iter().enumerate() {
            epoll.add(&connection.stream, EpollEvent::new(EpollFlags::EPOLLIN, at as u64)).context("epoll_ctl")?;
        }
        Ok(Self {
            shared,
            workload,
            orders,
            connections,
            epoll,
            scratch: vec![0; SCRATCH_BYTES],
            latency: histogram(),
            phase: Phase::Warm,
            ended_ns: 0,
            schedule: None,
            looked_ns: 0,
        })
    }

    /// Runs to the end of the load; tells the others if it cannot.
    pub(crate) fn run(mut self) -> Result<Findings> {
        let shared = self.shared;
        let ran = self.pin().and_then(|()| self.drive());
        if ran.is_err() {
            shared.fail();
        }
        ran?;
        let backlog = self.charge_backlog();
        self.close_sessions()?;
        let created = self.connections.iter().map(|connection| connection.created).collect();
        Ok(Findings { latency: self.latency, backlog, created })
    }

    fn pin(&self) -> Result<()> {
        let Some(cpu) = self.orders.cpu else { return Ok(()) };
        let mut set = nix::sched::CpuSet::new();
        set.set(cpu).with_context(|| format!("--cpu {cpu}: no such CPU"))?;
        nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set)
            .with_context(|| format!("--cpu {cpu}: this process may not run there"))
    }

    fn drive(&mut self) -> Result<()> {
        self.begin()?;
        let mut events = vec![EpollEvent::empty(); EVENTS_MAX];
        loop {
            if self.shared.failed() {
                bail!("stopped because another client thread failed");
            }
            self.follow_phase();
            if self.phase == Phase::Drain && self.connections.iter().all(|connection| connection.in_flight() == 0) {
                return Ok(());
            }
            let count = self.wait(&mut events)?;
            let mut finished = 0;
            for event in &events[..count] {
                finished += self.serve(usize::try_from(event.data())?, event.events())?;
            }
            if self.phase == Phase::Measure && finished > 0 {
                self.shared.measured.fetch_add(finished, Ordering::Relaxed);
            }
            let now_ns = self.shared.now_ns();
            self.issue_due(now_ns)?;
            self.look_after(now_ns)?;
        }
    }

    /// Fills every connection, or starts the schedule.
    fn begin(&mut self) -> Result<()> {
        let now_ns = self.shared.now_ns();
        if let Some(interval_ns) = self.orders.interval_ns {
            let places = (0..self.orders.depth).flat_map(|_| 0..self.connections.len());
            let free = places.collect();
            self.schedule = Some(Schedule { interval_ns, start_ns: now_ns, issued: 0, free });
            return Ok(());
        }
        for at in 0..self.connections.len() {
            for _ in 0..self.orders.depth {
                self.connections[at].issue(self.workload, now_ns)?;
            }
            self.flush(at, now_ns)?;
        }
        Ok(())
    }

    fn follow_phase(&mut self) {
        let phase = self.shared.phase();
        if phase > self.phase {
            if self.phase == Phase::Warm {
                self.latency.reset();
            }
            if phase == Phase::Drain {
                self.ended_ns = self.shared.now_ns();
            }
            self.phase = phase;
        }
    }

    fn wait(&self, events: &mut [EpollEvent]) -> Result<usize> {
        let timeout_ms = match &self.schedule {
            Some(schedule) if self.phase != Phase::Drain && !schedule.free.is_empty() => {
                // Sleep only whole milliseconds ahead of the next due time, then poll: the wait must not round up.
                let ahead_ns = schedule.due_ns().saturating_sub(self.shared.now_ns());
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

    /// Takes what one socket has. Gives the number of requests it finished.
    fn serve(&mut self, at: usize, ready: EpollFlags) -> Result<u64> {
        let connection = &mut self.connections[at];
        let mut finished = 0;
        let bytes = if ready == EpollFlags::EPOLLOUT { 0 } else { connection.receive(&mut self.scratch)? };
        let now_ns = self.shared.now_ns();
        if bytes > 0 {
            let latency = &mut self.latency;
            connection.replies(&self.scratch[..bytes], self.workload, |since_ns| {
                latency.saturating_record(now_ns.saturating_sub(since_ns));
                finished += 1;
            })?;
            match &mut self.schedule {
                Some(schedule) => schedule.free.extend((0..finished).map(|_| at)),
                None if self.phase == Phase::Drain => {}
                None => {
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
        let connection = &mut self.connections[at];
        let all_sent = connection.flush(now_ns)?;
        if all_sent == connection.awaits_write {
            let wanted = if all_sent { EpollFlags::EPOLLIN } else { EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT };
            let mut event = EpollEvent::new(wanted, at as u64);
            self.epoll.modify(&connection.stream, &mut event).context("epoll_ctl")?;
            connection.awaits_write = !all_sent;
        }
        Ok(())
    }

    /// Sends what has fallen due in an open loop, as far as there are places.
    fn issue_due(&mut self, now_ns: u64) -> Result<()> {
        let Some(mut schedule) = self.schedule.take() else { return Ok(()) };
        let mut touched = Vec::new();
        while self.phase != Phase::Drain && schedule.due_ns() <= now_ns {
            let Some(at) = schedule.free.pop_front() else { break };
            self.connections[at].issue(self.workload, schedule.due_ns())?;
            touched.push(at);
            schedule.issued += 1;
        }
        self.schedule = Some(schedule);
        touched.sort_unstable();
        touched.dedup();
        for at in touched {
            self.flush(at, now_ns)?;
        }
        Ok(())
    }

    /// Once in a while: pings quiet sessions, and gives up on a server that does not answer.
    fn look_after(&mut self, now_ns: u64) -> Result<()> {
        if now_ns.saturating_sub(self.looked_ns) < 200_000_000 {
            return Ok(());
        }
        self.looked_ns = now_ns;
        let quiet = Duration::from_nanos(u64::MAX).min(self.orders.session_timeout / 2);
        for at in 0..self.connections.len() {
            let connection = &mut self.connections[at];
            let since = |then_ns: u64| Duration::from_nanos(now_ns.saturating_sub(then_ns));
            if let Some(waited) = connection.oldest_ns().map(since).filter(|waited| *waited > self.orders.reply_timeout)
            {
                // In an open loop the wait may have been for a place; only a socket that is silent is a failure.
                if since(connection.last_sent_ns) > self.orders.reply_timeout || self.schedule.is_none() {
                    let count = connection.in_flight();
                    bail!("no reply for {waited:.1?} on connection {at} of this thread, {count} requests in flight");
                }
            }
            if connection.in_flight() == 0 && since(connection.last_sent_ns) > quiet {
                connection.ping(now_ns);
                self.flush(at, now_ns)?;
            }
        }
        Ok(())
    }

    /// Enters the requests that were due but never sent with the time they had waited so far.
    fn charge_backlog(&mut self) -> u64 {
        let Some(schedule) = &mut self.schedule else { return 0 };
        let now_ns = self.shared.now_ns();
        let mut backlog = 0;
        while schedule.due_ns() < self.ended_ns && backlog < BACKLOG_RECORDED_MAX {
            self.latency.saturating_record(now_ns - schedule.due_ns());
            schedule.issued += 1;
            backlog += 1;
        }
        backlog
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
                let connection = &mut self.connections[usize::try_from(event.data())?];
                if connection.in_flight() == 0 {
                    continue;
                }
                let bytes = connection.receive(&mut self.scratch)?;
                connection.replies(&self.scratch[..bytes], self.workload, |_| {})?;
                connection.flush(begun_ns)?;
                if connection.in_flight() == 0 {
                    self.epoll.delete(&connection.stream).context("epoll_ctl")?;
                    open -= 1;
                }
            }
        }
        Ok(())
    }
}
