//! Checks of the host before anything starts: locked memory, open files, io_uring, CPUs, the data directory.
//!
//! The main thread, before any other. Each refusal is one sentence with numbers and a remedy, and has its own exit
//! code. Without these checks the runtime would panic or give an unclear error. It does not open the data directory nor
//! listen.

use std::io;
use std::path::Path;

use corral_zookeeper::directory::VERSION_DIRECTORY;
use io_uring::{IoUring, Probe, opcode};
use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use nix::unistd::Pid;

use crate::config::Config;
use crate::config::cores::CorePlan;
use crate::descriptors::DescriptorBudget;
use crate::exit::{ExitCode, Fault};

/// Locked memory without which the runtime refuses to start, bytes.
const MEMLOCK_BYTES_MIN: u64 = 512 * 1024;
/// Bytes that one entry of `ring_depth` takes in the rings of an executor: three of the runtime's and the shard's own. A
/// little less than the kernel counts, so that nothing is refused that would work.
const MEMLOCK_BYTES_PER_ENTRY: u64 = 300;
/// Connections below which a start makes no sense.
const CONNECTIONS_MIN: u64 = 16;
/// Connections when the limit of open files is no limit.
const CONNECTIONS_MAX: u64 = 1_000_000;
/// Oldest kernel that the runtime supports.
const KERNEL_MIN: &str = "5.8";

/// The results of the checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    /// Connections that can be served: the configured number, or as many as open files allow; never 0.
    pub(crate) connections_max: u32,
    /// Warnings for the operator.
    pub(crate) warnings: Vec<String>,
}

/// Checks this host for the configuration and its plan. Raises soft limits as far as needed.
///
/// # Errors
/// The first thing that would keep the server from running.
pub(crate) fn check(config: &Config, plan: &CorePlan) -> Result<Host, Fault> {
    let (host, faults) = look(config, plan, raise);
    faults.into_iter().next().map_or(Ok(host), Err)
}

/// As [`check`], and changes nothing: all faults and warnings, for a server that is started with the limits of this process.
pub(crate) fn problems(config: &Config, plan: &CorePlan) -> (Vec<Fault>, Vec<String>) {
    let (host, faults) = look(config, plan, |resource| getrlimit(resource).map_or(0, |(_, hard)| hard));
    (faults, host.warnings)
}

/// The host, if there are no faults, and all faults. `limit` gives the limit that holds for a resource.
fn look(config: &Config, plan: &CorePlan, limit: fn(Resource) -> rlim_t) -> (Host, Vec<Fault>) {
    let executors = plan.executors.len() as u64;
    let mut faults: Vec<Fault> = data_dir(&config.server.data_dir).err().into_iter().collect();
    faults.extend([&config.server.data_dir, &config.server.log_dir].iter().filter_map(|path| writable(path).err()));
    let needs = LockedMemory {
        executors,
        entries: plan.executors.iter().map(|executor| u64::from(executor.ring_depth)).sum(),
        io_memory_bytes: config.runtime.io_memory_bytes.into(),
    };
    let mut host = Host { connections_max: 0, warnings: Vec::new() };
    match memlock(limit(Resource::RLIMIT_MEMLOCK), needs, may_raise_hard_limits(&own_status())) {
        Ok(warning) => host.warnings.extend(warning),
        Err(fault) => faults.push(fault),
    }
    let budget = DescriptorBudget::of(config, executors);
    match nofile(limit(Resource::RLIMIT_NOFILE), budget, config.limits.connections_max.into()) {
        Ok((connections_max, warning)) => {
            host.connections_max = connections_max;
            host.warnings.extend(warning);
        }
        Err(fault) => faults.push(fault),
    }
    faults.extend(io_uring().err());
    (host, faults)
}

/// From here on neither a crash nor another process of the same user shows the memory of this process.
///
/// # Errors
/// An `Internal` fault if the kernel refuses.
pub(crate) fn forbid_core_dumps() -> Result<(), Fault> {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|error| Fault::new(ExitCode::Internal, format!("core dumps cannot be forbidden: {error}")))
}

/// The CPUs this process may run on, ascending.
///
/// # Errors
/// An `Internal` fault if the kernel does not tell.
pub(crate) fn usable_cpus() -> Result<Vec<u32>, Fault> {
    let set = sched_getaffinity(Pid::from_raw(0)).map_err(|errno| {
        Fault::new(ExitCode::Internal, format!("the kernel does not tell the usable CPUs: {errno}"))
    })?;
    let cpus = (0..CpuSet::count()).filter(|&cpu| set.is_set(cpu).unwrap_or(false));
    Ok(cpus.filter_map(|cpu| u32::try_from(cpu).ok()).collect())
}

