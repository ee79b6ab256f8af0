//! A client thread: one epoll loop over its share of the sessions.
//!
//! In a closed loop every reply is followed at once by the next request of that session, one write per batch of
//! replies. In an open loop requests fall due at a fixed rate. A request that finds no free place waits, and its
//! latency counts from when it was due. So the waiting time of a stalled server is counted for all requests (no
//! coordinated omission). The window is dictated by the coordinator through what they share. Knows nothing of CPU
//! accounting and reports.

use std::collections::VecDeque;

use anyhow::{Context, Result, bail, ensure};

use crate::args::pin;
use crate::check::judge;
use crate::due::Due;
use crate::limits::CREATES_PER_CONNECTION_MAX;
use crate::meter::{Pace, Shared};
use crate::mix::Random;
use crate::swarm::{Swarm, What, unexpected};
use crate::workload::{OwnZnodes, Request, Workload};

/// The longest wait for events, in milliseconds.
const WAIT_MS: u16 = 100;

/// The findings of one client thread, beside the latencies.
#[derive(Debug)]
pub(crate) struct Findings {
    /// Requests that were due but never sent.
    pub(crate) backlog: u64,
    /// The znodes that each connection created, with the connection's number.
    pub(crate) own: Vec<(u32, OwnZnodes)>,
}

#[derive(Debug)]
pub(crate) struct Client {
    number: u32,
    pub(crate) pace: Pace,
    /// It keeps at most this many requests in flight.
    depth: u32,
    random: Random,
    own: OwnZnodes,
}

impl Client {
    pub(crate) fn new(number: u32, pace: Pace, depth: u32, workload: &Workload) -> Self {
        let random = Random::new(workload.seed, u64::from(number));
        Self { number, pace, depth, random, own: OwnZnodes::prepared(workload.stock) }
    }
}

#[derive(Debug)]
struct Schedule {
    due: Due,
    /// Sessions with a free place, one entry per place.
    free: VecDeque<usize>,
}

