//! The answers to four-letter commands (protocol chapter 23), metrics and checks of health: the pieces of shards and leader are
//! gathered, and rendered.
//!
//! Pieces are taken on the core that owns their data, each in one short pass. Putting them together and writing the
//! text may take long. It is done on a thread that serves no clients. Knows no clock, no file and no process: their
//! facts come as [`ServerFacts`].

pub mod clients;
mod date;
mod dump;
mod facts;
mod gathered;
pub mod health;
mod kind;
mod latencies;
mod metrics;
mod obstacle;
mod process;
mod scarcity;
mod server;
mod sessions;
pub mod top;
mod value;
mod watches;

use crate::limits::FOUR_LETTER_BYTES_MAX;
use crate::shard::four_letter::asks_shards;
use alloc::string::String;
use core::fmt::Write;
use corral_wire::fourletter::FourLetter;

pub use facts::{
    AuditFacts, Configured, LatencyFacts, Mode, Moment, PeerFacts, Quorum, ScrubFacts, ServerFacts, Timing,
};
pub use gathered::{Gathered, Report};
pub use kind::{Kind, Origin};
pub use latencies::{BOUNDS_US, Histogram, Quantiles};
pub use metrics::{METRICS, Metric, Sample, samples};
pub use obstacle::Obstacle;
pub use scarcity::{MemoryUse, Scarcity, SpaceFacts, scarcity};
pub use sessions::{SessionLine, SessionMark, SessionPiece, session_piece};
pub use value::{Summary, Value};
pub use watches::WatchSummary;

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
        FourLetter::Srvr => server::block(&report.totals, &facts, None),
        FourLetter::Stat => server::block(&report.totals, &facts, Some(&report.conns)),
        FourLetter::Cons => clients::text(&report.conns, &facts),
        FourLetter::Dump => dump::text(&report.sessions, &report.conns, moment),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Millis, SessionId, WallMillis};
    use crate::shared::Text;
    use alloc::vec;

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
}
