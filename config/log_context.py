"""What log lines are about, beside their words: the request, batch, block, transaction and chain, where known.

It holds for what runs inside of `about`, in this thread or this task of `chains.together`, and for no other.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

_fields: ContextVar[Mapping[str, str | int]] = ContextVar("log_context")


def fields() -> Mapping[str, str | int]:
    return _fields.get({})


@contextmanager
def about(**more: str | int) -> Iterator[None]:
    """Log lines inside have these fields, beside those that they have already."""
    before = _fields.set({**fields(), **more})
    try:
        yield
    finally:
        _fields.reset(before)


def enter(only: Mapping[str, str | int]) -> None:
    """Give log lines these fields from now on, and no others."""
    _fields.set(only)
