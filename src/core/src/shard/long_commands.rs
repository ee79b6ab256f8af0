//! Four-letter commands with long answers: a few are asked at once.

use crate::ids::ConnId;
use crate::shard::four_letter::is_long;
use alloc::collections::VecDeque;
use corral_wire::fourletter::FourLetter;

/// Four-letter commands with long answers, for each of which memory is set aside.
#[derive(Debug, Default)]
pub(super) struct LongCommands {
    /// Commands that were asked and not answered.
    pub(super) unanswered: usize,
    /// Connections that wait until there are fewer.
    pub(super) waiting: VecDeque<ConnId>,
}

impl LongCommands {
    /// The connection of this command waits for no text any more.
    pub(super) fn forget(&mut self, command: Option<FourLetter>) {
        if command.is_some_and(is_long) {
            self.unanswered -= 1;
        }
    }
}
