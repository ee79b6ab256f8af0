"""Load on one server or an ensemble, and a linear oracle that judges what survives of it."""
