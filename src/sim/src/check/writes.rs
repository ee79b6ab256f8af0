//! Writes: linearizable and durable. Replayed in log order on the model they give every client exactly the code, path
//! and Stat of its reply. An acknowledged write is in the log after every crash, another write is there once or never.
//! A multi is there as a whole or not at all, and sequence numbers never repeat (protocol chapters 9 to 13). The order
//! is in the zxids, so the check is linear.

use corral_consensus::HardState;
use corral_core::command::{Batch, Command, CommandKind};
use corral_core::features;
use corral_core::ids::{Millis, WallMillis};
use corral_wire::error::ErrorCode;

use crate::check::checkers::Checkers;
use crate::check::entry::{CommittedEntry, EntryPosition};
use crate::check::facts::GROWTH_REFUSED;
use crate::check::proposed::{Proposed, is_same};
use crate::check::{elections, members};
use crate::link::Sent;
use crate::model::{Caller, Expected, LinkId, Model, Node, Session, is_system, parent_of};
use crate::reconfig::lines;
use crate::request::{Body, Request, Write};
use crate::violation::{Checked, Violation, require};

/// Logged by a leader in the place of a command that costs too much.
const TOO_COSTLY: CommandKind = CommandKind::Refused(ErrorCode::ThrottledOp);

/// A server runs again from its snapshot. A server that is alone has applied its whole log too.
pub(crate) fn restarted(checkers: &Checkers, server: usize, snapshot: u64, upto: u64, state: &HardState) -> Checked {
    elections::keeps_its_vote(checkers, server, state)?;
    checkers.history.comes_back(snapshot, (!checkers.in_ensemble).then_some(upto))
}

/// A log entry is committed, for the first time, or again after a start or on another server.
pub(crate) fn committed(checkers: &mut Checkers, entry: CommittedEntry, now: Millis) -> Checked {
    if !checkers.history.is_new(&entry)? {
        return Ok(());
    }
    if checkers.in_ensemble {
        members::is_held(checkers, &entry)?;
    }
    if entry.payload.is_empty() {
        return Ok(());
    }
    let batch = Batch::decode(&entry.payload).map_err(|error| Violation::of("writes", error.to_string()))?;
    let changing = batch.features & features::RECONFIGURING != 0;
    let mut next = batch.first_zxid;
    let mut begun = entry.begun.into_iter();
    for command in batch.commands {
        let zxid = if command.takes_zxid() { next } else { checkers.model.zxid };
        if command.takes_zxid() {
            next += 1;
            let last = checkers.model.zxid;
            require(zxid > last, "writes", || format!("zxid {zxid:#x} after {last:#x}"))?;
        }
        let begins = matches!(command.kind, CommandKind::CreateSession { .. });
        let begun = if begins { begun.next().unwrap_or(0) } else { 0 };
        let (index, term, time) = (entry.index, entry.term, batch.time.0);
        let at = EntryPosition { index, term, zxid, time, changing, begun, now };
        let sender = sender(checkers, &command)?;
        match (&command.kind, sender) {
            (CommandKind::ReconfigBegins(text), sender) => members::list_begins(checkers, &at, text, sender)?,
            (CommandKind::ReconfigEnds, _) => members::list_ends(checkers, &at)?,
            (CommandKind::ReconfigFails(code), sender) => members::list_fails(checkers, &at, *code, sender)?,
            (_, None) => server_commands(checkers, &command, zxid, at.time)?,
            (_, Some(link)) => evaluate(checkers, link, &command, &at)?,
        }
    }
    Ok(())
}

fn sender(checkers: &Checkers, command: &Command) -> Result<Option<LinkId>, Violation> {
    let Some(at) = command.origin else { return Ok(None) };
    let name = (at.incarnation, at.shard, at.conn);
    let link = checkers.names.get(&name).copied();
    link.map(Some).ok_or_else(|| Violation::of("writes", format!("a command of an unknown client: {name:?}")))
}

