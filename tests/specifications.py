"""Tests that need the executable consensus specifications."""

import pytest

from devnet.consensus_client import ENVIRONMENT

with_specifications = pytest.mark.skipif(
    not (ENVIRONMENT / "ready").exists(), reason="the specifications are not installed: make .venv-beacon/ready"
)