/// Raises a soft limit to the hard one and returns what then holds.
fn raise(resource: Resource) -> rlim_t {
    let Ok((soft, hard)) = getrlimit(resource) else {
        return 0;
    };
    match setrlimit(resource, hard, hard) {
        Ok(()) => hard,
        Err(_) => soft,
    }
}

/// Bytes that the kernel will be asked to lock.
#[derive(Clone, Copy)]
struct LockedMemory {
    executors: u64,
    /// Of the rings of all executors together.
    entries: u64,
    io_memory_bytes: u64,
}

/// The kernel's account of this process, empty if it gives none.
fn own_status() -> String {
    std::fs::read_to_string("/proc/self/status").unwrap_or_default()
}

/// Whether the process, and so most likely the shell that started it, may raise hard limits: being root is not enough
/// in a container.
fn may_raise_hard_limits(status: &str) -> bool {
    const CAP_SYS_RESOURCE: u64 = 1 << 24;
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    bits.is_some_and(|bits| bits & CAP_SYS_RESOURCE != 0)
}

/// Whether so many bytes of locked memory suffice; a warning when they hardly do. `limit` is the hard one.
fn memlock(limit: u64, needs: LockedMemory, may_raise: bool) -> Result<Option<String>, Fault> {
    let LockedMemory { executors, entries, io_memory_bytes } = needs;
    let rings = entries.saturating_mul(MEMLOCK_BYTES_PER_ENTRY);
    let least = rings.max(MEMLOCK_BYTES_MIN);
    let wanted = executors.saturating_mul(MEMLOCK_BYTES_MIN.saturating_add(io_memory_bytes)).saturating_add(rings);
    let kib = wanted / 1024;
    let places = if may_raise {
        format!("`ulimit -l {kib}` in a shell, or --ulimit memlock={wanted} for a container")
    } else {
        format!(
            "--ulimit memlock={wanted} for a container, or memlock {kib} in /etc/security/limits.conf and a new login. \
            `ulimit -l` in this shell cannot do it: the hard limit is meant, and CAP_SYS_RESOURCE is missing"
        )
    };
    let remedy = format!("allow {kib} KiB: LimitMEMLOCK={wanted} in a systemd unit, {places}");
    if limit < least {
        let sentence = format!(
            "locked memory (RLIMIT_MEMLOCK) is limited to {} KiB, but io_uring needs at least {} KiB, for executors: \
            {executors}, entries of their rings: {entries}; lower runtime.ring_depth or runtime.shards, or {remedy}",
            limit / 1024,
            least / 1024
        );
        return Err(Fault::new(ExitCode::MemlockTooLow, sentence));
    }
    Ok((limit < wanted).then(|| {
        format!("locked memory (RLIMIT_MEMLOCK) of {} KiB is tight for {executors} executors; {remedy}", limit / 1024)
    }))
}

/// The connections that so many open files allow besides those of the budget, and a warning if fewer than configured. 0
/// configured = all that fit.
fn nofile(limit: u64, budget: DescriptorBudget, configured: u64) -> Result<(u32, Option<String>), Fault> {
    let server = budget.server();
    let possible = limit.saturating_sub(server);
    if possible < CONNECTIONS_MIN {
        let sentence = format!(
            "open files (RLIMIT_NOFILE) are limited to {limit}, but the server needs {}: {}, {CONNECTIONS_MIN} for clients; \
             raise LimitNOFILE= in the systemd unit, or `ulimit -n` in a shell",
            server.saturating_add(CONNECTIONS_MIN),
            budget.words()
        );
        return Err(Fault::new(ExitCode::NofileTooLow, sentence));
    }
    let wanted = if configured == 0 { possible.min(CONNECTIONS_MAX) } else { configured };
    let warning = (wanted > possible).then(|| {
        format!(
            "limits.connections_max is {configured}, but open files (RLIMIT_NOFILE) are limited to {limit}, so \
            {possible} connections are \
             served; raise LimitNOFILE= or `ulimit -n` to {}",
            configured.saturating_add(server)
        )
    });
    let connections = u32::try_from(wanted.min(possible)).expect("both numbers of connections are limited to 32 bits");
    Ok((connections, warning))
}

