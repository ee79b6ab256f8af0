//! The data directory beside log and snapshots: its owner, quarantined data, the last known membership; and snapshots
//! between files and the core.
//!
//! Files alone. Knows no actor.

pub(crate) mod backups;
pub(crate) mod committed;
pub(crate) mod damage;
pub(crate) mod lenders;
pub(crate) mod owner;
pub(crate) mod quarantine;
pub(crate) mod remembered;
pub(crate) mod snapshots;
pub(crate) mod staged;
