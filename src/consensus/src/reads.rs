//! Read barriers: which tokens wait for which read-index request.
//!
//! The library drops requests when leadership changes, while there is no leader, and before the leader has committed in
//! its term. So tokens wait here until a request can be answered. Requests are repeated after every change, and refused
//! after a limit of ticks. Tokens of one turn share one request.
//!
//! Invariant: every token is answered or refused once; at most [`limits::READS_PENDING_MAX`] tokens wait.

use std::collections::VecDeque;

use crate::limits;
use crate::message::ReadContext;
use crate::outputs::ReadReady;
use crate::types::{Index, ServerId};

pub(crate) struct Reads {
    id: ServerId,
    nonce: u64,
    next_number: u64,
    unasked: Vec<u64>,
    unasked_age: u32,
    asked: VecDeque<Batch>,
    count: usize,
    ask_again: bool,
    answered: Vec<ReadReady>,
    refused: Vec<u64>,
    /// Ticks after which a request is asked again.
    timeout: u32,
}

struct Batch {
    number: u64,
    tokens: Vec<u64>,
    age: u32,
}

impl Reads {
    /// `nonce` must differ between starts of one server, so that a late answer to an earlier start fits nothing.
    pub(crate) fn new(id: ServerId, nonce: u64, timeout: u32) -> Reads {
        Reads {
            id,
            nonce,
            next_number: 0,
            unasked: Vec::new(),
            unasked_age: 0,
            asked: VecDeque::new(),
            count: 0,
            ask_again: false,
            answered: Vec::new(),
            refused: Vec::new(),
            timeout,
        }
    }

    pub(crate) fn add(&mut self, token: u64) {
        if self.count >= limits::READS_PENDING_MAX {
            self.refused.push(token);
            return;
        }
        self.count += 1;
        self.unasked.push(token);
    }

    /// The requests to send now that a leader can answer.
    pub(crate) fn take_requests(&mut self) -> Vec<ReadContext> {
        let mut contexts = Vec::new();
        if std::mem::take(&mut self.ask_again) {
            contexts.extend(self.asked.iter().map(|batch| self.context(batch.number)));
        }
        if !self.unasked.is_empty() {
            let number = self.next_number;
            self.next_number += 1;
            let tokens = std::mem::take(&mut self.unasked);
            self.asked.push_back(Batch { number, tokens, age: self.unasked_age });
            self.unasked_age = 0;
            contexts.push(self.context(number));
        }
        contexts
    }

    /// Role, term or leader changed: what was asked may be forgotten.
    pub(crate) fn ask_again(&mut self) {
        self.ask_again = true;
    }

    pub(crate) fn answer(&mut self, context: ReadContext, index: Index) {
        let found = self.asked.iter().position(|batch| self.context(batch.number) == context);
        let Some(batch) = found.and_then(|at| self.asked.remove(at)) else { return };
        self.count -= batch.tokens.len();
        self.answered.extend(batch.tokens.iter().map(|token| ReadReady { token: *token, index }));
    }

    pub(crate) fn tick(&mut self) {
        let limit = self.timeout * limits::READ_TIMEOUT_ELECTIONS;
        if !self.unasked.is_empty() {
            self.unasked_age += 1;
            if self.unasked_age >= limit {
                self.count -= self.unasked.len();
                self.refused.append(&mut self.unasked);
                self.unasked_age = 0;
            }
        }
        for batch in &mut self.asked {
            batch.age += 1;
            self.ask_again |= batch.age % self.timeout == 0;
        }
        // The oldest are in front.
        while self.asked.front().is_some_and(|batch| batch.age >= limit) {
            let batch = self.asked.pop_front().expect("just seen");
            self.count -= batch.tokens.len();
            self.refused.extend(batch.tokens);
        }
    }

    pub(crate) fn drain(&mut self, answered: &mut Vec<ReadReady>, refused: &mut Vec<u64>) {
        answered.append(&mut self.answered);
        refused.append(&mut self.refused);
    }

    fn context(&self, number: u64) -> ReadContext {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.id.wide().to_le_bytes());
        bytes[8..16].copy_from_slice(&self.nonce.to_le_bytes());
        bytes[16..].copy_from_slice(&number.to_le_bytes());
        ReadContext(bytes)
    }
}
