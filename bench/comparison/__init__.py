"""What bench/compare consists of: servers, loads, scenarios and the report. Python's standard library, and how the tests start servers."""

import sys
from pathlib import Path

BENCH = Path(__file__).resolve().parent.parent
REPOSITORY = BENCH.parent
sys.path.insert(0, str(REPOSITORY / "tests"))


def say(text):
    """Progress goes to standard error."""
    print(text, file=sys.stderr, flush=True)
