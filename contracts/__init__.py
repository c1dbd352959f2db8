"""The contracts: Solidity sources in `src/` and what the compiler made of them in `artifacts/`, both committed.

Using them needs no compiler. `python -m contracts.build` makes the artifacts anew.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from eth_typing import ABI
from eth_utils.crypto import keccak

ARTIFACTS_DIR = Path(__file__).parent / "artifacts"
# The address that stands for no contract.
NO_CONTRACT = "0x" + "00" * 20


@dataclass(frozen=True)
class Artifact:
    """A contract ready to deploy: its ABI, and its creation bytecode without constructor arguments.

    `runtime` is the code that is then at its address, with zeros for its immutables; `immutables` are the places of
    each, 32 bytes from there on, by its name.
    """

    abi: ABI
    bytecode: bytes
    runtime: bytes
    immutables: Mapping[str, Sequence[int]]

    def deployed(self, **immutables: int) -> bytes:
        """Return the code at the address of a contract deployed with all these immutables; addresses as numbers."""
        code = bytearray(self.runtime)
        for name, places in self.immutables.items():
            for place in places:
                code[place : place + 32] = immutables[name].to_bytes(32)
        return bytes(code)


@cache
def load_artifact(name: str) -> Artifact:
    """Return the artifact of a contract by its name: `FactsRegistry`; `test/...` for those that only tests deploy.

    Raises FileNotFoundError where there is no such contract.
    """
    stored = json.loads((ARTIFACTS_DIR / f"{name}.json").read_text())
    return Artifact(
        abi=stored["abi"],
        bytecode=bytes.fromhex(stored["bytecode"].removeprefix("0x")),
        runtime=bytes.fromhex(stored["deployedBytecode"].removeprefix("0x")),
        immutables=stored["immutables"],
    )


def code_digest() -> str:
    """Return the keccak-256 that names the code of all contracts but those that only tests deploy.

    It is that of the keccak-256 of each one's creation bytecode, in the order of their names. Constructors count too.
    """
    names = sorted(path.stem for path in ARTIFACTS_DIR.glob("*.json"))
    return "0x" + keccak(b"".join(keccak(load_artifact(name).bytecode) for name in names)).hex()
