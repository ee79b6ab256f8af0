//! The costs of a request for each of its bytes: work, memory, disk writes and sent bytes.
//!
//! The constructions are the most expensive known requests, each an attack as a structure. The lab runs a whole server
//! in memory and times its turns. `corral-sim costs` writes [`table`] into `docs/costs.md`. Time is CPU time of the
//! thread.

mod attack;
mod constructions;
mod lab;
pub mod table;
