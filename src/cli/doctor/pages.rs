//! Advice that names a page of the documentation.

pub(super) const NOT_SERVING: &str = "read docs/operate/monitor.md#why-a-server-does-not-serve";
pub(super) const STAGES: &str = "read docs/operate/monitor.md#find-the-stage-at-which-writes-wait";
pub(super) const DIGESTS: &str = "read docs/operate/monitor.md#digests-of-the-tree";
pub(super) const CLIENTS: &str = "read docs/operate/monitor.md#find-the-client-that-loads-the-server";
pub(super) const DISK_FAULTS: &str = "read docs/operate/disk-faults.md";
pub(super) const DISK_FULL: &str = "read docs/operate/disk-faults.md#the-disk-is-nearly-full";
pub(super) const DISK_SLOW: &str = "read docs/operate/disk-faults.md#the-disk-is-slow";
pub(super) const STALLS: &str = "read docs/operate/log-lines.md#stalled-executors";
pub(super) const CERTIFICATES: &str = "read docs/operate/rotate-certificates.md#rotate-certificates";
pub(super) const ENDED: &str = "read docs/operate/start-and-stop.md#a-server-has-ended";
pub(super) const READ_THE_LOG: &str = "read docs/operate/read-the-log.md";
pub(super) const MEMBERS: &str = "read docs/operate/three-servers.md#a-server-does-not-join";
pub(super) const UPGRADE: &str = "read docs/operate/upgrade.md";
pub(super) const LIMITS: &str = "read docs/operate/install.md#memory-locks-and-files";
pub(super) const LISTENS: &str = "read docs/operate/admin.md#where-it-listens";

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [&str; 15] = [
        NOT_SERVING,
        STAGES,
        DIGESTS,
        CLIENTS,
        DISK_FAULTS,
        DISK_FULL,
        DISK_SLOW,
        STALLS,
        CERTIFICATES,
        ENDED,
        READ_THE_LOG,
        MEMBERS,
        UPGRADE,
        LIMITS,
        LISTENS,
    ];

    #[test]
    fn pages_and_their_headings_are_there() {
        for place in ALL {
            let place = place.strip_prefix("read ").expect("it is advice");
            let (page, heading) = place.split_once('#').unwrap_or((place, ""));
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
            let text = std::fs::read_to_string(path).expect(place);
            let is_heading = |line: &str| {
                let words = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
                line.starts_with('#') && words.replace(['`', ',', '.'], "") == heading
            };
            assert!(heading.is_empty() || text.lines().any(is_heading), "{place}");
        }
    }
}
