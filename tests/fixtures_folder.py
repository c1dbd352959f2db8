"""Real headers and proofs of public chains, in a folder beside the project. Tests that need it are
skipped without it.
"""

import json
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parent.parent.parent / "shared" / "fixtures"

needs_fixtures = pytest.mark.skipif(not FOLDER.is_dir(), reason="../shared/fixtures with real chain data is not there")


def fixture_names(pattern: str = "*.json") -> list[str]:
    """Return names of fixture files as test parameters. There are none without the folder."""
    return sorted(path.name for path in FOLDER.glob(pattern))


def load_fixture(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((FOLDER / name).read_text())
    return content


def unhex(value: str) -> bytes:
    return bytes.fromhex(value.removeprefix("0x"))
