"""What bench/compare consists of: the peers, the scenarios, the targets and the report. Python's standard library alone."""

import sys


def say(text):
    """Progress goes to standard error."""
    print(text, file=sys.stderr, flush=True)
