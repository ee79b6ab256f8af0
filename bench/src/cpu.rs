//! CPU time of processes by their threads, from the scheduler's own nanosecond counters, and their memory.
//!
//! Sums the on-CPU time in `/proc/PID/task/*/schedstat` and keeps the last value seen of threads that have ended. Threads
//! that lived only between two looks are caught by the kernel's per-process CPU clock, which also counts the dead; the
//! larger of the two is taken, so that no server gains from a thread that was missed. Tick-based figures (`utime`) are
//! useless here: they miss what runs between ticks. Runs on the coordinating thread.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;

use anyhow::{Context, Result};
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use serde::Serialize;

/// Follows the CPU time of processes, all together.
#[derive(Debug)]
pub(crate) struct CpuClock(Vec<Process>);

#[derive(Debug)]
struct Process {
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
    /// Starts to follow the processes, from zero. Fails if one of them does not exist.
    pub(crate) fn of(pids: &[i32]) -> Result<Self> {
        let start = |pid: &i32| Process::start(*pid).with_context(|| format!("there is no process {pid}"));
        pids.iter().map(start).collect::<Result<_>>().map(Self)
    }

    /// Follows this process.
    pub(crate) fn own() -> Result<Self> {
        Self::of(&[i32::try_from(std::process::id())?])
    }

    /// Starts again from zero.
    pub(crate) fn restart(&mut self) -> Result<()> {
        self.0.iter_mut().try_for_each(Process::restart)
    }

    /// Reads every thread's counter; call it a few times a second so that the time of threads that end is counted.
    pub(crate) fn look(&mut self) -> Result<()> {
        self.0.iter_mut().try_for_each(Process::look)
    }

    /// Nanoseconds on CPU of all threads, living and ended, since the start or restart. `None` if there are no processes.
    pub(crate) fn elapsed_ns(&mut self) -> Result<Option<u64>> {
        let sum = self.0.iter_mut().map(Process::elapsed_ns).sum::<Result<u64>>()?;
        Ok((!self.0.is_empty()).then_some(sum))
    }
}

impl Process {
    fn start(pid: i32) -> Result<Self> {
        let clock = clock_getcpuclockid(Pid::from_raw(pid))?;
        let threads = BTreeMap::new();
        let mut this = Self { pid, clock, threads, reused_ns: 0, base_threads_ns: 0, base_clock_ns: 0 };
        this.restart()?;
        Ok(this)
    }

    fn restart(&mut self) -> Result<()> {
        self.look()?;
        self.base_threads_ns = self.threads_ns();
        self.base_clock_ns = self.clock_ns()?;
        Ok(())
    }

    fn look(&mut self) -> Result<()> {
        let gone = || format!("process {} is gone", self.pid);
        let mut seen = 0;
        for entry in fs::read_dir(format!("/proc/{}/task", self.pid)).with_context(gone)? {
            let entry = entry.with_context(gone)?;
            let Some(thread) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            match fs::read_to_string(entry.path().join("schedstat")) {
                Ok(line) => {
                    let on_cpu_ns = line.split_ascii_whitespace().next().and_then(|word| word.parse().ok());
                    let now = on_cpu_ns.with_context(|| format!("schedstat of thread {thread}: {line:?}"))?;
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

    fn elapsed_ns(&mut self) -> Result<u64> {
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
        Ok(u64::try_from(time.tv_sec())? * 1_000_000_000 + u64::try_from(time.tv_nsec())?)
    }
}

/// Notes a thread's counter. A counter that fell belongs to a new thread with an old id: gives what the old one used.
fn note(threads: &mut BTreeMap<i32, u64>, thread: i32, now: u64) -> u64 {
    let before = threads.insert(thread, now).unwrap_or(0);
    if now < before { before } else { 0 }
}

/// Resident memory of all these processes in KiB, if there are any and it can be read.
pub(crate) fn resident_kib(pids: &[i32]) -> Option<u64> {
    let of = |pid: &i32| field(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?, "VmRSS");
    pids.iter().map(of).sum::<Option<u64>>().filter(|_| !pids.is_empty())
}

fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Memory of processes in KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Memory {
    /// Resident pages, shared ones in full.
    pub(crate) rss_kib: u64,
    /// Resident pages, shared ones divided by the number of processes that share them.
    pub(crate) pss_kib: u64,
    /// Resident pages that are backed by no file.
    pub(crate) anonymous_kib: u64,
}

impl Memory {
    /// Of all these processes of this machine together; `None` if there are none. Needs the right to look into them.
    pub(crate) fn of(pids: &[i32]) -> Result<Option<Self>> {
        let mut sum = Self::default();
        for pid in pids {
            let file = format!("/proc/{pid}/smaps_rollup");
            let text = fs::read_to_string(&file).with_context(|| file.clone())?;
            let read = |name| field(&text, name).with_context(|| format!("{file} has no {name}"));
            sum.rss_kib += read("Rss")?;
            sum.pss_kib += read("Pss")?;
            sum.anonymous_kib += read("Anonymous")?;
        }
        Ok((!pids.is_empty()).then_some(sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn burn(for_cpu: Duration) {
        let now = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap());
        let start = now();
        while now() - start < for_cpu {
            std::hint::black_box(start);
        }
    }

    #[test]
    fn the_cpu_time_of_ended_threads_counts() {
        let mut clock = CpuClock::own().unwrap();
        std::thread::spawn(|| burn(Duration::from_millis(60))).join().unwrap();
        burn(Duration::from_millis(20));
        let used = Duration::from_nanos(clock.elapsed_ns().unwrap().unwrap());
        assert!(used >= Duration::from_millis(80), "{used:?}");
        let mut threads = BTreeMap::from([(7, 150)]);
        assert_eq!((note(&mut threads, 7, 20), threads[&7]), (150, 20), "an id that is used again");
        let error = CpuClock::of(&[i32::MAX]).map(|_| ()).expect_err("no process has the highest number");
        assert!(format!("{error:#}").contains("there is no process"), "{error:#}");
    }

    #[test]
    fn memory_is_read() {
        let own = i32::try_from(std::process::id()).unwrap();
        let memory = Memory::of(&[own]).unwrap().unwrap();
        assert!(memory.rss_kib >= memory.pss_kib && memory.pss_kib > 100, "{memory:?}");
        assert!(resident_kib(&[own]).is_some() && Memory::of(&[]).unwrap().is_none());
    }
}
