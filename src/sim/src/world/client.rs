//! A simulated client: its session, the watches that it believes to have, and its state in the run.

use std::collections::BTreeSet;

use crate::model::{LinkId, SUPER};
use crate::request::{Request, WatchLists};
use crate::rng::Stream;
use crate::workload::Workload;

#[derive(Debug, Default)]
pub(crate) struct Client {
    pub(crate) link: Option<LinkId>,
    pub(crate) session: i64,
    pub(crate) password: [u8; 16],
    pub(crate) timeout_ms: i32,
    pub(crate) last_zxid: i64,
    pub(crate) xid: i32,
    pub(crate) auths: Vec<&'static str>,
    pub(crate) operator: bool,
    /// Watches it believes to have.
    pub(crate) watches: WatchLists,
    /// Of those on data: the znodes that existed.
    pub(crate) existed: BTreeSet<String>,
    pub(crate) reads_not: bool,
    pub(crate) silent_until: u64,
    pub(crate) workload: Workload,
    pub(crate) healthy_replies: u64,
    /// It is time for the last ping, which brings every event.
    pub(crate) last_words: bool,
    /// .. and was answered, and with it everything before.
    pub(crate) last_words_answered: bool,
}

impl Client {
    /// An operator may do everything.
    pub(crate) fn draw(rng: &mut Stream, keeper: bool, operator: bool) -> Client {
        let mut auths = match rng.below(4) {
            0 => vec!["ann:apple"],
            1 => vec!["bob:berry", "ann:apple"],
            _ => Vec::new(),
        };
        auths.extend(operator.then_some(SUPER));
        Client {
            operator,
            timeout_ms: rng.pick(&[0, 1_000, 2_000, 4_000, 60_000]),
            auths,
            workload: Workload::new(rng.below(1 << 20), keeper),
            ..Client::default()
        }
    }

    pub(crate) fn forget_session(&mut self) {
        self.session = 0;
        self.password = [0; 16];
        self.last_zxid = 0;
        self.watches = WatchLists::default();
    }

    /// The request of a reconnecting client to have its watches again; `None` when it has none.
    pub(crate) fn watches_again(&self) -> Option<Request> {
        let list = |paths: &BTreeSet<String>| paths.iter().cloned().collect();
        let WatchLists { data, child, persistent, recursive } = &self.watches;
        let (data, exist) = data.iter().cloned().partition(|path| self.existed.contains(path));
        let (child, persistent, recursive) = (list(child), list(persistent), list(recursive));
        let request = Request::SetWatches { seen: self.last_zxid, data, exist, child, persistent, recursive };
        (!self.watches.is_empty()).then_some(request)
    }
}
