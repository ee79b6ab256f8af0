//! Answers four-letter commands and requests by HTTP. Shards and leader give their pieces of an answer one after the other, and the
//! asker gets the whole.
//!
//! On the control thread, which may block: to sort a million watches, or to count files, holds up no data core. Answers that grow
//! with the number of clients are bounded in length, and few are under way at once.

use std::collections::{HashMap, HashSet, VecDeque};

use corral_core::ids::ShardId;
use corral_core::report::{Gathered, Report, SessionMark, render};
use corral_core::shard::four_letter::{asks_shards, is_long};
use corral_core::shard::{Question, ShardMessage};
use corral_wire::fourletter::FourLetter;

use super::facts::Facts;
use crate::messages::{Asker, ToConsensus, ToControl, ToShard};
use crate::runtime::mailbox::Post;
use tokio::sync::oneshot;

/// Long answers that are being put together; more of them wait. A text that is ready counts in the memory of its client's shard.
const LONG_MAX: usize = 4;
/// As ZooKeeper begins: client requests, packets between servers, sessions, warnings.
const TRACE_MASK: i64 = 306;

/// An answer of which pieces are missing.
struct Gathering {
    command: FourLetter,
    /// How many of those asked have not told everything.
    missing: usize,
    report: Report,
}

/// Gathers what askers want to know, and answers them.
pub(crate) struct Responder {
    shards: Vec<Post<ToShard>>,
    consensus: Post<ToConsensus>,
    facts: Facts,
    /// The mask of `stmk`. Nothing is traced.
    trace_mask: i64,
    gathering: HashMap<Asker, Gathering>,
    /// Askers with a long answer under way.
    long: HashSet<Asker>,
    /// Further askers of long answers.
    waiting: VecDeque<(Asker, FourLetter)>,
    /// Requests by HTTP that wait for their answer.
    http: HashMap<u64, oneshot::Sender<Gathered>>,
    /// Requests by HTTP so far.
    http_requests: u64,
}

impl Responder {
    pub(crate) fn new(shards: Vec<Post<ToShard>>, consensus: Post<ToConsensus>, facts: Facts) -> Responder {
        Responder {
            shards,
            consensus,
            facts,
            trace_mask: TRACE_MASK,
            gathering: HashMap::new(),
            long: HashSet::new(),
            waiting: VecDeque::new(),
            http: HashMap::new(),
            http_requests: 0,
        }
    }

    /// Answers until every sender is gone.
    pub(crate) async fn run(mut self, inbox: flume::Receiver<ToControl>) {
        while let Ok(message) = inbox.recv_async().await {
            match message {
                ToControl::Asked { shard, question: Question { conn, command, argument } } => {
                    self.asked(Asker::Connection { shard, conn }, command, argument);
                }
                ToControl::HttpAsked { command, argument, reply } => {
                    self.http_requests += 1;
                    self.http.insert(self.http_requests, reply);
                    self.asked(Asker::Http(self.http_requests), command, argument);
                }
                ToControl::Shed { percent } => {
                    self.shards.iter().for_each(|shard| drop(shard.send(ShardMessage::Shed(percent).into())));
                }
                ToControl::SnapshotWanted => drop(self.consensus.send(corral_engine::Event::SnapshotRequested.into())),
                ToControl::Stop => drop(self.consensus.send(corral_engine::Event::Stop.into())),
                ToControl::ObserversReset => self.facts.reset_observers(),
                ToControl::Piece { asker, .. } | ToControl::Sessions { asker, .. } if self.is_gone(asker) => {
                    self.ended(asker);
                }
                ToControl::Piece { asker, shard, piece } => {
                    let Some(entry) = self.gathering.get_mut(&asker) else { continue };
                    let next = piece.next;
                    entry.report.take(entry.command, *piece);
                    match next.filter(|_| !entry.report.is_full()) {
                        Some(from) => self.ask_shard(asker, shard, from),
                        None => self.one_less(asker),
                    }
                }
                ToControl::Sessions { asker, piece } => {
                    let Some(entry) = self.gathering.get_mut(&asker) else { continue };
                    let next = piece.next.clone();
                    entry.report.take_sessions(*piece);
                    match next.filter(|_| !entry.report.is_full()) {
                        Some(from) => drop(self.consensus.send(ToConsensus::SessionsAsked { asker, from })),
                        None => self.one_less(asker),
                    }
                }
                ToControl::Ended(asker) => self.ended(asker),
            }
        }
    }

