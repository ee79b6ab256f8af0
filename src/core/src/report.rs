//! The four-letter commands' answers (protocol chapter 23): what shards and the leader tell of themselves, in pieces,
//! and the text made of all pieces.
//!
//! Pieces are taken on the core that owns their data, each in one short pass. Putting them together and writing the
//! text may take long. It is done on a thread that serves no clients. Knows no clock, no file and no process: their
//! facts come as [`ServerFacts`].

mod clients;
mod counters;
mod date;
mod dump;
pub mod health;
mod kind;
mod latencies;
mod metrics;
mod obstacle;
mod pieces;
mod process;
mod scarcity;
mod server;
mod shards;
mod top;
mod value;
mod watches;

use crate::ids::{Millis, SessionId, WallMillis, Zxid};
use crate::limits::FOUR_LETTER_BYTES_MAX;
use crate::shared::Text;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use corral_wire::fourletter::FourLetter;
use smallvec::SmallVec;

pub use clients::ConnLine;
pub(crate) use counters::Answered;
pub use counters::{ConnCounters, Latency, Sizes, Statistics};
pub use kind::{Kind, Origin};
pub use latencies::{BOUNDS_US, Histogram, Quantiles};
pub use metrics::{METRICS, Metric, Sample};
pub use obstacle::Obstacle;
pub use process::{
    AuditFacts, Configured, LatencyFacts, Mode, PeerFacts, Quorum, ReconfigStep, ScrubFacts, ServerFacts, Timing,
};
pub use scarcity::{MemoryUse, Scarcity, SpaceFacts, scarcity};
pub use shards::ShardLoad;
pub use top::{Held, TopClients, TopRow, text as top_text};
pub use value::{Summary, Value};
pub use watches::WatchSummary;

/// Sums over one shard, or over all of them.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Counters of requests, replies and bytes.
    pub statistics: Statistics,
    /// Connections that are open.
    pub connections: u64,
    /// Requests that wait for their reply.
    pub outstanding: u64,
    /// Both tables, per path, table and connection.
    pub watches: u64,
    /// The rest is the same on every shard at the same zxid; the newest counts.
    pub zxid: Zxid,
    /// Znodes; the root counts twice, as in ZooKeeper.
    pub nodes: u64,
    /// Bytes of all paths and all data.
    pub data_bytes: u64,
    /// Ephemeral znodes.
    pub ephemerals: u64,
    /// Live sessions of all servers.
    pub sessions: u64,
}

/// A path with data watches.
#[derive(Clone, Debug)]
pub struct Watched {
    /// The path's hash, the same on all shards.
    pub hash: u64,
    /// The watched path. Empty for `wchs`, which counts by the hash.
    pub path: Text,
    /// Sessions that watch the path on one shard, or some of them.
    pub watchers: SmallVec<[SessionId; 1]>,
}

/// A session, or more of the ephemerals of the session before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionLine {
    /// Id of the session.
    pub id: SessionId,
    /// When it ends unless it is active; `None` when only its ephemerals go on, or when this server does not keep its
    /// deadline.
    pub due: Option<Millis>,
    /// Paths of its ephemerals, sorted. Of many, this line has a part.
    pub ephemerals: Vec<Text>,
}

/// From where a pass over the sessions goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionMark {
    pub(crate) id: SessionId,
    /// The last ephemeral told of this session; `None` when the session itself is still to be told.
    pub(crate) path: Option<Text>,
}

impl Default for SessionMark {
    /// Before the first: ids are signed.
    fn default() -> Self {
        Self { id: SessionId(i64::MIN), path: None }
    }
}

/// The result of one pass of one actor.
#[derive(Debug, Default)]
pub struct Piece {
    /// Sums, for `srvr`, `stat` and `mntr`.
    pub totals: Totals,
    /// Connections, for `stat`, `cons` and `dump`.
    pub conns: Vec<ConnLine>,
    /// Paths with data watches, for `wchs`, `wchc` and `wchp`.
    pub watched: Vec<Watched>,
    /// Load of clients, for `top`. For `mntr` it has addresses alone.
    pub top: TopClients,
    /// With the totals.
    pub shard: Option<ShardLoad>,
    /// Where the next pass begins; `None` after the last.
    pub next: Option<usize>,
}

/// The result of one pass over the leader's sessions.
#[derive(Debug, Default)]
pub struct SessionPiece {
    /// Sessions in the order of their ids.
    pub sessions: Vec<SessionLine>,
    /// Where the next pass begins; `None` after the last.
    pub next: Option<SessionMark>,
}

