//! One pinned thread with one executor: the thread's life, its heartbeat, its end.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use glommio::timer::Timer;
use glommio::{GlommioError, LocalExecutorBuilder, Placement};
use nix::errno::Errno;

use crate::config::Config;
use crate::config::cores::ExecutorPlan;
use crate::exit::{ExitCode, Fault};
use crate::runtime::memory;
use crate::runtime::turn::Turn;
use crate::runtime::watchdog::Pulse;

/// Timers of the heartbeat, each twice as long as the one before.
const TIMERS: u32 = 11;

/// How an executor is set up.
pub(crate) struct ExecutorSettings {
    pub(crate) plan: ExecutorPlan,
    pub(crate) io_memory_bytes: usize,
    pub(crate) heartbeat_busy: Duration,
    pub(crate) heartbeat_idle: Duration,
}

impl ExecutorSettings {
    pub(crate) fn new(config: &Config, plan: &ExecutorPlan) -> ExecutorSettings {
        ExecutorSettings {
            plan: plan.clone(),
            io_memory_bytes: config.runtime.io_memory_bytes as usize,
            heartbeat_busy: Duration::from_millis(u64::from(config.runtime.heartbeat_busy_ms)),
            heartbeat_idle: Duration::from_millis(u64::from(config.runtime.heartbeat_idle_ms)),
        }
    }
}

/// Runs `main` on a fresh executor on this very thread until it ends; a heartbeat runs beside it.
///
/// # Errors
/// When the executor cannot be made.
pub(crate) fn run<F, M>(settings: &ExecutorSettings, pulse: Arc<Pulse>, main: M) -> Result<(), Fault>
where
    M: FnOnce(Rc<Turn>) -> F,
    F: Future<Output = ()> + 'static,
{
    let plan = &settings.plan;
    let placement = plan.cpu.map_or(Placement::Unbound, |cpu| Placement::Fixed(cpu as usize));
    let executor = LocalExecutorBuilder::new(placement)
        .name(&plan.name())
        .ring_depth(plan.ring_depth as usize)
        .io_memory(settings.io_memory_bytes)
        .make()
        .map_err(|error| fault(plan, &error))?;
    let micros = |us: u32| Duration::from_micros(u64::from(us));
    let turn = Rc::new(Turn::new(micros(plan.turn_budget_us), micros(plan.poll_us)));
    let (busy, idle) = (settings.heartbeat_busy, settings.heartbeat_idle);
    executor.run(async move {
        glommio::spawn_local(heartbeat(busy, idle, Rc::clone(&turn), pulse)).detach();
        main(turn).await;
    });
    Ok(())
}

/// The fault when an executor cannot be made, and the remedy.
fn fault(plan: &ExecutorPlan, error: &GlommioError<()>) -> Fault {
    let name = plan.name();
    let no_memory = matches!(error, GlommioError::IoError(io) if io.raw_os_error() == Some(Errno::ENOMEM as i32));
    if no_memory {
        let sentence = format!(
            "executor {name} cannot start: the kernel has no locked memory left for an io_uring of {} entries; raise \
            RLIMIT_MEMLOCK (`ulimit -l`, LimitMEMLOCK=), which all processes of a user share, or set runtime.shards = 1",
            plan.ring_depth
        );
        return Fault::new(ExitCode::MemlockTooLow, sentence);
    }
    Fault::new(ExitCode::Internal, format!("executor {name} cannot start: {error}"))
}

/// Keeps a series of timers pending, so that no lost wake-up lasts. Each tick arms all timers anew, and the first timer
/// to fire is the next tick. One timer is not enough, because its wake-up may be the lost one.
async fn heartbeat(busy: Duration, idle: Duration, turn: Rc<Turn>, pulse: Arc<Pulse>) {
    let mut seen = 0;
    loop {
        pulse.heartbeat();
        seen = memory::take_back_if_asked(seen);
        let base = if turn.was_busy() { busy } else { idle };
        let mut timers: Vec<Timer> = (0..TIMERS).map(|doubling| Timer::new(base * (1 << doubling))).collect();
        poll_fn(|cx| {
            let mut due = false;
            for timer in &mut timers {
                due |= Pin::new(timer).poll(cx).is_ready();
            }
            if due { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}