/// A session has expired, a container or TTL node is outlived, or the server makes its system znodes.
fn server_commands(checkers: &mut Checkers, command: &Command, zxid: u64, time: i64) -> Checked {
    match &command.kind {
        CommandKind::CloseSession => {
            checkers.lives.ends_rightly(command.session.0)?;
            checkers.model.close_session(zxid, command.session.0);
        }
        CommandKind::Reap { path, mzxid } => checkers.model.reap(zxid, path, *mzxid),
        CommandKind::SystemNodes(nodes) => {
            let nodes: Vec<(String, Vec<u8>)> =
                nodes.iter().map(|(path, data)| (path.to_string(), data.to_vec())).collect();
            let right = nodes.iter().all(|(path, _)| is_system(path));
            require(right, "writes", || format!("{nodes:?} are no system znodes"))?;
            checkers.model.system_nodes(zxid, time, &nodes);
        }
        CommandKind::Configured(text) => {
            let right = lines(&checkers.founders);
            require(**text == *right, "writes", || format!("{text:?} is no list of the founders"))?;
            checkers.model.configured(zxid, time, checkers.founders.clone());
        }
        other => return Err(Violation::of("writes", format!("{other:?}, a command without a client"))),
    }
    Ok(())
}

/// The server is about to delete a container or TTL node: it must have outlived its use.
pub(crate) fn reaped(checkers: &Checkers, path: &str, mzxid: u64, wall: WallMillis) -> Checked {
    let right = |node: &Node| node.mzxid != mzxid || Model::is_outlived(node, wall.0);
    let node = checkers.model.tree.node(path);
    // A node that is gone or changed since it was chosen is left alone when the command is evaluated.
    require(node.is_none_or(|node| right(node) || node.children > 0), "reaping", || {
        format!("{path} is deleted at {wall:?}: {node:?}")
    })
}

/// Whether a container or TTL node stands although it has outlived its use.
pub(crate) fn something_is_outlived(checkers: &Checkers, wall: WallMillis) -> bool {
    checkers.model.tree.nodes().any(|(_, node)| Model::is_outlived(node, wall.0))
}

/// The next command of a connection: what its client sent, evaluated by the model.
fn evaluate(checkers: &mut Checkers, link: LinkId, command: &Command, at: &EntryPosition) -> Checked {
    let EntryPosition { zxid, time, .. } = *at;
    let is_growth_refused = is_growth_refused(checkers, link, &command.kind);
    let facts = &mut checkers.facts[link.0];
    let number = facts.verdicts.len();
    let proposed = facts.proposed.get(number).cloned();
    let proposed = proposed.ok_or_else(|| Violation::of("writes", format!("link {} never sent that", link.0)))?;
    let is_refused = checkers.has_builds && command.kind == TOO_COSTLY;
    require(is_refused || is_growth_refused || is_same(&proposed, &command.kind), "writes", || {
        format!("link {} sent {proposed:?}, the log has {:?}", link.0, command.kind)
    })?;
    let (session, identities) = (facts.session, facts.identities.clone());
    let named = command.session.0;
    require(named == session, "writes", || format!("link {} speaks for {named:#x}, not {session:#x}", link.0))?;
    let caller = Caller { zxid, time, session, link: Some(link), identities: &identities };
    let verdict = match &proposed {
        Proposed::Connect { .. } => connect(checkers, link, &command.kind, at)?,
        Proposed::Request(_) if is_refused => {
            checkers.too_costly += 1;
            checkers.model.refuse(&caller, ErrorCode::ThrottledOp.code())
        }
        Proposed::Request(_) if is_growth_refused => checkers.model.refuse(&caller, ErrorCode::QuotaExceeded.code()),
        Proposed::Request(_) if command.kind == CommandKind::Undecodable => {
            checkers.model.refuse(&caller, ErrorCode::MarshallingError.code())
        }
        Proposed::Request(Request::Write(write)) => checkers.model.write(&caller, write),
        Proposed::Request(Request::Multi(writes)) => checkers.model.multi(&caller, writes),
        Proposed::Request(Request::Reconfig(change)) => {
            let in_progress = members::is_changing(checkers, at.changing)?;
            checkers.model.reconfig(&caller, change, in_progress)
        }
        Proposed::Request(_) => {
            checkers.lives.ends(session);
            checkers.model.close_session(zxid, session)
        }
    };
    sequences_grow(checkers, zxid, &proposed, &verdict)?;
    members::is_underway(checkers, link, number, &verdict);
    checkers.facts[link.0].verdicts.push((zxid, verdict));
    Ok(())
}

