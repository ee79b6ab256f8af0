//! The facts about one connection: its session, its commands with their verdicts, its watches.

use corral_core::command::CommandKind;
use corral_wire::error::ErrorCode;

use crate::check::due_events::Watches;
use crate::check::proposed::{Proposed, is_same};
use crate::model::{Expected, Identity};
use crate::request::Body;

/// Logged by a leader without room in the place of a command that may add data.
pub(super) const GROWTH_REFUSED: CommandKind = CommandKind::Refused(ErrorCode::QuotaExceeded);

#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) session: i64,
    pub(super) identities: Vec<Identity>,
    pub(super) proposed: Vec<Proposed>,
    /// The model's verdict on each proposed command that was committed, in order, with its zxid.
    pub(super) verdicts: Vec<(u64, Expected)>,
    pub(super) watches: Watches,
    pub(super) last_reply: (i64, bool),
    /// The start of the server that accepted it.
    pub(super) incarnation: u64,
}

impl Facts {
    /// A command is logged as `kind`. Earlier commands without an entry were refused by their shard, if they may add data.
    pub(super) fn pass_refused(&mut self, kind: &CommandKind) {
        let next = self.proposed.iter().skip(self.verdicts.len());
        let passed =
            next.take_while(|next| next.adds_data() && *kind != GROWTH_REFUSED && !is_same(next, kind)).count();
        self.verdicts.extend((0..passed).map(|_| unlogged()));
    }

    /// The command of this number was refused by its shard. An equal command that was logged for it is a later one.
    pub(super) fn refused(&mut self, number: usize) {
        if self.verdicts.get(number) == Some(&unlogged()) {
            return;
        }
        let later = self.verdicts.iter().skip(number).position(|verdict| *verdict == unlogged());
        if let Some(distance) = later {
            self.verdicts.remove(number + distance);
        }
        self.verdicts.insert(number, unlogged());
    }
}

/// The verdict on a command that may add data and that a shard refused. It has no entry: the zxid of its reply is that of the
/// shard's view.
fn unlogged() -> (u64, Expected) {
    (0, Expected::Reply { err: ErrorCode::QuotaExceeded.code(), body: Body::Nothing })
}
