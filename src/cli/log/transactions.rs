//! The operations in the payload of a log entry, one a line: zxid, time, session, operation, path.
//!
//! The log holds requests, not results: a request that was refused is printed too. Data, passwords and identities are secrets of the
//! clients: only sizes are printed.

use std::fmt;

use corral_core::command::{AclSpec, Batch, BatchError, CommandKind, CreateOp, WriteOp};
use corral_core::shared::{Data, Text};
use corral_wire::consts::CreateMode;
use time::UtcDateTime;

/// The lines of an entry whose payload matches its checksum.
///
/// # Errors
/// When the payload is no batch, or one of another format.
pub(super) fn lines(payload: &[u8]) -> Result<Vec<String>, BatchError> {
    let batch = Batch::decode(payload)?;
    let time = Time(batch.time.0);
    let (mut zxid, mut lines) = (batch.first_zxid, Vec::new());
    for command in &batch.commands {
        let place = if command.takes_zxid() { format!("0x{zxid:x}") } else { "no zxid".to_owned() };
        zxid = zxid.saturating_add(u64::from(command.takes_zxid()));
        let begin = format!("    {place} {time} session 0x{:x}", command.session.0);
        lines.push(format!("{begin} {}", Kind(&command.kind)));
        if let CommandKind::Multi(ops) = &command.kind {
            let count = ops.len();
            lines.extend(ops.iter().zip(1..).map(|(op, at)| format!("{begin} {at}/{count}: {}", Operation(op))));
        }
    }
    Ok(lines)
}

/// A path as one line shows it.
struct Path<'a>(&'a str);

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { f.write_str("\"\"") } else { self.0.escape_debug().fmt(f) }
    }
}

/// Milliseconds since 1970 as RFC 3339 has them, in UTC.
struct Time(i64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok(at) = UtcDateTime::from_unix_timestamp(self.0.div_euclid(1000)) else {
            return write!(f, "{} ms", self.0);
        };
        let (date, (hour, minute, second)) = (at.date(), at.as_hms());
        let (year, month, day) = (date.year(), u8::from(date.month()), date.day());
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", self.0.rem_euclid(1000))
    }
}

/// A command in one line.
struct Kind<'a>(&'a CommandKind);

impl fmt::Display for Kind<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            CommandKind::Op(op) => Operation(op).fmt(f),
            CommandKind::Multi(ops) => write!(f, "multi of {}", ops.len()),
            CommandKind::CreateSession { timeout_ms, .. } => write!(f, "createSession, timeout {timeout_ms} ms"),
            CommandKind::AttachSession { session, timeout_ms, .. } => {
                write!(f, "attach session 0x{:x}, timeout {timeout_ms} ms", session.0)
            }
            CommandKind::CloseSession => f.write_str("closeSession"),
            CommandKind::Reconfig(request) => {
                let text = |name, text: &Option<Text>| match text {
                    Some(text) => format!(", {name} {}", Path(text)),
                    None => String::new(),
                };
                let parts = [
                    text("joining", &request.joining),
                    text("leaving", &request.leaving),
                    text("members", &request.members),
                ];
                write!(f, "reconfig{}, from version {}", parts.concat(), request.from)
            }
            CommandKind::Configured(servers) => write!(f, "configured servers: {}", Path(servers)),
            CommandKind::ReconfigBegins(servers) => write!(f, "reconfig begins: {}", Path(servers)),
            CommandKind::ReconfigEnds => f.write_str("reconfig ends"),
            CommandKind::ReconfigFails(code) => write!(f, "reconfig fails: {code:?}"),
            CommandKind::SystemNodes(nodes) => {
                f.write_str("system znodes:")?;
                nodes.iter().try_for_each(|(path, _)| write!(f, " {}", Path(path)))
            }
            CommandKind::Reap { path, mzxid } => write!(f, "delete {} as unused if mzxid 0x{mzxid:x}", Path(path)),
            CommandKind::QuotaCounted(counted) => {
                write!(f, "quota counted {}: {} znodes, {} B", Path(&counted.path), counted.znodes, counted.bytes)
            }
            CommandKind::Undecodable => f.write_str("multi that does not decode"),
            CommandKind::Refused(code) => write!(f, "refused by the leader: {code:?}"),
        }
    }
}

/// One operation, also of a multi.
struct Operation<'a>(&'a WriteOp);

