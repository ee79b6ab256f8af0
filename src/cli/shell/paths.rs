//! Checks of paths and ACLs before a request, with the sentences of ZooKeeper's client.

use corral_client::{Acl, Error, ErrorCode};
use corral_wire::consts::perms;

use crate::cli::client::exit_code;
use crate::exit::{ExitCode, Fault};

/// The fault of a command that is not understood.
pub(super) fn usage(sentence: &str) -> Fault {
    Fault::new(ExitCode::Usage, sentence)
}

/// As `PathUtils.validatePath`.
///
/// # Errors
/// With its sentence.
pub(super) fn check(path: &str) -> Result<(), Fault> {
    let reason = match path.chars().next() {
        None => "Path length must be > 0".to_owned(),
        Some('/') if path.len() > 1 && path.ends_with('/') => "Path must not end with / character".to_owned(),
        Some('/') => match wrong_at(path) {
            Some(reason) => format!("Invalid path string \"{path}\" caused by {reason}"),
            None => return Ok(()),
        },
        Some(_) => "Path must start with / character".to_owned(),
    };
    Err(Fault::new(ExitCode::Usage, reason))
}

fn wrong_at(path: &str) -> Option<String> {
    let mut position = 0;
    for (count, name) in path.split('/').enumerate() {
        // The first name is the nothing before the first slash.
        if count > 0 {
            let end = position + name.encode_utf16().count();
            match name {
                "" if path.len() > 1 => return Some(format!("empty node name specified @{position}")),
                "." | ".." => return Some(format!("relative paths not allowed @{}", end - 1)),
                _ => {}
            }
            for (at, unit) in (position..).zip(name.encode_utf16()) {
                match unit {
                    0 => return Some(format!("null character not allowed @{at}")),
                    0x01..=0x1f | 0x7f..=0x9f | 0xd800..=0xf8ff | 0xfff0.. => {
                        return Some(format!("invalid character @{at}"));
                    }
                    _ => {}
                }
            }
        }
        position += name.encode_utf16().count() + 1;
    }
    None
}

/// An ACL such as `world:anyone:r,auth::cdrwa`, and complaints about parts that are left out. As `AclParser`.
pub(super) fn acl(text: &str) -> (Vec<Acl>, Vec<String>) {
    let (mut acl, mut complaints) = (Vec::new(), Vec::new());
    for part in text.trim_end_matches(',').split(',').filter(|_| text.is_empty() || text.contains(|one| one != ',')) {
        let parts = part.split_once(':').and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once(':')?)));
        let Some((scheme, (id, letters))) = parts else {
            complaints.push(format!("{part} does not have the form scheme:id:perm"));
            continue;
        };
        let mut all = 0;
        for letter in letters.chars() {
            all |= match letter {
                'r' => perms::READ,
                'w' => perms::WRITE,
                'c' => perms::CREATE,
                'd' => perms::DELETE,
                'a' => perms::ADMIN,
                _ => {
                    complaints.push(format!("Unknown perm type: {letter}"));
                    0
                }
            };
        }
        acl.push(Acl::new(all, scheme, id));
    }
    (acl, complaints)
}

/// The sentence of `CliWrapperException`, and the exit code.
pub(super) fn refused(error: &Error, path: &str) -> Fault {
    let of_path = if path.is_empty() { String::new() } else { format!(" for {path}") };
    let sentence = match error.code {
        ErrorCode::NoNode => format!("Node does not exist: {path}"),
        ErrorCode::NoChildrenForEphemerals => format!("Ephemerals cannot have children: {path}"),
        ErrorCode::NodeExists => format!("Node already exists: {path}"),
        ErrorCode::NotEmpty => format!("Node not empty: {path}"),
        ErrorCode::NotReadOnly => format!("Not a read-only call: {path}"),
        ErrorCode::InvalidAcl => format!("Acl is not valid : {path}"),
        ErrorCode::NoAuth => format!("Insufficient permission : {path}"),
        ErrorCode::BadArguments => format!("Arguments are not valid : {path}"),
        ErrorCode::BadVersion => format!("version No is not valid : {path}"),
        ErrorCode::QuotaExceeded => format!("Quota has exceeded : {path}"),
        ErrorCode::ReconfigInProgress => {
            "Another reconfiguration is in progress -- concurrent reconfigs not supported (yet)".to_owned()
        }
        ErrorCode::NewConfigNoQuorum => {
            // In one line, as ZooKeeper prints it.
            concat!(
                "No quorum of new config is connected and up-to-date with the leader of last committed config",
                " - try invoking reconfiguration after new servers are connected and synced"
            )
            .to_owned()
        }
        code => {
            let reason = if error.reason.is_empty() { String::new() } else { format!(" ({})", error.reason) };
            format!("KeeperErrorCode = {}{of_path}{reason}", java_name(code))
        }
    };
    Fault::new(exit_code(error.code), sentence)
}

/// As `KeeperException.getCodeMessage`.
fn java_name(code: ErrorCode) -> String {
    match code {
        ErrorCode::SystemError => "SystemError",
        ErrorCode::ConnectionLoss => "ConnectionLoss",
        ErrorCode::MarshallingError => "MarshallingError",
        ErrorCode::Unimplemented => "Unimplemented",
        ErrorCode::OperationTimeout => "OperationTimeout",
        ErrorCode::AuthFailed => "AuthFailed",
        ErrorCode::SessionExpired | ErrorCode::Closing => "Session expired",
        ErrorCode::SessionMoved => "Session moved",
        ErrorCode::EphemeralOnLocalSession => "Ephemeral node on local session",
        ErrorCode::NoWatcher => "No such watcher",
        ErrorCode::ReconfigDisabled => "Reconfig is disabled",
        ErrorCode::SessionClosedRequireSaslAuth => "Session closed because client failed to authenticate",
        ErrorCode::ThrottledOp => "Op throttled due to high load",
        ErrorCode::InvalidAcl => "InvalidACL",
        code => return format!("Unknown error {code}"),
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_refused_with_javas_sentences() {
        let reason = |path: &str| check(path).expect_err("no path").sentence;
        for good in ["/", "/a", "/a/b.c", "/...", "/..a"] {
            assert!(check(good).is_ok(), "{good}");
        }
        assert_eq!(reason(""), "Path length must be > 0");
        assert_eq!(reason("a"), "Path must start with / character");
        assert_eq!(reason("/a/"), "Path must not end with / character");
        assert_eq!(reason("/a//b"), "Invalid path string \"/a//b\" caused by empty node name specified @3");
        assert_eq!(reason("/a/./b"), "Invalid path string \"/a/./b\" caused by relative paths not allowed @3");
        assert_eq!(reason("/a/.."), "Invalid path string \"/a/..\" caused by relative paths not allowed @4");
        assert_eq!(reason("/a\u{1}"), "Invalid path string \"/a\u{1}\" caused by invalid character @2");
    }

    #[test]
    fn acls_are_read_as_by_zookeepers_shell() {
        let (found, complaints) = acl("world:anyone:rw,ip:::1:r,x,digest:u:h=:az");
        let expected = [Acl::new(3, "world", "anyone"), Acl::new(1, "ip", "::1"), Acl::new(16, "digest", "u:h=")];
        assert_eq!(found, expected);
        assert_eq!(complaints, ["x does not have the form scheme:id:perm", "Unknown perm type: z"]);
    }
}
