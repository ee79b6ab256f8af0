//! Which executor runs where: the per-core table, and the plan derived from it or from the number of CPUs.
//!
//! Pure arithmetic at start-up. It does not look at the machine (the caller passes the CPUs it may use) and starts
//! nothing. An executor is one thread with one io_uring reactor; the log sync and control threads are plain threads.

use crate::config::core_rows::{CORES_MAX, CoreRow};
use crate::config::keys::Config;
use crate::config::value::{ConsensusPlacement, CoreRole, TransportChoice};
use crate::exit::{ExitCode, Fault};

/// Hosts of up to this many CPUs run the consensus actor with a shard: a hop between executors costs more than the
/// work.
const SHARED_CONSENSUS_CPUS_MAX: usize = 4;

/// One executor to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExecutorPlan {
    /// CPU to pin to; `None` = the kernel places it.
    pub(crate) cpu: Option<u32>,
    /// Index of the shard it runs, from 0 without gaps; `None` = no shard.
    pub(crate) shard: Option<u16>,
    /// Whether it runs the consensus actor.
    pub(crate) consensus: bool,
    /// Entries of its io_uring.
    pub(crate) ring_depth: u32,
    /// Longest work between two looks at the sockets.
    pub(crate) turn_budget_us: u32,
    /// How long it looks for more before it sleeps.
    pub(crate) poll_us: u32,
    /// Connections of its shard; `None` = only the limit of the whole server.
    pub(crate) connections_max: Option<u32>,
}

impl ExecutorPlan {
    /// A thread name of at most 15 bytes, the kernel's limit: `shard-0`, `consensus`, `shard-0+cons`.
    pub(crate) fn name(&self) -> String {
        match (self.shard, self.consensus) {
            (Some(index), true) => format!("shard-{index}+cons"),
            (Some(index), false) => format!("shard-{index}"),
            (None, _) => "consensus".to_owned(),
        }
    }
}

/// All executors and thread placements. Holds exactly one consensus actor and at least one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CorePlan {
    /// The executors: shards in order of their index, the consensus actor's own last.
    pub(crate) executors: Vec<ExecutorPlan>,
    /// CPU of the log sync thread; `None` = the kernel places it.
    pub(crate) log_cpu: Option<u32>,
    /// CPU of the control thread; `None` = the kernel places it.
    pub(crate) control_cpu: Option<u32>,
    /// Warnings for the operator.
    pub(crate) warnings: Vec<String>,
}

impl CorePlan {
    /// The executors for a host on which this process may use the given CPUs.
    ///
    /// With a per-core table the plan is that table. Without one it is derived: `runtime.shards` shards, or if that is
    /// 0 as many as suit the CPUs. Each is pinned to a CPU of its own. If there are more executors than CPUs none is
    /// pinned.
    ///
    /// # Errors
    /// A `Config` fault for a CPU that is not there, or a table that contradicts `runtime.shards`. Also for a table
    /// without a shard or with other than one consensus actor.
    pub(crate) fn of(config: &Config, online_cpus: &[u32]) -> Result<CorePlan, Fault> {
        let mut plan =
            if config.cores.is_empty() { derived_plan(config, online_cpus) } else { table_plan(config, online_cpus)? };
        plan.warnings.extend(polling_in_vain(config, &plan));
        assert!(plan.shards() >= 1, "a plan has a shard");
        assert!(
            plan.executors.iter().filter(|executor| executor.consensus).count() == 1,
            "a plan has one consensus actor"
        );
        Ok(plan)
    }

    /// Number of shards.
    pub(crate) fn shards(&self) -> usize {
        self.executors.iter().filter(|executor| executor.shard.is_some()).count()
    }
}

fn executor(config: &Config, cpu: Option<u32>, shard: Option<u16>, consensus: bool) -> ExecutorPlan {
    let runtime = &config.runtime;
    let (ring_depth, turn_budget_us, poll_us) = (runtime.ring_depth, runtime.turn_budget_us, runtime.poll_us);
    ExecutorPlan { cpu, shard, consensus, ring_depth, turn_budget_us, poll_us, connections_max: None }
}

