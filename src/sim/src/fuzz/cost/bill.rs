//! What an attack cost the server: sums, and the worst of single turns, requests and replies.

use corral_wire::OpCode;

/// Which of a server's cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Core {
    #[default]
    Shard,
    Consensus,
}

/// The longest time that a core did nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    pub ns: u64,
    pub core: Core,
    /// The request that it was about, or the last of a log entry.
    pub op: Option<OpCode>,
}

/// A request's cost, all turns together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    pub op: Option<OpCode>,
    /// What a multi or multiRead holds last.
    pub inner: Option<OpCode>,
    pub bytes: u64,
    pub reply: u64,
    pub ns: u64,
    pub allocated: u64,
}

/// What every request may cost apart from its bytes: that many bytes more count for each.
const FREE_BYTES: u64 = 100;

impl Request {
    /// Bytes that somebody sent or receives for this.
    pub const fn moved(&self) -> u64 {
        self.bytes + self.reply + FREE_BYTES
    }

    pub fn ns_per_byte(&self) -> f64 {
        ratio(self.ns, self.moved())
    }

    pub fn allocated_per_byte(&self) -> f64 {
        ratio(self.allocated, self.moved())
    }

    pub fn reply_per_byte(&self) -> f64 {
        ratio(self.reply, self.bytes.max(1))
    }
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bill {
    /// Requests, those of one turn as one.
    pub requests: u64,
    /// Each of them.
    pub messages: u64,
    /// Bytes that the attacker sent.
    pub bytes: u64,
    pub shard_ns: u64,
    pub core_ns: u64,
    pub units: u64,
    pub entries: u64,
    pub logged: u64,
    pub replied: u64,
    /// Bytes to other clients (events), and to two followers.
    pub others: u64,
    /// Bytes held at the end that were not before.
    pub held: u64,
    /// Commands that came to an error.
    pub failed: u64,
    /// .. while the attack was prepared.
    pub failed_before: u64,
    /// The most bytes held at any moment.
    pub peak: u64,
    /// What the attack added to a snapshot written after it; 0 if none was.
    pub snapshot: u64,
    pub longest_turn: Turn,
    /// The longest turn of the shard, and of the consensus core, ns.
    pub longest_ns: [u64; 2],
    /// Of one log entry or one turn, units counted.
    pub most_units: u64,
    pub dearest: Request,
    pub greediest: Request,
    pub largest: Request,
    /// Bytes of the names below the parent that got the most of them: what its listing and a snapshot must hold. Then
    /// the limit.
    pub names: u64,
    pub names_max: u64,
    /// Connections that the server ended.
    pub closed: u64,
}

impl Bill {
    pub fn ns(&self) -> u64 {
        self.shard_ns + self.core_ns
    }

    pub(super) fn turn(&mut self, turn: Turn, units: u64) {
        match turn.core {
            Core::Shard => self.shard_ns += turn.ns,
            Core::Consensus => self.core_ns += turn.ns,
        }
        self.units += units;
        self.most_units = self.most_units.max(units);
        let longest = &mut self.longest_ns[usize::from(turn.core == Core::Consensus)];
        *longest = turn.ns.max(*longest);
        if turn.ns > self.longest_turn.ns {
            self.longest_turn = turn;
        }
    }

    pub(super) fn request(&mut self, request: Request) {
        self.requests += 1;
        if request.ns_per_byte() > self.dearest.ns_per_byte() {
            self.dearest = request;
        }
        if request.allocated_per_byte() > self.greediest.allocated_per_byte() {
            self.greediest = request;
        }
        if request.reply > self.largest.reply {
            self.largest = request;
        }
    }

    /// The lesser of each time, of two runs of the same.
    pub fn least(&mut self, other: &Bill) {
        self.shard_ns = self.shard_ns.min(other.shard_ns);
        self.core_ns = self.core_ns.min(other.core_ns);
        for (mine, theirs) in self.longest_ns.iter_mut().zip(other.longest_ns) {
            *mine = theirs.min(*mine);
        }
        if other.longest_turn.ns < self.longest_turn.ns {
            self.longest_turn = other.longest_turn;
        }
        if other.dearest.ns_per_byte() < self.dearest.ns_per_byte() {
            self.dearest = other.dearest;
        }
    }

    /// A figure for each byte of what the attacker sent.
    pub fn per_byte(&self, amount: u64) -> f64 {
        ratio(amount, self.bytes + FREE_BYTES)
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
pub(super) fn ratio(amount: u64, by: u64) -> f64 {
    amount as f64 / by.max(1) as f64
}
