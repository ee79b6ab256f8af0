//! The watchdog: a plain thread that checks the heartbeat of every executor. A stalled executor is logged and sent a
//! wake-up signal, which ends a sleep that should not be. If the executor sleeps on, the process ends.
//!
//! A core that computes never ends the process, however long it takes. It may compute entries of the log, and a restart
//! would compute them again (decision 0020). It is reported again and again.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::sys::pthread::{Pthread, pthread_kill, pthread_self};
use nix::sys::signal::Signal;
use nix::unistd::{Pid, gettid};

use crate::exit::Ending;
use crate::exit::{ExitCode, Fault};
use crate::runtime::clock::whole_ms;
use crate::runtime::complaint::Complaint;

/// The state of an executor's thread for the watchdog.
#[derive(Debug)]
pub(crate) struct Pulse {
    name: String,
    heartbeats: AtomicU64,
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
            heartbeats: AtomicU64::new(0),
            thread: pthread_self(),
            tid: gettid(),
            ended: AtomicBool::new(false),
        })
    }

    pub(crate) fn heartbeat(&self) {
        self.heartbeats.fetch_add(1, Ordering::Relaxed);
    }

    /// The thread is about to end and is not to be signalled any more.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }
}

/// How long an executor may go without a heartbeat.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Until it is logged and sent a wake-up signal.
    pub(crate) frozen: Duration,
    /// Until the process ends, if the thread sleeps all the while; also between two reports of a computing thread.
    pub(crate) exit: Duration,
}

/// An executor that has had no heartbeat yet is given this many times the limits.
const STARTING_FACTOR: u32 = 20;

/// Time on a CPU within `Limits::frozen` that makes a thread a computing one: the handling of a wake-up signal takes
/// some microseconds.
const COMPUTES: Duration = Duration::from_millis(1);

/// The state of a thread that the kernel does not tell, for want of a descriptor for example.
const UNKNOWN: char = '?';

struct Watched {
    pulse: Arc<Pulse>,
    heartbeats: u64,
    since: Instant,
    /// The kernel's counts for the thread when it was first seen to stall. To ask at every heartbeat would cost a
    /// quarter of an idle server's work.
    times: Option<CpuTimes>,
    signals: u32,
    /// Since when the thread seems to have slept, and the kernel's counts then.
    asleep: Option<(Instant, CpuTimes)>,
    /// Reports that it computes, in the present stall.
    reports: u32,
    stalls: Complaint,
    /// How many so far, if the present one was logged.
    told: Option<u64>,
}

/// Watches the pulses that come in until the sender of pulses is gone. Each stall is noted.
pub(crate) fn run(
    limits: Limits,
    pulses: &flume::Receiver<Arc<Pulse>>,
    note_stall: &dyn Fn(),
    endings: &flume::Sender<Ending>,
) {
    let signal_flag = Arc::new(AtomicBool::new(false));
    if let Err(error) = signal_hook::flag::register(signal_hook::consts::SIGURG, signal_flag) {
        tracing::warn!("a core that makes no progress can be reported but not woken: {error}");
    }
    let mut watched: Vec<Watched> = Vec::new();
    loop {
        match pulses.recv_timeout(limits.frozen / 4) {
            Ok(pulse) => watched.push(Watched {
                pulse,
                heartbeats: 0,
                since: Instant::now(),
                times: None,
                signals: 0,
                asleep: None,
                reports: 0,
                stalls: Complaint::default(),
                told: None,
            }),
            Err(flume::RecvTimeoutError::Timeout) => {}
            Err(flume::RecvTimeoutError::Disconnected) => return,
        }
        watched.retain(|one| !one.pulse.ended.load(Ordering::Acquire));
        for one in &mut watched {
            if let Some(fault) = look(one, limits, note_stall) {
                let _ = endings.send(Ending::Failed(fault));
                return;
            }
        }
    }
}

