//! The operations in the payload of a log entry: zxid, time, session, operation, path, and their details.
//!
//! The log holds requests, not results: a request that was refused is shown too. Data, passwords and identities are secrets of the
//! clients. Of data only the size is shown, and of an id in an ACL no hash.

use corral_core::ops;
use corral_core::ops::{CreateOp, WriteOp};
use std::fmt;

use corral_core::command::{Batch, BatchError, CommandKind};
use corral_core::shared::{Data, Text};
use corral_core::tree::acl::{AclEntry, AclSpec, redact};
use corral_wire::OpCode;
use corral_wire::consts::{CreateMode, VERSION_ANY};
use serde_json::{Map, Value, json};

use crate::cli::time::utc;

/// Letters of the permissions, from the lowest bit.
const PERMISSIONS: [char; 5] = ['r', 'w', 'c', 'd', 'a'];

/// One operation, also of a multi.
pub(super) struct Operation {
    /// Missing if the operation has no zxid.
    pub(super) zxid: Option<u64>,
    /// Milliseconds since 1970.
    pub(super) time_ms: i64,
    pub(super) session: i64,
    /// Its number in a multi, from 1, and the number of operations there.
    part: Option<(usize, usize)>,
    what: What,
}

/// Name, path and details.
struct What(&'static str, Option<Text>, Details);

type Details = Vec<(&'static str, Value)>;

/// The operations of an entry. Its payload matches its checksum.
///
/// # Errors
/// When the payload is no batch, or one of another format.
pub(super) fn operations(payload: &[u8]) -> Result<Vec<Operation>, BatchError> {
    let batch = Batch::decode(payload)?;
    let time_ms = batch.time.0;
    let mut found = Vec::new();
    for (zxid, command) in batch.with_zxids() {
        let mut add = |part, what| {
            found.push(Operation { zxid, time_ms, session: command.session.0, part, what });
        };
        add(None, command_of(&command.kind));
        let parts: Vec<What> = match &command.kind {
            CommandKind::Multi(ops) => ops.iter().map(write).collect(),
            CommandKind::SystemNodes(nodes) => {
                let part = |(path, data): &(Text, Data)| {
                    What("systemZnode", Some(path.clone()), vec![("bytes", json!(data.len()))])
                };
                nodes.iter().map(part).collect()
            }
            _ => Vec::new(),
        };
        let count = parts.len();
        parts.into_iter().zip(1..).for_each(|(what, at)| add(Some((at, count)), what));
    }
    Ok(found)
}

impl Operation {
    pub(super) fn path(&self) -> Option<&str> {
        self.what.1.as_deref()
    }

    /// One object of JSON Lines, of the log entry with this index.
    pub(super) fn json(&self, index: u64) -> Value {
        let What(name, path, details) = &self.what;
        let mut object = Map::from_iter([
            ("kind".to_owned(), json!("operation")),
            ("index".to_owned(), json!(index)),
            ("zxid".to_owned(), json!(self.zxid.map(hex))),
            ("time".to_owned(), json!(utc(self.time_ms))),
            ("session".to_owned(), json!(hex(self.session))),
            ("operation".to_owned(), json!(name)),
        ]);
        object.extend(path.as_ref().map(|path| ("path".to_owned(), json!(&**path))));
        if let Some((part, parts)) = self.part {
            object.extend([("part".to_owned(), json!(part)), ("parts".to_owned(), json!(parts))]);
        }
        object.extend(details.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
        object.into()
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let zxid = self.zxid.map_or_else(|| "no zxid".to_owned(), hex);
        write!(f, "    {zxid} {} session {} ", utc(self.time_ms), hex(self.session))?;
        if let Some((part, parts)) = self.part {
            write!(f, "{part}/{parts}: ")?;
        }
        let What(name, path, details) = &self.what;
        f.write_str(name)?;
        if let Some(path) = path {
            write!(f, " {}", Plain(path))?;
        }
        details.iter().try_for_each(|(key, value)| match value {
            Value::String(text) => write!(f, " {key}={}", Plain(text)),
            other => write!(f, " {key}={other}"),
        })
    }
}

/// Text as one line shows it.
struct Plain<'a>(&'a str);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { f.write_str("\"\"") } else { self.0.escape_debug().fmt(f) }
    }
}

/// A zxid or a session as text.
pub(super) fn hex(number: impl fmt::LowerHex) -> String {
    format!("0x{number:x}")
}

