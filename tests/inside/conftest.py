"""Fixtures of tests/proving for tests of its inside."""

from tests.proving.conftest import costly, killing, op_stack

__all__ = ["costly", "killing", "op_stack"]
