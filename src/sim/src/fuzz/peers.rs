//! Target: the messages that a server receives from another, beside Raft. They are read, written as the same bytes, and
//! their commands are applied.
//!
//! A peer's commands never passed a shard of this server, so that the state machine must take whatever can be decoded.

use corral_core::apply::StateMachine;
use corral_core::command::{Batch, CommandKind};
use corral_core::forwarding::peer::{
    Digest, Forward, Heartbeat, Pause, Paused, PeerMessage, SessionReport, Uninitialised,
};
use corral_core::ids::{ConnId, Millis, Origin, ServerId, SessionId, ShardId, WallMillis, Zxid};
use corral_core::session::SessionTable;
use corral_core::tree::view::View;

use super::rules;
use super::tally::Tally;
use crate::rng::Stream;
use crate::violation::Violation;
use crate::violation::require;

/// The sender, in its present start.
const SERVER: ServerId = ServerId(2);
const INCARNATION: u64 = 5;

pub(super) fn peer(input: &[u8]) -> Result<Tally, Violation> {
    let Ok(message) = PeerMessage::decode(input) else { return Ok(Tally { refused: 1, ..Tally::default() }) };
    let mut bytes = Vec::with_capacity(input.len());
    message.clone().encode(&mut bytes);
    require(bytes == input, "peer", || format!("{message:?} was read from bytes that are not its own"))?;
    if let PeerMessage::Forward(forward) = message
        && forward.check(SERVER, INCARNATION).is_ok()
    {
        let (identities, commands) = (forward.proposals.identities, forward.proposals.commands);
        let taken = commands.iter().filter(|command| command.takes_zxid()).count() as u64;
        let batch =
            Batch { time: WallMillis(1), first_zxid: Zxid::of(1, 1).0, features: u32::MAX, identities, commands };
        let mut machine = StateMachine::new(View::empty(7), SessionTable::default());
        machine.apply(batch, 1);
        let zxid = machine.view().zxid();
        require(zxid == Zxid::of(1, u32::try_from(taken).unwrap_or(0)) || taken == 0, "peer", || {
            format!("{taken} commands lead to zxid {zxid}")
        })?;
    }
    Ok(Tally { accepted: 1, ..Tally::default() })
}

pub(super) fn generate(stream: &mut Stream, out: &mut Vec<u8>) {
    let (term, sequence) = (stream.pick(&[1, 7, u64::MAX]), stream.below(3));
    let message = match stream.below(10) {
        9 => PeerMessage::Digest(Digest { index: stream.word(), digest: stream.word() }),
        8 => PeerMessage::Uninitialised(Uninitialised {
            founders: stream.word(),
            acknowledged: stream.word(),
            bootstrapped: stream.below(2) == 1,
        }),
        0 => PeerMessage::Heartbeat(Heartbeat { term, clock: Millis(stream.word()) }),
        1 | 2 => {
            let sessions = (0..stream.below(4)).map(|at| SessionId(at.cast_signed() + 1)).collect();
            PeerMessage::SessionReport(SessionReport { term, sequence, echo: Millis(stream.word()), sessions })
        }
        3 if sequence == 0 => PeerMessage::Pause(Pause { term }),
        3 => PeerMessage::Paused(Paused { term, sequence }),
        _ => PeerMessage::Forward(forward(stream, term, sequence)),
    };
    message.encode(out);
}

fn forward(stream: &mut Stream, term: u64, sequence: u64) -> Forward {
    let mut payload = Vec::new();
    rules::generate_batch(stream, &mut payload);
    let Ok(Batch { identities, mut commands, .. }) = Batch::decode(&payload) else {
        unreachable!("the generator makes whole batches");
    };
    let conn = ConnId { slot: 1, generation: 1 };
    for command in &mut commands {
        command.origin = Some(Origin { server: SERVER, shard: ShardId(0), conn, incarnation: INCARNATION });
        let timeout_ms = stream.pick(&[-1, 0, 4000]);
        match stream.below(12) {
            0 => command.kind = CommandKind::CreateSession { timeout_ms, password: [1; 16] },
            1 => command.kind = CommandKind::CloseSession,
            2 => command.kind = CommandKind::Reconfig(Box::default()),
            3 => command.kind = CommandKind::Undecodable,
            _ => {}
        }
    }
    let proposals = corral_core::command::Proposals { identities, commands, ..Default::default() };
    Forward { term, sequence, proposals }
}
