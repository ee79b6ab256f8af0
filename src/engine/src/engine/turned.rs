//! The stages of a turn, and its result.

use corral_consensus::Micros;

/// The result of [`crate::Engine::turn`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "it states when the next turn is due"]
pub enum Turned {
    /// The driver carries out the effects so far, and calls [`crate::Engine::turn`] again at once.
    Again,
    /// The turn is over. Another one is wanted at that time, whatever else happens. It may be now.
    Done(Option<Micros>),
}

/// The stage of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// No turn has begun.
    Rest,
    /// The replica works.
    Replica,
    /// The role of this server is known to its components, and commands that waited for a leader were sent.
    Settled,
}
