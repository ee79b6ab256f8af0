//! Passes over the sessions of the leader, each short: for `dump`. A pass takes at most [`PIECE_ENTRIES`] sessions and ephemerals. Then
//! the asker asks for more. Changes between two passes may be told twice or not at all.
//!
//! On the consensus actor's core.

use crate::ids::{Millis, SessionId};
use crate::limits::PIECE_ENTRIES;
use crate::sequencer::Sequencer;
use crate::shared::Text;
use alloc::vec::Vec;
use core::ops::Bound;

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
    id: SessionId,
    /// The last ephemeral told of this session; `None` when the session itself is still to be told.
    path: Option<Text>,
}

impl Default for SessionMark {
    /// Before the first: ids are signed.
    fn default() -> Self {
        Self { id: SessionId(i64::MIN), path: None }
    }
}

/// The result of one pass over the leader's sessions.
#[derive(Debug, Default)]
pub struct SessionPiece {
    /// Sessions in the order of their ids.
    pub sessions: Vec<SessionLine>,
    /// Where the next pass begins; `None` after the last.
    pub next: Option<SessionMark>,
}

/// Sessions with their deadlines and ephemerals, in order of their ids.
pub fn session_piece(sequencer: &Sequencer, from: &SessionMark) -> SessionPiece {
    let mut piece = SessionPiece::default();
    let mut entries = 0;
    for (id, session) in sequencer.sessions().range(from.id..) {
        let goes_on = from.path.as_ref().filter(|_| *id == from.id);
        if entries >= PIECE_ENTRIES {
            piece.next = Some(SessionMark { id: *id, path: None });
            break;
        }
        let rest = goes_on.map_or(Bound::Unbounded, |path| Bound::Excluded(&**path));
        let room = PIECE_ENTRIES - entries;
        let ephemerals: Vec<Text> = session.ephemerals.from(rest).take(room).cloned().collect();
        entries += 1 + ephemerals.len();
        let cut = ephemerals.last().filter(|_| ephemerals.len() == room).cloned();
        let due = if goes_on.is_some() { None } else { sequencer.session_due(*id) };
        piece.sessions.push(SessionLine { id: *id, due, ephemerals });
        if let Some(last) = cut {
            piece.next = Some(SessionMark { id: *id, path: Some(last) });
            break;
        }
    }
    piece
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::StateMachine;
    use crate::sequencer::SequencerConfig;
    use crate::session::{Session, SessionTable};
    use crate::tree::view::View;
    use alloc::collections::BTreeSet;
    use alloc::format;

    fn sequencer(sessions: SessionTable) -> Sequencer {
        Sequencer::new(SequencerConfig::default(), StateMachine::new(View::empty(1), sessions), 0, 0)
    }

    #[test]
    fn every_session_and_every_ephemeral_is_told_of_once() {
        for ephemerals in [0, 1, PIECE_ENTRIES - 1, PIECE_ENTRIES, PIECE_ENTRIES + 1, 3 * PIECE_ENTRIES] {
            let mut sessions = SessionTable::new();
            for id in [-5, 3, 4, 900] {
                let paths = if id == 3 { ephemerals } else { 1 };
                let ephemerals = (0..paths).map(|at| Text::from(format!("/{id}/{at}"))).collect();
                let session = Session { timeout_ms: 4000, password: [0; 16], owner: None, ephemerals };
                sessions.insert(SessionId(id), session);
            }
            let mut sequencer = sequencer(sessions);
            sequencer.begin_leadership(Millis(500), 1);
            let (mut from, mut lines) = (Some(SessionMark::default()), Vec::new());
            while let Some(mark) = from {
                let piece = session_piece(&sequencer, &mark);
                let entries: usize = piece.sessions.iter().map(|line| 1 + line.ephemerals.len()).sum();
                assert!(entries <= PIECE_ENTRIES + 1, "{entries}");
                from = piece.next;
                lines.extend(piece.sessions);
            }
            let due: Vec<(SessionId, Millis)> = lines.iter().filter_map(|line| Some((line.id, line.due?))).collect();
            assert_eq!(due, [-5, 3, 4, 900].map(|id| (SessionId(id), Millis(5000))));
            let paths: Vec<&Text> = lines.iter().flat_map(|line| &line.ephemerals).collect();
            let different: BTreeSet<&Text> = paths.iter().copied().collect();
            assert_eq!((paths.len(), different.len()), (ephemerals + 3, ephemerals + 3));
        }
    }
}