/// Sets up a small io_uring and asks for the operations the runtime needs, because it panics without them.
fn io_uring() -> Result<(), Fault> {
    let ring = IoUring::new(4).map_err(|error| io_uring_fault(&error, &read_sysctl("io_uring_disabled")))?;
    let mut probe = Probe::new();
    let needed =
        [opcode::Read::CODE, opcode::Write::CODE, opcode::PollAdd::CODE, opcode::Timeout::CODE, opcode::Accept::CODE];
    let complete =
        ring.submitter().register_probe(&mut probe).is_ok() && needed.iter().all(|&code| probe.is_supported(code));
    if !complete {
        let sentence =
            format!("the kernel's io_uring lacks operations that the server needs; run Linux {KERNEL_MIN} or newer");
        return Err(Fault::new(ExitCode::IoUringMissing, sentence));
    }
    Ok(())
}

/// A value below /proc/sys/kernel, empty if there is none.
fn read_sysctl(name: &str) -> String {
    let path = Path::new("/proc/sys/kernel").join(name);
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// The fault of a failed `io_uring_setup`, with the remedy. `disabled` is the value of `kernel.io_uring_disabled`.
fn io_uring_fault(error: &io::Error, disabled: &str) -> Fault {
    let (code, sentence) = match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOSYS) => (
            ExitCode::IoUringMissing,
            format!(
                "this kernel has no io_uring; run Linux {KERNEL_MIN} or newer with \
            CONFIG_IO_URING"
            ),
        ),
        Some(Errno::EPERM | Errno::EACCES) if matches!(disabled, "1" | "2") => (
            ExitCode::IoUringMissing,
            format!(
                "io_uring is switched off on this host (kernel.io_uring_disabled = {disabled}); run `sysctl -w \
            kernel.io_uring_disabled=0`"
            ),
        ),
        Some(Errno::EPERM | Errno::EACCES) => (
            ExitCode::IoUringMissing,
            "io_uring is forbidden to this process, most likely by a container's seccomp profile; allow \
            io_uring_setup, io_uring_enter and \
             io_uring_register there, or run with --security-opt seccomp=unconfined"
                .to_owned(),
        ),
        Some(Errno::ENOMEM) => (
            ExitCode::MemlockTooLow,
            "the kernel has no locked memory left for io_uring (ENOMEM); raise RLIMIT_MEMLOCK (`ulimit -l`, \
            LimitMEMLOCK=), or stop other \
             users of io_uring of the same account"
                .to_owned(),
        ),
        Some(Errno::EMFILE | Errno::ENFILE) => (
            ExitCode::NofileTooLow,
            "no more files can be opened (RLIMIT_NOFILE); raise `ulimit -n` or \
            LimitNOFILE="
                .to_owned(),
        ),
        _ => (ExitCode::IoUringMissing, format!("io_uring cannot be set up: {error}; run Linux {KERNEL_MIN} or newer")),
    };
    Fault::new(code, sentence)
}

/// Refuses a directory that ZooKeeper has used: starting empty beside its data would look like data loss.
fn data_dir(path: &Path) -> Result<(), Fault> {
    let theirs = path.join(VERSION_DIRECTORY);
    if !theirs.is_dir() {
        return Ok(());
    }
    let sentence = format!(
        "the data directory {} holds data of ZooKeeper ({}): make a new directory from them with `corral import \
        zookeeper {} --data-dir NEW`, or give an empty one with --data-dir",
        path.display(),
        theirs.display(),
        path.display()
    );
    Err(Fault::new(ExitCode::DataDirForeign, sentence))
}