fn derived_plan(config: &Config, cpus: &[u32]) -> CorePlan {
    let own_core = match config.runtime.consensus_placement {
        ConsensusPlacement::Auto => cpus.len() > SHARED_CONSENSUS_CPUS_MAX,
        ConsensusPlacement::OwnCore => true,
        ConsensusPlacement::WithShard => false,
    };
    let shards = match config.runtime.shards {
        0 => derived_shards(cpus.len(), own_core),
        shards => shards,
    };
    let executors_count = usize::from(shards) + usize::from(own_core);
    let mut warnings = Vec::new();
    let pinned = executors_count <= cpus.len();
    if !pinned {
        warnings.push(format!(
            "{executors_count} executors share {} CPUs, so none is pinned; lower runtime.shards or use a larger \
            host",
            cpus.len()
        ));
    }
    let cpu = |index: usize| if pinned { cpus.get(index).copied() } else { None };
    let mut executors: Vec<ExecutorPlan> = (0..shards)
        .map(|shard| executor(config, cpu(usize::from(shard)), Some(shard), !own_core && shard == 0))
        .collect();
    if own_core {
        executors.push(executor(config, cpu(usize::from(shards)), None, true));
    }
    CorePlan { executors, log_cpu: None, control_cpu: None, warnings }
}

fn table_plan(config: &Config, cpus: &[u32]) -> Result<CorePlan, Fault> {
    check_table(config, cpus)?;
    let mut plan = CorePlan { executors: Vec::new(), log_cpu: None, control_cpu: None, warnings: shared_cpus(config) };
    let mut next_shard: u16 = 0;
    for row in &config.cores {
        let (is_shard, consensus) = match row.role {
            CoreRole::Shard => (true, false),
            CoreRole::ShardAndConsensus => (true, true),
            CoreRole::Consensus => (false, true),
            CoreRole::Log => {
                plan.log_cpu = row.cpu;
                continue;
            }
            CoreRole::Control => {
                plan.control_cpu = row.cpu;
                continue;
            }
        };
        let mut executor = executor(config, row.cpu, is_shard.then_some(next_shard), consensus);
        executor.ring_depth = row.ring_depth.unwrap_or(executor.ring_depth);
        executor.turn_budget_us = row.turn_budget_us.unwrap_or(executor.turn_budget_us);
        executor.poll_us = row.poll_us.unwrap_or(executor.poll_us);
        executor.connections_max = row.connections_max;
        next_shard += u16::from(is_shard);
        plan.executors.push(executor);
    }
    plan.executors.sort_by_key(|executor| executor.shard.unwrap_or(u16::MAX));
    Ok(plan)
}

/// Whether the table makes sense on a host with these CPUs.
fn check_table(config: &Config, cpus: &[u32]) -> Result<(), Fault> {
    let count = |roles: &[CoreRole]| config.cores.iter().filter(|row| roles.contains(&row.role)).count();
    if let Some((row, cpu)) =
        config.cores.iter().find_map(|row| Some((row, row.cpu?)).filter(|(_, cpu)| !cpus.contains(cpu)))
    {
        return Err(fault(format!(
            "[[core]] in line {}: cpu = {cpu} is not among the CPUs this process may use ({}); name one of those",
            row.line,
            cpu_list(cpus)
        )));
    }
    let shards = count(&[CoreRole::Shard, CoreRole::ShardAndConsensus]);
    let consensus = count(&[CoreRole::Consensus, CoreRole::ShardAndConsensus]);
    if consensus != 1 {
        return Err(fault(format!(
            "the [[core]] table has {consensus} rows that run the consensus actor; give exactly one row the role \
             \"consensus\" or \"shard+consensus\""
        )));
    }
    if shards == 0 {
        return Err(fault("the [[core]] table has no shard; give at least one row the role \"shard\"".to_owned()));
    }
    for (role, name) in [(CoreRole::Log, "log"), (CoreRole::Control, "control")] {
        if count(&[role]) > 1 {
            return Err(fault(format!("the [[core]] table has more than one row with role \"{name}\"; keep one")));
        }
    }
    if config.runtime.shards != 0 && usize::from(config.runtime.shards) != shards {
        return Err(fault(format!(
            "runtime.shards is {} but the [[core]] table has {shards} shards; drop one of the two",
            config.runtime.shards
        )));
    }
    Ok(())
}

