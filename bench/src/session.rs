//! Opens a session over a blocking socket, and creates and removes znodes with one, pipelined.
//!
//! Runs on the thread that coordinates a run, before and after the load. Knows nothing of measuring.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use corral_wire::consts::VERSION_ANY;
use corral_wire::frame::{begin_frame, end_frame, next_frame};
use corral_wire::records::{ConnectRequest, ConnectResponse};
use corral_wire::{OpCode, Reader, Writer};

use crate::check::{self, BadReply};
use crate::limits::{ADMIN_WINDOW, ADMIN_WINDOW_BYTES, PLACE_WAIT, REPLY_BYTES_MAX};
use crate::workload::{create_tail, encoded, push_frame};

const TOO_LATE: &str = "no reply within the reply timeout";

/// The error for a server whose reply to a connect request is not a connect response.
pub(crate) fn no_zookeeper(server: SocketAddr) -> String {
    format!("{server} does not speak ZooKeeper's protocol: its answer to the connect request is something else")
}

/// The error for a server that does not reply to a connect request.
pub(crate) fn silent(server: SocketAddr) -> String {
    format!("nothing answered the connect request; does it speak ZooKeeper's protocol at {server}?")
}

/// The error for a server that closes the connection instead of replying to a connect request.
pub(crate) fn refused(server: SocketAddr) -> String {
    format!(
        "{server} closed the connection instead of granting a session; {LIMITED} or does it speak another protocol?"
    )
}

/// The usual reason why a server takes some connections and then no more.
pub(crate) const LIMITED: &str =
    "has it a limit on connections (ZooKeeper: maxClientCnxns; corral: --set limits.connections_per_ip_max=0)";

/// Opens a new session. Returns the socket, still blocking, and the timeout the server granted.
///
/// # Errors
/// If the server cannot be reached, does not answer within `reply_timeout`, or refuses.
pub(crate) fn open(server: SocketAddr, timeout_ms: i32, reply_timeout: Duration) -> Result<(TcpStream, Duration)> {
    let mut stream = TcpStream::connect_timeout(&server, reply_timeout)
        .with_context(|| format!("{server} cannot be reached; is the server running there?"))?;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(reply_timeout))?;
    let mut out = Vec::new();
    connect_request(&mut out, timeout_ms)?;
    stream.write_all(&out).with_context(|| format!("{server}: the connect request cannot be sent"))?;
    // A reply that comes byte by byte may not take longer than one that comes at once.
    let until = Instant::now() + reply_timeout;
    let mut buf = Vec::new();
    let granted = loop {
        if let Some((body, used)) = next_frame(&buf, REPLY_BYTES_MAX).with_context(|| no_zookeeper(server))? {
            let response = ConnectResponse::decode(&mut Reader::new(body)).with_context(|| no_zookeeper(server))?;
            ensure!(used == buf.len(), "{server} sent more than the connect response");
            break u64::try_from(response.timeout_ms).unwrap_or(0);
        }
        let left = until.saturating_duration_since(Instant::now());
        let received = if left.is_zero() {
            Err(anyhow!(TOO_LATE))
        } else {
            stream.set_read_timeout(Some(left))?;
            more(&mut stream, &mut buf)
        };
        received.with_context(|| if until <= Instant::now() { silent(server) } else { refused(server) })?;
    };
    stream.set_read_timeout(Some(reply_timeout))?;
    ensure!(granted > 0, "{server} granted no session");
    Ok((stream, Duration::from_millis(granted)))
}

/// Appends the frame that asks for a new session.
pub(crate) fn connect_request(out: &mut Vec<u8>, timeout_ms: i32) -> Result<()> {
    let mark = begin_frame(out);
    let request = ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: 0,
        timeout_ms,
        session_id: 0,
        passwd: Some(&[0; 16]),
        read_only: Some(false),
    };
    request.encode(&mut Writer::new(out));
    Ok(end_frame(out, mark)?)
}

fn more(stream: &mut TcpStream, buf: &mut Vec<u8>) -> Result<()> {
    let start = buf.len();
    buf.resize(start + (64 << 10), 0);
    let read = stream.read(&mut buf[start..]);
    buf.truncate(start + read.as_ref().map_or(0, |bytes| *bytes));
    match read {
        Ok(0) => bail!("the server closed the connection"),
        Ok(_) => Ok(()),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            bail!(TOO_LATE)
        }
        Err(error) => Err(error.into()),
    }
}

