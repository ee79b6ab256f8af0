"""What the black-box suites share: a protocol client of their own, servers, conditions, a runner."""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
