"""Fixtures of tests that knew the outside and the inside once."""

from tests.proving.conftest import costly

__all__ = ["costly"]