/// A command. The operations of a multi come behind it.
fn command_of(kind: &CommandKind) -> What {
    let plain = |name, details| What(name, None, details);
    match kind {
        CommandKind::Op(op) => write(op),
        CommandKind::Multi(ops) => plain(OpCode::Multi.name(), vec![("operations", json!(ops.len()))]),
        CommandKind::CreateSession { timeout_ms, .. } => {
            plain(OpCode::CreateSession.name(), vec![("timeout_ms", json!(timeout_ms))])
        }
        CommandKind::AttachSession { session, timeout_ms, .. } => {
            plain("attachSession", vec![("attached", json!(hex(session.0))), ("timeout_ms", json!(timeout_ms))])
        }
        CommandKind::CloseSession => plain(OpCode::CloseSession.name(), Vec::new()),
        CommandKind::Reconfig(request) => {
            let texts = [("joining", &request.joining), ("leaving", &request.leaving), ("members", &request.members)];
            let given = texts.into_iter().filter_map(|(key, text)| Some((key, json!(&**text.as_ref()?))));
            plain(OpCode::Reconfig.name(), given.chain([("from_version", json!(request.from))]).collect())
        }
        CommandKind::Configured(servers) => plain("configuredServers", vec![("servers", json!(&**servers))]),
        CommandKind::ReconfigBegins(servers) => plain("reconfigBegins", vec![("servers", json!(&**servers))]),
        CommandKind::ReconfigEnds => plain("reconfigEnds", Vec::new()),
        CommandKind::ReconfigFails(code) => plain("reconfigFails", vec![("error", json!(format!("{code:?}")))]),
        CommandKind::SystemNodes(nodes) => plain("systemZnodes", vec![("operations", json!(nodes.len()))]),
        CommandKind::Reap { path, mzxid } => {
            What(OpCode::DeleteContainer.name(), Some(path.clone()), vec![("mzxid", json!(hex(*mzxid)))])
        }
        CommandKind::QuotaCounted(counted) => {
            let details = vec![("znodes", json!(counted.znodes)), ("bytes", json!(counted.bytes))];
            What("quotaCounted", Some(counted.path.clone()), details)
        }
        CommandKind::Undecodable => plain(OpCode::Multi.name(), vec![("error", json!("it does not decode"))]),
        CommandKind::Refused(code) => plain("refusedByLeader", vec![("error", json!(format!("{code:?}")))]),
    }
}

fn write(op: &WriteOp) -> What {
    let (code, mut details): (OpCode, Details) = match op {
        WriteOp::Create(ops::Create { op, .. }) => (created_by(*op), Vec::new()),
        WriteOp::Delete(..) => (OpCode::Delete, Vec::new()),
        WriteOp::SetData(..) => (OpCode::SetData, Vec::new()),
        WriteOp::SetAcl(ops::SetAcl { acl, .. }) => (OpCode::SetAcl, vec![("acl", json!(acl_text(acl)))]),
        WriteOp::Check(..) => (OpCode::Check, Vec::new()),
        WriteOp::CheckNotExists(..) => (OpCode::CheckNotExists, Vec::new()),
        WriteOp::CheckStat(ops::CheckStat { stat, .. }) => (OpCode::CheckStat, vec![("stat", json!(stat))]),
        WriteOp::TryRemove(..) => (OpCode::TryRemove, Vec::new()),
        WriteOp::RemoveRecursive(ops::RemoveRecursive { limit, .. }) => {
            (OpCode::RemoveRecursive, vec![("limit", json!(limit))])
        }
    };
    match op {
        WriteOp::Create(ops::Create { data, acl, flags, ttl_ms, .. }) => {
            details.push(("bytes", json!(data.as_ref().map(|data| data.len()))));
            details.push(match CreateMode::from_flag(*flags) {
                Some(mode) => ("mode", json!(mode.name())),
                None => ("flags", json!(flags)),
            });
            if *ttl_ms >= 0 {
                details.push(("ttl_ms", json!(ttl_ms)));
            }
            if *acl != AclSpec::Open {
                details.push(("acl", json!(acl_text(acl))));
            }
        }
        WriteOp::SetData(ops::SetData { data, .. }) => {
            details.push(("bytes", json!(data.as_ref().map(|data| data.len()))))
        }
        _ => {}
    }
    match op {
        WriteOp::Delete(ops::Delete { version, .. })
        | WriteOp::SetData(ops::SetData { version, .. })
        | WriteOp::SetAcl(ops::SetAcl { version, .. })
        | WriteOp::Check(ops::Check { version, .. })
        | WriteOp::CheckNotExists(ops::CheckNotExists { version, .. })
        | WriteOp::CheckStat(ops::CheckStat { version, .. })
        | WriteOp::TryRemove(ops::TryRemove { version, .. })
            if *version != VERSION_ANY =>
        {
            details.push(("version", json!(version)));
        }
        _ => {}
    }
    What(code.name(), Some(op.path().clone()), details)
}

