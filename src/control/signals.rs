//! Signals, from the first moment of `serve` on. A thread of their own receives them and stores that the server is to
//! stop. It passes everything on once there is an actor to take it.
//!
//! Any thread may ask how long the server has been told to stop. It does not know what a stop takes.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use corral_engine::Event;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals as Handlers;

use super::service;
use crate::exit::{ExitCode, Fault};
use crate::messages::ToConsensus;
use crate::runtime::mailbox::Post;

/// The signals received so far. SIGTERM and SIGINT stop in good order, SIGUSR1 asks for a snapshot, SIGHUP has files
/// read or opened again.
#[derive(Clone)]
pub(crate) struct Signals {
    received: Arc<Received>,
    /// Holds something from the first wish to stop on.
    stop: flume::Receiver<()>,
}

#[derive(Default)]
struct Received {
    stops: AtomicU32,
    first_stop: OnceLock<Instant>,
    actor: OnceLock<Post<ToConsensus>>,
    /// Called at SIGHUP. None of them waits.
    reloads: Mutex<Vec<Box<dyn Fn() + Send>>>,
}

impl Signals {
    /// Takes the signals over for the rest of the process.
    ///
    /// # Errors
    /// When the handlers cannot be installed.
    pub(crate) fn take_over() -> Result<Signals, Fault> {
        let failed = |error: std::io::Error| Fault::new(ExitCode::Internal, format!("cannot handle signals: {error}"));
        let mut handlers = Handlers::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1]).map_err(failed)?;
        let (wish, stop) = flume::bounded(1);
        let signals = Signals { received: Arc::default(), stop };
        let received = Arc::clone(&signals.received);
        let listen = move || {
            for signal in handlers.forever() {
                match signal {
                    SIGHUP => received.reload(),
                    SIGTERM | SIGINT => {
                        received.stop();
                        // There is one already if this is not the first.
                        let _ = wish.try_send(());
                    }
                    _ => received.pass_on(Event::SnapshotRequested),
                }
            }
        };
        thread::Builder::new().name("signals".to_owned()).spawn(listen).map_err(failed)?;
        Ok(signals)
    }

    /// From here on the actor is told; also of a stop that was asked for before.
    pub(crate) fn pass_on_to(&self, actor: Post<ToConsensus>) {
        assert!(self.received.actor.set(actor).is_ok(), "there is one consensus actor");
        if self.is_to_stop() {
            self.received.pass_on(Event::Stop);
        }
    }

    /// From here on this is called at SIGHUP too. It must not wait.
    pub(crate) fn reload_by(&self, reload: impl Fn() + Send + 'static) {
        self.received.reloads().push(Box::new(reload));
    }

    /// Whether the server was told to stop.
    pub(crate) fn is_to_stop(&self) -> bool {
        self.received.stops.load(Ordering::SeqCst) > 0
    }

    /// Holds a message once the server is to stop, for a thread that waits for something else too.
    pub(crate) fn stop(&self) -> &flume::Receiver<()> {
        &self.stop
    }

    /// Waits for the only message of a thread. `None` when the server is told to stop before that.
    ///
    /// # Errors
    /// If the thread ended without a message.
    pub(crate) fn wait_for<T>(&self, outcome: &flume::Receiver<T>) -> Option<Result<T, flume::RecvError>> {
        let told = flume::Selector::new().recv(outcome, Some).recv(&self.stop, |_| None).wait()?;
        // The selector looks for a message, and then for senders. Both may go between the two looks.
        Some(told.or_else(|error| outcome.try_recv().map_err(|_| error)))
    }

    /// Whether a stop need not wait any longer: it was asked for so long ago, or again.
    pub(crate) fn is_overdue(&self, timeout: Duration) -> bool {
        let waited = self.received.first_stop.get().map(Instant::elapsed);
        self.received.stops.load(Ordering::SeqCst) > 1 || waited.is_some_and(|waited| waited >= timeout)
    }
}

impl Received {
    fn stop(&self) {
        self.first_stop.get_or_init(Instant::now);
        self.stops.fetch_add(1, Ordering::SeqCst);
        self.pass_on(Event::Stop);
        service::stopping();
    }

    fn reload(&self) {
        self.reloads().iter().for_each(|reload| reload());
    }

    fn reloads(&self) -> MutexGuard<'_, Vec<Box<dyn Fn() + Send>>> {
        self.reloads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pass_on(&self, event: Event) {
        // An actor that is gone needs no message.
        self.actor.get().map(|actor| actor.send(event.into()).ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::mailbox::{Bell, mailbox};

    fn no_signals() -> Signals {
        Signals { received: Arc::default(), stop: flume::bounded(1).1 }
    }

    #[test]
    fn a_stop_is_passed_on_whenever_it_comes() {
        let stops = |inbox: &flume::Receiver<ToConsensus>| {
            inbox.try_iter().filter(|message| matches!(message, ToConsensus::Event(Event::Stop))).count()
        };
        let bell = Bell::new().expect("files can be opened");
        let (early, (post, inbox)) = (no_signals(), mailbox(&bell));
        early.received.stop();
        early.pass_on_to(post);
        assert_eq!(stops(&inbox), 1);
        let (late, (post, inbox)) = (no_signals(), mailbox(&bell));
        late.pass_on_to(post);
        assert!(!late.is_to_stop() && stops(&inbox) == 0);
        late.received.stop();
        assert!(late.is_to_stop() && stops(&inbox) == 1);
    }

    #[test]
    fn timeout_ends_with_time_or_when_asked_again() {
        let signals = no_signals();
        let (short, long) = (Duration::ZERO, Duration::from_secs(3600));
        assert!(!signals.is_overdue(short), "nobody has asked for a stop");
        signals.received.stop();
        assert!(signals.is_overdue(short) && !signals.is_overdue(long));
        signals.received.stop();
        assert!(signals.is_overdue(long));
    }
}
