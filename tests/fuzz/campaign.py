#!/usr/bin/env python3
"""A coverage-guided fuzzing campaign: builds the targets with coverage, runs libFuzzer on each, keeps what it learned.

    tests/fuzz/campaign.py [--inputs N] [--target NAME]... [--jobs N] [--work FOLDER] [--keep]

`--inputs` (default 100000000) are shared out among the targets: the slowest, the whole server in memory, gets a hundredth. Ends
with a table of what was run and code 1 if anything was found; the input then lies in FOLDER (default tests/fuzz/target/work),
and `corral-sim fuzz --target NAME --replay HEX` runs it again. `--keep` writes the smallest inputs with the same coverage to
corpus.txt, which the short runs of the tests begin with. Needs cargo (stable will do), a C++ compiler, no other tool.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
CORPUS = HERE / "corpus.txt"
TRIPLE = "x86_64-unknown-linux-gnu"
# What cargo-fuzz passes; all of it stable.
COVERAGE = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
]
# Shares of the inputs, in per cent.
SHARES = {"path": 33, "acl": 18, "servers": 10, "batch": 12, "handshake": 8, "keyed": 6, "peer": 12, "shard": 1}
INPUT_BYTES_MAX = 1024
# Inputs longer than this stay out of the corpus that is kept, and of the longest targets the shortest so many stay.
KEPT_BYTES_MAX, KEPT_MAX = 300, 250


def build(target_dir):
    """The fuzzer's path."""
    environment = dict(os.environ, CARGO_TARGET_DIR=str(target_dir), RUSTFLAGS=" ".join(COVERAGE))
    command = ["cargo", "build", "--quiet", "--release", "--target", TRIPLE]
    subprocess.run(command, cwd=HERE, env=environment, check=True)
    return target_dir / TRIPLE / "release" / "corral-fuzz"


def known_inputs():
    """What corpus.txt holds: target -> inputs."""
    known = {}
    lines = CORPUS.read_text().splitlines() if CORPUS.exists() else []
    for line in lines:
        if line and not line.startswith("#"):
            target, hexadecimal = line.split(" ", 1)
            known.setdefault(target, []).append(bytes.fromhex(hexadecimal))
    return known


def seed_corpus(folder, inputs):
    folder.mkdir(parents=True, exist_ok=True)
    for number, one in enumerate(inputs):
        (folder / f"known-{number}").write_bytes(one)


def run(fuzzer, target, inputs, work):
    """Runs a target. Gives (code, inputs run, seconds, last lines)."""
    corpus, found = work / target, work / f"found-{target}-"
    command = [fuzzer, f"-runs={inputs}", f"-max_len={INPUT_BYTES_MAX}", "-timeout=20", "-rss_limit_mb=2048",
               f"-artifact_prefix={found}", "-print_final_stats=1", "-reload=0", corpus]
    began = time.monotonic()
    environment = dict(os.environ, CORRAL_FUZZ_TARGET=target)
    log = work / f"{target}.log"
    with log.open("wb") as output:
        code = subprocess.run(command, env=environment, stdout=output, stderr=subprocess.STDOUT, check=False).returncode
    text = log.read_text(errors="replace")
    ran = re.search(r"stat::number_of_executed_units:\s*(\d+)", text)
    covered = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)", text)
    return {
        "target": target,
        "code": code,
        "inputs": int(ran.group(1)) if ran else 0,
        "seconds": time.monotonic() - began,
        "covered": covered[-1] if covered else ("?", "?", "?"),
        "tail": text.splitlines()[-25:],
    }


def keep(fuzzer, work, targets):
    """Writes the smallest inputs that have the coverage of all to corpus.txt."""
    known = known_inputs()
    for target in targets:
        merged = work / f"merged-{target}"
        merged.mkdir(exist_ok=True)
        command = [fuzzer, "-merge=1", f"-max_len={KEPT_BYTES_MAX}", merged, work / target]
        subprocess.run(command, env=dict(os.environ, CORRAL_FUZZ_TARGET=target), check=True, capture_output=True)
        inputs = sorted((path.read_bytes() for path in merged.iterdir()), key=lambda one: (len(one), one))
        known[target] = [one for one in inputs if 0 < len(one) <= KEPT_BYTES_MAX][:KEPT_MAX]
    lines = ["# Inputs that together reach what the fuzzer has reached: target and bytes. Written by campaign.py --keep."]
    lines += [f"{target} {one.hex()}" for target in SHARES for one in known.get(target, [])]
    CORPUS.write_text("\n".join(lines) + "\n")
    return len(lines) - 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=100_000_000)
    parser.add_argument("--target", action="append", choices=list(SHARES))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--work", type=pathlib.Path)
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    target_dir = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", HERE / "target"))
    work = options.work or target_dir / "work"
    targets = options.target or list(SHARES)
    fuzzer = build(target_dir)
    known = known_inputs()
    for target in targets:
        seed_corpus(work / target, known.get(target, []))
    whole = sum(SHARES[target] for target in targets)
    failed, total = 0, 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        # The slowest first.
        futures = [pool.submit(run, fuzzer, target, options.inputs * SHARES[target] // whole, work)
                   for target in reversed(targets)]
        for future in concurrent.futures.as_completed(futures):
            done = future.result()
            total += done["inputs"]
            edges, features, kept = done["covered"]
            verdict = "ok  " if done["code"] == 0 else "FAIL"
            failed += done["code"] != 0
            print(f"{verdict} {done['target']:9} {done['inputs']} inputs in {done['seconds']:.0f} s, {edges} edges, "
                  f"{features} features, {kept} inputs kept", flush=True)
            if done["code"] != 0:
                print("\n".join(done["tail"]))
    if options.keep and not failed:
        print(f"{keep(fuzzer, work, targets)} inputs in {CORPUS.name}")
    print(f"{total} inputs, {failed} targets failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
