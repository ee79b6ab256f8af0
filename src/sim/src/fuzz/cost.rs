//! What a request makes a server do, hold, write and send, for each of its bytes.
//!
//! The constructions are the most expensive known requests, each an attack as a structure; the lab runs a whole server in memory and
//! times its turns; [`table`] is what `corral-sim costs` writes into `docs/costs.md`. Time is CPU time of the thread.

mod attack;
mod constructions;
mod lab;
pub mod table;