    fn asked(&mut self, asker: Asker, command: FourLetter, argument: i64) {
        match command {
            FourLetter::Stmk => self.trace_mask = argument,
            FourLetter::Srst => self.facts.reset(),
            _ => {}
        }
        if is_long(command) && self.long.len() >= LONG_MAX {
            let Responder { http, waiting, .. } = self;
            waiting.retain(|(other, _)| !is_gone(http, *other));
            waiting.push_back((asker, command));
        } else {
            self.begin(asker, command);
        }
    }

    fn begin(&mut self, asker: Asker, command: FourLetter) {
        if is_long(command) {
            self.long.insert(asker);
        }
        let shards = if asks_shards(command) { self.shards.len() } else { 0 };
        let missing = shards + usize::from(command == FourLetter::Dump);
        if missing == 0 {
            return self.answer(asker, command, Report::default());
        }
        self.gathering.insert(asker, Gathering { command, missing, report: Report::default() });
        for shard in 0..shards {
            let shard = ShardId(u16::try_from(shard).expect("shards are numbered in 16 bits"));
            self.ask_shard(asker, shard, 0);
        }
        if command == FourLetter::Dump {
            let _ = self.consensus.send(ToConsensus::SessionsAsked { asker, from: SessionMark::default() });
        }
    }

    fn ask_shard(&self, asker: Asker, shard: ShardId, from: usize) {
        if let Some(entry) = self.gathering.get(&asker) {
            let _ = self.shards[usize::from(shard.0)].send(ToShard::PieceAsked { asker, command: entry.command, from });
        }
    }

    /// One of those asked has told everything.
    fn one_less(&mut self, asker: Asker) {
        let Some(entry) = self.gathering.get_mut(&asker) else { return };
        entry.missing -= 1;
        if entry.missing == 0 {
            let Gathering { command, report, .. } = self.gathering.remove(&asker).expect("just seen");
            self.answer(asker, command, report);
        }
    }

    fn answer(&mut self, asker: Asker, command: FourLetter, report: Report) {
        let facts = self.facts.gather(command, self.trace_mask);
        let gathered = Gathered { report, facts, moment: self.facts.now() };
        match asker {
            Asker::Connection { shard, conn } => {
                let text = render(command, gathered);
                let _ = self.shards[usize::from(shard.0)].send(ShardMessage::FourLetterAnswered { conn, text }.into());
            }
            // Its connection may have ended meanwhile.
            Asker::Http(request) => {
                self.http.remove(&request).map(|reply| reply.send(gathered).ok());
            }
        }
        self.begin_next(asker);
    }

    /// Whether nothing waits for the answer any more.
    fn is_gone(&self, asker: Asker) -> bool {
        is_gone(&self.http, asker)
    }

    /// The connection has its answer, or is gone.
    fn ended(&mut self, asker: Asker) {
        if let Asker::Http(request) = asker {
            self.http.remove(&request);
        }
        self.gathering.remove(&asker);
        self.waiting.retain(|(other, _)| *other != asker);
        self.begin_next(asker);
    }

    /// Nothing is being put together for this client any more: the next one's turn, if it was a long answer.
    fn begin_next(&mut self, asker: Asker) {
        if !self.long.remove(&asker) {
            return;
        }
        while let Some((next, command)) = self.waiting.pop_front() {
            if !self.is_gone(next) {
                return self.begin(next, command);
            }
        }
    }
}

