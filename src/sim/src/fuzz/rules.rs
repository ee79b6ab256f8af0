//! Targets: paths, ACLs and log entries, the first two against an independent reading of the rules.
//!
//! Paths and ACLs are judged by the model.

use corral_core::command::{Batch, Command, CommandKind};
use corral_core::ids::{SessionId, WallMillis};
use corral_core::ops;
use corral_core::ops::WriteOp;
use corral_core::path::{has_parent, is_valid, name, parent};
use corral_core::shared::{Data, Text};
use corral_core::tree::acl::{self, Acl, AclEntry, AclList, AclSpec, Schemes, fix_up};

use super::tally::Tally;
use super::{records, servers};
use crate::model::{allows, is_legal, is_within};
use crate::request::AclItem;
use crate::rng::Stream;
use crate::violation::Violation;
use crate::violation::require;

/// All that may be named.
const SCHEMES: Schemes = Schemes { sasl: true, x509: true };

const fn judged(good: bool) -> Tally {
    Tally { accepted: good as u64, refused: !good as u64, events: 0, closed: 0 }
}

pub(super) fn path(input: &[u8]) -> Result<Tally, Violation> {
    let Ok(text) = str::from_utf8(input) else { return Ok(judged(false)) };
    let good = is_valid(text);
    require(good == is_legal(text), "path", || format!("{text:?} is valid: {good}"))?;
    let (up, last) = (parent(text), name(text));
    if good && text != "/" {
        let joined = format!("{}/{last}", if up == "/" { "" } else { up });
        require(joined == text && is_valid(up) && !last.is_empty(), "path", || format!("{text:?}: {up:?}, {last:?}"))?;
        require(has_parent(text), "path", || format!("{text:?} has no parent"))?;
    }
    require(up.len() <= text.len().max(1) && !last.contains('/'), "path", || format!("{text:?}: {up:?}, {last:?}"))?;
    Ok(judged(good))
}

/// Lines: the client's identities, one a line as `scheme:id`; an empty line; the requested entries, `permissions
/// scheme:id` each.
pub(super) fn acl(input: &[u8]) -> Result<Tally, Violation> {
    let text = String::from_utf8_lossy(input);
    let mut lines = text.split('\n');
    let mut who = Vec::new();
    for line in lines.by_ref().take_while(|line| !line.is_empty()).take(16) {
        let (scheme, id) = line.split_once(':').unwrap_or((line, ""));
        let id = if scheme == "digest" { acl::digest_id(id.as_bytes(), acl::sha1) } else { id.to_owned() };
        who.push(acl::identity(scheme, &id));
    }
    let entries: Vec<AclEntry> = lines.map(entry).collect();
    let granted = AclList::from(entries.clone()).grants(acl::READ, &who);
    let items: Vec<AclItem> = entries.iter().map(|one| AclItem::new(one.perms, &one.scheme, &one.id)).collect();
    let identities: Vec<_> = who.iter().map(|who| (who.scheme.to_string(), who.id.to_string())).collect();
    let is_unknown = |item: &AclItem, (scheme, id): &(String, String)| {
        item.scheme == "ip" && scheme == "ip" && is_within(id, &item.id).is_none()
    };
    let is_odd = items.iter().any(|item| identities.iter().any(|who| is_unknown(item, who)));
    let due = allows(&items, acl::READ, &identities);
    require(granted == due || is_odd && granted, "acl", || format!("{granted} for {who:?} {entries:?}"))?;
    let fixed = fix_up(&AclSpec::List(entries.clone()), &who, SCHEMES, true);
    if let Ok(Acl::List(list)) = &fixed {
        let bounded = !list.is_empty() && list.len() <= acl::ENTRIES_MAX;
        require(bounded, "acl", || format!("{} entries come out of {}", list.len(), entries.len()))?;
        // A fixed-up list holds no more wishes, so to fix it up again changes at most the number of doubles.
        let again = fix_up(&AclSpec::List(list.to_vec()), &[], SCHEMES, true);
        let same = matches!(&again, Ok(Acl::List(again)) if again.len() <= list.len());
        // These are taken over from an identity as they are.
        let foreign = list.iter().any(|entry| matches!(&*entry.scheme, "sasl" | "x509"));
        require(same || foreign, "acl", || format!("{list:?} becomes {again:?}"))?;
        for entry in list.iter() {
            let (kept, mark) = acl::redact(&entry.scheme, &entry.id);
            let hidden = &*entry.scheme != "digest" || !kept.contains(':') && !mark.is_empty();
            require(hidden || !entry.id.contains(':'), "acl", || format!("{entry:?} is shown as {kept}{mark}"))?;
        }
    }
    for identity in &who {
        let shown = acl::user_name(identity);
        require(identity.id.starts_with(shown), "acl", || format!("{identity:?} is called {shown}"))?;
    }
    Ok(judged(fixed.is_ok()))
}

