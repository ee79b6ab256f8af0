//! A data directory: the lines of the page and the findings, from facts.
//!
//! Pure.

use std::time::Duration;

use corral_core::report::SpaceFacts;
use corral_storage::SnapshotName;
use indicatif::{HumanBytes, HumanCount};
use serde_json::{Value, json};

use super::pages;
use super::report::{Fact, Finding};
use super::sync::Latency;

/// A larger p99 of the syncs is a finding.
const SYNC_P99_MAX: Duration = Duration::from_millis(10);
/// Mode bits of users that are not the owner.
const OTHERS_MODE: u32 = 0o077;

/// Facts of a directory with data.
#[derive(Default)]
pub(super) struct Directory {
    pub(super) path: String,
    /// The first line of the file `FORMAT`.
    pub(super) format: String,
    /// The server and cluster that the data are of.
    pub(super) owner: Option<String>,
    /// The process of the server that runs on it.
    pub(super) running: Option<u32>,
    /// An import or restore did not finish.
    pub(super) is_unfinished: bool,
    /// It waits for the snapshot of another server.
    pub(super) is_healing: bool,
    /// Why its state is not trusted.
    pub(super) distrusted: Option<String>,
    /// It holds files that were put aside because they were damaged.
    pub(super) has_damaged: bool,
    /// The newest first, with their bytes.
    pub(super) snapshots: Vec<(SnapshotName, u64)>,
    /// Why the newest one cannot be used.
    pub(super) snapshot_fault: Option<String>,
    pub(super) log: Log,
    pub(super) files: Files,
    pub(super) space: Option<SpaceFacts>,
    pub(super) sync: Option<Result<Latency, String>>,
    /// Reasons why parts could not be read.
    pub(super) unread: Vec<String>,
}

#[derive(Default)]
pub(super) struct Log {
    pub(super) segments: u64,
    pub(super) records: u64,
    pub(super) bytes: u64,
    /// Index and term of the last record.
    pub(super) end: Option<(u64, u64)>,
    pub(super) damage: Option<String>,
}

/// The directory and its files in the file system.
#[derive(Default)]
pub(super) struct Files {
    pub(super) system: String,
    /// Why data are not safe on such a file system.
    pub(super) risk: Option<&'static str>,
    pub(super) mode: u32,
    pub(super) owner: u32,
    /// A file of another user, and that user.
    pub(super) foreign: Option<(String, u32)>,
}

/// The lines of the page.
pub(super) fn facts(directory: &Directory) -> Vec<Fact> {
    let Directory { running, snapshots, log, files, .. } = directory;
    let mut facts = vec![
        Fact::text("format", directory.format.as_str()),
        Fact::new("data of", directory.owner.as_deref().unwrap_or("no server yet"), directory.owner.clone()),
        Fact::new("running", running.map_or_else(|| "no".to_owned(), |pid| format!("process {pid}")), *running),
    ];
    let bytes: u64 = snapshots.iter().map(|(_, bytes)| bytes).sum();
    let newest = snapshots.first().map(|(name, _)| format!("0x{:x}", name.zxid));
    let shown = match &newest {
        Some(zxid) => format!("{}, {}, the newest at zxid {zxid}", snapshots.len(), HumanBytes(bytes)),
        None => "none".to_owned(),
    };
    facts.push(Fact::new("snapshots", shown, json!({"count": snapshots.len(), "bytes": bytes, "newest_zxid": newest})));
    let (segments, records) = (HumanCount(log.segments), HumanCount(log.records));
    facts.push(Fact::new(
        "log",
        format!("{records} records in {segments} segments of {}", HumanBytes(log.bytes)),
        json!({"segments": log.segments, "records": log.records, "bytes": log.bytes}),
    ));
    facts.extend(log.end.map(|(index, term)| {
        Fact::new("log end", format!("entry {index} of term {term}"), json!({"index": index, "term": term}))
    }));
    facts.push(Fact::text("file system", files.system.as_str()));
    facts.extend(directory.space.as_ref().map(|space| {
        let shown =
            format!("{}, of which {} are needed next", HumanBytes(space.free_bytes), HumanBytes(space.needed_bytes));
        Fact::new("free space", shown, json!({"free_bytes": space.free_bytes, "needed_bytes": space.needed_bytes}))
    }));
    let shown = format!("{:o}, user {}", files.mode, files.owner);
    facts.push(Fact::new("mode", shown, json!({"mode": format!("{:o}", files.mode), "user": files.owner})));
    facts.extend(directory.sync.as_ref().map(sync_fact));
    facts
}

fn sync_fact(sync: &Result<Latency, String>) -> Fact {
    match sync {
        Ok(Latency { p50, p99, max }) => {
            let ms = |time: &Duration| time.as_secs_f64() * 1000.0;
            let (p50, p99, max) = (ms(p50), ms(p99), ms(max));
            let shown = format!("p50 {p50:.2} ms, p99 {p99:.2} ms, longest {max:.2} ms, measured now");
            Fact::new("sync", shown, json!({"p50_ms": p50, "p99_ms": p99, "max_ms": max}))
        }
        Err(reason) => Fact::new("sync", format!("not measured: {reason}"), Value::Null),
    }
}

