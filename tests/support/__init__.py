"""What the black-box suites share: a protocol client of their own, servers, conditions, a runner."""
