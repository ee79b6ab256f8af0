//! Requests of clients to change the membership, as plain values, their texts, and how such a wish is drawn.
//!
//! Of a server it knows the id alone. A change may add and remove servers, and change their roles and ports. A port is
//! for clients, or for the other servers, as of a host that moves.

use std::collections::BTreeMap;

use corral_consensus::ServerId;

use crate::rng::Stream;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) observer: bool,
    /// The port for clients: it may change without a change of the membership.
    pub(crate) port: u16,
    /// Where the other servers find it.
    pub(crate) peer_port: u16,
}

/// The port for the other servers, before a server moves.
pub(crate) const PEER_PORT: u16 = 1;

pub(crate) type Seats = BTreeMap<u8, Seat>;

impl Seat {
    fn role(self) -> &'static str {
        if self.observer { "observer" } else { "participant" }
    }
}

/// The list as the servers show it (protocol chapter 21), without its version.
pub(crate) fn lines(seats: &Seats) -> String {
    let line = |(id, seat): (&u8, &Seat)| {
        format!("server.{id}=h{id}:{}:2:{};0.0.0.0:{}\n", seat.peer_port, seat.role(), seat.port)
    };
    seats.iter().map(line).collect()
}

pub(crate) fn participants(ids: impl Iterator<Item = ServerId>) -> Seats {
    ids.map(|id| (id.0, Seat { observer: false, port: 3, peer_port: PEER_PORT })).collect()
}

/// The request of a client; with `members` the other fields are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) joining: Vec<(u8, Seat)>,
    pub(crate) leaving: Vec<u8>,
    pub(crate) members: Option<Seats>,
    pub(crate) from: i64,
}

/// Changes of a port that move a server to another port for its peers, in a thousand.
const MOVES: u64 = 600;

impl Change {
    /// The joining, leaving and new members as they go over the wire; what is empty is not there.
    pub(crate) fn texts(&self) -> [Option<String>; 3] {
        let line =
            |id: &u8, seat: &Seat| format!("server.{id}=h{id}:{}:2:{};{}", seat.peer_port, seat.role(), seat.port);
        let joining = self.joining.iter().map(|(id, seat)| line(id, seat)).collect();
        let leaving = self.leaving.iter().map(u8::to_string).collect();
        let members = self.members.iter().flatten().map(|(id, seat)| line(id, seat)).collect();
        [joining, leaving, members].map(|all: Vec<String>| (!all.is_empty()).then(|| all.join(",")))
    }

    /// A wish of a client that knows the list and its version. `ports`: where each server, from 1 on, listens for the others.
    pub(crate) fn draw(rng: &mut Stream, now: &Seats, version: u64, ports: &[u16]) -> Change {
        let servers = u8::try_from(ports.len()).expect("few servers");
        let from = match rng.below(10) {
            0..6 => -1,
            6..9 => version.cast_signed(),
            _ => version.cast_signed() - 1,
        };
        let mut change = Change { from, ..Change::default() };
        let listed: Vec<u8> = now.keys().copied().collect();
        let outside: Vec<u8> = (1..=servers).filter(|id| !now.contains_key(id)).collect();
        let seat = |rng: &mut Stream, id: u8| {
            let peer_port = ports[usize::from(id) - 1];
            Seat { observer: rng.per_mille(300), port: 3, peer_port }
        };
        match rng.below(19) {
            0..5 if !outside.is_empty() => {
                let id = rng.pick(&outside);
                change.joining.push((id, seat(rng, id)));
            }
            5..8 => change.leaving.push(rng.pick(&listed)),
            8..10 => {
                let id = rng.pick(&listed);
                change.joining.push((id, Seat { observer: !now[&id].observer, ..now[&id] }));
            }
            10 | 16..19 => {
                let id = rng.pick(&listed);
                let port = u16::try_from(rng.within(3, 9)).expect("a small number");
                let moved = if rng.per_mille(MOVES) {
                    Seat { peer_port: 10 + port, ..now[&id] }
                } else {
                    Seat { port, ..now[&id] }
                };
                change.joining.push((id, moved));
            }
            11..13 => {
                change.leaving.push(rng.pick(&listed));
                change.joining.extend(outside.iter().map(|id| (*id, seat(rng, *id))));
            }
            13 => change.leaving.push(200),
            _ => {
                let share = rng.pick(&[400, 700]);
                let ids: Vec<u8> = (1..=servers).filter(|_| rng.per_mille(share)).collect();
                let members: Seats = ids.into_iter().map(|id| (id, seat(rng, id))).collect();
                change.members = (!members.is_empty()).then_some(members);
            }
        }
        change
    }
}
