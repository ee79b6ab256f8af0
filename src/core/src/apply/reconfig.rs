//! The membership in the tree: how it gets there, and the results of clients' changes (protocol chapter 11.6).
//!
//! Part of the state machine. The list is there once a leader of an ensemble has put it there; without it a server is
//! alone. Checks stand in ZooKeeper's order. That a majority of the new list is there and in step only a leader knows.

use crate::apply::outcome::{AppliedTxn, Outcome};
use crate::command::{Batch, Command, CommandKind};
use crate::features;
use crate::ids::{Origin, WallMillis, Zxid};
use crate::ops::caller::{BatchContext, Caller};
use crate::ops::draft::Draft;
use crate::servers::reconfig::Reconfig;
use crate::servers::{CONFIG_PATH, Servers};
use crate::shared::{Data, Text};
use crate::tree::acl;
use crate::tree::change::Changes;
use crate::tree::view::View;
use crate::tree::znode::Znode;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::str;
use corral_wire::error::ErrorCode;
use corral_wire::records::Stat;

/// To read the texts of a reconfig and to compare each server with all others.
pub(super) const RECONFIG_COST: u64 = 2_000_000;

/// The list and its version; `None` for a server that is alone.
pub fn servers(view: &View) -> Option<(Servers, u64)> {
    Servers::parse(str::from_utf8(view.get(CONFIG_PATH)?.data()?).ok()?)
}

/// Returns the list of servers after the leader's configuration is applied to it. `None` when the list does not change.
///
/// The configuration counts as long as clients cannot change the list; its version is 0 then, and at most the leader's
/// configuration makes it another. Once they can, what is there counts.
pub fn configured(view: &View, lines: &str, features: u32, zxid: Zxid) -> Option<(Servers, u64)> {
    let (wanted, _) = Servers::parse(lines)?;
    let changeable = features & features::RECONFIG != 0;
    let first = if changeable { Zxid::of(zxid.epoch(), 0).0 } else { 0 };
    match servers(view) {
        None => Some((wanted, first)),
        Some((present, 0)) => (changeable || wanted != present).then_some((wanted, first)),
        Some(_) => None,
    }
}

/// The list becomes this one. As in ZooKeeper its version is the znode's mzxid, and the znode's own version is -1.
pub(super) fn put(view: &View, servers: &Servers, version: u64, zxid: Zxid, time: i64) -> (Changes, Data, Stat) {
    let mut draft = Draft::single(view, zxid);
    let at = draft.hashed_alone(Text::from(CONFIG_PATH));
    let data = Data::from(servers.text(version).as_bytes());
    let node = draft.node(&at.path, at.hash).expect("it is there from the beginning and cannot be deleted");
    let mut next = Znode { stat: node.stat(), acl: node.to_acl(), data: Some(data.clone()) };
    (next.stat.version, next.stat.mzxid, next.stat.mtime) = (-1, Zxid(version), time);
    let stat = next.wire_stat();
    draft.set_data(at, Arc::new(next));
    (draft.into_changes(), data, stat)
}

/// A change of the list that the membership is in the middle of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    /// The list after the change.
    pub servers: Servers,
    /// The connection that requested it.
    pub origin: Option<Origin>,
}

impl Begun {
    /// For a snapshot: a batch of the command that began it.
    pub fn encode(&self) -> Vec<u8> {
        let kind = CommandKind::ReconfigBegins(Text::from(self.servers.lines()));
        let commands = Vec::from([Command::own(self.origin, kind)]);
        Batch { time: WallMillis(0), first_zxid: 0, features: 0, identities: Vec::new(), commands }.encode()
    }

    /// Reads what [`Begun::encode`] wrote; `None` for anything else.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut commands = Batch::decode(bytes).ok()?.commands;
        let Command { origin, kind, .. } = commands.pop().filter(|_| commands.is_empty())?;
        let CommandKind::ReconfigBegins(lines) = kind else { return None };
        let (servers, _) = Servers::parse(&lines)?;
        Some(Self { servers, origin })
    }
}

/// The membership change that is under way, and how often the membership has changed.
#[derive(Debug, Default)]
pub(super) struct ReconfigState {
    /// Snapshots keep it beside the tree.
    begun: Option<Box<Begun>>,
    changes: u64,
}

impl ReconfigState {
    /// In the middle of a change, or of none.
    pub(super) fn of(begun: Option<Begun>) -> Self {
        Self { begun: begun.map(Box::new), changes: 0 }
    }

