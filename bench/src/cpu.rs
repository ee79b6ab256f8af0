//! CPU time of a process by its threads, from the scheduler's own nanosecond counters.
//!
//! Sums the on-CPU time in `/proc/PID/task/*/schedstat` and keeps the last value seen of threads that have ended. Threads
//! that lived only between two looks are caught by the kernel's per-process CPU clock, which also counts the dead; the
//! larger of the two is taken, so that no server gains from a thread that was missed. Tick-based figures (`utime`) are
//! useless here: they miss what runs between ticks. Runs on the coordinating thread.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use anyhow::{Context, Result};
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use serde::Serialize;

/// Follows the CPU time of one process.
#[derive(Debug)]
pub struct CpuClock {
    tasks: PathBuf,
    pid: i32,
    clock: ClockId,
    /// On-CPU nanoseconds by thread id, the ended ones included.
    threads: BTreeMap<i32, u64>,
    /// What earlier threads used whose id was given to a new thread.
    reused_ns: u64,
    base_threads_ns: u64,
    base_clock_ns: u64,
}

impl CpuClock {
    /// Starts to follow a process, from zero.
    ///
    /// # Errors
    /// If there is no such process or its counters cannot be read.
    pub fn start(pid: i32) -> Result<Self> {
        let clock = clock_getcpuclockid(Pid::from_raw(pid)).with_context(|| format!("there is no process {pid}"))?;
        let mut this = Self {
            tasks: PathBuf::from(format!("/proc/{pid}/task")),
            pid,
            clock,
            threads: BTreeMap::new(),
            reused_ns: 0,
            base_threads_ns: 0,
            base_clock_ns: 0,
        };
        this.restart().with_context(|| format!("there is no process {pid}"))?;
        Ok(this)
    }

    /// Starts again from zero.
    ///
    /// # Errors
    /// As [`Self::look`].
    pub fn restart(&mut self) -> Result<()> {
        self.look()?;
        self.base_threads_ns = self.threads_ns();
        self.base_clock_ns = self.clock_ns()?;
        Ok(())
    }

    /// Reads every thread's counter; call it a few times a second so that the time of threads that end is counted.
    ///
    /// # Errors
    /// If the process is gone.
    pub fn look(&mut self) -> Result<()> {
        let gone = || format!("process {} is gone", self.pid);
        let mut seen = 0;
        for entry in fs::read_dir(&self.tasks).with_context(gone)? {
            let entry = entry.with_context(gone)?;
            let Some(thread) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            match fs::read_to_string(entry.path().join("schedstat")) {
                Ok(line) => {
                    let now = on_cpu_ns(&line).with_context(|| format!("schedstat of thread {thread}: {line:?}"))?;
                    self.reused_ns += note(&mut self.threads, thread, now);
                    seen += 1;
                }
                // The thread ended between the listing and the reading: its last value stays.
                Err(error) if error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(3) => {}
                Err(error) => return Err(error).context("schedstat cannot be read (CONFIG_SCHED_INFO missing?)"),
            }
        }
        anyhow::ensure!(seen > 0, "process {} is gone", self.pid);
        Ok(())
    }

    /// Nanoseconds on CPU of all threads, living and ended, since the start or restart.
    ///
    /// # Errors
    /// As [`Self::look`].
    pub fn elapsed_ns(&mut self) -> Result<u64> {
        self.look()?;
        let threads = self.threads_ns().saturating_sub(self.base_threads_ns);
        let clock = self.clock_ns()?.saturating_sub(self.base_clock_ns);
        Ok(threads.max(clock))
    }

    fn threads_ns(&self) -> u64 {
        self.threads.values().sum::<u64>() + self.reused_ns
    }

    fn clock_ns(&self) -> Result<u64> {
        let time = clock_gettime(self.clock).with_context(|| format!("process {} is gone", self.pid))?;
        let (seconds, nanos) = (u64::try_from(time.tv_sec())?, u64::try_from(time.tv_nsec())?);
        Ok(seconds * 1_000_000_000 + nanos)
    }
}

/// The CPU time of all processes of a service.
#[derive(Debug)]
pub(crate) struct ServiceCpu(Vec<CpuClock>);

impl ServiceCpu {
    /// Starts to follow the processes, from zero. `None` if there are none to follow.
    ///
    /// # Errors
    /// As [`CpuClock::start`].
    pub(crate) fn of(pids: &[i32]) -> Result<Option<Self>> {
        let clocks: Vec<_> = pids.iter().map(|pid| CpuClock::start(*pid)).collect::<Result<_>>()?;
        Ok(Some(Self(clocks)).filter(|this| !this.0.is_empty()))
    }

    /// Starts again from zero.
    ///
    /// # Errors
    /// As [`CpuClock::look`].
    pub(crate) fn restart(&mut self) -> Result<()> {
        self.0.iter_mut().try_for_each(CpuClock::restart)
    }

    /// Reads every thread's counter, see [`CpuClock::look`].
    ///
    /// # Errors
    /// As there.
    pub(crate) fn look(&mut self) -> Result<()> {
        self.0.iter_mut().try_for_each(CpuClock::look)
    }

