//! Writes: linearizable and durable. Replayed in log order on the model they give every client exactly the code, path
//! and Stat of its reply. An acknowledged write is in the log after every crash, another write is there once or never.
//! A multi is there as a whole or not at all, and sequence numbers never repeat (protocol chapters 9 to 13). The order
//! is in the zxids, so the check is linear.

use corral_core::features;
use corral_core::ops;
use corral_core::ops::{CreateOp, STAT_FIELDS, WriteOp};
use std::collections::BTreeMap;

use corral_core::command::{Batch, Command, CommandKind};
use corral_core::ids::{Millis, WallMillis};
use corral_core::shared::{Data, Text};
use corral_core::tree::acl::{AclEntry, AclSpec, ENTRIES_MAX};
use corral_wire::error::ErrorCode;

use super::entry::CommittedEntry;
use super::{Checkers, Facts, Proposed};
use crate::link::Sent;
use crate::model::{Caller, Expected, LinkId, Model, Node, Session, is_system, parent_of};
use crate::reconfig::lines;
use crate::request::{AclItem, Body, Request, Write};
use crate::violation::{Checked, Violation, require};

/// Logged by a leader in the place of a command that costs too much.
const TOO_COSTLY: CommandKind = CommandKind::Refused(ErrorCode::ThrottledOp);
/// Logged by a leader without room in the place of a command that may add data.
const GROWTH_REFUSED: CommandKind = CommandKind::Refused(ErrorCode::QuotaExceeded);

/// The log as it was committed, entry by entry: the same on every server, as far as each has come.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Of each entry from index 1 on. The start of the founders takes the place of the first.
    pub(super) entries: Vec<(u64, Option<u64>)>,
    /// The last sequence number below each parent, by path and czxid.
    pub(super) sequences: BTreeMap<(String, u64), i32>,
}

impl History {
    /// A snapshot holds committed entries only. A server that is alone must recover all of them.
    pub(super) fn comes_back(&self, snapshot: u64, upto: Option<u64>) -> Checked {
        let known = self.entries.len() as u64;
        require(snapshot <= known, "writes", || {
            format!("the snapshot ends at {snapshot}, only {known} entries were committed")
        })?;
        let whole = upto.is_none_or(|upto| upto >= known);
        require(whole, "writes", || format!("entries up to {upto:?} came back, {known} had been committed"))
    }

    /// True when the entry is new; a known one must be what it was, and lead to the tree that it led to.
    fn is_new(&mut self, entry: &CommittedEntry) -> Result<bool, Violation> {
        let digest = xxhash_rust::xxh3::xxh3_64(&entry.payload);
        let at = usize::try_from(entry.index - 1).expect("runs are short");
        match self.entries.get(at) {
            Some((known, tree)) if *known == digest => {
                let same = *tree == entry.digest;
                require(same, "digests", || format!("behind entry {} {:?}, was {tree:?}", entry.index, entry.digest))?;
                Ok(false)
            }
            Some(_) => Err(Violation::of("writes", format!("entry {} is not what it was", entry.index))),
            None if at == self.entries.len() => {
                self.entries.push((digest, entry.digest));
                Ok(true)
            }
            None => Err(Violation::of("writes", format!("entry {} after {}", entry.index, self.entries.len()))),
        }
    }
}

/// Where a command stands in the log.
pub(super) struct EntryPosition {
    pub(super) index: u64,
    pub(super) term: u64,
    pub(super) zxid: u64,
    pub(super) time: i64,
    /// The leader says that it has a membership change in hand.
    pub(super) changing: bool,
    /// The session that the command began, or 0, and when that became known.
    begun: i64,
    now: Millis,
}

