//! corral-sim: a server or an ensemble in a simulated world, one seed deciding everything, checkers that look on.
//!
//! The second driver of the actors, besides the server's executors: the real `Shard`, `Sequencer`, `Replica` and `Log`. The disk
//! loses and tears data, and the clients send real bytes. A failure is a seed and a commit.
//!
//! Start with [`WorldId::play`]. Each property is a file in `check`, and the independent model is in `model`.

/// A list of operations by their names.
macro_rules! ops {
    ($($op:ident)*) => { [$(corral_wire::OpCode::$op),*] };
}

/// Defines a struct in which all fields are counts.
macro_rules! counts {
    ($(#[$about:meta])* $type:ident: $($(#[$doc:meta])* $name:ident,)*) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $type {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl $type {
            pub(crate) fn add(&mut self, other: &$type) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

pub mod campaign;
mod check;
mod client;
mod dispatch;
mod faults;
pub mod fuzz;
pub mod limits;
mod link;
mod log_lines;
mod model;
mod options;
mod play;
mod reconfig;
mod request;
mod rng;
mod run;
mod server;
mod servers;
mod shard_driver;
mod trace;
mod violation;
mod workload;
mod world;

pub use options::Bug;
pub use play::{Kind, Outcome, WorldId, played};
pub use trace::Tracing;
pub use violation::{Checked, Violation};
pub use world::counts::Counts;
