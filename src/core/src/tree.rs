//! The tree of znodes: what a znode is, the snapshot file, the changes since, and the view over both.

pub mod acl;
pub mod change;
pub mod delta;
pub mod digest;
mod kids;
pub mod overlay;
pub mod path_hash;
pub mod snapshot;
pub mod view;
pub mod znode;
