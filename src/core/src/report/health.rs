//! Checks of a server's health, for probes.

use super::{Gathered, Mode};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// A condition of health.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub name: &'static str,
    /// The reason and the remedy, if the condition does not hold.
    pub fault: Option<String>,
    /// Without it the server accepts no sessions or no writes.
    pub is_for_readiness: bool,
}

/// All checks, if this was gathered for [`FourLetter::Mntr`](corral_wire::fourletter::FourLetter::Mntr).
pub fn checks(gathered: &Gathered) -> Vec<Check> {
    let facts = &gathered.facts;
    let check = |name, is_for_readiness, fault: Option<String>| Check { name, fault, is_for_readiness };
    let knows_leader = !matches!(facts.mode, Mode::Looking | Mode::ReadOnly);
    let expired_s = facts.certificate_expires.map_or(-1, |at| gathered.moment.wall.0.div_euclid(1000) - at);
    let fault = |is_fault: bool, sentence: &str| is_fault.then(|| String::from(sentence));
    Vec::from([
        check("leader", true, fault(!knows_leader, "no server leads, as far as this one knows; start the others")),
        check("serving", true, facts.obstacle.map(|obstacle| String::from(obstacle.sentence()))),
        check("disk-space", true, fault(facts.stalled, "the log or a snapshot has no space; free space")),
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
        assert_eq!(failed(ServerFacts { mode: Mode::Looking, ..well() }), ["leader"]);
        assert_eq!(failed(ServerFacts { obstacle: Some(Obstacle::NoData), ..well() }), ["serving"]);
        assert_eq!(failed(ServerFacts { stalled: true, ..well() }), ["disk-space"]);
        assert_eq!(
            failed(ServerFacts { scrub: ScrubFacts { heals: true, ..ScrubFacts::default() }, ..well() }),
            ["data"]
        );
        assert_eq!(failed(ServerFacts { certificate_expires: Some(1_800_000_000), ..well() }), ["certificates"]);
    }
}