impl fmt::Display for Operation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = |data: &Option<Data>| match data {
            Some(data) => format!("{} B", data.len()),
            None => "no data".to_owned(),
        };
        let name = match self.0 {
            WriteOp::Create { op: CreateOp::IfNotExists, .. } => "createIfNotExists",
            WriteOp::Create { .. } => "create",
            WriteOp::Delete { .. } => "delete",
            WriteOp::SetData { .. } => "setData",
            WriteOp::SetAcl { .. } => "setACL",
            WriteOp::Check { .. } => "check",
            WriteOp::CheckNotExists { .. } => "checkNotExists",
            WriteOp::CheckStat { .. } => "checkStat",
            WriteOp::TryRemove { .. } => "tryRemove",
            WriteOp::RemoveRecursive { .. } => "removeRecursive",
        };
        write!(f, "{name} {}", Path(self.0.path()))?;
        match self.0 {
            WriteOp::Create { data, acl, flags, ttl_ms, .. } => {
                write!(f, ", {}", bytes(data))?;
                match CreateMode::from_flag(*flags) {
                    Some(CreateMode::Persistent) => {}
                    Some(mode) => write!(f, ", {mode:?}")?,
                    None => write!(f, ", flags {flags}")?,
                }
                if *ttl_ms >= 0 {
                    write!(f, ", TTL {ttl_ms} ms")?;
                }
                Acl(acl).fmt(f)
            }
            WriteOp::SetData { data, version, .. } => write!(f, ", {}{}", bytes(data), Version(*version)),
            WriteOp::SetAcl { acl, version, .. } => write!(f, "{}{}", Acl(acl), Version(*version)),
            WriteOp::Delete { version, .. }
            | WriteOp::Check { version, .. }
            | WriteOp::CheckNotExists { version, .. }
            | WriteOp::CheckStat { version, .. }
            | WriteOp::TryRemove { version, .. } => Version(*version).fmt(f),
            WriteOp::RemoveRecursive { limit, .. } => write!(f, ", at most {limit}"),
        }
    }
}

/// The version that the znode must have, if one is named.
struct Version(i32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == -1 { Ok(()) } else { write!(f, ", version {}", self.0) }
    }
}

/// An ACL other than the open one.
struct Acl<'a>(&'a AclSpec);

impl fmt::Display for Acl<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            AclSpec::Open => Ok(()),
            AclSpec::Missing => f.write_str(", no ACL"),
            AclSpec::List(entries) | AclSpec::BrokenOff(entries) => write!(f, ", ACL entries: {}", entries.len()),
            AclSpec::Malformed => f.write_str(", malformed ACL"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corral_core::command::{Command, Identity};
    use corral_core::ids::{SessionId, WallMillis};
    use std::sync::Arc;

    fn command(kind: CommandKind) -> Command {
        Command { origin: None, session: SessionId(0xAB), identities: 0, kind }
    }

    fn lines_of(commands: Vec<Command>) -> Vec<String> {
        let identities = vec![Arc::new(vec![Identity { scheme: "digest".into(), id: "secret:hash".into() }])];
        let time = WallMillis(1_795_266_358_007);
        let batch = Batch { time, first_zxid: 0x5_0000_000F, features: 0, identities, commands };
        lines(&batch.encode()).expect("it is a batch")
    }

    #[test]
    fn each_operation_has_a_line_and_secrets_have_none() {
        let create = WriteOp::Create {
            op: CreateOp::Create2,
            path: "/a\nb".into(),
            data: Some(b"secret".as_slice().into()),
            acl: AclSpec::Open,
            flags: CreateMode::EphemeralSequential.flag(),
            ttl_ms: -1,
        };
        let delete = WriteOp::Delete { path: "/c".into(), version: 3 };
        let attach = CommandKind::AttachSession { session: SessionId(0xCD), timeout_ms: 4000, password: [7; 16] };
        let lines = lines_of(vec![
            command(attach),
            command(CommandKind::Multi(vec![create, delete])),
            command(CommandKind::Op(WriteOp::SetData { path: "/c".into(), data: None, version: -1 })),
        ]);
        let begin = "2026-11-21T13:05:58.007Z session 0xab";
        let expect = [
            format!("    no zxid {begin} attach session 0xcd, timeout 4000 ms"),
            format!("    0x50000000f {begin} multi of 2"),
            format!("    0x50000000f {begin} 1/2: create /a\\nb, 6 B, EphemeralSequential"),
            format!("    0x50000000f {begin} 2/2: delete /c, version 3"),
            format!("    0x500000010 {begin} setData /c, no data"),
        ];
        assert_eq!(lines, expect);
    }

    #[test]
    fn what_is_no_batch_is_an_error() {
        assert_eq!(lines(&[7; 100]), Err(BatchError::Format));
        assert_eq!(lines(&[]), Err(BatchError::Bytes));
    }
}