    pub(super) fn begun(&self) -> Option<&Begun> {
        self.begun.as_deref()
    }

    /// How often the membership has changed since the machine was made.
    pub(super) const fn changes(&self) -> u64 {
        self.changes
    }

    /// Evaluates a client's change of the list. If the members and their votes do not change, it is done at once.
    pub(super) fn request(&self, caller: &Caller<'_>, view: &View, request: &Reconfig) -> (Changes, Outcome) {
        match next_servers(caller, view, request, self.begun.is_some()) {
            Ok((present, _, next)) if present.roles().eq(next.roles()) => {
                let (changes, data, stat) = put(view, &next, caller.zxid.0, caller.zxid, caller.context.time);
                (changes, Outcome::Configured(Box::new((data, stat))))
            }
            Ok((_, version, next)) => (Changes::new(), Outcome::Underway(Box::new((next, version)))),
            Err(code) => (Changes::new(), Outcome::refused(code)),
        }
    }

    /// A request made these changes.
    pub(super) fn count(&mut self, changes: &Changes) {
        self.changes += u64::from(!changes.is_empty());
    }

    /// Evaluates a command of the leader about the list, or about the change that it carries out.
    pub(super) fn carry_out(
        &mut self,
        view: &View,
        context: &BatchContext,
        applied: &mut AppliedTxn,
        kind: &CommandKind,
    ) {
        let asked = applied.origin.take();
        self.changes += 1;
        match kind {
            CommandKind::Configured(lines) => {
                let next = configured(view, lines, context.features, applied.zxid);
                let put = |(servers, version)| put(view, &servers, version, applied.zxid, context.time).0;
                applied.changes = next.map(put).unwrap_or_default();
            }
            CommandKind::ReconfigBegins(lines) => {
                let servers = Servers::parse(lines);
                self.begun = servers.map(|(servers, _)| Box::new(Begun { servers, origin: asked }));
            }
            CommandKind::ReconfigEnds => {
                let Some(begun) = self.begun.take() else { return };
                let zxid = applied.zxid;
                let (changes, data, stat) = put(view, &begun.servers, zxid.0, zxid, context.time);
                (applied.changes, applied.origin) = (changes, begun.origin);
                applied.outcome = Outcome::Later(Box::new(Outcome::Configured(Box::new((data, stat)))));
            }
            CommandKind::ReconfigFails(code) => {
                self.begun.take_if(|begun| begun.origin == asked);
                applied.origin = asked;
                applied.outcome = Outcome::Later(Box::new(Outcome::refused(*code)));
            }
            _ => unreachable!("another command"),
        }
    }
}