fn connect(
    checkers: &mut Checkers,
    link: LinkId,
    kind: &CommandKind,
    at: &EntryPosition,
) -> Result<Expected, Violation> {
    let verdict = match *kind {
        CommandKind::CreateSession { timeout_ms, password } => {
            let session = at.begun;
            let fresh = checkers.model.begin_session(at.zxid, session, Session { password, timeout_ms, owner: link });
            require(fresh, "sessions", || format!("session id {session:#x} is not new"))?;
            Expected::SessionBegun { session, timeout_ms, password }
        }
        CommandKind::AttachSession { session, timeout_ms, password } => {
            checkers.model.attach_session(session.0, Session { password, timeout_ms, owner: link })
        }
        _ => return Err(Violation::of("writes", format!("{kind:?} for a connect request"))),
    };
    if let Expected::SessionBegun { session, timeout_ms, .. } = verdict {
        checkers.lives.starts(at.now, session, timeout_ms, at.index);
        checkers.facts[link.0].session = session;
    }
    Ok(verdict)
}

/// A write's reply must be what the model said, at the write's own zxid.
pub(super) fn write_answered(
    checkers: &Checkers,
    link: LinkId,
    sent: &Sent,
    zxid: i64,
    err: i32,
    body: &Body,
) -> Checked {
    let facts = &checkers.facts[link.0];
    let uncommitted = || Violation::of("writes", format!("{:?} was answered but never committed", sent.request));
    let verdict = sent.command.and_then(|command| facts.verdicts.get(command));
    let (at, verdict) = verdict.ok_or_else(uncommitted)?;
    let got = Expected::Reply { err, body: body.clone() };
    require(*at == zxid.cast_unsigned() && got == *verdict, "writes", || {
        format!("{:?}: got {got:?} at {zxid:#x}, the model has {verdict:?} at {at:#x}", sent.request)
    })?;
    require(*at > sent.acked_before, "writes", || {
        format!("{:?} has {at:#x}, but {:#x} was acknowledged before it was sent", sent.request, sent.acked_before)
    })?;
    let before = facts.last_reply.0;
    require(zxid > before, "reads", || format!("a reply before the write {zxid:#x} shows {before:#x}"))
}

fn sequences_grow(checkers: &mut Checkers, zxid: u64, proposed: &Proposed, verdict: &Expected) -> Checked {
    let Expected::Reply { err: 0, body } = verdict else { return Ok(()) };
    let Proposed::Request(request) = proposed else { return Ok(()) };
    let results = if let Body::Multi(results) = body { results } else { std::slice::from_ref(body) };
    for (write, result) in request.writes().iter().zip(results) {
        let (Body::Path(path) | Body::PathStat(path, _)) = result else { continue };
        let Write::Create { flags: 2 | 3, .. } = write else { continue };
        let number: Option<i32> = path.len().checked_sub(10).and_then(|at| path[at..].parse().ok());
        let parent = parent_of(path);
        let czxid = checkers.model.tree.node(parent).map_or(0, |node| node.czxid);
        if czxid == 0 || czxid == zxid {
            // The multi that made it removed the parent as well, and perhaps made another.
            continue;
        }
        let last = checkers.history.sequences.insert((parent.to_owned(), czxid), number.unwrap_or(-1));
        require(number > last, "writes", || format!("{path} after number {last:?}"))?;
    }
    Ok(())
}

// ----- writes that a leader without room and its shards refuse -----

/// Whether a leader refused the next command of a connection because it may add data.
fn is_growth_refused(checkers: &mut Checkers, link: LinkId, kind: &CommandKind) -> bool {
    if !checkers.has_scarcity {
        return false;
    }
    let facts = &mut checkers.facts[link.0];
    facts.pass_refused(kind);
    let is_refused =
        *kind == GROWTH_REFUSED && facts.proposed.get(facts.verdicts.len()).is_some_and(Proposed::adds_data);
    checkers.growth_refused += u64::from(is_refused);
    is_refused
}

/// Whether the reply to a write is a refusal that is in no log entry.
pub(super) fn is_refused_by_shard(checkers: &mut Checkers, link: LinkId, sent: &Sent, zxid: i64, err: i32) -> bool {
    let Some(number) = sent.command.filter(|_| checkers.has_scarcity && err == ErrorCode::QuotaExceeded.code()) else {
        return false;
    };
    let facts = &mut checkers.facts[link.0];
    let is_logged = facts.verdicts.get(number).is_some_and(|(at, _)| *at == zxid.cast_unsigned());
    if is_logged || !sent.request.adds_data() || number > facts.verdicts.len() {
        return false;
    }
    facts.refused(number);
    checkers.growth_refused += 1;
    true
}
