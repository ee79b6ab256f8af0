//! Answers four-letter words: a plain thread that asks the shards and the leader for what they know, piece by piece, puts
//! the text together and hands it to the shard whose client asked.
//!
//! What takes long (sorting a million watches, counting files) takes it here, where it holds up nobody but those who ask.
//! Answers that grow with the number of clients are bounded in length, and few are under way at once.

use std::collections::{HashMap, HashSet, VecDeque};

use corral_core::ids::ShardId;
use corral_core::report::{Report, SessionMark, asks_shards, is_long, render};
use corral_core::shard::Question;
use corral_wire::fourletter::FourLetter;

use crate::control::Facts;
use crate::messages::{Asker, ToConsensus, ToShard, ToWords};
use crate::runtime::mailbox::Post;

/// Long answers that are being put together or have not reached their clients; more of them wait.
const LONG_MAX: usize = 4;
/// As ZooKeeper begins: client requests, packets between servers, sessions, warnings.
const TRACE_MASK: i64 = 306;

/// An answer of which pieces are missing.
struct Gathering {
    word: FourLetter,
    /// How many of those asked have not told everything.
    missing: usize,
    report: Report,
}

/// See the module.
pub(crate) struct Words {
    shards: Vec<Post<ToShard>>,
    consensus: Post<ToConsensus>,
    facts: Facts,
    /// Kept for those who set it; nothing is traced by it.
    trace_mask: i64,
    gathering: HashMap<Asker, Gathering>,
    /// Clients whose long answers are under way.
    long: HashSet<Asker>,
    /// Those who wait until there are fewer of them.
    waiting: VecDeque<(Asker, FourLetter)>,
}

impl Words {
    pub(crate) fn new(shards: Vec<Post<ToShard>>, consensus: Post<ToConsensus>, facts: Facts) -> Words {
        let (gathering, long, waiting) = (HashMap::new(), HashSet::new(), VecDeque::new());
        Words { shards, consensus, facts, trace_mask: TRACE_MASK, gathering, long, waiting }
    }

    /// Answers until every sender is gone.
    pub(crate) fn run(mut self, inbox: &flume::Receiver<ToWords>) {
        for message in inbox {
            match message {
                ToWords::Asked { shard, question } => self.asked(shard, question),
                ToWords::Piece { asker, shard, piece } => {
                    let Some(entry) = self.gathering.get_mut(&asker) else { continue };
                    let next = piece.next;
                    entry.report.take(entry.word, *piece);
                    match next.filter(|_| !entry.report.is_full()) {
                        Some(from) => self.ask_shard(asker, shard, from),
                        None => self.one_less(asker),
                    }
                }
                ToWords::Sessions { asker, piece } => {
                    let Some(entry) = self.gathering.get_mut(&asker) else { continue };
                    let next = piece.next.clone();
                    entry.report.take_sessions(*piece);
                    match next.filter(|_| !entry.report.is_full()) {
                        Some(from) => drop(self.consensus.send(ToConsensus::SessionsAsked { asker, from })),
                        None => self.one_less(asker),
                    }
                }
                ToWords::Ended(asker) => self.ended(asker),
            }
        }
    }

    fn asked(&mut self, shard: ShardId, question: Question) {
        let Question { conn, word, argument } = question;
        let asker = Asker { shard, conn };
        match word {
            FourLetter::Stmk => self.trace_mask = argument,
            FourLetter::Srst => self.facts.reset(),
            _ => {}
        }
        if is_long(word) && self.long.len() >= LONG_MAX {
            self.waiting.push_back((asker, word));
        } else {
            self.begin(asker, word);
        }
    }

    fn begin(&mut self, asker: Asker, word: FourLetter) {
        if is_long(word) {
            self.long.insert(asker);
        }
        let shards = if asks_shards(word) { self.shards.len() } else { 0 };
        let missing = shards + usize::from(word == FourLetter::Dump);
        if missing == 0 {
            return self.answer(asker, word, Report::default());
        }
        self.gathering.insert(asker, Gathering { word, missing, report: Report::default() });
        for shard in 0..shards {
            let shard = ShardId(u16::try_from(shard).expect("shards are numbered in 16 bits"));
            self.ask_shard(asker, shard, 0);
        }
        if word == FourLetter::Dump {
            let _ = self.consensus.send(ToConsensus::SessionsAsked { asker, from: SessionMark::default() });
        }
    }

    fn ask_shard(&self, asker: Asker, shard: ShardId, from: usize) {
        if let Some(entry) = self.gathering.get(&asker) {
            let _ = self.shards[usize::from(shard.0)].send(ToShard::PieceAsked { asker, word: entry.word, from });
        }
    }

    /// One of those asked has told everything.
    fn one_less(&mut self, asker: Asker) {
        let Some(entry) = self.gathering.get_mut(&asker) else { return };
        entry.missing -= 1;
        if entry.missing == 0 {
            let Gathering { word, report, .. } = self.gathering.remove(&asker).expect("just seen");
            self.answer(asker, word, report);
        }
    }

    fn answer(&self, asker: Asker, word: FourLetter, report: Report) {
        let facts = self.facts.gather(word, self.trace_mask);
        let text = render(word, report, &facts, self.facts.now());
        let _ = self.shards[usize::from(asker.shard.0)].send(ToShard::WordAnswered { conn: asker.conn, text });
    }

    /// The client has its answer, or is gone.
    fn ended(&mut self, asker: Asker) {
        self.gathering.remove(&asker);
        if !self.long.remove(&asker) {
            self.waiting.retain(|(other, _)| *other != asker);
            return;
        }
        if let Some((next, word)) = self.waiting.pop_front() {
            self.begin(next, word);
        }
    }
}