/// The list that a client asks for.
///
/// # Errors
/// The first of the checks that fails.
fn next_servers(
    caller: &Caller<'_>,
    view: &View,
    request: &Reconfig,
    in_progress: bool,
) -> Result<(Servers, u64, Servers), ErrorCode> {
    if !caller.has(features::RECONFIG) {
        return Err(ErrorCode::ReconfigDisabled);
    }
    caller.check_session()?;
    let (present, version) =
        servers(view).filter(|_| caller.has(features::ENSEMBLE)).ok_or(ErrorCode::Unimplemented)?;
    if in_progress || caller.has(features::RECONFIGURING) {
        return Err(ErrorCode::ReconfigInProgress);
    }
    if request.from != -1 && request.from != Zxid(version).wire() {
        return Err(ErrorCode::BadVersion);
    }
    if caller.has(features::DELETIONS_BOUNDED) {
        caller.spend(RECONFIG_COST)?;
        if request.is_too_long() {
            return Err(ErrorCode::BadArguments);
        }
    }
    let next = request.apply(&present, if caller.has(features::ONE_VOTER) { 1 } else { 2 })?;
    let node = view.get(CONFIG_PATH).ok_or(ErrorCode::NoNode)?;
    caller.allow(&node, acl::WRITE)?;
    Ok((present, version, next))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{World, create, refused, set};
    use super::*;
    use crate::apply::outcome::Outcome;
    use crate::ids::ServerId;
    use crate::ops;
    use crate::ops::{OpResult, WriteOp};
    use crate::tree::acl::AclSpec;
    use alloc::format;

    const LINES: &str = "server.1=a:1:2:participant;0.0.0.0:3\nserver.2=b:1:2:participant\n";

    fn request(joining: &str, leaving: &str, from: i64) -> Reconfig {
        let text = |text: &str| (!text.is_empty()).then(|| Text::from(text));
        Reconfig { joining: text(joining), leaving: text(leaving), members: None, from }
    }

    fn world(features: u32) -> World {
        let mut world = World::new(features | features::ENSEMBLE);
        world.command(CommandKind::Configured(Text::from(LINES)), None);
        world
    }

    fn ask(world: &mut World, request: Reconfig) -> Result<Stat, ErrorCode> {
        let origin = world.origin();
        let txn = world.command(CommandKind::Reconfig(Box::new(request)), origin);
        match txn.outcome {
            Outcome::Configured(list) => {
                assert_eq!(core::str::from_utf8(&list.0).ok(), Some(&*world.text(CONFIG_PATH)));
                assert_eq!(list.1.mzxid, txn.zxid.wire());
                Ok(list.1)
            }
            Outcome::Op(result) => Err(refused(&result).expect("it has no other result")),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_first_leader_puts_the_list_there() {
        for (features, version) in [(0, 0), (features::RECONFIG, 1 << 32)] {
            let mut world = world(features);
            assert_eq!(world.text(CONFIG_PATH), format!("{LINES}version={version:x}"));
            let stat = world.machine.view().get(CONFIG_PATH).expect("always there").wire_stat();
            assert_eq!((stat.version, stat.aversion, stat.mzxid, stat.mtime), (-1, -1, version, 1000));
            assert_eq!((stat.czxid, stat.pzxid, stat.ctime), (0, 0, 0));
            // It may be configured anew while no client may change it.
            world.time = 2000;
            for lines in [LINES.replace("server.2=b", "server.3=c"), "nonsense".into()] {
                world.command(CommandKind::Configured(Text::from(lines)), None);
            }
            let line = if features == 0 { "server.3=c" } else { "server.2=b" };
            assert!(world.text(CONFIG_PATH).contains(&format!("\n{line}:1:2:participant\nversion=")));
            world.features = features::RECONFIG | features::ENSEMBLE;
            world.command(CommandKind::Configured(Text::from(LINES)), None);
            assert_eq!(world.text(CONFIG_PATH), format!("{LINES}version=100000000"));
        }
    }

    #[test]
    fn checks_in_their_order() {
        let mut world = World::new(0);
        let any = || request("", "", -1);
        assert_eq!(ask(&mut world, any()), Err(ErrorCode::ReconfigDisabled));
        world.features = features::RECONFIG;
        world.command(CommandKind::Configured(Text::from(LINES)), None);
        assert_eq!(
            ask(&mut world, request("x", "", 5)),
            Err(ErrorCode::Unimplemented),
            "alone, whatever is written there"
        );
        world.features |= features::ENSEMBLE;
        assert_eq!(ask(&mut world, request("x", "", 5)), Err(ErrorCode::BadVersion));
        assert_eq!(ask(&mut world, request("x", "", 1 << 32)), Err(ErrorCode::BadArguments));
        assert_eq!(ask(&mut world, request("", "1", -1)), Err(ErrorCode::BadArguments), "too few voters");
        assert_eq!(ask(&mut world, request("", "x", -1)), Err(ErrorCode::MarshallingError));
        assert_eq!(ask(&mut world, any()), Err(ErrorCode::NoAuth));
        world.features |= features::ONE_VOTER;
        assert_eq!(ask(&mut world, request("", "1", -1)), Err(ErrorCode::NoAuth));
        let stranger = world.command(CommandKind::Reconfig(Box::default()), None).outcome;
        assert_eq!(stranger, Outcome::refused(ErrorCode::SessionMoved));
    }

    #[test]
    fn addresses_change_at_once() {
        let mut world = world(features::RECONFIG | features::SKIP_ACL);
        let before = ask(&mut world, request("", "", -1)).expect("nothing is asked for");
        let text = LINES.replace("b:1:2:participant", "b:1:5:participant;h:9");
        let stat = ask(&mut world, request("server.2=b:1:5;h:9", "", before.mzxid)).expect("an address changes");
        assert_eq!((stat.version, stat.mzxid), (-1, before.mzxid + 1));
        assert_eq!(world.text(CONFIG_PATH), format!("{text}version={:x}", stat.mzxid));
        assert_eq!(ask(&mut world, request("", "", before.mzxid)), Err(ErrorCode::BadVersion));
        world.command(CommandKind::Configured(Text::from(LINES)), None);
        assert_eq!(world.text(CONFIG_PATH), format!("{text}version={:x}", stat.mzxid), "clients' word counts");
    }

    #[test]
    fn who_belongs_to_it_changes_in_two_steps() {
        let mut world = world(features::RECONFIG | features::SKIP_ACL);
        let joining = || Box::new(request("server.3=c:1:2;3", "1", -1));
        let asker = world.origin();
        let Outcome::Underway(next) = world.command(CommandKind::Reconfig(joining()), asker).outcome else {
            panic!("it needs the membership to change");
        };
        let (next, version) = *next;
        assert_eq!(version, servers(world.machine.view()).expect("there is a list").1);
        assert_eq!(next.lines(), "server.2=b:1:2:participant\nserver.3=c:1:2:participant;0.0.0.0:3\n");
        let before = world.text(CONFIG_PATH);
        let begins = || CommandKind::ReconfigBegins(Text::from(next.lines()));
        let zxid = world.machine.view().zxid();
        let begun = world.command(begins(), asker);
        assert_eq!((begun.zxid, begun.origin, begun.changes.len()), (zxid, None, 0), "nothing is to be seen yet");
        assert_eq!(ask(&mut world, *joining()), Err(ErrorCode::ReconfigInProgress));
        world.features |= features::RECONFIGURING;
        let nothing = || request("", "", -1);
        assert_eq!(ask(&mut world, nothing()), Err(ErrorCode::ReconfigInProgress), "before it is begun, too");
        assert_eq!(world.text(CONFIG_PATH), before);
        let other = Some(Origin { server: ServerId(9), ..asker.expect("it has one") });
        let failed = world.command(CommandKind::ReconfigFails(ErrorCode::NewConfigNoQuorum), other);
        assert_eq!(failed.origin, other);
        let ended = world.command(CommandKind::ReconfigEnds, None);
        assert_eq!((ended.origin, ended.changes.len()), (asker, 1));
        let Outcome::Later(answer) = ended.outcome else { panic!("it is the end of something") };
        let Outcome::Configured(list) = *answer else { panic!("it went well") };
        assert_eq!(core::str::from_utf8(&list.0).ok(), Some(&*world.text(CONFIG_PATH)));
        assert_eq!(world.text(CONFIG_PATH), next.text(ended.zxid.0));
        let again = world.command(CommandKind::ReconfigEnds, None);
        assert_eq!((again.origin, again.changes.len()), (None, 0), "there is nothing to end");
    }

    #[test]
    fn what_does_not_come_about_leaves_no_trace() {
        let mut world = world(features::RECONFIG | features::SKIP_ACL);
        let (asker, before) = (world.origin(), world.text(CONFIG_PATH));
        world.command(CommandKind::ReconfigBegins(Text::from("server.7=g:1:2:participant\n")), asker);
        let failed = world.command(CommandKind::ReconfigFails(ErrorCode::NewConfigNoQuorum), asker);
        assert_eq!(failed.origin, asker);
        assert_eq!(failed.outcome, Outcome::Later(Box::new(Outcome::refused(ErrorCode::NewConfigNoQuorum))));
        assert!(world.machine.begun().is_none());
        assert_eq!(world.text(CONFIG_PATH), before);
        assert!(ask(&mut world, request("", "", -1)).is_ok());
    }

    #[test]
    fn no_other_command_writes_there() {
        let mut alone = World::new(features::SKIP_ACL);
        assert_eq!(refused(&alone.op(set(CONFIG_PATH, "x", -1))), None, "a server that is alone has no list");
        let mut world = world(features::SKIP_ACL);
        assert_eq!(refused(&world.op(set(CONFIG_PATH, "x", -1))), Some(ErrorCode::BadArguments));
        let acl = WriteOp::SetAcl(ops::SetAcl { path: Text::from(CONFIG_PATH), acl: AclSpec::Open, version: -1 });
        assert!(matches!(world.op(acl), OpResult::Stat(stat) if stat.aversion == 0));
        world.features = features::RECONFIG | features::ENSEMBLE;
        assert!(ask(&mut world, request("", "", -1)).is_ok(), "whoever may write there may change the list");
        assert_eq!(refused(&world.op(create("/a", ""))), None);
    }
}
