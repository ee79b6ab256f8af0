//! Does one small piece of the server's work a given number of times, so that its instructions can be counted.
//!
//!     cargo run --profile micro -p corral-micro -- CASE TIMES
//!     cargo run --profile micro -p corral-micro                  # names the cases
//!
//! `bench/micro/run.py` runs each case under callgrind, TIMES and twice TIMES, and divides the difference: what a case
//! prepares does not count. So the preparation must not depend on TIMES, and every operation must do the same work.
//! Knows no runtime and no socket; nothing of the server depends on it.
#![allow(clippy::print_stdout, reason = "it prints its cases")]

mod parts;
mod rig;

use std::process::ExitCode;

use corral_wire::OpCode;
use parts::{TIMES_MAX, append, in_delta, in_snapshot, key, look_up, new_path, path};
use rig::{Request, shard, shard_children};

/// As the server has it, so that allocations cost here what they cost there.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Case = (&'static str, fn(u32));

const CASES: &[Case] = &[
    ("view delta hit", |times| look_up(in_delta(), times, key)),
    ("view delta miss", |times| look_up(in_delta(), times, new_path)),
    ("view snapshot hit", |times| look_up(in_snapshot(), times, key)),
    ("view snapshot miss", |times| look_up(in_snapshot(), times, new_path)),
    ("evaluate multi of 4", parts::evaluate_multi),
    ("watch add", parts::watch_add),
    ("watch fire", parts::watch_fire),
    ("shard get", |times| shard(times, |xid| Request::Read(OpCode::GetData, key(xid), false))),
    ("shard get with watch", |times| shard(times, |xid| Request::Read(OpCode::GetData, path(xid), true))),
    ("shard exists", |times| shard(times, |xid| Request::Read(OpCode::Exists, key(xid), false))),
    ("shard children of 100", |times| shard_children(100, rig::DEPTH, times.div_ceil(rig::DEPTH))),
    // A list that is written in pieces; one for each 64 times.
    ("shard children of 20,000, a 64th", |times| shard_children(20_000, 1, times / 64)),
    ("shard set", |times| shard(times, |xid| Request::Set(key(xid)))),
    ("shard create", |times| shard(times, |xid| Request::Create(new_path(xid)))),
    ("shard create and delete", |times| {
        let request = |xid| {
            if xid % 2 == 0 { Request::Create(new_path(xid)) } else { Request::Delete(new_path(xid - 1)) }
        };
        shard(times, request);
    }),
    // A lone small write, and a batch of 64.
    ("log append 512 B", |times| append(times, 512)),
    ("log append 16 KiB", |times| append(times, 16 << 10)),
];

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(wanted), Some(times)) = (arguments.next(), arguments.next()) else {
        CASES.iter().for_each(|(name, _)| println!("{name}"));
        return ExitCode::SUCCESS;
    };
    let times = times.parse().ok().filter(|times| (1..=TIMES_MAX).contains(times));
    let (Some((_, case)), Some(times)) = (CASES.iter().find(|(name, _)| *name == wanted), times) else {
        println!("no such case, or not 1 to {TIMES_MAX} times");
        return ExitCode::FAILURE;
    };
    case(times);
    ExitCode::SUCCESS
}