/// Its findings.
pub(super) fn findings(directory: &Directory) -> Vec<Finding> {
    let Directory { path, files, .. } = directory;
    let mut findings = state(directory);
    findings.extend(directory.snapshot_fault.iter().map(|fault| {
        Finding::critical(
            "snapshot",
            format!("the newest snapshot cannot be used: {fault}"),
            format!("corral verify {path}"),
        )
    }));
    findings.extend(directory.log.damage.iter().map(|damage| Finding::critical("log", damage, pages::DISK_FAULTS)));
    findings.extend(directory.unread.iter().map(|reason| {
        Finding::critical(
            "access",
            format!("a part cannot be read: {reason}"),
            "run this command as the user of the server",
        )
    }));
    if let Some(space) = directory.space.as_ref().filter(|space| space.is_low()) {
        let (free, needed) = (HumanBytes(space.free_bytes), HumanBytes(space.needed_bytes));
        let sentence = format!("{free} are free, and the next log segments and snapshots need {needed}");
        // At half of it the server reserves the rest.
        let is_reserved = space.free_bytes < space.needed_bytes / 2;
        let finding = if is_reserved { Finding::critical } else { Finding::warning };
        findings.push(finding("space", &sentence, pages::DISK_FULL));
    }
    findings.extend(
        files.risk.map(|risk| Finding::warning("file system", format!("{}: {risk}", files.system), pages::DISK_FAULTS)),
    );
    if files.mode & OTHERS_MODE != 0 {
        let sentence = format!("users other than the owner have access to the directory: its mode is {:o}", files.mode);
        findings.push(Finding::warning("mode", sentence, format!("chmod 700 {path}")));
    }
    if let Some((file, user)) = &files.foreign {
        let owner = files.owner;
        let sentence =
            format!("{file} is of user {user}, and the directory of user {owner}: the server may not open it");
        findings.push(Finding::warning("mode", sentence, format!("chown -R {owner} {path}")));
    }
    if let Some(Ok(Latency { p99, .. })) = directory.sync.as_ref()
        && *p99 > SYNC_P99_MAX
    {
        let sentence = format!(
            "one sync in a hundred takes more than {} ms, and each write waits for one on a majority of servers",
            SYNC_P99_MAX.as_millis()
        );
        findings.push(Finding::warning("sync", sentence, pages::DISK_SLOW));
    }
    findings
}

/// Marks that a server leaves.
fn state(directory: &Directory) -> Vec<Finding> {
    let mut findings = Vec::new();
    if directory.is_unfinished {
        let sentence = "an import or restore into it did not finish, and no server starts with it";
        findings.push(Finding::critical("unfinished", sentence, "corral restore or corral import, as before"));
    }
    if directory.is_healing {
        let sentence = "damaged data were put aside, and its server waits for the snapshot of another one";
        findings.push(Finding::warning("healing", sentence, "corral doctor with the admin addresses of all servers"));
    }
    findings.extend(
        directory.distrusted.iter().map(|reason| {
            Finding::critical("distrusted", format!("its state is not trusted: {reason}"), pages::DIGESTS)
        }),
    );
    if directory.has_damaged {
        let sentence = "damaged files were put aside here: check the disk, and then remove the directory damaged";
        findings.push(Finding::warning("damaged", sentence, pages::DISK_FAULTS));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::report::Severity::{Critical, Warning};
    use super::*;

    fn healthy() -> Directory {
        let ms = Duration::from_millis;
        Directory {
            path: "/d".to_owned(),
            owner: Some("server 1, cluster corral".to_owned()),
            files: Files { mode: 0o700, ..Files::default() },
            space: Some(SpaceFacts { free_bytes: 100, needed_bytes: 100, ..SpaceFacts::default() }),
            sync: Some(Ok(Latency { p50: ms(1), p99: ms(10), max: ms(99) })),
            ..Directory::default()
        }
    }

    #[test]
    fn each_fault_is_a_finding() {
        assert_eq!(findings(&healthy()), []);
        let check = |check: &str, severity, change: &dyn Fn(&mut Directory)| {
            let mut directory = healthy();
            change(&mut directory);
            let found: Vec<_> =
                findings(&directory).into_iter().map(|finding| (finding.check, finding.severity)).collect();
            assert_eq!(found, [(check.to_owned(), severity)]);
        };
        check("unfinished", Critical, &|of| of.is_unfinished = true);
        check("healing", Warning, &|of| of.is_healing = true);
        check("distrusted", Critical, &|of| of.distrusted = Some("another digest".to_owned()));
        check("damaged", Warning, &|of| of.has_damaged = true);
        check("snapshot", Critical, &|of| of.snapshot_fault = Some("cut off".to_owned()));
        check("log", Critical, &|of| of.log.damage = Some("the log is damaged".to_owned()));
        check("access", Critical, &|of| of.unread.push("no permission".to_owned()));
        let free = |bytes| move |of: &mut Directory| of.space.as_mut().expect("it is there").free_bytes = bytes;
        check("space", Warning, &free(99));
        check("space", Critical, &free(49));
        check("file system", Warning, &|of| of.files.risk = Some("it is in memory"));
        check("mode", Warning, &|of| of.files.mode = 0o750);
        check("mode", Warning, &|of| of.files.foreign = Some(("LOCK".to_owned(), 7)));
        check("sync", Warning, &|of| {
            of.sync.as_mut().expect("it is there").as_mut().expect("it was measured").p99 += Duration::from_nanos(1)
        });
    }
}
