//! The costs of one batch in a group of one: propose, append, durable, committed, applied.
//!
//! Prints nanoseconds per batch; `cargo run --release -p corral-consensus --example group_of_one [payload bytes]`.

use std::io::Write;
use std::time::Instant;

use bytes::Bytes;
use corral_consensus::{Config, Outputs, RaftNode, Restored, ServerId};

const WARM_UP: u32 = 10_000;
const BATCHES: u32 = 300_000;

fn turn(node: &mut RaftNode, out: &mut Outputs) {
    let mut must_report = None;
    while node.ready(out) {
        if let Some(append) = out.append.as_ref().filter(|append| append.must_sync) {
            must_report = Some(append.number);
        }
        if let Some(last) = out.committed.last() {
            node.applied(last.index);
        }
        if let Some(number) = must_report.take() {
            node.persisted(number);
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bytes: usize = std::env::args().nth(1).map_or(Ok(4096), |text| text.parse())?;
    let config = Config {
        id: ServerId(1),
        voters: vec![ServerId(1)],
        learners: Vec::new(),
        election_ticks: 10,
        heartbeat_ticks: 1,
        max_inflight_entries: 1024,
        log_cache_bytes: 32 << 20,
        max_entry_bytes: 16 << 20,
        seed: 1,
    };
    let mut node = RaftNode::new(config, Restored::default())?;
    let mut out = Outputs::default();
    let payload = Bytes::from(vec![7; bytes]);
    node.campaign();
    turn(&mut node, &mut out);
    let mut start = Instant::now();
    for batch in 0..WARM_UP + BATCHES {
        if batch == WARM_UP {
            start = Instant::now();
        }
        node.propose(payload.clone())?;
        turn(&mut node, &mut out);
    }
    let nanos = start.elapsed().as_nanos() / u128::from(BATCHES);
    writeln!(std::io::stdout(), "{nanos} ns per batch of {bytes} bytes, {} bytes held", node.held_bytes())?;
    Ok(())
}