/// A warning if an executor is to poll that cannot.
fn polling_in_vain(config: &Config, plan: &CorePlan) -> Option<String> {
    let polls = plan.executors.iter().any(|executor| executor.poll_us > 0);
    (polls && config.runtime.transport == TransportChoice::Stream).then(|| {
        "poll_us does nothing with runtime.transport = \"stream\": only a ring is polled; set the transport to \
        \"auto\" or poll_us to 0"
            .to_owned()
    })
}

/// A warning for each CPU that two executors are pinned to.
fn shared_cpus(config: &Config) -> Vec<String> {
    let executors = |row: &&CoreRow| !matches!(row.role, CoreRole::Log | CoreRole::Control);
    let mut pinned: Vec<u32> = config.cores.iter().filter(executors).filter_map(|row| row.cpu).collect();
    pinned.sort_unstable();
    let mut shared: Vec<u32> = pinned.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
    shared.dedup();
    shared.iter().map(|cpu| format!("several executors are pinned to CPU {cpu}; they slow each other down")).collect()
}

/// Shards for a number of CPUs: all of them, less the consensus actor's. On large hosts it is one less for the log
/// sync, snapshot writer and control threads.
fn derived_shards(cpus: usize, own_core: bool) -> u16 {
    let spare = usize::from(cpus > SHARED_CONSENSUS_CPUS_MAX);
    let shards = cpus.saturating_sub(usize::from(own_core) + spare).clamp(1, CORES_MAX);
    u16::try_from(shards).expect("CORES_MAX fits 16 bits")
}

/// The CPUs as a message shows them: `0-3, 8`.
pub(crate) fn cpu_list(cpus: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(cpu) => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let shown =
        ranges.iter().map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") });
    shown.collect::<Vec<_>>().join(", ")
}