impl Checkers {
    /// A log entry is committed, for the first time, or again after a start or on another server.
    pub(crate) fn committed(&mut self, entry: CommittedEntry, now: Millis) -> Checked {
        if !self.history.is_new(&entry)? {
            return Ok(());
        }
        if self.in_ensemble {
            self.is_held(&entry)?;
        }
        if entry.payload.is_empty() {
            return Ok(());
        }
        let batch = Batch::decode(&entry.payload).map_err(|error| Violation::of("writes", error.to_string()))?;
        let changing = batch.features & features::RECONFIGURING != 0;
        let mut next = batch.first_zxid;
        let mut begun = entry.begun.into_iter();
        for command in batch.commands {
            let zxid = if command.takes_zxid() { next } else { self.model.zxid };
            if command.takes_zxid() {
                next += 1;
                let last = self.model.zxid;
                require(zxid > last, "writes", || format!("zxid {zxid:#x} after {last:#x}"))?;
            }
            let begins = matches!(command.kind, CommandKind::CreateSession { .. });
            let begun = if begins { begun.next().unwrap_or(0) } else { 0 };
            let (index, term, time) = (entry.index, entry.term, batch.time.0);
            let at = EntryPosition { index, term, zxid, time, changing, begun, now };
            let sender = self.sender(&command)?;
            match (&command.kind, sender) {
                (CommandKind::ReconfigBegins(text), sender) => self.list_begins(&at, text, sender)?,
                (CommandKind::ReconfigEnds, _) => self.list_ends(&at)?,
                (CommandKind::ReconfigFails(code), sender) => self.list_fails(&at, *code, sender)?,
                (_, None) => self.server_commands(&command, zxid, at.time)?,
                (_, Some(link)) => self.command(link, &command, &at)?,
            }
        }
        Ok(())
    }

    fn sender(&self, command: &Command) -> Result<Option<LinkId>, Violation> {
        let Some(at) = command.origin else { return Ok(None) };
        let name = (at.incarnation, at.shard, at.conn);
        let link = self.names.get(&name).copied();
        link.map(Some).ok_or_else(|| Violation::of("writes", format!("a command of nobody: {name:?}")))
    }

    /// A session has expired, a container or TTL node is outlived, or the server makes its system znodes.
    fn server_commands(&mut self, command: &Command, zxid: u64, time: i64) -> Checked {
        match &command.kind {
            CommandKind::CloseSession => {
                self.lives.ends_rightly(command.session.0)?;
                self.model.close_session(zxid, command.session.0);
            }
            CommandKind::Reap { path, mzxid } => self.model.reap(zxid, path, *mzxid),
            CommandKind::SystemNodes(nodes) => {
                let nodes: Vec<(String, Vec<u8>)> =
                    nodes.iter().map(|(path, data)| (path.to_string(), data.to_vec())).collect();
                let right = nodes.iter().all(|(path, _)| is_system(path));
                require(right, "writes", || format!("{nodes:?} are no system znodes"))?;
                self.model.system_nodes(zxid, time, &nodes);
            }
            CommandKind::Configured(text) => {
                let right = lines(&self.founders);
                require(**text == *right, "writes", || format!("{text:?} is no list of the founders"))?;
                self.model.configured(zxid, time, self.founders.clone());
            }
            other => return Err(Violation::of("writes", format!("{other:?} without a sender"))),
        }
        Ok(())
    }

    /// The server is about to delete a container or TTL node: it must have outlived its use.
    pub(crate) fn reaped(&self, path: &str, mzxid: u64, wall: WallMillis) -> Checked {
        let right = |node: &Node| node.mzxid != mzxid || Model::is_outlived(node, wall.0);
        let node = self.model.tree.node(path);
        // A node that is gone or changed since it was chosen is left alone when the command is evaluated.
        require(node.is_none_or(|node| right(node) || node.children > 0), "reaping", || {
            format!("{path} is deleted at {wall:?}: {node:?}")
        })
    }

    /// Whether a container or TTL node stands although it has outlived its use.
    pub(crate) fn something_is_outlived(&self, wall: WallMillis) -> bool {
        self.model.tree.nodes().any(|(_, node)| Model::is_outlived(node, wall.0))
    }

