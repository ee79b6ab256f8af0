//! Messages for the log that are not carried out yet, in their order.

use std::collections::VecDeque;

use corral_consensus::Append;

use crate::effect::ToLog;

/// The queue in front of the log. Both drivers use it, because it decides what goes on while the log has no space.
#[derive(Debug, Default)]
pub struct LogQueue {
    waiting: VecDeque<ToLog>,
}

impl LogQueue {
    /// Adds a message behind all others.
    pub fn push(&mut self, message: ToLog) {
        self.waiting.push_back(message);
    }

    /// Takes the next message.
    pub fn take_next(&mut self) -> Option<ToLog> {
        self.waiting.pop_front()
    }

    /// Puts back the message that was taken last: the log has no space for it.
    pub fn put_back(&mut self, message: ToLog) {
        self.waiting.push_front(message);
    }

    /// Takes the next trim, past everything that waits for space: the log may be what fills the disk. A trim may overtake,
    /// because a durable snapshot holds all that it drops.
    pub fn next_trim(&mut self) -> Option<ToLog> {
        let at = self.waiting.iter().position(|message| matches!(message, ToLog::Trim(_)))?;
        self.waiting.remove(at)
    }

    /// Whether no message waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The appends that wait, oldest first.
    pub fn appends(&self) -> impl Iterator<Item = &Append> {
        self.waiting.iter().filter_map(|message| match message {
            ToLog::Append(append) => Some(append),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_trims_overtake() {
        let mut queue = LogQueue::default();
        [ToLog::Seal, ToLog::Trim(3), ToLog::Reset(9), ToLog::Trim(5)]
            .into_iter()
            .for_each(|message| queue.push(message));
        let blocked = queue.take_next().expect("four wait");
        queue.put_back(blocked);
        assert!(matches!(queue.next_trim(), Some(ToLog::Trim(3))));
        assert!(matches!(queue.next_trim(), Some(ToLog::Trim(5))));
        assert!(queue.next_trim().is_none());
        assert!(matches!((queue.take_next(), queue.take_next()), (Some(ToLog::Seal), Some(ToLog::Reset(9)))));
        assert!(queue.is_empty());
    }
}
