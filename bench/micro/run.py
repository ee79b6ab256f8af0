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
HEADER = """\
# Instructions of one operation of each case, counted by callgrind (bench/micro/run.py --accept writes this file).
# tolerance_percent: how much dearer a case may be with the compiler named here; with another compiler, the second.
"""


def said(*command: str, **options) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout.strip()


def build() -> pathlib.Path:
    subprocess.run(["cargo", "build", "--quiet", "--profile", "micro", "-p", "corral-micro"], cwd=HERE, check=True)
    metadata = json.loads(said("cargo", "metadata", "--format-version", "1", "--no-deps", cwd=HERE))
    return pathlib.Path(metadata["target_directory"]) / "micro" / "corral-micro"


def instructions(binary: pathlib.Path, case: str, times: int) -> int:
    """All instructions of one run."""
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
    """Instructions of one operation."""
    return (instructions(binary, case, 2 * TIMES) - instructions(binary, case, TIMES)) / TIMES


def accept(counts: dict[str, float], old: dict, compiler: str) -> None:
    settings = {"tolerance_percent": 3, "tolerance_percent_other_compiler": 15}
    lines = [f'compiler = "{compiler}"', *(f"{key} = {old.get(key, usual)}" for key, usual in settings.items()), "", "[counts]"]
    lines += [f'"{case}" = {round(value)}' for case, value in counts.items()]
    TABLE.write_text(HEADER + "\n".join(lines) + "\n")
    print(f"wrote {TABLE}")


def judge(counts: dict[str, float], table: dict, whole: bool, compiler: str) -> int:
    """Prints a line a case and the sum; answers how many failed."""
    known, same = table.get("counts", {}), table.get("compiler") == compiler
    percent = table["tolerance_percent" if same else "tolerance_percent_other_compiler"]
    if not same:
        print(f"the table was made with {table.get('compiler')}, this is {compiler}: {percent} % are allowed")
    failed = [f"{case}: in bench/micro/counts.toml, but there is no such case" for case in sorted(known.keys() - counts.keys()) if whole]
    passed = cheaper = 0
    for case, value in counts.items():
        before = known.get(case)
        if before is None:
            failed.append(f"{case}: {value:.0f} instructions, but bench/micro/counts.toml does not know the case")
            continue
        change = (value / before - 1) * 100
        cheaper += change < -percent
        line = f"{case}: {value:.0f} instructions, {before} in the table ({change:+.1f} %)"
        # A handful of instructions is no slowdown.
        if change > percent and value - before > 4:
            failed.append(line)
        else:
            passed += 1
            print(f"ok   {line}")
    for line in failed:
        print(f"FAIL {line}")
    if failed:
        print("A case costs more, or the table does not fit. Find out why (callgrind_annotate shows where), make it cheap\n"
              "again, or, if the work is worth its price, accept the new figures with bench/micro/run.py --accept and say in\n"
              "the commit what they buy.")
    elif cheaper:
        print(f"{cheaper} cases cost less: bench/micro/run.py --accept keeps it so.")
    print(f"\n{passed} passed, {len(failed)} failed, 0 skipped")
    return len(failed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--accept", action="store_true", help="write the table anew")
    parser.add_argument("--binary", type=pathlib.Path, help="count this build of corral-micro, and make none")
    parser.add_argument("cases", nargs="*", help="only these")
    arguments = parser.parse_args()
    if arguments.accept and arguments.cases:
        parser.error("the table is written as a whole")
    if not shutil.which("valgrind"):
        print("skip micro: valgrind is not installed (Debian's package valgrind)\n0 passed, 0 failed, 1 skipped")
        return 0
    binary = arguments.binary.resolve() if arguments.binary else build()
    all_cases, compiler = said(str(binary)).splitlines(), said("rustc", "--version")
    if unknown := [case for case in arguments.cases if case not in all_cases]:
        parser.error(f"no case {unknown[0]!r}; the cases are: {', '.join(all_cases)}")
    cases = arguments.cases or all_cases
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        counts = dict(zip(cases, pool.map(lambda case: count(binary, case), cases)))
    table = tomllib.loads(TABLE.read_text()) if TABLE.exists() else {}
    if arguments.accept:
        accept(counts, table, compiler)
        return 0
    return 1 if judge(counts, table, not arguments.cases, compiler) else 0


if __name__ == "__main__":
    sys.exit(main())
