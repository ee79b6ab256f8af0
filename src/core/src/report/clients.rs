//! Connections, one line each: brief in `stat`, in full in `cons`.
//!
//! On the thread that puts answers together; the lines were taken on the shards.

use super::facts::ServerFacts;
use crate::ids::SessionId;
use crate::shard::pieces::ConnLine;
use crate::tree::acl;
use alloc::format;
use alloc::string::String;
use core::fmt::{self, Write};
use corral_wire::OpCode;

/// About the length of a line of `cons`.
pub(super) const LINE_BYTES: usize = 200;

/// As Java shows it: `127.0.0.1:80`, `[0:0:0:0:0:0:0:1]:80`.
pub fn address(line: &ConnLine) -> String {
    let ip = line.peer.ip();
    let (left, right) = if ip.is_ipv4() { ("", "") } else { ("[", "]") };
    format!("{left}{}{right}:{}", acl::address_text(ip), line.peer.port())
}

/// Interest as in Java's NIO: 1 reads, 4 waits to write.
pub fn interest(line: &ConnLine) -> u8 {
    u8::from(line.reading) + 4 * u8::from(line.writing)
}

/// The last operation as `cons` shows it, `NA` before the first.
pub fn last_operation(line: &ConnLine) -> &'static str {
    line.counters.last_op.map_or("NA", OpCode::lop)
}

/// ` /ip:port[interest](queued=,recved=,sent=`, without the end.
fn begin(line: &ConnLine, text: &mut String) -> fmt::Result {
    let interest = interest(line);
    let ConnLine { queued, counters, .. } = line;
    write!(text, " /{}[{interest}](queued={queued},recved={},sent={}", address(line), counters.received, counters.sent)
}

pub(super) fn brief(line: &ConnLine, text: &mut String) {
    let _ = begin(line, text);
    text.push_str(")\n");
}

fn full(line: &ConnLine, facts: &ServerFacts, text: &mut String) -> fmt::Result {
    begin(line, text)?;
    if line.session != SessionId(0) {
        let ConnLine { session, timeout_ms, opened, counters, .. } = line;
        let lop = last_operation(line);
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

/// A connection of which three requests were answered.
#[cfg(test)]
pub(super) fn sample(peer: &str, session: i64, due: u64) -> ConnLine {
    use crate::ids::Millis;
    use crate::shard::counters::ConnCounters;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Millis, WallMillis, Zxid};
    use crate::shard::counters::{Answered, ConnCounters};

    #[test]
    fn lines_as_zookeeper_prints_them() {
        let facts = ServerFacts { started: WallMillis(1_795_249_857_163), ..ServerFacts::default() };
        let check = |line: &ConnLine, expect: &str| assert_eq!(text(core::slice::from_ref(line), &facts), expect);
        let mut conn = sample("127.0.0.1:49260", 0, 0);
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
        brief(&sample("[::1]:80", 5, 0), &mut short);
        assert_eq!(short, " /[0:0:0:0:0:0:0:1]:80[1](queued=0,recved=3,sent=3)\n");
    }
}
