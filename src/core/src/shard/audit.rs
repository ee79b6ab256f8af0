//! Records of the audit log: user, operation and result of each write (protocol chapter 26).
//!
//! A shard keeps a draft of each write in flight, and completes it by the write's outcome. How a record becomes a line is for the
//! driver.

use crate::apply::outcome::{AppliedTxn, Outcome, SessionChange};
use crate::command::CommandKind;
use crate::ids::SessionId;
use crate::ops::{OpResult, WriteOp};
use crate::shared::Text;
use crate::tree::acl::{self, AclEntry, AclSpec, Identity};
use crate::tree::change::Change;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use corral_wire::consts::CreateMode;

/// Memory of a record besides its texts, about.
const FIXED_BYTES: usize = 128;
/// Memory of an identity besides its texts, about.
const IDENTITY_BYTES: usize = 64;

/// The operation of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A znode was to be created, by any of the create operations.
    Create,
    /// A znode was to be deleted: delete, tryRemove or removeRecursive.
    Delete,
    /// The data of a znode were to be set.
    SetData,
    /// The ACL of a znode was to be set.
    SetAcl,
    /// A multi that failed. A multi that succeeded has a record for each change.
    Multi,
    /// A client asked for a membership change.
    Reconfig,
    /// The server deleted an ephemeral znode, because its session was closed or has expired.
    EphemeralDeleted,
    /// The server serves from now on, or could not start.
    ServerStart,
    /// The server stops.
    ServerStop,
}

impl Operation {
    /// The name in the log, ZooKeeper's.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Delete => "delete",
            Self::SetData => "setData",
            Self::SetAcl => "setAcl",
            Self::Multi => "multiOperation",
            Self::Reconfig => "reconfig",
            Self::EphemeralDeleted => "ephemeralZNodeDeletionOnSessionCloseOrExpire",
            Self::ServerStart => "serverStart",
            Self::ServerStop => "serverStop",
        }
    }
}

/// The result of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditResult {
    /// The write took effect.
    Success,
    /// The write changed nothing: it was answered with an error, or was never sent to the leader.
    Failure,
    /// The write was sent to the leader, and this server does not know its outcome.
    Invoked,
}

impl AuditResult {
    /// The name in the log, ZooKeeper's.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Invoked => "invoked",
        }
    }
}

/// One change, for one line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// 0: none.
    pub session: SessionId,
    /// Identities of the connection, with its address (scheme `ip`). `None`: the server acted by itself.
    pub identities: Option<Arc<Vec<Identity>>>,
    /// The operation that was asked for.
    pub operation: Operation,
    /// Path of the znode, with its sequence number if it was created. `None` for reconfig and for a multi that failed.
    pub path: Option<Text>,
    /// Of a create.
    pub mode: Option<CreateMode>,
    /// Of a setAcl: the entries as sent, without the hashes of digests.
    pub acl: Option<Text>,
    /// The outcome of the write, as far as this server knows it.
    pub result: AuditResult,
}

impl Record {
    /// The users in the log: the id of each identity, and of a digest the name before the colon. As in ZooKeeper, without the
    /// identity that makes a super user.
    pub fn users(&self) -> impl Iterator<Item = &str> {
        self.identities.iter().flat_map(|list| &**list).filter_map(|who| match &*who.scheme {
            "super" => None,
            _ => Some(acl::user_name(who)),
        })
    }

    /// The address of the client.
    pub fn address(&self) -> Option<&str> {
        self.identities.iter().flat_map(|list| &**list).find(|who| &*who.scheme == "ip").map(|who| &*who.id)
    }

    /// Bytes of memory that these take at most, about. Records of one write share their identities.
    pub fn bytes(records: &[Self]) -> usize {
        let text = |text: &Option<Text>| text.as_ref().map_or(0, |text| text.len());
        let identity = |one: &Identity| IDENTITY_BYTES + one.scheme.len() + one.id.len();
        let (mut bytes, mut before) = (0, None);
        for record in records {
            bytes += FIXED_BYTES + text(&record.path) + text(&record.acl);
            let identities = record.identities.as_ref().map(Arc::as_ptr);
            if identities != before {
                bytes += record.identities.iter().flat_map(|list| list.iter()).map(identity).sum::<usize>();
                before = identities;
            }
        }
        bytes
    }
}