fn entry(line: &str) -> AclEntry {
    let (perms, who) = line.split_once(' ').unwrap_or(("1", line));
    let (scheme, id) = who.split_once(':').unwrap_or((who, ""));
    AclEntry { perms: perms.parse().unwrap_or(1), scheme: Text::from(scheme), id: Text::from(id) }
}

/// The input is the payload of a log entry: read, and if it is one, written as the same bytes.
pub(super) fn batch(input: &[u8]) -> Result<Tally, Violation> {
    let Ok(batch) = Batch::decode(input) else { return Ok(judged(false)) };
    require(batch.encode() == input, "batch", || format!("{batch:?} is not written as it was read"))?;
    Ok(judged(true))
}

pub(super) fn generate_path(stream: &mut Stream, out: &mut Vec<u8>) {
    out.extend(records::some_path(stream));
    for _ in 0..stream.below(3) {
        out.extend(records::some_path(stream));
    }
    const PARTS: [&str; 12] =
        ["/", ".", "..", "/.", "/../", "\u{7f}", "\u{9f}", "\u{a0}", "\u{d7ff}", "\u{e000}", "\u{f900}", "\u{fff0}"];
    for _ in 0..stream.below(4) {
        out.extend_from_slice(stream.pick(&PARTS).as_bytes());
    }
}

pub(super) fn generate_acl(stream: &mut Stream, out: &mut Vec<u8>) {
    const WHO: [&str; 8] =
        ["ip:127.0.0.1", "ip:::1", "ip:10.1.2.3", "digest:a:b", "digest:x", "super:", "sasl:me", "x509:CN=me"];
    const ADDRESSES: [&str; 6] = ["127.0.0.1", "10.1.2.3", "::1", "fe80::1:2", "0.0.0.0", "::ffff:10.1.2.3"];
    const IDS: [&str; 9] = [
        "digest:a:hash",
        "digest:a:b:c",
        "digest:a:",
        "auth:",
        "digest:",
        "sasl:me",
        "sasl:me/host@REALM",
        "x509:CN=a,O=\"b\"",
        "x509:1.2.3=#04",
    ];
    for _ in 0..stream.below(4) {
        out.extend_from_slice(stream.pick(&WHO).as_bytes());
        out.push(b'\n');
    }
    for _ in 0..stream.below(8) {
        let perms = stream.pick(&[31, 1, 2, 16, 0, -1, i32::MIN]);
        let line = match stream.below(4) {
            0 => "world:anyone".to_owned(),
            1 => stream.pick(&IDS).to_owned(),
            _ => {
                let bits = stream.pick(&["", "/0", "/8", "/32", "/33", "/127", "/128", "/129", "/-1", "/", "/+8"]);
                format!("ip:{}{bits}", stream.pick(&ADDRESSES))
            }
        };
        out.extend_from_slice(format!("\n{perms} {line}").as_bytes());
    }
}

pub(super) fn generate_batch(stream: &mut Stream, out: &mut Vec<u8>) {
    let text = |stream: &mut Stream| Text::from(&*String::from_utf8_lossy(&records::some_path(stream)));
    let mut commands = Vec::new();
    for _ in 0..=stream.below(3) {
        let op = match stream.below(3) {
            0 => WriteOp::Delete(ops::Delete { path: text(stream), version: -1 }),
            1 => {
                WriteOp::SetData(ops::SetData { path: text(stream), data: Some(Data::from(&b"data"[..])), version: 0 })
            }
            _ => WriteOp::SetAcl(ops::SetAcl {
                path: text(stream),
                acl: AclSpec::List(vec![entry("3 digest:a:b")]),
                version: 1,
            }),
        };
        let many = stream.per_mille(300);
        let kind = match stream.below(8) {
            0 => CommandKind::Reconfig(Box::new(servers::request(stream))),
            1 => CommandKind::Configured(Text::from("server.1=a:1:2\nserver.2=b:1:2:observer\n")),
            _ if many => CommandKind::Multi(vec![op.clone(), op]),
            _ => CommandKind::Op(op),
        };
        commands.push(Command { origin: None, session: SessionId(1), identities: 0, kind });
    }
    let identities = vec![std::sync::Arc::new(vec![acl::identity("ip", "::1")])];
    let batch = Batch { time: WallMillis(5), first_zxid: 1 << 32, features: 1, identities, commands };
    out.extend_from_slice(&batch.encode());
}
