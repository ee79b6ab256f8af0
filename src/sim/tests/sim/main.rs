//! Tests of the simulator: planted bugs are caught, a world is repeatable, lists of worlds are read, and the fuzz targets hold.
//!
//! The worlds themselves are played by `corral-sim worlds src/sim/worlds.txt`.

mod bugs;
mod fuzz;
mod replaced_entries;
mod worlds;

use corral_sim::fuzz::memory::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;