/// One change that a write asks for.
#[derive(Debug)]
struct Step {
    operation: Operation,
    path: Text,
    mode: Option<CreateMode>,
    acl: Option<Text>,
}

impl Step {
    /// `None` for a check.
    fn of(op: &WriteOp) -> Option<Self> {
        let (operation, mode, acl) = match op {
            WriteOp::Create(create) => (Operation::Create, CreateMode::from_flag(create.flags), None),
            WriteOp::Delete(..) | WriteOp::TryRemove(..) | WriteOp::RemoveRecursive(..) => {
                (Operation::Delete, None, None)
            }
            WriteOp::SetData(..) => (Operation::SetData, None, None),
            WriteOp::SetAcl(set) => (Operation::SetAcl, None, acl_text(&set.acl)),
            WriteOp::Check(..) | WriteOp::CheckNotExists(..) | WriteOp::CheckStat(..) => return None,
        };
        Some(Self { operation, path: op.path().clone(), mode, acl })
    }
}

/// The entries with commas, each as `scheme:id:permissions`. The hash of a digest is left out, because passwords can be tried with it.
fn acl_text(acl: &AclSpec) -> Option<Text> {
    let list = match acl {
        AclSpec::Open => return Some(Text::from("world:anyone:cdrwa")),
        AclSpec::Missing | AclSpec::Malformed => return None,
        AclSpec::List(list) | AclSpec::BrokenOff(list) => list,
    };
    let mut text = String::new();
    for AclEntry { perms, scheme, id } in list {
        if !text.is_empty() {
            text.push(',');
        }
        // Also where a client takes the id for one of `auth`, or writes the scheme wrong.
        let has_hash = &**scheme == "auth" || scheme.eq_ignore_ascii_case("digest");
        let (id, hash) = acl::redact(if has_hash { "digest" } else { scheme }, id);
        for part in [scheme, ":", id, hash, ":"] {
            text.push_str(part);
        }
        let letters = [(acl::CREATE, 'c'), (acl::DELETE, 'd'), (acl::READ, 'r'), (acl::WRITE, 'w'), (acl::ADMIN, 'a')];
        text.extend(letters.iter().filter(|(bit, _)| perms & bit != 0).map(|(_, letter)| letter));
    }
    Some(Text::from(text))
}

/// The changes that a write asks for.
#[derive(Debug)]
enum Asked {
    One(Step),
    Multi(Vec<Option<Step>>),
    Reconfig,
}

/// The records of a write in flight, but for their result.
#[derive(Debug)]
pub(crate) struct Draft {
    session: SessionId,
    identities: Arc<Vec<Identity>>,
    asked: Asked,
}

impl Draft {
    /// `None` for a command that is not audited.
    pub(crate) fn of(session: SessionId, identities: &Arc<Vec<Identity>>, kind: &CommandKind) -> Option<Box<Self>> {
        let asked = match kind {
            CommandKind::Op(op) => Asked::One(Step::of(op)?),
            CommandKind::Multi(ops) => Asked::Multi(ops.iter().map(Step::of).collect()),
            CommandKind::Undecodable => Asked::Multi(Vec::new()),
            CommandKind::Reconfig(_) => Asked::Reconfig,
            _ => return None,
        };
        Some(Box::new(Self { session, identities: Arc::clone(identities), asked }))
    }

