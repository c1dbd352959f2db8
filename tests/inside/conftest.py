"""Fixtures of proving that tests of its inside use."""

from tests.proving.conftest import costly, killer, op_stack

__all__ = ["costly", "killer", "op_stack"]