/// Whether an asker is a request by HTTP of which the connection has ended.
fn is_gone(http: &HashMap<u64, oneshot::Sender<Gathered>>, asker: Asker) -> bool {
    match asker {
        Asker::Connection { .. } => false,
        Asker::Http(request) => http.get(&request).is_none_or(oneshot::Sender::is_closed),
    }
}

#[cfg(test)]
mod tests {
    use corral_core::ids::ConnId;
    use corral_core::shard::pieces::Piece;

    use super::*;
    use crate::config::Config;
    use crate::gauges::Gauges;
    use crate::runtime::clock::Clock;
    use crate::runtime::mailbox::{Bell, mailbox};

    /// With one shard, and the mailbox of that shard.
    fn responder() -> (Responder, flume::Receiver<ToShard>) {
        let bell = Bell::new().expect("a file can be opened");
        let ((shard, inbox), (consensus, _)) = (mailbox(&bell), mailbox(&bell));
        let (config, gauges) = (Config::default(), std::sync::Arc::new(Gauges::default()));
        let facts = Facts::new(&config, Clock::start(), gauges, None, Vec::new(), None);
        (Responder::new(vec![shard], consensus, facts), inbox)
    }

    #[test]
    fn requests_of_ended_connections_are_not_gathered() {
        let (responder, inbox) = responder();
        let (asking, asked) = flume::unbounded();
        let ask = || {
            let (reply, answer) = oneshot::channel();
            asking
                .send(ToControl::HttpAsked { command: FourLetter::Wchs, argument: 0, reply })
                .expect("it is received");
            answer
        };
        let held: Vec<_> = (0..LONG_MAX).map(|_| ask()).collect();
        (0..1000).for_each(|_| drop(ask()));
        let last = ask();
        let thread = std::thread::spawn(move || futures_lite::future::block_on(responder.run(asked)));
        let answered = |count: usize| {
            for _ in 0..count {
                let message =
                    inbox.recv_timeout(std::time::Duration::from_secs(60)).expect("the next one has its turn");
                let ToShard::PieceAsked { asker, .. } = message else { panic!("nothing else is asked") };
                let piece = Box::new(Piece::default());
                asking.send(ToControl::Piece { asker, shard: ShardId(0), piece }).expect("it is received");
            }
        };
        answered(LONG_MAX + 1);
        assert!(held.into_iter().chain([last]).all(|answer| answer.blocking_recv().is_ok()));
        drop(asking);
        thread.join().expect("it ends with its senders");
        assert!(inbox.is_empty());
    }

    /// Clients that do not take their answers keep no others from theirs.
    #[test]
    fn an_answer_that_is_ready_is_not_under_way() {
        let (responder, inbox) = responder();
        let (asking, asked) = flume::unbounded();
        let clients = 3 * LONG_MAX;
        for number in 0..clients {
            let conn = ConnId { slot: u32::try_from(number).expect("there are few"), generation: 0 };
            let question = Question { conn, command: FourLetter::Wchs, argument: 0 };
            asking.send(ToControl::Asked { shard: ShardId(0), question }).expect("it is received");
        }
        let thread = std::thread::spawn(move || futures_lite::future::block_on(responder.run(asked)));
        let (mut pieces, mut texts) = (0, 0);
        while texts < clients {
            match inbox.recv_timeout(std::time::Duration::from_secs(60)).expect("the next one has its turn") {
                ToShard::PieceAsked { asker, .. } => {
                    pieces += 1;
                    assert!(pieces - texts <= LONG_MAX, "few are put together at once");
                    let piece = Box::new(Piece::default());
                    asking.send(ToControl::Piece { asker, shard: ShardId(0), piece }).expect("it is received");
                }
                ToShard::Message { message: ShardMessage::FourLetterAnswered { .. }, .. } => texts += 1,
                _ => panic!("nothing else is asked"),
            }
        }
        drop(asking);
        thread.join().expect("it ends with its senders");
    }
}