    /// The write came back with this outcome.
    pub(crate) fn complete(self, outcome: &Outcome, records: &mut Vec<Record>) {
        let is_error = |result: &OpResult| matches!(result, OpResult::Error(_));
        match (outcome, self.asked) {
            (Outcome::Multi(results), Asked::Multi(steps)) if !results.iter().any(is_error) => {
                let done = steps.into_iter().zip(results).filter_map(|(step, result)| Some((step?, result)));
                let (session, identities) = (self.session, self.identities);
                records.extend(done.map(|(step, result)| {
                    record(session, Arc::clone(&identities), at_last(step, result), AuditResult::Success)
                }));
            }
            (Outcome::Op(result), Asked::One(step)) if !is_error(result) => {
                records.push(record(self.session, self.identities, at_last(step, result), AuditResult::Success));
            }
            (Outcome::Configured(_), Asked::Reconfig) => {
                records.push(whole(self.session, self.identities, Asked::Reconfig, AuditResult::Success));
            }
            (_, asked) => records.push(whole(self.session, self.identities, asked, AuditResult::Failure)),
        }
    }

    /// The write does not come back.
    pub(crate) fn give_up(self, result: AuditResult, records: &mut Vec<Record>) {
        records.push(whole(self.session, self.identities, self.asked, result));
    }
}

/// With the path that a sequential create was given.
fn at_last(step: Step, result: &OpResult) -> Step {
    match result {
        OpResult::Created { path } | OpResult::CreatedStat { path, .. } => Step { path: path.clone(), ..step },
        _ => step,
    }
}

fn record(session: SessionId, identities: Arc<Vec<Identity>>, step: Step, result: AuditResult) -> Record {
    let Step { operation, path, mode, acl } = step;
    Record { session, identities: Some(identities), operation, path: Some(path), mode, acl, result }
}

/// One record for all that was asked for.
fn whole(session: SessionId, identities: Arc<Vec<Identity>>, asked: Asked, result: AuditResult) -> Record {
    let operation = match asked {
        Asked::One(step) => return record(session, identities, step, result),
        Asked::Multi(_) => Operation::Multi,
        Asked::Reconfig => Operation::Reconfig,
    };
    Record { session, identities: Some(identities), operation, path: None, mode: None, acl: None, result }
}

/// The ephemerals that went with a session, if the transaction ended one.
pub(crate) fn ephemerals_deleted(txn: &AppliedTxn) -> impl Iterator<Item = Record> {
    let ended = match txn.session {
        Some(SessionChange::Closed(session)) => Some(session),
        _ => None,
    };
    ended.into_iter().flat_map(|session| {
        txn.changes.iter().filter_map(move |change| match change {
            Change::Deleted { at } => Some(Record {
                session,
                identities: None,
                operation: Operation::EphemeralDeleted,
                path: Some(at.path.clone()),
                mode: None,
                acl: None,
                result: AuditResult::Success,
            }),
            _ => None,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn identities_count_once_for_each_write() {
        let long = "x".repeat(2000);
        let write = || {
            let who = Arc::new(vec![acl::identity("digest", &long)]);
            let asked = || Asked::Multi(Vec::new());
            [0, 1].map(|_| whole(SessionId(1), Arc::clone(&who), asked(), AuditResult::Success))
        };
        let bytes = Record::bytes(&[write(), write()].concat());
        assert!((4000..6000).contains(&bytes), "{bytes}");
    }

    #[test]
    fn acls_show_no_hash() {
        let entry = |perms, scheme: &str, id: &str| AclEntry { perms, scheme: Text::from(scheme), id: Text::from(id) };
        let list = vec![
            entry(31, "digest", "kim:7gmSk+x="),
            entry(1, "sasl", "bob"),
            entry(0, "ip", "10.0.0.0/8"),
            entry(6, "digest", "nohash"),
            entry(1, "auth", "kim:7gmSk+x="),
            entry(1, "Digest", "kim:7gmSk+x="),
        ];
        let expect = "digest:kim:x:cdrwa,sasl:bob:r,ip:10.0.0.0/8:,digest:nohash:cw,auth:kim:x:r,Digest:kim:x:r";
        let expect = Text::from(expect);
        assert_eq!(acl_text(&AclSpec::List(list)), Some(expect));
        assert_eq!(acl_text(&AclSpec::Open), Some(Text::from("world:anyone:cdrwa")));
        assert_eq!(acl_text(&AclSpec::Missing), None);
    }
}