/// All pieces of an answer.
#[derive(Debug, Default)]
pub struct Report {
    /// Sums over all shards.
    pub totals: Totals,
    /// Connections of all shards.
    pub conns: Vec<ConnLine>,
    watched: Vec<Watched>,
    /// Load of the clients of all shards.
    pub top: TopClients,
    /// In the order of their ids.
    shards: Vec<ShardLoad>,
    /// In the order of their ids. A session with many ephemerals is there several times.
    pub sessions: Vec<SessionLine>,
    /// For `wchs`: hashes of watched paths and ids of watching sessions, as they came.
    watched_hashes: watches::Distinct<u64>,
    watching: watches::Distinct<SessionId>,
    /// About how long the answer becomes.
    bytes: usize,
}

impl Report {
    /// Takes in a shard's piece.
    pub fn take(&mut self, command: FourLetter, piece: Piece) {
        self.totals.merge(&piece.totals);
        self.bytes += piece.conns.len() * clients::LINE_BYTES;
        self.conns.extend(piece.conns);
        self.top.merge(piece.top);
        if let Some(shard) = piece.shard {
            let place = self.shards.partition_point(|other| other.id < shard.id);
            self.shards.insert(place, shard);
        }
        if command == FourLetter::Wchs {
            for watched in &piece.watched {
                self.watched_hashes.add(watched.hash);
                watched.watchers.iter().for_each(|session| self.watching.add(*session));
            }
            return;
        }
        for mut watched in piece.watched {
            watched.watchers.truncate(watches::fitting(&watched, FOUR_LETTER_BYTES_MAX.saturating_sub(self.bytes)));
            self.bytes += watches::bytes(&watched);
            self.watched.push(watched);
        }
    }

    /// Takes in a piece of the leader's sessions.
    pub fn take_sessions(&mut self, piece: SessionPiece) {
        self.bytes += piece.sessions.iter().map(dump::bytes).sum::<usize>();
        self.sessions.extend(piece.sessions);
    }

    /// Sessions and the paths that they watch, sorted.
    pub fn watches_by_session(&self) -> Vec<(SessionId, &str)> {
        watches::by_session(&self.watched)
    }

    /// Watched paths and the sessions that watch them, sorted.
    pub fn watches_by_path(&self) -> Vec<(&str, SessionId)> {
        watches::by_path(&self.watched)
    }

    /// Numbers of watches, if this was gathered for [`FourLetter::Wchs`].
    pub fn watch_summary(&mut self) -> WatchSummary {
        WatchSummary {
            connections: self.watching.count(),
            paths: self.watched_hashes.count(),
            watches: self.watching.added(),
        }
    }

    /// Whether the answer is as long as it may become: no more pieces are wanted.
    pub const fn is_full(&self) -> bool {
        self.bytes >= FOUR_LETTER_BYTES_MAX
    }
}

impl Totals {
    fn merge(&mut self, other: &Self) {
        self.statistics.merge(&other.statistics);
        self.connections += other.connections;
        self.outstanding += other.outstanding;
        self.watches += other.watches;
        if other.zxid >= self.zxid {
            self.zxid = other.zxid;
            self.nodes = other.nodes;
            self.data_bytes = other.data_bytes;
            self.ephemerals = other.ephemerals;
            self.sessions = other.sessions;
        }
    }
}

/// Whether a command's answer, or the work for it, grows with the number of connections, watches or sessions.
pub const fn is_long(command: FourLetter) -> bool {
    use FourLetter::{Cons, Dump, Stat, Wchc, Wchp, Wchs};
    matches!(command, Stat | Cons | Dump | Wchc | Wchp | Wchs)
}

/// Whether the shards have something to say to it, or to do.
pub const fn asks_shards(command: FourLetter) -> bool {
    use FourLetter::{Crst, Mntr, Srst, Srvr, Top};
    is_long(command) || matches!(command, Srvr | Mntr | Crst | Srst | Top)
}

/// The moment an answer is given.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Monotonic time, milliseconds since the start of the process.
    pub now: Millis,
    /// The same moment on the wall clock.
    pub wall: WallMillis,
}

/// The parts of an answer: the pieces of shards and leader, and the facts of the process.
#[derive(Debug)]
pub struct Gathered {
    /// The pieces of the shards and of the leader.
    pub report: Report,
    /// Facts of the process and of the host.
    pub facts: ServerFacts,
    /// When the answer is given.
    pub moment: Moment,
}

impl Gathered {
    /// Whether the server answers the commands that need data: it is alone, or knows a leader, or serves readers without one.
    pub fn is_serving(&self) -> bool {
        self.facts.mode != Mode::Looking
    }

