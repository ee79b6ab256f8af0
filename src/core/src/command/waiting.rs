//! Commands that wait to be taken, with the identities they speak with. They are given in pieces, so that however many wait, a
//! piece fits a log entry and a message between servers.

use super::{Batch, Command, Identity, Proposals};
use crate::request;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;
use hashbrown::HashMap;
use xxhash_rust::xxh3::Xxh3DefaultBuilder;

/// Room for this many commands at most is made before they come.
const AHEAD_MAX: usize = 1024;

/// What identities count for, in bytes. Those of usual length are within what the command that speaks with them counts for.
pub(crate) fn identities_weight(list: &[Identity]) -> usize {
    const FIXED: usize = 10;
    const FREE: usize = 50;
    let bytes: usize = list.iter().map(|Identity { scheme, id }| FIXED + scheme.len() + id.len()).sum();
    bytes.saturating_sub(FREE)
}

/// See the module.
pub(crate) struct Waiting {
    commands: VecDeque<Command>,
    /// What they speak with, and maybe what commands spoke with that wait no more.
    identities: Vec<Arc<Vec<Identity>>>,
    /// Whether that may be.
    stale: bool,
    /// Of the commands and of all these identities.
    bytes: usize,
    /// Counts the tables of identities, to know whether one is in this table already. Starts at 1.
    turn: u64,
}

impl Default for Waiting {
    fn default() -> Self {
        Self { commands: VecDeque::new(), identities: Vec::new(), stale: false, bytes: 0, turn: 1 }
    }
}

impl From<Proposals> for Waiting {
    fn from(Proposals { identities, commands, bytes, .. }: Proposals) -> Self {
        Self { commands: commands.into(), identities, bytes, ..Self::default() }
    }
}

impl Waiting {
    /// Commands.
    pub(crate) fn len(&self) -> usize {
        self.commands.len()
    }

    /// 0 if there are no commands, and only then.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The turn, and the place in its table of identities, of these, which were given the place `last` before.
    pub(crate) fn place_of(&mut self, identities: &Arc<Vec<Identity>>, last: (u64, u32)) -> (u64, u32) {
        if last.0 == self.turn {
            return last;
        }
        let place = u32::try_from(self.identities.len()).expect("fewer identities than connections");
        self.bytes += identities_weight(identities);
        self.identities.push(Arc::clone(identities));
        (self.turn, place)
    }

    /// `weight` is the command's.
    pub(crate) fn push(&mut self, command: Command, weight: usize) {
        self.bytes += weight;
        self.commands.push_back(command);
    }

    /// The oldest commands: so many bytes of them, or one. `None` if there are none.
    pub(crate) fn take(&mut self, bytes_max: usize) -> Option<Proposals> {
        self.take_by_cost(bytes_max, u64::MAX, |_, _| 0)
    }

    /// As [`Waiting::take`], with a second limit: what `cost_of` says of a command and of those it speaks as.
    pub(crate) fn take_by_cost(
        &mut self,
        bytes_max: usize,
        cost_max: u64,
        cost_of: impl Fn(&Command, usize) -> u64,
    ) -> Option<Proposals> {
        if self.commands.is_empty() {
            return None;
        }
        if !self.stale && self.bytes <= bytes_max && cost_max == u64::MAX {
            // The next turn will bring about as many: the list need not grow step by step again.
            let next = VecDeque::with_capacity(self.commands.len().min(AHEAD_MAX));
            let commands = mem::replace(&mut self.commands, next).into();
            let (identities, bytes) = (mem::take(&mut self.identities), self.bytes);
            self.begin_anew();
            return Some(Proposals { identities, commands, bytes, ..Proposals::default() });
        }
        let piece = self.take_piece(bytes_max, cost_max, cost_of);
        self.stale = true;
        if self.commands.is_empty() {
            self.begin_anew();
        }
        Some(piece)
    }

    fn take_piece(&mut self, bytes_max: usize, cost_max: u64, cost_of: impl Fn(&Command, usize) -> u64) -> Proposals {
        let mut piece = Proposals::default();
        let mut places: HashMap<u32, u32, Xxh3DefaultBuilder> = HashMap::default();
        while let Some(command) = self.commands.front() {
            let weight = request::weight(&command.kind);
            // A command of the server's own speaks with none.
            let identities = self.identities.get(command.identities as usize);
            let new = identities.filter(|_| !places.contains_key(&command.identities));
            let more = weight + new.map_or(0, |list| identities_weight(list));
            let cost = cost_of(command, identities.map_or(0, |list| list.len()));
            let fits = piece.bytes + more <= bytes_max && piece.cost.saturating_add(cost) <= cost_max;
            if !piece.commands.is_empty() && !fits {
                break;
            }
            if let Some(list) = new {
                let place = u32::try_from(piece.identities.len()).expect("no more than there were");
                places.insert(command.identities, place);
                piece.identities.push(Arc::clone(list));
            }
            piece.bytes += more;
            piece.cost = piece.cost.saturating_add(cost);
            let mut command = self.commands.pop_front().expect("just seen");
            command.identities = places.get(&command.identities).copied().unwrap_or_default();
            self.bytes = self.bytes.saturating_sub(weight);
            piece.commands.push(command);
        }
        piece
    }

