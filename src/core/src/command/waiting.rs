//! Commands that wait to be taken, with the identities they speak with. They are given in pieces, so that however many wait, a
//! piece fits a log entry and a message between servers.

use super::kinds::{Command, CommandKind};
use crate::tree::acl::Identity;
use alloc::collections::BTreeMap;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;

/// Room for this many commands at most is made before they come.
const AHEAD_MAX: usize = 1024;

/// Returns the bytes that identities count for. Identities of usual length count for nothing: their command counts for
/// them.
pub(crate) fn identities_weight(list: &[Identity]) -> usize {
    const FIXED: usize = 10;
    const FREE: usize = 50;
    let bytes: usize = list.iter().map(|Identity { scheme, id }| FIXED + scheme.len() + id.len()).sum();
    bytes.saturating_sub(FREE)
}

/// Lists of identities that get new places, in the order in which they are first asked for. A key tells a list from the others.
pub(crate) struct Renumbered<K> {
    /// Ordered, because clients choose their identities: with a hash they could choose colliding ones.
    places: BTreeMap<K, u32>,
    pub(crate) lists: Vec<Arc<Vec<Identity>>>,
}

impl<K: Ord> Renumbered<K> {
    pub(crate) const fn new() -> Self {
        Self { places: BTreeMap::new(), lists: Vec::new() }
    }

    fn has(&self, key: &K) -> bool {
        self.places.contains_key(key)
    }

    /// The new place of a list.
    pub(crate) fn place_of(&mut self, key: K, list: &Arc<Vec<Identity>>) -> u32 {
        *self.places.entry(key).or_insert_with(|| {
            self.lists.push(Arc::clone(list));
            u32::try_from(self.lists.len() - 1).expect("no more than there were")
        })
    }
}

/// The commands of one turn, ordered, with the identities they speak with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proposals {
    /// Lists of identities that the commands refer to by index.
    pub identities: Vec<Arc<Vec<Identity>>>,
    /// The commands, in the order in which they are to be evaluated.
    pub commands: Vec<Command>,
    /// Bytes by and large, seldom fewer than it takes in the log. The size of log entries, and of commands in flight,
    /// is counted by them.
    pub bytes: usize,
    /// Most cost of their evaluation, in units of [`crate::cost`]: it also limits a log entry. 0 before the sequencer
    /// has taken them.
    pub cost: u64,
    /// Part of that cost for closing sessions. It grows with the ephemerals that they get until then.
    pub cost_of_closing: u64,
    /// Number of losses of a leader before them, see [`crate::forwarding`]: what comes of a former one is not
    /// ordered.
    pub generation: u32,
}

impl Proposals {
    /// Without a generation.
    pub(crate) fn new(identities: Vec<Arc<Vec<Identity>>>, commands: Vec<Command>) -> Self {
        let of_commands: usize = commands.iter().map(|command| command.kind.weight()).sum();
        let bytes = of_commands + identities.iter().map(|list| identities_weight(list)).sum::<usize>();
        Self { identities, commands, bytes, ..Self::default() }
    }

    /// The commands cost so much.
    pub(crate) fn count(&mut self, costs: &VecDeque<u64>) {
        let closing = self.commands.iter().zip(costs).filter(|(command, _)| command.kind == CommandKind::CloseSession);
        self.cost_of_closing = closing.map(|(_, cost)| *cost).fold(0, u64::saturating_add);
        self.cost = costs.iter().copied().fold(0, u64::saturating_add);
    }
}