    /// The next command of a connection: what its client sent, evaluated by the model.
    fn command(&mut self, link: LinkId, command: &Command, at: &EntryPosition) -> Checked {
        let EntryPosition { zxid, time, .. } = *at;
        let is_growth_refused = self.is_growth_refused(link, &command.kind);
        let facts = &mut self.facts[link.0];
        let number = facts.verdicts.len();
        let proposed = facts.proposed.get(number).cloned();
        let proposed = proposed.ok_or_else(|| Violation::of("writes", format!("link {} never sent that", link.0)))?;
        let is_refused = self.has_builds && command.kind == TOO_COSTLY;
        require(is_refused || is_growth_refused || is_same(&proposed, &command.kind), "writes", || {
            format!("link {} sent {proposed:?}, the log has {:?}", link.0, command.kind)
        })?;
        let (session, identities) = (facts.session, facts.identities.clone());
        let named = command.session.0;
        require(named == session, "writes", || format!("link {} speaks for {named:#x}, not {session:#x}", link.0))?;
        let caller = Caller { zxid, time, session, link: Some(link), identities: &identities };
        let verdict = match &proposed {
            Proposed::Connect { .. } => self.connect(link, &command.kind, at)?,
            Proposed::Request(_) if is_refused => {
                self.too_costly += 1;
                self.model.refuse(&caller, ErrorCode::ThrottledOp.code())
            }
            Proposed::Request(_) if is_growth_refused => self.model.refuse(&caller, ErrorCode::QuotaExceeded.code()),
            Proposed::Request(_) if command.kind == CommandKind::Undecodable => {
                self.model.refuse(&caller, ErrorCode::MarshallingError.code())
            }
            Proposed::Request(Request::Write(write)) => self.model.write(&caller, write),
            Proposed::Request(Request::Multi(writes)) => self.model.multi(&caller, writes),
            Proposed::Request(Request::Reconfig(change)) => {
                let in_progress = self.is_changing(at.changing)?;
                self.model.reconfig(&caller, change, in_progress)
            }
            Proposed::Request(_) => {
                self.lives.ends(session);
                self.model.close_session(zxid, session)
            }
        };
        self.sequences_grow(zxid, &proposed, &verdict)?;
        self.is_underway(link, number, &verdict);
        self.facts[link.0].verdicts.push((zxid, verdict));
        Ok(())
    }

    fn connect(&mut self, link: LinkId, kind: &CommandKind, at: &EntryPosition) -> Result<Expected, Violation> {
        let verdict = match *kind {
            CommandKind::CreateSession { timeout_ms, password } => {
                let session = at.begun;
                let fresh = self.model.begin_session(at.zxid, session, Session { password, timeout_ms, owner: link });
                require(fresh, "sessions", || format!("session id {session:#x} is not new"))?;
                Expected::SessionBegun { session, timeout_ms, password }
            }
            CommandKind::AttachSession { session, timeout_ms, password } => {
                self.model.attach_session(session.0, Session { password, timeout_ms, owner: link })
            }
            _ => return Err(Violation::of("writes", format!("{kind:?} for a connect request"))),
        };
        if let Expected::SessionBegun { session, timeout_ms, .. } = verdict {
            self.lives.starts(at.now, session, timeout_ms, at.index);
            self.facts[link.0].session = session;
        }
        Ok(verdict)
    }

