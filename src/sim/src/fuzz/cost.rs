//! The search for costs: what a request makes a server do, hold, write and send, for each of its bytes.
//!
//! [`lab`] runs a whole server in memory and times its turns; [`genome`] is an attack as a structure; [`search`] grows attacks
//! that cost much; [`constructions`] are the dearest known ones, of which `corral-sim costs` makes the table of
//! `docs/costs.md`. Time is CPU time of the thread.

pub mod bill;
mod clock;
pub mod constructions;
pub mod genome;
mod lab;
mod mutate;
pub mod plant;
pub mod search;
pub mod table;
mod trees;

pub use lab::Reach;
