//! The messages to shards about the flow of their commands.

use crate::ids::Millis;
use crate::shard::Flow;
use alloc::vec::Vec;
use core::mem;

/// The flow of commands, as the shards were told last.
#[derive(Debug)]
pub(super) struct ShardFlow {
    /// Commands go.
    released: bool,
    /// All clients were sent away.
    away: bool,
    /// When commands ceased to go, or when the connections that waited were last ended.
    held_since: Option<Millis>,
    generation: u32,
    notes: Vec<Flow>,
}

impl ShardFlow {
    pub(super) fn new() -> Self {
        Self { released: false, away: false, held_since: None, generation: 0, notes: Vec::from([Flow::Pause]) }
    }

    pub(super) const fn is_released(&self) -> bool {
        self.released
    }

    /// Whether proposals are of the present generation: no change of leader has made their outcome unknown.
    pub(super) const fn is_present(&self, generation: u32) -> bool {
        generation == self.generation
    }

    pub(super) fn take_notes(&mut self) -> Vec<Flow> {
        mem::take(&mut self.notes)
    }

    /// Commands go from now on, or cease to.
    pub(super) fn release(&mut self, release: bool) {
        if self.released != release {
            self.released = release;
            self.away &= !release;
            self.notes.push(if release { Flow::Resume } else { Flow::Pause });
        }
    }

    /// The same at the end of a turn.
    pub(super) fn settle(&mut self, now: Millis, flows: bool) {
        self.held_since = if flows { None } else { self.held_since.or(Some(now)) };
        self.release(flows);
    }

    /// Whether commands have not gone for so long. Then the time begins anew.
    pub(super) fn is_held_too_long(&mut self, now: Millis, hold_ms: u64) -> bool {
        let is_over = self.held_since.is_some_and(|since| now.since(since) >= hold_ms);
        if is_over {
            self.held_since = Some(now);
        }
        is_over
    }

    /// No leader is found: all clients are sent away, once.
    pub(super) fn send_away(&mut self) {
        if !self.released && !mem::replace(&mut self.away, true) {
            self.notes.push(Flow::Leaderless);
        }
    }

    /// The state is corrupt: all clients are sent away.
    pub(super) fn distrust(&mut self) {
        self.away = true;
        self.notes.push(Flow::Distrusted);
    }

    /// The commands so far have no known outcome.
    pub(super) fn lose(&mut self, unsent_too: bool) {
        self.generation = self.generation.wrapping_add(1);
        self.notes.push(Flow::Uncertain { generation: self.generation, unsent_too });
    }
}
