"""Run two independent oracles: the executable consensus specifications in Python, and Lodestar's types."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from devnet.devchain import PROJECT

_FOLDER = Path(__file__).parent
_PYTHON = PROJECT / ".venv-beacon" / "bin" / "python"
_MODULES = _FOLDER / "npm" / "node_modules"
_PRESETS = ("mainnet", "minimal")

needs_oracles = pytest.mark.skipif(
    not ((PROJECT / ".venv-beacon" / "ready").exists() and (_MODULES / "ready").exists()),
    reason="the oracles are not installed: make .venv-beacon/ready tests/beacon_oracles/npm/node_modules/ready",
)


def by_specifications(folder: Path) -> dict[str, Any]:
    """Let the specifications write chains into an empty folder. Return the chains with their branches."""
    _run_specifications(folder)
    worlds: dict[str, Any] = json.loads((folder / "worlds.json").read_text())
    return worlds


def by_specifications_of(recorded: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return branches of recorded mainnet data, computed by the specifications."""
    (folder / "recorded.json").write_text(json.dumps(recorded))
    _run_specifications(folder)
    branches: dict[str, Any] = json.loads((folder / "branches.json").read_text())
    return branches


def by_lodestar(folder: Path) -> dict[str, dict[str, Any]]:
    """Return Lodestar's branches of the chains in the folder, by preset."""
    command = [Path(sys.executable).with_name("node"), _FOLDER / "npm" / "branches.mjs", folder]
    processes = {
        preset: subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"LODESTAR_PRESET": preset})
        for preset in _PRESETS
    }
    outputs = {preset: process.communicate()[0] for preset, process in processes.items()}
    assert not any(process.returncode for process in processes.values())
    return {preset: json.loads(output) for preset, output in outputs.items()}


def _run_specifications(folder: Path) -> None:
    subprocess.run([_PYTHON, _FOLDER / "executable_specs.py", folder], check=True)