/// Drives the sessions until the coordinator ends the run.
pub(crate) struct Worker<'a> {
    shared: &'a Shared,
    workload: &'a Workload,
    /// The number of the thread, and the CPU it is pinned to.
    thread: (usize, Option<usize>),
    /// Nanoseconds between two requests of this thread's open loop.
    interval_ns: Option<f64>,
    swarm: Swarm<Request>,
    clients: Vec<Client>,
    /// In these turns sockets are served: beside a flood, sockets that follow a rate come first. So the client's own
    /// work for the flood does not count as the server's delay.
    passes: &'static [Option<Pace>],
    schedule: Option<Schedule>,
    /// Sessions that were given requests in this turn of the open loop.
    touched: Vec<usize>,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(
        shared: &'a Shared,
        workload: &'a Workload,
        thread: (usize, Option<usize>),
        interval_ns: Option<f64>,
        swarm: Swarm<Request>,
        clients: Vec<Client>,
    ) -> Self {
        let has = |pace| clients.iter().any(|client: &Client| client.pace == pace);
        let mixed = has(Pace::Open) && has(Pace::Closed);
        let passes: &[_] = if mixed { &[Some(Pace::Open), Some(Pace::Closed)] } else { &[None] };
        Self { shared, workload, thread, interval_ns, swarm, clients, passes, schedule: None, touched: Vec::new() }
    }

    /// Runs to the end of the load. If it fails, it stops the others.
    pub(crate) fn run(mut self) -> Result<Findings> {
        let shared = self.shared;
        let ran = pin(self.thread.1).and_then(|()| self.drive());
        if ran.is_err() {
            shared.fail();
        }
        ran?;
        let backlog = self.charge_backlog();
        self.swarm.close_all(|event| Err(unexpected(&event)))?;
        Ok(Findings { backlog, own: self.clients.into_iter().map(|client| (client.number, client.own)).collect() })
    }

    fn drive(&mut self) -> Result<()> {
        self.begin()?;
        loop {
            if self.shared.failed() {
                bail!("stopped because another client thread failed");
            }
            if self.shared.is_over() && self.swarm.all_answered() {
                return Ok(());
            }
            let count = self.swarm.wait(self.wait_ms())?;
            let mut finished = 0;
            for pass in self.passes {
                for nth in 0..count {
                    let (at, _) = self.swarm.ready(nth);
                    if pass.is_none_or(|pace| self.clients[at].pace == pace) {
                        finished += self.serve(nth)?;
                    }
                }
            }
            self.shared.count(finished);
            let now_ns = self.shared.now_ns();
            self.issue_due(now_ns)?;
        }
    }

    /// Fills every session of a closed loop, starts the schedule of the others.
    fn begin(&mut self) -> Result<()> {
        let now_ns = self.shared.now_ns();
        if let Some(interval_ns) = self.interval_ns {
            let open = self.clients.iter().enumerate().filter(|(_, client)| client.pace == Pace::Open);
            let mut places: Vec<_> =
                open.flat_map(|(at, client)| (0..client.depth).map(move |place| (place, at))).collect();
            // The first place of every session before the second of any.
            places.sort_unstable();
            let free = places.into_iter().map(|(_, at)| at).collect();
            self.schedule = Some(Schedule { due: Due::new(now_ns, interval_ns), free });
        }
        for at in 0..self.clients.len() {
            if self.clients[at].pace == Pace::Closed {
                for _ in 0..self.clients[at].depth {
                    self.issue(at, now_ns)?;
                }
                self.swarm.flush(at)?;
            }
        }
        Ok(())
    }

    /// Appends the next request of a session to its output.
    fn issue(&mut self, at: usize, since_ns: u64) -> Result<()> {
        let (workload, client) = (self.workload, &mut self.clients[at]);
        let request = workload.next(&mut client.random, client.number, &mut client.own);
        ensure!(
            client.own.created <= CREATES_PER_CONNECTION_MAX,
            "one connection created {CREATES_PER_CONNECTION_MAX} znodes; use more connections"
        );
        self.swarm.push(at, request, since_ns, |out, xid| workload.encode(out, xid, request, &mut client.random));
        Ok(())
    }

    fn wait_ms(&self) -> u16 {
        match &self.schedule {
            Some(schedule) if !self.shared.is_over() && !schedule.free.is_empty() => {
                schedule.due.wait_ms(self.shared.now_ns(), WAIT_MS)
            }
            _ => WAIT_MS,
        }
    }

    /// Takes what the nth ready socket has. Returns the number of requests it finished.
    fn serve(&mut self, nth: usize) -> Result<u64> {
        let (at, flags) = self.swarm.ready(nth);
        let (workload, client) = (self.workload, &mut self.clients[at]);
        let (mut finished, mut now_ns) = (0, 0);
        let mut cells = self.shared.cells(self.thread.0);
        let served = self.swarm.serve(at, flags, &mut |event| {
            let What::Reply(request, error) = event.what else { bail!("{:?} was not requested", event.what) };
            now_ns = event.at_ns;
            let judged = judge(workload, request, error, event.body, &mut client.own);
            match judged.with_context(|| format!("{} number {}", request.kind.name(), request.key))? {
                0 => cells.record(client.pace, request.kind, now_ns.saturating_sub(event.since_ns), 1),
                refused => cells.refused(refused),
            }
            finished += 1;
            Ok(())
        });
        served.with_context(|| format!("session {}", client.number))?;
        drop(cells);
        match (&mut self.schedule, client.pace) {
            (Some(schedule), Pace::Open) => schedule.free.extend((0..finished).map(|_| at)),
            _ if self.shared.is_over() => {}
            _ => {
                for _ in 0..finished {
                    self.issue(at, now_ns)?;
                }
            }
        }
        self.swarm.flush(at)?;
        Ok(finished)
    }

    /// Sends what has fallen due in an open loop, as far as there are places.
    fn issue_due(&mut self, now_ns: u64) -> Result<()> {
        while let Some(schedule) = &mut self.schedule
            && !self.shared.is_over()
            && schedule.due.next_ns() <= now_ns
            && let Some(at) = schedule.free.pop_front()
        {
            let due_ns = schedule.due.take();
            self.issue(at, due_ns)?;
            self.touched.push(at);
        }
        self.touched.sort_unstable();
        self.touched.dedup();
        for at in &self.touched {
            self.swarm.flush(*at)?;
        }
        self.touched.clear();
        Ok(())
    }

    /// Enters the requests that were due but never sent with the time they had waited so far.
    fn charge_backlog(&mut self) -> u64 {
        let Some(schedule) = &mut self.schedule else { return 0 };
        let (now_ns, end_ns) = (self.shared.now_ns(), self.shared.end_ns());
        // Of which kind they would have been is not yet drawn.
        let (mut random, mut own) = (Random::new(self.workload.seed, u64::MAX), OwnZnodes::default());
        let (workload, mut cells) = (self.workload, self.shared.cells(self.thread.0));
        schedule.due.backlog(now_ns, end_ns, |waited_ns, count| {
            let kind = workload.next(&mut random, 0, &mut own).kind;
            cells.record(Pace::Open, kind, waited_ns, count);
        })
    }
}
