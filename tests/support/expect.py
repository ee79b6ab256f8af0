"""Assertions about values and about what a server answers."""

from support.client import Closed, Refused


def equal(actual, expected, what=""):
    """Fails with both values unless they are equal."""
    assert actual == expected, f"{what}{': ' if what else ''}got {actual!r}, expected {expected!r}"


def refuses(code, call, *arguments, **options):
    """Fails unless the call is answered with the error code."""
    shown = f"{call.__name__}{arguments}"
    try:
        value = call(*arguments, **options)
    except Refused as refused:
        equal(refused.code, code, shown)
    else:
        raise AssertionError(f"{shown}: succeeded with {value!r}, expected error {code}")


def closes(call, *arguments, **options):
    """Fails unless the server closes the connection instead of answering."""
    try:
        value = call(*arguments, **options)
    except (Closed, ConnectionError):
        return
    raise AssertionError(f"{call.__name__}{arguments}: answered {value!r} instead of closing")