    /// A write's reply must be what the model said, at the write's own zxid.
    pub(super) fn write_answered(&self, link: LinkId, sent: &Sent, zxid: i64, err: i32, body: &Body) -> Checked {
        let facts = &self.facts[link.0];
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

    fn sequences_grow(&mut self, zxid: u64, proposed: &Proposed, verdict: &Expected) -> Checked {
        let Expected::Reply { err: 0, body } = verdict else { return Ok(()) };
        let Proposed::Request(request) = proposed else { return Ok(()) };
        let results = if let Body::Multi(results) = body { results } else { std::slice::from_ref(body) };
        for (write, result) in request.writes().iter().zip(results) {
            let (Body::Path(path) | Body::PathStat(path, _)) = result else { continue };
            let Write::Create { flags: 2 | 3, .. } = write else { continue };
            let number: Option<i32> = path.len().checked_sub(10).and_then(|at| path[at..].parse().ok());
            let parent = parent_of(path);
            let czxid = self.model.tree.node(parent).map_or(0, |node| node.czxid);
            if czxid == 0 || czxid == zxid {
                // The multi that made it removed the parent as well, and perhaps made another.
                continue;
            }
            let last = self.history.sequences.insert((parent.to_owned(), czxid), number.unwrap_or(-1));
            require(number > last, "writes", || format!("{path} after number {last:?}"))?;
        }
        Ok(())
    }
}

// ----- writes that a leader without room and its shards refuse -----

/// The verdict on a command that may add data and that a shard refused. It has no entry: the zxid of its reply is that of the
/// shard's view.
fn unlogged() -> (u64, Expected) {
    (0, Expected::Reply { err: ErrorCode::QuotaExceeded.code(), body: Body::Nothing })
}

impl Proposed {
    fn adds_data(&self) -> bool {
        matches!(self, Proposed::Request(request) if request.adds_data())
    }
}

impl Facts {
    /// A command is logged as `kind`. Earlier commands without an entry were refused by their shard, if they may add data.
    fn pass_refused(&mut self, kind: &CommandKind) {
        let next = self.proposed.iter().skip(self.verdicts.len());
        let passed =
            next.take_while(|next| next.adds_data() && *kind != GROWTH_REFUSED && !is_same(next, kind)).count();
        self.verdicts.extend((0..passed).map(|_| unlogged()));
    }

    /// The command of this number was refused by its shard. An equal command that was logged for it is a later one.
    fn refused(&mut self, number: usize) {
        if self.verdicts.get(number) == Some(&unlogged()) {
            return;
        }
        let later = self.verdicts.iter().skip(number).position(|verdict| *verdict == unlogged());
        if let Some(distance) = later {
            self.verdicts.remove(number + distance);
        }
        self.verdicts.insert(number, unlogged());
    }
}

impl Checkers {
    /// Whether a leader refused the next command of a connection because it may add data.
    fn is_growth_refused(&mut self, link: LinkId, kind: &CommandKind) -> bool {
        if !self.has_scarcity {
            return false;
        }
        let facts = &mut self.facts[link.0];
        facts.pass_refused(kind);
        let is_refused =
            *kind == GROWTH_REFUSED && facts.proposed.get(facts.verdicts.len()).is_some_and(Proposed::adds_data);
        self.growth_refused += u64::from(is_refused);
        is_refused
    }

