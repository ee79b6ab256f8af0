//! The base of the actors' drivers: executors, the time, fair turns, and the watchdog over all of it.
//!
//! The only place beside `net` and `actor` that knows which asynchronous runtime this is.

pub(crate) mod clock;
pub(crate) mod complaint;
pub(crate) mod executor;
pub(crate) mod mailbox;
pub(crate) mod memory;
pub(crate) mod random;
pub(crate) mod rolling_file;
pub(crate) mod threads;
pub(crate) mod turn;
pub(crate) mod watchdog;