/// Commands that wait for a log entry, with their identities.
pub(crate) struct Waiting {
    commands: VecDeque<Command>,
    /// Identities of the commands, and maybe of commands that wait no more.
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
        self.take_by_cost(bytes_max, u64::MAX, &mut VecDeque::new())
    }

    /// As [`Waiting::take`], with a second limit. `costs` are the costs of the commands. Costs of taken commands are
    /// removed.
    pub(crate) fn take_by_cost(
        &mut self,
        bytes_max: usize,
        cost_max: u64,
        costs: &mut VecDeque<u64>,
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
        let piece = self.take_piece(bytes_max, cost_max, costs);
        self.stale = true;
        if self.commands.is_empty() {
            self.begin_anew();
        }
        Some(piece)
    }

    fn take_piece(&mut self, bytes_max: usize, cost_max: u64, costs: &mut VecDeque<u64>) -> Proposals {
        let (mut piece, mut renumbered) = (Proposals::default(), Renumbered::new());
        while let Some(command) = self.commands.front() {
            let weight = command.kind.weight();
            // A command of the server's own speaks with none.
            let identities = self.identities.get(command.identities as usize);
            let new = identities.filter(|_| !renumbered.has(&command.identities));
            let more = weight + new.map_or(0, |list| identities_weight(list));
            let cost = costs.front().copied().unwrap_or(0);
            let fits = piece.bytes + more <= bytes_max && piece.cost.saturating_add(cost) <= cost_max;
            if !piece.commands.is_empty() && !fits {
                break;
            }
            piece.bytes += more;
            piece.cost = piece.cost.saturating_add(cost);
            if command.kind == CommandKind::CloseSession {
                piece.cost_of_closing = piece.cost_of_closing.saturating_add(cost);
            }
            let place = identities.map_or(0, |list| renumbered.place_of(command.identities, list));
            let mut command = self.commands.pop_front().expect("just seen");
            costs.pop_front();
            command.identities = place;
            self.bytes = self.bytes.saturating_sub(weight);
            piece.commands.push(command);
        }
        piece.identities = renumbered.lists;
        piece
    }

    /// Drops the commands that do not stay.
    pub(crate) fn retain(&mut self, stays: impl Fn(&Command) -> bool) {
        self.commands.retain(stays);
        self.stale = true;
        if self.commands.is_empty() {
            return self.begin_anew();
        }
        let commands: usize = self.commands.iter().map(|command| command.kind.weight()).sum();
        self.bytes = commands + self.identities.iter().map(|list| identities_weight(list)).sum::<usize>();
    }

    /// No command waits.
    fn begin_anew(&mut self) {
        self.identities.clear();
        (self.stale, self.bytes) = (false, 0);
        self.turn += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::SessionId;
    use crate::ops;
    use crate::ops::WriteOp;
    use crate::shared::{Data, Text};
    use alloc::vec;

    fn identity(id: &str) -> Arc<Vec<Identity>> {
        Arc::new(vec![Identity { scheme: Text::from("digest"), id: Text::from(id) }])
    }

    fn write(number: usize, identities: u32, bytes: usize) -> Command {
        let data = Some(Data::from(vec![0; bytes].as_slice()));
        let kind = CommandKind::Op(WriteOp::SetData(ops::SetData { path: Text::from("/a"), data, version: -1 }));
        Command { identities, session: SessionId(number as i64), ..Command::own(None, kind) }
    }

    fn push(waiting: &mut Waiting, command: Command) {
        let weight = command.kind.weight();
        waiting.push(command, weight);
    }

    /// The numbers of a piece's commands, with their identities.
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
    fn pieces_go_by_the_costs_of_their_commands() {
        let (mut waiting, close) = (Waiting::default(), || Command::own(None, CommandKind::CloseSession));
        [write(0, 0, 0), write(1, 0, 0), close(), write(2, 0, 0), close()]
            .into_iter()
            .for_each(|command| push(&mut waiting, command));
        let mut costs = VecDeque::from([4, 4, 5, 9, 1]);
        let pieces = core::iter::from_fn(|| waiting.take_by_cost(usize::MAX, 8, &mut costs));
        let pieces: Vec<_> = pieces.map(|piece| (piece.commands.len(), piece.cost, piece.cost_of_closing)).collect();
        assert_eq!(pieces, [(2, 8, 0), (1, 5, 5), (1, 9, 0), (1, 1, 1)]);
        assert!(costs.is_empty());
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
