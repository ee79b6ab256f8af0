//! What clients say when they change the membership, as plain values, their texts, and how such a wish is drawn.
//!
//! Knows no server type. Each server has one address for ever; what changes is who is listed, with which role and with
//! which port for clients.

use std::collections::BTreeMap;

use crate::rng::Stream;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) observer: bool,
    /// Where clients find it: what may change without a change of who belongs to the ensemble.
    pub(crate) port: u16,
}

pub(crate) type Seats = BTreeMap<u8, Seat>;

impl Seat {
    fn role(self) -> &'static str {
        if self.observer { "observer" } else { "participant" }
    }
}

/// The list as the servers show it (protocol chapter 21), without its version.
pub(crate) fn lines(seats: &Seats) -> String {
    let line = |(id, seat): (&u8, &Seat)| format!("server.{id}=h{id}:1:2:{};0.0.0.0:{}\n", seat.role(), seat.port);
    seats.iter().map(line).collect()
}

pub(crate) fn participants(ids: impl Iterator<Item = u8>) -> Seats {
    ids.map(|id| (id, Seat { observer: false, port: 3 })).collect()
}

/// What a client asks for; with `members` the others are passed over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) joining: Vec<(u8, Seat)>,
    pub(crate) leaving: Vec<u8>,
    pub(crate) members: Option<Seats>,
    pub(crate) from: i64,
}

impl Change {
    /// The joining, leaving and new members as they go over the wire; what is empty is not there.
    pub(crate) fn texts(&self) -> [Option<String>; 3] {
        let line = |id: &u8, seat: &Seat| format!("server.{id}=h{id}:1:2:{};{}", seat.role(), seat.port);
        let joining = self.joining.iter().map(|(id, seat)| line(id, seat)).collect();
        let leaving = self.leaving.iter().map(u8::to_string).collect();
        let members = self.members.iter().flatten().map(|(id, seat)| line(id, seat)).collect();
        [joining, leaving, members].map(|all: Vec<String>| (!all.is_empty()).then(|| all.join(",")))
    }

    /// A wish of somebody who knows the list and its version. `servers`: ids go up to that.
    pub(crate) fn draw(rng: &mut Stream, now: &Seats, version: u64, servers: u8) -> Change {
        let from = match rng.below(10) {
            0..6 => -1,
            6..9 => version.cast_signed(),
            _ => version.cast_signed() - 1,
        };
        let mut change = Change { from, ..Change::default() };
        let listed: Vec<u8> = now.keys().copied().collect();
        let outside: Vec<u8> = (1..=servers).filter(|id| !now.contains_key(id)).collect();
        let seat = |rng: &mut Stream| Seat { observer: rng.per_mille(300), port: 3 };
        match rng.below(16) {
            0..5 if !outside.is_empty() => change.joining.push((rng.pick(&outside), seat(rng))),
            5..8 => change.leaving.push(rng.pick(&listed)),
            8..10 => {
                let id = rng.pick(&listed);
                let Seat { observer, port } = now[&id];
                change.joining.push((id, Seat { observer: !observer, port }));
            }
            10 => {
                let id = rng.pick(&listed);
                let port = u16::try_from(rng.within(3, 9)).expect("a small number");
                change.joining.push((id, Seat { port, ..now[&id] }));
            }
            11..13 => {
                change.leaving.push(rng.pick(&listed));
                change.joining.extend(outside.iter().map(|id| (*id, seat(rng))));
            }
            13 => change.leaving.push(200),
            _ => {
                let share = rng.pick(&[400, 700]);
                let ids: Vec<u8> = (1..=servers).filter(|_| rng.per_mille(share)).collect();
                let members: Seats = ids.into_iter().map(|id| (id, seat(rng))).collect();
                change.members = (!members.is_empty()).then_some(members);
            }
        }
        change
    }
}