    /// Drops the commands that do not stay.
    pub(crate) fn retain(&mut self, stays: impl Fn(&Command) -> bool) {
        self.commands.retain(stays);
        self.stale = true;
        if self.commands.is_empty() {
            return self.begin_anew();
        }
        let commands: usize = self.commands.iter().map(|command| request::weight(&command.kind)).sum();
        self.bytes = commands + self.identities.iter().map(|list| identities_weight(list)).sum::<usize>();
    }

    /// No command waits.
    fn begin_anew(&mut self) {
        self.identities.clear();
        (self.stale, self.bytes) = (false, 0);
        self.turn += 1;
    }
}

impl Batch {
    /// Has connections with the same long identities share one copy of them. Usual ones are not worth a look.
    pub(crate) fn share_identities(&mut self) {
        if self.identities.iter().filter(|list| identities_weight(list) > 0).nth(1).is_none() {
            return;
        }
        let lists = mem::take(&mut self.identities);
        let mut places: HashMap<&Arc<Vec<Identity>>, u32, Xxh3DefaultBuilder> = HashMap::default();
        let mut place_of = |list| {
            let next = u32::try_from(self.identities.len()).expect("no more than there were");
            *places.entry(list).or_insert_with(|| {
                self.identities.push(Arc::clone(list));
                next
            })
        };
        let moved: Vec<u32> = lists.iter().map(&mut place_of).collect();
        for command in &mut self.commands {
            command.identities = moved.get(command.identities as usize).copied().unwrap_or(command.identities);
        }
    }
}

impl Proposals {
    /// Without a generation.
    pub(crate) fn new(identities: Vec<Arc<Vec<Identity>>>, commands: Vec<Command>) -> Self {
        let of_commands: usize = commands.iter().map(|command| request::weight(&command.kind)).sum();
        let bytes = of_commands + identities.iter().map(|list| identities_weight(list)).sum::<usize>();
        Self { identities, commands, bytes, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{CommandKind, WriteOp};
    use crate::ids::SessionId;
    use crate::shared::{Data, Text};
    use alloc::vec;

    fn identity(id: &str) -> Arc<Vec<Identity>> {
        Arc::new(vec![Identity { scheme: Text::from("digest"), id: Text::from(id) }])
    }

    fn write(number: usize, identities: u32, bytes: usize) -> Command {
        let data = Some(Data::from(vec![0; bytes].as_slice()));
        let kind = CommandKind::Op(WriteOp::SetData { path: Text::from("/a"), data, version: -1 });
        Command { identities, session: SessionId(number as i64), ..Command::own(None, kind) }
    }

    fn push(waiting: &mut Waiting, command: Command) {
        let weight = request::weight(&command.kind);
        waiting.push(command, weight);
    }

    /// The numbers of a piece's commands, and as whom they speak.
    fn told(piece: &Proposals) -> Vec<(i64, &str)> {
        let whom = |command: &Command| &*piece.identities[command.identities as usize][0].id;
        piece.commands.iter().map(|command| (command.session.0, whom(command))).collect()
    }

    #[test]
    fn pieces_keep_the_order_and_name_their_own_identities() {
        let (a, b, mut waiting) = (identity("a"), identity("b"), Waiting::default());
        let (at_a, at_b) = (waiting.place_of(&a, (0, 0)), waiting.place_of(&b, (0, 0)));
        assert_eq!((at_a, at_b), ((1, 0), (1, 1)));
        for (number, place) in [at_a, at_b, at_b, at_a].into_iter().enumerate() {
            push(&mut waiting, write(number, place.1, 300));
        }
        let first = waiting.take(1000).expect("a piece");
        assert_eq!((told(&first), first.identities.len()), (vec![(0, "a"), (1, "b")], 2));
        assert_eq!(waiting.place_of(&a, at_a), at_a, "the rest goes by the same table");
        push(&mut waiting, write(4, at_a.1, 2000));
        let second = waiting.take(500).expect("a piece");
        assert_eq!((told(&second), second.identities.len()), (vec![(2, "b")], 1));
        assert_eq!(told(&waiting.take(1000).expect("a piece")), [(3, "a")]);
        assert_eq!(told(&waiting.take(1000).expect("one at least")), [(4, "a")]);
        assert!(waiting.take(1000).is_none() && waiting.bytes() == 0);
        assert_eq!(waiting.place_of(&a, at_a), (2, 0), "a new table");
    }

    #[test]
    fn long_identities_count() {
        let mut waiting = Waiting::default();
        for number in 0..10 {
            let long = identity(&"x".repeat(600 + number));
            let place = waiting.place_of(&long, (0, 0));
            push(&mut waiting, write(number, place.1, 0));
        }
        while let Some(piece) = waiting.take(2000) {
            let all: usize = piece.identities.iter().map(|list| list[0].id.len()).sum();
            assert!(all <= 2000 && piece.commands.len() <= 2, "{all} bytes");
        }
    }

    #[test]
    fn who_goes_leaves_no_identities_behind() {
        let mut waiting = Waiting::default();
        for number in 0..4 {
            let place = waiting.place_of(&identity("who"), (0, 0));
            push(&mut waiting, write(number, place.1, 0));
        }
        waiting.retain(|command| command.session == SessionId(2));
        assert_eq!(waiting.len(), 1);
        assert_eq!(waiting.take(1 << 20).expect("it stays").identities.len(), 1);
        let place = waiting.place_of(&identity("who"), (0, 0));
        push(&mut waiting, write(9, place.1, 0));
        waiting.retain(|_| false);
        assert!(waiting.take(1 << 20).is_none() && waiting.bytes() == 0);
    }
}
