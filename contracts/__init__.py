"""The contracts: Solidity sources in `src/` and what the compiler made of them in `artifacts/`, both committed.

Using them needs no compiler. `python -m contracts.build` makes the artifacts anew.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from eth_typing import ABI

ARTIFACTS_DIR = Path(__file__).parent / "artifacts"


@dataclass(frozen=True)
class Artifact:
    """A contract ready to deploy: its ABI, and its creation bytecode without constructor arguments."""

    abi: ABI
    bytecode: bytes


@cache
def load_artifact(name: str) -> Artifact:
    """The artifact of a contract by its name: `FactsRegistry`; `test/...` for those that only tests deploy.

    Raises FileNotFoundError where there is no such contract.
    """
    stored = json.loads((ARTIFACTS_DIR / f"{name}.json").read_text())
    return Artifact(abi=stored["abi"], bytecode=bytes.fromhex(stored["bytecode"].removeprefix("0x")))