fn created_by(op: CreateOp) -> OpCode {
    match op {
        CreateOp::Create => OpCode::Create,
        CreateOp::Create2 => OpCode::Create2,
        CreateOp::Container => OpCode::CreateContainer,
        CreateOp::Ttl => OpCode::CreateTtl,
        CreateOp::IfNotExists => OpCode::CreateIfNotExists,
    }
}

/// Entries as `scheme:id:permissions`, separated by commas.
fn acl_text(acl: &AclSpec) -> String {
    match acl {
        AclSpec::Open => "world:anyone:rwcda".to_owned(),
        AclSpec::Missing => "none".to_owned(),
        AclSpec::Malformed => "malformed".to_owned(),
        AclSpec::List(entries) => entries_text(entries),
        AclSpec::BrokenOff(entries) => format!("{},malformed", entries_text(entries)),
    }
}

fn entries_text(entries: &[AclEntry]) -> String {
    let entry = |AclEntry { perms, scheme, id }: &AclEntry| {
        let (id, hidden) = redact(scheme, id);
        let granted = PERMISSIONS.iter().zip(0..).filter(|(_, bit)| perms >> bit & 1 == 1);
        format!("{}:{id}{hidden}:{}", &**scheme, granted.map(|(letter, _)| letter).collect::<String>())
    };
    entries.iter().map(entry).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use corral_core::command::Command;
    use corral_core::ids::{SessionId, WallMillis};
    use corral_core::ops;
    use corral_core::tree::acl::Identity;
    use std::sync::Arc;

    fn command(kind: CommandKind) -> Command {
        Command { origin: None, session: SessionId(0xAB), identities: 0, kind }
    }

    fn lines_of(commands: Vec<Command>) -> Vec<String> {
        let identities = vec![Arc::new(vec![Identity { scheme: "digest".into(), id: "secret:hash".into() }])];
        let time = WallMillis(1_795_266_358_007);
        let batch = Batch { time, first_zxid: 0x5_0000_000F, features: 0, identities, commands };
        operations(&batch.encode()).expect("it is a batch").iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_operation_has_a_line_and_secrets_have_none() {
        let create = WriteOp::Create(ops::Create {
            op: CreateOp::Create2,
            path: "/a\nb".into(),
            data: Some(b"secret".as_slice().into()),
            acl: AclSpec::List(vec![AclEntry { perms: 9, scheme: "digest".into(), id: "me:hash".into() }]),
            flags: CreateMode::EphemeralSequential.flag(),
            ttl_ms: -1,
        });
        let delete = WriteOp::Delete(ops::Delete { path: "/c".into(), version: 3 });
        let attach = CommandKind::AttachSession { session: SessionId(0xCD), timeout_ms: 4000, password: [7; 16] };
        let lines = lines_of(vec![
            command(attach),
            command(CommandKind::Multi(vec![create, delete])),
            command(CommandKind::Op(WriteOp::SetData(ops::SetData { path: "/c".into(), data: None, version: -1 }))),
        ]);
        let begin = "2026-11-21T13:05:58.007Z session 0xab";
        let expect = [
            format!("    no zxid {begin} attachSession attached=0xcd timeout_ms=4000"),
            format!("    0x50000000f {begin} multi operations=2"),
            format!("    0x50000000f {begin} 1/2: create2 /a\\nb bytes=6 mode=ephemeral_sequential acl=digest:me:x:rd"),
            format!("    0x50000000f {begin} 2/2: delete /c version=3"),
            format!("    0x500000010 {begin} setData /c bytes=null"),
        ];
        assert_eq!(lines, expect);
    }

    #[test]
    fn what_is_no_batch_is_an_error() {
        let error = |payload: &[u8]| operations(payload).map(drop);
        assert_eq!(error(&[7; 100]), Err(BatchError::Format));
        assert_eq!(error(&[]), Err(BatchError::Bytes));
    }
}
