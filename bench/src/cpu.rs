//! The processes of `--pid`: their CPU time, their memory, and whether they listen where the load goes.
//!
//! CPU time is read from the kernel's CPU clock of each process: on-CPU nanoseconds of all its threads, the ended ones
//! included. Tick-based figures (`utime`) miss what runs between ticks. Runs on the coordinating thread.

use std::fs;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use serde::Serialize;

/// Follows the CPU time of processes, all together.
#[derive(Debug)]
pub(crate) struct CpuClock {
    clocks: Vec<(i32, ClockId)>,
    base_ns: u64,
}

impl CpuClock {
    /// Starts to follow the processes, from zero. Fails if one of them does not exist.
    pub(crate) fn of(pids: &[i32]) -> Result<Self> {
        let clock = |pid: &i32| {
            // The clock's number has room for the process ids that exist, not for all integers.
            fs::metadata(format!("/proc/{pid}")).with_context(|| format!("there is no process {pid}"))?;
            Ok((*pid, clock_getcpuclockid(Pid::from_raw(*pid))?))
        };
        let mut this = Self { clocks: pids.iter().map(clock).collect::<Result<_>>()?, base_ns: 0 };
        this.restart()?;
        Ok(this)
    }

    pub(crate) fn own() -> Result<Self> {
        Self::of(&[i32::try_from(std::process::id())?])
    }

    pub(crate) fn restart(&mut self) -> Result<()> {
        self.base_ns = self.now_ns()?;
        Ok(())
    }

    /// Nanoseconds on CPU of all threads since the start or restart. `None` if there are no processes.
    pub(crate) fn elapsed_ns(&self) -> Result<Option<u64>> {
        let elapsed = self.now_ns()?.saturating_sub(self.base_ns);
        Ok((!self.clocks.is_empty()).then_some(elapsed))
    }

    fn now_ns(&self) -> Result<u64> {
        let of = |(pid, clock): &(i32, ClockId)| {
            let time = clock_gettime(*clock).with_context(|| format!("process {pid} is gone"))?;
            Ok(u64::try_from(time.tv_sec())? * 1_000_000_000 + u64::try_from(time.tv_nsec())?)
        };
        self.clocks.iter().map(of).sum()
    }
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
            sum.anonymous_kib += read("Anonymous")?;
        }
        Ok((!pids.is_empty()).then_some(sum))
    }
}

/// A warning for each process that does not listen on the port of one of the servers. Its CPU time and memory are
/// reported as the server's. A process with unreadable sockets is not judged.
pub(crate) fn doubts(pids: &[i32], servers: &[SocketAddr]) -> Vec<String> {
    let known: Vec<(i32, Vec<u16>)> = pids.iter().filter_map(|pid| Some((*pid, ports(*pid)?))).collect();
    let serves = |ports: &[u16]| servers.iter().any(|server| ports.contains(&server.port()));
    // A load on the leader alone has the followers' processes accounted too: they listen, but elsewhere.
    let ensemble = known.iter().any(|(_, ports)| serves(ports));
    let doubtful = known.into_iter().filter(|(_, ports)| !serves(ports) && (ports.is_empty() || !ensemble));
    doubtful.map(|(pid, _)| doubt(pid, servers)).collect()
}

fn doubt(pid: i32, servers: &[SocketAddr]) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = name.trim().replace(char::is_control, "?");
    let servers = servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
    format!(
        "process {pid} ({name}) does not listen on {servers}: is --pid the server's? Its CPU time and memory are reported"
    )
}

/// The TCP ports that a process listens on; `None` if its sockets cannot be read.
fn ports(pid: i32) -> Option<Vec<u16>> {
    let link = |entry: fs::DirEntry| fs::read_link(entry.path()).ok()?.into_os_string().into_string().ok();
    let own: Vec<String> = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten().filter_map(link).collect();
    let listening = |line: &str| {
        // The local address ends with the port in hexadecimal; 0A is TCP_LISTEN.
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let (local, state, inode) = (words.get(1)?, words.get(3)?, words.get(9)?);
        let held = *state == "0A" && own.contains(&format!("socket:[{inode}]"));
        u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok().filter(|_| held)
    };
    // A machine may have no IPv6.
    let table = |name| fs::read_to_string(format!("/proc/{pid}/net/{name}")).unwrap_or_default();
    Some([table("tcp"), table("tcp6")].iter().flat_map(|text| text.lines()).filter_map(listening).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_known_by_their_clock_memory_and_ports() {
        let own = i32::try_from(std::process::id()).unwrap();
        let clock = CpuClock::own().unwrap();
        let thread = std::thread::spawn(|| {
            let now = || clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().tv_nsec();
            let start = now();
            while now() - start < 1_000_000 {}
        });
        thread.join().unwrap();
        assert!(clock.elapsed_ns().unwrap() >= Some(1_000_000), "the CPU time of ended threads counts");
        let error = CpuClock::of(&[i32::MAX]).map(|_| ()).expect_err("no process has the highest number");
        assert!(format!("{error:#}").contains("there is no process"), "{error:#}");
        let memory = Memory::of(&[own]).unwrap().unwrap();
        assert!(memory.rss_kib >= memory.anonymous_kib && memory.anonymous_kib > 100, "{memory:?}");
        assert_eq!(Memory::of(&[]).unwrap(), None);
        let here = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let server = here.local_addr().unwrap();
        assert_eq!(doubts(&[own, i32::MAX], &[server]), Vec::<String>::new(), "what does not exist is not judged");
        let doubt = doubts(&[own], &[SocketAddr::new(server.ip(), 1)]).pop().unwrap();
        assert!(doubt.contains(&format!("process {own} (")) && doubt.contains(":1: is --pid"), "{doubt}");
    }
}