/// Files are made there while the server runs, and not only at the start.
fn writable(path: &Path) -> Result<(), Fault> {
    use rustix::fs::{Access, access};
    if path.exists() && !path.is_dir() {
        let sentence = format!("{} is not a directory; give another path with --data-dir or --log-dir", path.display());
        return Err(Fault::new(ExitCode::StorageUnavailable, sentence));
    }
    match access(path, Access::WRITE_OK | Access::EXEC_OK) {
        Err(error) if matches!(error, rustix::io::Errno::ACCESS | rustix::io::Errno::ROFS) => {
            let sentence = format!("{}: {error}; this server's user must be able to make files there", path.display());
            Err(Fault::new(ExitCode::StorageUnavailable, sentence))
        }
        // It is made, or its fault told, where it is opened.
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn to_look_for_problems_changes_no_limit() {
        let limits = || {
            [Resource::RLIMIT_MEMLOCK, Resource::RLIMIT_NOFILE].map(|limit| getrlimit(limit).expect("it is a limit"))
        };
        let (config, before) = (Config::default(), limits());
        let plan = CorePlan::of(&config, &[0]).expect("one CPU suffices");
        let _ = problems(&config, &plan);
        assert_eq!(limits(), before);
    }

    #[test]
    fn locked_memory() {
        let check = |limit: u64, executors: u64| {
            memlock(limit, LockedMemory { executors, entries: executors * 1024, io_memory_bytes: 1 << 20 }, true)
                .map_err(|fault| (fault.code, fault.sentence))
        };
        assert_eq!(check(u64::MAX, 4), Ok(None));
        assert_eq!(check(8 << 20, 2), Ok(None));
        let warning = check(1 << 20, 2).expect("1 MiB starts").expect("1 MiB is tight for two executors");
        assert!(
            warning.contains("of 1024 KiB is tight for 2 executors; allow 3672 KiB: LimitMEMLOCK=3760128"),
            "{warning}"
        );
        let (code, sentence) = check(64 << 10, 1).expect_err("64 KiB is too low");
        assert_eq!(code, ExitCode::MemlockTooLow);
        assert!(sentence.contains("is limited to 64 KiB") && sentence.contains("`ulimit -l 1836`"), "{sentence}");
        let deep = LockedMemory { executors: 2, entries: 2 * 32_768, io_memory_bytes: 1 << 20 };
        let fault = memlock(8 << 20, deep, true).expect_err("rings so deep do not fit into 8 MiB");
        assert!(fault.sentence.contains("needs at least 19200 KiB") && fault.sentence.contains("runtime.ring_depth"));
    }

    /// Root in a container was told to use `ulimit -l`, which fails there.
    #[test]
    fn a_process_that_may_not_raise_hard_limits_is_not_told_to() {
        let needs = LockedMemory { executors: 1, entries: 1024, io_memory_bytes: 1 << 20 };
        let fault = memlock(64 << 10, needs, false).expect_err("64 KiB is too low");
        assert!(!fault.sentence.contains("`ulimit -l 1836`"), "{}", fault.sentence);
        assert!(fault.sentence.contains("CAP_SYS_RESOURCE") && fault.sentence.contains("limits.conf"));
        assert!(may_raise_hard_limits("Name:\tx\nCapEff:\t000001ffffffffff\n"));
        assert!(!may_raise_hard_limits("CapPrm:\t000001ffffffffff\nCapEff:\t00000000a80425fb\n"), "docker's root");
        assert!(!may_raise_hard_limits(""));
        assert!(own_status().contains("CapEff:"), "the kernel tells");
    }

    #[test]
    fn open_files() {
        let budget = DescriptorBudget::of(&Config::default(), 2);
        let server = budget.server();
        let check = |limit: u64, configured: u64| nofile(limit, budget, configured).map_err(|fault| fault.code);
        assert_eq!(check(server + 20_000, 0), Ok((20_000, None)));
        assert_eq!(check(u64::MAX, 0), Ok((1_000_000, None)));
        assert_eq!(check(20_000, 1000), Ok((1000, None)));
        assert_eq!(check(server + CONNECTIONS_MIN - 1, 0), Err(ExitCode::NofileTooLow));
        let (connections, warning) = check(server + 928, 5000).expect("928 connections are served");
        assert_eq!(connections, 928);
        let warning = warning.expect("928 is less than 5000");
        let ends = format!("so 928 connections are served; raise LimitNOFILE= or `ulimit -n` to {}", server + 5000);
        assert!(warning.ends_with(&ends), "{warning}");
    }

    #[test]
    fn io_uring_sentences() {
        let check = |errno: Errno, disabled: &str, code: ExitCode, part: &str| {
            let fault = io_uring_fault(&io::Error::from(errno), disabled);
            assert_eq!(fault.code, code);
            assert!(fault.sentence.contains(part), "{fault}");
        };
        check(Errno::ENOSYS, "", ExitCode::IoUringMissing, "has no io_uring; run Linux 5.8");
        check(Errno::EPERM, "2", ExitCode::IoUringMissing, "kernel.io_uring_disabled = 2");
        check(Errno::EPERM, "0", ExitCode::IoUringMissing, "seccomp");
        check(Errno::ENOMEM, "0", ExitCode::MemlockTooLow, "RLIMIT_MEMLOCK");
        check(Errno::EMFILE, "0", ExitCode::NofileTooLow, "ulimit -n");
        check(Errno::EINVAL, "0", ExitCode::IoUringMissing, "cannot be set up");
    }

    #[test]
    fn zookeepers_data_is_foreign() {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        assert_eq!(data_dir(dir.path()), Ok(()));
        assert_eq!(data_dir(&dir.path().join("missing")), Ok(()));
        std::fs::create_dir(dir.path().join("version-2")).expect("the directory is writable");
        let fault = data_dir(dir.path()).expect_err("version-2 is ZooKeeper's");
        assert_eq!(fault.code, ExitCode::DataDirForeign);
    }

    #[test]
    fn this_host_has_cpus() {
        assert!(!usable_cpus().expect("the kernel tells").is_empty());
    }
}
