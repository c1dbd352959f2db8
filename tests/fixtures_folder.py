"""Real headers, proofs and blocks of public chains.

`recorded/` has small ones, each with its source and licence. A folder beside the maintainers' checkouts has more and
larger ones. Tests that need these are skipped without it.
"""

import json
from pathlib import Path
from typing import Any

import pytest

RECORDED = Path(__file__).parent / "recorded"
FOLDER = Path(__file__).resolve().parent.parent.parent / "shared" / "fixtures"

needs_fixtures = pytest.mark.skipif(not FOLDER.is_dir(), reason="../shared/fixtures with large recordings is missing")


def fixture_names(pattern: str = "*.json") -> list[str]:
    """Return names of fixture files as test parameters."""
    return sorted({path.name for folder in (RECORDED, FOLDER) for path in folder.glob(pattern)})


def load_fixture(name: str) -> dict[str, Any]:
    path = RECORDED / name
    content: dict[str, Any] = json.loads((path if path.exists() else FOLDER / name).read_text())
    return content


def unhex(value: str) -> bytes:
    return bytes.fromhex(value.removeprefix("0x"))
