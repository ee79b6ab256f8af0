//! `srvr` and `stat`: the server block that `zkServer.sh status` and many monitors read.

use super::clients;
use super::facts::{Mode, ServerFacts};
use super::value::decimal;
use crate::shard::pieces::{ConnLine, Totals};
use alloc::format;
use alloc::string::String;
use core::fmt::Write;

pub(super) fn block(totals: &Totals, facts: &ServerFacts, clients: Option<&[ConnLine]>) -> String {
    let mut text = format!("Zookeeper version: {}\n", facts.version);
    if facts.mode == Mode::ReadOnly {
        text.push_str("READ-ONLY mode; serving only read-only clients\n");
    }
    if let Some(lines) = clients {
        text.push_str("Clients:\n");
        for line in lines {
            clients::brief(line, &mut text);
        }
        text.push('\n');
    }
    let latency = totals.statistics.latency();
    let _ = write!(
        text,
        "Latency min/avg/max: {}/{}/{}\nReceived: {}\nSent: {}\nConnections: {}\nOutstanding: {}\nZxid: {}\n\
         Mode: {}\nNode count: {}\n",
        latency.ms_min(),
        decimal(latency.average()),
        latency.ms_max,
        totals.statistics.received,
        totals.statistics.sent,
        totals.connections,
        totals.outstanding,
        totals.zxid,
        facts.mode.word(),
        totals.nodes,
    );
    if let Some(obstacle) = facts.obstacle {
        let _ = writeln!(text, "Serving: no, {}", obstacle.sentence());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::Obstacle;
    use super::*;
    use crate::ids::Zxid;
    use crate::shard::pieces::Totals;

    #[test]
    fn blocks_as_zookeeper_prints_them() {
        let mut totals = Totals { connections: 5, outstanding: 1, zxid: Zxid(0xa), nodes: 12, ..Totals::default() };
        (totals.statistics.received, totals.statistics.sent) = (31, 32);
        for ms in [0, 1, 14] {
            totals.statistics.reads.note(ms);
        }
        totals.statistics.updates.note(2);
        let conns = alloc::vec![clients::sample("10.0.0.7:51822", 7, 0)];
        let facts = ServerFacts { version: String::from("3.9.5-x"), ..ServerFacts::default() };
        let rest = "Latency min/avg/max: 0/4.25/14\nReceived: 31\nSent: 32\nConnections: 5\nOutstanding: 1\nZxid: 0xa\n\
                    Mode: standalone\nNode count: 12\n";
        assert_eq!(block(&totals, &facts, None), format!("Zookeeper version: 3.9.5-x\n{rest}"));
        let alone = ServerFacts { mode: Mode::ReadOnly, ..facts.clone() };
        let text = format!(
            "Zookeeper version: 3.9.5-x\nREAD-ONLY mode; serving only read-only clients\n{}",
            rest.replace("standalone", "read-only")
        );
        assert_eq!(block(&totals, &alone, None), text);
        let held = ServerFacts { obstacle: Some(Obstacle::NoLeader), ..facts.clone() };
        let text = format!("Zookeeper version: 3.9.5-x\n{rest}Serving: no, it knows no leader\n");
        assert_eq!(block(&totals, &held, None), text);
        let clients = "Clients:\n /10.0.0.7:51822[1](queued=0,recved=3,sent=3)\n\n";
        assert_eq!(block(&totals, &facts, Some(&conns)), format!("Zookeeper version: 3.9.5-x\n{clients}{rest}"));
    }
}
