//! Attaches with a wrong password, refused before they reach the log.

use crate::apply::{Proof, StateMachine};
use crate::command::{Command, CommandKind, Proposals};
use crate::ids::ConnId;
use alloc::vec::Vec;

/// Takes out the attaches that are known to be wrong: their connections are refused, and they take no log entry. Gives
/// these connections.
pub fn take_wrong_attaches(machine: &StateMachine, proposals: &mut Proposals) -> Vec<ConnId> {
    let wrong = |command: &Command| match &command.kind {
        CommandKind::AttachSession { session, password, .. } => machine.proof(*session, password) == Proof::Wrong,
        _ => false,
    };
    let mut refused = Vec::new();
    if proposals.commands.iter().any(wrong) {
        proposals.commands.retain(|command| {
            let origin = command.origin.filter(|_| wrong(command));
            refused.extend(origin.map(|origin| origin.conn));
            origin.is_none()
        });
    }
    refused
}
