//! The watchdog: a plain thread that sees whether every executor's heart beats. One that does not is named in the log
//! and kicked with a signal, which ends a sleep that should not be; one that stays frozen ends the process.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::sys::pthread::{Pthread, pthread_kill, pthread_self};
use nix::sys::signal::Signal;
use nix::unistd::{Pid, gettid};

use crate::actor::messages::Ending;
use crate::exit::{ExitCode, Fault};

/// What an executor's thread shows of itself.
#[derive(Debug)]
pub(crate) struct Pulse {
    name: String,
    beats: AtomicU64,
    thread: Pthread,
    /// The same thread, as the kernel calls it.
    tid: Pid,
    ended: AtomicBool,
}

impl Pulse {
    /// To be called on the executor's own thread.
    pub(crate) fn of_this_thread(name: String) -> Arc<Pulse> {
        Arc::new(Pulse {
            name,
            beats: AtomicU64::new(0),
            thread: pthread_self(),
            tid: gettid(),
            ended: AtomicBool::new(false),
        })
    }

    pub(crate) fn beat(&self) {
        self.beats.fetch_add(1, Ordering::Relaxed);
    }

    /// The thread is about to end and is not to be signalled any more.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }
}

/// How long a heart may stand still.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Until it is logged and kicked.
    pub(crate) frozen: Duration,
    /// Until the process ends.
    pub(crate) exit: Duration,
}

struct Watched {
    pulse: Arc<Pulse>,
    beats: u64,
    since: Instant,
    /// What the thread had waited for a CPU at that time, ns.
    waited_ns: u64,
    kicks: u32,
}

/// Watches the pulses that come in until the sender of pulses is gone. `freezes` counts each time a heart stood still.
pub(crate) fn run(
    patience: Patience,
    pulses: &flume::Receiver<Arc<Pulse>>,
    freezes: &AtomicU64,
    endings: &flume::Sender<Ending>,
) {
    let kick_flag = Arc::new(AtomicBool::new(false));
    if let Err(error) = signal_hook::flag::register(signal_hook::consts::SIGURG, kick_flag) {
        tracing::warn!("a frozen core can be seen but not kicked: {error}");
    }
    let mut watched: Vec<Watched> = Vec::new();
    loop {
        match pulses.recv_timeout(patience.frozen / 4) {
            Ok(pulse) => watched.push(Watched { pulse, beats: 0, since: Instant::now(), waited_ns: 0, kicks: 0 }),
            Err(flume::RecvTimeoutError::Timeout) => {}
            Err(flume::RecvTimeoutError::Disconnected) => return,
        }
        watched.retain(|one| !one.pulse.ended.load(Ordering::Acquire));
        for one in &mut watched {
            if let Some(fault) = look(one, patience, freezes) {
                let _ = endings.send(Ending::Failed(fault));
                return;
            }
        }
    }
}

fn look(one: &mut Watched, patience: Patience, freezes: &AtomicU64) -> Option<Fault> {
    let beats = one.pulse.beats.load(Ordering::Relaxed);
    let still = one.since.elapsed();
    if beats != one.beats {
        if one.kicks > 0 {
            tracing::warn!(executor = %one.pulse.name, kicks = one.kicks, still_ms = still.as_millis(), "the core goes on");
        }
        (one.beats, one.since, one.kicks) = (beats, Instant::now(), 0);
        one.waited_ns = waited_ns(one.pulse.tid);
        return None;
    }
    let name = &one.pulse.name;
    if still >= patience.exit {
        let sentence = format!(
            "{name} made no progress for {} ms; the process ends so that it can be restarted",
            still.as_millis()
        );
        return Some(Fault::new(ExitCode::WatchdogFrozen, sentence));
    }
    if still >= patience.frozen * (one.kicks + 1) {
        if one.kicks == 0 {
            freezes.fetch_add(1, Ordering::Relaxed);
        }
        one.kicks += 1;
        let waited_ms = waited_ns(one.pulse.tid).saturating_sub(one.waited_ns) / 1_000_000;
        let state = kernel_state(one.pulse.tid);
        tracing::error!(executor = %name, beats, still_ms = still.as_millis(), waited_for_cpu_ms = waited_ms, %state, "a core stands still; kicked");
        let _ = pthread_kill(one.pulse.thread, Signal::SIGURG);
    }
    None
}

/// How long a thread has been ready to run without a CPU since it began, ns; 0 where the kernel does not count.
fn waited_ns(tid: Pid) -> u64 {
    let text = fs::read_to_string(format!("/proc/self/task/{tid}/schedstat")).unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|field| field.parse().ok()).unwrap_or(0)
}

/// What the kernel says a thread is doing: its state letter, the number of the system call it is in, where it sleeps.
fn kernel_state(tid: Pid) -> String {
    let read = |file: &str| fs::read_to_string(format!("/proc/self/task/{tid}/{file}")).unwrap_or_default();
    let stat = read("stat");
    let letter = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next()).unwrap_or("?");
    let call = read("syscall");
    let call = call.split_whitespace().next().unwrap_or("?");
    // The innermost functions; only root may see them.
    let stack = read("stack");
    let frames = stack.lines().take(8).filter_map(|line| line.split_whitespace().nth(1));
    format!("{letter}, system call {call}, {} {}", read("wchan"), frames.collect::<Vec<_>>().join(" < "))
}