    /// Nanoseconds on CPU since the start or restart, of all together.
    ///
    /// # Errors
    /// As [`CpuClock::look`].
    pub(crate) fn elapsed_ns(&mut self) -> Result<u64> {
        self.0.iter_mut().map(CpuClock::elapsed_ns).sum()
    }
}

/// The first number of a schedstat line.
fn on_cpu_ns(line: &str) -> Option<u64> {
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Notes a thread's counter. A counter that fell belongs to a new thread with an old id: gives what the old one used.
fn note(threads: &mut BTreeMap<i32, u64>, thread: i32, now: u64) -> u64 {
    let before = threads.insert(thread, now).unwrap_or(0);
    if now < before { before } else { 0 }
}

/// Resident memory of all these processes in KiB, if there are any and it can be read.
pub(crate) fn resident_kib(pids: &[i32]) -> Option<u64> {
    pids.iter().map(|pid| resident_kib_of(*pid)).sum::<Option<u64>>().filter(|_| !pids.is_empty())
}

fn resident_kib_of(pid: i32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Memory of a process in KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Memory {
    /// Resident pages, shared ones in full.
    pub(crate) rss_kib: u64,
    /// Resident pages, shared ones divided by the number of processes that share them.
    pub(crate) pss_kib: u64,
    /// Resident pages that are backed by no file.
    pub(crate) anonymous_kib: u64,
}

impl Memory {
    /// Of all these processes together; `None` if there are none.
    ///
    /// # Errors
    /// As [`Memory::of`].
    pub(crate) fn of_all(pids: &[i32]) -> Result<Option<Self>> {
        let mut sum = None;
        for pid in pids {
            let one = Self::of(*pid)?;
            let so_far = sum.get_or_insert(Self { rss_kib: 0, pss_kib: 0, anonymous_kib: 0 });
            so_far.rss_kib += one.rss_kib;
            so_far.pss_kib += one.pss_kib;
            so_far.anonymous_kib += one.anonymous_kib;
        }
        Ok(sum)
    }

    /// Of a process of this machine; needs the right to look into it.
    ///
    /// # Errors
    /// If there is no such process, or it belongs to another user.
    fn of(pid: i32) -> Result<Self> {
        let file = format!("/proc/{pid}/smaps_rollup");
        let text = fs::read_to_string(&file).with_context(|| file.clone())?;
        Self::parse(&text).with_context(|| format!("{file} looks unlike others"))
    }

    fn parse(text: &str) -> Option<Self> {
        let of = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            line.split_ascii_whitespace().next()?.parse().ok()
        };
        Some(Self { rss_kib: of("Rss")?, pss_kib: of("Pss")?, anonymous_kib: of("Anonymous")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn burn(for_cpu: Duration) {
        let clock = ClockId::CLOCK_THREAD_CPUTIME_ID;
        let start = Duration::from(clock_gettime(clock).unwrap());
        while Duration::from(clock_gettime(clock).unwrap()) - start < for_cpu {
            std::hint::black_box(start);
        }
    }

    #[test]
    fn schedstat_lines() {
        fn check(line: &str, expect: Option<u64>) {
            assert_eq!(on_cpu_ns(line), expect);
        }
        check("123456 789 5\n", Some(123_456));
        check("0 0 0\n", Some(0));
        check("", None);
        check("x 1 2", None);
        check("-5 1 2", None);
    }

    #[test]
    fn a_reused_thread_id_keeps_what_the_old_thread_used() {
        let mut threads = BTreeMap::new();
        assert_eq!(note(&mut threads, 7, 100), 0);
        assert_eq!(note(&mut threads, 7, 150), 0);
        assert_eq!(note(&mut threads, 7, 20), 150);
        assert_eq!(threads[&7], 20);
    }

    #[test]
    fn ended_threads_count() {
        let mut clock = CpuClock::start(i32::try_from(std::process::id()).unwrap()).unwrap();
        let start = Instant::now();
        let unseen = std::thread::spawn(|| burn(Duration::from_millis(60)));
        unseen.join().unwrap();
        burn(Duration::from_millis(20));
        let used = Duration::from_nanos(clock.elapsed_ns().unwrap());
        assert!(used >= Duration::from_millis(80), "{used:?} counted in {:?}", start.elapsed());
        clock.restart().unwrap();
        assert!(Duration::from_nanos(clock.base_clock_ns) >= used, "a restart counts from where it is called");
    }

    #[test]
    fn memory_is_read() {
        let text = "00400000-7ffe rollup\nRss:   123 kB\nPss:    45 kB\nPss_Anon:   7 kB\nAnonymous:    99 kB\n";
        assert_eq!(Memory::parse(text), Some(Memory { rss_kib: 123, pss_kib: 45, anonymous_kib: 99 }));
        assert_eq!(Memory::parse("Rss: x kB"), None);
        let own = Memory::of(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(own.rss_kib >= own.pss_kib && own.pss_kib > 100, "{own:?}");
    }

    #[test]
    fn a_missing_process_is_an_error() {
        let error = CpuClock::start(i32::MAX).map(|_| ()).expect_err("no process has the highest number");
        assert!(format!("{error:#}").contains("there is no process"), "{error:#}");
    }
}
