"""Searches with new random cases. They take as long as `--minutes` gives, and are no part of the gate."""
