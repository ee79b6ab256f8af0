"""Searches and measurements without an end of their own: `--minutes` says how long, `--seed` which one."""
