//! Configurations of nodes that the tests share.

use corral_consensus::{Config, ServerId};

/// The configuration of a node that takes its membership from its disk.
pub(crate) fn config(id: ServerId, max_inflight_entries: u32, seed: u64) -> Config {
    Config {
        id,
        voters: Vec::new(),
        learners: Vec::new(),
        election_ticks: 10,
        heartbeat_ticks: 2,
        max_inflight_entries,
        log_cache_bytes: 32 << 20,
        max_entry_bytes: 1 << 20,
        seed,
    }
}

/// The configuration of a voter without other voters.
pub(crate) fn config_alone() -> Config {
    Config { voters: vec![ServerId(1)], ..config(ServerId(1), 100, 1) }
}

pub(crate) fn numbered(id: u64) -> ServerId {
    ServerId(u8::try_from(id).expect("a small number"))
}

/// The server at this place in a list of servers, and back.
pub(crate) fn id_of(at: usize) -> ServerId {
    numbered(at as u64 + 1)
}

pub(crate) fn at_of(id: ServerId) -> usize {
    usize::from(id.0 - 1)
}