    /// Whether the reply to a write is a refusal that is in no log entry.
    pub(super) fn is_refused_by_shard(&mut self, link: LinkId, sent: &Sent, zxid: i64, err: i32) -> bool {
        let Some(number) = sent.command.filter(|_| self.has_scarcity && err == ErrorCode::QuotaExceeded.code()) else {
            return false;
        };
        let facts = &mut self.facts[link.0];
        let is_logged = facts.verdicts.get(number).is_some_and(|(at, _)| *at == zxid.cast_unsigned());
        if is_logged || !sent.request.adds_data() || number > facts.verdicts.len() {
            return false;
        }
        facts.refused(number);
        self.growth_refused += 1;
        true
    }
}

/// Whether a command says what the client said.
fn is_same(proposed: &Proposed, kind: &CommandKind) -> bool {
    match (proposed, kind) {
        (Proposed::Connect { session: 0, timeout_ms, .. }, CommandKind::CreateSession { timeout_ms: logged, .. }) => {
            timeout_ms == logged
        }
        (
            Proposed::Connect { session, timeout_ms, password },
            CommandKind::AttachSession { session: id, timeout_ms: logged, password: given },
        ) => *session == id.0 && timeout_ms == logged && password == given,
        (Proposed::Request(Request::Write(write)), CommandKind::Op(op)) => logged(write) == *op,
        (Proposed::Request(Request::Multi(writes)), CommandKind::Multi(ops)) => {
            writes.len() == ops.len() && writes.iter().zip(ops).all(|(write, op)| logged(write) == *op)
        }
        (Proposed::Request(Request::Close), CommandKind::CloseSession)
        | (Proposed::Request(Request::Truncated(_)), CommandKind::Undecodable) => true,
        (Proposed::Request(request), CommandKind::Undecodable) => request.writes().iter().any(may_fit_no_entry),
        (Proposed::Request(Request::Reconfig(change)), CommandKind::Reconfig(logged)) => {
            let texts = [&logged.joining, &logged.leaving, &logged.members].map(Option::as_deref);
            change.texts().each_ref().map(Option::as_deref) == texts && change.from == logged.from
        }
        _ => false,
    }
}

/// Whether the leader of a world with small log segments may put a refused command in the place of this one. Its ACL
/// has more entries than any may have, so it would be refused anyway.
fn may_fit_no_entry(write: &Write) -> bool {
    matches!(write, Write::Create { acl, .. } | Write::SetAcl { acl, .. } if acl.len() > ENTRIES_MAX)
}

/// A write as it must stand in the log.
fn logged(write: &Write) -> WriteOp {
    let text = |path: &str| Text::from(path);
    let data = |data: &Option<Vec<u8>>| data.as_deref().map(Data::from);
    let create = |op, path: &str, data, acl, flags, ttl_ms| {
        let path = text(path);
        WriteOp::Create(ops::Create { op, path, data, acl, flags, ttl_ms })
    };
    match write {
        Write::Create { with_stat, path, data: bytes, acl, flags } => {
            let op = if *with_stat { CreateOp::Create2 } else { CreateOp::Create };
            create(op, path, data(bytes), spec(acl), *flags, -1)
        }
        Write::CreateExpiring { path, ttl: None } => create(CreateOp::Container, path, None, AclSpec::Open, 4, -1),
        Write::CreateExpiring { path, ttl: Some(ttl) } => create(CreateOp::Ttl, path, None, AclSpec::Open, 5, *ttl),
        Write::Ensure { path, data: bytes } => create(CreateOp::IfNotExists, path, data(bytes), AclSpec::Open, 0, -1),
        Write::Delete { path, version } => WriteOp::Delete(ops::Delete { path: text(path), version: *version }),
        Write::Check { path, version } => WriteOp::Check(ops::Check { path: text(path), version: *version }),
        Write::CheckNotExists { path, version } => {
            WriteOp::CheckNotExists(ops::CheckNotExists { path: text(path), version: *version })
        }
        Write::TryRemove { path, version } => {
            WriteOp::TryRemove(ops::TryRemove { path: text(path), version: *version })
        }
        Write::CheckStat { path, version, children } => {
            let mut stat = Box::new([-1; STAT_FIELDS]);
            stat[9] = i64::from(*children);
            WriteOp::CheckStat(ops::CheckStat { path: text(path), version: *version, stat })
        }
        Write::RemoveRecursive { path, limit } => {
            WriteOp::RemoveRecursive(ops::RemoveRecursive { path: text(path), limit: *limit })
        }
        Write::SetData { path, data: bytes, version } => {
            WriteOp::SetData(ops::SetData { path: text(path), data: data(bytes), version: *version })
        }
        Write::SetAcl { path, acl, version } => {
            WriteOp::SetAcl(ops::SetAcl { path: text(path), acl: spec(acl), version: *version })
        }
    }
}

fn spec(acl: &[AclItem]) -> AclSpec {
    let entry = |item: &AclItem| AclEntry {
        perms: item.perms,
        scheme: Text::from(item.scheme.as_str()),
        id: Text::from(item.id.as_str()),
    };
    match acl {
        [] => AclSpec::Missing,
        [one] if *one == AclItem::open() => AclSpec::Open,
        _ => AclSpec::List(acl.iter().map(entry).collect()),
    }
}