    /// All metrics that this server has, if it was gathered for [`FourLetter::Mntr`].
    pub fn samples(&self) -> impl Iterator<Item = Sample> {
        metrics::samples(self)
    }

    const fn totals(&self) -> &Totals {
        &self.report.totals
    }
}

/// The whole answer.
pub fn render(command: FourLetter, gathered: Gathered) -> String {
    let serves = gathered.is_serving() || !asks_shards(command);
    match command {
        FourLetter::Mntr if serves => metrics::text(&gathered),
        FourLetter::Mntr => not_serving(&gathered.facts) + &metrics::text(&gathered),
        _ if serves => serving(command, gathered),
        _ => not_serving(&gathered.facts),
    }
}

fn serving(command: FourLetter, gathered: Gathered) -> String {
    let Gathered { mut report, facts, moment } = gathered;
    let cut = report.is_full();
    let mut text = match command {
        FourLetter::Srvr => server::block(&report, &facts, false),
        FourLetter::Stat => server::block(&report, &facts, true),
        FourLetter::Cons => clients::text(&report.conns, &facts),
        FourLetter::Dump => dump::text(&report, moment),
        FourLetter::Wchs => watches::summary_text(report.watch_summary()),
        FourLetter::Wchc => watches::session_text(&report.watches_by_session()),
        FourLetter::Wchp => watches::path_text(&report.watches_by_path()),
        FourLetter::Top => top::text(&report.top),
        FourLetter::Crst => String::from("Connection stats reset.\n"),
        FourLetter::Srst => String::from("Server stats reset.\n"),
        FourLetter::Conf => process::configuration(&facts.configured),
        FourLetter::Dirs => process::directories(&facts.configured),
        FourLetter::Hash => process::digests(&facts),
        FourLetter::Envi => process::environment(&facts),
        // Without a newline, as ZooKeeper prints it.
        FourLetter::Gtmk | FourLetter::Stmk => alloc::format!("{}", facts.trace_mask),
        // Answered by the shard, and above.
        FourLetter::Ruok | FourLetter::Isro | FourLetter::Mntr => String::new(),
    };
    if cut {
        let _ = writeln!(text, "Cut: there is more than the {FOUR_LETTER_BYTES_MAX} bytes that an answer may have.");
    }
    text
}

/// The sentence of a server that serves no clients, and why it does not.
pub fn not_serving(facts: &ServerFacts) -> String {
    let mut text = String::from("This ZooKeeper instance is not currently serving requests");
    if let Some(obstacle) = facts.obstacle {
        let _ = write!(text, ": {}", obstacle.sentence());
    }
    text.push('\n');
    text
}

/// Ten-thousandths as Java prints a double rounded to four digits: at least one after the point, no trailing zeros.
fn decimal(ten_thousandths: u64) -> String {
    let mut text = alloc::format!("{}.{:04}", ten_thousandths / 10_000, ten_thousandths % 10_000);
    while text.ends_with('0') && !text.ends_with(".0") {
        text.pop();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn decimals_as_java_prints_them() {
        for (value, text) in [(0, "0.0"), (5000, "0.5"), (4217, "0.4217"), (120_000, "12.0"), (12_500, "1.25")] {
            assert_eq!(decimal(value), text);
        }
    }

    #[test]
    fn a_full_answer_says_that_it_is_cut() {
        let mut report = Report::default();
        assert!(!report.is_full());
        let path = Text::from("x".repeat(FOUR_LETTER_BYTES_MAX / 32));
        let line = SessionLine { id: SessionId(1), due: None, ephemerals: vec![path; 32] };
        report.take_sessions(SessionPiece { sessions: vec![line], next: None });
        assert!(report.is_full());
        report.sessions.clear();
        let moment = Moment { now: Millis(0), wall: WallMillis(0) };
        let text = render(FourLetter::Dump, Gathered { report, facts: ServerFacts::default(), moment });
        assert!(text.ends_with("\nCut: there is more than the 33554432 bytes that an answer may have.\n"), "{text}");
    }

    #[test]
    fn the_newest_shard_counts_for_what_all_have_in_common() {
        let totals = |zxid, nodes| Totals { zxid: Zxid(zxid), nodes, connections: 2, ..Totals::default() };
        for order in [[(5, 10), (6, 11)], [(6, 11), (5, 10)]] {
            let mut report = Report::default();
            for (zxid, nodes) in order {
                report.take(FourLetter::Srvr, Piece { totals: totals(zxid, nodes), ..Piece::default() });
            }
            assert_eq!((report.totals.zxid, report.totals.nodes, report.totals.connections), (Zxid(6), 11, 4));
        }
    }
}
