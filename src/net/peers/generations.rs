//! The generation of this server's data, and the consequences of meeting another one. It also has the last stranger: a
//! server with data of this cluster that this server does not know.
//!
//! Shared by the listener, which hears handshakes, the senders, which hear answers, and the consensus actor, which
//! takes data over. No operation waits, except that `outdated` may.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use corral_consensus::ServerId;
use corral_peer::Generation;

use crate::net::peers::limits::STRANGER_COUNTS_FOR;

const OLDER: &str = "its data are older than the rescue (`corral rescue`, `restore` or `import`) that this server's come from; empty its data directory \
                     but for `myid`, and start it";

const LATER_UNPROVEN: &str = "it says that its data come from a rescue (`corral rescue`, `restore` or `import`), and has not proven which server it is; \
                              that server is dialled to find out";

/// The generation of this server's data, and the other generations that it met.
pub(crate) struct Generations {
    own: AtomicU64,
    /// A server with data of a rescued ensemble was met.
    met_rescued: AtomicBool,
    /// The last server that knocked, holds data of this cluster, and is none that this server knows.
    stranger: Mutex<Option<(ServerId, Instant)>>,
    /// Told of the server that has later data.
    outdated: Box<dyn Fn(ServerId) + Send + Sync>,
}

impl Generations {
    /// `outdated` is called, on a thread of the connections, with a server that has data of a later generation.
    pub(crate) fn new(own: Generation, outdated: impl Fn(ServerId) + Send + Sync + 'static) -> Generations {
        let (own, met_rescued) = (AtomicU64::new(own.0), AtomicBool::new(false));
        Generations { own, met_rescued, stranger: Mutex::new(None), outdated: Box::new(outdated) }
    }

    /// A server that this one does not know has knocked.
    pub(crate) fn knocked(&self, peer: ServerId, told: Generation) {
        if told != Generation::NONE {
            *self.stranger.lock().unwrap_or_else(PoisonError::into_inner) = Some((peer, Instant::now()));
        }
    }

    /// The last server that holds data of this cluster, is unknown to this server, and connected lately. While there is
    /// one, no new ensemble may begin.
    pub(crate) fn stranger(&self) -> Option<ServerId> {
        let last = *self.stranger.lock().unwrap_or_else(PoisonError::into_inner);
        last.filter(|(_, at)| at.elapsed() < STRANGER_COUNTS_FOR).map(|(peer, _)| peer)
    }

    pub(crate) fn own(&self) -> Generation {
        Generation(self.own.load(Ordering::SeqCst))
    }

    /// A server tells its generation. Gives the reason if the two must not exchange messages.
    pub(crate) fn meet(&self, peer: ServerId, told: Generation) -> Option<&'static str> {
        self.note_rescued(told);
        let own = self.own();
        if !own.is_apart_from(told) {
            return None;
        }
        if own > told {
            return Some(OLDER);
        }
        (self.outdated)(peer);
        Some(
            "its data come from a rescue (`corral rescue`, `restore` or `import`), and this server's are older; this server stops",
        )
    }

    /// As [`Generations::meet`] for a server without a proof, but `outdated` is not called.
    pub(crate) fn hear(&self, told: Generation) -> Option<&'static str> {
        self.note_rescued(told);
        let own = self.own();
        own.is_apart_from(told).then_some(if own > told { OLDER } else { LATER_UNPROVEN })
    }

    fn note_rescued(&self, told: Generation) {
        if told != Generation::FIRST && told != Generation::NONE {
            self.met_rescued.store(true, Ordering::SeqCst);
        }
    }

    /// The data are another ensemble's from now on. Returns whether a present connection may be with a server of
    /// another generation. While this server held no data, it could connect to any.
    pub(crate) fn adopt(&self, generation: Generation) -> bool {
        let before = self.own.swap(generation.0, Ordering::SeqCst);
        before != generation.0 && (generation != Generation::FIRST || self.met_rescued.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const LATER: Generation = Generation(7);

    #[test]
    fn the_older_one_is_told() {
        let told = Arc::new(AtomicU64::new(0));
        let tell = Arc::clone(&told);
        let old = Generations::new(Generation::FIRST, move |peer| tell.store(peer.wide(), Ordering::SeqCst));
        assert_eq!((old.meet(ServerId(2), Generation::FIRST), old.meet(ServerId(2), Generation::NONE)), (None, None));
        assert_eq!(told.load(Ordering::SeqCst), 0);
        assert!(old.meet(ServerId(2), LATER).is_some_and(|words| words.contains("this server stops")));
        assert_eq!(told.load(Ordering::SeqCst), 2);
        let new = Generations::new(LATER, |_| panic!("nobody is later"));
        assert!(
            new.meet(ServerId(3), Generation::FIRST).is_some_and(|words| words.contains("empty its data directory"))
        );
        assert_eq!(new.meet(ServerId(3), LATER), None);
    }

    #[test]
    fn a_stranger_counts_if_it_holds_something() {
        let generations = Generations::new(Generation::NONE, |_| ());
        generations.knocked(ServerId(4), Generation::NONE);
        assert_eq!(generations.stranger(), None);
        generations.knocked(ServerId(5), Generation::FIRST);
        assert_eq!(generations.stranger(), Some(ServerId(5)));
    }

    #[test]
    fn who_held_nothing_dials_anew_where_somebody_was_rescued() {
        let adopts = |met: Option<Generation>, becomes| {
            let uninitialised = Generations::new(Generation::NONE, |_| panic!("nothing is older than nothing"));
            assert!(met.is_none_or(|met| uninitialised.meet(ServerId(2), met).is_none()));
            let anew = uninitialised.adopt(becomes);
            assert_eq!(uninitialised.own(), becomes);
            assert!(!uninitialised.adopt(becomes));
            anew
        };
        assert!(!adopts(None, Generation::FIRST) && !adopts(Some(Generation::NONE), Generation::FIRST));
        assert!(adopts(Some(LATER), Generation::FIRST) && adopts(None, LATER));
    }
}