fn fault(sentence: String) -> Fault {
    Fault::new(ExitCode::Config, sentence)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The plan in brief: `name@cpu` for each executor, then `log@` and `control@`.
    fn brief(config: &Config, cpus: &[u32]) -> Result<String, String> {
        let plan = CorePlan::of(config, cpus).map_err(|fault| fault.sentence)?;
        let cpu = |cpu: Option<u32>| cpu.map_or("any".to_owned(), |cpu| cpu.to_string());
        let mut shown: Vec<String> =
            plan.executors.iter().map(|executor| format!("{}@{}", executor.name(), cpu(executor.cpu))).collect();
        shown.extend(plan.log_cpu.map(|cpu| format!("log@{cpu}")));
        shown.extend(plan.control_cpu.map(|cpu| format!("control@{cpu}")));
        shown.extend(plan.warnings.iter().map(|_| "warning".to_owned()));
        Ok(shown.join(" "))
    }

    #[track_caller]
    fn check_derived(shards: u16, placement: ConsensusPlacement, cpus: &[u32], expect: &str) {
        let mut config = Config::default();
        config.runtime.shards = shards;
        config.runtime.consensus_placement = placement;
        assert_eq!(brief(&config, cpus).as_deref(), Ok(expect));
    }

    #[test]
    fn derived_plans() {
        use ConsensusPlacement::{Auto, OwnCore, WithShard};
        check_derived(0, Auto, &[0], "shard-0+cons@0");
        check_derived(0, Auto, &[0, 1], "shard-0+cons@0 shard-1@1");
        check_derived(0, Auto, &[2, 3, 8, 9], "shard-0+cons@2 shard-1@3 shard-2@8 shard-3@9");
        check_derived(0, Auto, &[0, 1, 2, 3, 4], "shard-0@0 shard-1@1 shard-2@2 consensus@3");
        check_derived(0, OwnCore, &[0, 1], "shard-0@0 consensus@1");
        check_derived(0, OwnCore, &[0], "shard-0@any consensus@any warning");
        check_derived(0, WithShard, &[0, 1, 2, 3, 4], "shard-0+cons@0 shard-1@1 shard-2@2 shard-3@3");
        check_derived(1, Auto, &[0, 1], "shard-0+cons@0");
        check_derived(2, Auto, &[0, 1], "shard-0+cons@0 shard-1@1");
        check_derived(4, Auto, &[0, 1], "shard-0+cons@any shard-1@any shard-2@any shard-3@any warning");
        check_derived(0, Auto, &[], "shard-0+cons@any warning");
    }

    #[test]
    fn every_number_of_cpus_and_shards_gives_a_plan() {
        let cpus: Vec<u32> = (0..130).collect();
        for count in 0..cpus.len() {
            for shards in [0, 1, 2, 7, 200] {
                let mut config = Config::default();
                config.runtime.shards = shards;
                let plan = CorePlan::of(&config, &cpus[..count]).expect("a derived plan always exists");
                assert!(shards == 0 || plan.shards() == usize::from(shards));
                assert!(plan.executors.iter().all(|executor| executor.name().len() <= 15));
            }
        }
    }

    fn table(rows: &[(Option<u32>, CoreRole)]) -> Config {
        let mut config = Config::default();
        let numbered = rows.iter().zip(1..);
        config.cores = numbered.map(|(&(cpu, role), line)| CoreRow { cpu, role, ..CoreRow::at_line(line) }).collect();
        config
    }

    #[test]
    fn tables() {
        use CoreRole::{Consensus, Control, Log, Shard, ShardAndConsensus};
        let check = |rows: &[(Option<u32>, CoreRole)], expect: Result<&str, &str>| match (
            brief(&table(rows), &[0, 1, 2]),
            expect,
        ) {
            (Ok(shown), Ok(expect)) => assert_eq!(shown, expect),
            (Err(shown), Err(expect)) => assert!(shown.contains(expect), "{shown:?} lacks {expect:?}"),
            (shown, expect) => panic!("{shown:?} instead of {expect:?}"),
        };
        check(&[(Some(0), ShardAndConsensus)], Ok("shard-0+cons@0"));
        check(&[(Some(2), Consensus), (Some(1), Shard), (None, Shard)], Ok("shard-0@1 shard-1@any consensus@2"));
        check(
            &[(Some(0), Shard), (Some(1), Consensus), (Some(2), Log), (Some(2), Control)],
            Ok("shard-0@0 consensus@1 log@2 control@2"),
        );
        check(&[(Some(0), Shard), (Some(0), Consensus)], Ok("shard-0@0 consensus@0 warning"));
        check(
            &[(Some(0), Shard), (Some(3), Consensus)],
            Err("line 2: cpu = 3 is not among the CPUs this process may use (0-2)"),
        );
        check(&[(Some(0), Shard)], Err("has 0 rows that run the consensus actor"));
        check(&[(Some(0), ShardAndConsensus), (Some(1), Consensus)], Err("has 2 rows that run the consensus actor"));
        check(&[(Some(0), Consensus)], Err("has no shard"));
        check(
            &[(Some(0), ShardAndConsensus), (Some(1), Log), (Some(2), Log)],
            Err("more than one row with role \"log\""),
        );
    }

    #[test]
    fn a_table_overrides_ring_and_budget_and_must_agree_with_the_number_of_shards() {
        let mut config = table(&[(Some(0), CoreRole::ShardAndConsensus), (Some(1), CoreRole::Shard)]);
        config.cores[1].ring_depth = Some(4096);
        config.cores[1].connections_max = Some(7);
        config.cores[1].poll_us = Some(50);
        let plan = CorePlan::of(&config, &[0, 1]).expect("the table is good");
        let shown: Vec<_> =
            plan.executors.iter().map(|e| (e.ring_depth, e.turn_budget_us, e.poll_us, e.connections_max)).collect();
        assert_eq!(shown, [(1024, 250, 0, None), (4096, 250, 50, Some(7))]);
        assert!(plan.warnings.is_empty());
        config.runtime.transport = TransportChoice::Stream;
        let plan = CorePlan::of(&config, &[0, 1]).expect("the table is good");
        assert!(plan.warnings[0].starts_with("poll_us does nothing"), "{:?}", plan.warnings);
        config.runtime.shards = 2;
        assert!(CorePlan::of(&config, &[0, 1]).is_ok());
        config.runtime.shards = 3;
        let fault = CorePlan::of(&config, &[0, 1]).expect_err("3 is not 2");
        assert!(fault.sentence.contains("runtime.shards is 3 but"), "{fault}");
        assert_eq!(fault.code, ExitCode::Config);
    }

    #[test]
    fn cpu_lists() {
        let check = |cpus: &[u32], expect: &str| assert_eq!(cpu_list(cpus), expect);
        check(&[], "");
        check(&[3], "3");
        check(&[0, 1, 2, 3, 8, 10, 11], "0-3, 8, 10-11");
        check(&[u32::MAX], "4294967295");
    }
}
