//! Does one small piece of the server's work a given number of times, so that its instructions can be counted.
//!
//!     cargo run --profile micro -p corral-micro -- CASE TIMES
//!     cargo run --profile micro -p corral-micro                  # names the cases
//!
//! `bench/micro/run.py` runs each case under callgrind, TIMES and twice TIMES, and divides the difference: what a case
//! prepares does not count. So the preparation must not depend on TIMES, and every operation must do the same work.
//! Knows no runtime and no socket; nothing of the server depends on it.
#![allow(clippy::print_stdout, reason = "it prints its cases")]

mod log;
mod parts;
mod rig;
mod tree;
mod wire;

use std::process::ExitCode;

use tree::TIMES_MAX;

/// As the server has it, so that allocations cost here what they cost there.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Case = (&'static str, fn(u32));

const CASES: &[Case] = &[
    ("decode get", wire::decode_get),
    ("decode set", wire::decode_set),
    ("decode create", wire::decode_create),
    ("encode get reply", wire::encode_get_reply),
    ("encode create reply", wire::encode_create_reply),
    ("view delta hit", parts::view_delta_hit),
    ("view delta miss", parts::view_delta_miss),
    ("view snapshot hit", parts::view_snapshot_hit),
    ("view snapshot miss", parts::view_snapshot_miss),
    ("evaluate set", parts::evaluate_set),
    ("evaluate create", parts::evaluate_create),
    ("evaluate multi of 4", parts::evaluate_multi),
    ("batch encode set", parts::batch_encode_set),
    ("batch encode create", parts::batch_encode_create),
    ("batch decode set", parts::batch_decode_set),
    ("batch decode create", parts::batch_decode_create),
    ("watch add", parts::watch_add),
    ("watch fire", parts::watch_fire),
    ("shard get", rig::get),
    ("shard get with watch", rig::get_with_watch),
    ("shard exists", rig::exists),
    ("shard children of 100", rig::children),
    ("shard children of 20,000, a 64th", rig::children_in_pieces),
    ("shard set", rig::set),
    ("shard create", rig::create),
    ("shard create and delete", rig::create_and_delete),
    ("log append 512 B", log::append_small),
    ("log append 16 KiB", log::append_batch),
];

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(wanted), Some(times)) = (arguments.next(), arguments.next()) else {
        for (name, _) in CASES {
            println!("{name}");
        }
        return ExitCode::SUCCESS;
    };
    let times = times.parse().ok().filter(|times| (1..=TIMES_MAX).contains(times));
    match (CASES.iter().find(|(name, _)| *name == wanted), times) {
        (Some((_, case)), Some(times)) => {
            case(times);
            ExitCode::SUCCESS
        }
        _ => {
            println!("no such case, or not 1 to {TIMES_MAX} times");
            ExitCode::FAILURE
        }
    }
}
