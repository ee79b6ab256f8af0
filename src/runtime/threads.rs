//! Plain threads: named, and pinned to a CPU if one is configured.

use std::thread;

use crate::exit::{ExitCode, Fault};

/// The nice value of threads that give way to the shards.
const NICE: i32 = 10;

/// From here on this thread gives way to the shards on the same CPU.
pub(crate) fn lower_priority() {
    let me = rustix::thread::gettid();
    if let Err(error) = rustix::process::setpriority_process(Some(me), NICE) {
        tracing::warn!("a thread keeps the default priority: {error}");
    }
}

/// Starts a thread that may run on any CPU.
///
/// # Errors
/// When the system has no thread left.
pub(crate) fn start(name: &str, run: impl FnOnce() + Send + 'static) -> Result<thread::JoinHandle<()>, Fault> {
    start_pinned(name, None, run)
}

/// Starts a thread, on this CPU alone if there is one.
///
/// # Errors
/// When the system has no thread left.
pub(crate) fn start_pinned(
    name: &str,
    cpu: Option<u32>,
    run: impl FnOnce() + Send + 'static,
) -> Result<thread::JoinHandle<()>, Fault> {
    let pinned = move || {
        if let Some(cpu) = cpu {
            pin(cpu);
        }
        run();
    };
    let thread = thread::Builder::new().name(name.to_owned()).spawn(pinned);
    thread.map_err(|error| Fault::new(ExitCode::Internal, format!("thread {name} cannot start: {error}")))
}

fn pin(cpu: u32) {
    let mut set = nix::sched::CpuSet::new();
    let pinned =
        set.set(cpu as usize).and_then(|()| nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set));
    if let Err(error) = pinned {
        tracing::warn!(cpu, "the thread is not pinned: {error}");
    }
}
