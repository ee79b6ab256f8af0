//! Subtrees in files: `corral export` and `corral import` with the formats json, jsonl and tar. Also documents of single znodes.
//!
//! The main thread only.

pub(crate) mod apply;
pub(crate) mod consent;
pub(crate) mod export;
mod format;
pub(crate) mod import;
pub(crate) mod plan;
mod record;
mod walk;
mod write;

pub(crate) use format::Format;
