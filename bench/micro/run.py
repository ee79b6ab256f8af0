#!/usr/bin/env python3
"""Counts the instructions of small pieces of the server's work and compares them with bench/micro/counts.toml.

    bench/micro/run.py              # every case; fails if one got dearer than the table allows
    bench/micro/run.py 'shard set'  # only these cases
    bench/micro/run.py --accept     # measures and writes the table anew

Each case runs twice under valgrind's callgrind, N and 2 N operations; the difference over N is the count of one
operation, free of what the case prepares. Counts do not depend on the load of the machine. See bench/micro/README.md.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib

TIMES = 1024
HERE = pathlib.Path(__file__).resolve().parent
TABLE = HERE / "counts.toml"
CASE_SECONDS_MAX = 300


def said(*command: str, **options) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout.strip()


def build() -> pathlib.Path:
    subprocess.run(["cargo", "build", "--quiet", "--profile", "micro", "-p", "corral-micro"], cwd=HERE, check=True)
    metadata = json.loads(said("cargo", "metadata", "--format-version", "1", "--no-deps", cwd=HERE))
    return pathlib.Path(metadata["target_directory"]) / "micro" / "corral-micro"


def instructions(binary: pathlib.Path, case: str, times: int) -> int:
    with tempfile.TemporaryDirectory(prefix="corral-micro-") as scratch:
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={scratch}/out", "--", str(binary), case, str(times)]
        # The environment is always the same, because it lies on the stack and moves what is there. The allocator gives
        # nothing back to the system, because when it would is a matter of time.
        environment = {"PATH": os.environ["PATH"], "MIMALLOC_PURGE_DELAY": "-1"}
        run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=CASE_SECONDS_MAX)
        found = re.search(r"^==\d+== Collected : (\d+)$", run.stderr, re.MULTILINE)
        if run.returncode != 0 or not found:
            raise RuntimeError(f"{' '.join(command)} ended with {run.returncode}:\n{run.stdout}{run.stderr}")
        return int(found.group(1))


def count(binary: pathlib.Path, case: str) -> float:
    return (instructions(binary, case, 2 * TIMES) - instructions(binary, case, TIMES)) / TIMES


def judge(counts: dict[str, float], table: dict, whole: bool, compiler: str) -> int:
    """Prints a line a case and the sum; returns how many failed."""
    known, same = table["counts"], table["compiler"] == compiler
    percent = table["tolerance_percent" if same else "tolerance_percent_other_compiler"]
    if not same:
        print(f"the table was made with {table['compiler']}, this is {compiler}: {percent} % are allowed")
    gone = sorted(known.keys() - counts.keys()) if whole else []
    failed = [f"{case}: in bench/micro/counts.toml, but there is no such case" for case in gone]
    for case, value in counts.items():
        before = known.get(case, 0)
        change = (value / before - 1) * 100 if before else 100
        line = f"{case}: {value:.0f} instructions, {before} in the table ({change:+.1f} %)"
        # A handful of instructions is no slowdown.
        if change > percent and value - before > 4:
            failed.append(line)
        else:
            print(f"ok   {line}")
    print(*(f"FAIL {line}" for line in failed), sep="\n", end="\n" * bool(failed))
    if failed:
        print("A case costs more, or the table does not fit. Find out why (callgrind_annotate shows where), make it cheap again, or,\n"
              "if the work is worth its price, accept the new figures with --accept and say in the commit what they buy.")  # fmt: skip
    print(f"\n{len(counts) + len(gone) - len(failed)} passed, {len(failed)} failed, 0 skipped")
    return len(failed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--accept", action="store_true", help="write the table anew")
    parser.add_argument("cases", nargs="*", help="only these")
    arguments = parser.parse_args()
    if arguments.accept and arguments.cases:
        parser.error("the table is written as a whole")
    if not shutil.which("valgrind"):
        sys.exit("valgrind is not installed (Debian's package valgrind)")
    binary = build()
    all_cases, compiler = said(str(binary)).splitlines(), said("rustc", "--version")
    if unknown := [case for case in arguments.cases if case not in all_cases]:
        parser.error(f"no case {unknown[0]!r}; the cases are: {', '.join(all_cases)}")
    cases = arguments.cases or all_cases
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        counts = dict(zip(cases, pool.map(lambda case: count(binary, case), cases)))
    text = TABLE.read_text()
    table = tomllib.loads(text)
    if arguments.accept:
        head = re.sub(r"(?m)^compiler = .*$", f'compiler = "{compiler}"', text.split("[counts]")[0])
        TABLE.write_text(head + "[counts]\n" + "".join(f'"{case}" = {round(value)}\n' for case, value in counts.items()))
        return 0
    return 1 if judge(counts, table, not arguments.cases, compiler) else 0


if __name__ == "__main__":
    sys.exit(main())
