"""Fixtures of proving that tests of its inside use."""

from tests.proving.conftest import costly, killing, op_stack

__all__ = ["costly", "killing", "op_stack"]
