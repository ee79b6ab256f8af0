//! A record as a line: as ZooKeeper writes it, or as JSON.

use std::fmt::Write as _;

use corral_core::ids::{SessionId, WallMillis};
use corral_core::shard::audit::{AuditResult, Record};
use time::UtcDateTime;

use crate::config::value::AuditFormat;

/// Lines of text, each with its end.
pub(super) struct Lines {
    format: AuditFormat,
    text: Vec<u8>,
    /// Of the server's process.
    user: String,
    /// The time of the last line, and its text.
    time: (WallMillis, String),
}

impl Lines {
    pub(super) fn new(format: AuditFormat) -> Lines {
        let uid = nix::unistd::geteuid();
        let user = nix::unistd::User::from_uid(uid).ok().flatten().map_or_else(|| uid.to_string(), |user| user.name);
        Lines::of(format, user)
    }

    fn of(format: AuditFormat, user: String) -> Lines {
        Lines { format, text: Vec::new(), user, time: (WallMillis(-1), String::new()) }
    }

    pub(super) fn text(&mut self) -> &mut Vec<u8> {
        &mut self.text
    }

    /// Adds the line of a record of this time.
    pub(super) fn add(&mut self, at: WallMillis, record: &Record) {
        let user = match record.identities {
            Some(_) => record.users().filter(|user| !user.trim().is_empty()).collect::<Vec<_>>().join(","),
            None => self.user.clone(),
        };
        let session = (record.session != SessionId(0)).then(|| record.session.to_string());
        let fields = [
            ("session", session.as_deref()),
            ("user", Some(&*user)),
            ("ip", record.address()),
            ("operation", Some(record.operation.name())),
            ("znode", record.path.as_deref()),
            ("znode_type", record.mode.map(|mode| mode.name())),
            ("acl", record.acl.as_deref()),
            ("result", Some(record.result.name())),
        ];
        let fields = fields.into_iter().filter_map(|(key, value)| Some((key, value?)));
        if self.time.0 != at {
            let (before_hour, before_ms) = if self.format == AuditFormat::Json { ('T', '.') } else { (' ', ',') };
            self.time = (at, Time(at, before_hour, before_ms).to_string());
        }
        let (text, time) = (&mut self.text, &self.time.1);
        let put =
            |text: &mut Vec<u8>, parts: &[&str]| parts.iter().for_each(|part| text.extend_from_slice(part.as_bytes()));
        match self.format {
            AuditFormat::ZooKeeper => {
                let level = if record.result == AuditResult::Failure { "ERROR" } else { "INFO" };
                put(text, &[time, " ", level, " audit.Slf4jAuditLogger: "]);
                for (place, (key, value)) in fields.enumerate() {
                    put(text, &[if place == 0 { "" } else { "\t" }, key, "="]);
                    // Nothing in a value ends the line or the field.
                    value.split(char::is_control).for_each(|plain| put(text, &[plain]));
                }
                put(text, &["\n"]);
            }
            AuditFormat::Json => {
                put(text, &["{\"time\":\"", time, "Z\""]);
                for (key, value) in fields {
                    put(text, &[",\"", key, "\":"]);
                    serde_json::to_writer(&mut *text, value).expect("text becomes JSON, and a Vec takes it");
                }
                put(text, &["}\n"]);
            }
        }
    }
}

/// A time in UTC, with the letter before the hour and the one before the milliseconds.
struct Time(WallMillis, char, char);

impl std::fmt::Display for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Time(WallMillis(ms), before_hour, before_ms) = *self;
        let at = UtcDateTime::from_unix_timestamp(ms.div_euclid(1000)).unwrap_or(UtcDateTime::UNIX_EPOCH);
        let (date, (hour, minute, second)) = (at.date(), at.as_hms());
        write!(f, "{:04}-{:02}-{:02}", date.year(), u8::from(date.month()), date.day())?;
        f.write_char(before_hour)?;
        write!(f, "{hour:02}:{minute:02}:{second:02}{before_ms}{:03}", ms.rem_euclid(1000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use corral_core::shard::audit::Operation;
    use corral_core::shared::Text;
    use corral_core::tree::acl::identity;
    use corral_wire::consts::CreateMode;

    fn line(format: AuditFormat, record: &Record) -> String {
        let mut lines = Lines::of(format, "zk".to_owned());
        lines.add(WallMillis(1_795_708_711_175), record);
        String::from_utf8(lines.text).expect("it is text")
    }

    fn record() -> Record {
        let ids = [
            ("ip", "10.0.0.7"),
            ("super", ""),
            ("digest", "kim:7gmSk="),
            ("x509", "CN=a\tresult=success\n,O=\u{1b}[2J"),
        ];
        Record {
            session: SessionId(0x0100_000a_0837_0000),
            identities: Some(Arc::new(ids.iter().map(|(scheme, id)| identity(scheme, id)).collect())),
            operation: Operation::Create,
            path: Some(Text::from("/a \"b\"")),
            mode: Some(CreateMode::EphemeralSequential),
            acl: None,
            result: AuditResult::Failure,
        }
    }

    #[test]
    fn a_line_of_zookeeper() {
        let expect = "2026-11-26 15:58:31,175 ERROR audit.Slf4jAuditLogger: session=0x100000a08370000\t\
                      user=10.0.0.7,kim,CN=aresult=success,O=[2J\tip=10.0.0.7\toperation=create\tznode=/a \"b\"\t\
                      znode_type=ephemeral_sequential\tresult=failure\n";
        assert_eq!(line(AuditFormat::ZooKeeper, &record()), expect);
        let stop = Record {
            session: SessionId(0),
            identities: None,
            operation: Operation::ServerStop,
            path: None,
            mode: None,
            acl: None,
            result: AuditResult::Invoked,
        };
        let expect =
            "2026-11-26 15:58:31,175 INFO audit.Slf4jAuditLogger: user=zk\toperation=serverStop\tresult=invoked\n";
        assert_eq!(line(AuditFormat::ZooKeeper, &stop), expect);
    }

    #[test]
    fn a_line_of_json() {
        let expect = r#"{"time":"2026-11-26T15:58:31.175Z","session":"0x100000a08370000","user":"10.0.0.7,kim,CN=a\tresult=success\n,O=\u001b[2J","ip":"10.0.0.7","operation":"create","znode":"/a \"b\"","znode_type":"ephemeral_sequential","result":"failure"}"#;
        assert_eq!(line(AuditFormat::Json, &record()).trim_end(), expect);
    }
}
