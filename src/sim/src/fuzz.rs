//! Fuzz targets: plain functions from any bytes to a verdict. [`runner`] makes inputs from a seed.
//!
//! A target fails by a panic, by a broken property, or by holding more memory at once than its input allows
//! ([`Target::memory_max`]). Knows no file and no clock; one input never influences the next.

mod actors;
mod canary;
pub mod cost;
mod judge;
mod link;
pub mod memory;
mod peers;
mod records;
mod rules;
pub mod runner;
mod script;
mod server;
mod servers;
mod tally;

use crate::rng::Stream;
use crate::violation::{Violation, require};
use server::MEMORY as SHARD_MEMORY;

pub use tally::Tally;

/// Longest input that is made, bytes.
const INPUT_BYTES_MAX: usize = 4096;

/// Something that takes any bytes.
#[derive(Clone, Copy)]
pub struct Target {
    pub name: &'static str,
    run: Run,
    generate: Generate,
    /// Inputs of a short run.
    pub inputs_quick: u64,
    /// Bytes of memory that may be held at once: so many for each byte of input, and these in any case.
    memory: (usize, usize),
}

/// Every target: one for each kind of bytes that comes from others. The records of clients are read by the shard, and
/// are the subject of the property tests of `corral-wire`.
pub const TARGETS: [Target; 8] = [
    Target::of("path", rules::path, rules::generate_path, 1_000_000, (8, 512)),
    Target::of("acl", rules::acl, rules::generate_acl, 300_000, (256, 4096)),
    Target::of("servers", servers::change, servers::generate, 300_000, (256, 32 << 10)),
    Target::of("batch", rules::batch, rules::generate_batch, 300_000, (64, 16 << 10)),
    Target::of("handshake", link::handshake, link::generate_handshake, 300_000, (8, 1024)),
    // Each frame is copied once, the input is fed twice; room for a payload is made in steps of 64 KiB.
    Target::of("keyed", link::keyed, link::generate_keyed, 300_000, (64, 132 << 10)),
    Target::of("peer", peers::peer, peers::generate, 100_000, (128, 256 << 10)),
    Target::of("shard", |input| server::play(input, false), script::generate, 50_000, SHARD_MEMORY),
];

/// Targets with a bug each, which the runner must find: a fuzzer that finds nothing in these looks at nothing.
pub const CANARIES: [Target; 3] = [
    Target::of("unchecked index", canary::unchecked_index, canary::generate_watch, 100_000, (8, 512)),
    Target::of("trusted count", canary::trusted_count, canary::generate_watches, 100_000, (8, 512)),
    Target::of("lost answer", |input| server::play(input, true), script::generate, 1000, SHARD_MEMORY),
];

type Run = fn(&[u8]) -> Result<Tally, Violation>;
type Generate = fn(&mut Stream, &mut Vec<u8>);

impl Target {
    const fn of(name: &'static str, run: Run, generate: Generate, inputs_quick: u64, memory: (usize, usize)) -> Target {
        Target { name, run, generate, inputs_quick, memory }
    }

    /// The most memory an input of this length may make anything hold.
    pub const fn memory_max(&self, input_bytes: usize) -> usize {
        self.memory.1 + self.memory.0 * input_bytes
    }

    /// Runs one input. Gives what it led to and the most memory held at once.
    ///
    /// # Errors
    /// The property that broke.
    ///
    /// # Panics
    /// When what is under test does.
    pub fn run(&self, input: &[u8]) -> Result<(Tally, usize), Violation> {
        let (done, peak) = memory::peak(|| (self.run)(input));
        let tally = done?;
        let allowed = self.memory_max(input.len());
        require(peak <= allowed, "memory", || {
            format!("{peak} bytes held for an input of {}, {allowed} allowed", input.len())
        })?;
        Ok((tally, peak))
    }

    /// An input, well formed for the most part, from a seed.
    fn make(&self, seed: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        (self.generate)(&mut Stream::new(seed, self.name), &mut bytes);
        bytes.truncate(INPUT_BYTES_MAX);
        bytes
    }
}
