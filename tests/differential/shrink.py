"""Shrinks a case that differs: drops steps, then operations of steps, then parts of multis, while the difference stays."""

import time

TRIES_MAX, LIMIT_S = 400, 60
# Where the items inside an item are.
INNER = {"send": 2, "multi": 1, "multiRead": 1}


def shrink(steps, differs):
    """The smallest case found for which `differs` is still true."""
    tries, deadline = iter(range(TRIES_MAX)), time.monotonic() + LIMIT_S

    def reduced(items, whole):
        """Drops items. `whole` makes the case of them."""

        def fails(candidate):
            return next(tries, None) is not None and time.monotonic() < deadline and differs(whole(candidate))

        items = without_parts(items, fails)
        for at in range(len(items) - 1, -1, -1):
            head, inner, tail = items[:at], INNER.get(items[at][0]), items[at + 1 :]
            if inner:
                item = items[at]
                around = lambda part: [*head, [*item[:inner], part, *item[inner + 1 :]], *tail]  # noqa: E731, B023
                items = around(reduced(item[inner], lambda part: whole(around(part))))  # noqa: B023
        return items

    return reduced(steps, lambda case: case)


def without_parts(items, fails):
    """Drops runs of items, halves first and single ones last, as long as the rest fails."""
    size = len(items) // 2
    while size >= 1:
        at = 0
        while at < len(items):
            candidate = items[:at] + items[at + size :]
            if candidate and fails(candidate):
                items = candidate
            else:
                at += size
        size //= 2
    return items
