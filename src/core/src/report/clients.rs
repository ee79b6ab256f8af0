//! Connections, one line each: brief in `stat`, in full in `cons`.
//!
//! On the thread that puts answers together; the lines were taken on the shards.

use super::{ConnCounters, ServerFacts};
use crate::ids::{Millis, SessionId};
use crate::shard::conn::{Conn, Phase};
use crate::tree::acl;
use alloc::format;
use alloc::string::String;
use core::fmt::{self, Write};
use core::net::SocketAddr;
use corral_wire::OpCode;

/// About the length of a line of `cons`.
pub(super) const LINE_BYTES: usize = 200;

/// One connection.
#[derive(Clone, Debug)]
pub struct ConnLine {
    peer: SocketAddr,
    /// 0 before the connection has a session.
    pub session: SessionId,
    /// Negotiated session timeout, milliseconds; 0 before the connection has a session.
    pub timeout_ms: i32,
    /// When it was accepted.
    pub opened: Millis,
    /// Whether it uses TLS.
    pub is_secured: bool,
    /// End of the bucket of time in which it ends if it stays silent, see [`ConnLine::of`].
    pub(super) due: Millis,
    reading: bool,
    writing: bool,
    /// Requests that wait for their reply.
    pub queued: usize,
    /// Paths that it watches.
    pub watches: u32,
    /// Requests, replies and latencies of this connection.
    pub counters: ConnCounters,
}

impl ConnLine {
    /// `sessionless_ms` is how long a connection may go without a session, and the width of the buckets, as in
    /// ZooKeeper.
    pub(super) fn of(conn: &Conn, watches: u32, sessionless_ms: u64) -> Self {
        let silent_ms = conn.session.silence_max_ms();
        let end = match conn.phase {
            Phase::Live => conn.active_at.plus(silent_ms),
            _ => conn.opened.plus(sessionless_ms),
        };
        let width = sessionless_ms.max(1);
        Self {
            peer: conn.peer,
            session: conn.session.id(),
            timeout_ms: conn.session.timeout_ms(),
            opened: conn.opened,
            is_secured: conn.is_secured,
            due: Millis((end.0 / width + 1).saturating_mul(width)),
            reading: conn.command.is_none() && !conn.stalled,
            writing: conn.command.is_none() && conn.unsent() > 0,
            queued: conn.pending.len(),
            watches,
            counters: conn.counters,
        }
    }
}

impl ConnLine {
    /// The client. An IPv4 address is one, also if the socket is of IPv6.
    pub fn peer(&self) -> SocketAddr {
        SocketAddr::new(self.peer.ip().to_canonical(), self.peer.port())
    }

    /// As Java shows it: `127.0.0.1:80`, `[0:0:0:0:0:0:0:1]:80`.
    pub fn address(&self) -> String {
        let ip = self.peer.ip().to_canonical();
        let (left, right) = if ip.is_ipv4() { ("", "") } else { ("[", "]") };
        format!("{left}{}{right}:{}", acl::address_text(ip), self.peer.port())
    }

    /// Interest as in Java's NIO: 1 reads, 4 waits to write.
    pub fn interest(&self) -> u8 {
        u8::from(self.reading) + 4 * u8::from(self.writing)
    }

    /// The last operation as `cons` shows it, `NA` before the first.
    pub fn last_operation(&self) -> &'static str {
        self.counters.last_op.map_or("NA", OpCode::lop)
    }
}

/// ` /ip:port[interest](queued=,recved=,sent=`, without the end.
fn begin(line: &ConnLine, text: &mut String) -> fmt::Result {
    let interest = line.interest();
    let ConnLine { queued, counters, .. } = line;
    write!(text, " /{}[{interest}](queued={queued},recved={},sent={}", line.address(), counters.received, counters.sent)
}

pub(super) fn brief(line: &ConnLine, text: &mut String) {
    let _ = begin(line, text);
    text.push_str(")\n");
}

fn full(line: &ConnLine, facts: &ServerFacts, text: &mut String) -> fmt::Result {
    begin(line, text)?;
    if line.session != SessionId(0) {
        let ConnLine { session, timeout_ms, opened, counters, .. } = line;
        let lop = line.last_operation();
        let opened = facts.started.0.saturating_add_unsigned(opened.0);
        write!(text, ",sid={session},lop={lop},est={opened},to={timeout_ms}")?;
        if counters.last_xid >= 0 {
            write!(text, ",lcxid=0x{:x}", counters.last_xid)?;
        }
        write!(
            text,
            ",lzxid=0x{:x},lresp={},llat={},minlat={},avglat={},maxlat={}",
            counters.last_zxid,
            counters.last_reply.0,
            counters.last_latency_ms,
            counters.latency_ms_min(),
            counters.latency_ms_average(),
            counters.latency_ms_max,
        )?;
    }
    text.push_str(")\n");
    Ok(())
}

/// `cons`: a line each, and an empty one.
pub(super) fn text(lines: &[ConnLine], facts: &ServerFacts) -> String {
    let mut text = String::with_capacity(lines.len() * LINE_BYTES + 1);
    for line in lines {
        let _ = full(line, facts, &mut text);
    }
    text.push('\n');
    text
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::Answered;
    use super::*;
    use crate::ids::{WallMillis, Zxid};

    pub(in super::super) fn line(peer: &str, session: i64, due: u64) -> ConnLine {
        let mut counters = ConnCounters::default();
        (counters.received, counters.sent) = (3, 3);
        ConnLine {
            peer: peer.parse().expect("an address"),
            session: SessionId(session),
            timeout_ms: 10_000,
            opened: Millis(2000),
            is_secured: false,
            due: Millis(due),
            reading: true,
            writing: false,
            queued: 0,
            watches: 0,
            counters,
        }
    }

    #[test]
    fn lines_as_zookeeper_prints_them() {
        let facts = ServerFacts { started: WallMillis(1_795_249_857_163), ..ServerFacts::default() };
        let check = |line: &ConnLine, expect: &str| assert_eq!(text(core::slice::from_ref(line), &facts), expect);
        let mut conn = line("127.0.0.1:49260", 0, 0);
        check(&conn, " /127.0.0.1:49260[1](queued=0,recved=3,sent=3)\n\n");
        conn.session = SessionId(0x0100_0034_2ec1_0023);
        let answered = Answered { op: Some(OpCode::SetData), xid: 2, at: Millis(9).micros(), update: true };
        conn.counters.replied(answered, Zxid(0xbe), Millis(10), 1);
        let rest =
            "lop=SETD,est=1795249859163,to=10000,lcxid=0x2,lzxid=0xbe,lresp=10,llat=1,minlat=1,avglat=1,maxlat=1";
        check(
            &conn,
            &alloc::format!(" /127.0.0.1:49260[1](queued=0,recved=3,sent=4,sid=0x10000342ec10023,{rest})\n\n"),
        );
        conn.counters = ConnCounters::reset();
        (conn.reading, conn.writing, conn.queued) = (false, true, 12);
        let rest =
            "lop=NA,est=1795249859163,to=10000,lzxid=0xffffffffffffffff,lresp=0,llat=0,minlat=0,avglat=0,maxlat=0";
        check(
            &conn,
            &alloc::format!(" /127.0.0.1:49260[4](queued=12,recved=0,sent=0,sid=0x10000342ec10023,{rest})\n\n"),
        );
        let mut short = String::new();
        brief(&line("[::1]:80", 5, 0), &mut short);
        assert_eq!(short, " /[0:0:0:0:0:0:0:1]:80[1](queued=0,recved=3,sent=3)\n");
    }
}
