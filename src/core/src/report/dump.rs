//! `dump`: when sessions and connections end unless they are heard from, and which ephemerals the sessions hold.
//!
//! Buckets as in ZooKeeper's `ExpiryQueue`; dates in UTC.

use super::clients;
use super::date::Date;
use super::facts::Moment;
use super::sessions::SessionLine;
use crate::ids::{Millis, WallMillis};
use crate::shard::pieces::ConnLine;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Display, Write};

/// About what a session takes in the answer.
pub(super) fn bytes(line: &SessionLine) -> usize {
    const SESSION_BYTES: usize = 48;
    SESSION_BYTES + line.ephemerals.iter().map(|path| path.len() + 2).sum::<usize>()
}

pub(super) fn text(sessions: &[SessionLine], conns: &[ConnLine], moment: Moment) -> String {
    let mut text = String::from("SessionTracker dump:\nSession ");
    let _ = write(&mut text, sessions, conns, moment);
    text
}

fn write(text: &mut String, sessions: &[SessionLine], conns: &[ConnLine], moment: Moment) -> fmt::Result {
    let ends = sessions.iter().filter_map(|line| Some((line.due?, line.id)));
    sets(text, moment, ends)?;
    let holders = sessions.iter().filter(|line| !line.ephemerals.is_empty());
    let mut by_session: Vec<&SessionLine> = holders.collect();
    // Stable: the pieces of one session stay in order.
    by_session.sort_by_key(|line| line.id);
    let groups = || by_session.chunk_by(|one, other| one.id == other.id);
    writeln!(text, "ephemeral nodes dump:\nSessions with Ephemerals ({}):", groups().count())?;
    for lines in groups() {
        writeln!(text, "{}:", lines[0].id)?;
        for path in lines.iter().flat_map(|line| &line.ephemerals) {
            writeln!(text, "\t{}", &**path)?;
        }
    }
    text.push_str("Connections dump:\nConnections ");
    sets(text, moment, conns.iter().map(|line| (line.due, Connection(line))))
}

struct Connection<'l>(&'l ConnLine);

impl Display for Connection<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ip: /{} sessionId: {}", clients::address(self.0), self.0.session)
    }
}

/// `Sets (buckets)/(elements):` and each bucket with its elements.
fn sets<T: Display>(text: &mut String, moment: Moment, elements: impl Iterator<Item = (Millis, T)>) -> fmt::Result {
    let mut buckets: BTreeMap<Millis, Vec<T>> = BTreeMap::new();
    for (due, element) in elements {
        buckets.entry(due).or_default().push(element);
    }
    let count: usize = buckets.values().map(Vec::len).sum();
    writeln!(text, "Sets ({})/({count}):", buckets.len())?;
    for (due, elements) in &buckets {
        writeln!(text, "{} expire at {}:", elements.len(), Date(date_of(*due, moment)))?;
        for element in elements {
            writeln!(text, "\t{element}")?;
        }
    }
    Ok(())
}

fn date_of(due: Millis, moment: Moment) -> WallMillis {
    let ahead = due.0.cast_signed().saturating_sub(moment.now.0.cast_signed());
    WallMillis(moment.wall.0.saturating_add(ahead))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::SessionId;
    use crate::shared::Text;
    use alloc::vec;
    use clients::sample;

    fn session(id: i64, due: Option<u64>, ephemerals: &[&str]) -> SessionLine {
        let ephemerals = ephemerals.iter().map(|path| Text::from(*path)).collect();
        SessionLine { id: SessionId(id), due: due.map(Millis), ephemerals }
    }

    const MOMENT: Moment = Moment { now: Millis(1000), wall: WallMillis(1_795_266_358_000) };

    #[test]
    fn nothing() {
        let expect = "SessionTracker dump:\nSession Sets (0)/(0):\nephemeral nodes dump:\n\
                      Sessions with Ephemerals (0):\nConnections dump:\nConnections Sets (0)/(0):\n";
        assert_eq!(text(&[], &[], MOMENT), expect);
    }

    #[test]
    fn sets_as_zookeeper_prints_them() {
        let sessions = vec![
            session(0x11, Some(4000), &["/b/e3"]),
            session(0x12, Some(2000), &[]),
            session(0x13, Some(4000), &["/a/e1"]),
            session(0x13, None, &["/a/e2"]),
        ];
        let conns =
            vec![sample("127.0.0.1:1", 0, 10_000), sample("127.0.0.1:2", 0x11, 10_000), sample("[::1]:3", 0x12, 500)];
        let expect = "SessionTracker dump:\nSession Sets (2)/(3):\n1 expire at Sat Nov 21 13:05:59 UTC 2026:\n\t0x12\n\
                      2 expire at Sat Nov 21 13:06:01 UTC 2026:\n\t0x11\n\t0x13\nephemeral nodes dump:\n\
                      Sessions with Ephemerals (2):\n0x11:\n\t/b/e3\n0x13:\n\t/a/e1\n\t/a/e2\nConnections dump:\n\
                      Connections Sets (2)/(3):\n1 expire at Sat Nov 21 13:05:57 UTC 2026:\n\
                      \tip: /[0:0:0:0:0:0:0:1]:3 sessionId: 0x12\n2 expire at Sat Nov 21 13:06:07 UTC 2026:\n\
                      \tip: /127.0.0.1:1 sessionId: 0x0\n\tip: /127.0.0.1:2 sessionId: 0x11\n";
        assert_eq!(text(&sessions, &conns, MOMENT), expect);
    }
}
