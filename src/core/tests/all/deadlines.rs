//! Deadlines of sessions: a server that stalled must not take that for its clients' silence.

use corral_core::apply::StateMachine;
use corral_core::ids::{Millis, SessionId, WallMillis};
use corral_core::limits::SESSIONS_PIECE;
use corral_core::sequencer::{Sequencer, SequencerConfig};
use corral_core::session::{Ephemerals, Session, SessionTable};
use corral_core::tree::view::View;

/// The leader of so many sessions, from 1 on.
fn leader(count: i64) -> Sequencer {
    let session = Session { timeout_ms: 1000, password: [0; 16], owner: None, ephemerals: Ephemerals::default() };
    let sessions = (1..=count).map(|id| (SessionId(id), session.clone()));
    let machine = StateMachine::new(View::empty(7), SessionTable::from_iter(sessions));
    let config = SequencerConfig { tick_ms: 100, batch_bytes_max: 1000, ..SequencerConfig::default() };
    let mut sequencer = Sequencer::new(config, machine, 0, 0);
    sequencer.begin_leadership(Millis(0), 1);
    sequencer
}

#[test]
fn a_long_recovery_ends_no_session() {
    let mut sequencer = leader(1);
    sequencer.start_deadlines(Millis(5000));
    let mut expired = |at| sequencer.tick(Millis(at), WallMillis(0)).expired;
    assert_eq!(expired(5900), []);
    assert_eq!(expired(6200), [SessionId(1)], "silent from then on, it ends in its time");
}

#[test]
fn very_many_sessions_are_given_their_time_one_after_the_other() {
    const COUNT: usize = 2 * SESSIONS_PIECE + 1;
    let mut sequencer = leader(i64::try_from(COUNT).expect("not so many"));
    let last = SessionId(i64::try_from(COUNT).expect("not so many"));
    assert_eq!((sequencer.session_due(SessionId(1)), sequencer.session_due(last)), (Some(Millis(1100)), None));
    let mut expired = Vec::new();
    for now in (500..4000).step_by(100) {
        let some = sequencer.tick(Millis(now), WallMillis(0)).expired;
        assert!(some.len() <= SESSIONS_PIECE && (some.is_empty() || now >= 1100), "{} at {now}", some.len());
        expired.extend(some);
    }
    assert_eq!(expired.len(), COUNT, "none is forgotten");
}
