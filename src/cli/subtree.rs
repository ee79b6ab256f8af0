//! Subtrees in files: `corral export` and `corral import` with the formats json, jsonl and tar.
//!
//! The main thread only.

pub(crate) mod export;
mod format;
pub(crate) mod import;
mod plan;
mod record;
mod walk;
mod write;

pub(crate) use format::Format;
