//! One session under load: its socket, the requests in flight, and the bytes not yet sent or not yet a whole reply.
//!
//! Owned by one client thread. Buffers grow only with what is in flight. Knows no phases and no histogram.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, bail};
use corral_wire::OpCode;
use corral_wire::consts::XID_PING;
use corral_wire::frame::next_frame;

use crate::check::{self, BadReply};
use crate::limits::{CREATES_PER_CONNECTION_MAX, REPLY_BYTES_MAX};
use crate::workload::{Random, Request, Workload, push_frame};

/// A request without a reply, in the order sent.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    xid: i32,
    request: Request,
    /// When it was sent, or due in an open loop; nanoseconds since the run's start.
    since_ns: u64,
}

/// A session with requests in flight.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    server: SocketAddr,
    number: u32,
    next_xid: i32,
    zxid_seen: i64,
    in_flight: VecDeque<InFlight>,
    /// Pings and the closing request are in flight too, but are not measured.
    out: Vec<u8>,
    sent: usize,
    partial: Vec<u8>,
    random: Random,
    pub(crate) created: u32,
    pub(crate) last_sent_ns: u64,
    /// Whether the kernel is asked to say when the socket can be written.
    pub(crate) awaits_write: bool,
}

impl Connection {
    /// Takes over the socket of an open session.
    pub(crate) fn new(stream: TcpStream, server: SocketAddr, number: u32) -> Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            server,
            number,
            next_xid: 1,
            zxid_seen: 0,
            in_flight: VecDeque::new(),
            out: Vec::new(),
            sent: 0,
            partial: Vec::new(),
            random: Random::new(u64::from(number) + 1),
            created: 0,
            last_sent_ns: 0,
            awaits_write: false,
        })
    }

    /// Requests without a reply; pings count.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// When the oldest request without a reply was sent or due.
    pub(crate) fn oldest_ns(&self) -> Option<u64> {
        self.in_flight.front().map(|oldest| oldest.since_ns)
    }

    /// Appends the next request to the output; `flush` sends it.
    pub(crate) fn issue(&mut self, workload: &Workload, since_ns: u64) -> Result<()> {
        let request = workload.next(&mut self.random, self.number, &mut self.created);
        if self.created > CREATES_PER_CONNECTION_MAX {
            bail!("one connection created {CREATES_PER_CONNECTION_MAX} znodes; use more connections");
        }
        let xid = self.take_xid();
        workload.encode(&mut self.out, xid, request);
        self.in_flight.push_back(InFlight { xid, request, since_ns });
        Ok(())
    }

    /// Appends a ping, which keeps a quiet session alive.
    pub(crate) fn ping(&mut self, now_ns: u64) {
        self.control(XID_PING, OpCode::Ping, now_ns);
    }

    /// Appends the request that closes the session.
    pub(crate) fn close_session(&mut self, now_ns: u64) {
        let xid = self.take_xid();
        self.control(xid, OpCode::CloseSession, now_ns);
    }

    fn control(&mut self, xid: i32, op: OpCode, since_ns: u64) {
        push_frame(&mut self.out, xid, op, &[], &[]);
        let request = Request { op, key: 0, connection: self.number };
        self.in_flight.push_back(InFlight { xid, request, since_ns });
    }

    fn take_xid(&mut self) -> i32 {
        let xid = self.next_xid;
        self.next_xid = xid.checked_add(1).unwrap_or(1);
        xid
    }

    /// Sends as much as the socket takes. Gives whether all is sent.
    pub(crate) fn flush(&mut self, now_ns: u64) -> Result<bool> {
        while self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(bytes) => self.sent += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).with_context(|| self.name()),
            }
            self.last_sent_ns = now_ns;
        }
        self.out.clear();
        self.sent = 0;
        Ok(true)
    }

    /// Reads once. Gives the number of bytes now at the front of `scratch`; 0 if none came.
    pub(crate) fn receive(&mut self, scratch: &mut [u8]) -> Result<usize> {
        match self.stream.read(scratch) {
            Ok(0) => bail!("{}: the server closed the connection with {} in flight", self.name(), self.in_flight()),
            Ok(bytes) => Ok(bytes),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(0),
            Err(error) => Err(error).with_context(|| format!("{}: {} in flight", self.name(), self.in_flight())),
        }
    }

    /// Checks every whole reply in what was received. `done` hears of each measured one: when it was sent or due.
    pub(crate) fn replies(&mut self, received: &[u8], workload: &Workload, mut done: impl FnMut(u64)) -> Result<()> {
        if self.partial.is_empty() {
            let used = self.judge_all(received, workload, &mut done)?;
            self.partial.extend_from_slice(&received[used..]);
            return Ok(());
        }
        let mut joined = std::mem::take(&mut self.partial);
        joined.extend_from_slice(received);
        let used = self.judge_all(&joined, workload, &mut done)?;
        joined.drain(..used);
        if !joined.is_empty() {
            self.partial = joined;
        }
        Ok(())
    }

    fn judge_all(&mut self, bytes: &[u8], workload: &Workload, done: &mut impl FnMut(u64)) -> Result<usize> {
        let mut used = 0;
        while let Some((body, frame_bytes)) =
            next_frame(&bytes[used..], REPLY_BYTES_MAX).with_context(|| self.name())?
        {
            let Some(oldest) = self.in_flight.pop_front() else {
                bail!("{}: a reply came without a request", self.name());
            };
            let measured = self.judge(body, oldest, workload).with_context(|| {
                let Request { op, key, .. } = oldest.request;
                format!("{}: {} number {key}", self.name(), op.name())
            })?;
            if measured {
                done(oldest.since_ns);
            }
            used += frame_bytes;
        }
        Ok(used)
    }

    fn judge(&mut self, body: &[u8], oldest: InFlight, workload: &Workload) -> Result<bool, BadReply> {
        if matches!(oldest.request.op, OpCode::Ping | OpCode::CloseSession) {
            return check::header(body, oldest.xid, &mut self.zxid_seen).map(|_| false);
        }
        workload.check(body, oldest.xid, oldest.request, &mut self.zxid_seen).map(|()| true)
    }

    fn name(&self) -> String {
        format!("connection {} to {}", self.number, self.server)
    }
}