fn look(one: &mut Watched, limits: Limits, note_stall: &dyn Fn()) -> Option<Fault> {
    let heartbeats = one.pulse.heartbeats.load(Ordering::Relaxed);
    let still = one.since.elapsed();
    let name = &one.pulse.name;
    if heartbeats != one.heartbeats {
        if let Some(times) = one.told.take() {
            tracing::warn!(executor = %name, signals = one.signals, still_ms = whole_ms(still), times, "the core makes progress again");
        }
        (one.heartbeats, one.since, one.times, one.signals) = (heartbeats, Instant::now(), None, 0);
        (one.asleep, one.reports) = (None, 0);
        return None;
    }
    // A look or two after the last heartbeat. Counts until then are not the stall's own time.
    let before = *one.times.get_or_insert_with(|| CpuTimes::of(one.pulse.tid));
    // Making an executor takes longer than the interval of a heartbeat.
    let frozen = if heartbeats == 0 { limits.frozen * STARTING_FACTOR } else { limits.frozen };
    if still < frozen * (one.signals + 1) {
        return None;
    }
    let thread = Thread::look_at(one.pulse.tid);
    let own = thread.own_time(still, &before);
    if one.signals == 0 {
        note_stall();
        // A busy host has many cores wait for a CPU; each other stall is worth a line.
        let told = one.stalls.again(Instant::now());
        one.told = if own < limits.frozen { told } else { Some(one.stalls.count()) };
        if let Some(times) = one.told {
            let (still_ms, own_ms) = (whole_ms(still), whole_ms(own));
            tracing::warn!(executor = %name, still_ms, own_ms, state = %thread.state, sleeps_in = %thread.stack, times, "a core makes no progress: its thread was sent a signal to wake it");
        }
    }
    one.signals += 1;
    let _ = pthread_kill(one.pulse.thread, Signal::SIGURG);
    if still >= limits.exit * (one.reports + 1) {
        one.reports += 1;
        let (still_ms, own_ms) = (whole_ms(still), whole_ms(own));
        tracing::warn!(executor = %name, still_ms, own_ms, state = %thread.state, "a core has been busy with one piece of work for long; it continues");
    }
    let (since, then) = one.asleep.get_or_insert((one.since, before));
    let asleep = thread.asleep(since.elapsed(), then);
    if asleep.is_zero() {
        one.asleep = Some((Instant::now(), thread.times));
    }
    if asleep < limits.exit {
        return None;
    }
    let sentence = format!(
        "{name} made no progress for {} ms and slept for the last {} ms of them; the process ends so that it can be \
         restarted (state {}, {})",
        still.as_millis(),
        asleep.as_millis(),
        thread.state,
        thread.stack
    );
    Some(Fault::new(ExitCode::WatchdogFrozen, sentence))
}

/// The kernel's counts for a thread, both in ns; 0 where it does not count.
#[derive(Clone, Copy, Debug, Default)]
struct CpuTimes {
    on_cpu: u64,
    waited: u64,
}

impl CpuTimes {
    fn of(tid: Pid) -> CpuTimes {
        let text = fs::read_to_string(format!("/proc/self/task/{tid}/schedstat")).unwrap_or_default();
        let mut fields = text.split_whitespace().map_while(|field| field.parse().ok());
        CpuTimes { on_cpu: fields.next().unwrap_or(0), waited: fields.next().unwrap_or(0) }
    }
}

/// The activity of a thread, as the kernel reports it.
struct Thread {
    /// `R` ready or running, `S` asleep, `D` held by the kernel.
    state: char,
    /// The innermost functions it sleeps in; only root may see them.
    stack: String,
    times: CpuTimes,
}

