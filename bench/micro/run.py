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


def compiler() -> str:
    return subprocess.run(["rustc", "--version"], check=True, capture_output=True, text=True).stdout.strip()


def build() -> pathlib.Path:
    command = ["cargo", "build", "--quiet", "--profile", "micro", "-p", "corral-micro"]
    subprocess.run(command, cwd=HERE, check=True)
    metadata = subprocess.run(["cargo", "metadata", "--format-version", "1", "--no-deps"], cwd=HERE, check=True,
                              capture_output=True, text=True).stdout
    target = re.search(r'"target_directory":"([^"]*)"', metadata).group(1)
    return pathlib.Path(target) / "micro" / "corral-micro"


def instructions(binary: pathlib.Path, case: str, times: int) -> int:
    """All instructions of one run."""
    with tempfile.TemporaryDirectory(prefix="corral-micro-") as scratch:
        out = f"{scratch}/callgrind.out"
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--", str(binary), case, str(times)]
        # Everybody has the same environment, because it lies on the stack and moves what is there. The allocator gives
        # nothing back to the system, because when it would is a matter of time.
        environment = {"PATH": os.environ["PATH"], "MIMALLOC_PURGE_DELAY": "-1"}
        run = subprocess.run(command, env=environment, capture_output=True, text=True,
                             timeout=CASE_SECONDS_MAX)
        found = re.search(r"^==\d+== Collected : (\d+)$", run.stderr, re.MULTILINE)
        if run.returncode != 0 or not found:
            raise RuntimeError(f"{' '.join(command)} ended with {run.returncode}:\n{run.stdout}{run.stderr}")
        return int(found.group(1))


def count(binary: pathlib.Path, case: str) -> float:
    """Instructions of one operation."""
    return (instructions(binary, case, 2 * TIMES) - instructions(binary, case, TIMES)) / TIMES


def accept(counts: dict[str, float], old: dict) -> None:
    lines = [HEADER, f'compiler = "{compiler()}"\n']
    for key, default in (("tolerance_percent", 3), ("tolerance_percent_other_compiler", 15)):
        lines.append(f"{key} = {old.get(key, default)}\n")
    lines.append("\n[counts]\n")
    lines += [f'"{case}" = {round(value)}\n' for case, value in counts.items()]
    TABLE.write_text("".join(lines))
    print(f"wrote {TABLE}")


def judge(counts: dict[str, float], table: dict, whole: bool) -> tuple[int, int]:
    """Prints a line a case; answers how many passed and failed."""
    known, ours = table.get("counts", {}), compiler()
    same = table.get("compiler") == ours
    percent = table["tolerance_percent" if same else "tolerance_percent_other_compiler"]
    if not same:
        print(f"the table was made with {table.get('compiler')}, this is {ours}: {percent} % are allowed")
    passed = failed = cheaper = 0
    for case, value in counts.items():
        before = known.get(case)
        if before is None:
            print(f"FAIL {case}: {value:.0f} instructions, but bench/micro/counts.toml does not know the case")
            failed += 1
            continue
        change = (value / before - 1) * 100
        # A handful of instructions is no slowdown.
        dearer = change > percent and value - before > 4
        cheaper += change < -percent
        print(f"{'FAIL' if dearer else 'ok  '} {case}: {value:.0f} instructions, {before} in the table ({change:+.1f} %)")
        failed, passed = failed + dearer, passed + (not dearer)
    for case in sorted(known.keys() - counts.keys()) if whole else ():
        print(f"FAIL {case}: in bench/micro/counts.toml, but there is no such case")
        failed += 1
    if failed:
        print("A case got dearer, or the table does not fit. Find out why (callgrind_annotate shows where), make it cheap\n"
              "again, or, if the work is worth its price, accept the new figures with bench/micro/run.py --accept and say in\n"
              "the commit what they buy.")
    elif cheaper:
        print(f"{cheaper} cases got cheaper: bench/micro/run.py --accept keeps it so.")
    return passed, failed


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
    all_cases = subprocess.run([str(binary)], check=True, capture_output=True, text=True).stdout.splitlines()
    strange = [case for case in arguments.cases if case not in all_cases]
    if strange:
        parser.error(f"no case {strange[0]!r}; the cases are: {', '.join(all_cases)}")
    cases = arguments.cases or all_cases
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        counts = dict(zip(cases, pool.map(lambda case: count(binary, case), cases)))
    table = tomllib.loads(TABLE.read_text()) if TABLE.exists() else {}
    if arguments.accept:
        accept(counts, table)
        return 0
    passed, failed = judge(counts, table, not arguments.cases)
    print(f"\n{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
