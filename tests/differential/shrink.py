"""Makes a failing sequence small: drops steps, then operations inside steps, then parts of multis, while the difference stays."""

import time

TRIES_MAX, LIMIT_S = 400, 60


def shrink(steps, differs):
    """The smallest sequence found for which `differs` is still true."""
    tries, deadline = iter(range(TRIES_MAX)), time.monotonic() + LIMIT_S

    def test(candidate):
        return next(tries, None) is not None and time.monotonic() < deadline and differs(candidate)

    steps = without_parts(steps, test)
    for at in range(len(steps) - 1, -1, -1):
        if steps[at][0] != "send":
            continue

        def rebuilt(ops, at=at):
            slot, ending = steps[at][1], steps[at][3]
            return [*steps[:at], ["send", slot, ops, ending], *steps[at + 1 :]]

        ops = without_parts(steps[at][2], lambda ops: test(rebuilt(ops)))
        steps = rebuilt(ops)
        for place, op in enumerate(ops):
            if op[0] in ("multi", "multiRead") and len(op[1]) > 1:
                def with_parts(parts, place=place, ops=ops, name=op[0]):
                    return rebuilt([*ops[:place], [name, parts], *ops[place + 1 :]])

                parts = without_parts(op[1], lambda parts: test(with_parts(parts)))
                steps = with_parts(parts)
                ops = steps[at][2]
    return steps


def without_parts(items, test):
    """Drops runs of items, halves first and single ones last, as long as the rest passes the test."""
    size = len(items) // 2
    while size >= 1:
        at = 0
        while at < len(items):
            candidate = items[:at] + items[at + size :]
            if candidate and test(candidate):
                items = candidate
            else:
                at += size
        size //= 2
    return items
