//! The fuzz targets of `corral-sim` under libFuzzer, which follows the coverage. `campaign.py` builds and runs this.
//!
//! The environment variable `CORRAL_FUZZ_TARGET` names the target. One input in four is changed by the target's own
//! generator, which knows what frames and scripts look like, the others by libFuzzer.
#![no_main]

use std::sync::LazyLock;

use corral_sim::fuzz::Target;
use corral_sim::fuzz::memory::Counting;
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("CORRAL_FUZZ_TARGET").expect("CORRAL_FUZZ_TARGET names a target");
    let target = Target::named(&name).expect("there is a target of that name");
    // What is made once for all inputs is not any input's.
    let _ = target.run(&[]);
    target
});

fuzz_target!(|input: &[u8]| {
    if let Err(violation) = TARGET.run(input) {
        panic!("{violation}");
    }
});

fuzz_mutator!(|bytes: &mut [u8], size: usize, size_max: usize, seed: u32| {
    if seed % 4 != 0 {
        return fuzzer_mutate(bytes, size, size_max);
    }
    let mut input = bytes[..size].to_vec();
    TARGET.change(seed.into(), &mut input);
    let size = input.len().min(size_max);
    bytes[..size].copy_from_slice(&input[..size]);
    size
});