impl Thread {
    fn look_at(tid: Pid) -> Thread {
        let read = |file: &str| fs::read_to_string(format!("/proc/self/task/{tid}/{file}")).unwrap_or_default();
        let stat = read("stat");
        let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next()).unwrap_or(UNKNOWN);
        let stack = read("stack");
        let frames: Vec<&str> = stack.lines().take(4).filter_map(|line| line.split_whitespace().nth(1)).collect();
        Thread { state, stack: frames.join(" < "), times: CpuTimes::of(tid) }
    }

    /// How much of the time since `before` was counted the thread has slept; nothing if it has computed meanwhile, or
    /// is ready to. Nothing either if the kernel's files cannot be read.
    fn asleep(&self, elapsed: Duration, before: &CpuTimes) -> Duration {
        let on_cpu = Duration::from_nanos(self.times.on_cpu.saturating_sub(before.on_cpu));
        let waited = Duration::from_nanos(self.times.waited.saturating_sub(before.waited));
        if matches!(self.state, 'R' | UNKNOWN) || on_cpu > COMPUTES {
            Duration::ZERO
        } else {
            elapsed.saturating_sub(waited + on_cpu)
        }
    }

    /// The part of a stall that is not waiting for a CPU. The kernel counts a wait when it ends. So the present wait of
    /// a ready thread is counted neither as running nor as waited.
    fn own_time(&self, still: Duration, before: &CpuTimes) -> Duration {
        let on_cpu = Duration::from_nanos(self.times.on_cpu.saturating_sub(before.on_cpu));
        let waited = Duration::from_nanos(self.times.waited.saturating_sub(before.waited));
        if self.state == 'R' { on_cpu.min(still) } else { still.saturating_sub(waited) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_that_computes_does_not_end_the_process() {
        let before = CpuTimes { on_cpu: 5_000_000, waited: 7_000_000 };
        let check = |state, on_cpu_us: u64, waited_ms: u64, asleep_ms: u64| {
            let times =
                CpuTimes { on_cpu: before.on_cpu + on_cpu_us * 1000, waited: before.waited + waited_ms * 1_000_000 };
            let thread = Thread { state, stack: String::new(), times };
            let asleep = thread.asleep(Duration::from_millis(10_000), &before);
            assert_eq!(asleep.as_millis(), u128::from(asleep_ms), "{state} {on_cpu_us} {waited_ms}");
        };
        // Asleep all the time; held by the kernel; waiting for a CPU for most of it.
        check('S', 0, 0, 10_000);
        check('D', 0, 0, 10_000);
        check('S', 0, 9000, 1000);
        // A signal wakes it for a moment and it falls asleep again.
        check('S', 100, 0, 9999);
        // A replay, an expensive entry: computes, waits for a CPU, reads a page of a snapshot now and then.
        check('R', 10_000_000, 0, 0);
        check('R', 0, 10_000, 0);
        check('D', 2000, 0, 0);
        // Nothing is known of it: no descriptor is left.
        check(UNKNOWN, 0, 0, 0);
    }

    #[test]
    fn waiting_for_a_cpu_is_no_stall() {
        let before = CpuTimes { on_cpu: 5_000_000, waited: 7_000_000 };
        let check = |state, on_cpu_ms: u64, waited_ms: u64, own_ms: u64| {
            let times = CpuTimes {
                on_cpu: before.on_cpu + on_cpu_ms * 1_000_000,
                waited: before.waited + waited_ms * 1_000_000,
            };
            let thread = Thread { state, stack: String::new(), times };
            let own = thread.own_time(Duration::from_millis(1000), &before);
            assert_eq!(own, Duration::from_millis(own_ms), "{state} {on_cpu_ms} {waited_ms}");
        };
        // Asleep all the time; asleep but for a wait; held by the kernel.
        check('S', 0, 0, 1000);
        check('S', 0, 900, 100);
        check('D', 10, 0, 1000);
        // Ready and never given a CPU; spinning; both by turns.
        check('R', 0, 0, 0);
        check('R', 1000, 0, 1000);
        check('R', 300, 100, 300);
    }
}
