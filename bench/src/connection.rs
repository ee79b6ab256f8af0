//! One session under load: the requests in flight, in order, and what the session has created.
//!
//! Owned by one client thread. Knows no phases and no histogram.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, bail, ensure};
use corral_wire::OpCode;
use corral_wire::consts::XID_PING;

use crate::check::{self, BadReply, Verdict};
use crate::keys::Random;
use crate::limits::CREATES_PER_CONNECTION_MAX;
use crate::link::Link;
use crate::mix::Kind;
use crate::own_znodes::OwnZnodes;
use crate::workload::{Request, Workload, push_frame};

/// A request without a reply, in the order sent.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    xid: i32,
    request: Request,
    /// When it was sent, or due in an open loop; nanoseconds since the run's start.
    since_ns: u64,
}

/// How a connection comes to its next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// A reply is followed by a request.
    Closed,
    /// Requests fall due at the rate of the thread's schedule.
    Open,
}

/// A measured request that was answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) kind: Kind,
    /// When it was sent, or due in an open loop.
    pub(crate) since_ns: u64,
    /// A tolerated error.
    pub(crate) error: Option<i32>,
}

/// A session with requests in flight.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) link: Link,
    pub(crate) pace: Pace,
    pub(crate) depth: u32,
    server: SocketAddr,
    session: Session,
}

/// The state of a session between a request and its reply.
#[derive(Debug)]
struct Session {
    number: u32,
    next_xid: i32,
    zxid_seen: i64,
    in_flight: VecDeque<InFlight>,
    random: Random,
    own: OwnZnodes,
}

impl Connection {
    /// Takes over the socket of an open session, which will keep `depth` requests in flight at most.
    pub(crate) fn new(
        stream: TcpStream,
        server: SocketAddr,
        number: u32,
        workload: &Workload,
        (pace, depth): (Pace, u32),
    ) -> Result<Self> {
        let session = Session {
            number,
            next_xid: 1,
            zxid_seen: 0,
            in_flight: VecDeque::new(),
            random: Random::new(workload.seed, u64::from(number)),
            own: OwnZnodes::prepared(workload.stock),
        };
        Ok(Self { link: Link::new(stream)?, pace, depth, server, session })
    }

    /// Requests without a reply; pings count.
    pub(crate) fn in_flight(&self) -> usize {
        self.session.in_flight.len()
    }

    /// When the oldest request without a reply was sent or due.
    pub(crate) fn oldest_ns(&self) -> Option<u64> {
        self.session.in_flight.front().map(|oldest| oldest.since_ns)
    }

    /// What it has created, at the end.
    pub(crate) fn into_own(self) -> (u32, OwnZnodes) {
        (self.session.number, self.session.own)
    }

    /// Appends the next request to the output; a flush sends it.
    pub(crate) fn issue(&mut self, workload: &Workload, since_ns: u64) -> Result<()> {
        let session = &mut self.session;
        let request = workload.next(&mut session.random, session.number, &mut session.own);
        ensure!(
            session.own.created() <= CREATES_PER_CONNECTION_MAX,
            "one connection created {CREATES_PER_CONNECTION_MAX} znodes; use more connections"
        );
        let xid = session.take_xid();
        workload.encode(&mut self.link.out, xid, request, &mut session.random);
        session.in_flight.push_back(InFlight { xid, request, since_ns });
        Ok(())
    }

    /// Appends a ping, which keeps a quiet session alive.
    pub(crate) fn ping(&mut self, now_ns: u64) {
        self.control(XID_PING, Kind::Ping, OpCode::Ping, now_ns);
    }

    /// Appends the request that closes the session.
    pub(crate) fn close_session(&mut self, now_ns: u64) {
        let xid = self.session.take_xid();
        self.control(xid, Kind::Close, OpCode::CloseSession, now_ns);
    }

    fn control(&mut self, xid: i32, kind: Kind, op: OpCode, since_ns: u64) {
        push_frame(&mut self.link.out, xid, op, &[], &[]);
        let request = Request { kind, key: 0, length: 0, connection: self.session.number };
        self.session.in_flight.push_back(InFlight { xid, request, since_ns });
    }

    /// Reads once. Returns the number of bytes now at the front of `scratch`; 0 if none came.
    pub(crate) fn receive(&mut self, scratch: &mut [u8]) -> Result<usize> {
        match self.link.receive(scratch).with_context(|| self.name())? {
            Some(bytes) => Ok(bytes),
            None => bail!("{}: the server closed the connection with {} in flight", self.name(), self.in_flight()),
        }
    }

    /// Checks every whole reply in what was received. `done` hears of each measured one.
    pub(crate) fn replies(&mut self, received: &[u8], workload: &Workload, mut done: impl FnMut(Answer)) -> Result<()> {
        let Self { link, session, server, .. } = self;
        let judged = link.frames(received, &mut |body| {
            if let Some(answer) = session.judge(body, workload)? {
                done(answer);
            }
            Ok(())
        });
        judged.with_context(|| format!("connection {} to {server}", session.number))
    }

    fn name(&self) -> String {
        format!("connection {} to {}", self.session.number, self.server)
    }
}

impl Session {
    fn take_xid(&mut self) -> i32 {
        let xid = self.next_xid;
        self.next_xid = xid.checked_add(1).unwrap_or(1);
        xid
    }

    fn judge(&mut self, body: &[u8], workload: &Workload) -> Result<Option<Answer>> {
        let Some(InFlight { xid, request, since_ns }) = self.in_flight.pop_front() else {
            bail!("a reply came without a request");
        };
        let judged = self.verdict(body, xid, request, workload);
        let verdict = judged.with_context(|| format!("{} number {}", request.kind.name(), request.key))?;
        if matches!(request.kind, Kind::Ping | Kind::Close) {
            return Ok(None);
        }
        let error = match verdict {
            Verdict::Right => None,
            Verdict::Refused(code) => {
                self.refused(request);
                Some(code)
            }
        };
        Ok(Some(Answer { kind: request.kind, since_ns, error }))
    }

    fn verdict(&mut self, body: &[u8], xid: i32, request: Request, workload: &Workload) -> Result<Verdict, BadReply> {
        match request.kind {
            Kind::Ping | Kind::Close => check::header(body, xid, &mut self.zxid_seen).map(|_| Verdict::Right),
            // The znode was never created, and the server must reply NONODE.
            Kind::Delete if self.own.take_absent(request.key) => check::no_node(body, xid, &mut self.zxid_seen),
            _ => workload.check(body, xid, request, &mut self.zxid_seen),
        }
    }

    fn refused(&mut self, request: Request) {
        match request.kind {
            Kind::Create => self.own.create_refused(request.key),
            Kind::Delete => self.own.delete_refused(request.key),
            _ => {}
        }
    }
}
