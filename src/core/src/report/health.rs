//! Checks of a server's health, for probes.

use super::facts::Mode;
use super::gathered::Gathered;
use super::scarcity::{Scarcity, SpaceFacts};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// A condition of health.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Name of the condition, such as `has-leader`.
    pub name: &'static str,
    /// The reason and the remedy, if the condition does not hold.
    pub fault: Option<String>,
    /// Without it the server accepts no sessions or no writes.
    pub is_for_readiness: bool,
}

/// A server that lags by more log entries answers reads from an old state.
const LAG_ENTRIES_MAX: u64 = 10_000;
/// Largest difference to the leader's clock. TTL nodes and the times of znodes go by the leader's.
const CLOCK_MS_MAX: i64 = 5000;
/// A stall or a slow sync is a fault for so long.
const RECENT_S: i64 = 60;

/// All checks, if this was gathered for [`FourLetter::Mntr`](corral_wire::fourletter::FourLetter::Mntr).
pub fn checks(gathered: &Gathered) -> Vec<Check> {
    let facts = &gathered.facts;
    let now_s = gathered.moment.wall.0.div_euclid(1000);
    let check = |name, is_for_readiness, fault: Option<String>| Check { name, fault, is_for_readiness };
    let knows_leader = !matches!(facts.mode, Mode::Looking | Mode::ReadOnly);
    let expired_s = facts.certificate_expires.map_or(-1, |at| now_s - at);
    let fault = |is_fault: bool, sentence: &str| is_fault.then(|| String::from(sentence));
    let is_recent = |at_s: u64| at_s > 0 && now_s - at_s.cast_signed() < RECENT_S;
    Vec::from([
        check("has-leader", true, (!knows_leader).then(|| String::from(no_leader(facts.stalled)))),
        check("serving", true, facts.obstacle.map(|obstacle| String::from(obstacle.sentence()))),
        check("disk-space", true, fault(facts.stalled, "the log or a snapshot has no space; free space")),
        check("disk-space-left", false, facts.spaces.iter().find(|space| space.is_low()).map(left)),
        check("growth", false, facts.scarcity.map(|scarcity| growth(facts.growth_refusing, scarcity))),
        check(
            "applied-lag",
            false,
            (facts.lag > LAG_ENTRIES_MAX)
                .then(|| format!("{} committed log entries are not applied; look at CPU and load", facts.lag)),
        ),
        check(
            "sync-latency",
            false,
            fault(
                is_recent(facts.last_slow_sync_s),
                "a sync of the log took longer than log.sync_warning_ms in the last minute; look at the disk",
            ),
        ),
        check(
            "executor-stalls",
            false,
            fault(
                is_recent(facts.last_freeze_s),
                "an executor stalled in the last minute; look at the log, and give the server more CPU",
            ),
        ),
        check(
            "clock",
            false,
            (facts.clock_ahead_ms.abs() > CLOCK_MS_MAX).then(|| {
                format!("the clock is {} ms ahead of the leader's; synchronise the clocks", facts.clock_ahead_ms)
            }),
        ),
        check(
            "data",
            false,
            fault(facts.scrub.heals, "the state is damaged or differs, and is being replaced; check disk and memory"),
        ),
        check(
            "certificates",
            false,
            (expired_s >= 0).then(|| format!("a certificate expired {} days ago; renew it", expired_s / 86_400)),
        ),
    ])
}

fn no_leader(is_full: bool) -> &'static str {
    if is_full {
        "this server follows no leader while its disk is full; free space"
    } else {
        "no server leads, as far as this one knows; start the others, or find in the log why they are not reached"
    }
}

fn growth(refuses: bool, scarcity: Scarcity) -> String {
    let verb = if refuses { "refuses" } else { "would refuse, if it led and no other server took over," };
    format!("this server {verb} writes that add data: {}", scarcity.sentence())
}

fn left(space: &SpaceFacts) -> String {
    let (free, needed) = (space.free_bytes >> 20, space.needed_bytes >> 20);
    format!(
        "{} has {free} MiB left, and the next log segments and snapshots need {needed} MiB; free space",
        space.directory
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Millis, WallMillis};
    use crate::report::{Moment, Obstacle, Report, ScrubFacts, ServerFacts};

    #[test]
    fn a_check_fails_for_its_own_reason() {
        let failed = |facts: ServerFacts| {
            let moment = Moment { now: Millis(0), wall: WallMillis(1_800_000_000_000) };
            let checks = checks(&Gathered { report: Report::default(), facts, moment });
            checks.into_iter().filter(|check| check.fault.is_some()).map(|check| check.name).collect::<Vec<_>>()
        };
        let well = || ServerFacts { certificate_expires: Some(1_800_000_001), ..ServerFacts::default() };
        assert!(failed(well()).is_empty());
        assert_eq!(failed(ServerFacts { mode: Mode::Looking, ..well() }), ["has-leader"]);
        assert_eq!(failed(ServerFacts { obstacle: Some(Obstacle::NoData), ..well() }), ["serving"]);
        assert_eq!(failed(ServerFacts { stalled: true, ..well() }), ["disk-space"]);
        let space = SpaceFacts { needed_bytes: 2 << 30, free_bytes: 1 << 30, ..SpaceFacts::default() };
        assert_eq!(failed(ServerFacts { spaces: alloc::vec![space], ..well() }), ["disk-space-left"]);
        assert_eq!(failed(ServerFacts { scarcity: Some(Scarcity::Memory), ..well() }), ["growth"]);
        assert_eq!(failed(ServerFacts { clock_ahead_ms: -5001, ..well() }), ["clock"]);
        assert_eq!(failed(ServerFacts { lag: LAG_ENTRIES_MAX + 1, ..well() }), ["applied-lag"]);
        let now_s = 1_800_000_000;
        assert_eq!(failed(ServerFacts { last_slow_sync_s: now_s - 59, ..well() }), ["sync-latency"]);
        assert_eq!(failed(ServerFacts { last_freeze_s: now_s, ..well() }), ["executor-stalls"]);
        assert!(failed(ServerFacts { last_slow_sync_s: now_s - 60, last_freeze_s: 1, ..well() }).is_empty());
        assert_eq!(
            failed(ServerFacts { scrub: ScrubFacts { heals: true, ..ScrubFacts::default() }, ..well() }),
            ["data"]
        );
        assert_eq!(failed(ServerFacts { certificate_expires: Some(1_800_000_000), ..well() }), ["certificates"]);
    }
}