/// A session that prepares and cleans up: many requests of one kind, pipelined, each reply checked.
pub(crate) struct Admin {
    stream: TcpStream,
    next_xid: i32,
    zxid_seen: i64,
    buf: Vec<u8>,
}

impl Admin {
    pub(crate) fn open(server: SocketAddr, timeout_ms: i32, reply_timeout: Duration) -> Result<Self> {
        let (stream, _) = open(server, timeout_ms, reply_timeout)?;
        Ok(Self { stream, next_xid: 1, zxid_seen: 0, buf: Vec::new() })
    }

    /// As [`Self::open`], after sessions were refused: their places become free only when the server has seen all of them
    /// hang up, for which it is given [`PLACE_WAIT`].
    pub(crate) fn open_late(server: SocketAddr, timeout_ms: i32, reply_timeout: Duration) -> Result<Self> {
        let until = Instant::now() + PLACE_WAIT;
        loop {
            match Self::open(server, timeout_ms, reply_timeout.min(PLACE_WAIT)) {
                Ok(admin) => {
                    admin.stream.set_read_timeout(Some(reply_timeout))?;
                    admin.stream.set_write_timeout(Some(reply_timeout))?;
                    return Ok(admin);
                }
                Err(error) if Instant::now() >= until => return Err(error),
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Creates the znodes in order, the nth with `value(n)`. `tick` is called with the number done so far, and stops the work by an error.
    pub(crate) fn create_all<'v>(
        &mut self,
        paths: impl Iterator<Item = String>,
        value: impl Fn(u64) -> &'v [u8],
        tick: impl FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        self.run_all(OpCode::Create, paths, |nth| create_tail(value(nth), 0), tick)
    }

    /// Deletes the znodes in order.
    pub(crate) fn delete_all(
        &mut self,
        paths: impl Iterator<Item = String>,
        tick: impl FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        self.run_all(OpCode::Delete, paths, |_| encoded(|writer| writer.i32(VERSION_ANY)), tick)
    }

    fn run_all(
        &mut self,
        op: OpCode,
        mut paths: impl Iterator<Item = String>,
        tail: impl Fn(u64) -> Vec<u8>,
        mut tick: impl FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let (mut done, mut begun) = (0, 0);
        loop {
            let mut out = Vec::new();
            let mut batch = Vec::new();
            while batch.len() < ADMIN_WINDOW && out.len() < ADMIN_WINDOW_BYTES {
                let Some(path) = paths.next() else { break };
                push_frame(&mut out, self.take_xid(), op, &encoded(|writer| writer.str(&path)), &tail(begun));
                batch.push(path);
                begun += 1;
            }
            if batch.is_empty() {
                return Ok(());
            }
            self.stream.write_all(&out).context("the server takes no requests")?;
            let first_xid = self.next_xid - i32::try_from(batch.len())?;
            for (xid, path) in (first_xid..).zip(&batch) {
                self.reply(xid).with_context(|| format!("{} {path}", op.name()))?;
            }
            done += batch.len() as u64;
            tick(done)?;
        }
    }

    /// xids stay positive: after two billion requests they start again.
    fn take_xid(&mut self) -> i32 {
        if self.next_xid > i32::MAX - 1_000_000 {
            self.next_xid = 1;
        }
        self.next_xid += 1;
        self.next_xid - 1
    }

    fn reply(&mut self, xid: i32) -> Result<()> {
        loop {
            if let Some((body, used)) = next_frame(&self.buf, REPLY_BYTES_MAX)? {
                let verdict = check::header(body, xid, &mut self.zxid_seen).map(|_| ());
                self.buf.drain(..used);
                return verdict.map_err(BadReply::into);
            }
            more(&mut self.stream, &mut self.buf)?;
        }
    }

    /// Closes the session and waits for the server to agree.
    pub(crate) fn close(mut self) -> Result<()> {
        let mut out = Vec::new();
        let xid = self.take_xid();
        push_frame(&mut out, xid, OpCode::CloseSession, &[], &[]);
        self.stream.write_all(&out)?;
        self.reply(xid).context("closeSession")
    }
}
